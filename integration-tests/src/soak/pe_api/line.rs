//! Calls from the address of a pod, a second each. As in the runtime, a report and the name of a job have a connection
//! of their own, and whoever asks again and again keeps one, if the frontend does.
//!
//! Knows: HTTP. Must not know: what is asked.

use super::tally::Answer;
use anyhow::{Context as _, Result};
use reqwest::header::{CONTENT_TYPE, HOST};
use reqwest::{Client, Method};
use rustls::{ClientConfig, RootCertStore};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use streams_pe_double::CALL;

/// What all lines share: where the frontend is. Nobody speaks TLS here, so none of them reads certificates.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    frontend: SocketAddr,
    tls: ClientConfig,
}

impl Lines {
    /// Lines to this frontend.
    ///
    /// # Errors
    /// When there is no TLS.
    pub(super) fn new(frontend: SocketAddr) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        Ok(Self { frontend, tls })
    }

    /// Where the frontend is.
    pub(super) fn frontend(&self) -> SocketAddr {
        self.frontend
    }

    /// A line from an address to a Service. It keeps so many connections that nobody uses.
    ///
    /// # Errors
    /// When there is no HTTP client.
    pub(super) fn open(&self, from: IpAddr, service: String, kept: usize) -> Result<Line> {
        let http = Client::builder().tls_backend_preconfigured(self.tls.clone()).no_proxy().local_address(from);
        let http = http.timeout(CALL).pool_max_idle_per_host(kept).build().context("no HTTP client")?;
        Ok(Line { http, frontend: self.frontend, service })
    }
}

/// The line of one PE to one Service.
#[derive(Debug, Clone)]
pub(super) struct Line {
    http: Client,
    frontend: SocketAddr,
    service: String,
}

/// Status and body of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Reply {
    /// Anything but the right answer.
    pub(super) fn other(&self) -> Answer {
        match self.status {
            503 => Answer::Later,
            status => Answer::Wrong(format!("{status} {}", self.body)),
        }
    }
}

impl Line {
    /// GET. Nothing, if nobody answers in time.
    pub(super) async fn get(&self, path: &str) -> Option<Reply> {
        self.call(Method::GET, path, None).await
    }

    /// PUT of JSON.
    pub(super) async fn put(&self, path: &str, json: String) -> Option<Reply> {
        self.call(Method::PUT, path, Some(json)).await
    }

    async fn call(&self, method: Method, path: &str, json: Option<String>) -> Option<Reply> {
        let call = self.http.request(method, format!("http://{}{path}", self.frontend)).header(HOST, &self.service);
        let call = match json {
            Some(json) => call.header(CONTENT_TYPE, "application/json").body(json),
            None => call,
        };
        let answer = call.send().await.ok()?;
        let status = answer.status().as_u16();
        Some(Reply { status, body: answer.text().await.ok()? })
    }
}
