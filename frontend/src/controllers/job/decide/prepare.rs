//! The way to the next generation, row by row.

use streams_api::{JobPhase, condition};

use super::{
    super::{
        generation::Target,
        observed::{Compilation, Failure, Loaded, Observed, Publish, Remedy, Slot, Wanted, WantedPe},
    },
    Action, Change, Child, Decision, Propagation, Task, Which, abandoned, after, committed, ensure, is_submitted,
    next_generation, proposed, pursue,
};

/// The way to the next generation.
pub(super) fn prepare(observed: &Observed, decision: &mut Decision) {
    let status = &observed.status;
    let submitting = status.generation.is_none();
    if submitting {
        if status.phase == Some(JobPhase::Failed) {
            if status.observed_generation == Some(observed.spec_generation) {
                delete_all_children(observed, decision);
                return;
            }
            decision.preparing = "a new submission".to_owned();
            return decision.act(Action::Record(Change::SubmitAgain));
        }
        if let Some(refusal) = &observed.refusal {
            return decision.act(Action::Record(Change::FailSubmission(refusal.clone())));
        }
    }
    if status.job_id.is_none() {
        decision.preparing = "a job id".to_owned();
        return decision.act(Action::AllocateJobId);
    }
    if !is_submitted(observed)
        && let Some(started) = &status.submission_started_at
    {
        let end = after(started.0, observed.limits.submission);
        if observed.now >= end {
            return decision.act(Action::Record(if status.submission_attempts < observed.limits.max_attempts {
                Change::StartOver
            } else {
                Change::FailSubmission(timed_out(observed))
            }));
        }
        decision.wake(end);
    }
    if submitting && status.proposal.is_none() && !observed.children.only_chunks() {
        decision.preparing = "objects of an earlier attempt to go away".to_owned();
        return delete_all_children(observed, decision);
    }
    if status.adl.as_ref().is_none_or(|adl| submitting && adl.spec_generation != observed.spec_generation) {
        return fetch(observed, decision);
    }
    if matches!(observed.committed, Some(Loaded::Lost(_))) {
        // Without the plan there is no layout to resize from; the roll-out says so.
        return;
    }
    let wanted = wanted_target(observed);
    match &observed.proposed {
        None => {
            if let Some(target) = wanted {
                compile(observed, target, decision);
            }
        }
        Some(Loaded::Whole(proposal)) if proposal.target.is_some() && proposal.target == wanted => {
            write(observed, proposal, decision);
        }
        // It is incomplete, or something else is wanted meanwhile.
        Some(_) => {
            decision.preparing = "another plan".to_owned();
            decision.act(Action::Record(Change::Abandon));
        }
    }
}

/// What the next generation should be compiled for. `None` when the committed one is what is wanted, or the desired
/// widths were refused (rule elasticity-3).
pub(super) fn wanted_target(observed: &Observed) -> Option<Target> {
    let Some(committed) = committed(observed) else {
        return Some(Target::Submission { inputs: observed.inputs.clone() });
    };
    let target = Target::Resize { widths: observed.desired_widths.clone() };
    if committed.widths != observed.desired_widths {
        let rejected = observed.status.rejected_resize.as_ref();
        return rejected.is_none_or(|rejected| !rejected.is_of(&observed.desired_widths)).then_some(target);
    }
    // Texts of the committed plan are gone, and so is the compiler that made them: the same widths by another compiler
    // (rule job-21).
    let plan = observed.status.plan.as_ref().map(|plan| plan.sha256.as_str());
    let stuck = matches!(&observed.work.repair, Slot::Failed(key, failure)
        if failure.remedy == Remedy::Recompile && Some(key.plan.as_str()) == plan);
    // A proposal for the widths that are in force can only be such a repair.
    let repairing = proposed(observed).is_some_and(|proposal| proposal.target.as_ref() == Some(&target));
    (stuck || repairing).then_some(target)
}

/// What the failure of a submission that took too long says (rule job-18).
fn timed_out(observed: &Observed) -> Failure {
    let status = &observed.status;
    let pods = committed(observed).map(|wanted| {
        let missing = wanted
            .processing_elements
            .keys()
            .filter(|id| observed.children.processing_elements.get(id).is_none_or(|pe| !pe.launched));
        format!("{} pods were not created", missing.count())
    });
    let condition = condition::get(&status.conditions, condition::SUBMITTED).map(|condition| condition.message.clone());
    let cause = pods.or(condition).unwrap_or_else(|| "the job could not be prepared".to_owned());
    Failure {
        remedy: Remedy::Correct,
        reason: "TimedOut".to_owned(),
        message: format!(
            "{} attempts took longer than {} s each; last: {cause}",
            status.submission_attempts,
            observed.limits.submission.as_secs()
        ),
        stage: None,
        code: None,
    }
}

/// From a clean slate again: nothing but chunks stays (rules job-18 and job-19).
fn delete_all_children(observed: &Observed, decision: &mut Decision) {
    let children = &observed.children;
    let pes = children.processing_elements.iter();
    let pes = pes.map(|(id, pe)| (Child::ProcessingElement(*id, pe.config_map.clone()), &pe.object));
    let all = pes
        .chain(children.services.iter().map(|(id, object)| (Child::Service(*id), object)))
        .chain(children.regions.iter().map(|(index, object)| (Child::Region(*index), object)))
        .chain(children.host_pools.iter().map(|(index, object)| (Child::HostPool(*index), object)))
        .chain(children.job_config_map.iter().map(|object| (Child::JobConfigMap, object)))
        .chain(children.texts.iter().map(|(name, object)| (Child::ConfigMap(name.clone()), object)));
    for (child, _) in all.filter(|(_, object)| !object.deleting) {
        decision.act(Action::Delete(child, Propagation::Foreground));
    }
}

/// Fetches the ADL, once for each spec, until there is a generation (rule job-6).
fn fetch(observed: &Observed, decision: &mut Decision) {
    let spec_generation = observed.spec_generation;
    let about = observed.work.fetch.about(&spec_generation);
    match pursue(about, Task::Fetch { spec_generation }, "the bundle to be fetched", observed, decision) {
        None => {}
        Some(Ok(adl)) => decision.act(Action::Record(Change::Adl(adl.clone()))),
        Some(Err(failure)) => decision.act(Action::Record(Change::FailSubmission(failure.clone()))),
    }
}

fn compile(observed: &Observed, target: Target, decision: &mut Decision) {
    let key = Compilation { generation: next_generation(observed), target };
    let about = observed.work.compile.about(&key);
    match pursue(about, Task::Compile(key.clone()), "the application to be compiled", observed, decision) {
        None => {}
        Some(Ok(compiled)) => {
            let (plan, widths) = (compiled.plan.clone(), compiled.widths.clone());
            decision.act(Action::Record(Change::Propose { plan, widths }));
        }
        Some(Err(failure)) => refuse(observed, failure, decision),
    }
}

/// Nothing can be made of what is wanted, until something else is wanted.
fn refuse(observed: &Observed, failure: &Failure, decision: &mut Decision) {
    decision.act(Action::Record(match observed.status.generation {
        None => Change::FailSubmission(failure.clone()),
        Some(_) => Change::RejectResize(failure.clone()),
    }));
}

/// Writes the objects of the proposal that can be there before it is committed (rule job-12), then commits it
/// (rule job-14).
fn write(observed: &Observed, proposal: &Wanted, decision: &mut Decision) {
    let Some(pe_ids) = unwritten(observed, proposal) else { return };
    if !pe_ids.is_empty() {
        let plan = observed.status.proposal.as_ref().map_or_else(String::new, |p| p.plan.sha256.clone());
        let key = Publish { plan, pe_ids };
        let about = observed.work.publish.about_plan(&key.plan);
        match pursue(about, Task::Publish(key.clone()), "AADL texts to be written", observed, decision) {
            None => {}
            // Written, and the watch has not shown it yet.
            Some(Ok(())) => "AADL texts to be written".clone_into(&mut decision.preparing),
            Some(Err(failure)) if failure.remedy == Remedy::Recompile => decision.act(Action::Record(Change::Abandon)),
            Some(Err(failure)) => refuse(observed, failure, decision),
        }
        return;
    }
    let leftovers = abandoned(observed);
    if !leftovers.is_empty() {
        decision.preparing = "objects of an abandoned plan to go away".to_owned();
        // They are deleted with everything else that nobody refers to.
        return;
    }
    let mut complete = true;
    let children = &observed.children;
    // What the committed generation has as well is the roll-out's business: nothing that runs changes before the
    // commit.
    let running = committed(observed);
    let is_new = |index: &u64| running.is_none_or(|wanted| !wanted.host_pools.contains_key(index));
    for (index, hash) in proposal.host_pools.iter().filter(|(index, _)| is_new(index)) {
        let current = children.host_pools.get(index).map(|o| (o.applied == *hash, o.deleting));
        complete &= ensure(Child::HostPool(*index), Which::Proposed, current, decision);
    }
    let is_new = |index: &&u64| running.is_none_or(|wanted| !wanted.regions.contains_key(index));
    for index in proposal.regions.keys().filter(is_new) {
        let current = children.regions.get(index).map(|o| (true, o.deleting));
        complete &= ensure(Child::Region(*index), Which::Proposed, current, decision);
    }
    let labels = children.job_config_map.as_ref().map(|o| (o.applied == observed.job_config_map, o.deleting));
    complete &= ensure(Child::JobConfigMap, Which::Proposed, labels, decision);
    for (id, pe) in new_processing_elements(observed, proposal) {
        let service = children.services.get(&id).map(|o| (o.applied == pe.service, o.deleting));
        complete &= ensure(Child::Service(id), Which::Proposed, service, decision);
        let Some(text) = pe.choose(children) else { continue };
        let current = children.processing_elements.get(&id);
        let current = current.map(|pe| (pe.object.applied == text.processing_element, pe.object.deleting));
        complete &= ensure(Child::ProcessingElement(id, text.config_map.clone()), Which::Proposed, current, decision);
    }
    if complete {
        decision.preparing = "the commit".to_owned();
        decision.act(Action::Record(Change::Commit));
    } else {
        decision.preparing = "objects to be created".to_owned();
    }
}

/// PEs that the proposal adds: those that the committed generation does not have.
fn new_processing_elements<'a>(
    observed: &'a Observed,
    proposal: &'a Wanted,
) -> impl Iterator<Item = (u64, &'a WantedPe)> {
    let running = committed(observed);
    let is_new = move |id: &u64| running.is_none_or(|wanted| !wanted.processing_elements.contains_key(id));
    proposal.processing_elements.iter().filter(move |(id, _)| is_new(id)).map(|(id, pe)| (*id, pe))
}

/// PEs of a generation that have no text to refer to. `None`: one of the ConfigMaps is being deleted, so wait.
fn unwritten(observed: &Observed, wanted: &Wanted) -> Option<Vec<u64>> {
    let mut ids = Vec::new();
    for (id, pe) in &wanted.processing_elements {
        if pe.choose(&observed.children).is_none() {
            if observed.children.texts.contains_key(&pe.text.config_map) {
                return None;
            }
            ids.push(*id);
        }
    }
    Some(ids)
}
