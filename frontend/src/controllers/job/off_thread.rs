//! Runs long computations on a thread of their own.

use tokio::runtime::Handle;
use tokio::task::JoinError;

/// Computes on a blocking thread, so that no other task waits. Without a runtime, as in a test that polls by hand, it
/// computes on this thread.
///
/// # Errors
/// The computation panicked.
pub(crate) async fn off_thread<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    match Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(compute).await,
        Err(_) => Ok(compute()),
    }
}
