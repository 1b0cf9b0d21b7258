//! HTTP calls to the operator: to a name of a Service, on port 10000, within a second each.

use crate::resolver::Resolver;
use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HOST};
use reqwest::{Client, Method};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The port of all HTTP interfaces of the operator.
pub const API_PORT: u16 = 10_000;
/// How long a call may take, with everything that belongs to it.
pub const CALL: Duration = Duration::from_secs(1);
/// Largest answer.
const ANSWER: usize = 16 * 1024 * 1024;

/// Status and body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Calls one Service.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    http: Client,
    from: IpAddr,
    resolver: Arc<Resolver>,
    host: String,
    kept: Option<Arc<Kept>>,
}

/// An address that is believed for a while.
#[derive(Debug)]
struct Kept {
    believed: Duration,
    found: Mutex<Option<(Instant, IpAddr)>>,
}

impl Api {
    /// Calls the Service `host`, from the address `from`, with a connection for each call.
    ///
    /// # Errors
    /// When no client can be made.
    pub(crate) fn new(resolver: Arc<Resolver>, from: IpAddr, host: String) -> Result<Self> {
        Ok(Self { http: client(from, 0)?, from, resolver, host, kept: None })
    }

    /// The same, but it keeps a connection between its calls, as a handle of libcurl does, if the other end does.
    ///
    /// # Errors
    /// When no client can be made.
    pub(crate) fn keeping_connection(self) -> Result<Self> {
        Ok(Self { http: client(self.from, 1)?, ..self })
    }

    /// The same, but it looks up the name of the Service only now and then, as a handle of libcurl does.
    pub(crate) fn keeping_address(self, believed: Duration) -> Self {
        Self { kept: Some(Arc::new(Kept { believed, found: Mutex::default() })), ..self }
    }

    async fn address(&self) -> Result<IpAddr> {
        let Some(Kept { believed, found }) = self.kept.as_deref() else {
            return self.resolver.address(&self.host).await;
        };
        let known = *found.lock();
        if let Some((_, address)) = known.filter(|(at, _)| at.elapsed() < *believed) {
            return Ok(address);
        }
        let address = self.resolver.address(&self.host).await?;
        *found.lock() = Some((Instant::now(), address));
        Ok(address)
    }

    /// GET.
    ///
    /// # Errors
    /// When nobody answers in time.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, None).await
    }

    /// PUT of JSON. The answer should be 204.
    ///
    /// # Errors
    /// When nobody answers in time.
    pub(crate) async fn put(&self, path: &str, json: String) -> Result<Answer> {
        self.call(Method::PUT, path, Some(json)).await
    }

    async fn call(&self, method: Method, path: &str, json: Option<String>) -> Result<Answer> {
        let what = format!("{method} http://{}:{API_PORT}{path}", self.host);
        let answer = tokio::time::timeout(CALL, self.within(method, path, json)).await;
        answer.unwrap_or_else(|_| bail!("no answer within {CALL:?}")).with_context(|| what)
    }

    async fn within(&self, method: Method, path: &str, json: Option<String>) -> Result<Answer> {
        let address = SocketAddr::new(self.address().await?, API_PORT);
        let mut call = self.http.request(method, format!("http://{address}{path}"));
        call = call.header(HOST, format!("{}:{API_PORT}", self.host));
        if let Some(json) = json {
            call = call.header(CONTENT_TYPE, "application/json").body(json);
        }
        let mut answer = call.send().await?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER {
                bail!("the answer has more than {ANSWER} bytes");
            }
        }
        Ok(Answer { status, body: String::from_utf8(body).context("the answer is no text")? })
    }
}

/// A client that keeps so many connections that nobody uses.
fn client(from: IpAddr, kept: usize) -> Result<Client> {
    // Whoever was first is right, too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = Client::builder().no_proxy().local_address(from).timeout(CALL).pool_max_idle_per_host(kept);
    http.build().context("no HTTP client")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn an_address_is_kept_as_long_as_it_is_believed() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let hosts = directory.path().join("hosts");
        let names = |last: u8| fs::write(&hosts, format!("127.0.0.{last} service\n"));
        let api =
            || Api::new(Arc::new(Resolver::Hosts(hosts.clone())), Ipv4Addr::LOCALHOST.into(), "service".to_owned());
        let long = api()?.keeping_address(Duration::from_secs(3_600));
        for (api, expected) in [(api()?, [1, 2]), (long, [1, 1]), (api()?.keeping_address(Duration::ZERO), [1, 2])] {
            for (last, expected) in [1, 2].into_iter().zip(expected) {
                names(last)?;
                assert_eq!(api.address().await?, IpAddr::from([127, 0, 0, expected]));
            }
        }
        Ok(())
    }
}
