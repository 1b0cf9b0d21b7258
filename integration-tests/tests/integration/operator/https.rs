//! Serves HTTPS on loopback, with a certificate made for it.

use anyhow::Result;
use axum::Router;
use axum::serve::Listener;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A server; it accepts nothing more when this value is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// Its certificate (PEM), which is its own authority.
    pub(super) certificate: String,
    accepting: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
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

/// Serves under this name, on a port that is free.
pub(super) async fn serve(name: &str, router: Router) -> Result<Server> {
    // Fails only if there is a provider already, which then serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new([name.to_owned()])?.self_signed(&key)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], private)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let tls = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
    let serving = tokio::spawn(async move { axum::serve(tls, router).await });
    Ok(Server { address, certificate: certificate.pem(), accepting: serving.abort_handle() })
}
