//! PEs of which this process knows how often they were launched, without asking (rule pe-1).
//!
//! Before a pod is created, the API server is asked for the PE, because a mirror may lag behind what another leader has
//! written: that the pod was created already, and has ended. The answer is known if this process has led ever since
//! * it created the PE, or was told when it wrote or read it that it was not launched, and has not recorded a launch;
//!   it recreates a PE that somebody deleted only once the mirror shows that it is gone;
//! * or it recorded the launch whose pod is to be created, and did not only find it recorded.
//!
//! A PE is kept until its status is about to be written or it leaves the mirror. Without it, the API server is asked.
//! One whose creation is answered after it has left the mirror is kept until one of its name leaves: it makes nothing
//! known of that one, which has another uid.
//!
//! Knows: PEs as the API server answered calls of this process, the term of the leader. Must not know: pods.

use super::remembered::Remembered;
use kube::ResourceExt;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::watch::{Watch, version};

/// What both controllers share. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct KnownLaunches {
    /// The version at which the launches of the PE were known.
    known_at: Remembered<u64>,
    term: Term,
}

impl KnownLaunches {
    /// Of the PEs of this mirror, while the term lasts.
    pub(crate) fn of(mirror: &Watch<ProcessingElement>, term: Term) -> Self {
        let known_at = Remembered::default();
        known_at.end_with(mirror);
        Self { known_at, term }
    }

    /// The API server has answered a write of its spec with this PE, or a read because one of its name was there. If it
    /// was launched, the status may be written at the same time.
    pub(crate) fn note_applied(&self, pe: &ProcessingElement) {
        let is_launched = pe.status.as_ref().is_some_and(|status| status.launch_count > 0);
        if !is_launched {
            self.keep(pe);
        }
    }

    /// The API server has answered a write of its status with this PE. Only a launch whose pod is still to be created
    /// is worth to be known.
    pub(crate) fn note_recorded(&self, pe: &ProcessingElement) {
        let is_awaited = pe.status.as_ref().is_some_and(|status| status.launch_count > status.created_launch_count);
        if is_awaited {
            self.keep(pe);
        }
    }

    fn keep(&self, pe: &ProcessingElement) {
        let version = version(&pe.metadata);
        // One that is no number says nothing of what is newer.
        if version > 0 {
            self.known_at.keep(&Key::of(pe), pe.uid().as_deref().unwrap_or_default(), version);
        }
    }

    /// Whether this PE, which is as new as it is known to this process, has all its launches.
    pub(crate) fn has(&self, pe: &ProcessingElement) -> bool {
        let uid = pe.uid().unwrap_or_default();
        let known_at = self.known_at.find(&Key::of(pe), &uid, |version| *version);
        // An older one may lack what was written since.
        known_at.is_some_and(|known_at| known_at <= version(&pe.metadata)) && self.term.lasts()
    }

    /// The status of the PE is about to be written.
    pub(crate) fn forget(&self, pe: &ProcessingElement) {
        self.known_at.forget(&Key::of(pe), pe.uid().as_deref().unwrap_or_default());
    }

    /// There is no PE of this name.
    pub(crate) fn forget_all_of(&self, pe: &Key) {
        self.known_at.forget_all_of(pe);
    }

    /// PEs that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known_at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use streams_api::{ProcessingElementSpec, ProcessingElementStatus};

    /// With these launches: asked for, created.
    fn pe(uid: &str, version: &str, launches: Option<(u64, u64)>) -> ProcessingElement {
        let mut pe = ProcessingElement::new("flow-3", ProcessingElementSpec::default());
        pe.metadata.namespace = Some("n".to_owned());
        pe.metadata.uid = Some(uid.to_owned());
        pe.metadata.resource_version = Some(version.to_owned());
        pe.status = launches.map(|(launch_count, created_launch_count)| ProcessingElementStatus {
            launch_count,
            created_launch_count,
            ..Default::default()
        });
        pe
    }

    #[test]
    fn launches_are_known_until_the_status_is_written_while_the_process_leads() {
        // as it was answered, as it is known now, the term lasts -> known after a write of the spec, of the status
        let table = [
            (pe("a", "7", None), pe("a", "7", None), true, [true, false]),
            (pe("a", "7", Some((0, 0))), pe("a", "8", None), true, [true, false]),
            (pe("a", "7", None), pe("a", "6", None), true, [false, false]),
            (pe("a", "7", None), pe("b", "8", None), true, [false, false]),
            (pe("a", "7", Some((1, 1))), pe("a", "7", None), true, [false, false]),
            (pe("a", "7", Some((2, 1))), pe("a", "7", Some((2, 1))), true, [false, true]),
            (pe("a", "7", Some((2, 1))), pe("a", "6", Some((1, 1))), true, [false, false]),
            (pe("a", "7", Some((2, 1))), pe("a", "7", Some((2, 1))), false, [false, false]),
            (pe("a", "7", None), pe("a", "7", None), false, [false, false]),
        ];
        for (answered, now, lasts, expected) in table {
            let known = [KnownLaunches::note_applied, KnownLaunches::note_recorded].map(|note| {
                let term = if lasts { Term::endless() } else { Term::default() };
                let known = KnownLaunches::of(&Watch::filled(indexes(), []), term);
                note(&known, &answered);
                let has = known.has(&now);
                known.forget(&pe("another", "9", None));
                assert_eq!(known.has(&now), has, "it is the PE of the uid that is forgotten");
                known.forget(&answered);
                assert!(!known.has(&now));
                has
            });
            assert_eq!(known, expected, "{answered:?} {now:?}");
        }
    }

    #[test]
    fn what_leaves_the_mirror_is_forgotten() {
        let mirror = Watch::filled(indexes(), [pe("a", "7", None)]);
        let known = KnownLaunches::of(&mirror, Term::endless());
        known.note_applied(&pe("a", "7", None));
        mirror.remove(&Key::new("n", "flow-3"));
        assert_eq!(known.len(), 0);
    }
}
