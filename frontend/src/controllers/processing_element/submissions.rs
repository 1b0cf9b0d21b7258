//! Jobs that are yet to be committed for the first time, and PEs that let them go first (rule pe-20).
//!
//! In a crowd a PE does not say at once that its first pod runs: what other jobs of its namespace need for their pods
//! goes first. When there is no such job any more, the PEs that have waited are looked at.
//!
//! Knows: jobs as the mirror shows them, names of PEs. Must not know: pods, whether there is a crowd.
//!
//! Invariant: a PE is kept as long as it is mirrored, and no longer than such a job is there.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use streams_api::{Job, JobPhase};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;

/// What is kept, by namespace.
#[derive(Default)]
pub(super) struct Submissions {
    namespaces: Mutex<HashMap<Arc<str>, OfNamespace>>,
    wake: OnceLock<Box<dyn Fn(Key) + Send + Sync>>,
}

/// A namespace with such jobs.
#[derive(Default)]
struct OfNamespace {
    jobs: HashSet<Arc<str>>,
    waiting: HashSet<Key>,
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
    pub(super) fn wake_by(&self, wake: impl Fn(Key) + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Whether there are such jobs in this namespace.
    pub(super) fn are_there(&self, namespace: &str) -> bool {
        self.lock().contains_key(namespace)
    }

    /// The PE waits until there is no such job in its namespace. Returns whether there is one.
    pub(super) fn wait(&self, pe: &Key) -> bool {
        let mut namespaces = self.lock();
        let of_namespace = namespaces.get_mut(&pe.namespace);
        of_namespace.map(|of_namespace| of_namespace.waiting.insert(pe.clone())).is_some()
    }

    /// There is no PE of this name.
    pub(super) fn forget(&self, pe: &Key) {
        if let Some(of_namespace) = self.lock().get_mut(&pe.namespace) {
            of_namespace.waiting.remove(pe);
        }
    }

    /// Jobs and PEs that are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().values().map(|of_namespace| of_namespace.jobs.len() + of_namespace.waiting.len()).sum()
    }

    fn hear(&self, job: &Job, is_there: bool) {
        let woken = self.note(Key::of(job), is_there && is_being_submitted(job));
        if let Some(wake) = self.wake.get() {
            woken.into_iter().for_each(wake);
        }
    }

    /// Returns the PEs that need not wait any more.
    fn note(&self, Key { namespace, name }: Key, is_being_submitted: bool) -> HashSet<Key> {
        let mut namespaces = self.lock();
        if is_being_submitted {
            namespaces.entry(namespace).or_default().jobs.insert(name);
            return HashSet::new();
        }
        let Some(of_namespace) = namespaces.get_mut(&namespace) else { return HashSet::new() };
        of_namespace.jobs.remove(&name);
        if !of_namespace.jobs.is_empty() {
            return HashSet::new();
        }
        namespaces.remove(&namespace).map(|of_namespace| of_namespace.waiting).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, OfNamespace>> {
        // Every change is finished before anything that could panic.
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The job is to get its first pods, and nothing keeps it from it that only its user can change.
fn is_being_submitted(job: &Job) -> bool {
    let status = job.status.as_ref();
    let is_over = status.is_some_and(|status| status.generation.is_some() || status.phase == Some(JobPhase::Failed));
    !is_over && !job.spec.suspend && job.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use std::collections::BTreeSet;
    use streams_api::{BundleReference, JobSpec, JobStatus};

    fn job(namespace: &str, name: &str) -> Job {
        let mut job = Job::new(name, JobSpec::of(BundleReference::default()));
        job.metadata.namespace = Some(namespace.to_owned());
        job
    }

    #[test]
    fn a_job_is_waited_for_until_it_has_a_generation_or_cannot_get_one() {
        type Edit = fn(&mut Job);
        let table: [(&str, bool, Edit); 6] = [
            ("new", true, |_| {}),
            ("numbered", true, |job| job.status = Some(JobStatus { job_id: Some(0), ..JobStatus::default() })),
            ("committed", false, |job| job.status = Some(JobStatus { generation: Some(0), ..JobStatus::default() })),
            ("failed", false, |job| {
                job.status = Some(JobStatus { phase: Some(JobPhase::Failed), ..JobStatus::default() });
            }),
            ("suspended", false, |job| job.spec.suspend = true),
            ("going", false, |job| job.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))),
        ];
        for (what, expected, edit) in table {
            let mut job = job("n", "a");
            edit(&mut job);
            let submissions = Submissions::of(&Watch::filled(indexes(), [job]));
            assert_eq!(submissions.are_there("n"), expected, "{what}");
            assert!(!submissions.are_there("m"), "{what}");
        }
    }

    #[test]
    fn pes_wait_for_all_such_jobs_of_their_namespace_and_for_no_other() {
        let mirror = Watch::filled(indexes(), [job("n", "a"), job("n", "b"), job("m", "c")]);
        let submissions = Submissions::of(&mirror);
        let woken = Arc::new(Mutex::new(BTreeSet::new()));
        let log = Arc::clone(&woken);
        submissions.wake_by(move |pe| {
            log.lock().unwrap().insert(pe.to_string());
        });
        let [one, two, gone, other] = ["one", "two", "gone", "other"].map(|name| Key::new("n", name));
        for pe in [&one, &two, &gone] {
            assert!(submissions.wait(pe));
        }
        submissions.forget(&gone);
        mirror.remove(&Key::new("n", "a"));
        mirror.remove(&Key::new("m", "c"));
        assert!(submissions.are_there("n") && !submissions.are_there("m"));
        assert_eq!(woken.lock().unwrap().len(), 0);
        mirror.remove(&Key::new("n", "b"));
        assert_eq!(woken.lock().unwrap().iter().collect::<Vec<_>>(), ["n/one", "n/two"]);
        assert!(!submissions.wait(&other));
        assert_eq!(submissions.len(), 0);
    }
}
