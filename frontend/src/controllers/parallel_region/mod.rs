//! Parallel regions: what a region says of itself.
//!
//! A region creates nothing. Its `spec.width` wakes the job controller; its status follows from the job's: the width in
//! force, whether the width that is wanted was refused and why, and, while each channel has PEs of its own, the
//! selector of their pods for autoscalers.
//!
//! * [`status`] — pure: the status of a region.
//! * this file — what wakes it, and the reconciler.
//!
//! Knows: regions, the job's status. Must not know: plans, how a width is brought about.

mod status;
#[cfg(test)]
mod tests;

use crate::controllers::job::widths::OUT_OF_BOUNDS;
use crate::controllers::reconciler::{self, Next};
use crate::controllers::submissions::Submissions;
use crate::controllers::times::{age, distance};
use crate::made_by_job::is_region_of;
use crate::mirrors::{ByOwner, Mirrors};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, ParallelRegion, ParallelRegionStatus, condition};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::events::Notice;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::watch::version;
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of the region controller.
const MANAGER: Manager = Manager("streams-parallel-region-controller");

/// How long a region of a submission waits for its PEs before it says anything (rule elasticity-4).
const UNSAID: Duration = Duration::from_secs(10);
/// The same in a crowd (rule call-25).
const UNSAID_IN_A_CROWD: Duration = Duration::from_secs(180);
/// How long it says nothing in a crowd although they run, unless jobs of its namespace are being submitted: these go
/// first. An autoscaler may wait for its selector.
const UNSAID_THOUGH_READY: Duration = Duration::from_secs(60);
/// How soon it looks then whether there is still a crowd: that of a single submission is over in a moment.
const LOOKED_AT_THOUGH_READY: Duration = Duration::from_secs(3);
/// How long a region whose width stays says nothing of a roll-out: most are over by then.
const UNSAID_OF_OTHERS: Duration = Duration::from_secs(2);

/// Lets every change that concerns a region wake its key.
pub(crate) fn subscribe(mirrors: &Mirrors, regions: &Queue<Key>) {
    mirrors.parallel_regions.wake(regions, |region| [Key::of(region)]);
    let of_job = mirrors.parallel_regions.clone();
    mirrors.jobs.wake(regions, move |job| {
        of_job.kept_of_job(&Key::of(job)).into_iter().map(|(region, _)| region).collect::<Vec<_>>()
    });
}

/// Lets regions say how far their widths have come.
pub(crate) struct RegionReconciler<C> {
    pub(crate) cluster: C,
    pub(crate) mirrors: Mirrors,
    pub(crate) submissions: Arc<Submissions>,
}

/// What is looked at.
pub(crate) struct RegionObservation {
    region: Arc<ParallelRegion>,
    /// The job that it names, if there is one.
    job: Option<Arc<Job>>,
    now: Timestamp,
    /// There are about as many calls as can be made, or more, or were a moment ago (rule call-25).
    is_crowded: bool,
    /// Jobs of its namespace are being submitted: in a crowd they go first.
    others_go_first: bool,
}

/// What to write, and what people should hear of then.
pub(crate) struct RegionDecision {
    status: ParallelRegionStatus,
    notices: Vec<Notice>,
    /// It is written after this time, unless the next one says more before.
    after: Duration,
}

impl<C: Cluster> reconciler::Reconciler for RegionReconciler<C> {
    type Answers = ();
    type Observation = RegionObservation;
    type Decision = Option<RegionDecision>;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<RegionObservation>, Error> {
        let Some(region) = self.mirrors.parallel_regions.get(key) else { return Ok(None) };
        let job_key = key.sibling(&region.spec.job_name);
        let now = self.cluster.now();
        let job = match self.mirrors.jobs.get(&job_key) {
            Some(job) if may_have_other_bounds(&region, &job, now) => Some(self.ask_for(&job_key, job).await?),
            job => job,
        };
        let is_crowded = self.cluster.was_crowded(&key.namespace);
        let others_go_first = self.submissions.until(&key.namespace, now).is_some();
        Ok(Some(RegionObservation { region, job, now, is_crowded, others_go_first }))
    }

    fn decide(observed: &RegionObservation) -> Option<RegionDecision> {
        let RegionObservation { region, job, now, .. } = observed;
        let is_going = |meta: &ObjectMeta| meta.deletion_timestamp.is_some();
        if is_going(&region.metadata) || job.as_ref().is_some_and(|job| is_going(&job.metadata)) {
            return None;
        }
        let before = region.status.clone().unwrap_or_default();
        let after = match job.as_ref().filter(|job| is_controlled_by(&region.metadata, &***job)) {
            Some(job) if !region.is_copy() => status::status(region, job, *now),
            Some(_) => status::of_copy(region, *now),
            // Somebody made it by hand. One that is controlled by a job which is gone is about to go as well.
            None if is_stray(&region.metadata) => status::of_stray(region, job.as_deref(), *now),
            None => return None,
        };
        let notices = notices(region, &before, &after);
        let is_rolling_out = after.width.is_none_or(|width| width == region.spec.width) && after.rejected.is_none();
        let is_ready = condition::is_true(&after.conditions, condition::READY);
        // Whether it was resized is to be known before the next generation: its job says it of the last one only.
        let is_submission = region.status.is_none() && after.last_resize.is_none();
        let unsaid = if is_submission && is_rolling_out && notices.is_empty() {
            left(observed, is_ready)
        } else {
            job.as_ref().map_or(Duration::ZERO, |job| left_of_others(&before, &after, job, *now))
        };
        (after != before).then_some(RegionDecision { status: after, notices, after: unsaid })
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        RegionObservation { region, .. }: RegionObservation,
        decision: Option<RegionDecision>,
    ) -> Result<Next, Error> {
        let Some(RegionDecision { status, notices, after }) = decision else { return Ok(Next::Rest(Outcome::Done)) };
        if !after.is_zero() {
            return Ok(Next::Rest(Outcome::Again(after)));
        }
        let mut written = (*region).clone();
        written.status = Some(status);
        // The API server must not take what the mirror has of them for all of them.
        written.metadata.managed_fields = None;
        let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
        Priority::Telling.of(writer.replace_status_or_find(&written)).await?.written()?;
        for notice in notices {
            self.cluster.announce(&*region, &notice);
        }
        Ok(Next::Rest(Outcome::Done))
    }
}

impl<C: Cluster> RegionReconciler<C> {
    /// The job as the API server has it, of which this is seen.
    async fn ask_for(&self, key: &Key, seen: Arc<Job>) -> Result<Arc<Job>, Error> {
        let asked = Priority::Telling.of(self.cluster.get::<Job>(key)).await?;
        // One that is gone, or made again, is shown soon.
        let asked = asked.filter(|asked| asked.metadata.uid == seen.metadata.uid);
        Ok(asked.map_or(seen, Arc::new))
    }
}

/// Whether the region is about to say for the first time that a bound of its job excludes its width, and is newer than
/// what is seen of the job: somebody may have changed the bound just before, and mirrors are filled apart (rule
/// elasticity-4).
fn may_have_other_bounds(region: &ParallelRegion, job: &Job, now: Timestamp) -> bool {
    if version(&region.metadata) < version(&job.metadata) || !is_region_of(region, job) {
        return false;
    }
    let refused = status::status(region, job, now).rejected.filter(|refused| refused.reason == OUT_OF_BOUNDS);
    refused.is_some() && region.status.as_ref().is_none_or(|said| said.rejected != refused)
}

/// How long a region of a submission says nothing: all PEs run soon, and that says more; in a crowd others go first.
fn longest_silence(observed: &RegionObservation, is_ready: bool) -> Duration {
    match (observed.is_crowded, is_ready) {
        (false, false) => UNSAID,
        (false, true) => Duration::ZERO,
        (true, true) if !observed.others_go_first => UNSAID_THOUGH_READY,
        (true, _) => UNSAID_IN_A_CROWD,
    }
}

/// How long a region of a submission says nothing yet, unless there is no crowd any more when it is looked at before.
fn left(observed: &RegionObservation, is_ready: bool) -> Duration {
    let Some(Time(created)) = observed.region.metadata.creation_timestamp else { return Duration::ZERO };
    let Some(age) = age(created, observed.now) else { return Duration::ZERO };
    let next_look = if is_ready && !observed.others_go_first { LOOKED_AT_THOUGH_READY } else { UNSAID };
    longest_silence(observed, is_ready).saturating_sub(age).min(next_look)
}

/// How long a region says nothing yet of a generation that restarts PEs, perhaps of its channels, and leaves its width
/// as it is.
fn left_of_others(before: &ParallelRegionStatus, after: &ParallelRegionStatus, job: &Job, now: Timestamp) -> Duration {
    let rollout = job.status.as_ref().and_then(|status| status.rollout.as_ref());
    let rollout =
        rollout.filter(|rollout| rollout.finished_at.is_none() && after.generation != Some(rollout.generation));
    let Some(started) = rollout.and_then(|rollout| rollout.started_at.as_ref()) else { return Duration::ZERO };
    let was_ready = condition::is_true(&before.conditions, condition::READY);
    let ready = condition::get(&after.conditions, condition::READY);
    let is_rolling_out = ready.is_some_and(|ready| ready.reason == status::ROLLING_OUT);
    let is_same = before.width == after.width && before.selector == after.selector;
    if !(was_ready && is_rolling_out && is_same) {
        return Duration::ZERO;
    }
    UNSAID_OF_OTHERS.saturating_sub(distance(started.0, now))
}

/// Whether nothing controls the object: the job controller makes no such region.
fn is_stray(meta: &ObjectMeta) -> bool {
    !meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true))
}

/// What people should hear of between two statuses of a region.
fn notices(region: &ParallelRegion, before: &ParallelRegionStatus, after: &ParallelRegionStatus) -> Vec<Notice> {
    let refused = after.rejected.as_ref().filter(|rejected| before.rejected.as_ref() != Some(rejected));
    let refused = refused.map(|refused| Notice::warning("ParallelRegionWidthChangeFailure", refused.message.as_str()));
    let is_ready = condition::is_true(&after.conditions, condition::READY);
    let created = region.metadata.creation_timestamp.as_ref().map(|created| created.0);
    let rolled_out = |status: &ParallelRegionStatus| {
        let last = status.last_resize.as_ref().filter(|last| last.rolled_out_at.is_some())?;
        Some((last.generation, last.to))
    };
    // One that was made again since has it from the job: the region before it has told it. Once it has said a width it
    // was there for what follows, whatever the clocks of the API server and of the leader say.
    let rolled_out_at = after.last_resize.as_ref().and_then(|last| last.rolled_out_at.as_ref()).map(|at| at.0);
    let is_told = before.width.is_none() && created > rolled_out_at;
    let resized = rolled_out(after).filter(|resized| rolled_out(before).as_ref() != Some(resized));
    let resized = resized.filter(|_| is_ready && !is_told);
    let done = resized
        .map(|(_, width)| Notice::normal("ParallelRegionWidthChangeSuccess", format!("all PEs of width {width} run")));
    let without_effect = |status: &ParallelRegionStatus| {
        let ready = condition::get(&status.conditions, condition::READY);
        ready.filter(|ready| ready.reason == status::WITHOUT_EFFECT).map(|ready| ready.message.clone())
    };
    let has_none = without_effect(after).filter(|_| without_effect(before).is_none());
    let has_none = has_none.map(|message| Notice::warning(status::WITHOUT_EFFECT, message));
    refused.into_iter().chain(done).chain(has_none).collect()
}
