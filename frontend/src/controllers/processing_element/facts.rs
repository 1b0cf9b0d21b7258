//! Derives facts from an observation and a status: obstacles, the current pod, its end. Deciding and describing use
//! them. Pure.
//!
//! Knows: names, hashes, states. Must not know: actions.

use super::observed::{ObservedPod, Obstacle, OwnerJob, PeObservation, Policies};
use crate::controllers::times::after;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_api::{DeletedBy, ProcessingElementStatus, Termination, TerminationOutcome, UnavailableBundle, condition};

/// Why no pod may run while the job is suspended.
pub(super) const SUSPENDED: &str = "JobSuspended";

/// Why a PE that a user stopped has no pod.
pub(super) const STOPPED: &str = "StopRequested";

/// Why a PE has no pod yet whose newest text is about to be written.
pub(super) const OUTDATED: &str = "TextOutdated";

/// Longest delay of a restart (rule pe-10).
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(300);

/// Whether a user wants the PE to be stopped (rule pe-21), with this status.
pub(super) fn is_stopped(observed: &PeObservation) -> bool {
    let (requested, status) = (&observed.wanted.stop_requested, &observed.status);
    requested.is_some() && (status.stopped || *requested != status.stop_requested)
}

/// Why no job controls a PE any more that had a pod. One that was made by hand never had one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftBehind {
    /// The job was deleted without it (rule job-29).
    JobDeleted,
    /// The job is there: somebody has removed the owner reference (rule job-30).
    ReferenceRemoved,
}

impl LeftBehind {
    /// `None` if it is not so.
    pub(super) fn of(observed: &PeObservation) -> Option<Self> {
        let why = match observed.job {
            OwnerJob::Missing => Self::JobDeleted,
            OwnerJob::Estranged => Self::ReferenceRemoved,
            OwnerJob::Doubtful | OwnerJob::Deleting | OwnerJob::There { .. } => return None,
        };
        // Somebody else may control it by now.
        let is_so = why == Self::ReferenceRemoved || !observed.wanted.controlled;
        (is_so && observed.status.launch_count > 0).then_some(why)
    }

    /// Whether the PE says so already.
    pub(super) fn is_said(self, status: &ProcessingElementStatus) -> bool {
        let said = condition::get(&status.conditions, condition::ORPHANED);
        said.is_some_and(|said| said.status == "True" && said.reason == self.reason())
    }

    /// One word in CamelCase.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::JobDeleted => "JobDeleted",
            Self::ReferenceRemoved => "OwnerReferenceRemoved",
        }
    }

    /// One sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::JobDeleted => {
                "the job was deleted and has left the PE behind: its pod runs on, and is not replaced when it ends"
            }
            Self::ReferenceRemoved => {
                "the job does not control the PE any more: its owner reference was removed or changed; its pod runs \
                 on, and is not replaced when it ends"
            }
        }
    }
}

/// Why no pod may be launched or created now (rule pe-4).
pub(super) fn obstacle(observed: &PeObservation) -> Option<Obstacle> {
    let waiting = |reason, message: &str| Some(Obstacle { reason, message: message.to_owned() });
    if is_stopped(observed) || observed.status.stopped {
        return waiting(STOPPED, "a user stopped the PE");
    }
    if let Some(left_behind) = LeftBehind::of(observed) {
        return waiting("JobMissing", left_behind.words());
    }
    match observed.job {
        OwnerJob::Missing | OwnerJob::Estranged | OwnerJob::Doubtful if !observed.wanted.controlled => {
            return waiting("JobMissing", "no job controls the PE: it was made by hand, and no pod is created for it");
        }
        OwnerJob::Missing | OwnerJob::Estranged | OwnerJob::Doubtful => {
            return waiting("JobMissing", "there is no job that the PE belongs to");
        }
        OwnerJob::Deleting => return waiting("JobDeleted", "the job is being deleted"),
        OwnerJob::There { .. } if is_uncommitted(observed) => {
            return waiting("GenerationNotCommitted", "the job has not committed the generation of the PE yet");
        }
        OwnerJob::There { suspended: true, .. } => return waiting(SUSPENDED, "the job is suspended"),
        OwnerJob::There { .. } => {}
    }
    observed.template.as_ref().err().cloned().or_else(|| renewal(observed))
}

/// The newest text of the PE is about to be written.
fn renewal(observed: &PeObservation) -> Option<Obstacle> {
    let by = observed.renewed_by.filter(|by| observed.now < *by)?;
    let message =
        format!("its newest text is to be written; if that takes longer than until {by}, it gets its older one");
    Some(Obstacle { reason: OUTDATED, message })
}

/// The job has not committed the generation of the PE yet.
pub(super) fn is_uncommitted(observed: &PeObservation) -> bool {
    let OwnerJob::There { generation, .. } = observed.job else { return false };
    generation.is_none_or(|committed| committed < observed.wanted.generation)
}

/// The pod of the launch count. Once its creation is recorded, only the pod with the recorded uid: a mirror that lags
/// behind may show an earlier pod of the same name.
pub(super) fn current<'a>(observed: &'a PeObservation, status: &ProcessingElementStatus) -> Option<&'a ObservedPod> {
    let recorded = |pod: &ObservedPod| status.pod_uid.as_ref().is_none_or(|uid| *uid == pod.uid);
    observed.pods.iter().find(|pod| pod.launch_count == status.launch_count && recorded(pod))
}

/// How the pod of the launch count ended, if that is recorded.
pub(super) fn recorded(status: &ProcessingElementStatus) -> Option<&Termination> {
    status.last_termination.as_ref().filter(|last| last.launch_count == status.launch_count && was_created(status))
}

/// Whether the pod of the launch count was created (rule pe-2).
pub(super) fn was_created(status: &ProcessingElementStatus) -> bool {
    status.launch_count > 0 && status.created_launch_count >= status.launch_count
}

/// Why the pod, which runs, does not get the bundle that it waits for (rule pe-24).
pub(super) fn lacks_bundle<'a>(
    observed: &PeObservation,
    status: &'a ProcessingElementStatus,
) -> Option<&'a UnavailableBundle> {
    status.bundle_unavailable.as_deref().filter(|_| status.may_wait_for_bundle(observed.now))
}

/// Older pods, and those of an earlier PE of the name, that may still run: the new pod would share their Service and
/// volumes. And newer ones, except the first, which is created before it is recorded: those that the PE controls are
/// adopted.
pub(super) fn blocking<'a>(
    observed: &'a PeObservation,
    status: &ProcessingElementStatus,
) -> impl Iterator<Item = &'a ObservedPod> + use<'a> {
    let launch_count = status.launch_count;
    let is_other = move |pod: &&ObservedPod| pod.launch_count < launch_count || pod.launch_count > launch_count.max(1);
    observed.pods.iter().filter(is_other).chain(&observed.predecessors).filter(|pod| pod.may_run(observed.now))
}

/// Whether the policies permit another pod after one that ended like this.
pub(super) fn is_restart_permitted(policies: Policies, last: &Termination) -> bool {
    let by_outcome = match last.outcome {
        TerminationOutcome::Failed | TerminationOutcome::Lost => policies.restart_failed,
        TerminationOutcome::Completed => policies.restart_completed,
        // If its PE has completed on that, it would have been replaced without the deletion as well.
        TerminationOutcome::Deleted => {
            policies.restart_deleted || (policies.restart_completed && last.exit_code == Some(0))
        }
        // It is up to the job and its users, not to the policies (rules pe-19 and pe-21).
        TerminationOutcome::Suspended | TerminationOutcome::Stopped => false,
    };
    // Nothing is done again by a pod whose node has refused the one before.
    by_outcome || last.never_started || (policies.restart_deleted && last.deleted_by == Some(DeletedBy::Other))
}

/// Until when the next pod is put off. A time that no delay reaches was told by a clock that is not ours, and does not
/// count.
pub(super) fn put_off_until(now: Timestamp, status: &ProcessingElementStatus) -> Option<Timestamp> {
    let until = status.next_restart_time.as_ref()?.0;
    (until <= after(now, LONGEST_DELAY)).then_some(until)
}

/// Since when the pod of the launch, which runs, counts as running: since that was recorded, or from now on. Nodes have
/// clocks of their own, which may be ahead or behind, and so may the frontend that has recorded it (rule pe-14).
pub(super) fn running_since(observed: &PeObservation, status: &ProcessingElementStatus) -> Timestamp {
    status.running_since.as_ref().map_or(observed.now, |since| since.0.min(observed.now))
}

/// How a pod ended, in words.
pub(super) fn how_it_ended(termination: &Termination) -> String {
    let Termination { pod_name, outcome, exit_code, reason, message, .. } = termination;
    let code = exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
    match outcome {
        TerminationOutcome::Completed => format!("pod {pod_name} completed{code}"),
        TerminationOutcome::Deleted => {
            let code = exit_code.map(|code| format!(", and ended with exit code {code}")).unwrap_or_default();
            format!("pod {pod_name} was deleted{code}")
        }
        TerminationOutcome::Suspended => format!("pod {pod_name} was deleted because the job was suspended"),
        TerminationOutcome::Stopped => format!("pod {pod_name} was deleted because a user stopped the PE"),
        TerminationOutcome::Lost => format!("pod {pod_name} is gone, and nobody saw how it ended"),
        TerminationOutcome::Failed => {
            let mut text = format!("pod {pod_name} failed{code}");
            if !reason.is_empty() {
                text.push_str(&format!(" ({reason})"));
            }
            // The end of a log has its last line where it says most.
            if let Some(line) = message.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
                text.push_str(&format!(": {}", condition::cut(line, 256)));
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_fits_in_one_line() {
        let termination = |outcome, exit_code, reason: &str, message: &str| Termination {
            pod_name: "p".to_owned(),
            outcome,
            exit_code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Termination::default()
        };
        use TerminationOutcome::*;
        let table = [
            (termination(Completed, Some(0), "Completed", ""), "pod p completed with exit code 0"),
            (termination(Deleted, None, "Deleted", "x"), "pod p was deleted"),
            (termination(Deleted, Some(0), "Deleted", "x"), "pod p was deleted, and ended with exit code 0"),
            (termination(Lost, None, "PodEndUnknown", "x"), "pod p is gone, and nobody saw how it ended"),
            (termination(Failed, None, "", ""), "pod p failed"),
            (termination(Failed, Some(137), "OOMKilled", ""), "pod p failed with exit code 137 (OOMKilled)"),
            (
                termination(Failed, Some(1), "Error", "a\nlast line\n\n"),
                "pod p failed with exit code 1 (Error): last line",
            ),
        ];
        for (termination, expected) in table {
            assert_eq!(how_it_ended(&termination), expected);
        }
    }
}
