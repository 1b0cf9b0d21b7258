//! Lends the cores of idle workers to a resize (rules service-30 and aadl-23).
//!
//! There are as many cores as workers. A core that is lent is not a busy worker: who comes next gets a worker at once,
//! and the helper leaves after the piece of work that it has begun.
//!
//! Knows: the state of admission, threads. Must not know: what the work is.
//!
//! Invariants: busy workers and lent cores are no more than there are workers, but for helpers that are about to leave;
//! all helpers have left when [`Cores::share`] returns.

use super::SharedAdmission;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder};
use streams_compiler::budget::{Cores, SharedWork};

/// The name of a thread that works on a core that is lent.
pub(super) const HELPER: &str = "idle-core";

/// The idle cores of a server, for one piece of work.
#[derive(Debug)]
pub(super) struct IdleCores {
    shared: Arc<SharedAdmission>,
    /// The most that the work had at once. So many were counted: it may ask for them again and again.
    counted: AtomicUsize,
}

/// A core that is lent, until dropped.
struct LentCore<'a>(&'a SharedAdmission);

impl IdleCores {
    pub(super) fn new(shared: &Arc<SharedAdmission>) -> Self {
        Self { shared: Arc::clone(shared), counted: AtomicUsize::new(0) }
    }
}

impl Cores for IdleCores {
    fn share(&self, work: &SharedWork<'_>) {
        let cores = self.shared.lend();
        let counted = self.counted.fetch_max(cores.len(), Ordering::Relaxed);
        self.shared.metrics.count_lent(cores.len().saturating_sub(counted));
        if cores.is_empty() {
            return work(&|| true);
        }
        thread::scope(|scope| {
            for core in cores {
                let helper = move || {
                    let core = core;
                    work(&|| core.is_spare());
                };
                // Without a thread, the others do its part.
                if Builder::new().name(HELPER.to_owned()).spawn_scoped(scope, helper).is_err() {
                    break;
                }
            }
            work(&|| true);
        });
    }
}

impl SharedAdmission {
    /// Lends all cores that are idle.
    fn lend(&self) -> Vec<LentCore<'_>> {
        let mut state = self.lock();
        let idle = self.capacity.workers.saturating_sub(state.busy() + state.lent);
        state.lent += idle;
        (0..idle).map(|_| LentCore(self)).collect()
    }
}

impl LentCore<'_> {
    /// Whether nobody needs it.
    fn is_spare(&self) -> bool {
        let state = self.0.lock();
        state.busy() + state.lent <= self.0.capacity.workers
    }
}

impl Drop for LentCore<'_> {
    fn drop(&mut self) {
        self.0.lock().lent -= 1;
    }
}
