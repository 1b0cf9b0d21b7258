//! One piece of work for all who wait for its result (rule repository-9).
//!
//! Knows: keys, results, when something that failed may be tried again. Must not know: what the work is.
//!
//! Invariants: of each key, one piece of work is under way at most, and it goes on whoever goes. What failed is tried
//! again less and less often, however often it is asked for.

use crate::bundles::error::BundleError;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long what failed is not tried again; it doubles with each failure.
const FIRST: Duration = Duration::from_secs(1);
/// The longest.
const LAST: Duration = Duration::from_secs(60);
/// After how long a failure is forgotten that nobody asked about.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// How many keys there may be before those that can be forgotten are.
const MANY: usize = 1024;

type Outcome<T> = Result<T, BundleError>;
type Landing<T> = Shared<BoxFuture<'static, Outcome<T>>>;

/// Work under way, and what failed lately.
pub(super) struct Flights<K, T>(Arc<Mutex<HashMap<K, Flight<T>>>>);

struct Flight<T> {
    landing: Landing<T>,
    /// When what failed may be tried again; `None` while it is under way.
    failed: Option<Instant>,
    /// Failures one after the other.
    failures: u32,
}

impl<K, T> Flights<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// None.
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    /// The result of the work for this key: of what is under way, of what failed a moment ago, or of new work. It is
    /// kept as long as somebody waits for it.
    pub(super) fn join<F>(&self, key: K, work: impl FnOnce() -> F) -> Landing<T>
    where
        F: Future<Output = Outcome<T>> + Send + 'static,
    {
        let now = Instant::now();
        let mut flights = self.0.lock();
        if flights.len() >= MANY {
            flights.retain(|_, flight| flight.failed.is_none_or(|until| now < until + FORGOTTEN));
        }
        let mut failures = 0;
        if let Some(flight) = flights.get(&key) {
            if flight.failed.is_none_or(|until| now < until) {
                return flight.landing.clone();
            }
            failures = flight.failures;
        }
        let (all, mine, work) = (Arc::clone(&self.0), key.clone(), work());
        let task = tokio::spawn(async move {
            // Work that panics must not be under way for ever.
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|_| Err(BundleError::unavailable("fetching the bundle failed")));
            let mut flights = all.lock();
            if outcome.is_ok() {
                flights.remove(&mine);
            } else if let Some(flight) = flights.get_mut(&mine) {
                let pause = FIRST.saturating_mul(1 << flight.failures.min(10)).min(LAST);
                flight.failed = Some(Instant::now() + pause);
                flight.failures += 1;
            }
            outcome
        });
        let stopped = || BundleError::unavailable("the frontend stops");
        let landing = task.map(move |done| done.unwrap_or_else(|_| Err(stopped()))).boxed().shared();
        flights.insert(key, Flight { landing: landing.clone(), failed: None, failures });
        landing
    }
}

impl<K: Eq + Hash, T: Clone> Flights<K, T> {
    /// When the work for this key may be tried again: what failed a moment ago is not before.
    pub(super) fn free_at(&self, key: &K) -> Instant {
        let flights = self.0.lock();
        flights.get(key).and_then(|flight| flight.failed).unwrap_or_else(Instant::now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::{advance, sleep};

    #[tokio::test(start_paused = true)]
    async fn there_is_one_piece_of_work_at_a_time() {
        let (flights, begun) = (Flights::new(), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let begun = Arc::clone(&begun);
            async move {
                sleep(Duration::from_secs(5)).await;
                Ok(begun.fetch_add(1, Ordering::SeqCst))
            }
        };
        // The first goes away before it is done.
        drop(flights.join("a", work));
        let all = futures::future::join_all((0..1000).map(|_| flights.join("a", work))).await;
        assert!(all.iter().all(|outcome| *outcome == Ok(0)));
        assert!(flights.0.lock().is_empty(), "nothing is kept of it");
        let (again, other) = tokio::join!(flights.join("a", work), flights.join("b", work));
        assert_ne!(again.unwrap(), other.unwrap());
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_tried_less_and_less_often() {
        let (flights, tries) = (Flights::<_, ()>::new(), Arc::new(AtomicUsize::new(0)));
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < Duration::from_secs(250) {
            let before = tries.load(Ordering::SeqCst);
            let outcome = flights.join("a", || {
                let tries = Arc::clone(&tries);
                async move {
                    tries.fetch_add(1, Ordering::SeqCst);
                    Err(BundleError::unavailable("no"))
                }
            });
            assert_eq!(outcome.await, Err(BundleError::unavailable("no")));
            assert!(flights.free_at(&"a") > Instant::now());
            if tries.load(Ordering::SeqCst) > before {
                times.push(begin.elapsed().as_secs());
            }
            advance(Duration::from_millis(500)).await;
        }
        assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
        advance(Duration::from_secs(60)).await;
        assert_eq!(flights.join("a", || async { Ok(()) }).await, Ok(()));
        assert!(flights.0.lock().is_empty());
        assert_eq!(flights.free_at(&"a"), Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_has_failed() {
        let flights = Flights::<_, ()>::new();
        let outcome = flights.join("a", || async { panic!("on purpose") }).await;
        assert_eq!(outcome.unwrap_err().reason(), "BundleUnavailable");
        advance(FIRST).await;
        assert_eq!(flights.join("a", || async { Ok(()) }).await, Ok(()));
    }
}
