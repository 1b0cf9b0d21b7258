//! Brings the objects of a job to the committed generation, and repairs them.
//!
//! Knows: the observation, the committed generation. Must not know: the next generation, but for what takes its place.

use super::super::tasks::{PublishRequest, Remedy, RenewRequest, Task};
use super::waves::Changes;
use super::{
    Child, Current, Draft, JobAction, Owned, StoredDocument, WhichGeneration, committed, is_submitted, name_taken,
    proposed, superfluous,
};
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::observed::{
    Children, DesiredGeneration, DesiredPe, JobObservation, Loaded, NextPod, ObservedPe, PodState,
};
use crate::controllers::job::transport::GOOD;
use crate::controllers::job::waits::Words;
use crate::controllers::times::after;
use k8s_openapi::jiff::Timestamp;
use streams_api::StoredPlan;

/// Why a PE is not made again that a user has deleted (rule job-27).
const DELETED: &str = "it was deleted, and its operators do not permit a restart; they run again once the job is \
                       deleted and submitted anew";

/// Whether a chunk of the document is gone, and is not to be left alone for a while.
fn lacks(observed: &JobObservation, document: &Document, sha256: &str, chunks: u32) -> bool {
    let children = &observed.children;
    (0..chunks).any(|index| {
        let ending = document.chunk_name("", sha256, index);
        let is_it = |name: &str| name.ends_with(&ending);
        let is_there = children.chunks.iter().any(|(name, chunk)| is_it(name) && chunk.is_whole())
            || children.just_stored.iter().any(|name| is_it(name));
        !is_there && !children.held_back.keys().any(|name| is_it(name))
    })
}

/// Whether a chunk of the plan is gone.
pub(super) fn lacks_plan(observed: &JobObservation, plan: &StoredPlan) -> bool {
    lacks(observed, &Document::Plan { generation: plan.generation }, &plan.sha256, plan.chunks)
}

/// Documents of which a chunk is gone.
fn incomplete(observed: &JobObservation) -> Vec<StoredDocument> {
    let status = &observed.status;
    let lacks_plan = |plan: &StoredPlan| lacks_plan(observed, plan);
    let mut documents = Vec::new();
    // Before there is a generation, the ADL is fetched again if need be.
    if status.generation.is_some()
        && status.adl.as_ref().is_some_and(|adl| lacks(observed, &Document::Adl, &adl.sha256, adl.chunks))
    {
        documents.push(StoredDocument::Adl);
    }
    if proposed(observed).is_some() && status.proposal.as_ref().is_some_and(|proposal| lacks_plan(&proposal.plan)) {
        documents.push(StoredDocument::Plan(WhichGeneration::Proposed));
    }
    if committed(observed).is_some() && status.plan.as_ref().is_some_and(lacks_plan) {
        documents.push(StoredDocument::Plan(WhichGeneration::Committed));
    }
    documents
}

/// Brings the objects to the committed generation (rule job-15), and repairs them (rules job-26 and job-28).
pub(super) fn roll_out(observed: &JobObservation, draft: &mut Draft) {
    for stored in incomplete(observed) {
        draft.act(JobAction::StoreAgain(stored));
    }
    let wanted = match &observed.committed {
        None => return,
        Some(Loaded::Lost(what)) => {
            draft.report.lost = Some(what.clone());
            secret_without_plan(observed, draft);
            return;
        }
        Some(Loaded::Whole(wanted)) => wanted,
    };
    let children = &observed.children;
    let of = WhichGeneration::Committed;
    for (index, hash) in &wanted.host_pools {
        let current = children.host_pools.get(index).map(|object| Current::of(object, hash));
        draft.ensure(observed, Child::HostPool(*index), of, current);
    }
    for index in wanted.regions.keys() {
        let current = children.regions.get(index).map(|region| Current::existing(&region.object));
        if current.is_some() || !is_about_to_change(observed, wanted, *index) {
            draft.ensure(observed, Child::Region(*index), of, current);
        }
    }
    for (child, hash) in &wanted.interfaces {
        draft.ensure(observed, *child, of, children.interfaces.get(child).map(|object| Current::of(object, hash)));
    }
    // While there is a proposal, `prepare` applies the port labels.
    if proposed(observed).is_none() {
        let labels = children.job_config_map.as_ref().map(|object| Current::of(object, &observed.job_config_map));
        draft.ensure(observed, Child::JobConfigMap, of, labels);
    }
    processing_elements(observed, wanted, draft);
    for id in superfluous(observed) {
        match children.processing_elements.get(&id).map(|pe| &pe.object) {
            // Nothing more is to be done for it, and nobody knows for how long something keeps it (rule job-17).
            Some(object) if object.going.is_some() => {
                draft.note_going(observed, Owned::Child(Child::ProcessingElement(id)), object);
            }
            _ => draft.report.superfluous += 1,
        }
    }
}

/// Looks after the Secret for transport security while the plan is lost: PEs run on, and their certificate has an end
/// (rules job-28 and job-48). No plan says what is in it; the status says that the job has one.
fn secret_without_plan(observed: &JobObservation, draft: &mut Draft) {
    let is_wanted = observed.transport.as_ref().is_some_and(|transport| transport.wanted);
    if is_wanted && observed.status.transport.is_some() {
        let child = Child::TransportSecret;
        let secret = observed.children.interfaces.get(&child).map(|object| Current::of(object, GOOD));
        draft.ensure(observed, child, WhichGeneration::Committed, secret);
    }
}

/// The proposal has another width of the region. One that somebody has deleted is made again with the width in force:
/// made now, it would ask for the one before the commit (rule job-26).
fn is_about_to_change(observed: &JobObservation, wanted: &DesiredGeneration, index: u64) -> bool {
    let proposal = proposed(observed).filter(|_| observed.status.generation.is_some());
    let width = |generation: &DesiredGeneration| generation.widths.get(generation.regions.get(&index)?).copied();
    proposal.is_some_and(|proposal| width(proposal) != width(wanted))
}

/// Brings PEs and their Services to the committed generation, and counts how far the PEs are.
fn processing_elements(observed: &JobObservation, wanted: &DesiredGeneration, draft: &mut Draft) {
    let children = &observed.children;
    let of = WhichGeneration::Committed;
    let submitted = is_submitted(observed);
    let mut without_text = Vec::new();
    let mut outdated = Outdated::default();
    let mut changes = Changes::default();
    let mut drifted = Vec::new();
    for (id, pe) in &wanted.processing_elements {
        let service = Current::service(children, wanted.generation, *id, pe);
        draft.ensure(observed, Child::Service(*id), of, service);
        let current = children.processing_elements.get(id);
        if submitted && children.stays_away(*id, pe) {
            // A submission goes on until every pod was created once.
            let words = name_taken(observed, *id).unwrap_or_else(|| Words::of("Deleted", DELETED));
            draft.report.down.add(*id, &words);
            continue;
        }
        let is_launched = current.is_some_and(|pe| pe.launched);
        if current.is_some_and(|pe| pe.object.deleting) {
            draft.report.wait(*id, is_launched, &Words::of("Terminating", "it is being deleted"));
            continue;
        }
        let Some((_, text)) = pe.choose(children, current) else {
            if children.lacks_text(&pe.text.config_map) {
                without_text.push(*id);
            }
            draft.report.wait(*id, is_launched, &what_becomes_of_its_text(children, pe));
            continue;
        };
        let is_lacking = children.lacks_text(&text.config_map);
        if is_lacking {
            // It goes on meanwhile.
            without_text.push(*id);
        }
        // If it is the newest, one kind of work is enough: two would be in each other's way.
        if pe.lacks_newest(children, current) && !(is_lacking && *text == pe.text) {
            outdated.add(observed, *id, current);
        }
        let state = current.map(|pe| Current::of(&pe.object, &text.processing_element));
        match (current, state) {
            (Some(current), Some(state)) if state.as_wanted || observed.rewrites.is_some() => {
                count(observed, *id, current, current.state(pe), draft);
                if !state.as_wanted {
                    draft.rewrite(observed, Child::ProcessingElement(*id), of);
                } else if draft.may_restore(observed, state.drift) {
                    drifted.push(*id);
                }
            }
            _ => {
                if changes.add(*id, pe, current) {
                    continue;
                }
                // Those that were suspended are about to get pods.
                let stays = |current: &&ObservedPe| {
                    current.stays_as_it_is(pe) && (observed.suspended || current.run != PodState::Suspended)
                };
                if let Some(current) = current.filter(stays) {
                    draft.report.unwritten += 1;
                    count(observed, *id, current, current.state(pe), draft);
                } else {
                    draft.report.wait(*id, is_launched, &words_until_written(observed, *id, current));
                }
            }
        }
    }
    for (name, map) in children.texts.iter().chain(&children.chunks) {
        if map.is_whole() && draft.may_restore(observed, map.drift.as_ref()) {
            draft.act(JobAction::RestoreMetadata(name.clone()));
        }
    }
    for id in drifted.into_iter().chain(changes.now(observed, wanted, draft)) {
        draft.act(JobAction::Apply(Child::ProcessingElement(id), of));
    }
    if !without_text.is_empty() {
        repair(observed, without_text, draft);
    }
    outdated.renew(observed, draft);
}

/// What a PE waits for while its object is to be written. One that waited before goes on to say why: otherwise a job
/// that has failed for that reason would fail for another one with each edit of the options.
fn words_until_written(observed: &JobObservation, id: u64, current: Option<&ObservedPe>) -> Words {
    match current {
        Some(current) if current.run == PodState::Pending => current.says.clone(),
        Some(_) => Words::default(),
        None => name_taken(observed, id).unwrap_or_default(),
    }
}

/// Counts a PE by what its pod does.
fn count(observed: &JobObservation, id: u64, current: &ObservedPe, state: PodState, draft: &mut Draft) {
    let report = &mut draft.report;
    match state {
        PodState::Ready => report.ready += 1,
        PodState::Completed => report.completed += 1,
        PodState::Suspended if observed.suspended => report.suspended += 1,
        // A pod is about to be asked for again.
        PodState::Suspended | PodState::Pending => report.wait(id, current.launched, &current.says),
        PodState::Down => report.down.add(id, &current.says),
    }
}

/// What a PE waits for whose text is not there.
fn what_becomes_of_its_text(children: &Children, pe: &DesiredPe) -> Words {
    match children.held_back.get(&pe.text.config_map) {
        Some(at) => {
            let message =
                format!("somebody else changes its text as often as it is written; it is written again at {at:.0}");
            Words::of("ChangedByOthers", &message)
        }
        None if children.texts.get(&pe.text.config_map).is_some_and(|text| text.deleting) => {
            let message =
                format!("ConfigMap {} with its text is being deleted; it is written again", pe.text.config_map);
            Words::of("TextMissing", &message)
        }
        None => Words::of("TextMissing", "its text is to be written again"),
    }
}

/// Has texts of the committed generation written again, without which PEs cannot go on.
fn repair(observed: &JobObservation, pe_ids: Vec<u64>, draft: &mut Draft) {
    let request = of_committed_plan(observed, pe_ids);
    let progress = observed.tasks.repair.progress_of_plan(&request.plan);
    // The next generation does not wait for texts of the committed one.
    let preparing = std::mem::take(&mut draft.report.preparing);
    if let Some(Err(failure)) = draft.poll(observed, progress, Task::Repair(request), "")
        && failure.remedy == Remedy::Correct
    {
        draft.report.lost = Some(failure.message.clone());
    }
    draft.report.preparing = preparing;
}

/// PEs whose newest texts are not there, although they get other pods (rule job-51).
#[derive(Default)]
struct Outdated {
    /// They are about to get them.
    urgent: Vec<u64>,
    /// They get them when a user says so.
    others: Vec<u64>,
}

impl Outdated {
    fn add(&mut self, observed: &JobObservation, id: u64, current: Option<&ObservedPe>) {
        let is_urgent = match current.and_then(|current| current.next_pod) {
            Some(NextPod::Soon) => true,
            Some(NextPod::OnceResumed) => !observed.suspended,
            Some(NextPod::OnceContinued) | None => false,
        };
        if is_urgent { self.urgent.push(id) } else { self.others.push(id) }
    }

    /// Has the texts written, urgent ones first. What becomes of it does not matter to the job, which says nothing of
    /// it: each of the PEs has an older text.
    fn renew(self, observed: &JobObservation, draft: &mut Draft) {
        let is_urgent = !self.urgent.is_empty();
        let pe_ids = if is_urgent { self.urgent } else { self.others };
        if pe_ids.is_empty() {
            return;
        }
        let request = RenewRequest { texts: of_committed_plan(observed, pe_ids), is_urgent };
        let progress = observed.tasks.renew.progress_of_texts(&request);
        let (preparing, trouble) = (draft.report.preparing.clone(), draft.report.trouble.clone());
        draft.poll(observed, progress, Task::Renew(request), "");
        (draft.report.preparing, draft.report.trouble) = (preparing, trouble);
    }
}

fn of_committed_plan(observed: &JobObservation, pe_ids: Vec<u64>) -> PublishRequest {
    let plan = observed.status.plan.as_ref().map_or_else(String::new, |plan| plan.sha256.clone());
    PublishRequest { plan, pe_ids }
}

/// True when every PE that this generation added or restarted runs its new text, or never will. The controller may then
/// delete what earlier generations left (rule job-16).
pub(crate) fn is_rolled_out(observed: &JobObservation, wanted: &DesiredGeneration) -> bool {
    let children = &observed.children;
    wanted.processing_elements.iter().all(|(id, pe)| match children.processing_elements.get(id) {
        None => children.stays_away(*id, pe),
        Some(current) => {
            let applied = pe.is_applied_to(current, &observed.children);
            let is_concerned = pe.origin == wanted.generation
                || current.interrupted_for == Some(wanted.generation)
                || (current.has_running_pod && current.is_made_from_other_than(pe));
            applied && (!is_concerned || current.state(pe) != PodState::Pending)
        }
    })
}

/// When the roll-out of the committed generation has taken too long.
pub(super) fn roll_out_end(observed: &JobObservation) -> Option<Timestamp> {
    let started = observed.status.rollout.as_ref()?.started_at.as_ref()?;
    Some(after(started.0, observed.deadlines.roll_out))
}

/// When it has taken too long that no generation is rolled out, however many have been committed meanwhile.
pub(super) fn unfinished_end(observed: &JobObservation) -> Option<Timestamp> {
    let rollout = observed.status.rollout.as_ref()?;
    let since = rollout.unfinished_since.as_ref().or(rollout.started_at.as_ref())?;
    Some(after(since.0, observed.deadlines.roll_out))
}
