//! Pods of PEs that the job has removed, and whose objects are being deleted and do not go (rule job-16).
//!
//! Kubernetes deletes the pods of a PE after its object, and the PE controller does nothing for a PE that is being
//! deleted (rule pe-16): without this, they would run on, and hold the room that others wait for, as long as finalizers
//! keep the object.
//!
//! Knows: pods as the mirror shows them. Must not know: which PEs are removed, what is done about their pods.

use crate::mirrors::Mirrors;
use crate::pods_of_pe;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;

/// The pods that Kubernetes is to delete with the PE of this key, if that is being deleted: those of them that nobody
/// deletes. A pod that the PE does not control goes with nothing (rule pe-22).
pub(crate) fn pods_left(mirrors: &Mirrors, pe: &Key) -> Vec<Arc<Pod>> {
    if mirrors.pods_of_pe(pe).is_empty() {
        return Vec::new();
    }
    let object = mirrors.processing_elements.get(pe);
    let Some(object) = object.filter(|object| object.metadata.deletion_timestamp.is_some()) else { return Vec::new() };
    let is_left =
        |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_none() && is_controlled_by(&pod.metadata, &*object);
    pods_of_pe::read(mirrors, pe, &object).filter(is_left).collect()
}
