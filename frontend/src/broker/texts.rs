//! Which ports the pod of a PE has, as far as the text that it was made from tells (rule import-5).
//!
//! The runtime ends if it is told of one of its own output ports that its text does not have, and nobody listens at an
//! input port that the text of a pod does not have. An object that was not written yet for the committed generation has
//! no port that this generation adds. One that was says what its next pod will have: the pod that runs is replaced a
//! moment later, unless something keeps the next one away.
//!
//! Knows: PE objects, what is recorded of their pods. Must not know: boards, who is told.

use crate::broker::predecessors::Side;
use kube::core::ObjectMeta;
use streams_api::{ProcessingElement, names};

/// Whether the pod was made from another text than the PE has by now.
fn runs_another(element: &ProcessingElement) -> bool {
    let launched = element.status.as_ref().and_then(|status| status.runtime_id.as_ref());
    launched.is_some_and(|launched| *launched != element.spec.runtime_id)
}

/// Whether the text that the PE has by now has this port.
fn lists(element: &ProcessingElement, side: Side, port: u32) -> bool {
    match side {
        Side::Export => element.spec.exported_ports.contains(&port),
        Side::Import => element.spec.input_ports.contains(&port),
    }
}

/// Whether the pod of a PE lacks a port that this generation has added; `has_waited`: it did when this was asked last.
/// A pod that runs another text than the PE has runs an older one, but it is not said of which generation that is. So a
/// port counts for it that is older than the newest text, unless it has been waited for before.
pub(super) fn lacks(element: &ProcessingElement, side: Side, port: u32, since: u64, has_waited: bool) -> bool {
    let is_of_another = has_waited || since >= element.spec.generation;
    !lists(element, side, port) || (is_of_another && runs_another(element))
}

/// Whether it is known which text a pod of this PE runs: what counts of the PE, the pod then has. It is not while the
/// PE is seen as it was before the pod was made, nor of an older pod once the launch of the next one is recorded. Pods
/// of earlier versions that say nothing of their text are taken for known.
pub(crate) fn is_known(pod: &ObjectMeta, element: &ProcessingElement) -> bool {
    let is_recorded = element.status.as_ref().is_some_and(|status| status.launch_of(pod.uid.as_deref()).is_some());
    let told = pod.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_RUNTIME_ID));
    is_recorded || told.is_none_or(|told| *told == element.spec.runtime_id)
}
