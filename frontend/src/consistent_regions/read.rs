//! Regions as they were read last: once for each of their changes, not for each question and report (rule pe-api-11).
//!
//! A region and its record list all of its PEs, of which there may be a thousand, and each of them asks every five
//! seconds.
//!
//! Knows: regions as the mirror shows them. Must not know: who asks.
//!
//! Invariants: what is given is what the mirror shows; nothing is kept of regions that are gone.

use super::stored;
use crate::of_job::OfJob;
use kube::core::ObjectMeta;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use streams_api::{ConsistentRegion, ConsistentRegionSpec};
use streams_consistent_region::State;
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Kept, Watch};

/// A region that was read.
pub(crate) struct ReadRegion {
    kept: Kept<ConsistentRegion>,
    /// What it is called, and who controls it.
    pub(crate) metadata: ObjectMeta,
    /// What its job wants of it.
    pub(crate) spec: ConsistentRegionSpec,
    /// The job that it is of.
    pub(crate) of_job: OfJob,
    /// Its state, unless that cannot be read.
    pub(crate) state: Result<State, serde_json::Error>,
}

impl ReadRegion {
    fn of(kept: Kept<ConsistentRegion>) -> Option<Self> {
        let region = kept.read()?;
        let state = stored::state(&region);
        let ConsistentRegion { metadata, spec, .. } = Arc::unwrap_or_clone(region);
        let of_job = OfJob::of_child(&metadata, spec.job_id);
        Some(Self { kept, metadata, spec, of_job, state })
    }
}

/// Regions that somebody has asked for. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct ReadRegions {
    mirror: Watch<ConsistentRegion>,
    all: Arc<Mutex<HashMap<Key, Arc<ReadRegion>>>>,
}

impl ReadRegions {
    /// Regions that this mirror shows.
    pub(crate) fn of(mirror: &Watch<ConsistentRegion>) -> Self {
        let regions = Self { mirror: mirror.clone(), all: Arc::default() };
        let following = Arc::clone(&regions.all);
        mirror.subscribe_to_departures(move |region, _| {
            lock(&following).remove(&Key::of(region));
        });
        regions
    }

    /// A region, as the mirror shows it now.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<ReadRegion>> {
        let kept = self.mirror.kept(key)?;
        let known = lock(&self.all).get(key).cloned();
        if let Some(known) = known.filter(|known| known.kept.is_identical(&kept)) {
            return Some(known);
        }
        let read = Arc::new(ReadRegion::of(kept)?);
        let mut all = lock(&self.all);
        // Asked under the lock: whoever forgets it takes that, too, after it has gone.
        if self.mirror.contains(key) {
            all.insert(key.clone(), Arc::clone(&read));
        }
        Some(read)
    }
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use streams_kubernetes::metrics::Metrics;

    fn region(version: &str, last_completed: u64) -> ConsistentRegion {
        serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "ConsistentRegion",
            "metadata": {"name": "flow-cr0", "namespace": "n", "uid": "1", "resourceVersion": version},
            "spec": {
                "jobName": "flow", "jobId": 1, "index": 0, "logicalIndex": 0, "trigger": "periodic",
                "drainTimeoutMilliseconds": 1_000, "resetTimeoutMilliseconds": 1_000,
                "maxConsecutiveResetAttempts": 5, "peIds": [0, 1], "operatorCount": 2, "startOperatorCount": 1,
            },
            "status": {"record": {
                "sequence": 9, "lastCompleted": last_completed,
                "phase": {"processing": {"launches": {"1": [0, 1]}, "told": "resumed", "since": 39_000}},
            }},
        }))
        .unwrap()
    }

    #[test]
    fn a_region_is_read_once_for_each_of_its_changes_and_nothing_is_kept_of_one_that_is_gone() {
        let mirrors = crate::mirrors::Mirrors::new(&Metrics::new("test"));
        let (mirror, key) = (&mirrors.consistent_regions, Key::new("n", "flow-cr0"));
        let regions = ReadRegions::of(mirror);
        assert!(regions.get(&key).is_none());
        mirror.insert(region("1", 7));
        let first = regions.get(&key).unwrap();
        assert!(Arc::ptr_eq(&first, &regions.get(&key).unwrap()), "it is read again");
        assert_eq!((&*first.spec.pe_ids, first.state.as_ref().unwrap().last_completed()), (&[0, 1][..], 7));
        mirror.insert(region("2", 8));
        assert_eq!(regions.get(&key).unwrap().state.as_ref().unwrap().last_completed(), 8);
        mirror.remove(&key);
        assert!(regions.get(&key).is_none() && lock(&regions.all).is_empty());
    }
}
