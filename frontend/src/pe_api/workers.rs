//! Work that goes on beside the requests of PEs, and whether it still does.
//!
//! Knows: tasks of the runtime. Must not know: what they do.

use std::future::Future;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Work that runs on the runtime around. Cheap to clone; it ends with the last clone.
#[derive(Clone)]
pub(super) struct Workers {
    ended: CancellationToken,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl Workers {
    /// Begins the work.
    pub(super) fn begin(work: impl Future<Output = ()> + Send + 'static) -> Self {
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        let task = tokio::spawn(async move {
            // However it ends.
            let _guard = guard;
            work.await;
        });
        Self { ended, _task: Arc::new(AbortOnDropHandle::new(task)) }
    }

    /// Waits until the work has ended, or has panicked. Whoever waits does not keep it going.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.ended.clone().cancelled_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_has_ended_and_so_has_what_nobody_has_any_more() {
        let has_ended = async |ended| timeout(Duration::from_secs(1), ended).await.is_ok();
        assert!(has_ended(Workers::begin(async { panic!("on purpose") }).ended()).await);
        let work = Workers::begin(pending());
        let other = work.clone();
        drop(work);
        assert!(!has_ended(other.ended()).await);
        let ended = other.ended();
        drop(other);
        assert!(has_ended(ended).await);
    }
}
