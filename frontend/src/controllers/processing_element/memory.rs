//! The memory of the controller between two reconciles. It is safe to lose.

use super::{observed, pod_status};
use crate::mirrors::pe_of;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use streams_api::ProcessingElement;
use streams_kubernetes::Key;

/// The last state of the newest pod of each PE. A pod may end and be deleted between two reconciles; then only this
/// state says how it ended.
///
/// Without it, a pod that is gone counts as deleted, or as lost if its node is gone, too.
#[derive(Debug, Default)]
pub(crate) struct LastSeen {
    by_pe: Mutex<HashMap<Key, Seen>>,
}

#[derive(Clone, Debug)]
struct Seen {
    owner: String,
    pod: observed::ObservedPod,
}

impl LastSeen {
    /// Remembers the state of a pod.
    pub(crate) fn note(&self, pod: &Pod) {
        let mut owners = pod.owner_references().iter().filter(|owner| owner.controller == Some(true));
        let (Some(pe), Some(owner)) = (pe_of(pod), owners.next()) else { return };
        let mut by_pe = self.lock();
        let launch_count = pod_status::launch_count(pod);
        let newer = by_pe.get(&pe).is_none_or(|seen| seen.owner != owner.uid || seen.pod.launch_count <= launch_count);
        if newer {
            by_pe.insert(pe, Seen { owner: owner.uid.clone(), pod: pod_status::read(pod) });
        }
    }

    /// The pod of a launch of this PE; the one with this uid if it is known.
    pub(crate) fn pod(
        &self,
        pe: &Key,
        uid: &str,
        launch_count: u64,
        pod_uid: Option<&str>,
    ) -> Option<observed::ObservedPod> {
        let by_pe = self.lock();
        let Seen { owner, pod } = by_pe.get(pe)?;
        let is_it = owner == uid && pod.launch_count == launch_count && pod_uid.is_none_or(|uid| pod.uid == uid);
        is_it.then(|| pod.clone())
    }

    /// The PE is gone.
    pub(crate) fn forget(&self, pe: &Key) {
        self.lock().remove(pe);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Seen>> {
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
            seen.note(&pod(launch_count, phase));
        }
        assert!(seen.pod(&key, "p", 4, Some("u")).unwrap().has_failed());
        assert!(seen.pod(&key, "p", 4, None).is_some());
        assert_eq!(seen.pod(&key, "p", 4, Some("another of its name")), None);
        assert_eq!(seen.pod(&key, "p", 3, None), None);
        assert_eq!(seen.pod(&key, "another uid", 4, None), None);
        seen.forget(&key);
        assert_eq!(seen.pod(&key, "p", 4, None), None);
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
