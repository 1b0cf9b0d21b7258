//! The generations of jobs in memory: read once, dropped when there are too many.
//!
//! The reconciler reads a plan that is not in memory from its chunks again. So what all jobs together have in memory is
//! bounded (rule job-8), and a job with a huge plan costs others time at most.
//!
//! Knows: which job has which plans. Must not know: where they are stored, what is done with them.
//!
//! Invariants:
//! * a job gets only plans that its own chunks have: jobs of the same plan share nothing;
//! * what is kept for a job ends with it ([`PlansOfJob`]).

use super::generation::Generation;
use moka::sync::Cache;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Uid of a job, and the digest of a plan.
type PlanKey = (Arc<str>, String);

/// The plans of all jobs that are in memory. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Plans {
    kept: Cache<PlanKey, Kept>,
}

/// A generation, and how large its plan is.
#[derive(Clone)]
struct Kept {
    generation: Arc<Generation>,
    /// Stored bytes before compression.
    bytes: u32,
}

/// The plans of one job that may be in memory; they leave it when this is dropped.
pub(crate) struct PlansOfJob {
    plans: Plans,
    uid: Arc<str>,
    digests: BTreeSet<String>,
}

impl Plans {
    /// Keeps plans of so many bytes altogether.
    pub(crate) fn new(max_bytes: u64) -> Self {
        let kept = Cache::builder().weigher(|_: &PlanKey, kept: &Kept| kept.bytes).max_capacity(max_bytes).build();
        Self { kept }
    }

    /// Nothing of this job yet.
    pub(crate) fn of_job(&self, uid: &str) -> PlansOfJob {
        PlansOfJob { plans: self.clone(), uid: uid.into(), digests: BTreeSet::new() }
    }
}

impl PlansOfJob {
    /// The generation with the plan of this digest, if it is in memory.
    pub(crate) fn get(&self, sha256: &str) -> Option<Arc<Generation>> {
        if !self.digests.contains(sha256) {
            return None;
        }
        self.plans.kept.get(&self.key(sha256)).map(|kept| kept.generation)
    }

    /// Keeps a generation. `bytes` is the size of its stored plan before compression.
    pub(crate) fn keep(&mut self, sha256: &str, generation: Arc<Generation>, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.digests.insert(sha256.to_owned());
        self.plans.kept.insert(self.key(sha256), Kept { generation, bytes });
    }

    /// Forgets all that are not wanted.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        let (kept, dropped) = std::mem::take(&mut self.digests).into_iter().partition(|digest| wanted(digest));
        self.digests = kept;
        self.forget(dropped);
    }

    fn forget(&self, digests: BTreeSet<String>) {
        for digest in digests {
            self.plans.kept.invalidate(&self.key(&digest));
        }
    }

    fn key(&self, sha256: &str) -> PlanKey {
        (Arc::clone(&self.uid), sha256.to_owned())
    }
}

impl Drop for PlansOfJob {
    fn drop(&mut self) {
        let digests = std::mem::take(&mut self.digests);
        self.forget(digests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use std::collections::BTreeMap;
    use streams_proto::fusion::v1::{Compilation, Plan};

    fn generation() -> Arc<Generation> {
        let target = Target::Resize { widths: BTreeMap::new(), rebalances: false };
        let details = GenerationDetails::default();
        Arc::new(Generation::following(None, target, Compilation::default(), Plan::default(), details))
    }

    #[test]
    fn all_jobs_together_have_so_many_bytes_in_memory() {
        let plans = Plans::new(10);
        let mut jobs: Vec<PlansOfJob> = (0..8).map(|job| plans.of_job(&job.to_string())).collect();
        for job in &mut jobs {
            job.keep("a", generation(), 4);
            plans.kept.run_pending_tasks();
        }
        assert_eq!(jobs.iter().filter(|job| job.get("a").is_some()).count(), 2);
        assert!(plans.kept.weighted_size() <= 10);
        let mut huge = plans.of_job("huge");
        huge.keep("a", generation(), 11);
        plans.kept.run_pending_tasks();
        assert!(huge.get("a").is_none());
        assert_eq!(jobs.iter().filter(|job| job.get("a").is_some()).count(), 2, "it costs the others nothing");
    }

    #[test]
    fn a_job_has_its_own_plans_and_only_while_there_is_the_job() {
        let plans = Plans::new(1000);
        let (mut one, other) = (plans.of_job("one"), plans.of_job("other"));
        for digest in ["a", "b", "c"] {
            one.keep(digest, generation(), 1);
        }
        assert!(one.get("a").is_some() && other.get("a").is_none());
        one.retain(|digest| digest != "a");
        assert!(one.get("a").is_none() && one.get("b").is_some());
        plans.kept.run_pending_tasks();
        assert_eq!(plans.kept.entry_count(), 2);
        drop(one);
        plans.kept.run_pending_tasks();
        assert_eq!(plans.kept.entry_count(), 0);
    }
}
