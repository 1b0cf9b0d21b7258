//! The end of a leader: it hears PEs until they are led to the next one, and says to that what is lost (rule call-32).
//!
//! Knows: the Lease that was released, regions of which a report is lost, whether this process ran all the time. Must
//! not know: how PEs are served.

use crate::consistent_regions::ConsistentRegions;
use parking_lot::{Mutex, MutexGuard};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::error::with_causes;
use streams_kubernetes::leadership::{LINGER, Released};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// After a second a PE takes it that a report did not arrive.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(1);
/// How often a process that is asked to stop looks whether it is frozen, and has anything to say.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the last words of a leader may take.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(5);

/// Whether this process runs all the time. One that was frozen for a while has not heard who has given up meanwhile.
/// Cheap to clone; all clones are the same. By default nobody looks.
#[derive(Clone, Default)]
pub(super) struct Awake {
    /// When it was seen to run last, if it has done so all the time.
    last: Arc<Mutex<Option<Instant>>>,
}

impl Awake {
    /// Looks from when that is cancelled, until it was frozen.
    pub(super) async fn look(self, begin: CancellationToken) {
        begin.cancelled().await;
        *self.lock() = Some(Instant::now());
        while self.is_seen(|_| Instant::now()) {
            sleep(LOOK_EVERY).await;
        }
        tracing::warn!("this process was frozen, and may not have heard what PEs report");
    }

    /// Whether it has run since it was looked at first. Whoever asks may run while the tasks that hear PEs wait, as
    /// does the one that looks: it is not seen to run because somebody asks.
    fn is_so(&self) -> bool {
        self.is_seen(|last| last)
    }

    /// Whether it has run since it was looked at first; if so, it was seen to run then.
    fn is_seen(&self, when: impl FnOnce(Instant) -> Instant) -> bool {
        let mut last = self.lock();
        *last = last.filter(|last| last.elapsed() < GIVEN_UP_AFTER / 2).map(when);
        last.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last.lock()
    }
}

/// Hears what PEs report until they are led to the next leader, and says to that of which regions something is lost
/// (rule call-32). If the PE API ends before, or this process was frozen, it has not heard all, and has nothing to say;
/// nor if it has not begun to drive regions. As soon as that is so the next one hears it, and does not wait.
pub(super) async fn hand_over(
    released: Released,
    regions: &ConsistentRegions,
    pe_api_ends: &CancellationToken,
    awake: &Awake,
) {
    let words = || if awake.is_so() && !pe_api_ends.is_cancelled() { regions.last_words() } else { None };
    if regions.mirrors.consistent_regions.keys().is_empty() {
        return say(released, words).await;
    }
    tracing::info!("PEs of consistent regions may report for {LINGER:?}");
    let end = released.at() + LINGER;
    let mut lingering = pin!(async {
        tokio::select! {
            () = sleep_until(end) => {}
            () = pe_api_ends.cancelled() => {}
        }
    });
    let has_no_words = async {
        while words().is_some() {
            sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        biased;
        () = &mut lingering => say(released, words).await,
        () = has_no_words => {
            say(released, || None).await;
            lingering.await;
        }
    }
}

/// Says this to the next leader, or that there is nothing to wait for.
pub(super) async fn say(released: Released, words: impl Fn() -> Option<String>) {
    let error = match timeout(LAST_WORDS, released.say(words)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => with_causes(&error),
        Err(_) => "it took too long".to_owned(),
    };
    tracing::warn!(error, "the next leader does not hear what is lost of reports, and takes nothing for granted");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::Mirrors;
    use crate::run::tests::{leader, note};
    use streams_api::{ConsistentRegion, ConsistentRegionSpec};
    use streams_kubernetes::leadership::Term;
    use streams_kubernetes::metrics::Metrics;
    use streams_kubernetes::queue::{BackOff, Queue, Sharing};

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_has_ended_stays_for_pes_and_speaks_if_it_has_heard_all() {
        // whether there are regions, they are driven, the PE API goes on, after how many seconds it is frozen ->
        // whether it stays, whether it speaks
        for (has_regions, are_driven, is_heard, frozen_after, stays, speaks) in [
            (true, true, true, None, true, true),
            (false, true, true, None, false, true),
            (true, true, false, None, false, false),
            (true, true, true, Some(0), true, false),
            (true, true, true, Some(7), true, false),
            (true, false, true, None, true, false),
        ] {
            let (lease, metrics, ends) = (Arc::default(), Metrics::new("test"), CancellationToken::new());
            let stop = CancellationToken::new();
            stop.cancel();
            let released = leader(&lease).await.hold(&stop).await.unwrap().unwrap();
            let regions = ConsistentRegions::of(&Mirrors::new(&metrics), Term::default());
            if has_regions {
                let mut region = ConsistentRegion::new("flow-cr0", ConsistentRegionSpec::default());
                region.metadata.namespace = Some("n".to_owned());
                regions.mirrors.consistent_regions.insert(region);
            }
            if are_driven {
                let queue = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
                regions.reports.open(queue, []);
            }
            if !is_heard {
                ends.cancel();
            }
            let begun = Instant::now();
            let awake = looked_at();
            tokio::task::yield_now().await;
            let noted_meanwhile = async {
                if let Some(seconds) = frozen_after {
                    sleep(Duration::from_secs(seconds)).await;
                    tokio::time::advance(GIVEN_UP_AFTER).await;
                }
                sleep_until(begun + LINGER / 2).await;
                note(&lease)
            };
            let stayed = async {
                hand_over(released, &regions, &ends, &awake).await;
                begun.elapsed()
            };
            let (noted_meanwhile, stayed) = tokio::join!(noted_meanwhile, stayed);
            let (note, row) = (note(&lease), format!("{has_regions} {are_driven} {is_heard} {frozen_after:?}"));
            assert_eq!(
                (stayed > LINGER / 2, note.contains("words"), note.is_empty()),
                (stays, speaks, !speaks),
                "{row}"
            );
            assert_eq!(noted_meanwhile.is_empty(), !speaks, "{row}: nobody waits for what will not be said");
        }
    }

    /// A process that is asked to stop now.
    fn looked_at() -> Awake {
        let (awake, stop) = (Awake::default(), CancellationToken::new());
        stop.cancel();
        tokio::spawn(awake.clone().look(stop));
        awake
    }

    /// Tasks that hear PEs wait for a thread, as does the one that looks.
    #[tokio::test(start_paused = true)]
    async fn who_asks_whether_a_process_runs_does_not_make_it_run() {
        let awake = Awake { last: Arc::new(Mutex::new(Some(Instant::now()))) };
        for hundreds in 0..=10_u32 {
            assert_eq!(awake.is_so(), hundreds < 5, "after {hundreds}00 ms nobody has looked");
            sleep(LOOK_EVERY).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_frozen_knows_that_it_has_not_heard_all() {
        assert!(!Awake::default().is_so(), "nobody has looked");
        // milliseconds for which it was frozen, from any moment on -> it has heard all
        for (frozen, expected) in [(0, true), (300, true), (600, false), (1_000, false), (1_700, false)] {
            for before in [0, 30, 99] {
                let awake = looked_at();
                sleep(LINGER / 2 + Duration::from_millis(before)).await;
                assert!(awake.is_so());
                tokio::time::advance(Duration::from_millis(frozen)).await;
                assert_eq!(awake.is_so(), expected, "{frozen} {before}: whoever asks at once knows it, too");
                sleep(LINGER / 2).await;
                assert_eq!(awake.is_so(), expected, "{frozen} {before}");
            }
        }
    }
}
