//! Takes the body of a request in, before the service sees it (rules service-27 and service-28).
//!
//! The transport would collect, expand and decode a message wherever its bytes arrive: on the threads that serve all
//! connections, with as much memory as it takes. Here memory is taken first (`memory`), what is large is expanded
//! (`expand`) and decoded on threads for such work, few at a time, and what a message will take when it is decoded is
//! known before (`cost`). A body that arrives slowly ends its call: it holds memory.
//!
//! Knows: bodies, the frame around a message, memory. Must not know: messages, what becomes of them.
//!
//! Invariants: the service gets one message, not compressed, of which all is there. What breaks the protocol is passed
//! on unread, for the transport to refuse.

mod cost;
mod expand;

use super::class::CallClass;
use super::errors::Failure;
use super::memory::{Denied, Share};
use super::metrics::Metrics;
use super::{LARGEST_REQUEST, admission};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use cost::{Cost, cost};
use expand::{Encoding, Expander};
use futures::future::BoxFuture;
use http_body::{Body as _, Frame};
use std::collections::VecDeque;
use std::future::{self, Future};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use streams_compiler::error::Error;
use tokio::sync::Semaphore;
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
/// Bytes of memory for a byte of content: the application that is parsed from an ADL.
const PER_CONTENT: u64 = 4;

/// Takes requests in.
#[derive(Clone)]
pub(crate) struct Intake {
    /// Places of those who expand or decode something large.
    decoders: Arc<Semaphore>,
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
        let decoders = Arc::new(Semaphore::new(workers.clamp(2, Semaphore::MAX_PERMITS)));
        Self { decoders, arrival, metrics }
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
        share: &mut Share,
        busy: impl Fn() -> Failure,
    ) -> Result<(http::Request<Body>, Decode), Failure> {
        let denied = |denied: Denied| denied.failure("the request", &busy);
        let Some(encoding) = Encoding::of(request.headers()) else { return Ok((request, Decode::Here)) };
        let (mut head, body) = request.into_parts();
        let began = Instant::now();
        let mut arriving = Arriving { body, held: BytesMut::new() };
        let prefix = in_time(self.arrival, arriving.prefix()).await??;
        let (compressed, length) = match prefix {
            Some((0, length)) if length <= LARGEST_REQUEST => (false, length),
            Some((1, length)) if length <= LARGEST_REQUEST && encoding != Encoding::Identity => (true, length),
            // The transport says what is wrong.
            _ => {
                let rest = Body::new(Rest { first: Some(arriving.held.freeze()), body: arriving.body });
                return Ok((http::Request::from_parts(head, rest), Decode::Here));
            }
        };
        let flat = flat(class);
        share.take(flat + length as u64).await.map_err(denied)?;
        let arrival = self.arrival + Duration::from_secs(1) * u32::try_from(length).unwrap_or(u32::MAX) / ARRIVAL_RATE;
        let pieces = in_time(arrival, arriving.message(length)).await??;
        self.metrics.stage("receive", began.elapsed());

        let mut length = length;
        let mut pieces = pieces;
        if compressed {
            let began = Instant::now();
            (pieces, length) = self.expand(encoding, pieces, length, share, &denied).await?;
            share.keep(flat + length as u64);
            self.metrics.stage("expand", began.elapsed());
        }
        let decode = if length > AT_ONCE { Decode::Elsewhere } else { Decode::Here };
        let Cost { fields, content } = if decode == Decode::Here {
            cost(class, pieces.make_contiguous())
        } else {
            let (cost, all) = self
                .elsewhere(move || {
                    let all: Vec<Bytes> = pieces.into();
                    (cost(class, &all), all)
                })
                .await?;
            pieces = all.into();
            cost
        };
        share.take(fields + PER_CONTENT * content).await.map_err(denied)?;

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
        answer: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        if decode == Decode::Here {
            return Ok(answer.await);
        }
        let answer: BoxFuture<'static, T> = Box::pin(answer);
        let span = Span::current();
        let began = Instant::now();
        let (begun, mut answer) = self
            .elsewhere(move || {
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

    /// Expands a message, and takes memory for what comes out as it comes.
    async fn expand(
        &self,
        encoding: Encoding,
        compressed: Pieces,
        length: usize,
        share: &mut Share,
        denied: &impl Fn(Denied) -> Failure,
    ) -> Result<(Pieces, usize), Failure> {
        // The state of the decoder may take megabytes. So there are few of them, however many messages are expanded.
        let _place = self.decoders.acquire().await.map_err(|_| Failure::ShuttingDown)?;
        let step = length.saturating_mul(4).clamp(AT_ONCE, 4 * PIECE);
        let damaged = |error: io::Error| Failure::malformed("", format!("cannot be expanded: {error}"));
        let Some(mut expander) = Expander::new(encoding, compressed).map_err(damaged)? else {
            return Ok((Pieces::new(), 0));
        };
        let (mut pieces, mut expanded) = (Pieces::new(), 0);
        loop {
            share.take(step as u64).await.map_err(denied)?;
            let piece = if step <= AT_ONCE {
                expander.next(step)
            } else {
                let (piece, same) = blocking(move || (expander.next(step), expander)).await?;
                expander = same;
                piece
            };
            let piece = piece.map_err(damaged)?;
            expanded += piece.len();
            let last = piece.len() < step;
            pieces.push_back(piece);
            if expanded > LARGEST_REQUEST {
                return Err(Failure::malformed(
                    "",
                    format!("has more than {LARGEST_REQUEST} bytes when it is expanded"),
                ));
            }
            if last {
                return Ok((pieces, expanded));
            }
        }
    }

    /// Runs `work` on a thread for such work, when there is a place.
    async fn elsewhere<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        let place = Arc::clone(&self.decoders).acquire_owned().await.map_err(|_| Failure::ShuttingDown)?;
        blocking(move || {
            let result = work();
            drop(place);
            result
        })
        .await
    }
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
    async fn message(mut self, length: usize) -> Result<Pieces, Failure> {
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
            match self.data().await? {
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
