//! Runs long computations on a thread of their own.

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

/// [`Thread::compute`] of what somebody waits for.
///
/// # Errors
/// The computation panicked.
pub(crate) async fn off_thread<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    Thread::Awaited.compute(compute).await
}
