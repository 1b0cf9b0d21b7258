//! The body of an answer: notes the status that ends it, and does not wait for its reader for ever (rule service-29).
//!
//! The transport asks for more only when what it got was sent. It asks for nothing at all while a caller does not read,
//! so a body cannot end such a call by itself: a task beside it takes away what the answer holds, and has the transport
//! end the stream.
//!
//! Knows: HTTP bodies, what an answer holds. Must not know: messages, why an answer is as it is.
//!
//! Invariants: what an answer holds is given back as soon as it was sent, its caller has gone, its deadline has passed,
//! or nothing of it was read for some time. Its memory is, besides, kept as long as the transport has a byte of it.

use super::admission::Ticket;
use super::errors::Failure;
use super::memory::Share;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use parking_lot::Mutex;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use streams_process::http2::{Clock, PIECE};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};

/// How long after its deadline a caller may still read its answer.
const LATE: Duration = Duration::from_secs(2);

/// What an answer holds until it is read.
pub(crate) struct Held {
    body: Body,
    /// Of the last piece, what the transport has not got yet.
    rest: Bytes,
    read_at: Instant,
    /// The caller has read everything that there is so far.
    all_read: bool,
    _ticket: Option<Ticket>,
    _memory: Option<Arc<Share>>,
}

/// When an answer is taken away from a caller who does not read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The deadline of the call.
    pub(crate) deadline: Option<Instant>,
    /// How long a caller may read nothing.
    pub(crate) stall: Duration,
}

/// Hears how an answer ends.
pub(crate) trait Observer: Send + Unpin + 'static {
    /// These headers or trailers may have the status.
    fn note(&mut self, headers: &HeaderMap);

    /// It ends with this status, although its caller may not hear of it.
    fn fail(&mut self, code: Code);
}

/// The body of an answer.
pub(crate) struct AnswerBody<O> {
    /// Taken away from a caller who does not read.
    held: Arc<Mutex<Option<Held>>>,
    /// Such a caller has been told.
    told: bool,
    observer: O,
}

impl Held {
    pub(crate) fn new(body: Body, ticket: Option<Ticket>, memory: Option<Arc<Share>>) -> Self {
        Self { body, rest: Bytes::new(), read_at: Instant::now(), all_read: false, _ticket: ticket, _memory: memory }
    }
}

impl<O: Observer> AnswerBody<O> {
    /// The body of an answer; `ended` is cancelled when it is dropped.
    pub(crate) fn new(held: Held, patience: Patience, ended: CancellationToken, observer: O) -> Self {
        let at_once = http_body::Body::is_end_stream(&held.body);
        let held = Arc::new(Mutex::new(Some(held)));
        if !at_once {
            tokio::spawn(watch(Arc::downgrade(&held), patience, ended, Clock::current()));
        }
        Self { held, told: false, observer }
    }
}

/// Takes away what an answer holds when it was not read in time, and ends its stream.
async fn watch(held: Weak<Mutex<Option<Held>>>, patience: Patience, ended: CancellationToken, stream: Clock) {
    let end = patience.deadline.map(|deadline| deadline + LATE);
    loop {
        let read_at = held.upgrade().and_then(|held| {
            // Who waits for the rest of the answer reads.
            held.lock().as_ref().map(|held| if held.all_read { Instant::now() } else { held.read_at })
        });
        let Some(read_at) = read_at else { return };
        let stalled = read_at + patience.stall;
        let until = end.map_or(stalled, |end| end.min(stalled));
        if until <= Instant::now() {
            if let Some(unread) = held.upgrade().and_then(|held| held.lock().take()) {
                tracing::warn!("an answer was not read");
                drop(unread);
            }
            stream.end_now();
            return;
        }
        tokio::select! {
            () = ended.cancelled() => return,
            () = time::sleep_until(until.into()) => {}
        }
    }
}

impl<O: Observer> http_body::Body for AnswerBody<O> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { held, told, observer } = self.get_mut();
        let mut held = held.lock();
        let Some(held) = &mut *held else {
            if mem::replace(told, true) {
                return Poll::Ready(None);
            }
            let status = Failure::UnreadAnswer.status();
            observer.fail(status.code());
            let mut trailers = HeaderMap::new();
            return Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))));
        };
        held.read_at = Instant::now();
        held.all_read = false;
        if held.rest.is_empty() {
            match Pin::new(&mut held.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => held.rest = data,
                    Err(frame) => {
                        if let Some(trailers) = frame.trailers_ref() {
                            observer.note(trailers);
                        }
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
                Poll::Ready(Some(Err(status))) => {
                    observer.fail(status.code());
                    return Poll::Ready(Some(Err(status)));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    held.all_read = true;
                    return Poll::Pending;
                }
            }
        }
        // Not more than the transport takes at once: it asks again when that was read, and only then it is known.
        let piece = held.rest.split_to(held.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match &*self.held.lock() {
            Some(held) => held.rest.is_empty() && held.body.is_end_stream(),
            None => self.told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    struct Unobserved;

    impl Observer for Unobserved {
        fn note(&mut self, _: &HeaderMap) {}

        fn fail(&mut self, _: Code) {}
    }

    /// A caller who reads a piece in time is not too slow, so a larger one must not be on its way.
    #[tokio::test]
    async fn an_answer_is_given_out_in_pieces_of_the_transport() {
        let held = Held::new(Body::new("x".repeat(3 * PIECE + 1)), None, None);
        let patience = Patience { deadline: None, stall: Duration::from_secs(30) };
        let mut body = AnswerBody::new(held, patience, CancellationToken::new(), Unobserved);
        let mut pieces = Vec::new();
        while let Some(frame) = poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context)).await {
            pieces.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(pieces, [PIECE, PIECE, PIECE, 1]);
        assert_eq!(PIECE, 32 << 10, "as rule service-29 says");
    }
}
