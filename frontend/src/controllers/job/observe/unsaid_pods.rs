//! First pods that run although their PEs have not said so yet (rule pe-20): a roll-out takes them down like any others
//! (rule job-49).
//!
//! Knows: pods as the mirror shows them. Must not know: why PEs say nothing, what a roll-out does next.

use crate::controllers::job::observed::{Children, DesiredGeneration, ObservedPe, must_move};
use crate::mirrors::Mirrors;
use crate::pods_of_pe;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use std::sync::Arc;
use streams_api::{JobStatus, ProcessingElement, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;

/// Adds them to the PEs that the committed generation has from before, as long as it is being rolled out: only then is
/// it of interest. PEs whose first pods are yet to come may be thousands, so nothing is read of one without a pod.
pub(super) fn add_to(
    children: &mut Children,
    mirrors: &Mirrors,
    job: &Key,
    status: &JobStatus,
    committed: Option<&DesiredGeneration>,
) {
    let rolls_out = status.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_none());
    let Some(wanted) = committed.filter(|wanted| rolls_out && wanted.generation > 0) else { return };
    for (id, _) in wanted.processing_elements.iter().filter(|(_, pe)| !pe.is_new) {
        let current = children.processing_elements.get_mut(id).filter(|current| !current.launched);
        if let Some(current) = current
            && let Some((pe, pod)) = running(mirrors, &job.sibling(&names::processing_element(&job.name, *id)))
        {
            show(current, &pe, &pod);
        }
    }
}

/// The PE and its pod, if that runs and is to stay.
fn running(mirrors: &Mirrors, key: &Key) -> Option<(Arc<ProcessingElement>, Arc<Pod>)> {
    let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
    if mirrors.pods_of_pe(key).is_empty() {
        return None;
    }
    let pe = mirrors.processing_elements.get(key)?;
    let of_pe = |pod: &Pod| is_controlled_by(&pod.metadata, &*pe);
    let pod = pods_of_pe::read(mirrors, key, &pe).find(|pod| runs(pod) && stays(pod) && of_pe(pod))?;
    Some((pe, pod))
}

/// The PE as if it had said of its pod that it runs, but for whether it has been running for long enough.
fn show(current: &mut ObservedPe, pe: &ProcessingElement, pod: &Pod) {
    let annotation = |key: &str| pod.annotations().get(key).cloned();
    current.has_running_pod = true;
    current.runtime_id = annotation(names::ANNOTATION_RUNTIME_ID);
    current.pod_placement_hash = annotation(names::ANNOTATION_PLACEMENT_HASH);
    let has_same_text = current.runtime_id.as_ref() == Some(&pe.spec.runtime_id);
    let must_move = must_move(current.pod_placement_hash.as_ref(), pe.spec.placement_hash.as_ref());
    current.runs_another = !has_same_text || must_move;
}
