//! Computations that take long enough to delay others.

use tokio::runtime::Handle;
use tokio::task::JoinError;

/// Computes on a thread that serves nobody else. Without a runtime, as in a test that polls by hand, it computes here.
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
