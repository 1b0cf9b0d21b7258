//! A server of bundles on loopback that speaks HTTPS, with a certificate of its own.

use anyhow::Result;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use http::StatusCode;
use http::header::AUTHORIZATION;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A server with one bundle, which it has or has not, for everybody or for a token.
pub(crate) struct BundleServer {
    port: u16,
    directory: TempDir,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    bundle: Option<Vec<u8>>,
    token: Option<String>,
    requests: Vec<String>,
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl BundleServer {
    /// A server that has nothing yet.
    pub(crate) async fn start() -> Result<Self> {
        // Fails only if there is a provider already, which then serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join("ca.pem"), certificate.pem())?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], private)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let answering = Arc::clone(&state);
        let router = Router::new().fallback(move |request: Request| {
            let state = Arc::clone(&answering);
            async move { locked(&state).answer(&request) }
        });
        let tls = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
        tokio::spawn(async move { axum::serve(tls, router).await });
        Ok(Self { port, directory, state })
    }

    /// Where its certificate is, for `SSL_CERT_FILE`.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Its host and port.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.host())
    }

    /// From now on it has this bundle, for everybody or for who has the token.
    pub(crate) fn has(&self, bundle: Vec<u8>, token: Option<&str>) {
        let mut state = locked(&self.state);
        state.bundle = Some(bundle);
        state.token = token.map(str::to_owned);
    }

    /// The header `Authorization` of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        locked(&self.state).requests.clone()
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing that is done under the lock leaves it half done.
    state.lock().unwrap_or_else(PoisonError::into_inner)
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
