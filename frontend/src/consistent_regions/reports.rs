//! What PEs report, until it is stored (rule consistent-region-3).
//!
//! All that has come for a region since its last step is stored by one write: a thousand PEs report at the same moment.
//! Whoever reports is answered after that.
//!
//! Invariants: a PE has few reports here, the same one once; nothing is taken as long as nobody drives the regions;
//! what cannot be stored goes back, in front of what came later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use streams_consistent_region::Event;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Queue;
use tokio::sync::oneshot;

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
    waiting: HashMap<Key, Vec<Waiting>>,
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
            let waiting = inner.waiting.entry(region.clone()).or_default();
            let (answer, stored) = oneshot::channel();
            if let Some(same) = waiting.iter_mut().find(|other| other.pe == pe && other.event == event) {
                same.answers.retain(|answer| !answer.is_closed());
                same.answers.push(answer);
            } else if waiting.iter().filter(|other| other.pe == pe).count() < OF_PE_MAX {
                waiting.push(Waiting { pe, event, answers: vec![answer] });
            } else {
                return Err(NotTaken::TooMany);
            }
            queue.add_urgent(region.clone());
            stored
        };
        stored.await.map_err(|_| NotTaken::Gone)
    }

    /// Takes all that waits for a region.
    pub(crate) fn take(&self, region: &Key) -> Vec<Waiting> {
        self.inner().waiting.remove(region).unwrap_or_default()
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
        let waiting = inner.waiting.entry(region.clone()).or_default();
        earlier.append(waiting);
        *waiting = earlier;
    }

    /// Reports that wait for a region.
    #[cfg(test)]
    pub(crate) fn waiting(&self, region: &Key) -> usize {
        self.inner().waiting.get(region).map_or(0, Vec::len)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
