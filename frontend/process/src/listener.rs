//! A listener for HTTP/1, and the bounds on who asks (rule pe-api-7).
//!
//! A slow or malicious neighbour costs the connections of its own address and group, and no thread.
//!
//! Knows: TCP, HTTP. Must not know: paths, what groups of addresses are.

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;
use streams_places::Places;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

/// What callers may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one address. A group of addresses has a quarter of all at most.
    pub connections_of_address: usize,
    /// A connection stays open after an answer, for the next request of its caller. As long as it does, it is one of
    /// those that are counted, also with nothing on it.
    pub keeps_alive: bool,
    /// How long the head of a request may take, and so how long a connection without any is kept.
    pub head_within: Duration,
    /// How long a request may take until it is answered, its body included.
    pub request_within: Duration,
    /// How long a connection may last: a caller may never read what it is answered.
    pub connection_within: Duration,
}

/// Longest head of a request.
const HEAD_MAX: usize = 16 << 10;
/// How long to wait when no connection can be accepted, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` ends; then requests that are under way have `grace`. An address belongs to the group that
/// `group_of` says when it connects.
pub async fn serve<G: Clone + Eq + Hash + Send + 'static>(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    group_of: impl Fn(IpAddr) -> G,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let places = Places::new(bounds.connections, bounds.connections_of_address);
    let graceful = GracefulShutdown::new();
    let router = bounded(router, bounds.request_within);
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, peer)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let address = peer.ip().to_canonical();
        // Too many: the connection is closed at once, and whoever has opened it may try again.
        let Ok(place) = places.take(&group_of(address), &address) else { continue };
        let _ = stream.set_nodelay(true);
        let service = tower::ServiceBuilder::new().layer(Extension(ConnectInfo(peer))).service(router.clone());
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(bounds.head_within).max_buf_size(HEAD_MAX);
        builder.keep_alive(bounds.keeps_alive);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // Whoever breaks a connection, or keeps it for too long, knows it.
            let _ = timeout(bounds.connection_within, connection).await;
            drop(place);
        });
    }
    drop(listener);
    if timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests that take long are ended");
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
    use bytes::Bytes;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    const SOON: Duration = Duration::from_millis(200);
    /// Longer than anything here takes.
    const LATE: Duration = Duration::from_secs(20);
    const QUESTION: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    const BOUNDS: Bounds = Bounds {
        connections: 64,
        connections_of_address: 16,
        keeps_alive: true,
        head_within: LATE,
        request_within: LATE,
        connection_within: LATE,
    };

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
        let (asked, group_of) = (stop.clone().cancelled_owned(), |address: IpAddr| address);
        let served = tokio::spawn(serve(listener, router, bounds, group_of, asked, LATE));
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
        // Two of one address, and a quarter of all.
        for bounds in [Bounds { connections_of_address: 2, ..BOUNDS }, Bounds { connections: 8, ..BOUNDS }] {
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
    async fn a_connection_is_kept_for_the_next_request_or_its_place_is_free() {
        const KEEPING: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        for (keeps_alive, within) in [(true, SOON), (false, LATE)] {
            let running = start(Bounds { connections_of_address: 1, keeps_alive, ..BOUNDS }).await;
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            stream.write_all(KEEPING).await.unwrap();
            let mut bytes = Vec::new();
            let is_kept = timeout(within, stream.read_to_end(&mut bytes)).await.is_err();
            let answer = String::from_utf8_lossy(&bytes).into_owned();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert_eq!((is_kept, !answer.contains("connection: close")), (keeps_alive, keeps_alive), "{answer}");
            if keeps_alive {
                stream.write_all(QUESTION).await.unwrap();
                timeout(LATE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
                assert_eq!(String::from_utf8_lossy(&bytes).matches("HTTP/1.1 200").count(), 2);
            } else {
                // The caller has not closed it.
                is_answered(running.address).await;
            }
        }
    }

    #[tokio::test]
    async fn a_group_of_addresses_leaves_connections_to_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "here"));
        let bounds = Bounds { connections: 8, ..BOUNDS };
        let is_of_group = |address: IpAddr| address != IpAddr::V4(Ipv4Addr::LOCALHOST);
        tokio::spawn(serve(listener, router, bounds, is_of_group, std::future::pending(), LATE));
        let mut kept = Vec::new();
        for last in 2..12 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
            kept.push(socket.connect(address).await.unwrap());
        }
        assert!(answer(address, QUESTION).await.ends_with("here"));
        let mut closed = 0;
        for stream in &mut kept {
            // Those that have a place are kept as long as their head may take.
            closed += usize::from(timeout(SOON, stream.read_u8()).await.is_ok());
        }
        assert_eq!(closed, kept.len() - 2, "a quarter of all is kept");
    }

    #[tokio::test]
    async fn who_is_slow_or_says_too_much_is_answered_or_cut() {
        let bounds = Bounds { head_within: SOON, request_within: SOON * 2, ..BOUNDS };
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
        let bounds = Bounds { connections_of_address: 1, connection_within: SOON, ..BOUNDS };
        let running = start(bounds).await;
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        is_answered(running.address).await;
        drop(stream);
    }

    /// Bytes that say when they are gone.
    struct Held(Vec<u8>, Arc<AtomicBool>);

    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn the_bytes_of_an_answer_are_kept_until_they_are_read_and_no_copy_of_them() {
        // More than the system buffers.
        const LENGTH: usize = 32 << 20;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let are_gone = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&are_gone);
        let router = Router::new().route("/", get(async move || Bytes::from_owner(Held(vec![b'a'; LENGTH], held))));
        tokio::spawn(serve(listener, router, BOUNDS, |address| address, std::future::pending(), LATE));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(QUESTION).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'H');
        assert!(!are_gone.load(Ordering::SeqCst));
        let read = timeout(LATE, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await.unwrap().unwrap();
        assert!(read > LENGTH as u64, "{read}");
        assert!(are_gone.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn what_is_under_way_at_the_end_is_answered() {
        let running = start(BOUNDS).await;
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
