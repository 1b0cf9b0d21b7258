//! Takes the body of a request in, before the service sees it (rules service-27 and service-28).
//!
//! The transport would collect, expand and decode a message wherever its bytes arrive: on the threads that serve all
//! connections, with as much memory as it takes. Here memory is taken first (`memory`), what is large is expanded
//! (`expand`) and decoded on threads for such work, few at a time, and what a message will take when it is decoded is
//! known before (`cost`). What is not well-formed is refused then. A body that arrives slowly ends its call: it
//! holds memory.
//!
//! Nothing but expanding it says how large a compressed message is. So it is expanded twice: once to measure it, of
//! which nothing is kept, and again when the memory for all of it has been taken. Until then the call holds what was
//! sent and nothing else; one that is large waits with a place in the line of `memory`, and is not measured without
//! (rule service-32).
//!
//! Knows: bodies, the frame around a message, memory. Must not know: messages, what becomes of them.
//!
//! Invariants: the service gets one message, not compressed, of which all is there. What breaks the protocol is passed
//! on unread, for the transport to refuse. A thread that works on a message has a part in its memory, so that it is not
//! given back before, although the caller has gone.

mod cost;
mod expand;

use super::class::CallClass;
use super::errors::Failure;
use super::memory::{Denied, LinePlace, SMALL, Share};
use super::metrics::Metrics;
use super::{LARGEST_REQUEST, admission};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use cost::cost;
use expand::{Encoding, Expander, Measured, measure};
use futures::future::BoxFuture;
use http_body::{Body as _, Frame};
use std::collections::VecDeque;
use std::future::{self, Future};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use streams_compiler::error::Error;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tokio::{task, time};
use tonic::Status;
use tonic::body::Body;
use tracing::Span;

/// A message in pieces.
type Pieces = VecDeque<Bytes>;

/// Bytes of a message that is expanded and decoded where it arrives, because that takes less time than passing it on.
const AT_ONCE: usize = 64 << 10;
/// Bytes of a piece.
const PIECE: usize = 1 << 20;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Bytes for which a body may take a second longer to arrive.
const ARRIVAL_RATE: u32 = 8 << 20;

/// Takes requests in.
#[derive(Clone)]
pub(crate) struct Intake {
    /// Places of those who expand or decode something large.
    decoders: Arc<Semaphore>,
    /// Places of those who expand something small, so that they never wait for what is large. The state of a decoder
    /// may take megabytes, so there are few of them, too.
    small_decoders: Arc<Semaphore>,
    /// How long a body may take to arrive.
    arrival: Duration,
    metrics: Arc<Metrics>,
}

/// Where a message is to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decode {
    Here,
    Elsewhere,
}

impl Intake {
    /// Lets as many large messages be expanded and decoded at once as there are `workers`, and at least two.
    pub(crate) fn new(workers: usize, arrival: Duration, metrics: Arc<Metrics>) -> Self {
        let places = || Arc::new(Semaphore::new(workers.clamp(2, Semaphore::MAX_PERMITS)));
        Self { decoders: places(), small_decoders: places(), arrival, metrics }
    }

    /// Reads the body of a request. The request that it returns has the same message in memory, expanded; `share` then
    /// has what is needed to decode and to parse it.
    ///
    /// # Errors
    ///
    /// There is not enough memory, the message is too large or damaged, or it arrives too slowly. `busy` is the failure
    /// of a call for which there is no memory now.
    pub(crate) async fn receive(
        &self,
        class: CallClass,
        request: http::Request<Body>,
        share: &Arc<Share>,
        busy: impl Fn() -> Failure,
    ) -> Result<(http::Request<Body>, Decode), Failure> {
        let denied = |denied: Denied| denied.failure("the request", &busy);
        let Some(encoding) = Encoding::of(request.headers()) else { return Ok((request, Decode::Here)) };
        let (mut head, body) = request.into_parts();
        let mut began = Instant::now();
        let mut arriving = Arriving { body, held: BytesMut::new() };
        let prefix = in_time(self.arrival, arriving.prefix()).await??;
        let (compressed, length) = match prefix {
            Some((0 | 1, length)) if length > LARGEST_REQUEST => {
                return Err(Failure::malformed("", format!("has more than {LARGEST_REQUEST} bytes")));
            }
            Some((0, length)) => (false, length),
            Some((1, length)) if encoding != Encoding::Identity => (true, length),
            // The transport says what is wrong.
            _ => {
                let rest = Body::new(Rest { first: Some(arriving.held.freeze()), body: arriving.body });
                return Ok((http::Request::from_parts(head, rest), Decode::Here));
            }
        };
        let flat = flat(class);
        let waits = Instant::now();
        share.take(flat + length as u64).await.map_err(denied)?;
        // That was not the caller's time.
        began += waits.elapsed();
        let pieces = arriving.message(length, began, self.arrival).await?;
        self.metrics.stage("receive", began.elapsed());

        let (mut pieces, length) = if compressed {
            let began = Instant::now();
            let expanded = self.expand(class, encoding, pieces, length, share, &denied).await?;
            self.metrics.stage("expand", began.elapsed());
            expanded
        } else {
            let (cost, pieces) = if length <= AT_ONCE {
                (cost(class, pieces.iter().cloned()), pieces)
            } else {
                self.elsewhere(share, move || (cost(class, pieces.iter().cloned()), pieces)).await?
            };
            let cost = cost.ok_or_else(not_well_formed)?;
            share.take(cost.bytes()).await.map_err(denied)?;
            share.is_parsed_to(cost.parsed());
            (pieces, length)
        };
        let decode = if length > AT_ONCE { Decode::Elsewhere } else { Decode::Here };

        head.headers.remove("grpc-encoding");
        let mut prefix = BytesMut::with_capacity(PREFIX);
        prefix.put_u8(0);
        prefix.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        pieces.push_front(prefix.freeze());
        Ok((http::Request::from_parts(head, Body::new(Whole(pieces))), decode))
    }

    /// Begins to answer a request. Where that means to decode something large, another thread does it.
    pub(crate) async fn begin<T: Send + 'static>(
        &self,
        decode: Decode,
        share: &Arc<Share>,
        answer: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        if decode == Decode::Here {
            return Ok(answer.await);
        }
        let answer: BoxFuture<'static, T> = Box::pin(answer);
        let span = Span::current();
        let began = Instant::now();
        let (begun, mut answer) = self
            .elsewhere(share, move || {
                let mut answer = answer;
                // All of the request is there, so it is decoded now. Whoever awaits the answer polls again, at once.
                let begun = span.in_scope(|| answer.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                (begun, answer)
            })
            .await?;
        self.metrics.stage("decode", began.elapsed());
        Ok(match begun {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.as_mut().await,
        })
    }

    /// Expands a message of which `length` bytes were sent, and takes memory for what comes out and for what is decoded
    /// of it, at once and before.
    async fn expand(
        &self,
        class: CallClass,
        encoding: Encoding,
        compressed: Pieces,
        length: usize,
        share: &Arc<Share>,
        denied: &impl Fn(Denied) -> Failure,
    ) -> Result<(Pieces, usize), Failure> {
        let (Measured { length: expanded, cost }, place) =
            self.measure(class, encoding, &compressed, length, share, denied).await?;
        let cost = cost.ok_or_else(not_well_formed)?;
        // What was sent is given up before anything is decoded.
        let flat = share.bytes().saturating_sub(length as u64);
        let more = expanded as u64 + cost.bytes().saturating_sub(length as u64);
        share.take_at(more, place).await.map_err(denied)?;
        share.is_parsed_to(cost.parsed());
        let step = expanded.saturating_add(1).clamp(1, 4 * PIECE);
        let decoders = if step <= AT_ONCE { &self.small_decoders } else { &self.decoders };
        let decoder = Arc::clone(decoders).acquire_owned().await.map_err(|_| Failure::ShuttingDown)?;
        // A thread that expands has a part in both.
        let taken = Arc::new((decoder, Arc::clone(share)));
        let Some(mut expander) = Expander::new(encoding, compressed).map_err(damaged)? else {
            return Ok((Pieces::new(), 0));
        };
        let (mut pieces, mut left) = (Pieces::new(), expanded);
        while left > 0 {
            let piece = if step <= AT_ONCE {
                expander.next(step)
            } else {
                let taken = Arc::clone(&taken);
                let next = move || {
                    let piece = expander.next(step);
                    drop(taken);
                    (piece, expander)
                };
                let (piece, same) = blocking(next).await?;
                expander = same;
                piece
            };
            let piece = piece.map_err(damaged)?;
            if piece.is_empty() {
                return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
            }
            left = left.saturating_sub(piece.len());
            pieces.push_back(piece);
        }
        drop(expander);
        share.keep(flat + expanded as u64 + cost.bytes());
        Ok((pieces, expanded))
    }

    /// Measures a message of which `length` bytes were sent. One that is large is measured with a place in the line,
    /// and keeps it: so no more of them than there are places cost more than a look, whatever their callers send.
    async fn measure(
        &self,
        class: CallClass,
        encoding: Encoding,
        compressed: &Pieces,
        length: usize,
        share: &Arc<Share>,
        denied: &impl Fn(Denied) -> Failure,
    ) -> Result<(Measured, Option<LinePlace>), Failure> {
        if length <= AT_ONCE {
            let _decoder = self.small_decoders.acquire().await.map_err(|_| Failure::ShuttingDown)?;
            if let Some(measured) = measure(class, encoding, compressed.clone(), AT_ONCE).map_err(damaged)? {
                return Ok((measured, None));
            }
        }
        let up_to = async |most| {
            let compressed = compressed.clone();
            self.elsewhere(share, move || measure(class, encoding, compressed, most)).await?.map_err(damaged)
        };
        if let Some(measured) = up_to(SMALL as usize).await? {
            return Ok((measured, None));
        }
        let place = share.place().await.map_err(denied)?;
        let measured = up_to(LARGEST_REQUEST).await?.ok_or_else(|| {
            Failure::malformed("", format!("has more than {LARGEST_REQUEST} bytes when it is expanded"))
        })?;
        Ok((measured, Some(place)))
    }

    /// Runs `work` on a thread for such work, when there is a place. It has what `share` has as long as it works,
    /// even if nobody waits for it any more.
    async fn elsewhere<T: Send + 'static>(
        &self,
        share: &Arc<Share>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let place = Arc::clone(&self.decoders).acquire_owned().await.map_err(|_| Failure::ShuttingDown)?;
        let share = Arc::clone(share);
        blocking(move || {
            let result = work();
            drop((place, share));
            result
        })
        .await
    }
}

/// A request of which the call ends if nothing of its body comes for `patience`.
pub(crate) fn prompt(request: http::Request<Body>, patience: Duration) -> http::Request<Body> {
    request.map(|body| Body::new(Prompt { body, patience, until: Box::pin(time::sleep(patience)) }))
}

/// Bytes that any call of a class takes, whatever its request. Rendered text waits in memory for its reader.
fn flat(class: CallClass) -> u64 {
    match class {
        CallClass::Render => super::render::MOST_UNREAD,
        CallClass::Resize | CallClass::Submit | CallClass::DryRun => AT_ONCE as u64,
    }
}

/// Runs `work` on a thread where it may take long.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    task::spawn_blocking(work).await.map_err(admission::ended_thread)
}

fn damaged(error: io::Error) -> Failure {
    Failure::malformed("", format!("cannot be expanded: {error}"))
}

fn not_well_formed() -> Failure {
    Failure::malformed("", "is not a well-formed message")
}

async fn in_time<T>(most: Duration, what: impl Future<Output = T>) -> Result<T, Failure> {
    time::timeout(most, what).await.map_err(|_| Failure::SlowRequest)
}

/// A body, as far as it has come.
struct Arriving {
    body: Body,
    held: BytesMut,
}

impl Arriving {
    /// Whether the message is compressed, and its length. `None`: the body ended before.
    async fn prefix(&mut self) -> Result<Option<(u8, usize)>, Failure> {
        while self.held.len() < PREFIX {
            let Some(data) = self.data().await? else { return Ok(None) };
            self.held.extend_from_slice(&data);
        }
        let mut prefix = &self.held[..];
        let flag = prefix.get_u8();
        Ok(Some((flag, usize::try_from(prefix.get_u32()).unwrap_or(usize::MAX))))
    }

    /// The message, and then the end of the body. It is copied into pieces of its own: what the transport gives may be
    /// a small part of something large.
    ///
    /// # Errors
    ///
    /// It ends early, or has more than that, or arrives too slowly: since it `began` to arrive, `arrival` and a second
    /// for each [`ARRIVAL_RATE`] of what is there are over. So who announces much and sends nothing is not waited for
    /// any longer than others.
    async fn message(mut self, length: usize, began: Instant, arrival: Duration) -> Result<Pieces, Failure> {
        let excess = || Failure::malformed("", "is followed by more than one message");
        self.held.advance(PREFIX);
        let mut data = self.held.split().freeze();
        let (mut pieces, mut left) = (Pieces::new(), length);
        let mut piece = BytesMut::with_capacity(left.min(PIECE));
        loop {
            if data.len() > left {
                return Err(excess());
            }
            left -= data.len();
            while !data.is_empty() {
                let part = data.split_to(data.len().min(PIECE - piece.len()));
                piece.extend_from_slice(&part);
                if piece.len() == PIECE {
                    pieces.push_back(piece.freeze());
                    piece = BytesMut::with_capacity((left + data.len()).min(PIECE));
                }
            }
            if left == 0 && self.body.is_end_stream() {
                break;
            }
            let received = u32::try_from(length - left).unwrap_or(u32::MAX);
            let most = arrival + Duration::from_secs(1) * received / ARRIVAL_RATE;
            match in_time(most.saturating_sub(began.elapsed()), self.data()).await?? {
                Some(next) => data = next,
                None if left == 0 => break,
                None => return Err(Failure::malformed("", "is cut short")),
            }
        }
        pieces.push_back(piece.freeze());
        Ok(pieces)
    }

    /// The next bytes; `None` at the end.
    async fn data(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                None => return Ok(None),
                // The caller went away.
                Some(Err(_)) => return Err(Error::Cancelled.into()),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// A body of which all is there. Pieces that were read are given up.
struct Whole(Pieces);

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

/// See [`prompt`].
struct Prompt {
    body: Body,
    patience: Duration,
    until: Pin<Box<Sleep>>,
}

impl http_body::Body for Prompt {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() {
            ready!(self.until.as_mut().poll(context));
            return Poll::Ready(Some(Err(Failure::SlowRequest.status())));
        }
        let until = Instant::now() + self.patience;
        self.until.as_mut().reset(until);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// A body of which the first bytes were read.
struct Rest {
    first: Option<Bytes>,
    body: Body,
}

impl http_body::Body for Rest {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take().filter(|first| !first.is_empty()) {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.body).poll_frame(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::memory::Memory;
    use prost::Message;
    use std::sync::mpsc;
    use streams_proto::fusion::v1 as pb;
    use tokio::sync::oneshot;

    /// Takes requests in, with memory for them.
    fn intake(arrival: Duration) -> (Intake, Memory) {
        let metrics = Arc::new(Metrics::new());
        (Intake::new(1, arrival, Arc::clone(&metrics)), Memory::new(8 * SMALL, metrics))
    }

    /// A body of which all comes after some time, and never the end.
    struct Late {
        sleep: Pin<Box<Sleep>>,
        bytes: Option<Bytes>,
    }

    impl http_body::Body for Late {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            ready!(self.sleep.as_mut().poll(context));
            self.bytes.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
        }
    }

    fn framed(flag: u8, message: &[u8]) -> Bytes {
        let mut framed = BytesMut::new();
        framed.put_u8(flag);
        framed.put_u32(u32::try_from(message.len()).unwrap());
        framed.put(message);
        framed.freeze()
    }

    async fn receive(intake: &Intake, memory: &Memory, request: http::Request<Body>) -> Result<(), Failure> {
        let share = Arc::new(memory.share(CallClass::Resize));
        intake.receive(CallClass::Resize, request, &share, || Failure::ShuttingDown).await.map(drop)
    }

    #[tokio::test]
    async fn memory_is_kept_as_long_as_a_thread_works_on_the_message() {
        let (intake, memory) = intake(Duration::from_secs(60));
        let share = Arc::new(memory.share(CallClass::Resize));
        share.take(100).await.unwrap();
        let (begins, begun) = oneshot::channel();
        let (go, gone) = mpsc::channel::<()>();
        {
            let work = intake.elsewhere(&share, move || {
                begins.send(()).unwrap();
                gone.recv().unwrap_err();
            });
            tokio::select! {
                _ = work => panic!("it has to wait"),
                begun = begun => begun.unwrap(),
            }
        }
        // The caller has gone.
        drop(share);
        assert_eq!(memory.taken().0, 100);
        drop(go);
        while memory.taken().0 > 0 {
            task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_small_message_does_not_wait_for_large_ones() {
        let (intake, memory) = intake(Duration::from_secs(60));
        let _large = intake.decoders.acquire_many(2).await.unwrap();
        let message = pb::ResizeRequest { pe_ids_in_use: vec![7; 1000], ..Default::default() }.encode_to_vec();
        let compressed = zstd::encode_all(&*message, 3).unwrap();
        let body = Whole([framed(1, &compressed)].into());
        let request = http::Request::post("/").header("grpc-encoding", "zstd").body(Body::new(body)).unwrap();
        let received = time::timeout(Duration::from_secs(60), receive(&intake, &memory, request)).await;
        received.expect("it waits").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_to_arrive_begins_once() {
        let arrival = Duration::from_secs(2);
        let (intake, memory) = intake(arrival);
        let late = Late {
            sleep: Box::pin(time::sleep(arrival / 4 * 3)),
            // Some of what is announced.
            bytes: Some(framed(0, &[0; 100]).slice(..50)),
        };
        let began = Instant::now();
        let failure = receive(&intake, &memory, http::Request::new(Body::new(late))).await.unwrap_err();
        assert!(matches!(failure, Failure::SlowRequest), "{failure:?}");
        // A timer is a millisecond late.
        assert!((arrival..arrival + Duration::from_millis(5)).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_prompt_is_not_waited_for() {
        let patience = Duration::from_secs(10);
        let began = Instant::now();
        let late = Late { sleep: Box::pin(time::sleep(patience / 2)), bytes: Some(Bytes::from_static(b"late")) };
        let mut body = prompt(http::Request::new(Body::new(late)), patience).into_body();
        let mut next = async || future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap();
        assert_eq!(next().await.unwrap().into_data().unwrap(), "late");
        assert_eq!(next().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        assert_eq!(began.elapsed(), patience / 2 * 3);
    }

    /// It is a part of the job that the call begins from.
    #[tokio::test]
    async fn what_is_parsed_of_a_message_is_not_lacked_for_the_job() {
        let layout = pb::Blob { content: Some(Bytes::from(vec![b'x'; 1000])), ..Default::default() };
        let message = pb::ResizeRequest { layout: Some(layout), ..Default::default() }.encode_to_vec();
        let parsed = cost(CallClass::Resize, [Bytes::from(message.clone())].into_iter()).unwrap().parsed();
        assert!(parsed > 0);
        let compressed = zstd::encode_all(&*message, 3).unwrap();
        for (flag, sent) in [(0, message), (1, compressed)] {
            let (intake, memory) = intake(Duration::from_secs(60));
            let share = Arc::new(memory.share(CallClass::Resize));
            let body = Whole([framed(flag, &sent)].into());
            let request = http::Request::post("/").header("grpc-encoding", "zstd").body(Body::new(body)).unwrap();
            intake.receive(CallClass::Resize, request, &share, || Failure::ShuttingDown).await.unwrap();
            assert_eq!(share.lacks_for_job(SMALL), SMALL - parsed, "{flag}");
        }
    }

    #[tokio::test]
    async fn what_is_announced_as_too_large_is_malformed() {
        let (intake, memory) = intake(Duration::from_secs(60));
        for flag in [0, 1] {
            let mut prefix = vec![flag];
            prefix.extend_from_slice(&u32::try_from(LARGEST_REQUEST + 1).unwrap().to_be_bytes());
            let request = http::Request::new(Body::new(Whole([Bytes::from(prefix)].into())));
            let failure = receive(&intake, &memory, request).await.unwrap_err();
            assert!(matches!(failure, Failure::Malformed(_)), "{flag}: {failure:?}");
        }
    }
}
