//! What to do next for a job: one pure function from what is observed to a decision (rules job-1 and job-2).
//!
//! Two tracks run side by side. [`prepare`](prepare::prepare) prepares the next generation. It takes the action of the
//! first row that is not done yet:
//!
//! | Row | Until | Action |
//! |---|---|---|
//! | refuse | the spec can be submitted | record the failure |
//! | again | the spec of a failed submission was changed | record a new submission |
//! | number | `status.jobId` | wait for the ADL a while; count, then record both |
//! | time | the first generation is committed | past the time-out: record that it starts over, or has failed |
//! | clean slate | nothing of an earlier attempt exists | delete it |
//! | fetch | `status.adl` | start fetching; record the result |
//! | compile | `status.proposal`, if not the committed target is wanted | start compiling; record the result |
//! | publish | the texts of all PEs that need one are in ConfigMaps | start writing |
//! | leftovers | no PE object of an abandoned proposal stays | delete |
//! | objects | host pools, regions, port labels, Services and PEs that are new exist | apply; PEs after their texts |
//! | commit | | one write of the status |
//!
//! [`roll_out`](roll_out::roll_out) brings the objects to the committed generation, PEs that run in [`waves`], and
//! repairs what users delete; [`clean_up`](clean_up::clean_up) deletes what neither track refers to.
//!
//! Widths that a request wants of several regions are compiled at once. The controller writes them into the regions
//! after the commit ([`JobAction::WriteWidth`]).
//!
//! A decision is a [`Step`] or work. A step writes the status and so changes what is to be done: no action that was
//! decided for the earlier status may go with it, only work that the later one asks for (rule job-3). The actions of
//! [`JobDecision::Work`] do not depend on each other: they may be done in any order, and after any subset of them (a
//! crash) the next decisions lead to the same end.
//!
//! Knows: names, hashes, states. Must not know: clients, how objects look.

mod clean_up;
mod prepare;
mod removals;
mod roll_out;
mod waves;

use super::generation::next_generation;
use super::held_up::Blocked;
use super::observed::{Children, DesiredGeneration, DesiredPe, JobObservation, Loaded, ObservedDrift, ObservedObject};
use super::refusals::{self, NAME_TAKEN};
use super::requests::observe::ToTell;
use super::tasks::{Failure, Progress, Remedy, Task};
use super::waits::{Waits, Words};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use streams_api::{RefusedEdit, ResizeChanges, ResizePhase, StoredAdl, StoredPlan, UnwrittenWidth, condition};

pub(crate) use super::child::Child;
pub(crate) use super::owned::Owned;
pub(crate) use removals::removals;
use roll_out::unfinished_end;
pub(crate) use roll_out::{is_rolled_out, roll_out_end};

/// What a generation waits for whose bundle is being fetched.
pub(crate) const FETCHING: &str = "the bundle to be fetched";
/// What a generation waits for that is being compiled.
pub(crate) const COMPILING: &str = "the application to be compiled";
/// What a proposal waits for first.
pub(crate) const WRITING: &str = "AADL texts to be written";
/// How soon after a proposal the next write about its requests says more than that they are planned (rule job-50).
const SOON: Duration = Duration::from_secs(1);
/// How soon more objects are rewritten, if no more may be now.
const REWRITES_LATER: Duration = Duration::from_secs(1);

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

/// What the status should say about the job, found while deciding.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// What the next generation waits for, in words; empty when there is nothing to prepare.
    pub(crate) preparing: String,
    /// The failure that is being retried, if any.
    pub(crate) trouble: Option<Failure>,
    /// The first object that the proposal waits for and that is not written now.
    pub(crate) blocked: Option<Blocked>,
    /// PEs of the committed generation that do not run yet what it wants.
    pub(crate) pending: u32,
    /// PEs of the committed generation that run what it wants.
    pub(crate) ready: u32,
    /// PEs of the committed generation whose objects are still to be written, with nothing changing for their pods.
    /// They count as they run as well.
    pub(crate) unwritten: u32,
    /// PEs that are still to be removed.
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
    fn wait(&mut self, id: u64, is_launched: bool, words: &Words) {
        self.pending += 1;
        self.waits.add(id, words);
        if !is_launched {
            self.without_pods.add(id, words);
        }
    }
}

/// A decision that is not complete yet: the actions so far, and the report.
#[derive(Default)]
struct Draft {
    actions: Vec<JobAction>,
    report: Report,
    /// Objects that are rewritten because the frontend wants another form of them.
    rewrites: usize,
}

impl Draft {
    fn act(&mut self, action: JobAction) {
        self.actions.push(action);
    }

    /// What is deleted need not be as it should: the two would be in each other's way.
    fn restore_no_more_than_stays(&mut self) {
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
    fn starts(&self, is_like: impl Fn(&Task) -> bool) -> bool {
        self.actions.iter().any(|action| matches!(action, JobAction::Start(task) if is_like(task)))
    }

    /// Deletes an object at once, unless it is being deleted.
    fn delete(&mut self, object: Owned, state: &ObservedObject) {
        self.delete_with(Propagation::Background, object, state);
    }

    fn delete_with(&mut self, propagation: Propagation, object: Owned, state: &ObservedObject) {
        if !state.deleting {
            self.report.deletes = true;
            self.act(JobAction::Delete(object, propagation));
        }
    }

    /// Applies a child unless it is up to date. Returns whether it is. Waits for a child that is being deleted. A child
    /// that was changed by others is up to date and restored.
    fn ensure(
        &mut self,
        observed: &JobObservation,
        child: Child,
        of: WhichGeneration,
        current: Option<Current>,
    ) -> bool {
        match current {
            Some(Current { deleting: true, .. }) => {
                if of == WhichGeneration::Proposed {
                    self.report.blocked.get_or_insert(Blocked::Terminating(Owned::Child(child)));
                }
                false
            }
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
    fn may_restore(&mut self, observed: &JobObservation, drift: Option<&ObservedDrift>) -> bool {
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
    fn rewrite(&mut self, observed: &JobObservation, child: Child, of: WhichGeneration) {
        if observed.rewrites.is_none_or(|left| self.rewrites < left) {
            self.rewrites += 1;
            self.act(JobAction::Apply(child, of));
        } else {
            self.wake(after(observed.now, REWRITES_LATER));
        }
    }

    /// Starts long work, waits for it, or retries it (rule job-20). Returns the output, or the failure that a user must
    /// correct. `what` names the work in messages.
    fn poll<'a, O>(
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
                    if at > observed.now {
                        self.wake(at);
                    }
                    at <= observed.now
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
    fn wake(&mut self, at: Timestamp) {
        let wake_at = &mut self.report.wake_at;
        *wake_at = Some(wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// The present state of a child.
struct Current<'a> {
    as_wanted: bool,
    deleting: bool,
    drift: Option<&'a ObservedDrift>,
    /// If it is another one than is wanted, the job has changed: that is no rewrite.
    at_once: bool,
}

impl<'a> Current<'a> {
    /// Of an object that should have been applied with this hash.
    fn of(object: &'a ObservedObject, wanted: &str) -> Self {
        let as_wanted = object.applied == wanted;
        Self { as_wanted, deleting: object.deleting, drift: object.drift.as_ref(), at_once: false }
    }

    /// Of the Service of a PE that a generation wants.
    fn service(children: &'a Children, generation: u64, id: u64, pe: &DesiredPe) -> Option<Self> {
        let (object, ports) = (children.services.get(&id)?, &children.user_ports);
        let at_once = ports.changed.contains(&id);
        Some(Self { at_once, ..Self::of(object, ports.service(generation, id, &pe.service)) })
    }

    /// Of an object that only has to exist.
    fn existing(object: &'a ObservedObject) -> Self {
        Self { as_wanted: true, deleting: object.deleting, drift: object.drift.as_ref(), at_once: false }
    }
}

/// Decides what to do next, and what the status should say. Pure: the same observation gives the same decision.
pub(crate) fn decide(observed: &JobObservation) -> (JobDecision, Report) {
    let mut draft = Draft::default();
    let step = prepare::prepare(observed, &mut draft);
    for (&region, &width) in &observed.widths_to_take_over {
        draft.act(JobAction::TakeOver { region, width });
    }
    requests(observed, &mut draft);
    roll_out::roll_out(observed, &mut draft);
    clean_up::clean_up(observed, &mut draft);
    draft.restore_no_more_than_stays();
    if let Some(end) = observed.written_until {
        draft.wake(end);
    }
    // Of a submission that has failed for good the Secret only has to go.
    let is_over = refusals::is_final(&observed.status);
    let transport = observed.transport.as_ref().filter(|transport| !is_over || transport.has_secret());
    if let Some(next) = transport.and_then(|transport| transport.next(observed.now)) {
        draft.wake(next);
    }
    for contention in &observed.contended {
        draft.wake(contention.until);
    }
    for at in observed.children.held_back.values() {
        draft.wake(*at);
    }
    if let Some(at) = observed.children.user_ports.changes_at {
        draft.wake(at);
    }
    let Draft { actions, report, .. } = draft;
    (step.map_or(JobDecision::Work(actions), JobDecision::Step), report)
}

/// What requests to resize are told, and what they bring into specs.
fn requests(observed: &JobObservation, draft: &mut Draft) {
    let requests = &observed.requests;
    if requests.has_new {
        draft.act(JobAction::Admit);
    }
    for end in requests.cools_until.into_iter().chain(requests.lacks_regions_until) {
        draft.wake(end);
    }
    for apart in requests.apart.iter().filter(|apart| apart.until > observed.now) {
        draft.wake(apart.until);
    }
    for (name, told) in &requests.to_tell {
        if let Some(at) = observed.proposed_at.filter(|_| told.status.phase == Some(ResizePhase::Planned)) {
            let end = after(at, SOON);
            if at <= observed.now && observed.now < end {
                draft.wake(end);
                continue;
            }
        }
        draft.act(JobAction::Tell(name.clone(), Box::new(told.clone())));
    }
    for unwritten in requests.to_write.values() {
        draft.act(JobAction::WriteWidth(unwritten.clone()));
    }
}

/// Whether every pod of the submission was created at some time.
pub(crate) fn is_submitted(observed: &JobObservation) -> bool {
    if condition::is_true(&observed.status.conditions, condition::SUBMITTED) && observed.status.generation.is_some() {
        return true;
    }
    let pes = &observed.children.processing_elements;
    committed(observed).is_some_and(|wanted| {
        // A user who stops a PE does not wait for its pod.
        wanted.processing_elements.keys().all(|id| pes.get(id).is_some_and(|pe| pe.launched || pe.is_stopped))
    })
}

fn committed(observed: &JobObservation) -> Option<&DesiredGeneration> {
    observed.committed.as_ref().and_then(Loaded::whole)
}

fn proposed(observed: &JobObservation) -> Option<&DesiredGeneration> {
    observed.proposed.as_ref().and_then(Loaded::whole)
}

/// `start` plus `duration`; a duration beyond the calendar never ends.
fn after(start: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration).ok().and_then(|d| start.checked_add(d).ok()).unwrap_or(Timestamp::MAX)
}

/// PE objects that neither the committed nor the proposed generation has.
fn superfluous(observed: &JobObservation) -> impl Iterator<Item = u64> + '_ {
    let generations = [committed(observed), proposed(observed)];
    let pes = observed.children.processing_elements.keys();
    pes.filter(move |id| !generations.iter().flatten().any(|wanted| wanted.processing_elements.contains_key(id)))
        .copied()
}

/// There are objects that have to go before anything is committed.
pub(super) fn has_abandoned(observed: &JobObservation) -> bool {
    !abandoned(observed).is_empty()
}

/// PE objects that were created for a proposal which was abandoned, and that the present proposal does not want
/// (rule job-25).
fn abandoned(observed: &JobObservation) -> Vec<u64> {
    let next = next_generation(&observed.status);
    let proposal = proposed(observed);
    let wanted = |id: &u64| proposal.is_some_and(|proposal| proposal.processing_elements.contains_key(id));
    let pes = observed.children.processing_elements.iter();
    pes.filter(|(id, pe)| pe.generation >= next && !wanted(id)).map(|(id, _)| *id).collect()
}

/// What is said of a PE that the job does not have, if there is an object of its name: that one may have a pod that
/// runs (rule job-30).
fn name_taken(observed: &JobObservation, id: u64) -> Option<Words> {
    let in_the_way = &observed.in_the_way;
    observed.children.taken.contains(&id).then(|| {
        let message = format!("the job does not control the object of its name; in the way: {in_the_way}");
        Words::of(NAME_TAKEN, &message)
    })
}
