//! The plans of jobs in memory: unpacked while their jobs are looked at, packed while they rest, dropped when there are
//! too many.
//!
//! The reconciler reads a plan that is not in memory from its chunks again. So what all jobs together have in memory is
//! bounded (rule job-8), and a job with a huge plan costs others time at most.
//!
//! Knows: which job has which plans, and what was computed from them. Must not know: where they are stored.
//!
//! Invariants:
//! * a job gets only plans that its own chunks have: jobs of the same plan share nothing;
//! * what is kept for a job ends with it ([`PlansOfJob`]).

use crate::controllers::job::documents::chunks::Packed;
use crate::controllers::job::generation::Generation;
use crate::controllers::job::observed::DesiredGeneration;
use moka::sync::Cache;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use streams_api::Job;

/// How long a plan stays unpacked that nobody looks at: longer than a job of which something happens now and then is
/// left alone.
const RESTS: Duration = Duration::from_secs(60);

/// Which part of the memory for plans is for packed ones: plans are compressed to less than that.
const PACKED_PART: u64 = 4;

/// Uid of a job, and the digest of a plan.
type PlanKey = (Arc<str>, String);

/// The plans of all jobs that are in memory. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Plans {
    unpacked: Cache<PlanKey, Unpacked>,
    packed: Cache<PlanKey, Packed>,
}

/// A plan that was looked at not long ago.
#[derive(Clone)]
struct Unpacked {
    generation: Arc<Generation>,
    /// Stored bytes before compression.
    bytes: u32,
    /// What was computed last of what it wants.
    wanted: Arc<Mutex<Option<DesiredFromSources>>>,
}

/// What the desired objects of a plan are made from beside the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sources {
    /// `metadata.generation` of the job.
    spec_generation: i64,
    job_id: u64,
    /// PEs ask for the bundle by this name. It follows its spec only when the bundle has been fetched.
    sab_name: String,
    /// Whether options in force stand for some of the spec, which the spec alone does not say: while the committed plan
    /// is lost they are not known, and a proposal may be whole.
    has_options_in_force: bool,
}

/// The desired objects, and what they are made from.
struct DesiredFromSources {
    sources: Sources,
    wanted: Arc<DesiredGeneration>,
}

/// The plans of one job that may be in memory; they leave it when this is dropped.
pub(crate) struct PlansOfJob {
    plans: Plans,
    uid: Arc<str>,
    digests: BTreeSet<String>,
}

impl Sources {
    /// Those of a job as it is now. `has_options_in_force`: PEs have other options than the spec, of which some are
    /// refused (rule job-39).
    pub(crate) fn of(job: &Job, has_options_in_force: bool) -> Self {
        let status = job.status.as_ref();
        Self {
            spec_generation: job.metadata.generation.unwrap_or_default(),
            job_id: status.and_then(|status| status.job_id).unwrap_or_default(),
            sab_name: status.and_then(|status| status.adl.as_ref()).map(|adl| adl.sab_name.clone()).unwrap_or_default(),
            has_options_in_force,
        }
    }
}

impl Plans {
    /// Keeps plans of so many bytes altogether; packed ones have a quarter of that.
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self::resting_after(RESTS, max_bytes)
    }

    fn resting_after(idle: Duration, max_bytes: u64) -> Self {
        let unpacked = Cache::builder().weigher(|_: &PlanKey, unpacked: &Unpacked| unpacked.bytes);
        let packed =
            Cache::builder().weigher(|_: &PlanKey, packed: &Packed| u32::try_from(packed.size()).unwrap_or(u32::MAX));
        let for_packed = max_bytes / PACKED_PART;
        Self {
            unpacked: unpacked.max_capacity(max_bytes.saturating_sub(for_packed)).time_to_idle(idle).build(),
            packed: packed.max_capacity(for_packed).build(),
        }
    }

    /// Plans go that nobody has looked at for long enough.
    pub(crate) fn let_rest(&self) {
        self.unpacked.run_pending_tasks();
        self.packed.run_pending_tasks();
    }

    /// Nothing of this job yet.
    pub(crate) fn of_job(&self, uid: &str) -> PlansOfJob {
        PlansOfJob { plans: self.clone(), uid: uid.into(), digests: BTreeSet::new() }
    }
}

impl PlansOfJob {
    /// The generation with the plan of this digest, if it is in memory and unpacked.
    pub(crate) fn get(&self, sha256: &str) -> Option<Arc<Generation>> {
        self.unpacked(sha256).map(|unpacked| unpacked.generation)
    }

    /// The plan of this digest as it is stored, if it is in memory.
    pub(crate) fn packed(&self, sha256: &str) -> Option<Packed> {
        if !self.digests.contains(sha256) {
            return None;
        }
        self.plans.packed.get(&self.key(sha256))
    }

    /// Keeps a generation. `bytes` is the size of its stored plan before compression.
    pub(crate) fn keep(&mut self, sha256: &str, generation: Arc<Generation>, bytes: usize, packed: Packed) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.digests.insert(sha256.to_owned());
        let key = self.key(sha256);
        self.plans.packed.insert(key.clone(), packed);
        self.plans.unpacked.insert(key, Unpacked { generation, bytes, wanted: Arc::default() });
    }

    /// What the plan of this digest wants with these sources, if that is in memory.
    pub(crate) fn wanted(&self, sha256: &str, sources: &Sources) -> Option<Arc<DesiredGeneration>> {
        let unpacked = self.unpacked(sha256)?;
        let kept = unpacked.wanted.lock();
        kept.as_ref().filter(|kept| kept.sources == *sources).map(|kept| Arc::clone(&kept.wanted))
    }

    /// Keeps what a plan wants as long as the plan is unpacked.
    pub(crate) fn keep_wanted(&self, sha256: &str, sources: Sources, wanted: Arc<DesiredGeneration>) {
        if let Some(unpacked) = self.unpacked(sha256) {
            let kept = Some(DesiredFromSources { sources, wanted });
            *unpacked.wanted.lock() = kept;
        }
    }

    /// Forgets all that are not wanted.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        let (kept, dropped) = std::mem::take(&mut self.digests).into_iter().partition(|digest| wanted(digest));
        self.digests = kept;
        self.forget(dropped);
    }

    fn unpacked(&self, sha256: &str) -> Option<Unpacked> {
        if !self.digests.contains(sha256) {
            return None;
        }
        self.plans.unpacked.get(&self.key(sha256))
    }

    fn forget(&self, digests: BTreeSet<String>) {
        for digest in digests {
            let key = self.key(&digest);
            self.plans.unpacked.invalidate(&key);
            self.plans.packed.invalidate(&key);
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
    use crate::controllers::job::documents::chunks::cut;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use std::collections::BTreeMap;
    use streams_proto::fusion::v1::{Compilation, Plan};

    fn generation() -> Arc<Generation> {
        let target = Target::Resize { widths: BTreeMap::new(), rebalances: false };
        let details = GenerationDetails::default();
        Arc::new(Generation::following(None, target, Compilation::default(), Plan::default(), details))
    }

    fn sources(spec_generation: i64, sab_name: &str) -> Sources {
        Sources { spec_generation, job_id: 1, sab_name: sab_name.to_owned(), has_options_in_force: false }
    }

    fn packed() -> Packed {
        cut(b"a").unwrap().packed
    }

    #[test]
    fn a_plan_that_nobody_looks_at_is_packed() {
        let plans = Plans::resting_after(Duration::from_nanos(1), 1_000);
        let (mut one, other) = (plans.of_job("one"), plans.of_job("other"));
        one.keep("a", generation(), 4, packed());
        plans.let_rest();
        assert!(one.get("a").is_none() && one.wanted("a", &sources(1, "s")).is_none());
        assert_eq!(plans.unpacked.entry_count(), 0);
        assert_eq!(one.packed("a").map(|packed| packed.size()), Some(packed().size()));
        assert!(one.packed("b").is_none() && other.packed("a").is_none());
        drop(one);
        plans.let_rest();
        assert_eq!(plans.packed.entry_count(), 0);
    }

    #[test]
    fn what_a_plan_wants_is_kept_for_what_it_is_made_from() {
        let plans = Plans::new(1_000);
        let mut one = plans.of_job("one");
        let with_options_in_force = Sources { has_options_in_force: true, ..sources(2, "t") };
        let all = [sources(1, "s"), sources(2, "s"), sources(2, "t"), with_options_in_force];
        one.keep_wanted("a", sources(1, "s"), Arc::default());
        assert!(one.wanted("a", &sources(1, "s")).is_none(), "there is no such plan");
        one.keep("a", generation(), 4, packed());
        for sources in &all {
            one.keep_wanted("a", sources.clone(), Arc::default());
            for other in &all {
                assert_eq!(one.wanted("a", other).is_some(), other == sources, "{sources:?} {other:?}");
            }
        }
    }

    #[test]
    fn all_jobs_together_have_so_many_bytes_in_memory() {
        let plans = Plans::new(10);
        let mut jobs: Vec<PlansOfJob> = (0..8).map(|job| plans.of_job(&job.to_string())).collect();
        for job in &mut jobs {
            job.keep("a", generation(), 4, packed());
            plans.let_rest();
        }
        assert_eq!(jobs.iter().filter(|job| job.get("a").is_some()).count(), 2);
        assert!(plans.unpacked.weighted_size() <= 10);
        let mut huge = plans.of_job("huge");
        huge.keep("a", generation(), 11, packed());
        plans.let_rest();
        assert!(huge.get("a").is_none());
        assert_eq!(jobs.iter().filter(|job| job.get("a").is_some()).count(), 2, "it costs the others nothing");
    }

    #[test]
    fn a_job_has_its_own_plans_and_only_while_there_is_the_job() {
        let plans = Plans::new(1000);
        let (mut one, other) = (plans.of_job("one"), plans.of_job("other"));
        for digest in ["a", "b", "c"] {
            one.keep(digest, generation(), 1, packed());
        }
        assert!(one.get("a").is_some() && other.get("a").is_none());
        one.retain(|digest| digest != "a");
        assert!(one.get("a").is_none() && one.get("b").is_some());
        plans.let_rest();
        assert_eq!(plans.unpacked.entry_count(), 2);
        drop(one);
        plans.let_rest();
        assert_eq!(plans.unpacked.entry_count(), 0);
    }
}
