//! What to do next for a PE: one pure function from what is observed to one step, and the pods that may go.
//!
//! The first row that applies is the step; each is one write, or none:
//!
//! | Row | When | Step |
//! |---|---|---|
//! | adopt | a pod has a higher launch count than the status | record it |
//! | created | the pod of the launch count is there, and the status does not say so | record it |
//! | look | the pod was created, is not seen, and how it ended is not recorded | ask the API server |
//! | end | the pod has ended, is gone, or is lost | record how, and whether it is to be deleted |
//! | removal | what is left of it was deleted, or is to be deleted now | record by whom |
//! | request | a restart was requested, and the pod of the launch count was never created | ask the API server; then record that it is met |
//! | launch | the pod of the launch count was created, and see [`LaunchReason`]; nothing stands in the way | launch count + 1 |
//! | put off | the policies permit a restart, after a back-off | record until when |
//! | create | the pod of the launch count was never created, and no older one runs | create it |
//!
//! What becomes of a pod that ended (rule pe-7):
//!
//! | The pod | replaced, if |
//! |---|---|
//! | failed: exit code, probe; or was lost: eviction, preemption, drain, node gone | `restartFailedPod` |
//! | completed: exit code 0 | `restartCompletedPod` |
//! | was deleted by somebody, whatever it had done before | one of the above, or `restartDeletedPod` |
//!
//! Invariants, checked by the properties in `tests`:
//! * A launch count is moved by a compare-and-swap of the status, before its pod is created; the name of the pod
//!   follows from PE and launch count (rules pe-1 and name-4). So there are never two pods of one launch count, and no
//!   pod fires two restarts.
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

use k8s_openapi::jiff::Timestamp;

use streams_api::{DeletedBy, ProcessingElementStatus, Termination};

use super::{
    observed::{Job, Observed, Pod, Stage, Vanished, Waiting, after},
    present,
};

pub(super) use self::endings::is_restart_permitted;
pub(crate) use self::{deletions::Deletion, endings::describe, launches::LaunchReason};

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// The step.
    pub(crate) step: Step,
    /// The status that [`Step::Record`] and [`Step::Rest`] write, if it is another one than before.
    pub(crate) status: ProcessingElementStatus,
    /// Pods that may go, whatever becomes of the step.
    pub(crate) deletions: Vec<Deletion>,
    /// When to look again although nothing happens.
    pub(crate) wake_at: Option<Timestamp>,
    /// What people should hear about once the step is taken.
    pub(crate) notices: Vec<Notice>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing but describing what is seen.
    Rest,
    /// Ask the API server for the pod of the launch count and, if it does not exist, for its node.
    Look,
    /// Write the status, if nobody wrote it meanwhile.
    Record(Change),
    /// Create the pod of the launch count.
    Create,
}

/// A change of the status that is a fact from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
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
    /// Another pod is asked for.
    Launch(LaunchReason),
    /// The restart is put off.
    PutOff,
}

/// Something for an Event (rule pe-17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// A person should look at it.
    pub(crate) warning: bool,
    /// One word in CamelCase.
    pub(crate) reason: &'static str,
    /// One sentence.
    pub(crate) note: String,
}

/// What to do next. Pure: the same observation gives the same decision.
pub(crate) fn decide(observed: &Observed) -> Decision {
    let mut making = Making::of(observed);
    if observed.wanted.deleting || observed.job == Job::Deleting {
        // Whoever deletes them deletes the pods, too (rule pe-16).
        return making.finish(Step::Rest, Vec::new());
    }
    let deletions = deletions::deletions(observed, obstacle(observed).is_some());
    let step = making.step();
    if matches!(step, Step::Rest | Step::Record(_)) {
        making.status = present::present(observed, making.status);
    }
    making.finish(step, deletions)
}

/// Why no pod may be launched or created now (rule pe-4).
pub(super) fn obstacle(observed: &Observed) -> Option<Waiting> {
    let waiting = |reason, message: &str| Some(Waiting { reason, message: message.to_owned() });
    match observed.job {
        Job::Missing => return waiting("JobMissing", "there is no job that the PE belongs to"),
        Job::Deleting => return waiting("JobDeleted", "the job is being deleted"),
        Job::There { generation, .. } if generation.is_none_or(|committed| committed < observed.wanted.generation) => {
            return waiting("GenerationNotCommitted", "the job has not committed the generation of the PE yet");
        }
        Job::There { .. } => {}
    }
    observed.template.as_ref().err().cloned()
}

/// The pod of the launch count; once its creation is recorded, that one only. Another one of its name that is gone is
/// shown by a mirror that lags behind.
pub(super) fn current<'a>(observed: &'a Observed, status: &ProcessingElementStatus) -> Option<&'a Pod> {
    let recorded = |pod: &Pod| status.pod_uid.as_ref().is_none_or(|uid| *uid == pod.uid);
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

/// Older pods, and those of an earlier PE of the name, that may still run: the new pod would share their Service and
/// volumes.
pub(super) fn in_the_way<'a>(
    observed: &'a Observed,
    status: &ProcessingElementStatus,
) -> impl Iterator<Item = &'a Pod> + use<'a> {
    let launch_count = status.launch_count;
    let older = observed.pods.iter().filter(move |pod| pod.launch_count < launch_count);
    older.chain(&observed.predecessors).filter(|pod| pod.may_run(observed.now))
}

/// What is known of the pod of the launch count.
enum Fate<'a> {
    There(&'a Pod),
    Gone(&'a Vanished),
    Unknown,
}

/// A decision while it is being made.
struct Making<'a> {
    observed: &'a Observed,
    status: ProcessingElementStatus,
    wake_at: Option<Timestamp>,
    notices: Vec<Notice>,
}

impl<'a> Making<'a> {
    fn of(observed: &'a Observed) -> Self {
        Self { observed, status: observed.status.clone(), wake_at: None, notices: Vec::new() }
    }

    fn finish(self, step: Step, deletions: Vec<Deletion>) -> Decision {
        let Self { status, wake_at, notices, .. } = self;
        Decision { step, status, deletions, wake_at, notices }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn notice(&mut self, warning: bool, reason: &'static str, note: String) {
        self.notices.push(Notice { warning, reason, note });
    }

    fn fate(&self) -> Fate<'a> {
        match (current(self.observed, &self.status), &self.observed.vanished) {
            (Some(pod), _) => Fate::There(pod),
            (None, Some(vanished)) => Fate::Gone(vanished),
            (None, None) => Fate::Unknown,
        }
    }

    fn step(&mut self) -> Step {
        self.adopt()
            .or_else(|| self.note_created())
            .or_else(|| self.note_end())
            .or_else(|| self.note_removal())
            .or_else(|| self.meet_request())
            .or_else(|| self.launch())
            .or_else(|| self.put_off())
            .or_else(|| self.create())
            .unwrap_or_else(|| {
                self.wake_when_ready();
                Step::Rest
            })
    }

    /// The status is behind the pods only if somebody reset it, e.g. by restoring the PE from a backup (rule pe-15).
    fn adopt(&mut self) -> Option<Step> {
        let newest = self.observed.pods.iter().max_by_key(|pod| pod.launch_count)?;
        if newest.launch_count <= self.status.launch_count {
            return None;
        }
        self.status.launch_count = newest.launch_count;
        self.status.restart_requested.clone_from(&self.observed.wanted.restart_requested);
        self.made_from(newest);
        Some(Step::Record(Change::Adopted))
    }

    /// From now on the absence of the pod means that it is gone.
    fn note_created(&mut self) -> Option<Step> {
        let pod = current(self.observed, &self.status).filter(|_| !was_created(&self.status))?;
        self.made_from(pod);
        self.notice(false, "PodCreated", format!("pod {} was created (launch {})", pod.name, pod.launch_count));
        Some(Step::Record(Change::Created))
    }

    fn made_from(&mut self, pod: &Pod) {
        let status = &mut self.status;
        status.created_launch_count = pod.launch_count;
        status.pod_name = Some(pod.name.clone());
        status.pod_uid = Some(pod.uid.clone());
        status.content_id.clone_from(&pod.content_id);
        status.runtime_id.clone_from(&pod.runtime_id);
        status.pod_template_hash.clone_from(&pod.template_hash);
    }

    fn create(&mut self) -> Option<Step> {
        if self.status.launch_count == 0 || was_created(&self.status) || obstacle(self.observed).is_some() {
            return None;
        }
        let waits_until = in_the_way(self.observed, &self.status).map(Pod::given_up_at).collect::<Vec<_>>();
        for at in waits_until.iter().flatten() {
            self.wake(*at);
        }
        // A refused pod is tried again when the queue says so.
        (waits_until.is_empty() && self.observed.refusal.is_none()).then_some(Step::Create)
    }

    fn wake_when_ready(&mut self) {
        let observed = self.observed;
        if let Some(Pod { stage: Stage::Running(Some(since)), .. }) = current(observed, &self.status) {
            let ready_at = after(*since, observed.min_ready);
            if ready_at > observed.now {
                self.wake(ready_at);
            }
        }
    }
}
