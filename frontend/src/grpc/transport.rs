//! Connections of callers and the streams on them, and their bounds (rule elasticity-27).
//!
//! Whoever sends an answer asks for more of it only when the caller has read what it got. If the caller reads nothing,
//! it asks for nothing, and an answer cannot end by itself. So each stream is a task with a clock of its own, which
//! ends the task: the stream is reset, and what the answer holds is given back.
//!
//! ```text
//! listener ── connections ──► HTTP/2 ──► task of a stream ──► routes
//!              bounds                     clock ◄───────────── body: what was read, and when
//! ```
//!
//! Knows: HTTP/2, addresses, how long a caller waits. Must not know: services.
//!
//! Invariants: an address leaves connections to others; what an answer holds is given back when it was read, when its
//! caller has gone, or when the clock of its stream says so; little of an answer is in the buffers of a connection.

use super::deadline;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use streams_places::Places;
use streams_process::connections;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::Connected as _;
use tower::Service as _;

/// Calls at a time on one connection. Those that wait for something are counted in all by their service, so that they
/// are not in front of others.
const CONCURRENCY: u32 = 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long after its time a caller may still read its answer.
const LATE: Duration = Duration::from_secs(2);
/// Most bytes that the transport gets at once: it keeps them until the caller reads.
const PIECE: usize = 16 << 10;

/// What callers may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections in all; more wait to be accepted.
    pub(crate) connections: usize,
    /// Connections of one address: many callers may come through one proxy. Further ones are closed at once, and so are
    /// those of an address that has a quarter of all.
    pub(crate) connections_of_address: usize,
    /// How long a caller may read nothing of an answer that is there.
    pub(crate) unread: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 1_024, connections_of_address: 128, unread: Duration::from_secs(60) }
    }
}

/// Serves until `stop` ends; then until the calls that are under way are answered.
pub(crate) async fn serve(listener: TcpListener, routes: Routes, bounds: Bounds, stop: impl Future<Output = ()>) {
    let places = Places::new(bounds.connections, bounds.connections_of_address);
    let graceful = GracefulShutdown::new();
    let mut builder = http2::Builder::new(Streams { unread: bounds.unread });
    builder.timer(TokioTimer::new()).max_concurrent_streams(CONCURRENCY).keep_alive_interval(KEEP_ALIVE);
    let routes = routes.prepare();
    let service = tower::service_fn(move |request: Request<Incoming>| answer(routes.clone(), request));
    // The listener is closed before what is under way is waited for.
    {
        let mut incoming = pin!(connections::greeted(connections::accept(listener, bounds.connections)));
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = incoming.next() => accepted,
                () = &mut stop => break,
            };
            let stream = match accepted {
                Some(Ok(stream)) => stream,
                Some(Err(_)) => continue,
                None => break,
            };
            // Whoever has no address any more has gone.
            let Some(caller) = stream.connect_info().remote_addr() else { continue };
            let Ok(place) = places.take(&caller.ip().to_canonical(), &()) else {
                tracing::debug!(%caller, "too many connections");
                continue;
            };
            let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone()));
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%caller, %error, "a connection has broken");
                }
                drop(place);
            });
        }
    }
    graceful.shutdown().await;
}

/// Lets an answer hold something until it was read, or nobody reads it any more.
pub(crate) fn hold<T>(answer: &mut tonic::Response<T>, held: impl Send + Sync + 'static) {
    answer.extensions_mut().insert(Held(Arc::new(held)));
}

/// What an answer holds.
#[derive(Clone)]
struct Held(#[allow(dead_code, reason = "it is kept")] Arc<dyn Send + Sync>);

async fn answer(mut routes: Routes, request: Request<Incoming>) -> Result<Response<AnswerBody>, Infallible> {
    // Every stream has one.
    let clock = CLOCK.try_with(Clock::clone).unwrap_or_default();
    let within = deadline::time_of(request.headers());
    clock.set_end(within.and_then(|within| Instant::now().checked_add(within + LATE)));
    let answered = routes.call(request.map(Body::new));
    let answered = match within {
        Some(within) => timeout(within, answered).await,
        None => Ok(answered.await),
    };
    // Services that wait end their waits before, and say what is missing.
    let late = |_| Ok(Status::deadline_exceeded("the time of the call is over").into_http());
    let mut answer = answered.unwrap_or_else(late)?;
    let held = answer.extensions_mut().remove::<Held>();
    Ok(answer.map(|body| AnswerBody { body, rest: Bytes::new(), clock, _held: held }))
}

tokio::task_local! {
    /// The clock of the stream that is being served.
    static CLOCK: Clock;
}

/// Runs each stream of a connection as a task, which is dropped when its time is over: that resets the stream.
#[derive(Clone)]
struct Streams {
    unread: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (clock, unread) = (Clock::default(), self.unread);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = CLOCK.scope(clock.clone(), stream) => {}
                () = clock.over(unread) => tracing::debug!("an answer was not read"),
            }
        });
    }
}

/// Says when a stream has to end. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
struct Clock(Arc<Mutex<Times>>);

#[derive(Clone, Copy, Default)]
struct Times {
    /// When the caller waits no more, if it has said so.
    end: Option<Instant>,
    /// Since when a piece of the answer has waited for its reader, if one does.
    unread_since: Option<Instant>,
}

impl Clock {
    fn set_end(&self, end: Option<Instant>) {
        self.times().end = end;
    }

    fn set_unread_since(&self, since: Option<Instant>) {
        self.times().unread_since = since;
    }

    /// Waits until the time of the caller is over, or a piece was `unread` for so long.
    async fn over(&self, unread: Duration) {
        loop {
            let (Times { end, unread_since }, now) = (*self.times(), Instant::now());
            // A piece that comes later waits until then at least.
            let until = unread_since.unwrap_or(now) + unread;
            let until = end.map_or(until, |end| end.min(until));
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        // Nothing that panics runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer, in pieces: it tells the clock of its stream when the transport asks for one.
struct AnswerBody {
    body: Body,
    /// Of the last part, what the transport has not got yet.
    rest: Bytes,
    clock: Clock,
    _held: Option<Held>,
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, rest, clock, .. } = self.get_mut();
        if rest.is_empty() {
            let frame = match Pin::new(body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Pending => {
                    // All that there is was read.
                    clock.set_unread_since(None);
                    return Poll::Pending;
                }
                end => return end,
            };
            match frame.into_data() {
                Ok(data) => *rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        clock.set_unread_since(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(rest.split_to(rest.len().min(PIECE))))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tonic::transport::Endpoint;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    /// Longer than anything here takes.
    const LATEST: Duration = Duration::from_secs(20);

    async fn start(bounds: Bounds) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_, health) = tonic_health::server::health_reporter();
        tokio::spawn(serve(listener, Routes::new(health), bounds, std::future::pending()));
        address
    }

    async fn is_answered(address: SocketAddr) -> bool {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let Ok(channel) = endpoint.connect().await else { return false };
        HealthClient::new(channel).check(HealthCheckRequest::default()).await.is_ok()
    }

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_gets_them_back() {
        // Two of one address, and a quarter of all.
        for bounds in
            [Bounds { connections_of_address: 2, ..Bounds::default() }, Bounds { connections: 8, ..Bounds::default() }]
        {
            let address = start(bounds).await;
            let kept = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
            let mut third = TcpStream::connect(address).await.unwrap();
            let mut nothing = Vec::new();
            let closed = timeout(LATEST, third.read_to_end(&mut nothing)).await.expect("it is kept");
            assert!(closed.is_err() || nothing.is_empty(), "{bounds:?}");
            drop(kept);
            // Connections are counted until the server has noticed their end.
            let until = Instant::now() + LATEST;
            while !is_answered(address).await {
                assert!(Instant::now() < until, "nobody is answered any more");
            }
        }
    }

    #[tokio::test]
    async fn who_speaks_something_else_is_left() {
        let address = start(Bounds::default()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: somewhere\r\n\r\n").await.unwrap();
        let mut said = Vec::new();
        let _ = timeout(LATEST, stream.read_to_end(&mut said)).await.expect("the connection does not end");
        assert!(!said.starts_with(b"HTTP/1.1 200"), "{said:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_nothing_is_read_or_its_caller_is_late() {
        let seconds = Duration::from_secs;
        // seconds after which a piece waits for its reader, until it is read, the time of the caller
        // -> seconds after which the stream ends; nothing within an hour
        let table = [
            (None, None, None, None),
            (Some(0), None, None, Some(60)),
            (Some(100), None, None, Some(160)),
            (Some(100), Some(30), None, None),
            (None, None, Some(10), Some(12)),
            (Some(0), Some(1), Some(100), Some(102)),
            (Some(0), None, Some(100), Some(60)),
        ];
        for (waits, is_read, time, expected) in table {
            let (clock, begin) = (Clock::default(), Instant::now());
            clock.set_end(time.map(|time| begin + seconds(time) + LATE));
            let reader = async {
                let Some(waits) = waits else { return std::future::pending().await };
                tokio::time::sleep(seconds(waits)).await;
                clock.set_unread_since(Some(Instant::now()));
                let Some(is_read) = is_read else { return std::future::pending().await };
                tokio::time::sleep(seconds(is_read)).await;
                clock.set_unread_since(None);
                std::future::pending::<()>().await;
            };
            let ended = tokio::select! {
                biased;
                () = reader => unreachable!(),
                () = clock.over(seconds(60)) => Some(begin.elapsed().as_secs()),
                () = tokio::time::sleep(seconds(3_600)) => None,
            };
            assert_eq!(ended, expected, "{waits:?} {is_read:?} {time:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_handed_out_in_pieces() {
        let whole = Bytes::from(vec![7_u8; 2 * PIECE + 1]);
        let body = Body::new(http_body_of(whole));
        let clock = Clock::default();
        let mut answer = AnswerBody { body, rest: Bytes::new(), clock: clock.clone(), _held: None };
        let mut sizes = Vec::new();
        loop {
            let frame = std::future::poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut answer), context));
            let Some(frame) = frame.await else { break };
            sizes.push(frame.unwrap().into_data().unwrap().len());
            assert!(clock.times().unread_since.is_some());
        }
        assert_eq!(sizes, [PIECE, PIECE, 1]);
    }

    /// A body of this text, at once.
    fn http_body_of(text: Bytes) -> impl http_body::Body<Data = Bytes, Error = Status> + Send + 'static {
        struct Whole(Option<Bytes>);
        impl http_body::Body for Whole {
            type Data = Bytes;
            type Error = Status;

            fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Ready(self.0.take().map(|text| Ok(Frame::data(text))))
            }
        }
        Whole(Some(text))
    }
}
