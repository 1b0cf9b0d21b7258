//! How much CPU of the cluster is free, as it was found a moment ago (rule job-23).
//!
//! To find it, all nodes and pods are read. Compilations that want it at about the same time share one reading, also
//! one that fails: each of them holds a place of long work, and they do not fail one after the other.
//!
//! Knows: how long a figure counts. Must not know: how it is found.

use super::memory::elapsed;
use k8s_openapi::jiff::Timestamp;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use streams_kubernetes::stopwatch;
use tokio::sync::Mutex;

/// How long a figure counts.
const COUNTS_FOR: Duration = Duration::from_secs(10);

/// The last figure.
#[derive(Debug, Default)]
pub(crate) struct FreeCpu {
    /// How often somebody began to find it.
    begun: AtomicU64,
    last: Mutex<Last>,
}

/// What came of finding it.
#[derive(Debug, Default)]
enum Last {
    #[default]
    Unknown,
    /// When it was asked for, and the figure. `None` inside: it may not be seen.
    Found(Timestamp, Option<u64>),
    Failed(Unreadable),
}

/// Nodes or pods cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("free CPU of the cluster cannot be found: {0}")]
pub(crate) struct Unreadable(Arc<str>);

impl FreeCpu {
    /// The figure, if it still counts; otherwise what `find` finds. Callers wait for whoever is finding it.
    ///
    /// # Errors
    /// `find` failed, of this caller or of one that came while it waited.
    pub(crate) async fn get<E: ToString>(
        &self,
        now: Timestamp,
        find: impl Future<Output = Result<Option<u64>, E>> + Send,
    ) -> Result<Option<u64>, Unreadable> {
        let before = self.begun.load(Ordering::Relaxed);
        let mut last = stopwatch::aside(self.last.lock()).await;
        match &*last {
            Last::Found(at, free) if elapsed(*at, now) < COUNTS_FOR => return Ok(*free),
            Last::Failed(why) if self.begun.load(Ordering::Relaxed) > before => return Err(why.clone()),
            Last::Unknown | Last::Found(..) | Last::Failed(_) => {}
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        // This caller may be given up.
        *last = Last::Unknown;
        match find.await {
            Ok(free) => {
                *last = Last::Found(now, free);
                Ok(free)
            }
            Err(error) => {
                let why = Unreadable(error.to_string().into());
                *last = Last::Failed(why.clone());
                Err(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_share_what_is_found_or_why_nothing_is() {
        let free_cpu = FreeCpu::default();
        let now = |second| Timestamp::from_second(second).unwrap();
        let tries = &AtomicU64::new(0);
        // A look takes ten seconds.
        let find = |result: Result<Option<u64>, &'static str>| async move {
            tries.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_secs(10)).await;
            result
        };
        // time, what is found -> what each of many gets, seconds it takes, looks
        let table = [
            (0, Err("it is down"), Err("free CPU of the cluster cannot be found: it is down"), 20, 2),
            (20, Ok(Some(5)), Ok(Some(5)), 10, 1),
            (29, Ok(Some(6)), Ok(Some(5)), 0, 0),
            (30, Ok(None), Ok(None), 10, 1),
        ];
        for (second, found, expected, seconds, looks) in table {
            let begun = Instant::now();
            tries.store(0, Ordering::Relaxed);
            let got = join_all((0..20).map(|_| free_cpu.get(now(second), find(found)))).await;
            for got in got {
                assert_eq!(got.map_err(|why| why.to_string()), expected.map_err(str::to_owned), "{second}");
            }
            assert!(begun.elapsed().as_secs() <= seconds, "{:?}, {second}", begun.elapsed());
            assert!(tries.load(Ordering::Relaxed) <= looks, "{tries:?}, {second}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_given_up_leaves_nothing_to_the_next() {
        let free_cpu = FreeCpu::default();
        let now = Timestamp::UNIX_EPOCH;
        assert!(free_cpu.get(now, async { Err("it is down") }).await.is_err());
        let hangs = free_cpu.get(now, std::future::pending::<Result<Option<u64>, &str>>());
        let next = async {
            sleep(Duration::from_secs(1)).await;
            free_cpu.get(now, async { Ok::<_, &str>(Some(5)) }).await
        };
        let (given_up, next) = tokio::join!(tokio::time::timeout(Duration::from_secs(2), hangs), next);
        assert!(given_up.is_err());
        assert_eq!(next.unwrap(), Some(5));
    }
}
