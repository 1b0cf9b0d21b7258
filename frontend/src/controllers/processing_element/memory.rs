//! The memory of the controller between two reconciles. It is safe to lose.

use super::observed::ObservedPod;
use super::pod_status;
use crate::mirrors::{Mirrors, pe_of};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::watch::Departure;

/// The last state of the newest pod of each PE. A pod may end and be deleted between two reconciles; then only this
/// state says how it ended (rule pe-9). Every replica keeps it, whether it leads or not: the next leader knows what
/// happened before it led.
///
/// Without it, a pod that is gone counts as lost.
#[derive(Debug, Default)]
pub struct LastSeen {
    by_pe: Mutex<HashMap<Key, SeenPod>>,
    absences: Mutex<HashMap<Key, Absence>>,
}

/// Since when the pod of a launch is known to be absent.
#[derive(Clone, Debug)]
struct Absence {
    owner: String,
    launch_count: u64,
    since: Timestamp,
}

/// A pod as it was seen last.
#[derive(Clone, Debug)]
pub(crate) struct SeenPod {
    owner: String,
    /// Its last state.
    pub(crate) pod: ObservedPod,
    /// The API server has told of its deletion.
    pub(crate) deletion_seen: bool,
}

impl LastSeen {
    /// A memory that hears of the pods of these mirrors from now on.
    pub fn of(mirrors: &Mirrors) -> Arc<Self> {
        let seen = Arc::new(Self::default());
        seen.follow(mirrors);
        seen
    }

    /// Hears of the pods of these mirrors from now on. What belongs to a PE is kept until the PE is deleted.
    pub(crate) fn follow(self: &Arc<Self>, mirrors: &Mirrors) {
        let seen = Arc::clone(self);
        mirrors.pods.subscribe(move |pod| seen.note(pod, false));
        let seen = Arc::clone(self);
        mirrors.pods.subscribe_to_departures(move |pod, departure| seen.note(pod, departure == Departure::Deleted));
        let seen = Arc::clone(self);
        mirrors.processing_elements.subscribe_to_departures(move |pe, _| seen.forget(&Key::of(pe)));
    }

    /// Remembers the state of a pod, and that its deletion was told.
    fn note(&self, pod: &Pod, deleted: bool) {
        let mut owners = pod.owner_references().iter().filter(|owner| owner.controller == Some(true));
        let (Some(pe), Some(owner)) = (pe_of(pod), owners.next()) else { return };
        let mut by_pe = self.lock();
        let pod = pod_status::read(pod);
        let before = by_pe.get(&pe);
        if before.is_some_and(|seen| seen.owner == owner.uid && seen.pod.launch_count > pod.launch_count) {
            return;
        }
        let deletion_seen = deleted || before.is_some_and(|seen| seen.deletion_seen && seen.pod.uid == pod.uid);
        by_pe.insert(pe, SeenPod { owner: owner.uid.clone(), pod, deletion_seen });
    }

    /// The pod of a launch of this PE; the one with this uid if it is known.
    pub(crate) fn pod(&self, pe: &Key, uid: &str, launch_count: u64, pod_uid: Option<&str>) -> Option<SeenPod> {
        let by_pe = self.lock();
        let seen = by_pe.get(pe)?;
        let pod = &seen.pod;
        let is_it = seen.owner == uid && pod.launch_count == launch_count && pod_uid.is_none_or(|uid| pod.uid == uid);
        is_it.then(|| seen.clone())
    }

    /// The pod of a launch does not exist `now`. Returns since when this is known.
    pub(crate) fn absent_since(&self, pe: &Key, uid: &str, launch_count: u64, now: Timestamp) -> Timestamp {
        let mut absences = self.absences.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = absences.get(pe).filter(|known| known.owner == uid && known.launch_count == launch_count) {
            return known.since;
        }
        absences.insert(pe.clone(), Absence { owner: uid.to_owned(), launch_count, since: now });
        now
    }

    /// The PE is gone.
    pub(crate) fn forget(&self, pe: &Key) {
        self.lock().remove(pe);
        self.absences.lock().unwrap_or_else(PoisonError::into_inner).remove(pe);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, SeenPod>> {
        // Every change is one call.
        self.by_pe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// PEs as the controller wrote them last, until the mirror has caught up. A decision by an older state would only end
/// in a conflict.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    by_pe: Mutex<HashMap<Key, ProcessingElement>>,
}

impl OwnWrites {
    /// Remembers the PE as the API server answered the write.
    pub(crate) fn note(&self, key: &Key, pe: &ProcessingElement) {
        self.lock().insert(key.clone(), pe.clone());
    }

    /// The newer of two states of the PE: that of the mirror, and that of the last write.
    pub(crate) fn newer(&self, key: &Key, mirrored: &ProcessingElement) -> ProcessingElement {
        let mut by_pe = self.lock();
        match by_pe.get(key) {
            Some(written) if written.uid() == mirrored.uid() && version(written) > version(mirrored) => written.clone(),
            Some(_) => {
                by_pe.remove(key);
                mirrored.clone()
            }
            None => mirrored.clone(),
        }
    }

    /// The PE is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, ProcessingElement>> {
        // Every change is one call.
        self.by_pe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Versions of one kind grow. One that is no number is older than every other, so that the mirror is believed.
fn version(pe: &ProcessingElement) -> Option<u64> {
    pe.resource_version()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use streams_api::{ProcessingElementSpec, names};

    fn pod(launch_count: u64, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": "flow-3-x", "uid": "u",
                "labels": {
                    names::LABEL_JOB: "flow", names::LABEL_PE: "3", names::LABEL_LAUNCH_COUNT: launch_count.to_string(),
                },
                "ownerReferences": [{
                    "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "name": "flow-3", "uid": "p",
                    "controller": true,
                }],
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn what_was_seen_last_of_the_newest_pod_is_kept_until_the_pe_is_gone() {
        let (seen, key) = (LastSeen::default(), Key::new("n", "flow-3"));
        for (launch_count, phase) in [(4, "Running"), (4, "Failed"), (3, "Running")] {
            seen.note(&pod(launch_count, phase), false);
        }
        let found = |uid, launch_count, pod_uid| seen.pod(&key, uid, launch_count, pod_uid);
        assert!(found("p", 4, Some("u")).unwrap().pod.has_failed());
        assert!(!found("p", 4, None).unwrap().deletion_seen);
        assert!(found("p", 4, Some("another of its name")).is_none());
        assert!(found("p", 3, None).is_none());
        assert!(found("another uid", 4, None).is_none());
        // The mirror tells the state before once more.
        seen.note(&pod(4, "Failed"), true);
        seen.note(&pod(4, "Failed"), false);
        assert!(found("p", 4, None).unwrap().deletion_seen);
        let at = |second| Timestamp::from_second(second).unwrap();
        // launch count, now -> absent since
        for (launch_count, now, since) in [(4, 10, 10), (4, 12, 10), (5, 13, 13)] {
            assert_eq!(seen.absent_since(&key, "p", launch_count, at(now)), at(since));
        }
        seen.forget(&key);
        assert!(found("p", 4, None).is_none());
        assert_eq!(seen.absent_since(&key, "p", 5, at(20)), at(20));
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
