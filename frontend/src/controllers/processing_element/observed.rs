//! The observation of a PE: plain values that the PE controller decides by.
//!
//! Knows: what a decision depends on. Must not know: mirrors, clusters, pods as Kubernetes has them.

use crate::controllers::times::after;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_api::{PeOptions, ProcessingElementStatus};

/// Everything that [`decide`](super::decide::decide) depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeObservation {
    /// The time.
    pub(crate) now: Timestamp,
    /// The PE object.
    pub(crate) wanted: PeObject,
    /// The status as it was written last.
    pub(crate) status: ProcessingElementStatus,
    /// The job that the PE belongs to.
    pub(crate) job: OwnerJob,
    /// The pod that would be created now, or what it waits for.
    pub(crate) template: Result<TemplateHashes, Obstacle>,
    /// Pods of this PE object.
    pub(crate) pods: Vec<ObservedPod>,
    /// The first pod, which the status does not have yet, was seen, and then its deletion. `pods` has it as it was.
    pub(crate) first_was_deleted: bool,
    /// Pods of an earlier PE object of the same name. Its deletion deletes them, or leaves them behind.
    pub(crate) predecessors: Vec<ObservedPod>,
    /// Set once the API server has said that the pod of the launch count does not exist.
    pub(crate) vanished: Option<AbsentPod>,
    /// Why the API server has just refused the pod of the launch count.
    pub(crate) refusal: Option<Obstacle>,
    /// A newer text of the PE is about to be written: until then, no pod is made from the one that it refers to.
    pub(crate) renewed_by: Option<Timestamp>,
    /// How long a pod must have been running until it counts as running.
    pub(crate) min_ready: Duration,
    /// What is not said at once may wait for longer: there are about as many calls as can be made, or more, or were a
    /// moment ago (rule call-25); or the PE is one of many that its job gets.
    pub(crate) may_wait_long: bool,
    /// Until then, at most, pods of others go before this PE, so that it does not say that its first pod runs: in a
    /// crowd those of jobs of its namespace that are being submitted, and those of its own job if it is one of many.
    pub(crate) others_go_first_until: Option<Timestamp>,
    /// Metadata of the pod is not restored before this time, because it was restored too often (rule call-19).
    pub(crate) unrestored_until: Option<Timestamp>,
    /// Somebody else changes metadata of the pod as often as it is restored.
    pub(crate) contention: Option<Contention>,
}

/// Somebody else changes a field as often as it is restored (rule call-19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contention {
    /// The field.
    pub(crate) field: String,
    /// When it is over, if nothing has to be restored any more.
    pub(crate) until: Timestamp,
}

/// A PE object, as far as it decides when pods are created and replaced.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PeObject {
    /// Name of the PE.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// `metadata.generation`.
    pub(crate) object_generation: Option<i64>,
    /// When it was created.
    pub(crate) created_at: Option<Timestamp>,
    /// Somebody has deleted an earlier object of its name, and the job controller has made this one for it. It is told
    /// until the first launch is recorded.
    pub(crate) made_again: bool,
    /// It is being deleted.
    pub(crate) deleting: bool,
    /// Something controls it. A user who makes a PE by hand does not say what.
    pub(crate) controlled: bool,
    /// No PE of the same job has a smaller number.
    pub(crate) is_first: bool,
    /// Generation of the job that changed it last.
    pub(crate) generation: u64,
    /// Hash of what a running PE can observe of its text.
    pub(crate) runtime_id: String,
    /// The last request of a user to restart it; of bounded length.
    pub(crate) restart_requested: Option<String>,
    /// The last request of a user to stop it, if it was not taken back; of bounded length.
    pub(crate) stop_requested: Option<String>,
    /// What becomes of a pod that ended.
    pub(crate) policies: Policies,
}

/// What becomes of a pod that ended (rule pe-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    /// A failed pod is replaced.
    pub(crate) restart_failed: bool,
    /// A completed pod is replaced.
    pub(crate) restart_completed: bool,
    /// A deleted pod is replaced, whatever it did when it was deleted.
    pub(crate) restart_deleted: bool,
    /// A failed pod is deleted.
    pub(crate) delete_failed: bool,
}

impl Policies {
    /// The policies of these options.
    pub(crate) fn of(options: &PeOptions, restart_failed: bool) -> Self {
        Self {
            restart_failed,
            restart_completed: options.restart_completed_pod,
            restart_deleted: options.restart_deleted_pod,
            delete_failed: options.delete_failed_pod,
        }
    }
}

/// The job that a PE belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerJob {
    /// There is none, or another one of the same name.
    Missing,
    /// It exists and does not control the PE: somebody has removed the owner reference, or made it another one.
    Estranged,
    /// It is shown, and does not control the PE. Perhaps it has just been deleted without its PEs, and that is not
    /// shown yet: the API server is to be asked.
    Doubtful,
    /// It is being deleted, and its PEs with it.
    Deleting,
    /// It exists.
    There {
        /// When it was created.
        created_at: Option<Timestamp>,
        /// The committed generation.
        generation: Option<u64>,
        /// When it was committed.
        committed_at: Option<Timestamp>,
        /// A user suspended it: no pod may run.
        suspended: bool,
    },
}

impl OwnerJob {
    /// Whether a user suspended it.
    pub(crate) fn is_suspended(self) -> bool {
        matches!(self, Self::There { suspended: true, .. })
    }
}

/// Hashes that tell one pod template from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateHashes {
    /// Hash of what users can change without a restart.
    pub(crate) hash: String,
    /// Hash of where the pod must run.
    pub(crate) placement: String,
}

/// Why no pod can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// One word in CamelCase.
    pub(crate) reason: &'static str,
    /// One sentence.
    pub(crate) message: String,
}

/// A pod that the API server does not have any more; or not yet, if its creation is not recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AbsentPod {
    /// Its last state that the process has seen, if any.
    pub(crate) last_seen: Option<ObservedPod>,
    /// The process was told of its deletion.
    pub(crate) deletion_seen: bool,
    /// When the API server said so first.
    pub(crate) since: Timestamp,
    /// Its node does not exist any more.
    pub(crate) node_gone: bool,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObservedPod {
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// The launch count that it was created for.
    pub(crate) launch_count: u64,
    /// Content id that it was made from.
    pub(crate) content_id: Option<String>,
    /// Runtime id that it was made from.
    pub(crate) runtime_id: Option<String>,
    /// Hash of the template that it was made from.
    pub(crate) template_hash: Option<String>,
    /// Hash of where it must run.
    pub(crate) placement_hash: Option<String>,
    /// Name of its node.
    pub(crate) node: Option<String>,
    /// What it does.
    pub(crate) stage: Stage,
    /// When it was created.
    pub(crate) created_at: Option<Timestamp>,
    /// The end of its grace period, if it is being deleted.
    pub(crate) gone_by: Option<Timestamp>,
    /// When that was asked for, as the API server says.
    pub(crate) asked_to_go_at: Option<Timestamp>,
    /// It was seen to be deleted before its PE was seen to end.
    pub(crate) was_going: bool,
    /// Why it is disrupted (`DisruptionTarget`), if it is.
    pub(crate) disruption: Option<Explanation>,
    /// Nothing controls it: the PE was deleted without it (rule pe-22).
    pub(crate) left_behind: bool,
    /// What controls it by now and is not the PE, for people (rule pe-25).
    pub(crate) other_controller: Option<String>,
    /// The first field of its metadata that somebody has changed of what the controller relies on (rule pe-25).
    pub(crate) spoilt: Option<String>,
}

/// What a pod does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    /// It has not run yet, for this reason.
    Pending(Explanation),
    /// It runs, since then by the clock of its node if that is known.
    Running(Option<Timestamp>),
    /// Its node does not answer.
    Unknown,
    /// The container of the PE has ended and will not start again.
    Ended(PodEnd),
}

impl Default for Stage {
    fn default() -> Self {
        Self::Pending(Explanation::default())
    }
}

/// A reason and a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// One word in CamelCase; empty if nothing was said.
    pub(crate) reason: String,
    /// For people.
    pub(crate) message: String,
}

/// How a pod ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodEnd {
    /// Not with exit code 0.
    pub(crate) failed: bool,
    /// Exit code of the container that ended it.
    pub(crate) exit_code: Option<i32>,
    /// The pod says why it failed, and no container of it has started.
    pub(crate) never_started: bool,
    /// Reason and message of the pod, else of that container.
    pub(crate) why: Explanation,
    /// When the container started.
    pub(crate) started_at: Option<Timestamp>,
    /// When it ended.
    pub(crate) finished_at: Option<Timestamp>,
    /// Containers beside that of the PE go on, and nothing ends them but the end of the pod.
    pub(crate) others_run: bool,
}

impl PeObservation {
    /// Whether a pod that has been running since then counts as running (rule pe-14).
    pub(crate) fn has_settled(&self, since: Timestamp) -> bool {
        after(since, self.min_ready) <= self.now
    }
}

/// A pod that should have been gone for this long is on a node that does not answer (rule pe-5).
const UNANSWERED: Duration = Duration::from_secs(30);

impl ObservedPod {
    /// How it ended.
    pub(crate) fn end(&self) -> Option<&PodEnd> {
        match &self.stage {
            Stage::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// All texts that were read of it.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let Self { name, uid, content_id, runtime_id, template_hash, placement_hash, node, stage, disruption, .. } =
            self;
        let why = match stage {
            Stage::Pending(why) => Some(why),
            Stage::Ended(end) => Some(&end.why),
            Stage::Running(_) | Stage::Unknown => None,
        };
        let explained = why.into_iter().chain(disruption).flat_map(|why| [&why.reason, &why.message]);
        let hashes = [content_id, runtime_id, template_hash, placement_hash, node].into_iter().flatten();
        let of_owner = [&self.other_controller, &self.spoilt].into_iter().flatten();
        [name, uid].into_iter().chain(hashes).chain(explained).chain(of_owner).map(String::as_str)
    }

    /// Takes what it was made from, and whether that was changed, from another state of it that knows.
    pub(crate) fn take_origin_of(&mut self, other: &Self) {
        self.content_id.clone_from(&other.content_id);
        self.runtime_id.clone_from(&other.runtime_id);
        self.template_hash.clone_from(&other.template_hash);
        self.placement_hash.clone_from(&other.placement_hash);
        self.spoilt = self.spoilt.take().or_else(|| other.spoilt.clone());
    }

    /// It ended, and not with exit code 0.
    pub(crate) fn has_failed(&self) -> bool {
        self.end().is_some_and(|end| end.failed)
    }

    /// Its PE has ended, and other containers keep it (rule pe-26).
    pub(crate) fn lingers(&self) -> bool {
        self.end().is_some_and(|end| end.others_run)
    }

    /// Somebody deleted it.
    pub(crate) fn is_deleting(&self) -> bool {
        self.gone_by.is_some()
    }

    /// Its PE ended because somebody deleted it: after that was asked for. Its node says when the one was, the API
    /// server when the other, and their clocks may differ; who has followed the pod needs neither.
    pub(crate) fn ended_by_deletion(&self) -> bool {
        let Some(end) = self.end() else { return false };
        let is_after = matches!((end.finished_at, self.asked_to_go_at), (Some(ended), Some(asked)) if ended >= asked);
        is_after || self.was_going
    }

    /// The PE controls it.
    pub(crate) fn is_controlled(&self) -> bool {
        !self.left_behind && self.other_controller.is_none()
    }

    /// Until when to wait for the end of a pod that is being deleted. By then its node would have ended it.
    pub(crate) fn given_up_at(&self) -> Option<Timestamp> {
        self.gone_by.map(|gone_by| after(gone_by, UNANSWERED))
    }

    /// Whether it may still run.
    pub(crate) fn may_run(&self, now: Timestamp) -> bool {
        self.end().is_none() && self.given_up_at().is_none_or(|at| now < at)
    }
}
