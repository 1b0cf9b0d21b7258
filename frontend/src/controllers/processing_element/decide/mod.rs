//! Decides what to do next for a PE: one pure function from an observation to one action, and to the pods to delete.
//!
//! The first row that applies gives the action. Each action is one write, or none:
//!
//! | Row | When | Action |
//! |---|---|---|
//! | adopt | a pod has a higher launch count: the first was created, or the status was lost | record it |
//! | created | the pod of the launch count is there, and the status does not say so | record it |
//! | look | the pod was created, is not seen, and how it ended is not recorded | ask the API server |
//! | end | the pod has ended, is gone, or is lost | record how, and whether it is to be deleted |
//! | removal | the ended pod was deleted, or is to be deleted now | record by whom |
//! | stop | a user stops the PE, or takes that back | record it, and that the pod is to be deleted |
//! | suspend | the job is suspended, and the pod may run | record that it is to be deleted |
//! | request | a restart is requested, the pod of the launch count was never created | ask the API server, record it |
//! | launch | the pod of the launch count was created, nothing blocks, and see [`LaunchReason`] | launch count + 1 |
//! | put off | the policies permit a restart, after a back-off | record until when |
//! | create | the pod of the launch count, or the first one, was never created, and no older one runs | create it |
//!
//! When a pod that ended is replaced (rule pe-7):
//!
//! | The pod | is replaced if |
//! |---|---|
//! | failed: exit code, probe; or was lost: eviction, preemption, drain, node gone | `restartFailedPod` |
//! | completed: exit code 0 | `restartCompletedPod` |
//! | was deleted by somebody, whatever it had done before | one of the above, or `restartDeletedPod` |
//!
//! Invariants, checked by the properties in `tests`:
//! * A launch count but the first is moved by a compare-and-swap of the status, before its pod is created; the name of
//!   the pod follows from PE and launch count (rules pe-1 and name-4). So there are never two pods of one launch count,
//!   and no pod fires two restarts.
//! * A launch count is moved only once the status says that the pod of the one before was created, so only that pod and
//!   older ones can stand in the way of the next, however much of it all a controller has heard of.
//! * How a pod ended is in the status before it is deleted, and policies are applied to what is recorded (rule pe-8).
//! * A pod is created only when older ones have ended, or should have long ago on a node that does not answer
//!   (rule pe-5).
//!
//! Knows: names, hashes, states. Must not know: clients, how pods are built.

mod deletions;
mod endings;
mod launches;
#[cfg(test)]
mod tests;

use super::describe::describe;
use super::facts::{LeftBehind, blocking, current, is_uncommitted, obstacle, recorded, running_since, was_created};
use super::observed::{AbsentPod, Explanation, ObservedPod, OwnerJob, PeObservation, Stage};
use crate::controllers::times::{after, age};
use crate::pods_of_pe::FIRST_LAUNCH;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_api::processing_element::ASKS_FOR_BUNDLE_WITHIN;
use streams_api::{DeletedBy, PePhase, ProcessingElementStatus, condition};
use streams_kubernetes::events::Notice;

pub(crate) use self::deletions::Deletion;
pub(crate) use self::launches::{LaunchReason, needs_another_pod};

/// How long a PE says nothing of what the next status says as well (rule pe-20): that it waits for the commit of its
/// generation. When what is not said is looked at again, unless it is said below.
const UNSAID: Duration = Duration::from_secs(10);
/// The same in a crowd.
const UNSAID_IN_A_CROWD: Duration = Duration::from_secs(30);
/// How long after the creation of its first pod a PE says nothing of it in a crowd, while it is on its way. Longer than
/// a pod takes there as a rule: else it costs two writes.
const FIRST_UNSAID_IN_A_CROWD: Duration = Duration::from_secs(60);
/// The same while it runs, and others go first: a crowd takes so long.
const FIRST_UNSAID_THOUGH_IT_RUNS: Duration = Duration::from_secs(120);
/// When such a pod is looked at again: mostly somebody says that the others have gone. Sooner if it is young: that of a
/// single submission is a crowd for a moment only.
const LOOKED_AT_THOUGH_IT_RUNS: Duration = Duration::from_secs(30);

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeDecision {
    /// What to do first.
    pub(crate) action: PeAction,
    /// The status that [`PeAction::Record`] and [`PeAction::Describe`] write, if it is another one than before.
    pub(crate) status: ProcessingElementStatus,
    /// Pods that may go, whatever becomes of the action.
    pub(crate) deletions: Vec<Deletion>,
    /// The pod whose metadata is to be restored once nothing else is left to do.
    pub(crate) restored: Option<PodToRestore>,
    /// When to look again although nothing happens.
    pub(crate) wake_at: Option<Timestamp>,
    /// That look is only for telling what was not told yet: others go first.
    pub(crate) wakes_to_tell: bool,
    /// That look comes earlier once the pods of others run, or none are to come, or somebody waits for the PE.
    pub(crate) lets_others_go_first: bool,
    /// What people should hear of once the status is written (rule pe-17).
    pub(crate) notices: Vec<Notice>,
}

/// A pod whose metadata somebody has changed (rule pe-25).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodToRestore {
    /// Its name.
    pub(crate) name: String,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeAction {
    /// Nothing is left to do now: write the status only if it does not describe what is observed.
    Describe,
    /// Ask the API server for the pod of the launch count and, if it does not exist, for its node.
    Look,
    /// Ask the API server for the job.
    LookForJob,
    /// Write the status, if nobody wrote it meanwhile.
    Record(PeStatusChange),
    /// Create the pod of the launch count; that of the first launch, if there was none.
    Create,
}

/// A change of the status that is not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeStatusChange {
    /// The status had been lost: it goes on with the newest pod.
    Adopted,
    /// The pod of the launch count was created.
    Created,
    /// The pod ended.
    Ended,
    /// What was left of it is deleted, or to be deleted.
    Removed(DeletedBy),
    /// A restart was requested before the pod of the launch count was created.
    RequestMet,
    /// Another pod is asked for; the first was created.
    Launch(LaunchReason),
    /// A user stopped the PE.
    Stopped,
    /// A user has taken that back.
    Continued,
    /// The restart is put off.
    PutOff,
}

/// What to do next. Pure: the same observation gives the same decision.
pub(crate) fn decide(observed: &PeObservation) -> PeDecision {
    let mut builder = DecisionBuilder::of(observed);
    if observed.wanted.deleting || observed.job == OwnerJob::Deleting {
        // Whoever deletes them deletes the pods, too (rule pe-16).
        return builder.finish(PeAction::Describe, Vec::new());
    }
    if observed.job == OwnerJob::Doubtful {
        return builder.finish(PeAction::LookForJob, Vec::new());
    }
    let deletions = deletions::deletions(observed, obstacle(observed).is_some());
    let action = builder.action();
    if matches!(action, PeAction::Describe | PeAction::Record(_)) {
        builder.status = describe(observed, builder.status);
        builder.report_stray();
        builder.report_contention();
    }
    let mut restored = None;
    if action == PeAction::Describe {
        builder.leave_to_the_next();
        restored = builder.restored(&deletions);
    }
    PeDecision { restored, ..builder.finish(action, deletions) }
}

/// Whether the pod of the launch count exists, as far as it is known.
enum Presence<'a> {
    There(&'a ObservedPod),
    Gone(&'a AbsentPod),
    Unknown,
}

/// A decision that is not complete yet.
struct DecisionBuilder<'a> {
    observed: &'a PeObservation,
    status: ProcessingElementStatus,
    wake_at: Option<Timestamp>,
    /// When to tell what is not told yet.
    tell_at: Option<Timestamp>,
    /// It is not told because others go first.
    lets_others_go_first: bool,
    notices: Vec<Notice>,
}

impl<'a> DecisionBuilder<'a> {
    fn of(observed: &'a PeObservation) -> Self {
        Self {
            observed,
            status: observed.status.clone(),
            wake_at: None,
            tell_at: None,
            lets_others_go_first: false,
            notices: Vec::new(),
        }
    }

    fn finish(self, action: PeAction, deletions: Vec<Deletion>) -> PeDecision {
        let Self { status, wake_at, tell_at, lets_others_go_first, notices, .. } = self;
        let wakes_to_tell = wake_at.is_none() && tell_at.is_some();
        let wake_at = [wake_at, tell_at].into_iter().flatten().min();
        PeDecision { action, status, deletions, restored: None, wake_at, wakes_to_tell, lets_others_go_first, notices }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn wake_to_tell(&mut self, at: Timestamp) {
        self.tell_at = Some(self.tell_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// An Event about the PE (rule pe-17), published once the status is written.
    fn notice(&mut self, warning: bool, reason: &'static str, note: String) {
        self.notices.push(Notice { warning, reason: reason.into(), note });
    }

    /// A PE that was made by hand is reported, once (rule pe-4), be it a copy of one that the job controls, and so is
    /// one whose owner reference was removed (rule job-30); of those that a deleted job has left behind, the first for
    /// all of them (rule job-29).
    fn report_stray(&mut self) {
        if let Some(why) = LeftBehind::of(self.observed) {
            let note = match why {
                LeftBehind::JobDeleted if self.observed.wanted.is_first => {
                    "the job was deleted and has left its PEs, their pods and everything else behind: they go on, and \
                     nobody restarts, resizes or removes them"
                }
                LeftBehind::JobDeleted => return,
                LeftBehind::ReferenceRemoved => why.words(),
            };
            if !why.is_said(&self.observed.status) {
                self.notice(true, "Orphaned", note.to_owned());
            }
            return;
        }
        let said = |status: &ProcessingElementStatus| {
            let ready = condition::get(&status.conditions, condition::READY);
            ready.filter(|ready| ready.reason == "JobMissing").map(|ready| ready.message.clone())
        };
        // What a job controls says so only if it is a copy.
        let is_of_job = matches!(self.observed.job, OwnerJob::There { .. });
        if let Some(message) = said(&self.status).filter(|_| !self.observed.wanted.controlled || is_of_job)
            && said(&self.observed.status).as_ref() != Some(&message)
        {
            self.notice(true, "JobMissing", message);
        }
    }

    /// That somebody changes the metadata of the pod as often as it is restored is told once, and once that something
    /// else controls it.
    fn report_contention(&mut self) {
        let said = |status: &ProcessingElementStatus| {
            let contended = condition::get(&status.conditions, condition::CONTENDED)?;
            Some((contended.reason.clone(), contended.message.clone()))
        };
        let before = said(&self.observed.status).map(|(reason, _)| reason);
        if let Some((_, message)) = said(&self.status).filter(|(reason, _)| Some(reason) != before.as_ref()) {
            self.notice(true, "Contended", message);
        }
    }

    /// The pod, if somebody has changed its metadata, it is to stay, and nobody insists on the change (rules pe-25 and
    /// call-19).
    fn restored(&mut self, deletions: &[Deletion]) -> Option<PodToRestore> {
        if let Some(contention) = &self.observed.contention {
            self.wake_to_tell(contention.until);
        }
        let pod = current(self.observed, &self.status)?;
        let goes = pod.is_deleting() || deletions.iter().any(|deletion| deletion.uid == pod.uid);
        if pod.spoilt.is_none() || goes {
            return None;
        }
        match self.observed.unrestored_until {
            Some(until) => {
                self.wake(until);
                None
            }
            None => Some(PodToRestore { name: pod.name.clone() }),
        }
    }

    /// Leaves the status as it is if one that follows by itself says the same and more (rule pe-20).
    fn leave_to_the_next(&mut self) {
        let observed = self.observed;
        let before = &observed.status;
        // The commit follows at once; if it does not, people look for the reason here as well.
        let awaits_commit = before.phase.is_none() && is_uncommitted(observed);
        let created_at = observed.wanted.created_at.filter(|_| awaits_commit);
        if let Some(again) = created_at.and_then(|created| self.unsaid_until(created)) {
            self.wake_to_tell(again);
            self.status = before.clone();
        }
        // That there is a first pod is left to what follows it (see `adopt`).
        let has_first = observed.pods.iter().any(|pod| pod.launch_count == FIRST_LAUNCH);
        if before.launch_count == 0 && has_first && obstacle(observed).is_none() {
            self.status = before.clone();
        }
        // Where a pod runs is told once it runs, or once it says why it does not.
        let but_for_the_node = ProcessingElementStatus { node_name: before.node_name.clone(), ..self.status.clone() };
        if self.status.phase != Some(PePhase::Running) && but_for_the_node == *before {
            self.status = before.clone();
        }
    }

    fn presence(&self) -> Presence<'a> {
        match (current(self.observed, &self.status), &self.observed.vanished) {
            (Some(pod), _) => Presence::There(pod),
            (None, Some(vanished)) => Presence::Gone(vanished),
            (None, None) => Presence::Unknown,
        }
    }

    fn action(&mut self) -> PeAction {
        self.adopt()
            .or_else(|| self.note_created())
            .or_else(|| self.note_end())
            .or_else(|| self.note_removal())
            .or_else(|| self.stop())
            .or_else(|| self.suspend())
            .or_else(|| self.meet_request())
            .or_else(|| self.launch())
            .or_else(|| self.put_off())
            .or_else(|| self.create())
            .unwrap_or_else(|| {
                self.wake_when_ready();
                if let Some(by) = self.observed.renewed_by.filter(|by| self.observed.now < *by) {
                    self.wake(by);
                }
                PeAction::Describe
            })
    }

    /// The status is behind the pods if the first was created just now; otherwise only if somebody reset it, e.g. by
    /// restoring the PE from a backup (rule pe-15). Then its name alone says nothing: anybody can make a pod.
    fn adopt(&mut self) -> Option<PeAction> {
        let known = self.status.launch_count;
        let is_first = |pod: &ObservedPod| known == 0 && pod.launch_count == FIRST_LAUNCH;
        let is_newer = |pod: &&ObservedPod| pod.launch_count > known && (pod.is_controlled() || is_first(pod));
        let newest = self.observed.pods.iter().filter(is_newer).max_by_key(|pod| pod.launch_count)?;
        let is_first = is_first(newest);
        if is_first && let Some(again) = self.first_is_unsaid_until(newest) {
            self.lets_others_go_first = matches!(newest.stage, Stage::Running(_));
            self.wake_to_tell(again);
            return Some(PeAction::Describe);
        }
        self.status.launch_count = newest.launch_count;
        // What is there is of another launch.
        self.status.running_since = None;
        self.made_from(newest);
        if is_first {
            // A request that is there now was made after the pod was created (rule pe-1).
            return Some(PeAction::Record(PeStatusChange::Launch(LaunchReason::First)));
        }
        self.status.restart_requested.clone_from(&self.observed.wanted.restart_requested);
        Some(PeAction::Record(PeStatusChange::Adopted))
    }

    /// When to look again at the first pod, of which nothing is said (rule pe-20): it is about to run, and that says
    /// more; or it runs, and others go first. `None` if there is no crowd, or anything but the usual is to be done or
    /// told.
    fn first_is_unsaid_until(&self, pod: &ObservedPod) -> Option<Timestamp> {
        let observed = self.observed;
        let created = pod.created_at?;
        let (said_by, next_look) = match &pod.stage {
            Stage::Pending(why) if *why == Explanation::default() => (after(created, FIRST_UNSAID_IN_A_CROWD), UNSAID),
            // From when that is recorded a pod settles.
            Stage::Running(_) if observed.status.bundle_unavailable.is_none() && observed.min_ready.is_zero() => {
                let said_by = after(created, FIRST_UNSAID_THOUGH_IT_RUNS).min(observed.others_go_first_until?);
                let is_young = observed.now < after(created, UNSAID);
                (said_by, if is_young { UNSAID } else { LOOKED_AT_THOUGH_IT_RUNS })
            }
            _ => return None,
        };
        let is_usual = !pod.is_deleting()
            && pod.is_controlled()
            // Who looks later does not know what it was made from.
            && pod.spoilt.is_none()
            && !observed.first_was_deleted
            && obstacle(observed).is_none()
            && observed.refusal.is_none()
            && observed.wanted.restart_requested.is_none()
            && pod.runtime_id.as_ref() == Some(&observed.wanted.runtime_id)
            && observed.template.as_ref().is_ok_and(|template| pod.template_hash.as_ref() == Some(&template.hash));
        let said_by = self.until_said(pod.created_at?, said_by, next_look);
        said_by.filter(|_| observed.may_wait_long && is_usual)
    }

    /// When to look again at what is not said yet, as it began only at `since`; the crowd may be gone by then. `None`
    /// if it is said now.
    fn unsaid_until(&self, since: Timestamp) -> Option<Timestamp> {
        let within = if self.observed.may_wait_long { UNSAID_IN_A_CROWD } else { UNSAID };
        self.until_said(since, after(since, within), UNSAID)
    }

    /// When to look again, after so long, at what began at `since`, as the API server says, and is said by then at the
    /// latest. `None` if that is now, or if it is not known how long ago that was.
    fn until_said(&self, since: Timestamp, said_by: Timestamp, next_look: Duration) -> Option<Timestamp> {
        let now = self.observed.now;
        let waits = age(since, now).is_some() && now < said_by;
        waits.then(|| said_by.min(after(now, next_look)))
    }

    /// From now on the absence of the pod means that it is gone.
    fn note_created(&mut self) -> Option<PeAction> {
        let pod = current(self.observed, &self.status).filter(|_| !was_created(&self.status))?;
        self.made_from(pod);
        Some(PeAction::Record(PeStatusChange::Created))
    }

    fn made_from(&mut self, pod: &ObservedPod) {
        let status = &mut self.status;
        status.created_launch_count = pod.launch_count;
        status.pod_name = Some(pod.name.clone());
        status.pod_uid = Some(pod.uid.clone());
        status.content_id.clone_from(&pod.content_id);
        status.runtime_id.clone_from(&pod.runtime_id);
        status.pod_template_hash.clone_from(&pod.template_hash);
        status.placement_hash.clone_from(&pod.placement_hash);
    }

    fn create(&mut self) -> Option<PeAction> {
        let is_asked_for = self.status.launch_count > 0 || self.is_first_created();
        if !is_asked_for || was_created(&self.status) || obstacle(self.observed).is_some() {
            return None;
        }
        let waits_until = blocking(self.observed, &self.status).map(ObservedPod::given_up_at).collect::<Vec<_>>();
        for at in waits_until.iter().flatten() {
            self.wake(*at);
        }
        // A refused pod is tried again when the queue says so.
        (waits_until.is_empty() && self.observed.refusal.is_none()).then_some(PeAction::Create)
    }

    fn wake_when_ready(&mut self) {
        let observed = self.observed;
        let pod = current(observed, &self.status).filter(|_| recorded(&self.status).is_none());
        if let Some(ObservedPod { stage: Stage::Running(_), .. }) = pod {
            let ready_at = after(running_since(observed, &self.status), observed.min_ready);
            if ready_at > observed.now {
                self.wake(ready_at);
            }
        }
        // By then the pod has its bundle, whatever nobody has come to say.
        let since = self.status.running_since.as_ref().filter(|_| self.status.bundle_unavailable.is_some());
        let asked_by = since.and_then(|since| since.0.checked_add(ASKS_FOR_BUNDLE_WITHIN).ok());
        if let Some(asked_by) = asked_by.filter(|at| *at > observed.now) {
            self.wake(asked_by);
        }
    }
}
