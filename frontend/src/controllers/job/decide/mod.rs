//! What to do next for a job: one pure function from what is observed to a list of actions (rules job-1 and job-2).
//!
//! Two tracks run side by side. [`prepare`](prepare::prepare) leads to the next generation, one row at a time; the
//! first row that is not done yet decides:
//!
//! | Row | Until | Action |
//! |---|---|---|
//! | refuse | the spec can be submitted | record the failure |
//! | again | the spec of a failed submission was changed | record a new submission |
//! | number | `status.jobId` | count, then record |
//! | time | every pod of a submission was created | past the time-out: record that it starts over, or has failed |
//! | clean slate | nothing of an earlier attempt exists | delete it |
//! | fetch | `status.adl` | start fetching; record what came |
//! | compile | `status.proposal`, if another target is wanted than the committed one | start compiling; record what came |
//! | publish | the texts of all PEs that need one are in ConfigMaps | start writing |
//! | leftovers | no PE object of an abandoned proposal exists | delete |
//! | objects | host pools, regions, port labels, Services and PEs that are new exist | apply |
//! | commit | | one write of the status |
//!
//! [`roll_out`](roll_out::roll_out) brings what exists to the committed generation and repairs what users delete;
//! [`clean_up`](clean_up::clean_up) removes what neither track refers to.
//!
//! Widths that a request wants of several regions are compiled at once, and written into the regions beside that
//! ([`Action::TakeOver`]).
//!
//! A step (a write of the status that changes what is wanted) is always the only action of its decision (rule job-3).
//! All actions of one decision are independent of each other: they may be done in any order, and after any subset of
//! them (a crash) the next decision leads to the same end.
//!
//! Knows: names, hashes, states. Must not know: clients, how objects look.

mod clean_up;
mod prepare;
mod roll_out;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use streams_api::{StoredAdl, StoredPlan, condition};

use super::observed::{About, Compilation, Failure, Loaded, Observed, Publish, Remedy, Wanted};

pub(crate) use roll_out::{is_rolled_out, roll_out_end};

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Take the next job id, then record it.
    AllocateJobId,
    /// Start long work.
    Start(Task),
    /// Write the status, if nobody wrote it meanwhile.
    Record(Change),
    /// Bring an object to what this generation wants of it.
    Apply(Child, Which),
    /// Write the chunks of a document again, if its content is still known: somebody deleted some of them.
    StoreAgain(Stored),
    /// Delete an object.
    Delete(Child, Propagation),
    /// Write a width that a request wants into the spec of the region with this index.
    TakeOver {
        /// Index of the region.
        region: u64,
        /// The width.
        width: u32,
    },
}

/// When an object goes away that others depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// At once; what depends on it follows.
    Background,
    /// After what depends on it.
    Foreground,
}

/// Long work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Task {
    /// Fetch the bundle that this generation of the spec names, and write the chunks of its ADL.
    Fetch {
        /// `metadata.generation`.
        spec_generation: i64,
    },
    /// Compile, and write the chunks of the plan.
    Compile(Compilation),
    /// Write texts of the proposed generation.
    Publish(Publish),
    /// Write texts of the committed generation again.
    Repair(Publish),
}

/// A step in the life of a job: one write of the status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The number of the job.
    JobId(u64),
    /// The ADL is pinned.
    Adl(StoredAdl),
    /// A generation is proposed.
    Propose {
        /// Its plan.
        plan: StoredPlan,
        /// The widths it has.
        widths: BTreeMap<String, u32>,
    },
    /// The proposal is abandoned.
    Abandon,
    /// The proposal is committed.
    Commit,
    /// The submission has failed for this spec.
    FailSubmission(Failure),
    /// The desired widths are refused.
    RejectResize(Failure),
    /// The submission took too long: from a clean slate again.
    StartOver,
    /// The spec of a failed submission was changed.
    SubmitAgain,
}

impl Change {
    /// What it is called in logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::JobId(_) => "number",
            Self::Adl(_) => "pin the ADL",
            Self::Propose { .. } => "propose",
            Self::Abandon => "abandon",
            Self::Commit => "commit",
            Self::FailSubmission(_) => "fail the submission",
            Self::RejectResize(_) => "reject the resize",
            Self::StartOver => "start over",
            Self::SubmitAgain => "submit again",
        }
    }
}

/// An object of the job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Child {
    /// A PE, by id; with the name of the ConfigMap that it refers to when it is applied.
    ProcessingElement(u64, String),
    /// The Service of a PE, by its id.
    Service(u64),
    /// A region, by index. It is only ever created, never changed.
    Region(u64),
    /// A host pool, by index.
    HostPool(u64),
    /// The job's own ConfigMap.
    JobConfigMap,
    /// A ConfigMap with a text or a chunk, by name. It is never applied: long work writes it.
    ConfigMap(String),
}

/// Which generation an object is applied for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The committed one.
    Committed,
    /// The proposed one.
    Proposed,
}

/// A document in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The pinned ADL.
    Adl,
    /// A plan.
    Plan(Which),
}

/// What to do, and what is waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decision {
    /// What to do, in any order.
    pub(crate) actions: Vec<Action>,
    /// What the next generation waits for, in words; empty when there is nothing to prepare.
    pub(crate) preparing: String,
    /// The failure that is being retried, if any.
    pub(crate) trouble: Option<Failure>,
    /// PEs of the committed generation that do not run yet what it wants.
    pub(crate) pending: u32,
    /// PEs of the committed generation that run what it wants.
    pub(crate) ready: u32,
    /// PEs that are still to be removed.
    pub(crate) superfluous: u32,
    /// PEs that are gone or down and stay so.
    pub(crate) down: BTreeSet<u64>,
    /// Something that the job needs is lost.
    pub(crate) lost: Option<String>,
    /// When to look again although nothing happens.
    pub(crate) wake_at: Option<Timestamp>,
}

impl Decision {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// What to do next. Pure: the same observation gives the same decision.
pub(crate) fn decide(observed: &Observed) -> Decision {
    let mut decision = Decision::default();
    prepare::prepare(observed, &mut decision);
    let to_take_over = observed.widths_to_take_over.iter();
    decision.actions.extend(to_take_over.map(|(&region, &width)| Action::TakeOver { region, width }));
    roll_out::roll_out(observed, &mut decision);
    clean_up::clean_up(observed, &mut decision);
    if decision.trouble.is_none() {
        decision.trouble.clone_from(&observed.obstacle);
    }
    // A step changes what the rest was decided for.
    let is_step = |action: &Action| matches!(action, Action::AllocateJobId | Action::Record(_));
    if decision.actions.iter().any(is_step) {
        decision.actions.retain(is_step);
    }
    decision
}

/// Whether every pod of the submission was created at some time.
pub(crate) fn is_submitted(observed: &Observed) -> bool {
    if condition::is_true(&observed.status.conditions, condition::SUBMITTED) && observed.status.generation.is_some() {
        return true;
    }
    let pes = &observed.children.processing_elements;
    committed(observed)
        .is_some_and(|wanted| wanted.processing_elements.keys().all(|id| pes.get(id).is_some_and(|pe| pe.launched)))
}

fn committed(observed: &Observed) -> Option<&Wanted> {
    observed.committed.as_ref().and_then(Loaded::whole)
}

fn proposed(observed: &Observed) -> Option<&Wanted> {
    observed.proposed.as_ref().and_then(Loaded::whole)
}

/// Number of the generation that is being prepared.
fn next_generation(observed: &Observed) -> u64 {
    observed.status.generation.map_or(0, |generation| generation.saturating_add(1))
}

/// `start` plus `duration`; a duration beyond the calendar never ends.
fn after(start: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration).ok().and_then(|d| start.checked_add(d).ok()).unwrap_or(Timestamp::MAX)
}

fn delete(child: Child, deleting: bool, decision: &mut Decision) {
    if !deleting {
        decision.act(Action::Delete(child, Propagation::Background));
    }
}

/// Looks at long work: starts it, waits for it, or retries it (rule job-20). Gives the result, or the failure that
/// somebody must correct.
fn pursue<'a, R>(
    about: About<'a, R>,
    task: Task,
    what: &str,
    observed: &Observed,
    decision: &mut Decision,
) -> Option<Result<&'a R, &'a Failure>> {
    let start = match about {
        About::Done(result) => return Some(Ok(result)),
        About::Failed(failure) => match failure.remedy {
            Remedy::Correct | Remedy::Recompile => return Some(Err(failure)),
            Remedy::Retry(at) => {
                decision.trouble = Some(failure.clone());
                if at > observed.now {
                    decision.wake(at);
                }
                at <= observed.now
            }
        },
        About::Running => false,
        About::Nothing => true,
    };
    what.clone_into(&mut decision.preparing);
    if start {
        decision.act(Action::Start(task));
    }
    None
}

/// Applies a child unless it is as it should be (`current`: as it should be, being deleted). Says whether it is.
fn ensure(child: Child, which: Which, current: Option<(bool, bool)>, decision: &mut Decision) -> bool {
    match current {
        Some((_, true)) => false,
        Some((true, false)) => true,
        Some((false, false)) | None => {
            decision.act(Action::Apply(child, which));
            false
        }
    }
}

/// PE objects that neither the committed nor the proposed generation has.
fn superfluous(observed: &Observed) -> impl Iterator<Item = u64> + '_ {
    let generations = [committed(observed), proposed(observed)];
    let pes = observed.children.processing_elements.keys();
    pes.filter(move |id| !generations.iter().flatten().any(|wanted| wanted.processing_elements.contains_key(id)))
        .copied()
}

/// PE objects that were created for a proposal which was abandoned, and that the present proposal does not want
/// (rule job-25).
fn abandoned(observed: &Observed) -> Vec<u64> {
    let next = next_generation(observed);
    let proposal = proposed(observed);
    let wanted = |id: &u64| proposal.is_some_and(|proposal| proposal.processing_elements.contains_key(id));
    let pes = observed.children.processing_elements.iter();
    pes.filter(|(id, pe)| pe.generation >= next && !wanted(id)).map(|(id, _)| *id).collect()
}
