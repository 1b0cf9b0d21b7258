//! Runs long computations on a thread of their own.

use streams_kubernetes::Error;
use streams_process::background;
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

/// What kind of thread does a long computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// One like any other: somebody waits for the result.
    Awaited,
    /// One that makes way for everything else, for what a submission needs. It takes its time anyway, and must not take
    /// it from resizes (rule job-4).
    Background,
}

impl Thread {
    /// Computes on such a thread, so that no other task waits. Without a runtime, as in a test that polls by hand, it
    /// computes on this thread.
    ///
    /// # Errors
    /// The computation panicked.
    pub(crate) async fn compute<T: Send + 'static>(
        self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match (Handle::try_current(), self) {
            (Ok(_), Self::Awaited) => spawn_blocking(compute).await,
            (Ok(_), Self::Background) => background::spawn(compute).await,
            (Err(_), _) => Ok(compute()),
        }
    }
}

/// The error of a look at a job of which something was not computed.
pub(crate) fn not_computed(error: JoinError) -> Error {
    Error::Call(kube::Error::Service(error.into()))
}

/// Things to look at, from which on a computation about them takes so long that it must not be on a thread that serves
/// others.
const MANY: usize = 2_048;

/// Making, hashing or comparing one object counts as so many looks.
pub(crate) const OF_AN_OBJECT: usize = 64;

/// The same as [`off_thread`], if it is about so many things that it takes long; else on this thread.
///
/// # Errors
/// The computation panicked.
pub(crate) async fn off_thread_if_many<T: Send + 'static>(
    amount: usize,
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if amount < MANY { Ok(compute()) } else { off_thread(compute).await }
}

/// [`Thread::compute`] of what somebody waits for.
///
/// # Errors
/// The computation panicked.
pub(crate) async fn off_thread<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    Thread::Awaited.compute(compute).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[tokio::test]
    async fn what_takes_long_is_not_done_on_a_thread_that_serves_others() {
        for (amount, is_here) in [(0, true), (MANY - 1, true), (MANY, false)] {
            let done_by = off_thread_if_many(amount, || thread::current().id()).await.unwrap();
            assert_eq!(done_by == thread::current().id(), is_here, "{amount}");
        }
    }
}
