//! The body of an answer, in pieces.
//!
//! The transport takes a piece whether the caller has room for it or not: hyper asks for a frame before it asks for
//! capacity (from 1.12 on). It hands the piece to the buffers of the connection as soon as the caller has room for a
//! byte of it. It would then take the end of the answer, too, and the stream would be over for its task and its clock,
//! while bytes that nobody reads stay in these buffers, for as long as the connection lasts. So the next piece, and the
//! end, are given out when the bytes of the last piece were let go: written to the socket, or dropped with the stream.
//!
//! Invariant: of an answer, one piece at most is with the transport, and what the answer holds is held until that is
//! gone.

use super::Clock;
use bytes::Bytes;
use futures::task::AtomicWaker;
use http::{Extensions, Response};
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// Most bytes of a piece, and so the least that a caller has to read in time. The transport needs more than one for
/// frames as large as callers want them.
pub const PIECE: usize = 32 << 10;

/// Lets the answer that has these extensions hold something more until it was sent, or nobody reads it any more.
pub fn hold(extensions: &mut Extensions, held: impl Send + Sync + 'static) {
    let before = extensions.remove::<Held>();
    extensions.insert(Held(Arc::new((held, before))));
}

/// What an answer holds.
#[derive(Clone)]
struct Held(#[allow(dead_code, reason = "it is kept")] Arc<dyn Send + Sync>);

/// See the module.
pub(super) struct Answer {
    body: Body,
    /// Of the last part of it, what the transport has not got yet.
    rest: Bytes,
    last: Arc<Last>,
    clock: Clock,
    held: Option<Held>,
}

/// The last piece that the transport has got.
#[derive(Default)]
struct Last {
    is_on_its_way: AtomicBool,
    waiting: AtomicWaker,
}

/// A piece, as long as the transport has it.
struct Piece {
    bytes: Bytes,
    of: Arc<Last>,
    _held: Option<Held>,
}

impl Answer {
    pub(super) fn of(mut answer: Response<Body>, clock: Clock) -> Response<Self> {
        let held = answer.extensions_mut().remove();
        answer.map(|body| Self { body, rest: Bytes::new(), last: Arc::default(), clock, held })
    }

    fn give_out(&mut self, bytes: Bytes) -> Bytes {
        self.last.is_on_its_way.store(true, Ordering::Release);
        Bytes::from_owner(Piece { bytes, of: Arc::clone(&self.last), _held: self.held.clone() })
    }
}

impl Last {
    fn poll_gone(&self, context: &Context<'_>) -> Poll<()> {
        self.waiting.register(context.waker());
        if self.is_on_its_way.load(Ordering::Acquire) { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.of.is_on_its_way.store(false, Ordering::Release);
        // The transport has a lock now. Whoever is woken runs later.
        self.of.waiting.wake();
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let answer = self.get_mut();
        if answer.last.poll_gone(context).is_pending() {
            return Poll::Pending;
        }
        if answer.rest.is_empty() {
            // All that there was is read.
            answer.clock.set_unread(false);
            let frame = match Pin::new(&mut answer.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            match frame.into_data() {
                Ok(data) => answer.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        answer.clock.set_unread(true);
        let piece = answer.rest.split_to(answer.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(answer.give_out(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        let is_on_its_way = self.last.is_on_its_way.load(Ordering::Acquire);
        !is_on_its_way && self.rest.is_empty() && self.body.is_end_stream()
    }
}
