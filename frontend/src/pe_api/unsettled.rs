//! Names of endpoints that may be reserved for PEs that do not have them (rule pe-api-5).
//!
//! If the API server does not answer, nobody knows whether a name was reserved, or an endpoint written. What is left
//! over counts for a while only, but it is there as long as the PE. So a PE whose registrations come to no end gets no
//! more names than it may have endpoints.
//!
//! Knows: PEs, names, numbers. Must not know: what an endpoint is, the API server.
//!
//! Invariants: a name is here from before it is reserved until it is known what came of it. Nothing is kept of PEs that
//! are gone.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;

/// Names by PE. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Unsettled {
    most: usize,
    elements: Watch<ProcessingElement>,
    names: Arc<Mutex<HashMap<Key, BTreeSet<String>>>>,
}

impl Unsettled {
    /// So many names of a PE at most, with its endpoints, of PEs that this mirror shows.
    pub(super) fn new(most: usize, elements: &Watch<ProcessingElement>) -> Self {
        let names = Arc::<Mutex<HashMap<Key, BTreeSet<String>>>>::default();
        let following = Arc::clone(&names);
        elements.subscribe_to_departures(move |element, _| drop(following.lock().remove(&Key::of(element))));
        Self { most, elements: elements.clone(), names }
    }

    /// The name is about to be reserved for a PE that has so many endpoints. False if it has too many.
    pub(super) fn begin(&self, pe: &Key, name: &str, endpoints: usize) -> bool {
        let mut names = self.names.lock();
        let of_pe = names.get(pe);
        let others = of_pe.map_or(0, |names| names.iter().filter(|other| *other != name).count());
        if endpoints + others >= self.most {
            return false;
        }
        self.note(&mut names, pe, name);
        true
    }

    /// The name may stay reserved although the PE has it no more.
    pub(super) fn add(&self, pe: &Key, name: &str) {
        self.note(&mut self.names.lock(), pe, name);
    }

    /// Nobody would forget the names of a PE that has gone meanwhile.
    fn note(&self, names: &mut HashMap<Key, BTreeSet<String>>, pe: &Key, name: &str) {
        if self.elements.contains(pe) {
            names.entry(pe.clone()).or_default().insert(name.to_owned());
        }
    }

    /// What came of the name is known.
    pub(super) fn settle(&self, pe: &Key, name: &str) {
        let mut names = self.names.lock();
        if let Some(of_pe) = names.get_mut(pe) {
            of_pe.remove(name);
            if of_pe.is_empty() {
                names.remove(pe);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use streams_api::ProcessingElementSpec;

    #[test]
    fn a_pe_has_no_more_names_than_it_may_have_endpoints_and_nothing_is_kept_of_one_that_is_gone() {
        let key = Key::new("n", "flow-0");
        let pe = |uid: &str| {
            let mut pe = ProcessingElement::new("flow-0", ProcessingElementSpec::default());
            (pe.metadata.namespace, pe.metadata.uid) = (Some("n".to_owned()), Some(uid.to_owned()));
            pe
        };
        let elements = Watch::filled(indexes(), [pe("1")]);
        let unsettled = Unsettled::new(3, &elements);
        // endpoints, name -> whether it may be reserved; each stays unsettled
        for (endpoints, name, expected) in
            [(3, "a", false), (2, "a", true), (2, "a", true), (2, "b", false), (1, "b", true), (1, "c", false)]
        {
            assert_eq!(unsettled.begin(&key, name, endpoints), expected, "{endpoints} {name}");
        }
        unsettled.settle(&key, "a");
        assert!(unsettled.begin(&key, "c", 1));
        unsettled.settle(&key, "b");
        unsettled.settle(&key, "c");
        let are_left = || !unsettled.names.lock().is_empty();
        assert!(!are_left());
        unsettled.add(&key, "d");
        assert!(are_left());
        // It is made again.
        elements.insert(pe("2"));
        assert!(!are_left());
        unsettled.add(&key, "d");
        elements.remove(&key);
        assert!(!are_left());
        // What was done for it comes to an end only then.
        unsettled.add(&key, "d");
        assert!(unsettled.begin(&key, "e", 0) && !are_left());
    }
}
