//! Decides which pods to delete (rules pe-11 and pe-22).

use super::super::facts::{recorded, was_created};
use super::super::observed::{ObservedPod, PeObservation};
use std::cmp::Reverse;
use streams_api::{DeletedBy, TerminationOutcome};

/// Failed pods that are kept per PE, for people who want to look at them.
const KEPT: usize = 3;

/// A pod to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// Name of the pod.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
}

/// The pods to delete, by what the status records:
/// * the failed pod of the launch count, once the status says that it is to be deleted; so, too, one that other
///   containers keep (rule pe-26), and one that may run while the job is suspended (rule pe-19), or was stopped (rule
///   pe-21);
/// * older pods, unless they are among the newest failed ones that are kept. Those that may still run are spared while
///   their successor cannot be created (`blocked`);
/// * what an earlier PE object of the name has left behind (rule pe-22), unless it is spared like that.
pub(super) fn deletions(observed: &PeObservation, blocked: bool) -> Vec<Deletion> {
    let status = &observed.status;
    let condemned = recorded(status).is_some_and(|last| last.deleted_by == Some(DeletedBy::Controller));
    let told = [TerminationOutcome::Suspended, TerminationOutcome::Stopped];
    let is_told_to_go = recorded(status).is_some_and(|last| told.contains(&last.outcome));
    let is_of_no_use = |pod: &ObservedPod| is_told_to_go || pod.has_failed() || pod.lingers();
    let goes = |pod: &ObservedPod| pod.launch_count == status.launch_count && condemned && is_of_no_use(pod);
    let is_left = |pod: &&ObservedPod| pod.has_failed() && !pod.lingers() && !goes(pod);
    let mut failed: Vec<&ObservedPod> = observed.pods.iter().filter(is_left).collect();
    failed.sort_by_key(|pod| Reverse(pod.launch_count));
    let kept = if observed.wanted.policies.delete_failed { 0 } else { KEPT };
    let kept: Vec<&str> = failed.iter().take(kept).map(|pod| pod.uid.as_str()).collect();
    let blocked = blocked && !observed.job.is_suspended() && !status.stopped;
    let spared = |pod: &ObservedPod| blocked && !was_created(status) && pod.may_run(observed.now);
    let superseded =
        |pod: &ObservedPod| pod.launch_count < status.launch_count && !kept.contains(&pod.uid.as_str()) && !spared(pod);
    let mut pods: Vec<&ObservedPod> =
        observed.pods.iter().filter(|pod| !pod.is_deleting() && (goes(pod) || superseded(pod))).collect();
    pods.extend(observed.predecessors.iter().filter(|pod| pod.left_behind && !pod.is_deleting() && !blocked));
    pods.sort_by_key(|pod| pod.launch_count);
    pods.into_iter().map(|pod| Deletion { name: pod.name.clone(), uid: pod.uid.clone() }).collect()
}
