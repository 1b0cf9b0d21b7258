//! What PEs report, until it is stored (rule consistent-region-3).
//!
//! A thousand PEs report within a moment. So reports of what PEs were told to do wait for others, until as many have come
//! as the region waits for, or [`TOGETHER`] has passed: one write stores all of them. Whoever reports is answered after
//! that.
//!
//! Invariants: a PE has few reports here, the same one once; nothing is taken as long as nobody drives the regions;
//! what cannot be stored goes back, in front of what came later; no report waits for others that the region does not
//! wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use streams_consistent_region::Event;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Queue;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long a report waits for others at most. The runtime waits for a second.
pub(crate) const TOGETHER: Duration = Duration::from_millis(50);
/// Reports of a PE about a region that may wait at the same time. One that follows the contract has two.
const OF_PE_MAX: usize = 4;

/// A report that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The PE that has sent it.
    pub(crate) pe: u64,
    /// What it says.
    pub(crate) event: Event,
    answers: Vec<oneshot::Sender<()>>,
}

impl Waiting {
    /// Says that what came of it is stored.
    pub(crate) fn answer(self) {
        for answer in self.answers {
            // Whoever has given up is not interested.
            let _ = answer.send(());
        }
    }
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Another replica drives the regions.
    #[error("another replica drives the consistent regions")]
    NotDriven,
    /// The PE reports faster than anything can be stored.
    #[error("the PE has too many reports that are not stored yet")]
    TooMany,
    /// Nothing came of it.
    #[error("the region is gone")]
    Gone,
}

/// Reports by region. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    queue: Option<Queue<Key>>,
    regions: HashMap<Key, OfRegion>,
}

/// What is known of the reports of a region.
#[derive(Default)]
struct OfRegion {
    waiting: Vec<Waiting>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// How many more lead the region on, as far as is stored.
    missing: usize,
}

impl OfRegion {
    /// Whether what waits need not wait for other reports.
    fn is_due(&self) -> bool {
        self.waiting.len() >= self.missing
            || self.waiting.iter().any(|report| !matches!(report.event, Event::Report(..)))
            || self.since.is_some_and(|since| since.elapsed() >= TOGETHER)
    }
}

impl Reports {
    /// From now on reports are taken; their regions are put into this queue.
    pub(crate) fn open(&self, queue: Queue<Key>) {
        self.inner().queue = Some(queue);
    }

    /// Nobody takes reports any more.
    pub(crate) fn close(&self) {
        *self.inner() = Inner::default();
    }

    /// Whether reports are taken.
    pub(crate) fn are_taken(&self) -> bool {
        self.inner().queue.is_some()
    }

    /// Waits until what comes of a report is stored. Who stops waiting has reported nevertheless.
    ///
    /// # Errors
    /// It is not taken, or the region has gone.
    pub(crate) async fn report(&self, region: &Key, pe: u64, event: Event) -> Result<(), NotTaken> {
        let stored = {
            let mut inner = self.inner();
            let Some(queue) = inner.queue.clone() else { return Err(NotTaken::NotDriven) };
            let of_region = inner.regions.entry(region.clone()).or_default();
            let waiting = &mut of_region.waiting;
            let (answer, stored) = oneshot::channel();
            if let Some(same) = waiting.iter_mut().find(|other| other.pe == pe && other.event == event) {
                same.answers.retain(|answer| !answer.is_closed());
                same.answers.push(answer);
            } else if waiting.iter().filter(|other| other.pe == pe).count() < OF_PE_MAX {
                waiting.push(Waiting { pe, event, answers: vec![answer] });
            } else {
                return Err(NotTaken::TooMany);
            }
            of_region.since.get_or_insert_with(Instant::now);
            if of_region.is_due() {
                queue.add_urgent(region.clone());
            } else {
                queue.add_after(region.clone(), TOGETHER);
            }
            stored
        };
        stored.await.map_err(|_| NotTaken::Gone)
    }

    /// Takes all that waits for a region, unless it waits for more.
    pub(crate) fn take(&self, region: &Key) -> Vec<Waiting> {
        let mut inner = self.inner();
        let Some(of_region) = inner.regions.get_mut(region).filter(|of_region| of_region.is_due()) else {
            return Vec::new();
        };
        of_region.since = None;
        std::mem::take(&mut of_region.waiting)
    }

    /// So many reports lead the region on from what is stored now. None, if it waits for something else.
    pub(crate) fn expect(&self, region: &Key, missing: usize) {
        let mut inner = self.inner();
        let Some(queue) = inner.queue.clone() else { return };
        let of_region = inner.regions.entry(region.clone()).or_default();
        of_region.missing = missing;
        if !of_region.waiting.is_empty() && of_region.is_due() {
            queue.add_urgent(region.clone());
        }
    }

    /// Puts back what could not be stored.
    pub(crate) fn put_back(&self, region: &Key, mut earlier: Vec<Waiting>) {
        if earlier.is_empty() {
            return;
        }
        let mut inner = self.inner();
        if inner.queue.is_none() {
            return;
        }
        let of_region = inner.regions.entry(region.clone()).or_default();
        earlier.append(&mut of_region.waiting);
        of_region.waiting = earlier;
        // They have waited for others.
        of_region.missing = 0;
    }

    /// The region is gone. Whoever waits for an answer about it hears so.
    pub(crate) fn forget(&self, region: &Key) {
        self.inner().regions.remove(region);
    }

    /// Reports that wait for a region.
    #[cfg(test)]
    pub(crate) fn waiting(&self, region: &Key) -> usize {
        self.inner().regions.get(region).map_or(0, |of_region| of_region.waiting.len())
    }

    /// Regions of which something is kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.inner().regions.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
