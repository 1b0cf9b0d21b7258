//! Connections of callers and the calls on them, and their bounds (rule elasticity-27).
//!
//! ```text
//! listener ── connections ──► TLS, if so ──► HTTP/2 with clocks ── calls ──► routes
//!              places                                             places, for answers also by their bytes
//! ```
//!
//! Knows: addresses, how long a caller waits. Must not know: services, what a certificate says. Each call is counted as
//! it ends for its caller.
//!
//! Invariants: a connection has a place of its address before anything else is done about it, so that whoever begins
//! many handshakes takes none of others. An address leaves connections, calls and memory to others, for what has
//! arrived of requests, their heads as well, and for what is sent. A request is counted as long as its call lasts,
//! wherever it is: at first by its bytes, which nobody keeps as they came, and once it is a message by what there is
//! room for in it ([`count`]). What an answer holds is given back when it was sent, when its caller has gone, or when
//! the clock of its stream says so.

use super::arrival::Arrival;
use super::certificate::{Certificate, Unshown};
use super::deadline;
use super::status::{self, LATER};
use crate::call_figures::ServedCalls;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Extensions, HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use streams_places::{Full, Place, Places};
use streams_process::connections::{self, Connection, Greeted};
use streams_process::http2::{self, Clock, Patience, Server};
use streams_process::tls::{Acceptor, Secured};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::Connected as _;
use tonic::{Code, Status};
use tonic_types::ErrorDetails;
use tower::Service as _;

/// Longest request. Services say it to their messages, which are read before a service sees them.
pub(crate) const REQUEST_MAX: usize = 1 << 20;
/// Calls at a time on one connection. Those that wait for something are counted in all by their service, so that they
/// are not in front of others.
const CONCURRENCY: u32 = 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long after its time a caller may still read its answer.
const LATE: Duration = Duration::from_secs(2);
/// Bytes for which a message takes a place, and for each of its further ones; so does the head of a call. Who keeps
/// what has arrived of a message keeps it in such pieces.
pub(crate) const BLOCK: usize = 16 << 10;
/// How often a message is there at most while a call lasts: as it was decoded, as what is made of it for the API
/// server, and as the text of that.
const COPIES: usize = 3;
/// Longest head of a call, as HTTP/2 counts it: a token may have 8 KiB, and there is what callers, proxies and traces
/// add.
const HEAD_MAX: u32 = 16 << 10;
/// Bytes that a field of a head takes beside those of its name and value, at most: 104 of an entry and 5 of the index
/// of the map, which may have twice as many as there are fields.
const FIELD: usize = 224;
/// Bytes that may have arrived on a connection, and were not read yet. Requests are read as they arrive, so that longer
/// ones are not held up.
const WINDOW: u32 = 256 << 10;

/// What callers may take. An address has a quarter of all at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections in all; more wait to be accepted.
    pub(crate) connections: usize,
    /// Connections of one address: many callers may come through one proxy. Further ones are closed at once.
    pub(crate) connections_of_address: usize,
    /// Calls at a time in all; further ones are refused.
    pub(crate) calls: usize,
    /// Blocks of memory in all for what has arrived of requests, and was not read of answers.
    pub(crate) blocks: usize,
    /// How long a request may take to arrive.
    pub(crate) request: Duration,
    /// How long a caller may read nothing of an answer that is there.
    pub(crate) unread: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 1_024,
            connections_of_address: 128,
            calls: 32 << 10,
            // 512 MiB.
            blocks: 32 << 10,
            request: Duration::from_secs(30),
            unread: Duration::from_secs(60),
        }
    }
}

/// A connection that has a place.
type Placed = Connection<Arc<Caller>>;

/// Serves until `stop` ends; then until the calls that are under way are answered. In plain text, unless there is TLS.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Acceptor>,
    routes: Routes,
    bounds: Bounds,
    figures: ServedCalls,
    stop: impl Future<Output = ()>,
) {
    let places = Places::new(bounds.connections, bounds.connections_of_address);
    let calls = Places::new(bounds.calls, bounds.calls);
    let blocks = Places::new(bounds.blocks, bounds.blocks);
    let routes = routes.prepare();
    let mut server = Server::new(Patience { request: Some(bounds.request), unread: bounds.unread });
    let http2 = server.http2().max_concurrent_streams(CONCURRENCY).keep_alive_interval(KEEP_ALIVE);
    http2.max_header_list_size(HEAD_MAX).initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let mut number = 0;
    let mut place = move |socket: Connection| {
        // Whoever has no address any more has gone.
        let address = socket.connect_info().remote_addr()?.ip().to_canonical();
        let Ok(connection) = places.take(&address, &()) else {
            tracing::debug!(%address, "too many connections");
            return None;
        };
        number += 1;
        let (calls, blocks) = (calls.clone(), blocks.clone());
        Some(socket.holding(Arc::new(Caller { address, number, calls, blocks, _connection: connection })))
    };
    let incoming = connections::accept(listener, bounds.connections).filter_map(move |socket| {
        let placed = socket.map(&mut place).transpose();
        async move { placed }
    });
    let of_handshakes = figures.clone();
    let service = move |caller: &Arc<Caller>, certificate: Option<Arc<Certificate>>, is_asked: bool| {
        let (caller, routes, figures) = (Arc::clone(caller), routes.clone(), figures.clone());
        tower::service_fn(move |mut request: Request<Body>| {
            match &certificate {
                Some(certificate) => _ = request.extensions_mut().insert(Arc::clone(certificate)),
                None if is_asked => _ = request.extensions_mut().insert(Unshown),
                None => {}
            }
            let call = figures.begin(request.uri().path());
            let answered = answer(routes.clone(), Arc::clone(&caller), request);
            async move { Ok::<_, Infallible>(call.ends_with(answered.await?)) }
        })
    };
    match tls {
        None => {
            let admit = move |socket: &Greeted<Placed>| Some(service(socket.get_ref().held(), None, false));
            server.serve(connections::greeted(incoming), admit, stop).await;
        }
        Some(tls) => {
            let failed = move || of_handshakes.handshake_has_failed();
            let secured = tls.clone().accept(incoming, |socket: &Placed| Some(socket.held().address), failed);
            let incoming = connections::greeted(secured);
            let admit = move |socket: &Greeted<Secured<Placed>>| {
                let secured = socket.get_ref();
                let certificate = tls.shown_on(secured).map(|shown| Arc::new(Certificate::new(shown)));
                Some(service(secured.get_ref().0.held(), certificate, tls.asks()))
            };
            server.serve(incoming, admit, stop).await;
        }
    }
}

/// Counts the message of the call with these extensions as it lies in memory, in so many bytes, instead of what has
/// arrived of it. Whoever decodes it says so before anything is waited for.
///
/// # Errors
/// There is no room for it.
pub(crate) fn count(call: &Extensions, bytes: usize) -> Result<(), Status> {
    // Calls that have not come by the listener have no room, and none is taken from others.
    call.get::<Arc<Room>>().map_or(Ok(()), |room| room.set(bytes.saturating_mul(COPIES)))
}

/// Lets an answer hold something until it was sent, or nobody reads it any more.
pub(crate) fn hold<T>(answer: &mut tonic::Response<T>, held: impl Send + Sync + 'static) {
    http2::hold(answer.extensions_mut(), held);
}

async fn answer(
    mut routes: Routes,
    caller: Arc<Caller>,
    mut request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let call = match caller.call(request.headers()) {
        Ok(call) => call,
        Err(full) => return Ok(full.into_http()),
    };
    let arrival = Arrival { at: Instant::now(), from: caller.address, connection: caller.number };
    request.extensions_mut().insert(arrival);
    let within = deadline::time_of(request.headers());
    Clock::current().set_end(within.and_then(|within| Instant::now().checked_add(within + LATE)));
    // Held here as well: whoever waits with the message has nothing of the request any more.
    let room = Arc::new(Room { of: Arc::clone(&caller), blocks: Mutex::default() });
    request.extensions_mut().insert(Arc::clone(&room));
    let of_body = Arc::clone(&room);
    let answered = routes.call(request.map(|body| Body::new(Received { body, bytes: 0, room: of_body })));
    let answered = match within {
        Some(within) => timeout(within, answered).await,
        None => Ok(answered.await),
    };
    // Services that wait end their waits before, and say what is missing.
    let late = |_| Ok(Status::deadline_exceeded("the time of the call is over").into_http());
    let mut answer = answered.unwrap_or_else(late)?;
    drop(room);
    http2::hold(answer.extensions_mut(), call);
    Ok(answer.map(|body| Body::new(Sent { body, of: caller })))
}

/// Who is at the other end of a connection, and what it may take with others of its address.
struct Caller {
    address: IpAddr,
    /// Of the connection.
    number: u64,
    calls: Places<IpAddr, ()>,
    blocks: Places<IpAddr, ()>,
    _connection: Taken,
}

type Taken = Place<IpAddr, ()>;

impl Caller {
    /// The places of a call with this head: its own, and those of the head, which services may keep as long as the call
    /// lasts.
    fn call(&self, head: &HeaderMap) -> Result<(Taken, Vec<Taken>), Status> {
        let call = self.calls.take(&self.address, &()).map_err(|full| refused("calls are under way", full))?;
        Ok((call, self.blocks(size_of_head(head).div_ceil(BLOCK))?))
    }

    fn blocks(&self, blocks: usize) -> Result<Vec<Taken>, Status> {
        let block = |_| self.blocks.take(&self.address, &());
        let taken: Result<_, _> = (0..blocks).map(block).collect();
        taken.map_err(|full| refused("blocks of 16 KiB are taken", full))
    }
}

/// Bytes that the head of a call takes.
fn size_of_head(head: &HeaderMap) -> usize {
    head.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum()
}

fn refused(what: &str, full: Full) -> Status {
    let message = match full {
        Full::InAll(number) => format!("{number} {what}"),
        Full::OfGroup(number) | Full::OfOne(number) | Full::OfUser(number) => {
            format!("{number} {what} of callers of this address")
        }
    };
    status::status(Code::ResourceExhausted, &message, ErrorDetails::with_retry_info(Some(LATER)))
}

/// What the request of a call takes in memory, as long as anybody has it.
struct Room {
    of: Arc<Caller>,
    blocks: Mutex<Vec<Taken>>,
}

impl Room {
    /// It takes so many bytes from now on.
    fn set(&self, bytes: usize) -> Result<(), Status> {
        let mut blocks = self.blocks.lock();
        let wanted = bytes.div_ceil(BLOCK);
        blocks.truncate(wanted);
        let more = self.of.blocks(wanted - blocks.len())?;
        blocks.extend(more);
        Ok(())
    }
}

/// The body of a request. Nobody has much of it before all is there, but many together may. No service has use for
/// trailers, so that nobody keeps them.
struct Received {
    body: Body,
    bytes: usize,
    room: Arc<Room>,
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            end => return Poll::Ready(end),
        };
        let Ok(data) = frame.into_data() else { return Poll::Ready(None) };
        self.bytes += data.len();
        Poll::Ready(Some(self.room.set(self.bytes).map(|()| Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. Its bytes are counted until the last of them was sent, wherever they are.
struct Sent {
    body: Body,
    of: Arc<Caller>,
}

struct Counted {
    data: Bytes,
    _blocks: Vec<Taken>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            end => return Poll::Ready(end),
        };
        Poll::Ready(Some(match frame.into_data() {
            Ok(data) => match self.of.blocks(data.len().div_ceil(BLOCK)) {
                Ok(blocks) => Ok(Frame::data(Bytes::from_owner(Counted { data, _blocks: blocks }))),
                Err(full) => {
                    self.body = Body::empty();
                    let mut trailers = HeaderMap::new();
                    full.add_header(&mut trailers).map(|()| Frame::trailers(trailers))
                }
            },
            Err(trailers) => Ok(trailers),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::net::{Ipv4Addr, SocketAddr};
    use streams_kubernetes::metrics::Metrics;
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
        let figures = ServedCalls::default();
        tokio::spawn(serve(listener, None, Routes::new(health), bounds, figures, std::future::pending()));
        address
    }

    async fn is_answered(address: SocketAddr) -> bool {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let Ok(channel) = endpoint.connect().await else { return false };
        HealthClient::new(channel).check(HealthCheckRequest::default()).await.is_ok()
    }

    #[tokio::test]
    async fn calls_are_counted_as_they_end_for_their_callers() {
        let (metrics, listener) = (Metrics::new("test"), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let endpoint = Endpoint::from_shared(format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let routes = Routes::new(tonic_health::server::health_reporter().1);
        let figures = ServedCalls::among(&metrics);
        tokio::spawn(serve(listener, None, routes, Bounds::default(), figures, std::future::pending()));
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        client.check(HealthCheckRequest::default()).await.unwrap();
        let unknown = HealthCheckRequest { service: "none".to_owned() };
        assert_eq!(client.check(unknown).await.unwrap_err().code(), Code::NotFound);
        let text = metrics.text().unwrap();
        for code in ["OK", "NOT_FOUND"] {
            let labels = format!(r#"{{rpc_method="grpc.health.v1.Health/Check",rpc_response_status_code="{code}"}}"#);
            let line = format!("\ntest_rpc_server_call_duration_seconds_count{labels} 1\n");
            assert!(text.contains(&line), "{line}{text}");
        }
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

    fn caller(calls: usize, blocks: usize) -> Arc<Caller> {
        let address = IpAddr::from([10, 0, 0, 1]);
        let [connections, calls, blocks] = [1, calls, blocks].map(|most| Places::new(most, most));
        Arc::new(Caller {
            address,
            number: 1,
            calls,
            blocks,
            _connection: connections.take(&address, &()).ok().unwrap(),
        })
    }

    fn room(caller: &Arc<Caller>) -> Arc<Room> {
        Arc::new(Room { of: Arc::clone(caller), blocks: Mutex::default() })
    }

    /// All at once, in parts.
    struct Parts(Vec<Vec<u8>>);

    impl http_body::Body for Parts {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop().map(|part| Ok(Frame::data(part.into()))))
        }
    }

    async fn next(body: &mut (impl http_body::Body<Data = Bytes, Error = Status> + Unpin)) -> Result<Bytes, Code> {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await.unwrap();
        let trailers = match frame.map_err(|status| status.code())?.into_data() {
            Ok(data) => return Ok(data),
            Err(trailers) => trailers.into_trailers().ok().unwrap(),
        };
        Err(Status::from_header_map(&trailers).unwrap().code())
    }

    #[tokio::test]
    async fn what_was_not_read_of_answers_is_bounded_wherever_it_is() {
        // A quarter of it.
        let caller = caller(100, 12);
        let answer = |bytes| Sent { body: Body::new(Parts(vec![vec![7; bytes]])), of: Arc::clone(&caller) };
        let mut first = answer(BLOCK + 1);
        // The transport has the end of it.
        let rest = next(&mut first).await.unwrap().slice(BLOCK..);
        drop(first);
        assert_eq!(next(&mut answer(BLOCK + 1)).await.unwrap_err(), Code::ResourceExhausted);
        let last = next(&mut answer(BLOCK)).await.unwrap();
        assert_eq!(next(&mut answer(1)).await.unwrap_err(), Code::ResourceExhausted);
        drop(rest);
        assert_eq!(next(&mut answer(BLOCK + 1)).await.unwrap(), vec![7; BLOCK + 1]);
        drop(last);
        assert_eq!(caller.blocks.taken(), 0);
    }

    #[tokio::test]
    async fn what_has_arrived_of_requests_is_bounded() {
        let caller = caller(100, 12);
        let request = |parts: Vec<usize>| Received {
            body: Body::new(Parts(parts.iter().map(|bytes| vec![7; *bytes]).collect())),
            bytes: 0,
            room: room(&caller),
        };
        let mut first = request(vec![1, BLOCK - 1, 1]);
        for taken in [1, 1, 2] {
            next(&mut first).await.unwrap();
            assert_eq!(caller.blocks.taken(), taken);
        }
        let mut second = request(vec![1, BLOCK]);
        next(&mut second).await.unwrap();
        assert_eq!(next(&mut second).await.unwrap_err(), Code::ResourceExhausted);
        drop((first, second));
        assert_eq!(caller.blocks.taken(), 0);
    }

    /// What has arrived of a message is gone once that is decoded, and the message is there instead.
    #[tokio::test]
    async fn a_message_is_counted_as_long_as_its_call_lasts() {
        // A quarter of it.
        let caller = caller(100, 40);
        let routes = Routes::from(axum::Router::new().fallback(|request: axum::extract::Request| async move {
            let (head, body) = request.into_parts();
            axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let status = count(&head.extensions, 2 * BLOCK).err();
            drop(head);
            // Somebody waits with the message.
            tokio::task::yield_now().await;
            status.map(Status::into_http::<axum::body::Body>).unwrap_or_default()
        }));
        let ask = || {
            let request = Request::post("/any").body(Body::new(Parts(vec![vec![7; BLOCK + 1]]))).unwrap();
            Box::pin(answer(routes.clone(), Arc::clone(&caller), request))
        };
        let mut first = ask();
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(caller.blocks.taken(), 2 * COPIES);
        let refused = Status::from_header_map(ask().await.unwrap().headers()).unwrap();
        assert_eq!((refused.code(), caller.blocks.taken()), (Code::ResourceExhausted, 2 * COPIES));
        assert!(Status::from_header_map(first.await.unwrap().headers()).is_none());
        assert_eq!(caller.blocks.taken(), 0);
        assert!(Status::from_header_map(ask().await.unwrap().headers()).is_none());
    }

    #[tokio::test]
    async fn trailers_of_a_request_are_not_for_services() {
        struct Trailers(Option<HeaderMap>);
        impl http_body::Body for Trailers {
            type Data = Bytes;
            type Error = Status;

            fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Ready(self.0.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
        let body = Body::new(Trailers(Some(head(400, 1))));
        let mut request = Received { body, bytes: 0, room: room(&caller(100, 12)) };
        let read = std::future::poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut request), context));
        assert!(read.await.is_none());
    }

    /// A head with so many fields, whose values have so many bytes.
    fn head(fields: usize, bytes: usize) -> HeaderMap {
        let value = http::HeaderValue::from_bytes(&vec![b'v'; bytes]).unwrap();
        (0..fields).map(|field| (http::HeaderName::try_from(format!("h{field}")).unwrap(), value.clone())).collect()
    }

    #[test]
    fn the_head_of_a_call_is_counted_as_it_lies_in_memory() {
        // fields, bytes of a value -> blocks
        let table = [(0, 0, 0), (1, 1, 1), (30, 40, 1), (1, 8 << 10, 1), (70, 1, 1), (80, 1, 2), (490, 1, 7)];
        for (fields, bytes, expected) in table {
            let caller = caller(100, 1_000);
            let (_call, blocks) = caller.call(&head(fields, bytes)).unwrap();
            assert_eq!(blocks.len(), expected, "{fields} {bytes}");
        }
    }

    #[tokio::test]
    async fn the_heads_of_the_calls_of_an_address_are_bounded() {
        // A quarter of it; the message of a call takes one as well.
        let caller = caller(100, 20);
        let routes = Routes::new(tonic_health::server::health_reporter().1).prepare();
        let ask = async |fields| {
            let body = Body::new(Parts(vec![vec![0; 5]]));
            let mut request = Request::post("/grpc.health.v1.Health/Check").body(body).unwrap();
            *request.headers_mut() = head(fields, 1);
            answer(routes.clone(), Arc::clone(&caller), request).await.unwrap()
        };
        let first = ask(180).await;
        assert!(Status::from_header_map(first.headers()).is_none());
        assert_eq!((caller.calls.taken(), caller.blocks.taken()), (1, 3));
        let refused = Status::from_header_map(ask(180).await.headers()).unwrap();
        assert_eq!((refused.code(), caller.calls.taken()), (Code::ResourceExhausted, 1));
        assert!(Status::from_header_map(ask(10).await.headers()).is_none());
        drop(first);
        assert!(Status::from_header_map(ask(180).await.headers()).is_none());
        assert_eq!((caller.calls.taken(), caller.blocks.taken()), (0, 0));
    }

    #[tokio::test]
    async fn a_connection_says_how_much_it_takes() {
        const WINDOW_UPDATE: u8 = 8;
        let address = start(Bounds::default()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        // What HTTP/2 begins with, and settings of which all are as usual.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let window = async {
            loop {
                let mut frame = [0; 9];
                stream.read_exact(&mut frame).await.unwrap();
                let [_, high, low, kind, _, stream_number @ ..] = frame;
                let mut content = vec![0; usize::from(u16::from_be_bytes([high, low]))];
                stream.read_exact(&mut content).await.unwrap();
                if (kind, stream_number) == (WINDOW_UPDATE, [0; 4]) {
                    return u32::from_be_bytes(content.try_into().unwrap());
                }
            }
        };
        let more = timeout(LATEST, window).await.expect("the window is the usual one");
        assert_eq!(more + 65_535, WINDOW);
    }

    #[tokio::test]
    async fn an_address_has_so_many_calls() {
        let caller = caller(12, 100);
        let none = HeaderMap::new();
        let calls: Vec<_> = (0..3).map(|_| caller.call(&none).unwrap()).collect();
        assert_eq!(caller.call(&none).err().unwrap().code(), Code::ResourceExhausted);
        let routes = Routes::new(tonic_health::server::health_reporter().1).prepare();
        let ask = async || {
            let request =
                Request::post("/grpc.health.v1.Health/Check").body(Body::new(Parts(vec![vec![0; 5]]))).unwrap();
            answer(routes.clone(), Arc::clone(&caller), request).await.unwrap()
        };
        assert_eq!(Status::from_header_map(ask().await.headers()).unwrap().code(), Code::ResourceExhausted);
        drop(calls);
        let answer = ask().await;
        assert!(Status::from_header_map(answer.headers()).is_none());
        assert_eq!(caller.calls.taken(), 1);
        drop(answer);
        assert_eq!(caller.calls.taken(), 0);
    }
}
