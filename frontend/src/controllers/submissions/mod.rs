//! Jobs that are being submitted: others of their namespace let their pods go first (rules pe-20 and elasticity-4).
//!
//! In a crowd a PE does not say at once that its first pod runs. What other jobs of its namespace need for their pods
//! goes first, and so do these pods, until they run. When all of them do, the PEs that have waited are looked at; and
//! when their own job is to be brought to another generation, because that depends on what runs. PEs of one job wait
//! for each other if they are many. Regions only ask whether there are such jobs.
//!
//! Nobody waits for long: what a job lacks for its commit may not be there for days, and a pod may never get a node.
//! When such a time is over, nothing tells it. Whoever asks is told until when he has to wait at most, and comes back.
//!
//! Knows: jobs and pods as the mirrors show them, names of PEs. Must not know: what a PE or a region says, whether
//! there is a crowd.
//!
//! Invariants: a PE is kept as long as it is mirrored and has said nothing, and no longer than a job of its namespace
//! is being submitted. Of a job no more pods are kept than it has PEs, and none once all of them run.

use super::times::after;
use crate::mirrors::job_of;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use streams_api::{Job, JobPhase, Rollout, condition};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;

/// The PEs that a generation adds are a crowd of their own if they are so many.
pub(crate) const CROWD: u32 = 64;
/// For how long a job is waited for that is not committed: what it lacks may not be there for days.
const COMMITTED_WITHIN: Duration = Duration::from_secs(600);
/// For how long after its commit its pods are waited for: one that cannot be placed holds up nobody.
pub(crate) const RUNNING_WITHIN: Duration = Duration::from_secs(10);
/// So much longer for each of them PEs of a job wait for each other that are a crowd of their own: a scheduler places
/// about 50 pods a second.
const RUNNING_AFTER_ANOTHER: Duration = Duration::from_millis(20);

/// Why a PE need not wait any more, or not for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The pods of the others run; or there will be none.
    OthersRun,
    /// The others are committed: their pods are waited for [`RUNNING_WITHIN`], at most.
    OthersAreCommitted,
    /// Its own job is to be brought to another generation.
    JobGoesOn,
}

/// What is kept, by namespace.
#[derive(Default)]
pub(crate) struct Submissions {
    namespaces: Mutex<HashMap<Arc<str>, OfNamespace>>,
    wake: OnceLock<Box<dyn Fn(Key, Woken) + Send + Sync>>,
}

/// A namespace with such jobs.
#[derive(Default)]
struct OfNamespace {
    jobs: HashMap<Arc<str>, Submission>,
    /// The latest time until when one of them was ever waited for; so jobs need not be looked at when it is over.
    latest_until: Option<Timestamp>,
    /// When the last one was committed. It is later than that now.
    committed_at: Option<Timestamp>,
    /// PEs, by the names of their jobs.
    waiting: HashMap<Arc<str>, HashSet<Key>>,
}

/// A job that is being submitted.
struct Submission {
    /// When that began; or when it was committed, once it is.
    since: Timestamp,
    /// Until then others wait for it, at most.
    until: Timestamp,
    /// Until then its own PEs wait for each other, at most, if they are a crowd.
    own_until: Option<Timestamp>,
    stage: SubmissionStage,
}

/// How far a job is.
enum SubmissionStage {
    /// It is not committed.
    Prepared,
    /// It is committed, and its pods do not all run yet.
    Launched {
        /// How many there will be.
        pods: usize,
        /// Names of those that run, or have run.
        begun: HashSet<Arc<str>>,
    },
    /// All of its pods run, or have run; not all of its PEs have said so.
    Runs,
}

impl fmt::Debug for Submissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Submissions")
    }
}

impl Submissions {
    /// Of the jobs and pods of these mirrors.
    pub(crate) fn of(jobs: &Watch<Job>, pods: &Watch<Pod>) -> Arc<Self> {
        let submissions = Arc::<Self>::default();
        let (told, mirror) = (Arc::clone(&submissions), jobs.clone());
        jobs.subscribe(move |job| told.hear(job, mirror.contains(&Key::of(job))));
        // After the jobs: pods of jobs that are not known do not count.
        let told = Arc::clone(&submissions);
        pods.subscribe(move |pod| told.hear_of_pod(pod));
        submissions
    }

    /// From now on this is done to PEs that have waited. What is said first counts; nobody says it twice.
    pub(crate) fn wake_by(&self, wake: impl Fn(Key, Woken) + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Until when jobs of this namespace are waited for, at most, as far as is known now. `None` if there are none.
    pub(crate) fn until(&self, namespace: &str, now: Timestamp) -> Option<Timestamp> {
        let namespaces = self.lock();
        let of_namespace = namespaces.get(namespace)?;
        if of_namespace.latest_until.is_none_or(|until| until <= now) {
            return None;
        }
        let under_way = of_namespace.jobs.values().filter(|job| job.is_under_way());
        under_way.map(|job| job.until).max().filter(|until| now < *until)
    }

    /// Until when the PEs of this job wait for each other, at most. `None` if they do not.
    pub(crate) fn own_until(&self, namespace: &str, job: &str, now: Timestamp) -> Option<Timestamp> {
        let namespaces = self.lock();
        let submission = namespaces.get(namespace)?.jobs.get(job).filter(|job| job.is_under_way())?;
        submission.own_until.filter(|until| now < *until)
    }

    /// The PE of this job waits until it is woken, or looked at for another reason. Returns whether it can be woken:
    /// whether there is a job, however long it takes.
    pub(crate) fn wait(&self, pe: &Key, job: &str) -> bool {
        let mut namespaces = self.lock();
        let Some(of_namespace) = namespaces.get_mut(&pe.namespace) else { return false };
        if !of_namespace.jobs.values().any(Submission::is_under_way) {
            return false;
        }
        of_namespace.waiting.entry(job.into()).or_default().insert(pe.clone());
        true
    }

    /// The PE of this job does not wait: it has said what it had to say, or is gone.
    pub(crate) fn forget(&self, pe: &Key, job: &str) {
        let mut namespaces = self.lock();
        let Some(of_namespace) = namespaces.get_mut(&pe.namespace) else { return };
        let Some(pes) = of_namespace.waiting.get_mut(job) else { return };
        pes.remove(pe);
        if pes.is_empty() {
            of_namespace.waiting.remove(job);
        }
    }

    /// Jobs and PEs that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let waiting = |of_namespace: &OfNamespace| of_namespace.waiting.values().map(HashSet::len).sum::<usize>();
        self.lock().values().map(|of_namespace| of_namespace.jobs.len() + waiting(of_namespace)).sum()
    }

    fn hear(&self, job: &Job, is_there: bool) {
        let key = Key::of(job);
        let of_job = if is_there && is_to_be_changed(job) { self.take_for_next_generation(&key) } else { Vec::new() };
        let of_others = match Submission::of(job).filter(|_| is_there) {
            Some(submission) => self.note(key, submission),
            None => self.note_end(&key),
        };
        self.wake(of_job);
        self.wake(of_others);
    }

    fn hear_of_pod(&self, pod: &Pod) {
        if has_begun(pod)
            && let Some(job) = job_of(pod)
        {
            self.wake(self.note_begun(&job, Key::of(pod).name));
        }
    }

    fn wake(&self, woken: Vec<(Key, Woken)>) {
        if let Some(wake) = self.wake.get() {
            woken.into_iter().for_each(|(pe, why)| wake(pe, why));
        }
    }

    /// The PEs of this job that have waited, as it is to be brought to another generation.
    fn take_for_next_generation(&self, job: &Key) -> Vec<(Key, Woken)> {
        let mut namespaces = self.lock();
        let of_namespace = namespaces.get_mut(&job.namespace);
        of_namespace.map(|of_namespace| of_namespace.take_of(&job.name, Woken::JobGoesOn)).unwrap_or_default()
    }

    /// The job is being submitted. Returns the PEs that need not wait for long.
    fn note(&self, Key { namespace, name }: Key, submission: Submission) -> Vec<(Key, Woken)> {
        let mut namespaces = self.lock();
        let of_namespace = namespaces.entry(namespace).or_default();
        if of_namespace.jobs.get(&name).is_some_and(|known| known.says_same_as(&submission)) {
            return Vec::new();
        }
        let is_committed = !submission.is_prepared();
        of_namespace.latest_until = of_namespace.latest_until.max(Some(submission.until));
        if is_committed {
            of_namespace.committed_at = of_namespace.committed_at.max(Some(submission.since));
        }
        of_namespace.jobs.insert(name, submission);
        if is_committed { of_namespace.woken_by_commit() } else { Vec::new() }
    }

    /// The job is not being submitted, or not any more. Returns the PEs that need not wait any more, or not for long.
    fn note_end(&self, job: &Key) -> Vec<(Key, Woken)> {
        let mut namespaces = self.lock();
        let Some(of_namespace) = namespaces.get_mut(&job.namespace) else { return Vec::new() };
        let Some(ended) = of_namespace.jobs.remove(&job.name) else { return Vec::new() };
        let woken = if ended.is_prepared() { of_namespace.woken_by_commit() } else { of_namespace.woken_by_pods() };
        if of_namespace.jobs.is_empty() {
            namespaces.remove(&job.namespace);
        }
        woken
    }

    /// A pod of this job runs, or has run. Returns the PEs that need not wait any more.
    fn note_begun(&self, job: &Key, pod: Arc<str>) -> Vec<(Key, Woken)> {
        let mut namespaces = self.lock();
        let Some(of_namespace) = namespaces.get_mut(&job.namespace) else { return Vec::new() };
        let Some(submission) = of_namespace.jobs.get_mut(&job.name) else { return Vec::new() };
        let SubmissionStage::Launched { pods, begun } = &mut submission.stage else { return Vec::new() };
        begun.insert(pod);
        if begun.len() < *pods {
            return Vec::new();
        }
        submission.stage = SubmissionStage::Runs;
        let is_crowd = submission.own_until.is_some();
        let mut woken = of_namespace.woken_by_pods();
        if is_crowd {
            woken.extend(of_namespace.take_of(&job.name, Woken::OthersRun));
        }
        woken
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, OfNamespace>> {
        // Every change is finished before anything that could panic.
        self.namespaces.lock()
    }
}

impl OfNamespace {
    /// The jobs that are still waited for, as far as is known without a clock: not those whose time was over when the
    /// last job was committed.
    fn waited_for(&self) -> impl Iterator<Item = &Submission> {
        let committed_at = self.committed_at;
        let is_to_come = move |until: Timestamp| committed_at.is_none_or(|committed_at| committed_at < until);
        self.jobs.values().filter(move |job| job.is_under_way() && is_to_come(job.until))
    }

    /// The PEs of this job that have waited.
    fn take_of(&mut self, job: &str, why: Woken) -> Vec<(Key, Woken)> {
        self.waiting.remove(job).into_iter().flatten().map(|pe| (pe, why)).collect()
    }

    /// All PEs that have waited, unless a job is still waited for.
    fn woken_by_pods(&mut self) -> Vec<(Key, Woken)> {
        if self.waited_for().next().is_some() {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().flatten().map(|pe| (pe, Woken::OthersRun)).collect()
    }

    /// The same, as one job less is to be committed; if none is, all PEs that wait need not do so for long.
    fn woken_by_commit(&mut self) -> Vec<(Key, Woken)> {
        let woken = self.woken_by_pods();
        if self.waited_for().any(Submission::is_prepared) {
            return woken;
        }
        let waiting = self.waiting.values().flatten().map(|pe| (pe.clone(), Woken::OthersAreCommitted));
        woken.into_iter().chain(waiting).collect()
    }
}

impl Submission {
    /// Of a job. `None` if it runs, or if nothing comes of it before its user, or whoever has its bundle, does
    /// something.
    fn of(job: &Job) -> Option<Self> {
        if job.spec.suspend || job.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = job.status.as_ref();
        if status.is_some_and(|status| status.generation.is_some()) {
            return Self::committed(status?.rollout.as_ref()?);
        }
        let is_over = status.is_some_and(|status| {
            let is_without_bundle = condition::is_true(&status.conditions, condition::BUNDLE_UNAVAILABLE);
            status.phase == Some(JobPhase::Failed) || is_without_bundle
        });
        let begun = status.and_then(|status| status.submission_started_at.as_ref());
        let since = begun.or(job.metadata.creation_timestamp.as_ref()).map(|time| time.0);
        // The API server says of each object when it was created.
        let since = since.unwrap_or(Timestamp::MAX);
        let until = after(since, COMMITTED_WITHIN);
        (!is_over).then_some(Self { since, until, own_until: None, stage: SubmissionStage::Prepared })
    }

    /// Of a job whose first generation is being rolled out.
    fn committed(rollout: &Rollout) -> Option<Self> {
        let since = rollout.started_at.as_ref()?.0;
        if rollout.generation > 0 || rollout.finished_at.is_some() || rollout.added == 0 {
            return None;
        }
        let for_all = RUNNING_WITHIN.saturating_add(RUNNING_AFTER_ANOTHER.saturating_mul(rollout.added));
        let own_until = (rollout.added >= CROWD).then(|| after(since, for_all));
        let pods = usize::try_from(rollout.added).unwrap_or(usize::MAX);
        let stage = SubmissionStage::Launched { pods, begun: HashSet::new() };
        Some(Self { since, until: after(since, RUNNING_WITHIN), own_until, stage })
    }

    fn is_prepared(&self) -> bool {
        matches!(self.stage, SubmissionStage::Prepared)
    }

    /// The same was found of the job; since then its pods may have come farther.
    fn says_same_as(&self, other: &Self) -> bool {
        self.since == other.since && self.is_prepared() == other.is_prepared()
    }

    /// Pods of it are yet to run.
    fn is_under_way(&self) -> bool {
        !matches!(self.stage, SubmissionStage::Runs)
    }
}

/// Whether a pod runs, or has run. One that waits for its bundle runs.
fn has_begun(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.is_some_and(|phase| phase != "Pending")
}

/// A job that has a generation is to get another one.
fn is_to_be_changed(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.generation.is_some() && status.proposal.is_some())
}

#[cfg(test)]
mod tests;
