//! The budget of a call, in a form that the compiler can check and that tasks of the server can wait for.
//!
//! The compiler runs on a thread of its own and checks its budget now and then. Tasks of the server wait for a worker,
//! or for a caller who reads slowly, and at the same time for the end of the budget. Both see the same deadline and the
//! same cancellation.
//!
//! Knows: time, cancellation tokens. Must not know: gRPC, what is computed.

use super::memory::Share;
use super::place::Place;
use super::work::ShareOfWork;
use std::future;
use std::sync::Arc;
use std::time::Instant;
use streams_compiler::budget::{Budget, Cancellation, Limits};
use streams_compiler::error::Error;
use tokio::time;
use tokio_util::sync::CancellationToken;

/// Limits, deadline and cancellation of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallBudget {
    /// Bounds on sizes.
    pub(crate) limits: Limits,
    /// When the answer is of no use any more.
    pub(crate) deadline: Option<Instant>,
    /// Cancelled when the caller has gone away, or the server shuts down.
    pub(crate) cancellation: CancellationToken,
    /// The memory that the call has. It has it as long as somebody works on it, even if the caller has gone.
    pub(crate) memory: Option<Arc<Share>>,
    /// Its place in the order of arrival. Not set: whatever it is used for arrives when it comes.
    pub(crate) place: Option<Place>,
    /// What it has of the workers, over all its steps. Not set: each step counts as a call of its own.
    pub(crate) work: Option<Arc<ShareOfWork>>,
    /// It shares no computation with others, because one that it shared came to no result.
    pub(crate) alone: bool,
}

impl CallBudget {
    /// The budget of what this call computes for others, too: it does not end with the call.
    pub(crate) fn of_flight(&self, deadline: Instant, cancellation: CancellationToken, place: Option<Place>) -> Self {
        Self { deadline: Some(deadline), cancellation, place, ..self.clone() }
    }

    /// The same budget for the compiler.
    pub(crate) fn for_compiler(&self) -> Budget {
        let cancellation = Arc::new(Token(self.cancellation.clone()));
        Budget {
            limits: self.limits.clone(),
            deadline: self.deadline,
            cancellation: Some(cancellation),
            ..Budget::default()
        }
    }

    /// Waits until the deadline has passed or the call is cancelled. Returns which of the two.
    pub(crate) async fn ended(&self) -> Error {
        let deadline = async {
            match self.deadline {
                Some(deadline) => time::sleep_until(deadline.into()).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Error::Cancelled,
            () = deadline => Error::DeadlineExceeded,
        }
    }
}

#[derive(Debug)]
struct Token(CancellationToken);

impl Cancellation for Token {
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}
