//! Whose bundle is fetched next (rules fetch-6 and repository-9).
//!
//! Bundles of submissions and those that PEs need again share the places in memory. A namespace whose servers hang uses
//! up its own part: whatever it holds meanwhile, others need not wait for.
//!
//! Knows: namespaces. Must not know: what is done at a place.
//!
//! Invariants: first comes what only the own namespace can hold up, then what is shared. So nobody holds what others
//! wait for while he waits for his own namespace.

use super::error::BundleError;
use super::place::Place;
use crate::fair_semaphore::{FairPermit, FairSemaphore};

/// Bundles of one namespace that are fetched again at the same time.
const AGAIN_OF_ONE: usize = 1;
/// Bundles of one namespace that wait to be fetched again. A job has one, and its PEs ask again if they are refused.
const AGAIN_WAITING_MAX: usize = 4096;
/// As many as anybody wants.
const ANY: usize = usize::MAX;

/// The places. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Places {
    /// Those of each namespace: half of all, as workers are shared.
    of_one: FairSemaphore,
    /// Those of each namespace for what is fetched again.
    again_of_one: FairSemaphore,
    /// Those for what is fetched again: half of all, so that submissions have the others.
    again: FairSemaphore,
    all: FairSemaphore,
}

impl Places {
    /// So many places in all.
    pub(super) fn new(all: usize) -> Self {
        Self {
            of_one: FairSemaphore::new(ANY, all.div_ceil(2)),
            again_of_one: FairSemaphore::new(ANY, AGAIN_OF_ONE),
            again: FairSemaphore::new(all / 2, ANY),
            all: FairSemaphore::new(all, ANY),
        }
    }

    /// Waits for a place for a bundle of this namespace.
    pub(super) async fn acquire(&self, namespace: &str) -> Place {
        Place::new(self.shared(namespace, None).await)
    }

    /// Waits for a place for one that is fetched again.
    ///
    /// # Errors
    /// Too many wait already. It passes.
    pub(super) async fn acquire_again(&self, namespace: &str) -> Result<Place, BundleError> {
        if self.again_of_one.waiting(namespace) >= AGAIN_WAITING_MAX {
            return Err(BundleError::unavailable(format!(
                "{AGAIN_WAITING_MAX} bundles of namespace {namespace} wait to be fetched already"
            )));
        }
        let turn = self.again_of_one.acquire(namespace).await;
        let shared = self.shared(namespace, Some(&self.again)).await;
        Ok(Place::new((turn, shared)))
    }

    async fn shared(&self, namespace: &str, part: Option<&FairSemaphore>) -> [Option<FairPermit>; 3] {
        let own = self.of_one.acquire(namespace).await;
        let part = match part {
            Some(part) => Some(part.acquire(namespace).await),
            None => None,
        };
        [Some(own), part, Some(self.all.acquire(namespace).await)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn whoever_waits_for_the_own_namespace_holds_up_nobody_else() {
        let places = Places::new(4);
        // Servers of two namespaces hang: all places are taken, and PEs of both want bundles again.
        let mut hanging: Vec<_> =
            ["a", "a", "b", "b"].map(|of| places.acquire(of).now_or_never().unwrap()).into_iter().collect();
        let mut wanted = ["a", "b"].map(|of| Box::pin(places.acquire_again(of)));
        assert!(wanted.iter_mut().all(|wanted| wanted.now_or_never().is_none()));
        let mut victim = Box::pin(places.acquire_again("victim"));
        assert!((&mut victim).now_or_never().is_none());
        // The first place that is free is not for those two.
        hanging.pop();
        assert!((&mut victim).now_or_never().is_some());
    }

    #[test]
    fn a_namespace_has_its_part_and_submissions_keep_half() {
        let places = Places::new(4);
        // what is wanted, one after the other: again?, namespace -> it has it at once
        let table = [
            (true, "a", true),
            (true, "a", false),
            (false, "a", true),
            (false, "a", false),
            (true, "b", true),
            (true, "c", false),
            (false, "c", true),
            (false, "d", false),
        ];
        let mut held = Vec::new();
        for (again, namespace, expected) in table {
            let place = if again {
                places.acquire_again(namespace).now_or_never().map(Result::unwrap)
            } else {
                places.acquire(namespace).now_or_never()
            };
            assert_eq!(place.is_some(), expected, "{again} {namespace}");
            held.extend(place);
        }
    }
}
