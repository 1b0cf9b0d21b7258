//! Records how pods end, and applies the restart policies (rules pe-7 and pe-8).
//!
//! Pure. Knows: pods that ended or are gone, policies. Must not know: how the next pod is made.

use super::super::facts::{
    LONGEST_DELAY, STOPPED, SUSPENDED, how_it_ended, is_restart_permitted, put_off_until, recorded, was_created,
};
use super::super::observed::{AbsentPod, Explanation, ObservedPod, PodEnd, Stage};
use super::{DecisionBuilder, PeAction, PeStatusChange, Presence};
use crate::controllers::times::after;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;
use streams_api::{DeletedBy, Termination, TerminationOutcome, condition, names};

/// Delay of the second restart in a row; doubled for each further one.
const FIRST_DELAY: Duration = Duration::from_secs(10);
/// A pod that ran this long starts with a clean record.
const LONG_RUN: Duration = Duration::from_secs(600);
/// By then the watch has told how a pod went of which the API server says that it is gone.
const TELLING: Duration = Duration::from_secs(5);
/// How a pod ended that somebody deleted.
const DELETED: &str = "the pod was deleted while it ran";
/// Longest texts of a termination (schema).
const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 4096;

impl DecisionBuilder<'_> {
    /// Records how the pod of the launch count ended. Asks the API server if that is not known.
    pub(super) fn note_end(&mut self) -> Option<PeAction> {
        if !was_created(&self.status) || recorded(&self.status).is_some() {
            return None;
        }
        let (outcome, end, deleted_by) = match self.presence() {
            Presence::Unknown => return Some(PeAction::Look),
            Presence::Gone(vanished) => {
                let (outcome, end) = after_vanishing(vanished);
                let told_by = after(vanished.since, TELLING);
                if outcome == TerminationOutcome::Lost && self.observed.now < told_by {
                    self.wake(told_by);
                    return None;
                }
                (outcome, end, Some(DeletedBy::Other))
            }
            Presence::There(pod) => {
                let (outcome, end) = self.of_pod(pod)?;
                let deleted_by = if pod.is_deleting() {
                    Some(DeletedBy::Other)
                } else {
                    self.is_to_be_deleted(pod, outcome).then_some(DeletedBy::Controller)
                };
                (outcome, end, deleted_by)
            }
        };
        self.record(outcome, end, deleted_by);
        Some(PeAction::Record(PeStatusChange::Ended))
    }

    /// How the pod ended, if it has.
    fn of_pod(&mut self, pod: &ObservedPod) -> Option<(TerminationOutcome, PodEnd)> {
        if pod.end().is_none() {
            let given_up_at = pod.given_up_at()?;
            if pod.may_run(self.observed.now) {
                self.wake(given_up_at);
                return None;
            }
        }
        Some(last_words(pod, "NotTerminated", "the pod was deleted, and its node does not answer"))
    }

    /// Whether the controller is to delete a pod that ended like this (rules pe-11 and pe-26).
    fn is_to_be_deleted(&self, pod: &ObservedPod, outcome: TerminationOutcome) -> bool {
        let failed = outcome == TerminationOutcome::Failed;
        (failed && self.observed.wanted.policies.delete_failed) || pod.lingers()
    }

    fn record(&mut self, outcome: TerminationOutcome, end: PodEnd, deleted_by: Option<DeletedBy>) {
        let now = self.observed.now;
        let status = &mut self.status;
        let finished_at = end.finished_at.unwrap_or(now);
        // How long it ran is told by one clock: that of its node, if it says both.
        let by_node = end.started_at.filter(|_| end.finished_at.is_some());
        let recorded_at = status.running_since.as_ref().map(|since| since.0);
        let started_at = by_node.or(recorded_at).or(end.started_at);
        if started_at.is_some_and(|start| finished_at >= after(start, LONG_RUN)) {
            status.consecutive_restarts = 0;
        }
        status.running_since = None;
        let termination = Termination {
            pod_name: status.pod_name.clone().unwrap_or_default(),
            launch_count: status.launch_count,
            outcome,
            deleted_by,
            exit_code: end.exit_code,
            never_started: end.never_started && started_at.is_none(),
            reason: condition::cut(&end.why.reason, REASON_MAX).to_owned(),
            message: condition::cut(&end.why.message, MESSAGE_MAX).to_owned(),
            finished_at: Some(Time(finished_at)),
        };
        let permitted = is_restart_permitted(self.observed.wanted.policies, &termination);
        let delay = delay(status.consecutive_restarts);
        status.next_restart_time = (permitted && !delay.is_zero()).then(|| Time(after(now, delay)));
        let (warning, reason) = match outcome {
            TerminationOutcome::Failed => (true, "PodFailed"),
            TerminationOutcome::Completed => (false, "PodCompleted"),
            TerminationOutcome::Deleted => (false, "PodDeleted"),
            TerminationOutcome::Lost => (true, "PodEndUnknown"),
            TerminationOutcome::Suspended | TerminationOutcome::Stopped => (false, "PodDeleted"),
        };
        let mut what = how_it_ended(&termination);
        if end.others_run && deleted_by == Some(DeletedBy::Controller) {
            what.push_str("; other containers of it would run on, so it is deleted");
        }
        status.last_termination = Some(termination);
        self.notice(warning, reason, what);
        if permitted && !delay.is_zero() {
            self.notice_back_off(delay);
        } else if !permitted && outcome != TerminationOutcome::Completed {
            self.notice_not_restarted();
        }
    }

    fn notice_not_restarted(&mut self) {
        // A value that it has had asks for nothing (rule pe-13).
        let asked_for = names::ANNOTATION_RESTART_REQUESTED;
        let why = format!(
            "the restart policies do not permit another pod: a new value of its annotation {asked_for} asks for one"
        );
        self.notice(true, "NotRestarted", why);
    }

    /// While the job is suspended no pod runs. That it is deleted for this reason is recorded before (rule pe-19).
    pub(super) fn suspend(&mut self) -> Option<PeAction> {
        if !self.observed.job.is_suspended() {
            return None;
        }
        self.condemn(TerminationOutcome::Suspended, SUSPENDED, "the job was suspended")
            .then_some(PeAction::Record(PeStatusChange::Ended))
    }

    /// A PE that a user stops has no pod until that is taken back (rule pe-21). Both are recorded before anything
    /// follows from it.
    pub(super) fn stop(&mut self) -> Option<PeAction> {
        let requested = &self.observed.wanted.stop_requested;
        if requested.is_some() && *requested != self.status.stop_requested {
            self.status.stop_requested.clone_from(requested);
            // A restart that was requested before does not undo it.
            self.status.restart_requested.clone_from(&self.observed.wanted.restart_requested);
            self.status.next_restart_time = None;
            self.notice(false, "Stopped", "a user stopped the PE: it has no pod until that is taken back".to_owned());
            self.status.stopped = true;
            let ends = self.condemn_stopped();
            return Some(PeAction::Record(if ends { PeStatusChange::Ended } else { PeStatusChange::Stopped }));
        }
        if self.status.stopped && (requested.is_none() || self.is_restart_requested()) {
            self.status.stopped = false;
            self.status.stop_requested.clone_from(requested);
            return Some(PeAction::Record(PeStatusChange::Continued));
        }
        if requested.is_none() && self.status.stop_requested.is_some() {
            // The same value is a new request from now on.
            self.status.stop_requested = None;
            return Some(PeAction::Record(PeStatusChange::Continued));
        }
        // A pod whose creation was not known yet.
        (self.status.stopped && self.condemn_stopped()).then_some(PeAction::Record(PeStatusChange::Ended))
    }

    fn condemn_stopped(&mut self) -> bool {
        self.condemn(TerminationOutcome::Stopped, STOPPED, "a user stopped the PE")
    }

    /// Records that the pod ends now because the controller is to delete it; `false` if there is none that may run, or
    /// somebody else deletes it, so that it ends for another reason.
    fn condemn(&mut self, outcome: TerminationOutcome, reason: &str, message: &str) -> bool {
        if !was_created(&self.status) || recorded(&self.status).is_some() {
            return false;
        }
        let Presence::There(pod) = self.presence() else { return false };
        if pod.is_deleting() {
            return false;
        }
        let status = &mut self.status;
        (status.running_since, status.next_restart_time) = (None, None);
        status.last_termination = Some(Termination {
            pod_name: pod.name.clone(),
            launch_count: status.launch_count,
            outcome,
            deleted_by: Some(DeletedBy::Controller),
            exit_code: None,
            never_started: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
            finished_at: Some(Time(self.observed.now)),
        });
        true
    }

    /// Records that what is left of the ended pod is deleted by somebody, or is to be deleted now.
    pub(super) fn note_removal(&mut self) -> Option<PeAction> {
        let last = recorded(&self.status).filter(|last| last.deleted_by.is_none())?;
        let outcome = last.outcome;
        let by = match self.presence() {
            Presence::Unknown => return Some(PeAction::Look),
            Presence::Gone(_) => DeletedBy::Other,
            Presence::There(pod) if pod.is_deleting() => DeletedBy::Other,
            Presence::There(pod) if self.is_to_be_deleted(pod, outcome) => DeletedBy::Controller,
            Presence::There(_) => return None,
        };
        if let Some(last) = &mut self.status.last_termination {
            last.deleted_by = Some(by);
        }
        Some(PeAction::Record(PeStatusChange::Removed(by)))
    }

    /// Puts off a restart that was not permitted when the pod ended. One that was put off, and is not permitted any
    /// more, does not follow.
    pub(super) fn put_off(&mut self) -> Option<PeAction> {
        let now = self.observed.now;
        let permitted = self.is_restart_permitted();
        if let Some(at) = put_off_until(now, &self.status).filter(|_| permitted) {
            if at > now {
                self.wake(at);
            }
            return None;
        }
        let was_put_off = self.status.next_restart_time.take().is_some();
        let has_completed = recorded(&self.status).is_none_or(|last| last.outcome == TerminationOutcome::Completed);
        if was_put_off && !permitted && !has_completed {
            self.notice_not_restarted();
        }
        let delay = delay(self.status.consecutive_restarts);
        if !permitted || delay.is_zero() {
            return None;
        }
        self.status.next_restart_time = Some(Time(after(now, delay)));
        self.notice_back_off(delay);
        Some(PeAction::Record(PeStatusChange::PutOff))
    }

    fn notice_back_off(&mut self, delay: Duration) {
        self.notice(true, "BackOff", format!("the next pod is created after {} s", delay.as_secs()));
    }

    /// A restart is permitted and its time has come.
    pub(super) fn is_restart_due(&self) -> bool {
        let due = match put_off_until(self.observed.now, &self.status) {
            Some(at) => at <= self.observed.now,
            None => delay(self.status.consecutive_restarts).is_zero(),
        };
        due && self.is_restart_permitted()
    }

    pub(super) fn is_restart_permitted(&self) -> bool {
        recorded(&self.status).is_some_and(|last| is_restart_permitted(self.observed.wanted.policies, last))
    }
}

/// How a pod ended that the API server does not have any more (rule pe-9).
fn after_vanishing(vanished: &AbsentPod) -> (TerminationOutcome, PodEnd) {
    let because = |outcome, reason: &str, message: &str| {
        let why = Explanation { reason: reason.to_owned(), message: message.to_owned() };
        (outcome, PodEnd { failed: outcome == TerminationOutcome::Failed, why, ..PodEnd::default() })
    };
    match &vanished.last_seen {
        Some(pod) if pod.end().is_some() || pod.disruption.is_some() => last_words(pod, "", ""),
        _ if vanished.node_gone => because(TerminationOutcome::Failed, "NodeGone", "the pod went with its node"),
        Some(pod) if pod.is_deleting() || vanished.deletion_seen => last_words(pod, "Deleted", DELETED),
        _ => because(TerminationOutcome::Lost, "PodEndUnknown", "the pod is gone, and nobody saw how it ended"),
    }
}

/// How a pod ended by what it says; one that had not ended was lost to a disruption, or deleted (`reason`, `message`).
/// One that only ended because somebody deleted it has not completed, whatever its exit code.
fn last_words(pod: &ObservedPod, reason: &str, message: &str) -> (TerminationOutcome, PodEnd) {
    let mut end = match &pod.stage {
        Stage::Ended(end) => end.clone(),
        Stage::Running(since) => PodEnd { started_at: *since, ..PodEnd::default() },
        Stage::Pending(_) | Stage::Unknown => PodEnd::default(),
    };
    let outcome = match (&pod.disruption, &pod.stage) {
        (Some(why), _) => {
            end.never_started = false;
            end.why = Explanation {
                reason: why.reason.clone(),
                message: if end.why.message.is_empty() { why.message.clone() } else { end.why.message },
            };
            TerminationOutcome::Failed
        }
        (None, Stage::Ended(PodEnd { failed: true, .. })) => TerminationOutcome::Failed,
        (None, Stage::Ended(_)) if pod.ended_by_deletion() => {
            end.why = Explanation { reason: "Deleted".to_owned(), message: DELETED.to_owned() };
            TerminationOutcome::Deleted
        }
        (None, Stage::Ended(_)) => TerminationOutcome::Completed,
        (None, _) => {
            end.why = Explanation { reason: reason.to_owned(), message: message.to_owned() };
            TerminationOutcome::Deleted
        }
    };
    (outcome, end)
}

/// Delay of the restart after `consecutive` others in a row: none, then 10 s doubling to 5 min (rule pe-10).
fn delay(consecutive: u32) -> Duration {
    match consecutive {
        0 => Duration::ZERO,
        n => FIRST_DELAY.saturating_mul(1 << (n - 1).min(16)).min(LONGEST_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_in_a_row_are_delayed_longer_and_longer() {
        let table = [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (u32::MAX, 300)];
        for (consecutive, seconds) in table {
            assert_eq!(delay(consecutive), Duration::from_secs(seconds), "{consecutive}");
        }
    }
}
