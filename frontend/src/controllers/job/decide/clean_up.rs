//! Deletes objects that neither the plan, nor the proposal, nor a PE refers to (rule job-16).

use super::super::tasks::{Slot, Task};
use super::prepare::wanted_target;
use super::removals::{Removable, Removals, is_removed};
use super::waves::stalls;
use super::{
    Child, Draft, JobAction, Owned, abandoned, committed, is_rolled_out, next_generation, proposed, superfluous,
};
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::observed::{DesiredGeneration, JobObservation, ObservedPe};
use crate::controllers::times::after;
use std::collections::BTreeSet;
use std::time::Duration;
use streams_api::{StoredAdl, StoredPlan};

/// So many texts that nothing refers to may stay during a roll-out, or as many as are used if these are more.
const TEXTS_KEPT: usize = 64;
/// When pods are looked for again of a PE that was removed and does not go.
const PODS_AGAIN: Duration = Duration::from_secs(60);

/// Deletes objects that neither the plan, nor the proposal, nor a PE refers to.
pub(super) fn clean_up(observed: &JobObservation, draft: &mut Draft) {
    let children = &observed.children;
    let delete_pe = |id: u64, draft: &mut Draft| {
        if let Some(pe) = children.processing_elements.get(&id) {
            draft.delete(Owned::Child(Child::ProcessingElement(id)), &pe.object);
            end_pods(observed, id, pe, draft);
        }
    };
    // One that a committed generation has removed, and that came back for a while, is still known to whoever runs an
    // older text: it goes like the others that are removed. Nobody knows the rest.
    let abandoned: Vec<u64> = abandoned(observed).into_iter().filter(|id| !is_removed(observed, *id)).collect();
    for id in &abandoned {
        delete_pe(*id, draft);
    }
    clean_up_chunks(observed, draft);
    let Some(wanted) = committed(observed) else { return };
    let started = observed.status.rollout.as_ref().and_then(|rollout| rollout.started_at.as_ref());
    let end = started.map(|started| stalls(observed, wanted)(started.0));
    let may_all_go = end.is_some_and(|end| observed.now >= end) || is_rolled_out(observed, wanted);
    // Once its neighbours have their new specs, no PE sends to a removed PE any more. The removed PE stays until they
    // run, but not beyond the time-out: it may occupy resources that they wait for.
    let superfluous: Vec<u64> = superfluous(observed).filter(|id| !abandoned.contains(id)).collect();
    let removals = (!may_all_go && !superfluous.is_empty()).then(|| Removals::of(observed, wanted));
    for id in superfluous {
        let generation = children.processing_elements.get(&id).map_or(0, |pe| pe.generation);
        match removals.as_ref().map_or(Removable::Now, |removals| removals.of_pe(id, generation)) {
            Removable::Now => delete_pe(id, draft),
            Removable::At(end) => draft.wake(end),
            Removable::WithTheRest => {}
        }
    }
    let generations = [Some(wanted), proposed(observed)];
    for (id, object) in &children.services {
        let wanted = generations.iter().flatten().any(|wanted| wanted.processing_elements.contains_key(id));
        if !wanted && !children.processing_elements.contains_key(id) {
            draft.delete(Owned::Child(Child::Service(*id)), object);
        }
    }
    clean_up_interfaces(observed, wanted, may_all_go, draft);
    clean_up_texts(observed, generations, may_all_go, draft);
    if !may_all_go {
        return end.into_iter().for_each(|end| draft.wake(end));
    }
    for (index, object) in &children.host_pools {
        if !generations.iter().flatten().any(|wanted| wanted.host_pools.contains_key(index)) {
            draft.delete(Owned::Child(Child::HostPool(*index)), object);
        }
    }
    for (index, region) in &children.regions {
        if !generations.iter().flatten().any(|wanted| wanted.regions.contains_key(index)) {
            draft.delete(Owned::Child(Child::Region(*index)), &region.object);
        }
    }
}

/// Has the pods of a PE deleted that may go, if something keeps the PE. The job does not hear of a pod, and one may
/// have been on its way when the PE was deleted, so it looks for them now and then.
fn end_pods(observed: &JobObservation, id: u64, pe: &ObservedPe, draft: &mut Draft) {
    if pe.object.going.is_some() {
        draft.wake(after(observed.now, PODS_AGAIN));
    }
    if pe.has_pods_left {
        draft.act(JobAction::EndPods(id));
    }
}

/// Deletes exports, imports and what consistent regions have. Exports and imports go as soon as their PEs have lost the
/// ports: whoever is at the other end would try to connect to them as long as the generation is not rolled out. Those
/// of an abandoned proposal go at once: nobody has ever matched them, and the next generation has the same number.
fn clean_up_interfaces(observed: &JobObservation, wanted: &DesiredGeneration, may_all_go: bool, draft: &mut Draft) {
    let children = &observed.children;
    let has_lost_ports = |id: &u64| match children.processing_elements.get(id) {
        // Its pod runs a text without them, or is about to get it.
        Some(pe) if !pe.object.deleting => {
            wanted.processing_elements.get(id).is_some_and(|wanted| wanted.is_written_to(pe))
        }
        Some(_) | None => true,
    };
    for (child, object) in &children.interfaces {
        let may_go = match child {
            Child::Export(port) | Child::Import(port) => {
                may_all_go || object.since > wanted.generation || has_lost_ports(&port.pe)
            }
            _ => may_all_go,
        };
        let is_wanted = |generation: &DesiredGeneration| generation.interfaces.contains_key(child);
        if may_go && !is_wanted(wanted) && !proposed(observed).is_some_and(is_wanted) {
            draft.delete(Owned::Child(*child), object);
        }
    }
}

/// Deletes texts that neither a plan nor a PE refers to. As long as a generation is being rolled out, some may stay:
/// the next one may have them again.
fn clean_up_texts(
    observed: &JobObservation,
    generations: [Option<&DesiredGeneration>; 2],
    may_all_go: bool,
    draft: &mut Draft,
) {
    let children = &observed.children;
    let recorded = observed.status.proposal.as_ref().map(|proposal| proposal.plan.sha256.as_str());
    if observed.tasks.publish.running().is_some_and(|begun| recorded != Some(begun.plan.as_str())) {
        // For a plan that is about to be recorded, or whose writing is about to end.
        return;
    }
    if observed.tasks.being_stored().is_some() {
        // It is about to be recorded, and its texts are there or are being written.
        return;
    }
    let pes = generations.iter().flatten().flat_map(|wanted| wanted.processing_elements.values());
    let mut used: BTreeSet<&str> = pes
        .flat_map(|pe| [Some(&pe.text), pe.carried.as_ref()])
        .flatten()
        .map(|text| text.config_map.as_str())
        .collect();
    used.extend(children.processing_elements.values().map(|pe| pe.config_map.as_str()));
    let unused = || children.texts.iter().filter(|(name, _)| !used.contains(name.as_str()));
    if may_all_go || unused().count() > used.len().max(TEXTS_KEPT) {
        for (name, object) in unused() {
            draft.delete(Owned::ConfigMap(name.clone()), object);
        }
    }
}

/// Deletes chunks that the status does not name, unless long work is writing some, or begins to beside the deletions:
/// it may find a chunk whose deletion is on its way. A status may name more than is seen of it.
fn clean_up_chunks(observed: &JobObservation, draft: &mut Draft) {
    let status = &observed.status;
    let tasks = &observed.tasks;
    if tasks.fetch.running().is_some() || tasks.compile.running().is_some() {
        return;
    }
    if draft.starts(|task| matches!(task, Task::Fetch(_) | Task::Compile(_))) {
        return;
    }
    let mut adls: Vec<&StoredAdl> = status.adl.iter().collect();
    // Chunks that were just written and that no status names yet. Chunks of outdated results may go.
    if let Slot::Done(request, adl) = &tasks.fetch
        && request.bundle == observed.bundle
    {
        adls.push(adl);
    }
    let mut plans: Vec<&StoredPlan> = status.plan.iter().chain(status.proposal.as_ref().map(|p| &p.plan)).collect();
    if let Slot::Done(key, compiled) = &tasks.compile
        && key.generation == next_generation(&observed.status)
        && wanted_target(observed).is_some_and(|wanted| wanted == key.target || observed.has_given_up)
    {
        plans.push(&compiled.plan);
    }
    let used = |name: &str| {
        adls.iter().any(|adl| Document::Adl.has_chunk(&adl.sha256, adl.chunks, name))
            || plans
                .iter()
                .any(|plan| Document::Plan { generation: plan.generation }.has_chunk(&plan.sha256, plan.chunks, name))
    };
    let unused = observed.children.chunks.iter().filter(|(name, _)| !used(name));
    if let Some(until) = observed.unanswered_until {
        if unused.count() > 0 {
            // By then it is known.
            draft.wake(until);
        }
        return;
    }
    for (name, object) in unused {
        draft.delete(Owned::ConfigMap(name.clone()), object);
    }
}
