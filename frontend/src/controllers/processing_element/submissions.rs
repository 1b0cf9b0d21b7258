//! Jobs that are yet to be committed for the first time, and PEs that let them go first (rule pe-20).
//!
//! In a crowd a PE does not say at once that its first pod runs: what other jobs of its namespace need for their pods
//! goes first. When there is no such job any more, the PEs that have waited are looked at; and when their own job is to
//! be brought to another generation, because that depends on what runs.
//!
//! Knows: jobs as the mirror shows them, names of PEs. Must not know: pods, whether there is a crowd.
//!
//! Invariant: a PE is kept as long as it is mirrored and has said nothing, and no longer than such a job is there.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use streams_api::{Job, JobPhase, condition};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;

/// For how long a submission is waited for: what it lacks, for example the fusion service, may not be there for days.
const AT_MOST: SignedDuration = SignedDuration::from_mins(10);

/// Why a PE need not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The other jobs are committed, or will not be.
    ByOthers,
    /// Its own job is to be brought to another generation.
    ByItsJob,
}

/// What is kept, by namespace.
#[derive(Default)]
pub(super) struct Submissions {
    namespaces: Mutex<HashMap<Arc<str>, OfNamespace>>,
    wake: OnceLock<Box<dyn Fn(Key, Woken) + Send + Sync>>,
}

/// A namespace with such jobs.
#[derive(Default)]
struct OfNamespace {
    /// Since when each of them is being submitted.
    jobs: HashMap<Arc<str>, Timestamp>,
    /// When the last of these moments was, of all that were ever there; so jobs need not be looked at when all are old.
    newest: Option<Timestamp>,
    /// PEs, by the names of their jobs.
    waiting: HashMap<Arc<str>, HashSet<Key>>,
}

impl fmt::Debug for Submissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Submissions")
    }
}

impl Submissions {
    /// Of the jobs of this mirror.
    pub(super) fn of(jobs: &Watch<Job>) -> Arc<Self> {
        let submissions = Arc::<Self>::default();
        let (told, mirror) = (Arc::clone(&submissions), jobs.clone());
        jobs.subscribe(move |job| told.hear(job, mirror.contains(&Key::of(job))));
        submissions
    }

    /// From now on this is done to PEs that have waited. What is said first counts; nobody says it twice.
    pub(super) fn wake_by(&self, wake: impl Fn(Key, Woken) + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Whether there are jobs in this namespace that are waited for now.
    pub(super) fn are_there(&self, namespace: &str, now: Timestamp) -> bool {
        let is_waited_for = |since: &Timestamp| now.duration_since(*since) < AT_MOST;
        self.lock().get(namespace).is_some_and(|of_namespace| {
            of_namespace.newest.as_ref().is_some_and(is_waited_for) && of_namespace.jobs.values().any(is_waited_for)
        })
    }

    /// The PE of this job waits until it is woken, or looked at for another reason. Returns whether it can be woken:
    /// whether there is a job, however long it takes.
    pub(super) fn wait(&self, pe: &Key, job: &str) -> bool {
        let mut namespaces = self.lock();
        let Some(of_namespace) = namespaces.get_mut(&pe.namespace) else { return false };
        of_namespace.waiting.entry(job.into()).or_default().insert(pe.clone());
        true
    }

    /// The PE of this job does not wait: it has said what it had to say, or is gone.
    pub(super) fn forget(&self, pe: &Key, job: &str) {
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
    pub(super) fn len(&self) -> usize {
        let waiting = |of_namespace: &OfNamespace| of_namespace.waiting.values().map(HashSet::len).sum::<usize>();
        self.lock().values().map(|of_namespace| of_namespace.jobs.len() + waiting(of_namespace)).sum()
    }

    fn hear(&self, job: &Job, is_there: bool) {
        let key = Key::of(job);
        let of_job = if is_there && is_to_be_changed(job) { self.take_of(&key) } else { HashSet::new() };
        let of_others = self.note(key, submitted_since(job).filter(|_| is_there));
        if let Some(wake) = self.wake.get() {
            of_job.into_iter().for_each(|pe| wake(pe, Woken::ByItsJob));
            of_others.into_iter().for_each(|pe| wake(pe, Woken::ByOthers));
        }
    }

    /// The PEs of this job that have waited.
    fn take_of(&self, job: &Key) -> HashSet<Key> {
        let mut namespaces = self.lock();
        let of_namespace = namespaces.get_mut(&job.namespace);
        of_namespace.and_then(|of_namespace| of_namespace.waiting.remove(&job.name)).unwrap_or_default()
    }

    /// Returns the PEs that need not wait any more.
    fn note(&self, Key { namespace, name }: Key, submitted_since: Option<Timestamp>) -> HashSet<Key> {
        let mut namespaces = self.lock();
        if let Some(since) = submitted_since {
            let of_namespace = namespaces.entry(namespace).or_default();
            of_namespace.newest = of_namespace.newest.max(Some(since));
            of_namespace.jobs.insert(name, since);
            return HashSet::new();
        }
        let Some(of_namespace) = namespaces.get_mut(&namespace) else { return HashSet::new() };
        of_namespace.jobs.remove(&name);
        if !of_namespace.jobs.is_empty() {
            return HashSet::new();
        }
        let waiting = namespaces.remove(&namespace).map(|of_namespace| of_namespace.waiting);
        waiting.into_iter().flat_map(HashMap::into_values).flatten().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, OfNamespace>> {
        // Every change is finished before anything that could panic.
        self.namespaces.lock()
    }
}

/// Since when the job is being submitted. `None` if it has a generation, or if nothing comes of it before its user, or
/// whoever has its bundle, does something.
fn submitted_since(job: &Job) -> Option<Timestamp> {
    let status = job.status.as_ref();
    let is_over = status.is_some_and(|status| {
        let is_without_bundle = condition::is_true(&status.conditions, condition::BUNDLE_UNAVAILABLE);
        status.generation.is_some() || status.phase == Some(JobPhase::Failed) || is_without_bundle
    });
    if is_over || job.spec.suspend || job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let begun = status.and_then(|status| status.submission_started_at.as_ref());
    let since = begun.or(job.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    // The API server says of each object when it was created.
    Some(since.unwrap_or(Timestamp::MAX))
}

/// A job that has a generation is to get another one.
fn is_to_be_changed(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.generation.is_some() && status.proposal.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use std::collections::BTreeMap;
    use streams_api::{BundleReference, JobSpec, JobStatus, ProposedPlan};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job(namespace: &str, name: &str) -> Job {
        let mut job = Job::new(name, JobSpec::of(BundleReference::default()));
        job.metadata.namespace = Some(namespace.to_owned());
        job.metadata.creation_timestamp = Some(Time(at(1_000)));
        job
    }

    /// What PEs are woken by, as far as they were.
    fn woken_of(submissions: &Submissions) -> Arc<Mutex<BTreeMap<String, Woken>>> {
        let woken = Arc::<Mutex<BTreeMap<String, Woken>>>::default();
        let log = Arc::clone(&woken);
        submissions.wake_by(move |pe, why| {
            log.lock().insert(pe.to_string(), why);
        });
        woken
    }

    #[test]
    fn a_job_is_waited_for_until_it_has_a_generation_or_cannot_get_one() {
        type Edit = fn(&mut Job);
        let table: [(&str, bool, Edit); 7] = [
            ("new", true, |_| {}),
            ("numbered", true, |job| job.status = Some(JobStatus { job_id: Some(0), ..JobStatus::default() })),
            ("committed", false, |job| job.status = Some(JobStatus { generation: Some(0), ..JobStatus::default() })),
            ("failed", false, |job| {
                job.status = Some(JobStatus { phase: Some(JobPhase::Failed), ..JobStatus::default() });
            }),
            ("without bundle", false, |job| {
                let conditions = &mut job.status.get_or_insert_default().conditions;
                condition::set(conditions, condition::BUNDLE_UNAVAILABLE, true, "NotFound", "", None, at(1_000));
            }),
            ("suspended", false, |job| job.spec.suspend = true),
            ("going", false, |job| job.metadata.deletion_timestamp = Some(Time(at(1_000)))),
        ];
        for (what, expected, edit) in table {
            let mut job = job("n", "a");
            edit(&mut job);
            let submissions = Submissions::of(&Watch::filled(indexes(), [job]));
            assert_eq!(submissions.are_there("n", at(1_001)), expected, "{what}");
            assert!(!submissions.are_there("m", at(1_001)), "{what}");
        }
    }

    #[test]
    fn a_job_is_not_waited_for_longer_than_ten_minutes() {
        // when its submission began, if it has, now -> it is waited for
        let table = [
            (None, 999, true),
            (None, 1_599, true),
            (None, 1_600, false),
            (Some(1_500), 1_600, true),
            (Some(1_500), 2_100, false),
        ];
        for (begun, now, expected) in table {
            let mut job = job("n", "a");
            let submission_started_at = begun.map(|begun| Time(at(begun)));
            job.status = Some(JobStatus { submission_started_at, ..JobStatus::default() });
            let submissions = Submissions::of(&Watch::filled(indexes(), [job]));
            assert_eq!(submissions.are_there("n", at(now)), expected, "{begun:?} {now}");
        }
    }

    #[test]
    fn pes_wait_for_all_such_jobs_of_their_namespace_and_for_no_other() {
        let mirror = Watch::filled(indexes(), [job("n", "a"), job("n", "b"), job("m", "c")]);
        let submissions = Submissions::of(&mirror);
        let woken = woken_of(&submissions);
        let [one, two, gone, other] = ["one", "two", "gone", "other"].map(|name| Key::new("n", name));
        for (pe, job) in [(&one, "x"), (&two, "y"), (&gone, "y")] {
            assert!(submissions.wait(pe, job));
        }
        submissions.forget(&gone, "y");
        mirror.remove(&Key::new("n", "a"));
        mirror.remove(&Key::new("m", "c"));
        assert!(submissions.are_there("n", at(1_001)) && !submissions.are_there("m", at(1_001)));
        assert_eq!(*woken.lock(), BTreeMap::new());
        mirror.remove(&Key::new("n", "b"));
        let expected = ["n/one", "n/two"].map(|pe| (pe.to_owned(), Woken::ByOthers));
        assert_eq!(*woken.lock(), expected.into());
        assert!(!submissions.wait(&other, "x"));
        assert_eq!(submissions.len(), 0);
    }

    #[test]
    fn pes_whose_own_job_is_to_be_changed_do_not_wait() {
        let mirror = Watch::filled(indexes(), [job("n", "b")]);
        let submissions = Submissions::of(&mirror);
        let woken = woken_of(&submissions);
        let [one, two] = ["one", "two"].map(|name| Key::new("n", name));
        assert!(submissions.wait(&one, "x") && submissions.wait(&two, "y"));
        let mut changed = job("n", "x");
        // committed generation, another one is proposed -> PEs that were woken by then
        let table = [(0, false, 0), (0, true, 1), (1, false, 1)];
        for (generation, is_proposed, expected) in table {
            let proposal = is_proposed.then(ProposedPlan::default);
            changed.status = Some(JobStatus { generation: Some(generation), proposal, ..JobStatus::default() });
            mirror.insert(changed.clone());
            let expected = [("n/one".to_owned(), Woken::ByItsJob)].into_iter().take(expected);
            assert_eq!(*woken.lock(), expected.collect(), "{generation} {is_proposed}");
        }
        assert_eq!(submissions.len(), 2, "the job, and the PE of another one");
    }
}
