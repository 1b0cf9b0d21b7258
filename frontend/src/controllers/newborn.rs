//! PEs that this process has created and that nobody can have launched since (rule pe-1).
//!
//! Before the first pod of a PE is created, the API server is asked whether there was a launch, because a mirror may
//! lag behind what another leader has written. There was none if this process created the PE, has led ever since, and
//! has not recorded a launch itself: then the answer is known. It recreates a PE that somebody deleted only once the
//! mirror shows that it is gone.
//!
//! A PE is kept until its status is about to be written or it leaves the mirror. Without it, the API server is asked.
//!
//! Knows: PEs as the API server answered their creation, the term of the leader. Must not know: pods.

use super::remembered::Remembered;
use kube::ResourceExt;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::watch::Watch;

/// What both controllers share. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Newborn {
    /// The version at which nobody had launched the PE.
    unlaunched: Remembered<u64>,
    term: Term,
}

impl Newborn {
    /// Of the PEs of this mirror, while the term lasts.
    pub(crate) fn of(mirror: &Watch<ProcessingElement>, term: Term) -> Self {
        let unlaunched = Remembered::default();
        unlaunched.end_with(mirror);
        Self { unlaunched, term }
    }

    /// The API server has answered a write of its spec with this PE.
    pub(crate) fn note(&self, pe: &ProcessingElement) {
        let is_launched = pe.status.as_ref().is_some_and(|status| status.launch_count > 0);
        if let Some(version) = version(pe).filter(|_| !is_launched) {
            self.unlaunched.keep(&Key::of(pe), pe.uid().as_deref().unwrap_or_default(), version);
        }
    }

    /// Whether nobody can have launched this PE, which is as new as the mirror has it, and which has no launch.
    pub(crate) fn has(&self, pe: &ProcessingElement) -> bool {
        let uid = pe.uid().unwrap_or_default();
        let noted = self.unlaunched.find(&Key::of(pe), &uid, |version| *version);
        // An older one may lack what was written since.
        noted.is_some_and(|noted| Some(noted) <= version(pe)) && self.term.lasts()
    }

    /// The status of the PE is about to be written.
    pub(crate) fn forget(&self, pe: &ProcessingElement) {
        self.unlaunched.forget(&Key::of(pe), pe.uid().as_deref().unwrap_or_default());
    }

    /// PEs that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.unlaunched.len()
    }
}

fn version(pe: &ProcessingElement) -> Option<u64> {
    pe.resource_version()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::INDEXES;
    use streams_api::{ProcessingElementSpec, ProcessingElementStatus};

    fn pe(uid: &str, version: &str, launches: Option<u64>) -> ProcessingElement {
        let mut pe = ProcessingElement::new("flow-3", ProcessingElementSpec::default());
        pe.metadata.namespace = Some("n".to_owned());
        pe.metadata.uid = Some(uid.to_owned());
        pe.metadata.resource_version = Some(version.to_owned());
        pe.status = launches.map(|launch_count| ProcessingElementStatus { launch_count, ..Default::default() });
        pe
    }

    #[test]
    fn a_pe_is_newborn_until_its_status_is_written_while_the_process_leads() {
        // as it was answered, as the mirror has it, the term lasts -> newborn
        let table = [
            (pe("a", "7", None), pe("a", "7", None), true, true),
            (pe("a", "7", Some(0)), pe("a", "8", None), true, true),
            (pe("a", "7", None), pe("a", "6", None), true, false),
            (pe("a", "7", None), pe("b", "8", None), true, false),
            (pe("a", "7", Some(1)), pe("a", "7", None), true, false),
            (pe("a", "7", None), pe("a", "7", None), false, false),
        ];
        for (answered, mirrored, lasts, expected) in table {
            let term = if lasts { Term::endless() } else { Term::default() };
            let newborn = Newborn::of(&Watch::filled(&INDEXES, []), term);
            newborn.note(&answered);
            assert_eq!(newborn.has(&mirrored), expected, "{answered:?} {mirrored:?}");
            newborn.forget(&pe("another", "9", None));
            assert_eq!(newborn.has(&mirrored), expected, "it is the PE of the uid that is forgotten");
            newborn.forget(&answered);
            assert!(!newborn.has(&mirrored));
        }
    }

    #[test]
    fn what_leaves_the_mirror_is_forgotten() {
        let mirror = Watch::filled(&INDEXES, [pe("a", "7", None)]);
        let newborn = Newborn::of(&mirror, Term::endless());
        newborn.note(&pe("a", "7", None));
        mirror.remove(&Key::new("n", "flow-3"));
        assert_eq!(newborn.len(), 0);
    }
}
