//! Removing what nobody refers to (rule job-16).

use std::collections::BTreeSet;

use streams_api::{StoredAdl, StoredPlan};

use super::{
    super::{
        chunks::Document,
        observed::{Observed, Slot},
    },
    Child, Decision, abandoned, committed, delete, is_rolled_out, next_generation,
    prepare::wanted_target,
    proposed, roll_out_end, superfluous,
};

/// Removes what nobody refers to.
pub(super) fn clean_up(observed: &Observed, decision: &mut Decision) {
    let abandoned = abandoned(observed);
    for id in &abandoned {
        if let Some(pe) = observed.children.processing_elements.get(id) {
            delete(Child::ProcessingElement(*id, pe.config_map.clone()), pe.object.deleting, decision);
        }
    }
    clean_up_chunks(observed, decision);
    let Some(wanted) = committed(observed) else { return };
    // What is removed has no senders any more once its neighbours were told. It is kept until they run, but not for
    // ever: it may hold what they wait for.
    if !is_rolled_out(observed, wanted) {
        match roll_out_end(observed) {
            Some(end) if observed.now >= end => {}
            Some(end) => return decision.wake(end),
            None => return,
        }
    }
    let generations = [Some(wanted), proposed(observed)];
    let children = &observed.children;
    for id in superfluous(observed).filter(|id| !abandoned.contains(id)) {
        if let Some(pe) = children.processing_elements.get(&id) {
            delete(Child::ProcessingElement(id, pe.config_map.clone()), pe.object.deleting, decision);
        }
    }
    for (id, object) in &children.services {
        let wanted = generations.iter().flatten().any(|wanted| wanted.processing_elements.contains_key(id));
        if !wanted && !children.processing_elements.contains_key(id) {
            delete(Child::Service(*id), object.deleting, decision);
        }
    }
    for (index, object) in &children.host_pools {
        if !generations.iter().flatten().any(|wanted| wanted.host_pools.contains_key(index)) {
            delete(Child::HostPool(*index), object.deleting, decision);
        }
    }
    for (index, object) in &children.regions {
        if !generations.iter().flatten().any(|wanted| wanted.regions.contains_key(index)) {
            delete(Child::Region(*index), object.deleting, decision);
        }
    }
    let pes = generations.iter().flatten().flat_map(|wanted| wanted.processing_elements.values());
    let mut used: BTreeSet<&str> = pes
        .flat_map(|pe| [Some(&pe.text), pe.carried.as_ref()])
        .flatten()
        .map(|text| text.config_map.as_str())
        .collect();
    used.extend(children.processing_elements.values().map(|pe| pe.config_map.as_str()));
    for (name, object) in &children.texts {
        if !used.contains(name.as_str()) {
            delete(Child::ConfigMap(name.clone()), object.deleting, decision);
        }
    }
}

/// Removes chunks that the status does not name, unless long work is writing some.
fn clean_up_chunks(observed: &Observed, decision: &mut Decision) {
    let status = &observed.status;
    let work = &observed.work;
    if matches!(work.fetch, Slot::Running(_)) || matches!(work.compile, Slot::Running(_)) {
        return;
    }
    let mut adls: Vec<&StoredAdl> = status.adl.iter().collect();
    // What was just written and is not recorded yet. Results that nobody wants any more count for nothing.
    if let Slot::Done(spec_generation, adl) = &work.fetch
        && *spec_generation == observed.spec_generation
    {
        adls.push(adl);
    }
    let mut plans: Vec<&StoredPlan> = status.plan.iter().chain(status.proposal.as_ref().map(|p| &p.plan)).collect();
    if let Slot::Done(key, compiled) = &work.compile
        && key.generation == next_generation(observed)
        && Some(&key.target) == wanted_target(observed).as_ref()
    {
        plans.push(&compiled.plan);
    }
    let used = |name: &str| {
        adls.iter().any(|adl| names_chunk(&Document::Adl, &adl.sha256, adl.chunks, name))
            || plans.iter().any(|plan| {
                names_chunk(&Document::Plan { generation: plan.generation }, &plan.sha256, plan.chunks, name)
            })
    };
    for (name, object) in &observed.children.chunks {
        if !used(name) {
            delete(Child::ConfigMap(name.clone()), object.deleting, decision);
        }
    }
}

/// Whether `name` is that of a chunk of this document, for some job.
fn names_chunk(document: &Document, sha256: &str, chunks: u32, name: &str) -> bool {
    (0..chunks).any(|index| name.ends_with(document.chunk_name("", sha256, index).as_str()))
}
