//! Being asked to stop: Ctrl-C in a terminal, SIGTERM elsewhere.

use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Ends when this process is asked to stop, which does not end it from now on.
///
/// # Errors
/// When the signals cannot be listened to.
pub fn asked() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
