//! PEs that their job has left behind: it was deleted, and they were not (rules pe-api-2 and job-29).
//!
//! Their pods run on, connect again, and ask for names. The job that would answer is gone, but each of its PEs says
//! which job it was of.
//!
//! Knows: PEs, owner references. Must not know: who asks.
//!
//! Invariants: a PE is here as long as the mirror shows it without a controller. Nothing is kept of others.

use kube::core::ObjectMeta;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controller;
use streams_kubernetes::watch::Watch;

/// Whether the job of an object was deleted without it.
pub(super) fn is_left_behind(meta: &ObjectMeta) -> bool {
    controller(meta).is_none()
}

/// PEs without a job. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct LeftBehind {
    elements: Watch<ProcessingElement>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// Namespace and number of a job, each with a PE of it and the name of the job.
    numbers: BTreeSet<(Arc<str>, u64, Arc<str>, String)>,
    /// Namespace and name of a job, each with a PE of it.
    names: BTreeSet<(Arc<str>, String, Arc<str>)>,
    /// Number and name of the job of each PE.
    jobs: HashMap<Key, (u64, String)>,
}

impl LeftBehind {
    /// Those that the mirror of PEs shows.
    pub(super) fn of(elements: &Watch<ProcessingElement>) -> Self {
        let left_behind = Self { elements: elements.clone(), known: Arc::default() };
        let following = left_behind.clone();
        elements.subscribe(move |element| {
            let key = Key::of(element);
            // Most PEs have a job; for them nothing is read.
            if is_left_behind(&element.metadata) || following.known.lock().jobs.contains_key(&key) {
                following.look_at(&key);
            }
        });
        left_behind
    }

    /// The name of the job of this number, of which there are PEs.
    pub(super) fn name(&self, namespace: &str, number: u64) -> Option<String> {
        let namespace = Arc::<str>::from(namespace);
        let known = self.known.lock();
        let (of, found, _, name) =
            known.numbers.range((Arc::clone(&namespace), number, Arc::from(""), String::new())..).next()?;
        (*of == namespace && *found == number).then(|| name.clone())
    }

    /// Whether there are PEs of a job of this name.
    pub(super) fn has(&self, namespace: &str, job: &str) -> bool {
        let namespace = Arc::<str>::from(namespace);
        let known = self.known.lock();
        let first = known.names.range((Arc::clone(&namespace), job.to_owned(), Arc::from(""))..).next();
        first.is_some_and(|(of, found, _)| *of == namespace && found == job)
    }

    /// Notes what the mirror shows of a PE. It is read under the lock, so that the last who looks sees the last state.
    fn look_at(&self, key: &Key) {
        let mut known = self.known.lock();
        let element = self.elements.get(key).filter(|element| is_left_behind(&element.metadata));
        let of = || (Arc::clone(&key.namespace), Arc::clone(&key.name));
        if let Some((number, name)) = known.jobs.remove(key) {
            let (namespace, pe) = of();
            known.numbers.remove(&(Arc::clone(&namespace), number, Arc::clone(&pe), name.clone()));
            known.names.remove(&(namespace, name, pe));
        }
        let Some(element) = element else { return };
        let (number, name) = (element.spec.job_id, element.spec.job_name.clone());
        let (namespace, pe) = of();
        known.numbers.insert((Arc::clone(&namespace), number, Arc::clone(&pe), name.clone()));
        known.names.insert((namespace, name.clone(), pe));
        known.jobs.insert(key.clone(), (number, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use streams_api::ProcessingElementSpec;

    fn pe(namespace: &str, job: &str, number: u64, id: u64, has_job: bool) -> ProcessingElement {
        let spec =
            ProcessingElementSpec { job_name: job.to_owned(), job_id: number, id, ..ProcessingElementSpec::default() };
        let mut pe = ProcessingElement::new(&format!("{job}-{id}"), spec);
        pe.metadata.namespace = Some(namespace.to_owned());
        let owner = OwnerReference { controller: Some(true), ..OwnerReference::default() };
        pe.metadata.owner_references = has_job.then(|| vec![owner]);
        pe
    }

    #[test]
    fn a_job_is_known_by_the_pes_that_it_has_left_behind_and_by_no_others() {
        let elements = Watch::filled(indexes(), [pe("n", "flow", 7, 0, true), pe("m", "flow", 8, 0, false)]);
        let left_behind = LeftBehind::of(&elements);
        let names = || {
            let of = |namespace, number| left_behind.name(namespace, number).unwrap_or_default();
            [of("n", 7), of("n", 8), of("m", 8), of("m", 7)]
        };
        assert_eq!(names(), ["", "", "flow", ""]);
        assert_eq!(
            [left_behind.has("n", "flow"), left_behind.has("m", "flow"), left_behind.has("m", "flo")],
            [false, true, false]
        );
        for id in 0..2 {
            elements.insert(pe("n", "flow", 7, id, false));
        }
        assert_eq!(names(), ["flow", "", "flow", ""]);
        elements.remove(&Key::new("n", "flow-0"));
        assert_eq!((names()[0].as_str(), left_behind.has("n", "flow")), ("flow", true));
        elements.insert(pe("n", "flow", 7, 1, true));
        elements.remove(&Key::new("m", "flow-0"));
        let known = left_behind.known.lock();
        assert!(known.numbers.is_empty() && known.names.is_empty() && known.jobs.is_empty(), "nothing is kept");
    }
}
