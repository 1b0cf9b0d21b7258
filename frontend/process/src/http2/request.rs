//! The body of a request: it has to arrive in time, and ends with its stream.
//!
//! Whoever reads it may be a task of its own. As long as that has it, the transport takes the stream for one that is
//! still of use, and does not reset it.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

/// See the module.
pub(super) struct Arriving {
    body: Incoming,
    late: Option<Pin<Box<Sleep>>>,
    stream_ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Arriving {
    /// A body of which all has to arrive `within`, and before the stream has `ended`.
    pub(super) fn new(body: Incoming, within: Option<Duration>, ended: CancellationToken) -> Self {
        let late = within.map(|within| Box::pin(sleep(within)));
        Self { body, late, stream_ended: Box::pin(ended.cancelled_owned()) }
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.late.as_mut().is_some_and(|late| late.as_mut().poll(context).is_ready()) {
            let late = Status::deadline_exceeded("the request arrives too slowly");
            return Poll::Ready(Some(Err(late.into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() && self.stream_ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Status::cancelled("the call is over").into())));
        }
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
