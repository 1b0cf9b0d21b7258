//! Which job has a number (rule pe-api-11): PEs ask for names of jobs by their numbers when they connect, all of them
//! at once when the frontend has started again. A capture of the state asks which jobs there are (rule pe-api-10).
//!
//! Knows: jobs, their numbers. Must not know: who asks.
//!
//! Invariants: a job is here under the number that the mirror shows; nothing is kept of jobs without one. No job is
//! read because somebody asks.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use streams_api::Job;
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;

/// The numbers of jobs. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct JobNames {
    jobs: Watch<Job>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// Namespace, number and name of each job.
    names: BTreeSet<(Arc<str>, u64, Arc<str>)>,
    /// The number of each job.
    numbers: HashMap<Key, u64>,
}

impl JobNames {
    /// Those that the mirror of jobs shows.
    pub(super) fn of(jobs: &Watch<Job>) -> Self {
        let names = Self { jobs: jobs.clone(), known: Arc::default() };
        let following = names.clone();
        jobs.subscribe(move |job| following.look_at(&Key::of(job)));
        names
    }

    /// The name of the job of this number; the first, if several have it.
    pub(super) fn find(&self, namespace: &str, number: u64) -> Option<Arc<str>> {
        let first = (Arc::from(namespace), number, Arc::from(""));
        let known = self.known.lock();
        let (of, found, name) = known.names.range(first..).next()?;
        (&**of == namespace && *found == number).then(|| Arc::clone(name))
    }

    /// Numbers and names of the jobs of a namespace that have a number, by both.
    pub(super) fn of_namespace(&self, namespace: &str) -> Vec<(u64, Arc<str>)> {
        let first = (Arc::<str>::from(namespace), 0_u64, Arc::<str>::from(""));
        let known = self.known.lock();
        let of_namespace = known.names.range(first..).take_while(|(of, ..)| &**of == namespace);
        of_namespace.map(|(_, number, name)| (*number, Arc::clone(name))).collect()
    }

    /// Notes what the mirror shows of a job. It is read under the lock, so that the last who looks sees the last state.
    fn look_at(&self, key: &Key) {
        let mut known = self.known.lock();
        let now = self.jobs.get(key).and_then(|job| job.status.as_ref()?.job_id);
        if known.numbers.get(key).copied() == now {
            return;
        }
        let entry = |number| (Arc::clone(&key.namespace), number, Arc::clone(&key.name));
        if let Some(before) = known.numbers.remove(key) {
            known.names.remove(&entry(before));
        }
        if let Some(now) = now {
            known.names.insert(entry(now));
            known.numbers.insert(key.clone(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use serde_json::json;

    fn job(namespace: &str, name: &str, number: Option<u64>) -> Job {
        let status = number.map(|number| json!({"jobId": number}));
        serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace},
            "spec": {"bundle": {"file": "a.sab"}}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_number_leads_to_the_job_that_the_mirror_shows_with_it_and_nothing_is_kept_of_others() {
        let jobs = Watch::filled(indexes(), [job("n", "b", Some(1)), job("m", "b", Some(2))]);
        let names = JobNames::of(&jobs);
        let all = || {
            let of = |(namespace, number)| names.find(namespace, number).map(|name| name.to_string());
            [("m", 1), ("m", 2), ("n", 1), ("n", 2)].map(of).map(Option::unwrap_or_default)
        };
        let of_namespace = |namespace| {
            let numbered = names.of_namespace(namespace).into_iter();
            numbered.map(|(number, name)| format!("{number} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(all(), ["", "b", "b", ""]);
        // the job, its number -> who has the numbers
        let table = [
            (("n", "c", None), ["", "b", "b", ""]),
            (("n", "c", Some(2)), ["", "b", "b", "c"]),
            // As it cannot be: of two, the first by name.
            (("n", "a", Some(2)), ["", "b", "b", "a"]),
            (("n", "a", Some(3)), ["", "b", "b", "c"]),
            (("n", "c", None), ["", "b", "b", ""]),
        ];
        for ((namespace, name, number), expected) in table {
            jobs.insert(job(namespace, name, number));
            assert_eq!(all(), expected, "{name} {number:?}");
        }
        assert_eq!(["l", "m", "n", "o"].map(of_namespace), [vec![], vec!["2 b"], vec!["1 b", "3 a"], vec![]]);
        for key in [Key::new("n", "a"), Key::new("n", "b"), Key::new("n", "c"), Key::new("m", "b")] {
            jobs.remove(&key);
        }
        let known = names.known.lock();
        assert!(known.names.is_empty() && known.numbers.is_empty(), "nothing is kept");
    }
}
