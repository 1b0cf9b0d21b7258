//! How much CPU of the cluster is free, as it was found a moment ago (rule job-23).
//!
//! To find it, all nodes and pods are read. Compilations that want it at about the same time share one reading.
//!
//! Knows: how long a figure counts. Must not know: how it is found.

use super::memory::elapsed;
use k8s_openapi::jiff::Timestamp;
use std::future::Future;
use std::time::Duration;
use streams_kubernetes::stopwatch;
use tokio::sync::Mutex;

/// How long a figure counts.
const COUNTS_FOR: Duration = Duration::from_secs(10);

/// The last figure, and when it was asked for. `None` inside: it may not be seen.
#[derive(Debug, Default)]
pub(crate) struct FreeCpu(Mutex<Option<(Timestamp, Option<u64>)>>);

impl FreeCpu {
    /// The figure, if it still counts; otherwise what `find` finds. Callers wait for whoever is finding it.
    ///
    /// # Errors
    /// What `find` fails with. The next caller tries again.
    pub(crate) async fn get<E>(
        &self,
        now: Timestamp,
        find: impl Future<Output = Result<Option<u64>, E>> + Send,
    ) -> Result<Option<u64>, E> {
        let mut last = stopwatch::aside(self.0.lock()).await;
        if let Some((at, free)) = *last
            && elapsed(at, now) < COUNTS_FOR
        {
            return Ok(free);
        }
        let free = find.await?;
        *last = Some((now, free));
        Ok(free)
    }
}
