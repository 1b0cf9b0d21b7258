//! A decision that is being made: actions, and what the status should say, are added to it row by row.
//!
//! Knows: how actions follow from what is missing. Must not know: which rows there are.

use super::REWRITES_LATER;
use super::decision::{JobAction, Propagation, WhichGeneration};
use crate::controllers::job::child::Child;
use crate::controllers::job::going::GoingObject;
use crate::controllers::job::held_up::{Blocked, looked_at_again};
use crate::controllers::job::observed::{Children, DesiredPe, JobObservation, ObservedDrift, ObservedObject};
use crate::controllers::job::owned::Owned;
use crate::controllers::job::tasks::{Failure, Progress, Remedy, Task};
use crate::controllers::job::waits::{Waits, Words};
use crate::controllers::times::after;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// No pause between two tries of long work is as long (rule job-20).
const BEYOND_ALL_PAUSES: Duration = Duration::from_secs(600);

/// What the status should say about the job, found while deciding.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// What the next generation waits for, in words; empty when there is nothing to prepare.
    pub(crate) preparing: String,
    /// The failure that is being retried, if any.
    pub(crate) trouble: Option<Failure>,
    /// The first object that the proposal waits for and that is not written now.
    pub(crate) blocked: Option<Blocked>,
    /// The first object of what is in force that is being deleted and does not go, or PE that was removed.
    pub(crate) going: Option<(Owned, Arc<GoingObject>)>,
    /// PEs of the committed generation that do not run yet what it wants.
    pub(crate) pending: u32,
    /// PEs of the committed generation that run what it wants.
    pub(crate) ready: u32,
    /// PEs of the committed generation whose objects are still to be written, with nothing changing for their pods.
    /// They count as they run as well.
    pub(crate) unwritten: u32,
    /// PEs that are still to be removed. One that is being deleted and does not go is not.
    pub(crate) superfluous: u32,
    /// PEs of the committed generation that have completed and stay so.
    pub(crate) completed: u32,
    /// PEs of the committed generation without a pod because the job is suspended.
    pub(crate) suspended: u32,
    /// PEs that are gone or down and stay so.
    pub(crate) down: Waits,
    /// What the pending PEs say.
    pub(crate) waits: Waits,
    /// What those PEs say that never had a pod.
    pub(crate) without_pods: Waits,
    /// Something that the job needs is lost.
    pub(crate) lost: Option<String>,
    /// Objects are deleted now. They may still exist for a while.
    pub(crate) deletes: bool,
    /// Nothing is said before this time, unless there is trouble: the number of the job is (rule job-50).
    pub(crate) unsaid_until: Option<Timestamp>,
    /// When to look again although nothing happens.
    pub(crate) wake_at: Option<Timestamp>,
}

impl Report {
    /// A PE of the committed generation does not run yet what it wants.
    pub(super) fn wait(&mut self, id: u64, is_launched: bool, words: &Words) {
        self.pending += 1;
        self.waits.add(id, words);
        if !is_launched {
            self.without_pods.add(id, words);
        }
    }
}

/// A decision that is not complete yet: the actions so far, and the report.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) actions: Vec<JobAction>,
    pub(super) report: Report,
    /// Objects that are rewritten because the frontend wants another form of them.
    rewrites: usize,
}

impl Draft {
    pub(super) fn act(&mut self, action: JobAction) {
        self.actions.push(action);
    }

    /// What is deleted need not be as it should: the two would be in each other's way.
    pub(super) fn restore_no_more_than_stays(&mut self) {
        let deleted = self.actions.iter().filter_map(|action| match action {
            JobAction::Delete(Owned::ConfigMap(name), _) => Some(name.clone()),
            _ => None,
        });
        let deleted: BTreeSet<String> = deleted.collect();
        if !deleted.is_empty() {
            let goes =
                |action: &JobAction| matches!(action, JobAction::RestoreMetadata(name) if deleted.contains(name));
            self.actions.retain(|action| !goes(action));
        }
    }

    /// Whether work is started that is like this. It goes on beside the other actions.
    pub(super) fn starts(&self, is_like: impl Fn(&Task) -> bool) -> bool {
        self.actions.iter().any(|action| matches!(action, JobAction::Start(task) if is_like(task)))
    }

    /// Deletes an object at once, unless it is being deleted.
    pub(super) fn delete(&mut self, object: Owned, state: &ObservedObject) {
        self.delete_with(Propagation::Background, object, state);
    }

    pub(super) fn delete_with(&mut self, propagation: Propagation, object: Owned, state: &ObservedObject) {
        if !state.deleting {
            self.report.deletes = true;
            self.act(JobAction::Delete(object, propagation));
        }
    }

    /// Notes that the object does not go, if it was deleted a while ago and is there: most often what is deleted goes
    /// at once (rule job-26).
    pub(super) fn note_going(&mut self, observed: &JobObservation, object: Owned, state: &ObservedObject) {
        let Some(going) = &state.going else { return };
        let end = looked_at_again(going.since);
        if observed.now < end {
            self.wake(end);
        } else if self.report.going.as_ref().is_none_or(|(first, _)| object < *first) {
            self.report.going = Some((object, Arc::clone(going)));
        }
    }

    /// Applies a child unless it is up to date. Returns whether it is. Waits for a child that is being deleted, unless
    /// that is written in place. A child that was changed by others is up to date and restored.
    pub(super) fn ensure(
        &mut self,
        observed: &JobObservation,
        child: Child,
        of: WhichGeneration,
        current: Option<Current>,
    ) -> bool {
        if let Some(Current { object, .. }) = current
            && object.deleting
        {
            let is_written_in_place = is_written_in_place(observed, child, object);
            if is_written_in_place || of == WhichGeneration::Committed {
                self.note_going(observed, Owned::Child(child), object);
            } else {
                self.report.blocked.get_or_insert(Blocked::Terminating(Owned::Child(child)));
            }
            if !is_written_in_place {
                return false;
            }
        }
        match current {
            Some(Current { as_wanted: true, drift, .. }) => {
                if self.may_restore(observed, drift) {
                    self.act(JobAction::Apply(child, of));
                }
                true
            }
            // What a proposal needs is new: the commit waits for it.
            Some(Current { at_once: false, .. }) if observed.rewrites.is_some() && of == WhichGeneration::Committed => {
                self.rewrite(observed, child, of);
                true
            }
            Some(_) | None => {
                self.act(JobAction::Apply(child, of));
                false
            }
        }
    }

    /// Whether an object is to be restored now. If it was restored too often, later.
    pub(super) fn may_restore(&mut self, observed: &JobObservation, drift: Option<&ObservedDrift>) -> bool {
        let Some(drift) = drift else { return false };
        match drift.not_before {
            Some(at) if at > observed.now => {
                self.wake(at);
                false
            }
            _ => true,
        }
    }

    /// Applies a child whose desired state is another one than when it was applied, although nobody has changed the
    /// job: not too many at once (rule job-45).
    pub(super) fn rewrite(&mut self, observed: &JobObservation, child: Child, of: WhichGeneration) {
        if observed.rewrites.is_none_or(|left| self.rewrites < left) {
            self.rewrites += 1;
            self.act(JobAction::Apply(child, of));
        } else {
            self.wake(after(observed.now, REWRITES_LATER));
        }
    }

    /// Starts long work, waits for it, or retries it (rule job-20). Returns the output, or the failure that a user must
    /// correct. `what` names the work in messages.
    pub(super) fn poll<'a, O>(
        &mut self,
        observed: &JobObservation,
        progress: Progress<'a, O>,
        task: Task,
        what: &str,
    ) -> Option<Result<&'a O, &'a Failure>> {
        let start = match progress {
            Progress::Done(output) => return Some(Ok(output)),
            Progress::Failed(failure) => match failure.remedy {
                Remedy::Correct | Remedy::Recompile(_) => return Some(Err(failure)),
                Remedy::Retry(at) => {
                    self.report.trouble = Some(failure.clone());
                    let until = put_off_until(at, observed.now);
                    until.into_iter().for_each(|until| self.wake(until));
                    until.is_none()
                }
            },
            Progress::Running => false,
            Progress::NotRequested => true,
        };
        what.clone_into(&mut self.report.preparing);
        if start {
            self.act(JobAction::Start(task));
        }
        None
    }

    /// Decides again at this time, at the latest.
    pub(super) fn wake(&mut self, at: Timestamp) {
        let wake_at = &mut self.report.wake_at;
        *wake_at = Some(wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Until when a try is put off that was to come at this time, if it is. Not if a clock was put back since: its time
/// would not come for long.
pub(super) fn put_off_until(at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (now < at && at < after(now, BEYOND_ALL_PAUSES)).then_some(at)
}

/// PEs that run read the child, and need it as it should be: it is written although somebody else deletes it (rule
/// job-26). A submission waits until it is gone, like for everything else.
fn is_written_in_place(observed: &JobObservation, child: Child, object: &ObservedObject) -> bool {
    let is_read_by_pes = matches!(child, Child::JobConfigMap | Child::TransportSecret);
    is_read_by_pes && !object.just_deleted && observed.status.generation.is_some()
}

/// The present state of a child.
pub(super) struct Current<'a> {
    pub(super) as_wanted: bool,
    object: &'a ObservedObject,
    pub(super) drift: Option<&'a ObservedDrift>,
    /// The job has changed, so writing it is no rewrite (rule job-45) and is not put off.
    at_once: bool,
}

impl<'a> Current<'a> {
    /// Of an object that should have been applied with this hash.
    pub(super) fn of(object: &'a ObservedObject, wanted: &str) -> Self {
        let as_wanted = object.applied == wanted;
        Self { as_wanted, object, drift: object.drift.as_ref(), at_once: false }
    }

    /// Of the Service of a PE that a generation wants.
    pub(super) fn service(children: &'a Children, generation: u64, id: u64, pe: &DesiredPe) -> Option<Self> {
        let (object, ports) = (children.services.get(&id)?, &children.user_ports);
        let at_once = ports.changed.contains(&id);
        Some(Self { at_once, ..Self::of(object, ports.service(generation, id, &pe.service)) })
    }

    /// Of an object that only has to exist.
    pub(super) fn existing(object: &'a ObservedObject) -> Self {
        Self { as_wanted: true, object, drift: object.drift.as_ref(), at_once: false }
    }
}
