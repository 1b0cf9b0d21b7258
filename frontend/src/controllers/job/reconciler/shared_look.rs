//! What was found of the whole cluster a moment ago: how much CPU is free (rule job-23), which nodes there are (rule
//! placement-2).
//!
//! To find it, all nodes are read, and perhaps all pods. Compilations that want it at about the same time share one
//! reading, also one that fails: each of them holds a place of long work, and they do not fail one after the other.
//!
//! Knows: how long a finding counts, and for how long there was none. Must not know: what it is, how it is found.

use crate::controllers::times::distance;
use k8s_openapi::jiff::Timestamp;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use streams_kubernetes::stopwatch;
use tokio::sync::Mutex;

/// How long a finding counts.
const COUNTS_FOR: Duration = Duration::from_secs(10);

/// Failures are in a row only if no more time than this is between two of them.
const IN_A_ROW: Duration = Duration::from_secs(300);

/// The last finding.
#[derive(Debug)]
pub(crate) struct SharedLook<T> {
    /// How often somebody began to find it.
    begun: AtomicU64,
    seen: Mutex<Seen<T>>,
}

#[derive(Debug)]
struct Seen<T> {
    last: Last<T>,
    /// The first and the last of the failures since something was found.
    failing: Option<(Timestamp, Timestamp)>,
}

/// What came of finding it.
#[derive(Debug)]
enum Last<T> {
    Unknown,
    /// When it was asked for, and what it is.
    Found(Timestamp, T),
    Failed(Unreadable),
}

/// It cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Unreadable {
    why: Arc<str>,
    /// For how long nobody could who tried.
    pub(crate) lasts: Duration,
}

impl<T> Default for SharedLook<T> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), seen: Mutex::new(Seen { last: Last::Unknown, failing: None }) }
    }
}

impl<T> Seen<T> {
    /// A look that was asked for at this time has failed. Returns for how long all have.
    fn failed(&mut self, now: Timestamp) -> Duration {
        let before = self.failing.filter(|(_, last)| distance(*last, now) <= IN_A_ROW);
        let (first, _) = *self.failing.insert((before.map_or(now, |(first, _)| first), now));
        distance(first, now)
    }
}

impl<T: Clone> SharedLook<T> {
    /// The last finding, if it still counts; otherwise what `find` finds. Callers wait for whoever is finding it.
    ///
    /// # Errors
    /// `find` failed, of this caller or of one that came while it waited.
    pub(crate) async fn get<E: ToString>(
        &self,
        now: Timestamp,
        find: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, Unreadable> {
        let before = self.begun.load(Ordering::Relaxed);
        let mut seen = stopwatch::aside(self.seen.lock()).await;
        match &seen.last {
            Last::Found(at, found) if distance(*at, now) < COUNTS_FOR => return Ok(found.clone()),
            Last::Failed(why) if self.begun.load(Ordering::Relaxed) > before => return Err(why.clone()),
            Last::Unknown | Last::Found(..) | Last::Failed(_) => {}
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        // This caller may be given up.
        seen.last = Last::Unknown;
        match find.await {
            Ok(found) => {
                *seen = Seen { last: Last::Found(now, found.clone()), failing: None };
                Ok(found)
            }
            Err(error) => {
                let why = Unreadable { why: error.to_string().into(), lasts: seen.failed(now) };
                seen.last = Last::Failed(why.clone());
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
        let look = SharedLook::default();
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
            (0, Err("it is down"), Err("it is down"), 20, 2),
            (20, Ok(Some(5)), Ok(Some(5)), 10, 1),
            (29, Ok(Some(6)), Ok(Some(5)), 0, 0),
            (30, Ok(None), Ok(None), 10, 1),
        ];
        for (second, found, expected, seconds, looks) in table {
            let begun = Instant::now();
            tries.store(0, Ordering::Relaxed);
            let got = join_all((0..20).map(|_| look.get(now(second), find(found)))).await;
            for got in got {
                assert_eq!(got.map_err(|why| why.to_string()), expected.map_err(str::to_owned), "{second}");
            }
            assert!(begun.elapsed().as_secs() <= seconds, "{:?}, {second}", begun.elapsed());
            assert!(tries.load(Ordering::Relaxed) <= looks, "{tries:?}, {second}");
        }
    }

    #[tokio::test]
    async fn a_failure_says_for_how_long_nothing_was_found() {
        let look = SharedLook::default();
        // time, whether it is found -> for how long it was not
        let table = [
            (0, false, Some(0)),
            (5, false, Some(5)),
            (305, false, Some(305)),
            // What was long before says nothing of now.
            (606, false, Some(0)),
            (616, false, Some(10)),
            (620, true, None),
            (631, false, Some(0)),
        ];
        for (second, is_found, expected) in table {
            let found = if is_found { Ok(5) } else { Err("it is down") };
            let got = look.get(Timestamp::from_second(second).unwrap(), async { found }).await;
            assert_eq!(got.err().map(|why| why.lasts.as_secs()), expected, "{second}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_given_up_leaves_nothing_to_the_next() {
        let look = SharedLook::default();
        let now = Timestamp::UNIX_EPOCH;
        assert!(look.get(now, async { Err::<Option<u64>, _>("it is down") }).await.is_err());
        let hangs = look.get(now, std::future::pending::<Result<Option<u64>, &str>>());
        let next = async {
            sleep(Duration::from_secs(1)).await;
            look.get(now, async { Ok::<_, &str>(Some(5)) }).await
        };
        let (given_up, next) = tokio::join!(tokio::time::timeout(Duration::from_secs(2), hangs), next);
        assert!(given_up.is_err());
        assert_eq!(next.unwrap(), Some(5));
    }
}
