//! From what exists to the committed generation: roll-out and repair.

use k8s_openapi::jiff::Timestamp;

use streams_api::StoredPlan;

use super::{
    super::{
        chunks::Document,
        observed::{Loaded, Observed, Publish, Remedy, Run, Wanted},
    },
    Action, Child, Decision, Stored, Task, Which, after, committed, ensure, is_submitted, proposed, pursue,
    superfluous,
};

/// Documents of which a chunk is gone.
fn incomplete(observed: &Observed) -> Vec<Stored> {
    let status = &observed.status;
    let lacks = |document: &Document, sha256: &str, chunks: u32| {
        (0..chunks).any(|index| {
            let ending = document.chunk_name("", sha256, index);
            !observed.children.chunks.keys().any(|name| name.ends_with(&ending))
        })
    };
    let lacks_plan =
        |plan: &StoredPlan| lacks(&Document::Plan { generation: plan.generation }, &plan.sha256, plan.chunks);
    let mut documents = Vec::new();
    // Before there is a generation, the ADL is fetched again if need be.
    if status.generation.is_some()
        && status.adl.as_ref().is_some_and(|adl| lacks(&Document::Adl, &adl.sha256, adl.chunks))
    {
        documents.push(Stored::Adl);
    }
    if proposed(observed).is_some() && status.proposal.as_ref().is_some_and(|proposal| lacks_plan(&proposal.plan)) {
        documents.push(Stored::Plan(Which::Proposed));
    }
    if committed(observed).is_some() && status.plan.as_ref().is_some_and(lacks_plan) {
        documents.push(Stored::Plan(Which::Committed));
    }
    documents
}

/// Brings what exists to the committed generation (rule job-15), and repairs it (rules job-26 and job-28).
pub(super) fn roll_out(observed: &Observed, decision: &mut Decision) {
    decision.actions.extend(incomplete(observed).into_iter().map(Action::StoreAgain));
    let wanted = match &observed.committed {
        None => return,
        Some(Loaded::Lost(what)) => {
            decision.lost = Some(what.clone());
            return;
        }
        Some(Loaded::Whole(wanted)) => wanted,
    };
    let children = &observed.children;
    for (index, hash) in &wanted.host_pools {
        let current = children.host_pools.get(index).map(|o| (o.applied == *hash, o.deleting));
        ensure(Child::HostPool(*index), Which::Committed, current, decision);
    }
    for index in wanted.regions.keys() {
        ensure(
            Child::Region(*index),
            Which::Committed,
            children.regions.get(index).map(|o| (true, o.deleting)),
            decision,
        );
    }
    // While a proposal is written, its rows look after the port labels.
    if proposed(observed).is_none() {
        let labels = children.job_config_map.as_ref().map(|o| (o.applied == observed.job_config_map, o.deleting));
        ensure(Child::JobConfigMap, Which::Committed, labels, decision);
    }
    let submitted = is_submitted(observed);
    let mut without_text = Vec::new();
    let mut outdated = Vec::new();
    for (id, pe) in &wanted.processing_elements {
        let service = children.services.get(id).map(|o| (o.applied == pe.service, o.deleting));
        ensure(Child::Service(*id), Which::Committed, service, decision);
        let current = children.processing_elements.get(id);
        if current.is_none() && !pe.restartable && submitted {
            // A user deleted it, and it must not be started again (rule job-27). A submission goes on until every pod
            // was created once.
            decision.down.insert(*id);
            continue;
        }
        if current.is_some_and(|pe| pe.object.deleting) {
            decision.pending += 1;
            continue;
        }
        let Some(text) = pe.choose(children) else {
            if !children.texts.contains_key(&pe.text.config_map) {
                without_text.push(*id);
            }
            decision.pending += 1;
            continue;
        };
        match current {
            Some(current) if current.object.applied == text.processing_element => match current.run {
                Run::Ready => decision.ready += 1,
                Run::Completed => {}
                Run::Pending => decision.pending += 1,
                Run::Down => {
                    decision.down.insert(*id);
                }
            },
            _ => {
                decision.pending += 1;
                outdated.push((*id, text.config_map.clone()));
            }
        }
    }
    for (id, config_map) in wave(outdated) {
        decision.act(Action::Apply(Child::ProcessingElement(id, config_map), Which::Committed));
    }
    if !without_text.is_empty() {
        repair(observed, without_text, decision);
    }
    decision.superfluous = u32::try_from(superfluous(observed).count()).unwrap_or(u32::MAX);
}

/// Which of the outdated PEs are told now. One wave: all of them.
fn wave(outdated: Vec<(u64, String)>) -> Vec<(u64, String)> {
    outdated
}

fn repair(observed: &Observed, pe_ids: Vec<u64>, decision: &mut Decision) {
    let plan = observed.status.plan.as_ref().map_or_else(String::new, |plan| plan.sha256.clone());
    let key = Publish { plan, pe_ids };
    let about = observed.work.repair.about_plan(&key.plan);
    let preparing = std::mem::take(&mut decision.preparing);
    if let Some(Err(failure)) = pursue(about, Task::Repair(key.clone()), "", observed, decision)
        && failure.remedy == Remedy::Correct
    {
        decision.lost = Some(failure.message.clone());
    }
    decision.preparing = preparing;
}

/// True when every PE that this generation added or restarted runs its new text, or never will. The controller may then
/// delete what earlier generations left (rule job-16).
pub(crate) fn is_rolled_out(observed: &Observed, wanted: &Wanted) -> bool {
    let pes = &observed.children.processing_elements;
    wanted.processing_elements.iter().all(|(id, pe)| match pes.get(id) {
        None => !pe.restartable,
        Some(current) => {
            let applied =
                pe.choose(&observed.children).is_some_and(|text| text.processing_element == current.object.applied);
            applied && (pe.origin != wanted.generation || current.run != Run::Pending)
        }
    })
}

/// When the roll-out of the committed generation has taken too long.
pub(crate) fn roll_out_end(observed: &Observed) -> Option<Timestamp> {
    let started = observed.status.rollout.as_ref()?.started_at.as_ref()?;
    Some(after(started.0, observed.limits.resize))
}
