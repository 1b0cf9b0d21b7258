//! What the controller remembers of its own calls between two reconciles. It is safe to lose.
//!
//! Knows: PEs as they were written, refusals that were told, pods that were deleted. Must not know: how pods ended.

use super::decide::Deletion;
use crate::controllers::remembered::Remembered;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::time::Duration;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Watch, version};

/// How long a deletion counts while the mirror shows that the pod stays. One that takes longer is deleted once more
/// when its PE is looked at.
pub(super) const DELETION_COUNTS: Duration = Duration::from_secs(30);
/// How long a refusal counts as told, whatever its words.
const TOLD_FOR: Duration = Duration::from_secs(60);

/// PEs as the controller wrote them last, until the mirror has caught up. A decision by an older state would only end
/// in a conflict.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    by_pe: Remembered<ProcessingElement>,
}

impl OwnWrites {
    /// A memory that forgets a PE when it leaves this mirror.
    pub(crate) fn of(mirror: &Watch<ProcessingElement>) -> Self {
        let own = Self::default();
        own.by_pe.end_with(mirror);
        own
    }

    /// Remembers the PE as the API server answered the write.
    pub(crate) fn note(&self, key: &Key, pe: &ProcessingElement) {
        self.by_pe.keep(key, pe.uid().as_deref().unwrap_or_default(), pe.clone());
    }

    /// The newer of two states of the PE: that of the mirror, and that of the last write.
    pub(crate) fn newer(&self, key: &Key, mirrored: &ProcessingElement) -> ProcessingElement {
        let uid = mirrored.uid().unwrap_or_default();
        let written = self.by_pe.find(key, &uid, |written| written.clone());
        // One whose version is no number is older than every other, so that the mirror is believed.
        let is_newer = |written: &ProcessingElement| version(&written.metadata) > version(&mirrored.metadata);
        if let Some(written) = written.filter(is_newer) {
            return written;
        }
        self.by_pe.forget_all_of(key);
        mirrored.clone()
    }

    /// There is no PE of this name.
    pub(crate) fn forget(&self, key: &Key) {
        self.by_pe.forget_all_of(key);
    }

    /// PEs that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_pe.len()
    }
}

/// When it was told last that the API server refuses something of a PE: words that change each time are not told each
/// time. Whatever is written of a PE brings the next look at it, and with it the next try.
#[derive(Debug, Default)]
pub(crate) struct ToldRefusals {
    /// How much time had passed then.
    by_pe: Remembered<Duration>,
}

impl ToldRefusals {
    /// A memory that forgets a PE when it leaves this mirror.
    pub(crate) fn of(mirror: &Watch<ProcessingElement>) -> Self {
        let told = Self::default();
        told.by_pe.end_with(mirror);
        told
    }

    /// It was told a while ago, and not longer.
    pub(crate) fn is_told(&self, pe: &Key, uid: &str, passed: Duration) -> bool {
        self.by_pe.find(pe, uid, |told| passed.saturating_sub(*told) < TOLD_FOR).unwrap_or(false)
    }

    /// It is told now.
    pub(crate) fn tell(&self, pe: &Key, uid: &str, passed: Duration) {
        self.by_pe.keep(pe, uid, passed);
    }

    /// There is no PE of this name.
    pub(crate) fn forget(&self, pe: &Key) {
        self.by_pe.forget_all_of(pe);
    }

    /// PEs of which something is kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_pe.len()
    }
}

/// Pods whose deletion the API server has answered, as long as the mirror may not show that they go: they are not
/// deleted once more (rule pe-11).
#[derive(Debug, Default)]
pub(crate) struct DeletedPods {
    /// Uids of the pods, and how much time had passed when each was deleted.
    by_pe: Remembered<BTreeMap<String, Duration>>,
}

impl DeletedPods {
    /// A memory that forgets the pods of a PE when it leaves this mirror.
    pub(crate) fn of(mirror: &Watch<ProcessingElement>) -> Self {
        let deleted = Self::default();
        deleted.by_pe.end_with(mirror);
        deleted
    }

    /// Those that are still to be deleted, of all pods that are seen to stay although they should not. Nothing is kept
    /// of others.
    pub(crate) fn not_going<'a>(
        &self,
        pe: &Key,
        uid: &str,
        deletions: &'a [Deletion],
        passed: Duration,
    ) -> Vec<&'a Deletion> {
        let is_known = |uid: &String| deletions.iter().any(|deletion| deletion.uid == *uid);
        let counts = |at: &Duration| passed.saturating_sub(*at) < DELETION_COUNTS;
        let going = self.by_pe.find(pe, uid, |going| {
            going.retain(|pod, at| is_known(pod) && counts(at));
            going.clone()
        });
        if going.as_ref().is_some_and(BTreeMap::is_empty) {
            self.by_pe.forget(pe, uid);
        }
        let going = going.unwrap_or_default();
        deletions.iter().filter(|deletion| !going.contains_key(&deletion.uid)).collect()
    }

    /// The API server has answered that the pod is deleted.
    pub(crate) fn note(&self, pe: &Key, uid: &str, pod: &str, passed: Duration) {
        self.by_pe.with(pe, uid, BTreeMap::new, |going| {
            going.insert(pod.to_owned(), passed);
        });
    }

    /// There is no PE of this name.
    pub(crate) fn forget(&self, pe: &Key) {
        self.by_pe.forget_all_of(pe);
    }

    /// PEs of whose pods something is kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_pe.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::ProcessingElementSpec;

    #[test]
    fn a_pod_is_deleted_once_unless_the_mirror_never_shows_it() {
        let (deleted, key) = (DeletedPods::default(), Key::new("n", "flow-3"));
        let seen_to_stay = |pods: &[&str]| -> Vec<Deletion> {
            pods.iter().map(|uid| Deletion { name: "flow-3-x".to_owned(), uid: (*uid).to_owned() }).collect()
        };
        // second, uid of the PE, pods that are seen to stay -> those that are deleted, PEs of which something is kept
        let table: [(u64, &str, &[&str], &[&str], usize); 7] = [
            (0, "p", &["a"], &["a"], 1),
            (1, "p", &["a", "b"], &["b"], 1),
            (2, "p", &["a", "b"], &[], 1),
            (29, "p", &["b"], &[], 1),
            (31, "p", &["b"], &["b"], 1),
            (31, "another uid", &["b"], &["b"], 1),
            (32, "another uid", &[], &[], 0),
        ];
        for (second, uid, pods, expected, kept) in table {
            let (deletions, passed) = (seen_to_stay(pods), Duration::from_secs(second));
            let found = deleted.not_going(&key, uid, &deletions, passed);
            assert_eq!(found.iter().map(|found| found.uid.as_str()).collect::<Vec<_>>(), expected, "{second}");
            found.into_iter().for_each(|pod| deleted.note(&key, uid, &pod.uid, passed));
            assert_eq!(deleted.len(), kept, "{second}");
        }
    }

    #[test]
    fn the_newer_one_counts() {
        let pe = |uid: &str, version: &str| {
            let mut pe = ProcessingElement::new("flow-3", ProcessingElementSpec::default());
            pe.metadata.uid = Some(uid.to_owned());
            pe.metadata.resource_version = Some(version.to_owned());
            pe
        };
        // written, mirrored -> the written one counts
        let table = [
            (("a", "10"), ("a", "9"), true),
            (("a", "10"), ("a", "10"), false),
            (("a", "10"), ("a", "11"), false),
            (("a", "10"), ("b", "9"), false),
            (("a", "x"), ("a", "9"), false),
        ];
        for (written, mirrored, counts) in table {
            let (own, key) = (OwnWrites::default(), Key::new("n", "flow-3"));
            own.note(&key, &pe(written.0, written.1));
            let mirrored = pe(mirrored.0, mirrored.1);
            let newer = own.newer(&key, &mirrored);
            assert_eq!(newer == mirrored, !counts, "{written:?}");
            // Once the mirror has caught up, nothing is remembered.
            assert_eq!(
                own.newer(&key, &pe("a", "1")).resource_version().as_deref() == Some("1"),
                !counts,
                "{written:?}"
            );
        }
    }
}
