//! Names of the pods of a PE, and which pods that look like them are read (rules name-4 and call-24).
//!
//! Anybody who may create pods in a namespace can give the labels of a PE to thousands of them, and reading one costs
//! more than all that is asked of it. Names are known without reading, and those of launches cannot be guessed before
//! the PE is there; so the pods that the mirror shows are read by them. Those of an earlier PE of the name, which the
//! API server is asked for when a PE was made again, are found by labels: they are read in small pages, as there may be
//! as many such looks at a time as calls, and few are kept.
//!
//! Knows: names of pods, and which launches are the last ones of a PE. Must not know: what a pod is asked for.
//!
//! Invariant: a look at a PE reads [`READ_MAX`] pods of the mirror at most, and those of its last launches before all
//! others.

use crate::mirrors::Mirrors;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;

/// So many pods are read of the mirror in one look at a PE, and kept of an answer of the API server.
pub(crate) const READ_MAX: usize = 64;
/// Digits of what tells the pods of a PE from each other.
const DIGITS: usize = 10;
/// The launch of a PE that begins.
pub(crate) const FIRST_LAUNCH: u64 = 1;

/// Name of the pod of a PE for a launch.
pub(crate) fn name(pe_name: &str, pe_uid: &str, launch_count: u64) -> String {
    let digest = hex::encode(Sha256::digest(format!("{pe_uid}/{launch_count}")));
    format!("{pe_name}-{}", digest.get(..DIGITS).unwrap_or_default())
}

/// Whether a PE of this name gives such names to its pods. A copy that somebody makes of a pod has another one.
pub(crate) fn is_name(name: &str, pe_name: &str) -> bool {
    let digits = name.strip_prefix(pe_name).and_then(|rest| rest.strip_prefix('-')).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The pods that the PE controls, or whose labels name it: those of its last launches first, then whatever else has a
/// name like them, then others. `key` is that of the PE.
pub(crate) fn read(mirrors: &Mirrors, key: &Key, pe: &ProcessingElement) -> impl Iterator<Item = Arc<Pod>> + use<> {
    let mut pods = mirrors.pods_of_pe(key);
    if pods.len() > 1 {
        let uid = pe.uid().unwrap_or_default();
        let launches = pe.status.as_ref().map_or([FIRST_LAUNCH; 3], |status| {
            let created = status.created_launch_count;
            [status.launch_count, created, created.saturating_sub(1)]
        });
        let last = launches.map(|launch| name(&key.name, &uid, launch.max(FIRST_LAUNCH)));
        pods.sort_by_cached_key(|(pod, _)| match &*pod.name {
            pod if last.iter().any(|name| name == pod) => 0,
            pod if is_name(pod, &key.name) => 1,
            _ => 2,
        });
    }
    pods.into_iter().take(READ_MAX).filter_map(|(_, pod)| pod.read())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::LateMirrors;
    use serde_json::json;
    use streams_api::{ProcessingElementSpec, ProcessingElementStatus, names};
    use streams_kubernetes_fake::Server;

    #[test]
    fn the_name_of_a_pod_follows_from_the_pe_and_the_launch_count() {
        assert_eq!(name("flow-3", "uid", 1), name("flow-3", "uid", 1));
        let names =
            [name("flow-3", "uid", 1), name("flow-3", "uid", 2), name("flow-3", "other", 1), name("flow-3", "uid", 11)];
        for (index, one) in names.iter().enumerate() {
            assert!(one.starts_with("flow-3-") && one.len() == "flow-3-".len() + DIGITS);
            assert!(names.iter().skip(index + 1).all(|other| other != one));
        }
    }

    #[test]
    fn pods_of_the_last_launches_are_read_whatever_else_has_the_labels_of_a_pe() {
        let spec = ProcessingElementSpec { job_name: "flow".to_owned(), id: 3, ..ProcessingElementSpec::default() };
        let mut pe = ProcessingElement::new("flow-3", spec);
        pe.metadata.uid = Some("p".to_owned());
        pe.status = Some(ProcessingElementStatus {
            launch_count: 12,
            created_launch_count: 11,
            ..ProcessingElementStatus::default()
        });
        // its launch, or the PE's uid is another one -> the place of its pod among those that are read
        let table = [(("p", 12), true), (("p", 11), true), (("p", 10), true), (("p", 2), false), (("q", 12), false)];
        let server = Server::new();
        let create = |name: &str| {
            let labels = names::pe_labels("flow", 3);
            let metadata = json!({"name": name, "namespace": "n", "labels": labels});
            let pod = json!({"metadata": metadata, "spec": {"containers": []}});
            server.create(&serde_json::from_value::<Pod>(pod).unwrap());
        };
        for number in 0..1_000 {
            create(&format!("flow-3-{number:010x}"));
            create(&format!("a-{number}"));
        }
        table.iter().for_each(|((uid, launch), _)| create(&name("flow-3", uid, *launch)));
        let late = LateMirrors::of(&server);
        let read: Vec<_> =
            super::read(&late.mirrors, &Key::new("n", "flow-3"), &pe).map(|pod| pod.name_any()).collect();
        assert_eq!(read.len(), READ_MAX);
        assert!(read.iter().all(|pod| is_name(pod, "flow-3")));
        for ((uid, launch), expected) in table {
            let place = read.iter().position(|pod| *pod == name("flow-3", uid, launch));
            assert_eq!(place.is_some_and(|place| place < 3), expected, "{uid} {launch}: {place:?}");
        }
    }
}
