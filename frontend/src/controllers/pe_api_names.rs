//! In which namespaces somebody else has a Service of the name under which PEs reach the frontend (rule pe-api-8): who
//! keeps these Services says so, and jobs warn of it.
//!
//! Knows: namespaces, who warns. Must not know: Services, conditions.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_kubernetes::Key;

/// Reason of the Event of the Service, and of the warning of jobs.
pub(crate) const SERVICE_NAME_TAKEN: &str = "ServiceNameTaken";

/// What both controllers share. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeApiNames(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Whether somebody else has the name, by namespace.
    is_taken: BTreeMap<String, bool>,
    /// Jobs that warn of it since before this process led, and that were looked at before their namespace was.
    undecided: BTreeSet<Key>,
}

/// Jobs that are to be looked at, as something else is known of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Concerned {
    /// These.
    These(BTreeSet<Key>),
    /// All of the namespace.
    All,
}

impl PeApiNames {
    /// Whether somebody else has the name in the namespace of this job. As long as that is not known, whether the job
    /// `warns` of it: another leader has seen it.
    pub(crate) fn is_taken(&self, job: &Key, warns: bool) -> bool {
        let mut known = self.0.lock();
        if let Some(is_taken) = known.is_taken.get(&*job.namespace) {
            return *is_taken;
        }
        if warns {
            known.undecided.insert(job.clone());
        }
        warns
    }

    /// Says whether somebody else has the name in this namespace. Returns whom that concerns.
    pub(crate) fn say(&self, namespace: &str, is_taken: bool) -> Concerned {
        let mut known = self.0.lock();
        let before = known.is_taken.insert(namespace.to_owned(), is_taken);
        let undecided = std::mem::take(&mut known.undecided);
        let (concerned, others) = undecided.into_iter().partition(|job| *job.namespace == *namespace);
        known.undecided = others;
        if before.unwrap_or_default() == is_taken { Concerned::These(concerned) } else { Concerned::All }
    }

    /// Nobody asks for this namespace any more: it has no job.
    pub(crate) fn forget(&self, namespace: &str) {
        let mut known = self.0.lock();
        known.is_taken.remove(namespace);
        known.undecided.retain(|job| *job.namespace != *namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_warns_of_what_is_known_and_until_then_as_before() {
        let names = PeApiNames::default();
        let (job, other) = (Key::new("n", "flow"), Key::new("m", "flow"));
        let none = || Concerned::These(BTreeSet::new());
        assert!(!names.is_taken(&job, false));
        assert!(names.is_taken(&job, true) && names.is_taken(&other, true), "another leader has seen it");
        assert_eq!(names.say("n", false), Concerned::These([job.clone()].into()));
        assert!(!names.is_taken(&job, true));
        assert_eq!(names.say("n", false), none());
        assert_eq!(names.say("n", true), Concerned::All);
        assert!(names.is_taken(&job, false));
        assert_eq!(names.say("n", true), none());
        assert_eq!(names.say("m", true), Concerned::All);
        names.forget("n");
        assert!(!names.is_taken(&job, false) && names.is_taken(&other, false));
    }
}
