//! A site on loopback that speaks HTTP and HTTPS, answers as a test says and remembers what it was asked.

use crate::bundles::fetcher::Fetcher;
use crate::bundles::guard::tests::Names;
use crate::bundles::options::FetchOptions;
use crate::bundles::proofs::PROVEN;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::serve::Listener;
use http::{HeaderMap, StatusCode};
use ipnet::IpNet;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use reqwest::Certificate;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Names that lead to loopback.
pub(super) const GIT: &str = "git.example.com";
pub(super) const OTHER: &str = "files.example.net";
pub(super) const METADATA: &str = "metadata.example.net";

/// A request as a server saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) host: String,
    pub(super) path: String,
    headers: HeaderMap,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

type Answers = dyn Fn(&Seen) -> Response + Send + Sync;

/// A site that is served by HTTP and by HTTPS.
pub(super) struct Site {
    pub(super) http: u16,
    pub(super) https: u16,
    pub(super) root: Certificate,
    seen: Arc<Mutex<Vec<Seen>>>,
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

impl Site {
    pub(super) async fn start(answers: impl Fn(&Seen) -> Response + Send + Sync + 'static) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answers, saw): (Arc<Answers>, _) = (Arc::new(answers), Arc::clone(&seen));
        let handle = move |request: Request| {
            let (answers, saw) = (Arc::clone(&answers), Arc::clone(&saw));
            async move {
                let headers = request.headers().clone();
                let host = request.uri().host().map(str::to_owned);
                let host = host.or_else(|| Some(headers.get("host")?.to_str().ok()?.split(':').next()?.to_owned()));
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
                let seen = Seen { host: host.unwrap_or_default(), path, headers };
                saw.lock().push(seen.clone());
                Ok::<_, Infallible>(answers(&seen))
            }
        };
        let router = axum::Router::new().fallback(handle);
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (http, https) = (plain.local_addr().unwrap().port(), listener.local_addr().unwrap().port());
        let key = KeyPair::generate().unwrap();
        let names = [GIT, OTHER, METADATA].map(str::to_owned);
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], private).unwrap();
        let tls = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
        let router_of_tls = router.clone();
        tokio::spawn(async move { axum::serve(plain, router).await });
        tokio::spawn(async move { axum::serve(tls, router_of_tls).await });
        Self { http, https, root: Certificate::from_der(certificate.der()).unwrap(), seen }
    }

    pub(super) fn https(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.https)
    }

    pub(super) fn http(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.http)
    }

    /// A fetcher that trusts the site, with loopback allowed.
    pub(super) fn fetcher(&self) -> Fetcher {
        self.fetcher_with(FetchOptions { allowed: loopback(), ..options() }, PROVEN)
    }

    pub(super) fn fetcher_with(&self, options: FetchOptions, proven: Duration) -> Fetcher {
        let names = [(GIT, vec!["127.0.0.1"]), (OTHER, vec!["127.0.0.1"]), (METADATA, vec!["169.254.169.254"])];
        Fetcher::with(options, Arc::new(Names(names.into())), std::slice::from_ref(&self.root), proven).unwrap()
    }

    /// Takes what was seen.
    pub(super) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock())
    }

    pub(super) fn requests(&self) -> usize {
        self.take().len()
    }
}

pub(super) fn loopback() -> Vec<IpNet> {
    vec!["127.0.0.1/32".parse().unwrap()]
}

pub(super) fn options() -> FetchOptions {
    FetchOptions { allow_http: true, ..FetchOptions::default() }
}

pub(super) fn status(status: StatusCode) -> Response {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

pub(super) fn redirect(to: &str) -> Response {
    Response::builder().status(302).header("location", to).body(Body::empty()).unwrap()
}

pub(super) fn content(bytes: Vec<u8>, etag: Option<&str>) -> Response {
    let response = Response::builder();
    let response = if let Some(etag) = etag { response.header("etag", etag) } else { response };
    response.body(bytes.into()).unwrap()
}
