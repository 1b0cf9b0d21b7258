//! Which PEs have an endpoint of which name (rule pe-api-5).
//!
//! Endpoints are in the statuses of PEs, of which a job may have thousands. Who asks for a name must not make the
//! frontend read all of them, above all if there is none.
//!
//! Knows: names, keys of PEs. Must not know: what an endpoint is.
//!
//! Invariants: a PE is found by each name that the mirror shows in its status. What is found by a name must be read: it
//! may be of another one, because a number stands for the name. Nothing is kept of PEs without endpoints.

use parking_lot::Mutex;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;

/// The PEs with endpoints. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct EndpointNames {
    elements: Watch<ProcessingElement>,
    known: Arc<Mutex<Known>>,
    /// Nobody outside of the process can foretell a number that stands for a name.
    hasher: RandomState,
}

#[derive(Default)]
struct Known {
    /// Numbers of names, each with a PE that has it.
    elements: BTreeSet<(u64, Key)>,
    /// The numbers of a PE.
    names: HashMap<Key, Vec<u64>>,
}

impl EndpointNames {
    /// Names that follow the mirror of PEs.
    pub(super) fn of(elements: &Watch<ProcessingElement>) -> Self {
        let names = Self { elements: elements.clone(), known: Arc::default(), hasher: RandomState::new() };
        let following = names.clone();
        elements.subscribe(move |element| {
            let key = Key::of(element);
            // Most PEs have none; for them nothing is read.
            if has_endpoints(element) || following.known.lock().names.contains_key(&key) {
                following.look_at(&key);
            }
        });
        names
    }

    /// Keys of PEs of which one has the endpoint of this name of the job, if there is one.
    pub(super) fn find(&self, job: &Key, name: &str) -> Vec<Key> {
        let number = self.number(&job.namespace, &job.name, name);
        let known = self.known.lock();
        let found = known.elements.range((number, Key::new("", ""))..);
        found.take_while(|(other, _)| *other == number).map(|(_, key)| key.clone()).collect()
    }

    /// Notes what the mirror shows of a PE. It is read under the lock, so that the last who looks sees the last state.
    pub(super) fn look_at(&self, key: &Key) {
        let mut known = self.known.lock();
        let element = self.elements.get(key);
        for number in known.names.remove(key).into_iter().flatten() {
            known.elements.remove(&(number, key.clone()));
        }
        let Some(element) = element.filter(|element| has_endpoints(element)) else { return };
        let endpoints = element.status.iter().flat_map(|status| &status.endpoints);
        let numbers: Vec<u64> =
            endpoints.map(|endpoint| self.number(&key.namespace, &element.spec.job_name, &endpoint.name)).collect();
        known.elements.extend(numbers.iter().map(|number| (*number, key.clone())));
        known.names.insert(key.clone(), numbers);
    }

    fn number(&self, namespace: &str, job: &str, name: &str) -> u64 {
        self.hasher.hash_one((namespace, job, name))
    }
}

fn has_endpoints(element: &ProcessingElement) -> bool {
    element.status.as_ref().is_some_and(|status| !status.endpoints.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use streams_api::{ProcessingElementSpec, ProcessingElementStatus, UserEndpoint};

    fn pe(namespace: &str, job: &str, id: u64, endpoints: &[&str]) -> ProcessingElement {
        let spec = ProcessingElementSpec { job_name: job.to_owned(), id, ..ProcessingElementSpec::default() };
        let mut pe = ProcessingElement::new(&format!("{job}-{id}"), spec);
        pe.metadata.namespace = Some(namespace.to_owned());
        let endpoints = endpoints.iter().zip(80..);
        let endpoints = endpoints
            .map(|(name, port)| UserEndpoint { name: (*name).to_owned(), port, protocol: "TCP".to_owned() })
            .collect();
        pe.status = Some(ProcessingElementStatus { endpoints, ..ProcessingElementStatus::default() });
        pe
    }

    fn found(names: &EndpointNames, namespace: &str, job: &str, name: &str) -> Vec<String> {
        names
            .find(&Key::new(namespace, job), name)
            .iter()
            .map(|key| format!("{}/{}", key.namespace, key.name))
            .collect()
    }

    #[test]
    fn a_name_leads_to_the_pe_that_has_it_and_an_unknown_one_to_none_however_many_pes_there_are() {
        let elements = Watch::filled(indexes(), (0..1_000).map(|id| pe("n", "flow", id, &[&format!("e{id}")])));
        let names = EndpointNames::of(&elements);
        for (namespace, job, name, expected) in [
            ("n", "flow", "e7", &["n/flow-7"][..]),
            ("n", "flow", "e1000", &[]),
            ("n", "flow", "x", &[]),
            ("n", "other", "e7", &[]),
            ("m", "flow", "e7", &[]),
        ] {
            assert_eq!(found(&names, namespace, job, name), expected, "{namespace} {job} {name}");
        }
    }

    #[test]
    fn names_follow_the_mirror_and_nothing_is_kept_of_pes_without_endpoints() {
        let elements = Watch::filled(indexes(), [pe("n", "flow", 0, &[])]);
        let names = EndpointNames::of(&elements);
        let find = |name| found(&names, "n", "flow", name).join(" ");
        // endpoints of PEs 0 and 1 -> PEs that are found by `a` and by `b`
        let table: [(&[&str], &[&str], [&str; 2]); 5] = [
            (&["a"], &[], ["n/flow-0", ""]),
            (&["a", "b"], &["c"], ["n/flow-0", "n/flow-0"]),
            (&["b"], &["a"], ["n/flow-1", "n/flow-0"]),
            // As an earlier release may have left it.
            (&["b"], &["a", "b"], ["n/flow-1", "n/flow-0 n/flow-1"]),
            (&[], &["b"], ["", "n/flow-1"]),
        ];
        for (of_0, of_1, expected) in table {
            elements.insert(pe("n", "flow", 0, of_0));
            elements.insert(pe("n", "flow", 1, of_1));
            assert_eq!([find("a"), find("b")], expected, "{of_0:?} {of_1:?}");
        }
        elements.remove(&Key::new("n", "flow-1"));
        let known = names.known.lock();
        assert!(known.elements.is_empty() && known.names.is_empty());
    }
}
