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

/// What callers may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections in all: the runtime opens one for each request, and there may be thousands of PEs.
    connections: usize,
    /// Connections of one address: a PE has a few threads that ask.
    connections_of_address: usize,
    /// How long the head of a request may take, and so how long a connection without any is kept.
    head_within: Duration,
    /// How long a request may take until it is answered, its body included.
    request_within: Duration,
    /// How long a connection may last: a caller may never read what it is answered.
    connection_within: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 4_096,
            connections_of_address: 64,
            head_within: Duration::from_secs(5),
            request_within: Duration::from_secs(10),
            connection_within: Duration::from_secs(300),
        }
    }
}

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
    /// Counts a connection, if the address has fewer than `most`.
    fn count(&self, address: IpAddr, most: usize, permit: OwnedSemaphorePermit) -> Option<Counted> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
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
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
    grace: Duration,
) {
    let slots = Arc::new(Semaphore::new(bounds.connections));
    let addresses = Addresses::default();
    let graceful = GracefulShutdown::new();
    let router = bounded(router, bounds.request_within);
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
        let Some(counted) = addresses.count(peer.ip().to_canonical(), bounds.connections_of_address, permit) else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = tower::ServiceBuilder::new().layer(Extension(ConnectInfo(peer))).service(router.clone());
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(bounds.head_within).max_buf_size(HEAD_MAX);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // Whoever breaks a connection, or keeps it for too long, knows it.
            let _ = timeout(bounds.connection_within, connection).await;
            drop(counted);
        });
    }
    drop(listener);
    if timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests of PEs that take long are ended");
    }
}

/// What answers, with the bound on the time of a request.
fn bounded(router: Router, within: Duration) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: Next| async move {
        let answered = timeout(within, next.run(request)).await;
        answered.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    const SOON: Duration = Duration::from_millis(200);
    /// Longer than anything here takes.
    const LATE: Duration = Duration::from_secs(20);
    const QUESTION: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    struct Running {
        address: SocketAddr,
        stop: CancellationToken,
        served: JoinHandle<()>,
    }

    async fn start(bounds: Bounds) -> Running {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let slow = async || {
            sleep(SOON).await;
            "slow"
        };
        let router = Router::new()
            .route("/", get(async || "here"))
            .route("/large", get(async || vec![0u8; 64 << 20]))
            .route("/slow", get(slow))
            .route("/body", post(async |body: String| body));
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(listener, router, bounds, stop.clone(), LATE));
        Running { address, stop, served }
    }

    /// What is answered to these bytes until the connection ends.
    async fn answer(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        // An end by force is an end.
        let _ = timeout(LATE, stream.read_to_end(&mut answer)).await.expect("the connection does not end");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Asks until there is an answer: connections are counted until the server has noticed their end.
    async fn is_answered(address: SocketAddr) {
        let until = Instant::now() + LATE;
        while !answer(address, QUESTION).await.ends_with("here") {
            assert!(Instant::now() < until, "nobody is answered any more");
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_gets_them_back() {
        for bounds in
            [Bounds { connections_of_address: 2, ..Bounds::default() }, Bounds { connections: 2, ..Bounds::default() }]
        {
            let running = start(bounds).await;
            let kept = [
                TcpStream::connect(running.address).await.unwrap(),
                TcpStream::connect(running.address).await.unwrap(),
            ];
            assert_eq!(answer(running.address, QUESTION).await, "", "{bounds:?}");
            drop(kept);
            is_answered(running.address).await;
        }
    }

    #[tokio::test]
    async fn who_is_slow_or_says_too_much_is_answered_or_cut() {
        let bounds = Bounds { head_within: SOON, request_within: SOON * 2, ..Bounds::default() };
        let running = start(bounds).await;
        let long = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &[b'a'; 64 << 10], b"\r\n\r\n"].concat();
        // bytes -> beginning of the answer
        let table: [(&[u8], &str); 6] = [
            (QUESTION, "HTTP/1.1 200"),
            (b"", ""),
            (b"GET / HTTP/1.1\r\nhost:", ""),
            (b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nx", "HTTP/1.1 408"),
            (&long, "HTTP/1.1 431"),
            (b"\x16\x03\x01 no HTTP\r\n\r\n", "HTTP/1.1 400"),
        ];
        for (bytes, beginning) in table {
            let answer = answer(running.address, bytes).await;
            let said = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
            assert!(
                answer.starts_with(beginning) && answer.is_empty() == beginning.is_empty(),
                "{said}: {answer:.200}"
            );
        }
    }

    #[tokio::test]
    async fn who_never_reads_is_cut() {
        let bounds = Bounds { connections: 1, connection_within: SOON, ..Bounds::default() };
        let running = start(bounds).await;
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        is_answered(running.address).await;
        drop(stream);
    }

    #[tokio::test]
    async fn what_is_under_way_at_the_end_is_answered() {
        let running = start(Bounds::default()).await;
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        // It has been accepted when the next one is answered.
        is_answered(running.address).await;
        running.stop.cancel();
        let mut answer = Vec::new();
        timeout(LATE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&answer).ends_with("slow"), "{answer:?}");
        timeout(LATE, running.served).await.unwrap().unwrap();
    }
}
