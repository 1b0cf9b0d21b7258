//! Decides whether another pod is needed, and why (rule pe-3).

use super::super::facts::{current, is_restart_permitted, is_stopped, lacks_bundle, obstacle, recorded, was_created};
use super::super::observed::{ObservedPod, OwnerJob, PeObservation, Stage, TemplateHashes};
use super::{DecisionBuilder, PeAction, PeStatusChange, Presence};
use crate::controllers::times::{CLOCKS_DIFFER, after};
use crate::pods_of_pe::{self, FIRST_LAUNCH};
use streams_api::{Termination, TerminationOutcome};

/// Why another pod is asked for; the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaunchReason {
    /// There was none yet.
    First,
    /// A user asked for it with the annotation `streams.ibm.com/restart-requested`.
    Requested,
    /// A running PE would notice that its text changed.
    TextChanged,
    /// The pod must run somewhere else now.
    PlacementChanged,
    /// The options changed, and the pod has not run yet: nothing is lost, and perhaps that is why it cannot run.
    OptionsChanged,
    /// The job was suspended, and is not any more.
    Resumed,
    /// A user stopped the PE, and has taken that back.
    Continued,
    /// The pod ended, the policies permit another one, and the back-off is over.
    Ended,
}

impl LaunchReason {
    /// One word in CamelCase.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First => "First",
            Self::Requested => "RestartRequested",
            Self::TextChanged => "TextChanged",
            Self::PlacementChanged => "PlacementChanged",
            Self::OptionsChanged => "OptionsChanged",
            Self::Resumed => "Resumed",
            Self::Continued => "StopTakenBack",
            Self::Ended => "PodEnded",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::First => "the first pod is asked for",
            Self::Requested => "a restart was requested",
            Self::TextChanged => "the text of the PE changed",
            Self::PlacementChanged => "the PE must run somewhere else",
            Self::OptionsChanged => "options changed before the pod ran",
            Self::Resumed => "the job was resumed",
            Self::Continued => "the PE is not stopped any more",
            Self::Ended => "the pod ended",
        }
    }
}

/// Whether the PE needs another pod, as far as is known: none goes on, or a restart is requested. Its policies permit
/// one, and nobody has stopped the PE or suspended the job.
pub(crate) fn needs_another_pod(observed: &PeObservation) -> bool {
    let (builder, status) = (DecisionBuilder::of(observed), &observed.status);
    if is_stopped(observed) || status.stopped || observed.job.is_suspended() {
        return false;
    }
    if builder.is_restart_requested() {
        return true;
    }
    if !was_created(status) {
        // One that is there is about to be recorded.
        return observed.pods.iter().all(|pod| pod.launch_count < status.launch_count.max(FIRST_LAUNCH));
    }
    // A pod that is not seen goes on, until it is recorded how it ended.
    recorded(status).is_some() && (builder.reason_to_launch().is_some() || builder.is_restart_permitted())
}

impl DecisionBuilder<'_> {
    /// A pod that is yet to be created meets a request to restart (rule pe-13). Only the API server knows whether it is
    /// yet to be created: after a lost answer, or while another replica leads, there may be a pod that neither the
    /// mirror nor the status shows. Such a pod is recorded, and then replaced.
    pub(super) fn meet_request(&mut self) -> Option<PeAction> {
        let yet_to_be_created = self.status.launch_count > 0 && !was_created(&self.status);
        if !yet_to_be_created || !self.is_restart_requested() || obstacle(self.observed).is_some() {
            return None;
        }
        match self.presence() {
            Presence::Unknown => Some(PeAction::Look),
            Presence::There(_) => None,
            Presence::Gone(_) => {
                self.status.restart_requested.clone_from(&self.observed.wanted.restart_requested);
                self.status.consecutive_restarts = 0;
                Some(PeAction::Record(PeStatusChange::RequestMet))
            }
        }
    }

    /// Begins another launch if there is a reason and no obstacle.
    pub(super) fn launch(&mut self) -> Option<PeAction> {
        let reason = self.reason_to_launch()?;
        if obstacle(self.observed).is_some() || self.is_first_created() {
            return None;
        }
        let wanted = &self.observed.wanted;
        if self.is_first() && matches!(self.presence(), Presence::Unknown) {
            // A restart is requested. Perhaps the first pod was created before, and the request is about that.
            return Some(PeAction::Look);
        }
        let first = self.first_launch_count();
        let interrupted_for = self.interrupted_for(reason);
        let status = &mut self.status;
        status.launch_count = if reason == LaunchReason::First { first } else { status.launch_count.saturating_add(1) };
        status.pod_name = Some(pods_of_pe::name(&wanted.name, &wanted.uid, status.launch_count));
        status.pod_uid = None;
        status.interrupted_for = interrupted_for.or(status.interrupted_for);
        (status.content_id, status.runtime_id) = (None, None);
        (status.pod_template_hash, status.placement_hash) = (None, None);
        (status.node_name, status.running_since, status.next_restart_time) = (None, None, None);
        if wanted.restart_requested.is_some() {
            status.restart_requested.clone_from(&wanted.restart_requested);
        }
        if reason == LaunchReason::Ended {
            status.restarts = status.restarts.saturating_add(1);
            status.consecutive_restarts = status.consecutive_restarts.saturating_add(1);
        } else {
            status.consecutive_restarts = 0;
        }
        let launch_count = status.launch_count;
        if reason != LaunchReason::First {
            self.notice(false, "Restarting", format!("{}: launch {launch_count} follows", reason.sentence()));
        }
        Some(PeAction::Record(PeStatusChange::Launch(reason)))
    }

    /// Whether the next pod is that of launch 1, which is created before it is recorded (rule pe-1).
    pub(super) fn is_first_created(&self) -> bool {
        self.is_first() && self.observed.wanted.restart_requested.is_none()
    }

    fn is_first(&self) -> bool {
        self.status.launch_count == 0 && self.first_launch_count() == FIRST_LAUNCH
    }

    fn reason_to_launch(&self) -> Option<LaunchReason> {
        let (observed, status) = (self.observed, &self.status);
        let wanted = &observed.wanted;
        if status.launch_count == 0 {
            return Some(LaunchReason::First);
        }
        if !was_created(status) {
            // The pod that is about to be created is made from the newest spec. If it was created before, that is
            // recorded first.
            return None;
        }
        if self.is_restart_requested() {
            return Some(LaunchReason::Requested);
        }
        match recorded(status).map(|last| last.outcome) {
            Some(TerminationOutcome::Suspended) => return Some(LaunchReason::Resumed),
            Some(TerminationOutcome::Stopped) => return Some(LaunchReason::Continued),
            _ => {}
        }
        let is_done = |last: &&Termination| {
            last.outcome == TerminationOutcome::Completed && !is_restart_permitted(wanted.policies, last)
        };
        if recorded(status).filter(is_done).is_some() {
            // It has done what it was to do, whatever its text is by now (rule pe-18).
            return None;
        }
        if status.runtime_id.as_ref() != Some(&wanted.runtime_id) {
            return Some(LaunchReason::TextChanged);
        }
        // A mirror that lags behind may show a pod whose end is recorded.
        let alive = |pod: &&ObservedPod| pod.end().is_none() && !pod.is_deleting() && recorded(status).is_none();
        let pod = current(observed, status).filter(alive);
        if let (Some(pod), Ok(template)) = (pod, &observed.template) {
            if pod.placement_hash.as_ref() != Some(&template.placement) {
                // The job decides when it is the turn of the PE (rule job-49): until then there is no template.
                return Some(LaunchReason::PlacementChanged);
            }
            if matches!(pod.stage, Stage::Pending(_)) && pod.template_hash.as_ref() != Some(&template.hash) {
                return Some(LaunchReason::OptionsChanged);
            }
        }
        self.is_restart_due().then_some(LaunchReason::Ended)
    }

    /// The generation whose roll-out takes down a pod that runs, if this launch does (rule job-49).
    fn interrupted_for(&self, reason: LaunchReason) -> Option<u64> {
        let (observed, status) = (self.observed, &self.status);
        let pod = current(observed, status).filter(|pod| !pod.is_deleting() && recorded(status).is_none())?;
        let is_elsewhere = |template: &TemplateHashes| pod.placement_hash.as_ref() != Some(&template.placement);
        // A user may ask for the restart as well.
        let is_changed = reason == LaunchReason::PlacementChanged
            || observed.template.as_ref().is_ok_and(is_elsewhere)
            || (status.launch_count > 0 && status.runtime_id.as_ref() != Some(&observed.wanted.runtime_id));
        // For however short a time: what settles is interrupted, too.
        let runs = matches!(pod.stage, Stage::Running(_)) && lacks_bundle(observed, status).is_none();
        let OwnerJob::There { generation, .. } = observed.job else { return None };
        (is_changed && runs).then(|| generation.unwrap_or_default().max(observed.wanted.generation))
    }

    pub(super) fn is_restart_requested(&self) -> bool {
        let requested = &self.observed.wanted.restart_requested;
        requested.is_some() && *requested != self.status.restart_requested
    }

    /// The first launch of a PE is number 1, unless a user deleted the PE and the job controller created it again: its
    /// operators must not take that for a clean start (rule pe-6). Pods of the PE before it show how far it had come.
    /// Without them, the job controller says that it was created again; or it was created after the newest commit of
    /// its job, if nobody says so: another frontend has made it, or the job was still being submitted.
    fn first_launch_count(&self) -> u64 {
        let observed = self.observed;
        let (job_created_at, committed_at) = match observed.job {
            OwnerJob::There { created_at, committed_at, .. } => (created_at, committed_at),
            OwnerJob::Missing | OwnerJob::Estranged | OwnerJob::Doubtful | OwnerJob::Deleting => (None, None),
        };
        // An earlier job of the name had PEs of the same names.
        let is_older_than_job =
            |pod: &ObservedPod| matches!((pod.created_at, job_created_at), (Some(pod), Some(job)) if pod < job);
        let of_job = observed.predecessors.iter().filter(|pod| !is_older_than_job(pod));
        let seen = of_job.map(|pod| pod.launch_count).max().unwrap_or(0);
        // PEs of a generation are created just before its commit. The API server says when, and the frontend when the
        // commit was: their clocks may differ. The newest commit is enough for a PE that is launched soon after its
        // creation; with a later one, it says nothing.
        let is_later = matches!((observed.wanted.created_at, committed_at), (Some(created), Some(committed))
            if created.as_second() >= after(committed, CLOCKS_DIFFER).as_second());
        let again = observed.wanted.made_again || is_later;
        seen.max(u64::from(again)).saturating_add(1)
    }
}
