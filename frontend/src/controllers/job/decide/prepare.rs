//! Prepares the next generation, row by row.
//!
//! Knows: the observation, the proposal. Must not know: how PEs that run are replaced.

use super::super::generation::Target;
use super::super::held_up::{Blocked, looked_at_again};
use super::super::refusals;
use super::super::requests::observe::Fault;
use super::super::tasks::{
    CompileRequest, Compiled, Failure, FetchRequest, Progress, PublishRequest, Remedy, Slot, Task,
};
use super::clean_slate::{clear, delete_all_children, is_clear, what_is_left};
use super::draft::put_off_until;
use super::roll_out::lacks_plan;
use super::{
    COMPILING, Child, Current, Draft, FETCHING, JobStatusChange, Owned, Step, WRITING, WhichGeneration, abandoned,
    committed, next_generation, proposed,
};
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::observed::{DesiredGeneration, DesiredPe, JobObservation, Loaded};
use streams_api::{StoredAdl, StoredPlan, condition};

/// Generations of which not all requests were told that they are committed (schema).
const UNTOLD_MAX: usize = 64;

/// Prepares the next generation: returns the step that is due, or adds actions to the draft.
pub(super) fn prepare(observed: &JobObservation, draft: &mut Draft) -> Option<Step> {
    let status = &observed.status;
    let submitting = status.generation.is_none();
    if submitting {
        if refusals::is_final(status) {
            if status.observed_generation == Some(observed.spec_generation) {
                delete_all_children(observed, draft);
                return None;
            }
            draft.report.preparing = "a new submission".to_owned();
            return record(JobStatusChange::SubmitAgain);
        }
        if let Some(refusal) = &observed.refusal {
            return record(JobStatusChange::FailSubmission(refusal.clone()));
        }
    }
    if status.job_id.is_none() {
        return number(observed, draft);
    }
    if submitting && status.observed_generation.is_some_and(|of| of != observed.spec_generation) {
        // The time and the attempts of another spec are none of this one, which may be the correction (rule job-18).
        FETCHING.clone_into(&mut draft.report.preparing);
        return record(JobStatusChange::BeginAnew);
    }
    // The commit ends it: from then on starting over would only tear down what runs. Nor does it help while others are
    // in the way.
    let failures = observed.last_failure.iter().chain(observed.tasks.failures());
    let is_held_up = refusals::holds_up(status, observed.refusals_are_over, failures);
    if submitting && observed.worked >= observed.deadlines.submission && !is_held_up {
        return record(if status.submission_attempts < observed.deadlines.max_attempts {
            JobStatusChange::StartOver
        } else {
            JobStatusChange::FailSubmission(timed_out(observed))
        });
    }
    if submitting && status.proposal.is_none() && !is_clear(observed) {
        clear(observed, draft);
        draft.report.preparing = what_is_left(observed, draft);
        return None;
    }
    if status.adl.as_ref().is_none_or(|adl| submitting && adl.spec_generation != observed.spec_generation) {
        return fetch(observed, draft);
    }
    if matches!(observed.committed, Some(Loaded::Lost(_))) {
        // Without the plan there is no layout to resize from; the roll-out reports it.
        return None;
    }
    if observed.proposed.is_none()
        && let Some(fault) = &observed.requests.fault
    {
        draft.report.preparing = "widths to be refused".to_owned();
        return match fault {
            Fault::Edit(refused) => record(JobStatusChange::RejectResize(refused.clone())),
            Fault::Request(number, name, failure) => Some(Step::RefuseRequest(*number, name.clone(), failure.clone())),
        };
    }
    let wanted = wanted_target(observed);
    match &observed.proposed {
        None => compile(observed, wanted?, draft),
        Some(Loaded::Whole(proposal)) if proposal.target.is_some() && !observed.cannot_store_proposal => {
            match what_becomes_of(observed, proposal, wanted.as_ref()) {
                Prospect::GoesOn => write(observed, proposal, draft),
                Prospect::GivesWay(failure) => give_way(observed, proposal, failure, draft),
                Prospect::IsOutdated => abandon(draft),
            }
        }
        // It is incomplete.
        Some(_) => abandon(draft),
    }
}

/// Numbers the job. Nothing before the compilation needs the number: it waits a while for the ADL, so that one write
/// records both (rule job-50).
fn number(observed: &JobObservation, draft: &mut Draft) -> Option<Step> {
    let progress = observed.tasks.fetch.progress_of_bundle(&wanted_bundle(observed));
    if observed.status.adl.is_none() && observed.children.only_chunks() {
        if let Progress::Done(adl) = progress {
            COMPILING.clone_into(&mut draft.report.preparing);
            return Some(Step::AllocateJobId(Some(pinned(observed, adl))));
        }
        if let Some(end) = observed.unnumbered_until
            && matches!(progress, Progress::NotRequested | Progress::Running)
        {
            draft.report.unsaid_until = Some(end);
            draft.wake(end);
            return fetch(observed, draft);
        }
    }
    // What is written with the number is read when the job has it.
    let next = if observed.status.adl.is_none() { FETCHING } else { COMPILING };
    next.clone_into(&mut draft.report.preparing);
    Some(Step::AllocateJobId(None))
}

/// What becomes of a proposal that is whole.
enum Prospect<'a> {
    /// It is written, and committed.
    GoesOn,
    /// It is held up by this, and others wait, or nobody wants it any more.
    GivesWay(&'a Failure),
    /// Nobody wants it.
    IsOutdated,
}

/// A proposal goes on although other widths than it has are wanted by now: widths that change all the time would keep
/// all of them from being applied (rule elasticity-17). But it must not be in the way of others if it cannot be
/// written, nor if whoever asked for it has withdrawn the request, unless it is what others want as well.
fn what_becomes_of<'a>(
    observed: &'a JobObservation,
    proposal: &DesiredGeneration,
    wanted: Option<&Target>,
) -> Prospect<'a> {
    let is_wanted = proposal.target.as_ref() == wanted;
    let is_resize = matches!(proposal.target, Some(Target::Resize { .. })) && observed.status.generation.is_some();
    let requests = &observed.requests;
    if !is_wanted && (requests.withdraws_proposal || !is_resize) {
        return Prospect::IsOutdated;
    }
    // A wish that is tried alone was held up before.
    let may_give_way = is_resize && (requests.others_wait || !is_wanted);
    let held_up = observed.held_up.as_ref().filter(|_| may_give_way);
    match held_up.filter(|held_up| requests.is_tried_alone || held_up.lasts(observed.now)) {
        Some(held_up) => Prospect::GivesWay(&held_up.failure),
        None => Prospect::GoesOn,
    }
}

fn abandon(draft: &mut Draft) -> Option<Step> {
    draft.report.preparing = "another plan".to_owned();
    record(JobStatusChange::Abandon)
}

/// Abandons a proposal that cannot be written. Unless it has the widths in force and repairs something, it is looked
/// for who is at fault.
fn give_way(
    observed: &JobObservation,
    proposal: &DesiredGeneration,
    failure: &Failure,
    draft: &mut Draft,
) -> Option<Step> {
    let is_repair = committed(observed).is_some_and(|committed| committed.widths == proposal.widths);
    if is_repair {
        return abandon(draft);
    }
    draft.report.preparing = "another plan".to_owned();
    record(JobStatusChange::GiveWay(failure.clone()))
}

fn record(change: JobStatusChange) -> Option<Step> {
    Some(Step::Record(change))
}

/// The target of the next generation. `None` if the committed generation has it already.
pub(super) fn wanted_target(observed: &JobObservation) -> Option<Target> {
    let Some(committed) = committed(observed) else {
        return Some(Target::Submission { inputs: observed.inputs.clone() });
    };
    let rebalances = observed.requests.rebalances;
    let target = Target::Resize { widths: observed.desired_widths.clone(), rebalances };
    if committed.widths != observed.desired_widths {
        return Some(target);
    }
    // Texts of the committed plan are gone, and so is the compiler that made them: the same widths by another compiler
    // (rule job-21).
    let plan = observed.status.plan.as_ref().map(|plan| plan.sha256.as_str());
    let stuck = matches!(&observed.tasks.repair, Slot::Failed(key, failure)
        if matches!(failure.remedy, Remedy::Recompile(_)) && Some(key.plan.as_str()) == plan);
    let stuck = stuck && lacks_text(observed, committed);
    // A proposal for the widths that are in force can only be such a repair.
    let repairing = proposed(observed).is_some_and(|proposal| proposal.target.as_ref() == Some(&target));
    (stuck || repairing).then_some(target)
}

/// A PE has no text at all.
fn lacks_text(observed: &JobObservation, wanted: &DesiredGeneration) -> bool {
    let children = &observed.children;
    let current = |id: &u64| children.processing_elements.get(id);
    wanted.processing_elements.iter().any(|(id, pe)| pe.choose(children, current(id)).is_none())
}

/// The failure of a submission that took too long (rule job-18).
fn timed_out(observed: &JobObservation) -> Failure {
    let status = &observed.status;
    let condition = condition::get(&status.conditions, condition::SUBMITTED).map(|condition| condition.message.clone());
    let cause = condition.unwrap_or_else(|| "the job could not be prepared".to_owned());
    Failure {
        remedy: Remedy::Correct,
        reason: "TimedOut".to_owned(),
        message: format!(
            "{} attempts took more than {} s of work each; last: {cause}",
            status.submission_attempts,
            observed.deadlines.submission.as_secs()
        ),
        stage: None,
        code: None,
    }
}

/// The bundle that the job names by now.
fn wanted_bundle(observed: &JobObservation) -> FetchRequest {
    FetchRequest { spec_generation: observed.spec_generation, bundle: observed.bundle.clone() }
}

/// What is recorded of an ADL that was fetched, perhaps for an earlier spec that names the same bundle.
fn pinned(observed: &JobObservation, adl: &StoredAdl) -> StoredAdl {
    StoredAdl { spec_generation: observed.spec_generation, ..adl.clone() }
}

/// Fetches the ADL, once for each spec, until there is a generation (rule job-6). What is being fetched already, for
/// the same bundle, is not begun again, unless its server is always to be asked: edits may follow each other faster
/// than a download.
fn fetch(observed: &JobObservation, draft: &mut Draft) -> Option<Step> {
    let request = wanted_bundle(observed);
    let progress = observed.tasks.fetch.progress_of_bundle(&request);
    match draft.poll(observed, progress, Task::Fetch(request), FETCHING)? {
        Ok(adl) => record(JobStatusChange::Adl(pinned(observed, adl))),
        Err(failure) => record(JobStatusChange::FailSubmission(failure.clone())),
    }
}

fn compile(observed: &JobObservation, target: Target, draft: &mut Draft) -> Option<Step> {
    let request = CompileRequest { generation: next_generation(&observed.status), target };
    // Between two commits one compilation is given up for newer widths, and no other; but whoever has withdrawn a
    // request was told that its widths do not come (rule elasticity-17).
    let may_give_up = !observed.has_given_up || observed.requests.withdraws_compilation;
    let under_way = match &observed.tasks.compile {
        Slot::Running(other) | Slot::Done(other, _) if !may_give_up => Some(other),
        _ => None,
    };
    let is_resize = |other: &&CompileRequest| {
        other.generation == request.generation && matches!(other.target, Target::Resize { .. })
    };
    let request = under_way.filter(is_resize).cloned().unwrap_or(request);
    let progress = observed.tasks.compile.progress_of(&request);
    match draft.poll(observed, progress, Task::Compile(request), COMPILING)? {
        Ok(compiled) => {
            let Compiled { plan, widths, changes, texts } = compiled.clone();
            let begun = texts_to_begin(observed, &plan.sha256, &texts);
            let change = JobStatusChange::Propose { plan, widths, changes };
            Some(match begun {
                Some(begun) => Step::RecordAndStart(change, Box::new(Task::Publish(begun))),
                None => Step::Record(change),
            })
        }
        // The next look finds who is at fault.
        Err(_) if observed.status.generation.is_some() => None,
        Err(failure) => record(JobStatusChange::FailSubmission(failure.clone())),
    }
}

/// The texts that the plan of a resize lacks, whose writing begins beside the record of the plan. `None` if none is
/// lacking or they are being written: mostly that has begun while the plan was stored. A submission waits with its
/// texts: what exists before its plan is recorded is taken for objects of an earlier attempt.
fn texts_to_begin(observed: &JobObservation, plan: &str, texts: &[(u64, String)]) -> Option<PublishRequest> {
    let lacking = texts.iter().filter(|(_, config_map)| observed.children.lacks_text(config_map));
    let pe_ids: Vec<u64> = lacking.map(|(id, _)| *id).collect();
    let is_begun = observed.tasks.publish.progress_of_plan(plan) != Progress::NotRequested;
    let may_begin = observed.status.generation.is_some() && !pe_ids.is_empty() && !is_begun;
    may_begin.then(|| PublishRequest { plan: plan.to_owned(), pe_ids })
}

/// Records that the texts of the proposal cannot be written as they are.
fn refuse(observed: &JobObservation, failure: &Failure) -> Option<Step> {
    record(match observed.status.generation {
        None => JobStatusChange::FailSubmission(failure.clone()),
        Some(_) => JobStatusChange::RejectProposal(failure.clone()),
    })
}

/// Writes the objects of the proposal that can be there before it is committed (rule job-12), then commits it
/// (rule job-14).
fn write(observed: &JobObservation, proposal: &DesiredGeneration, draft: &mut Draft) -> Option<Step> {
    if let Some(held_up) = observed.held_up.as_ref().filter(|held_up| !held_up.lasts(observed.now)) {
        draft.wake(held_up.end());
    }
    let Unwritten { pe_ids, blocked } = unwritten(observed, proposal);
    let has_texts = pe_ids.is_empty() && !matches!(blocked, Some(Blocked::Terminating(_)));
    if !pe_ids.is_empty() {
        let step = publish(observed, pe_ids, draft);
        if step.is_some() || draft.report.trouble.is_some() {
            // What else blocks it is not said, and its time begins anew afterwards: these texts hold it up meanwhile.
            return step;
        }
    }
    draft.report.blocked = blocked;
    let pes = &observed.children.processing_elements;
    if abandoned(observed).iter().any(|id| pes.get(id).is_some_and(|pe| !pe.object.deleting)) {
        // The clean-up deletes them. One that is being deleted gets no pod, whatever keeps it.
        draft.report.preparing = "objects of an abandoned plan to go away".to_owned();
        return None;
    }
    // What refers to no text is written beside the texts.
    let mut complete = has_texts;
    let children = &observed.children;
    let of = WhichGeneration::Proposed;
    // The roll-out looks after objects that the committed generation has, too: nothing that runs changes before the
    // commit.
    let running = committed(observed);
    let is_new = |index: &u64| running.is_none_or(|wanted| !wanted.host_pools.contains_key(index));
    for (index, hash) in proposal.host_pools.iter().filter(|(index, _)| is_new(index)) {
        let current = children.host_pools.get(index).map(|object| Current::of(object, hash));
        complete &= draft.ensure(observed, Child::HostPool(*index), of, current);
    }
    // What an attempt has left for this one, and the plan does not have: the region may have another number by now, and
    // an object of its name must not be there after the commit with the wish of a user.
    let is_left = |index: &u64| running.is_none() && !proposal.regions.contains_key(index);
    for (index, region) in children.regions.iter().filter(|(index, _)| is_left(index)) {
        let object = Owned::Child(Child::Region(*index));
        if region.object.deleting {
            draft.report.blocked.get_or_insert(Blocked::Terminating(object));
        } else {
            draft.delete(object, &region.object);
        }
        complete = false;
    }
    let is_new = |index: &u64| running.is_none_or(|wanted| !wanted.regions.contains_key(index));
    for (index, name) in proposal.regions.iter().filter(|(index, _)| is_new(index)) {
        let current = children.regions.get(index);
        // One of an earlier attempt, by a write that had its effect late. After the commit its width would count as the
        // wish of a user.
        let is_of_another = current.and_then(|current| current.created.as_ref()).is_some_and(|created| {
            let width = proposal.widths.get(name).copied();
            !created.fits(name, width)
        });
        if let Some(current) = current.filter(|current| is_of_another && !current.object.deleting) {
            draft.delete(Owned::Child(Child::Region(*index)), &current.object);
            complete = false;
            continue;
        }
        let current = current.map(|current| Current::existing(&current.object));
        complete &= draft.ensure(observed, Child::Region(*index), of, current);
    }
    let is_new = |child: &Child| running.is_none_or(|wanted| !wanted.interfaces.contains_key(child));
    for (child, hash) in proposal.interfaces.iter().filter(|(child, _)| is_new(child)) {
        let current = children.interfaces.get(child).map(|object| Current::of(object, hash));
        complete &= draft.ensure(observed, *child, of, current);
    }
    let labels = children.job_config_map.as_ref().map(|object| Current::of(object, &observed.job_config_map));
    complete &= draft.ensure(observed, Child::JobConfigMap, of, labels);
    for (id, pe) in new_processing_elements(observed, proposal) {
        let service = Current::service(children, proposal.generation, id, pe);
        complete &= draft.ensure(observed, Child::Service(id), of, service);
        let current = children.processing_elements.get(&id);
        // PEs follow when all texts are there: one that comes back, and to which neighbours still send, would be taken
        // away again if another text is refused.
        // One whose text is held back, because others insist on changing it, is waited for: committed without an
        // object, it would look like one that somebody has deleted.
        let Some((_, text)) = pe.choose(children, current).filter(|_| has_texts) else {
            complete = false;
            continue;
        };
        let current = current.map(|pe| Current::of(&pe.object, &text.processing_element));
        complete &= draft.ensure(observed, Child::ProcessingElement(id), of, current);
    }
    // The commit makes it the plan in force, of which there is no other copy.
    let plan = observed.status.proposal.as_ref().map(|proposal| &proposal.plan);
    if complete && let Some(plan) = plan.filter(|plan| lacks_plan(observed, plan)) {
        complete = false;
        draft.report.preparing = "its plan to be stored again".to_owned();
        match going_chunk(observed, plan) {
            None => return None,
            Some(chunk) => draft.report.blocked = Some(Blocked::Terminating(Owned::ConfigMap(chunk))),
        }
    }
    if complete && observed.status.committed_resizes.len() >= UNTOLD_MAX {
        draft.report.preparing = "requests to be told that they are committed".to_owned();
        return None;
    }
    if complete {
        draft.report.preparing = "the commit".to_owned();
        return record(JobStatusChange::Commit);
    }
    match &draft.report.blocked {
        None if has_texts => draft.report.preparing = "objects to be created".to_owned(),
        None => {}
        Some(blocked) => {
            draft.report.preparing = match blocked {
                Blocked::Terminating(object) => {
                    format!("{} to go away, which is being deleted", object.of_job(&observed.name))
                }
                Blocked::ChangedByOthers(name) => {
                    format!("ConfigMap {name}, which somebody else changes as often as it is written")
                }
            };
            if observed.held_up.is_none() {
                draft.wake(looked_at_again(observed.now));
            }
        }
    }
    None
}

/// A chunk of the plan that is being deleted, and cannot be written before it is gone.
fn going_chunk(observed: &JobObservation, plan: &StoredPlan) -> Option<String> {
    let document = Document::Plan { generation: plan.generation };
    let is_of_plan = |name: &str| document.has_chunk(&plan.sha256, plan.chunks, name);
    let going = observed.children.chunks.iter().find(|(name, chunk)| chunk.deleting && is_of_plan(name));
    going.map(|(name, _)| name.clone())
}

/// Starts the writing of the texts of these PEs, and waits for it.
fn publish(observed: &JobObservation, pe_ids: Vec<u64>, draft: &mut Draft) -> Option<Step> {
    let what = WRITING;
    let plan = observed.status.proposal.as_ref().map_or_else(String::new, |p| p.plan.sha256.clone());
    let progress = observed.tasks.publish.progress_of_plan(&plan);
    match draft.poll(observed, progress, Task::Publish(PublishRequest { plan: plan.clone(), pe_ids }), what)? {
        Ok(()) => {
            // The texts are written, and the mirror does not show them yet.
            what.clone_into(&mut draft.report.preparing);
            None
        }
        Err(failure) => match failure.remedy {
            Remedy::Recompile(at) if put_off_until(at, observed.now).is_some() => {
                "another plan".clone_into(&mut draft.report.preparing);
                draft.report.trouble = Some(failure.clone());
                draft.wake(at);
                None
            }
            Remedy::Recompile(_) => record(JobStatusChange::Abandon),
            Remedy::Correct | Remedy::Retry(_) => refuse(observed, failure),
        },
    }
}

/// PEs that the proposal adds: those that the committed generation does not have.
fn new_processing_elements<'a>(
    observed: &'a JobObservation,
    proposal: &'a DesiredGeneration,
) -> impl Iterator<Item = (u64, &'a DesiredPe)> {
    let running = committed(observed);
    let is_new = move |id: &u64| running.is_none_or(|wanted| !wanted.processing_elements.contains_key(id));
    proposal.processing_elements.iter().filter(move |(id, _)| is_new(id)).map(|(id, pe)| (*id, pe))
}

/// What of the texts of a generation does not exist yet.
struct Unwritten {
    /// PEs whose texts are to be written.
    pe_ids: Vec<u64>,
    /// The first text without which the generation cannot be committed, and that is not written now.
    blocked: Option<Blocked>,
}

/// What of the texts of a generation does not exist yet. One that somebody else changes as often as it is written, or
/// that is being deleted, holds up nothing if its PE runs already: it is written again after the commit (rule job-11).
fn unwritten(observed: &JobObservation, wanted: &DesiredGeneration) -> Unwritten {
    let children = &observed.children;
    let running = committed(observed);
    let mut unwritten = Unwritten { pe_ids: Vec::new(), blocked: None };
    for (id, pe) in &wanted.processing_elements {
        if pe.choose(children, children.processing_elements.get(id)).is_some() {
            continue;
        }
        let name = &pe.text.config_map;
        if children.lacks_text(name) {
            unwritten.pe_ids.push(*id);
        } else if running.is_none_or(|running| !running.processing_elements.contains_key(id)) {
            unwritten.blocked.get_or_insert_with(|| match children.texts.get(name) {
                Some(text) if text.deleting => Blocked::Terminating(Owned::ConfigMap(name.clone())),
                _ => Blocked::ChangedByOthers(name.clone()),
            });
        }
    }
    unwritten
}
