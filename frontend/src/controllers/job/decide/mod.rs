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
//! | anew | the spec is the one that the status speaks of, or there is a generation | record that it begins anew |
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
//! repairs what users delete; [`clean_up`](clean_up::clean_up) deletes what neither track refers to, and
//! [`clean_slate`] what an attempt of a submission has left.
//!
//! [`decision`] has what is decided, as values, and [`draft`] a decision that is being made. [`removals`](mod@removals)
//! says when PEs go that a generation does not have any more.
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

mod clean_slate;
mod clean_up;
mod decision;
mod draft;
mod prepare;
mod removals;
mod roll_out;
mod waves;

pub(crate) use self::decision::{
    JobAction, JobDecision, JobStatusChange, Propagation, Step, StoredDocument, WhichGeneration,
};
pub(crate) use self::draft::Report;
use self::draft::{Current, Draft};
pub(crate) use super::child::Child;
use super::generation::next_generation;
use super::observed::{DesiredGeneration, JobObservation, Loaded};
pub(crate) use super::owned::Owned;
use super::refusals::{self, NAME_TAKEN};
use super::waits::Words;
use crate::controllers::times::after;
pub(crate) use removals::removals;
pub(crate) use roll_out::is_rolled_out;
use roll_out::{roll_out_end, unfinished_end};
use std::time::Duration;
use streams_api::{ResizePhase, condition};

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
    for apart in requests.apart.iter().filter(|apart| !apart.is_due(observed.now)) {
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
/// (rule job-25). What the committed generation has was not created for a proposal (rule job-12), whatever others have
/// made of its spec. While its plan is lost, nobody knows what it has, and nothing is committed.
fn abandoned(observed: &JobObservation) -> Vec<u64> {
    if matches!(observed.committed, Some(Loaded::Lost(_))) {
        return Vec::new();
    }
    let next = next_generation(&observed.status);
    let generations = [committed(observed), proposed(observed)];
    let wanted = |id: &u64| generations.iter().flatten().any(|wanted| wanted.processing_elements.contains_key(id));
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
