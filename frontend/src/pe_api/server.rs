//! Connections to the PE API, and the bounds on them (rule pe-api-7).
//!
//! A slow or malicious neighbour costs the connections of its own address, and no thread.
//!
//! Knows: TCP, HTTP. Must not know: paths.

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Connections in all: the runtime opens one for each request, and there may be thousands of PEs.
const CONNECTIONS_MAX: usize = 4_096;
/// Connections of one address: a PE has a few threads that ask.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 64;
/// How long the head of a request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a request may take in all, its body included, and so how long a connection without any is kept.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Longest head of a request.
const HEAD_MAX: usize = 16 << 10;
/// How long to wait when no connection can be accepted, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections each address has.
#[derive(Clone, Default)]
struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection that counts.
struct Counted {
    addresses: Addresses,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Addresses {
    /// Counts a connection, if the address may have another one.
    fn count(&self, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<Counted> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= CONNECTIONS_OF_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(Counted { addresses: self.clone(), address, _permit: permit })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Serves until `stop`; then requests that are under way have `grace`.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken, grace: Duration) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let addresses = Addresses::default();
    let graceful = GracefulShutdown::new();
    let router = bounded(router);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let Ok((stream, peer)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        // Too many: the connection is closed at once, and whoever has opened it may try again.
        let Ok(permit) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let Some(counted) = addresses.count(peer.ip().to_canonical(), permit) else { continue };
        let _ = stream.set_nodelay(true);
        let service = tower::ServiceBuilder::new().layer(Extension(ConnectInfo(peer))).service(router.clone());
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_MAX);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // Whoever breaks a connection knows it.
            let _ = connection.await;
            drop(counted);
        });
    }
    drop(listener);
    if timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests of PEs that take long are ended");
    }
}

/// What answers, with the bound on the time of a request.
fn bounded(router: Router) -> Router {
    router.layer(middleware::from_fn(async |request: Request, next: Next| {
        let answered = timeout(REQUEST_WITHIN, next.run(request)).await;
        answered.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
    }))
}
