//! Places in the order of arrival (rule service-8).
//!
//! Who waits for what others compute, too, has waited no less than who began it. So a computation has the best of the
//! places of those who have waited for it, and so has what that waits for in turn.
//!
//! Knows: numbers. Must not know: what is waited for.
//!
//! Invariants: a place only gets better. No place waits for itself.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// A place in the order of arrival. Clones are the same place.
#[derive(Clone, Debug)]
pub(crate) struct Place(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    arrived: u64,
    /// The place of what it waits for, or has waited for.
    onward: Option<Place>,
}

impl Place {
    /// The place of who was the `arrived`th to come.
    pub(crate) fn new(arrived: u64) -> Self {
        Self(Arc::new(Mutex::new(State { arrived, onward: None })))
    }

    /// A place of its own that is as good.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.arrived())
    }

    /// Less is better.
    pub(crate) fn arrived(&self) -> u64 {
        self.lock().arrived
    }

    /// Makes `other` as good as this one, now and whenever this one gets better.
    pub(crate) fn wait_for(&self, other: &Self) {
        let arrived = {
            let mut state = self.lock();
            state.onward = Some(other.clone());
            state.arrived
        };
        other.improve(arrived);
    }

    fn improve(&self, arrived: u64) {
        let onward = {
            let mut state = self.lock();
            if state.arrived <= arrived {
                return;
            }
            state.arrived = arrived;
            state.onward.clone()
        };
        if let Some(onward) = onward {
            onward.improve(arrived);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_has_the_best_place_of_those_who_wait() {
        // Fifty begins an answer, which needs a job, which needs an application.
        let [begins, answer, job, application] = [50, 50, 50, 50].map(Place::new);
        begins.wait_for(&answer);
        answer.wait_for(&job);
        let of_all = || [&answer, &job, &application].map(Place::arrived);
        // Who waits for the answer moves the job, too.
        Place::new(30).wait_for(&answer);
        assert_eq!(of_all(), [30, 30, 50]);
        // Who comes later moves nothing.
        Place::new(60).wait_for(&answer);
        assert_eq!(of_all(), [30, 30, 50]);
        // It has not forgotten that when it goes on.
        job.wait_for(&application);
        assert_eq!(of_all(), [30, 30, 30]);
        // Who waits for the application only has nothing to do with the answer.
        Place::new(10).wait_for(&application);
        assert_eq!(of_all(), [30, 30, 10]);
        Place::new(20).wait_for(&answer);
        assert_eq!(of_all(), [20, 20, 10]);
        assert_eq!(begins.arrived(), 50);
    }
}
