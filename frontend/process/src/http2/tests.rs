//! Callers that leave something undone. Nothing here takes as long as its clock says.

use super::answer::PIECE;
use super::*;
use bytes::Bytes;
use futures::stream;
use http_body::{Body as _, Frame};
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

const PATIENCE: Patience = Patience { request: Some(Duration::from_secs(30)), unread: Duration::from_secs(60) };
/// Longer than any clock.
const LATEST: Duration = Duration::from_secs(1_000);

/// The other end of a connection, over which so many bytes may be on their way, to a server with this service.
fn connect<S>(bytes: usize, service: S) -> DuplexStream
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let (caller, server) = tokio::io::duplex(bytes);
    let incoming = stream::iter([Ok::<_, Infallible>(server)]).chain(stream::pending());
    tokio::spawn(Server::new(PATIENCE).serve(incoming, move |_: &DuplexStream| Some(service.clone()), pending()));
    caller
}

/// Parts of an answer, and then its trailers.
struct Parts(Vec<Bytes>, bool);

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self(parts, ended) = &mut *self;
        let frame = parts.pop().map(Frame::data);
        let trailers = || (!std::mem::replace(ended, true)).then(|| Frame::trailers(http::HeaderMap::new()));
        Poll::Ready(frame.or_else(trailers).map(Ok))
    }
}

/// A service that answers everything with so many bytes, and what its answer holds.
fn service_of(
    bytes: usize,
) -> (impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send, Weak<()>)
{
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    let held = Arc::new(parking_lot::Mutex::new(Some(held)));
    let service = tower::service_fn(move |_: Request<Body>| {
        let mut answer = Response::new(Body::new(Parts(vec![vec![7; bytes].into()], false)));
        hold(answer.extensions_mut(), held.lock().take());
        std::future::ready(Ok(answer))
    });
    (service, weak)
}

#[tokio::test]
async fn an_answer_goes_on_and_holds_what_it_holds_until_its_last_piece_is_gone() {
    let (mut service, held) = service_of(PIECE + 1);
    let answer = service.call(Request::new(Body::empty())).await.unwrap();
    let mut answer = Answer::of(answer, Clock::default()).into_body();
    let mut next = async |is_there: bool| {
        let frame = poll_fn(|context| Poll::Ready(Pin::new(&mut answer).poll_frame(context))).await;
        assert_eq!(frame.is_ready(), is_there);
        assert!(!answer.is_end_stream());
        match frame {
            Poll::Ready(frame) => frame.unwrap().unwrap().into_data().ok(),
            Poll::Pending => None,
        }
    };
    let first = next(true).await.unwrap();
    assert_eq!(first.len(), PIECE);
    next(false).await;
    drop(first);
    let last = next(true).await.unwrap();
    assert_eq!(last.len(), 1);
    next(false).await;
    drop(answer);
    // The transport still has it.
    drop(service);
    assert_eq!(held.strong_count(), 1);
    drop(last);
    assert_eq!(held.strong_count(), 0);
}

async fn until_given_back(held: &Weak<()>) -> Duration {
    let began = Instant::now();
    while held.strong_count() > 0 {
        sleep(Duration::from_millis(100)).await;
        assert!(began.elapsed() < LATEST, "it is kept");
    }
    began.elapsed()
}

fn get() -> Request<()> {
    Request::get("http://server/").body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_end_of_an_answer_unread_loses_it_and_what_it_holds() {
    const WINDOW: usize = 1_024;
    // bytes of the answer -> bytes that the caller reads
    let table = [(WINDOW + 1, 0), (PIECE, 0), (2 * PIECE, 0), (2 * PIECE, 1), (2 * PIECE + 1, PIECE + 1)];
    for (bytes, read) in table {
        let (service, held) = service_of(bytes);
        let mut caller = h2::client::Builder::new();
        caller.initial_window_size(WINDOW as u32);
        let (mut requests, connection) = caller.handshake::<_, Bytes>(connect(64 << 10, service)).await.unwrap();
        tokio::spawn(connection);
        let (answer, _) = requests.send_request(get(), true).unwrap();
        let mut answer = answer.await.unwrap().into_body();
        let mut got = 0;
        let end = loop {
            let data = match timeout(LATEST, answer.data()).await.expect("it does not end") {
                Some(Ok(data)) => data,
                end => break end,
            };
            got += data.len();
            if got <= read {
                answer.flow_control().release_capacity(data.len()).unwrap();
            }
            assert_eq!(held.strong_count(), 1, "it was given back after {got} of {bytes} bytes");
        };
        let reason = end.and_then(Result::err).and_then(|error| error.reason());
        assert_eq!(reason, Some(h2::Reason::CANCEL), "{bytes} {read}");
        assert!(got < bytes, "{got} of {bytes}");
        until_given_back(&held).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_slowly_gets_all_of_it() {
    let bytes = 3 * PIECE + 1;
    let (service, held) = service_of(bytes);
    let mut caller = h2::client::Builder::new();
    caller.initial_window_size(10_000);
    let (mut requests, connection) = caller.handshake::<_, Bytes>(connect(64 << 10, service)).await.unwrap();
    tokio::spawn(connection);
    let (answer, _) = requests.send_request(get(), true).unwrap();
    let mut answer = answer.await.unwrap().into_body();
    let mut got = 0;
    while let Some(data) = answer.data().await {
        let data = data.unwrap();
        got += data.len();
        // Far longer in all than for one piece.
        sleep(PATIENCE.unread / 15).await;
        answer.flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(got, bytes);
    assert!(answer.trailers().await.unwrap().is_some());
    until_given_back(&held).await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_from_the_socket_loses_the_connection() {
    // All the room that an answer may want, but not on the connection.
    let (service, held) = service_of(10 * PIECE);
    let mut caller = h2::client::Builder::new();
    caller.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (mut requests, connection) = caller.handshake::<_, Bytes>(connect(1_024, service)).await.unwrap();
    let mut connection = Box::pin(connection);
    let (answer, _) = requests.send_request(get(), true).unwrap();
    tokio::select! {
        answer = answer => drop(answer.unwrap().into_body()),
        _ = &mut connection => panic!("the connection has ended"),
    }
    // From here on nobody reads.
    assert_eq!(held.strong_count(), 1);
    let after = until_given_back(&held).await;
    assert!(after > PATIENCE.unread - Duration::from_secs(1) && after < 3 * PATIENCE.unread, "{after:?}");
    timeout(LATEST, connection).await.expect("the connection goes on").unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_request_has_to_arrive_in_time() {
    let read = |request: Request<Body>| async {
        let mut body = request.into_body();
        let mut code = None;
        while let Some(frame) = poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context)).await {
            code = frame.err().map(|status| status.code());
            if code.is_some() {
                break;
            }
        }
        let code = code.map_or_else(|| "all".to_owned(), |code| format!("{code:?}"));
        Ok::<_, Infallible>(Response::builder().header("code", code).body(Body::empty()).unwrap())
    };
    // seconds between two of five bytes -> what becomes of it
    for (pause, expected) in [(0, "all"), (5, "all"), (8, "DeadlineExceeded"), (1_000, "DeadlineExceeded")] {
        let (mut requests, connection) =
            h2::client::handshake(connect(64 << 10, tower::service_fn(read))).await.unwrap();
        tokio::spawn(connection);
        let (answer, mut request) = requests.send_request(get(), false).unwrap();
        tokio::spawn(async move {
            for byte in 0..5_u8 {
                let _ = request.send_data(Bytes::from(vec![byte]), byte == 4);
                sleep(Duration::from_secs(pause)).await;
            }
        });
        let began = Instant::now();
        let answer = timeout(LATEST, answer).await.expect("it is waited for").unwrap();
        assert_eq!(answer.headers()["code"], expected, "{pause}");
        assert!(began.elapsed() <= Duration::from_millis(30_010), "{pause} {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_request_is_read_by_another_task_ends_with_its_clock() {
    let end = Duration::from_secs(5);
    let given_up = CancellationToken::new();
    let told = given_up.clone();
    let asked_for_more = move |request: Request<Body>| {
        Clock::current().set_end(Some(Instant::now() + end));
        let told = told.clone();
        let mut body = request.into_body();
        tokio::spawn(async move {
            let frame = poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context)).await;
            assert_eq!(frame.and_then(Result::err).map(|status| status.code()), Some(Code::Cancelled));
            told.cancel();
        });
        let never = http_body_that_waits();
        std::future::ready(Ok::<_, Infallible>(Response::new(never)))
    };
    // Called in the task of the stream.
    let service = tower::service_fn(move |request| {
        let asked_for_more = asked_for_more.clone();
        async move { asked_for_more(request).await }
    });
    let (mut requests, connection) = h2::client::handshake(connect(64 << 10, service)).await.unwrap();
    tokio::spawn(connection);
    let (answer, _request) = requests.send_request(get(), false).unwrap();
    let mut answer = answer.await.unwrap().into_body();
    let began = Instant::now();
    let ended = timeout(LATEST, answer.data()).await.expect("it goes on").unwrap().unwrap_err();
    assert_eq!(ended.reason(), Some(h2::Reason::CANCEL));
    assert!(began.elapsed() < end + Duration::from_millis(10), "{:?}", began.elapsed());
    given_up.cancelled().await;
}

fn http_body_that_waits() -> Body {
    struct Waits;
    impl http_body::Body for Waits {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Pending
        }
    }
    Body::new(Waits)
}
