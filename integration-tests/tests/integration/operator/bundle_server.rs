//! A server of bundles on loopback that speaks HTTPS, with a certificate of its own.

use super::https;
use anyhow::Result;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A server with one bundle, which it has or has not, for everybody or for a token.
pub(crate) struct BundleServer {
    server: https::Server,
    directory: TempDir,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    bundle: Option<Vec<u8>>,
    token: Option<String>,
    requests: Vec<String>,
}

impl BundleServer {
    /// A server that has nothing yet.
    pub(crate) async fn start() -> Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let answering = Arc::clone(&state);
        let router = Router::new().fallback(move |request: Request| {
            let state = Arc::clone(&answering);
            async move { state.lock().answer(&request) }
        });
        let server = https::serve("127.0.0.1", router).await?;
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join("ca.pem"), &server.certificate)?;
        Ok(Self { server, directory, state })
    }

    /// Where its certificate is, for `SSL_CERT_FILE`.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Its host and port.
    pub(crate) fn host(&self) -> String {
        self.server.address.to_string()
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.host())
    }

    /// From now on it has this bundle, for everybody or for who has the token.
    pub(crate) fn has(&self, bundle: Vec<u8>, token: Option<&str>) {
        let mut state = self.state.lock();
        state.bundle = Some(bundle);
        state.token = token.map(str::to_owned);
    }

    /// The header `Authorization` of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }
}

impl State {
    fn answer(&mut self, request: &Request) -> Response {
        let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.requests.push(sent.to_owned());
        let is_permitted = self.token.as_ref().is_none_or(|token| sent == format!("token {token}"));
        match &self.bundle {
            Some(_) if !is_permitted => StatusCode::FORBIDDEN.into_response(),
            Some(bundle) => bundle.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}
