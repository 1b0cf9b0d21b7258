//! Computes phase and conditions of a PE (rule pe-14), and what still counts of what its pods have told. Pure.
//!
//! The phase is `Running`, and the condition `Ready` is true, once the pod has been running for
//! `rollout.minReadySeconds` of the job, by the clock of the frontend. A pod that counted as running goes on to,
//! whatever becomes of the option.

use super::facts::{
    LeftBehind, STOPPED, SUSPENDED, blocking, current, how_it_ended, is_restart_permitted, lacks_bundle, obstacle,
    put_off_until, recorded, running_since, was_created,
};
use super::observed::{Explanation, ObservedPod, Obstacle, PeObservation, Stage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use streams_api::{PePhase, ProcessingElementStatus, TerminationOutcome, condition};

/// Reasons why options of the PE permit no pod.
const OF_OPTIONS: [&str; 2] = ["CheckpointVolumeMissing", "CheckpointRepositoryUnknown"];

/// A phase with its reason and message.
struct PhaseSummary {
    phase: PePhase,
    reason: String,
    message: String,
}

fn doing(phase: PePhase, reason: impl Into<String>, message: impl Into<String>) -> PhaseSummary {
    PhaseSummary { phase, reason: reason.into(), message: message.into() }
}

fn waiting(waiting: Obstacle) -> PhaseSummary {
    let phase = match waiting.reason {
        SUSPENDED => PePhase::Suspended,
        STOPPED => PePhase::Stopped,
        _ => PePhase::Waiting,
    };
    doing(phase, waiting.reason, waiting.message)
}

/// Sets phase and conditions in `status`, whose other fields the decision has set.
pub(super) fn describe(observed: &PeObservation, mut status: ProcessingElementStatus) -> ProcessingElementStatus {
    let generation = observed.wanted.object_generation;
    let is_of_another = status.observed_generation != generation;
    status.observed_generation = generation;
    let pod = current(observed, &status).filter(|_| recorded(&status).is_none());
    if let Some(pod) = pod.filter(|_| is_of_another && status.placement_hash.is_none()) {
        // An earlier frontend has not recorded it. That alone is no reason to write all statuses after an upgrade.
        status.placement_hash.clone_from(&pod.placement_hash);
    }
    if let Some(pod) = pod {
        status.node_name.clone_from(&pod.node);
        status.running_since = match &pod.stage {
            Stage::Running(_) => Some(Time(running_since(observed, &status))),
            Stage::Pending(_) | Stage::Unknown | Stage::Ended(_) => status.running_since,
        };
    }
    if let Some(why) = LeftBehind::of(observed) {
        let (kind, reason, words) = (condition::ORPHANED, why.reason(), why.words());
        condition::set(&mut status.conditions, kind, true, reason, words, generation, observed.now);
    } else {
        condition::remove(&mut status.conditions, condition::ORPHANED);
    }
    if let Some((reason, words)) = contention(observed, pod) {
        let kind = condition::CONTENDED;
        condition::set(&mut status.conditions, kind, true, reason, &words, generation, observed.now);
    } else {
        condition::remove(&mut status.conditions, condition::CONTENDED);
    }
    let Some(PhaseSummary { phase, reason, message }) = what(observed, &status, pod) else { return status };
    status.phase = Some(phase);
    if !status.may_wait_for_bundle(observed.now) {
        status.bundle_unavailable = None;
    }
    // After the bundle, which a pod has that has told anything. The launch or the end is written with it (rule
    // pe-api-4).
    if status.connectivity.as_ref().is_some_and(|told| status.is_over(told.launch_count)) {
        status.connectivity = None;
    }
    let ready = phase == PePhase::Running;
    condition::set(&mut status.conditions, condition::READY, ready, &reason, &message, generation, observed.now);
    if let Some((reason, message)) = outdated(observed, &status, pod) {
        let kind = condition::OUTDATED;
        condition::set(&mut status.conditions, kind, true, reason, &message, generation, observed.now);
    } else if observed.template.is_ok() || !has_other_options(&status) {
        condition::remove(&mut status.conditions, condition::OUTDATED);
    }
    status
}

/// Reason and words, if others insist on other metadata of the pod (rule pe-25).
fn contention(observed: &PeObservation, pod: Option<&ObservedPod>) -> Option<(&'static str, String)> {
    if let Some(other) = pod.and_then(|pod| pod.other_controller.as_ref()) {
        let words = format!(
            "metadata.ownerReferences of the pod were changed: {other} controls it, so nobody hears what it says; \
             remove that reference, or restart the PE"
        );
        return Some(("ControlledByOthers", words));
    }
    let contention = observed.contention.as_ref()?;
    let field = &contention.field;
    let words = format!("somebody else changes what the operator sets of the pod: {field}; its managedFields say who");
    Some(("ChangedByOthers", words))
}

/// Whether the pod was made from other options when that could be told last.
fn has_other_options(status: &ProcessingElementStatus) -> bool {
    condition::get(&status.conditions, condition::OUTDATED)
        .is_some_and(|outdated| outdated.reason == condition::OPTIONS_CHANGED)
}

/// Reason and words, if the pod was made from other options than the PE has now, or cannot be replaced (rule pe-12).
fn outdated(
    observed: &PeObservation,
    status: &ProcessingElementStatus,
    pod: Option<&ObservedPod>,
) -> Option<(&'static str, String)> {
    let pod = pod.filter(|pod| pod.end().is_none())?;
    let is_to_be_replaced = status.runtime_id.as_ref() != Some(&observed.wanted.runtime_id);
    match &observed.template {
        Ok(template) if pod.template_hash.as_ref() != Some(&template.hash) => {
            let message = "options changed since the pod was created; they take effect when it is replaced";
            Some((condition::OPTIONS_CHANGED, message.to_owned()))
        }
        // Nobody would hear of it before the pod ends.
        Err(Obstacle { reason, message }) if OF_OPTIONS.contains(reason) => {
            let message = format!("no other pod can be created with the options of the PE as they are: {message}");
            Some((reason, message))
        }
        // The phase says how the pod does that there is.
        Err(Obstacle { reason, message }) if is_to_be_replaced => {
            Some((reason, format!("the pod is to be replaced, and no other one can be created: {message}")))
        }
        Ok(_) | Err(_) => None,
    }
}

/// The phase of the PE. `None` while the API server is asked about its pod.
fn what(observed: &PeObservation, status: &ProcessingElementStatus, pod: Option<&ObservedPod>) -> Option<PhaseSummary> {
    if !was_created(status) {
        return Some(before_creation(observed, status));
    }
    if recorded(status).is_some() {
        return Some(after_the_end(observed, status));
    }
    let pod = pod?;
    if pod.is_deleting() {
        return Some(doing(PePhase::Replacing, "PodTerminating", format!("pod {} is being deleted", pod.name)));
    }
    match &pod.stage {
        Stage::Pending(Explanation { reason, message }) => {
            let reason = if reason.is_empty() { "PodPending" } else { reason };
            let message = if message.is_empty() { "the pod does not run yet" } else { message };
            Some(doing(PePhase::Starting, reason, message))
        }
        Stage::Running(_) => {
            if let Some(missing) = lacks_bundle(observed, status) {
                let message = format!("the pod waits for its bundle: {}", missing.message);
                return Some(doing(PePhase::Starting, &*missing.reason, message));
            }
            let settled = observed.has_settled(running_since(observed, status));
            Some(if settled || counted_as_running(observed, status) {
                doing(PePhase::Running, "Running", "the pod runs")
            } else {
                let seconds = observed.min_ready.as_secs();
                let message = format!("the pod has not been running for {seconds} s yet (rollout.minReadySeconds)");
                doing(PePhase::Starting, condition::SETTLING, message)
            })
        }
        Stage::Unknown => {
            let node = pod.node.as_deref().map_or_else(|| "the node".to_owned(), |node| format!("node {node}"));
            let message = format!("{node} of pod {} does not answer", pod.name);
            Some(doing(PePhase::Starting, "PodUnknown", message))
        }
        Stage::Ended(_) => None,
    }
}

/// Whether the pod of this launch counted as running when the PE was described last.
fn counted_as_running(observed: &PeObservation, status: &ProcessingElementStatus) -> bool {
    let before = &observed.status;
    before.phase == Some(PePhase::Running) && before.launch_count == status.launch_count
}

/// The phase before the pod of the launch is created.
fn before_creation(observed: &PeObservation, status: &ProcessingElementStatus) -> PhaseSummary {
    if let Some(obstacle) = obstacle(observed) {
        return waiting(obstacle);
    }
    if let Some(refusal) = &observed.refusal {
        return waiting(refusal.clone());
    }
    match blocking(observed, status).next() {
        Some(pod) => doing(PePhase::Replacing, "Replacing", format!("waiting for pod {} to end", pod.name)),
        None => doing(PePhase::Starting, "CreatingPod", "the pod is being created"),
    }
}

/// The phase after the end of the pod was recorded.
fn after_the_end(observed: &PeObservation, status: &ProcessingElementStatus) -> PhaseSummary {
    let Some(last) = recorded(status) else { return doing(PePhase::Starting, "Unknown", "") };
    let how = how_it_ended(last);
    let permitted = is_restart_permitted(observed.wanted.policies, last);
    let is_done = last.outcome == TerminationOutcome::Completed && !permitted;
    if let Some(stopped) = obstacle(observed).filter(|obstacle| obstacle.reason == STOPPED && !is_done) {
        return waiting(stopped);
    }
    let comes_back = matches!(last.outcome, TerminationOutcome::Suspended | TerminationOutcome::Stopped);
    if !comes_back && !permitted {
        return match last.outcome {
            TerminationOutcome::Completed => doing(PePhase::Completed, "PodCompleted", how),
            TerminationOutcome::Failed => doing(PePhase::Failed, "PodFailed", how),
            TerminationOutcome::Deleted | TerminationOutcome::Suspended | TerminationOutcome::Stopped => {
                doing(PePhase::Stopped, "PodDeleted", how)
            }
            TerminationOutcome::Lost => doing(PePhase::Failed, "PodEndUnknown", how),
        };
    }
    match (put_off_until(observed.now, status), obstacle(observed)) {
        (_, Some(obstacle)) if obstacle.reason == SUSPENDED => waiting(obstacle),
        (Some(at), _) if at > observed.now => {
            doing(PePhase::BackOff, "BackOff", format!("{how}; the next pod is created at {at}"))
        }
        (_, Some(obstacle)) => waiting(obstacle),
        (_, None) => doing(PePhase::Starting, "Restarting", format!("{how}; another pod is about to be asked for")),
    }
}
