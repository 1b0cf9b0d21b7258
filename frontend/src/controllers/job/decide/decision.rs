//! What is decided for a job, as values: a step in its life, or actions.
//!
//! Knows: what there is to decide. Must not know: why, and how it is carried out.

use crate::controllers::job::child::Child;
use crate::controllers::job::owned::Owned;
use crate::controllers::job::requests::observe::ToTell;
use crate::controllers::job::tasks::{Failure, Task};
use std::collections::BTreeMap;
use streams_api::{RefusedEdit, ResizeChanges, StoredAdl, StoredPlan, UnwrittenWidth};

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobDecision {
    /// Record a step in the status, and decide again.
    Step(Step),
    /// Carry out these actions, in any order. An empty list means that nothing is left to do.
    Work(Vec<JobAction>),
}

impl JobDecision {
    /// The plan that is recorded as the proposal, if that is decided.
    pub(crate) fn plan_to_record(&self) -> Option<&StoredPlan> {
        let Self::Step(Step::Record(change) | Step::RecordAndStart(change, _)) = self else { return None };
        let JobStatusChange::Propose { plan, .. } = change else { return None };
        Some(plan)
    }
}

/// A step in the life of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Take the next job id, then record it, and with it the ADL if that was fetched.
    AllocateJobId(Option<StoredAdl>),
    /// Write the status, if nobody wrote it meanwhile.
    Record(JobStatusChange),
    /// The same, and beside it start work that the new status asks for, and that nothing refers to before it does
    /// (rule job-3).
    RecordAndStart(JobStatusChange, Box<Task>),
    /// Let the request to resize with this number and name say that it is refused.
    RefuseRequest(u64, String, Failure),
}

/// What one write of the status records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobStatusChange {
    /// The number of the job.
    JobId {
        /// The number.
        id: u64,
        /// The ADL, if it is pinned with the same write.
        adl: Option<StoredAdl>,
    },
    /// The ADL is pinned.
    Adl(StoredAdl),
    /// A generation is proposed.
    Propose {
        /// Its plan.
        plan: StoredPlan,
        /// The widths it has.
        widths: BTreeMap<String, u32>,
        /// What it does to PEs.
        changes: ResizeChanges,
    },
    /// The proposal is abandoned.
    Abandon,
    /// The proposal is abandoned, because this holds it up, and others wait: it is found out who is at fault.
    GiveWay(Failure),
    /// The proposal is committed.
    Commit,
    /// The submission has failed for this spec.
    FailSubmission(Failure),
    /// The width in the spec of a region is refused.
    RejectResize(RefusedEdit),
    /// What was proposed cannot be written.
    RejectProposal(Failure),
    /// The submission took too long: it begins again, with none of the objects of this attempt.
    StartOver,
    /// The spec of a failed submission was changed.
    SubmitAgain,
    /// The spec of a submission was changed that has not failed for good: its clock and its attempts begin anew.
    BeginAnew,
}

impl JobStatusChange {
    /// Its name in logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::JobId { adl: None, .. } => "number",
            Self::JobId { adl: Some(_), .. } => "number and pin the ADL",
            Self::Adl(_) => "pin the ADL",
            Self::Propose { .. } => "propose",
            Self::Abandon => "abandon",
            Self::GiveWay(_) => "give way",
            Self::Commit => "commit",
            Self::FailSubmission(_) => "fail the submission",
            Self::RejectResize(_) => "reject the resize",
            Self::RejectProposal(_) => "reject the proposal",
            Self::StartOver => "start over",
            Self::SubmitAgain => "submit again",
            Self::BeginAnew => "begin anew",
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobAction {
    /// Start long work.
    Start(Task),
    /// Bring a child to what this generation wants of it.
    Apply(Child, WhichGeneration),
    /// Restore labels and annotations of the ConfigMap with a text or a chunk, by name.
    RestoreMetadata(String),
    /// Write the chunks of a document again, if its content is still known: somebody deleted some of them.
    StoreAgain(StoredDocument),
    /// Delete an object.
    Delete(Owned, Propagation),
    /// Delete the pods of the PE with this id, which was removed and does not go.
    EndPods(u64),
    /// Admit the requests to resize that are new.
    Admit,
    /// Let the request to resize of this name say this of itself.
    Tell(String, Box<ToTell>),
    /// Write a width in force into the spec of the region with this index.
    WriteWidth(UnwrittenWidth),
    /// Write a width that an annotation wants into the spec of the region with this index.
    TakeOver {
        /// Index of the region.
        region: u64,
        /// The width.
        width: u32,
    },
}

/// Which generation an object is applied for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhichGeneration {
    /// The committed one.
    Committed,
    /// The proposed one.
    Proposed,
}

/// A document in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredDocument {
    /// The pinned ADL.
    Adl,
    /// A plan.
    Plan(WhichGeneration),
}

/// When an object goes away that others depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// At once; what depends on it follows.
    Background,
    /// After what depends on it.
    Foreground,
}
