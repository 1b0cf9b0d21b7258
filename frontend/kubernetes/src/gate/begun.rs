//! Work that is done only if its first call need not wait for long: whoever does it has something better to do by then.
//!
//! Knows: whether a call of the work was let in. Must not know: why the work is given up.
//!
//! Invariant: of work that was given up no call was made.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task_local;

task_local! {
    /// Whether a call of the work that is going on was let in.
    static HAS_BEGUN: Arc<AtomicBool>;
}

/// A call of the work that is going on is let in.
pub fn begins() {
    // Most work is not to be given up.
    let _ = HAS_BEGUN.try_with(|has_begun| has_begun.store(true, Ordering::Relaxed));
}

/// Does the work, unless `until` ends while it waits for its first call to be let in: `None`, and it waits no more.
pub async fn unless_it_waits<F: Future>(work: F, until: impl Future<Output = ()>) -> Option<F::Output> {
    let has_begun = Arc::new(AtomicBool::new(false));
    let mut work = pin!(HAS_BEGUN.scope(Arc::clone(&has_begun), work));
    tokio::select! {
        // Whoever was just let in goes on.
        biased;
        output = &mut work => return Some(output),
        () = until => {}
    }
    if has_begun.load(Ordering::Relaxed) { Some(work.await) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Gate, Limits};
    use crate::metrics::Metrics;
    use std::time::Duration;
    use tokio::time::{Instant, sleep, timeout};

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_its_first_call_is_given_up_and_what_has_begun_goes_on() {
        let seconds = Duration::from_secs;
        // when the place is free for two calls of 2 s, one after the other, that may be given up after 5 s -> whether
        // they are made, when that is known
        for (free_after, expected) in [(0, (true, 4)), (4, (true, 8)), (9, (false, 5))] {
            let gate = Gate::new(Limits::of(1), &Metrics::new("test"));
            let (begun, first) = (Instant::now(), gate.wait("a").await);
            let others = async {
                sleep(seconds(free_after)).await;
                drop(first);
            };
            let work = async {
                gate.call("a", async { sleep(seconds(2)).await }).await;
                gate.call("a", async { sleep(seconds(2)).await }).await;
            };
            let work = async {
                let done = unless_it_waits(work, sleep(seconds(5))).await;
                (done.is_some(), begun.elapsed().as_secs())
            };
            let ((), found) = tokio::join!(others, work);
            assert_eq!(found, expected, "{free_after}");
            assert!(timeout(seconds(1), gate.wait("b")).await.is_ok(), "{free_after}: nothing of it has a place");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_without_calls_is_given_up_only_while_it_waits() {
        let done = unless_it_waits(async { 7 }, std::future::ready(())).await;
        assert_eq!(done, Some(7));
        let done = unless_it_waits(std::future::pending::<()>(), sleep(Duration::from_secs(1))).await;
        assert_eq!(done, None);
        begins();
    }
}
