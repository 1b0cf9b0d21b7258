//! Applies a step to the status of a job, and to the results of long work.
//!
//! Pure. [`describe`](super) computes the other fields of the status.
//!
//! Knows: what each step records. Must not know: which step comes next, clients.

use crate::controllers::job::decide::{JobStatusChange, removals};
use crate::controllers::job::observed::{DesiredGeneration, DesiredPe, JobObservation, Loaded, NextPod};
use crate::controllers::job::tasks::{Slot, Tasks};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use streams_api::{
    CommittedResizes, JobPhase, JobStatus, ProposedPlan, RegionWidth, ResizeChanges, Rollout, condition,
};

/// Requests that say themselves that they are committed, and widths that are written, need not be in the status any
/// more. As long as a request is there, the next leader looks for it.
pub(crate) fn forget_requests(status: &mut JobStatus, observed: &JobObservation) {
    if observed.requests.is_known {
        for committed in &mut status.committed_resizes {
            committed.resizes.retain(|number| observed.requests.is_untold(*number));
        }
        status.committed_resizes.retain(|committed| !committed.resizes.is_empty());
        status.unwritten_widths = observed.requests.to_write.values().cloned().collect();
    }
}

/// The status after `change`.
pub(crate) fn apply(change: &JobStatusChange, observed: &JobObservation) -> JobStatus {
    let mut status = observed.status.clone();
    let now = observed.now;
    status.submission_worked_milliseconds = work(observed);
    status.admitted_resizes = status.admitted_resizes.max(observed.requests.last_number);
    forget_requests(&mut status, observed);
    match change {
        JobStatusChange::JobId { id, adl } => {
            status.job_id = Some(*id);
            begin(&mut status, 1, now);
            if let Some(adl) = adl {
                status.adl = Some(adl.clone());
                // The bundle was fetched for this attempt.
                status.submission_worked_milliseconds = work(observed);
            }
        }
        JobStatusChange::Adl(adl) => {
            status.adl = Some(adl.clone());
            status.phase = Some(JobPhase::Submitting);
        }
        JobStatusChange::Propose { plan, widths, changes } => {
            let spec_generation = observed.spec_generation;
            if observed.transport.as_ref().is_some_and(|transport| transport.wanted) {
                // From now on there may be a Secret.
                status.transport.get_or_insert_default();
            }
            let (resizes, widths) = (observed.requests.carried_out_by(widths), region_widths(widths));
            let changes = Some(*changes).filter(|_| status.generation.is_some());
            status.proposal = Some(ProposedPlan { plan: plan.clone(), widths, resizes, changes, spec_generation });
        }
        JobStatusChange::Abandon | JobStatusChange::GiveWay(_) => status.proposal = None,
        JobStatusChange::Commit => commit(&mut status, observed),
        JobStatusChange::FailSubmission(failure) => {
            forget(&mut status);
            // The next submission is of another spec: perhaps of another bundle.
            status.adl = None;
            status.phase = Some(JobPhase::Failed);
            let observed_generation = Some(observed.spec_generation);
            let conditions = &mut status.conditions;
            condition::set(
                conditions,
                condition::SUBMITTED,
                false,
                &failure.reason,
                &failure.message,
                observed_generation,
                now,
            );
        }
        JobStatusChange::RejectResize(refused) => {
            status.refused_edits.retain(|other| other.region != refused.region);
            status.refused_edits.push(refused.clone());
        }
        JobStatusChange::RejectProposal(_) => status.proposal = None,
        JobStatusChange::StartOver => {
            forget(&mut status);
            let attempts = status.submission_attempts.saturating_add(1);
            begin(&mut status, attempts, now);
        }
        JobStatusChange::SubmitAgain => {
            forget(&mut status);
            begin(&mut status, 1, now);
        }
        // What was prepared for the spec of before goes on if it is wanted still.
        JobStatusChange::BeginAnew => begin(&mut status, 1, now),
    }
    status
}

/// Clears the results of long work that `change` takes back. Those that it uses, and texts that it makes superfluous,
/// are seen to once the status is ([`Entry::use_up`](super::super::memory::Entry::use_up)).
pub(crate) fn take_back(tasks: &mut Tasks, change: &JobStatusChange) {
    match change {
        JobStatusChange::Abandon
        | JobStatusChange::GiveWay(_)
        | JobStatusChange::RejectProposal(_)
        | JobStatusChange::RejectResize(_) => {
            tasks.compile = Slot::Idle;
            // The next look ends what goes on for it.
            drop(tasks.end_storing());
        }
        JobStatusChange::FailSubmission(_) | JobStatusChange::StartOver | JobStatusChange::SubmitAgain => {
            *tasks = Tasks::idle()
        }
        // Whether the edited spec leads to what is under way, its request says. No pause of before counts.
        JobStatusChange::BeginAnew => tasks.forget_failures(),
        JobStatusChange::JobId { .. }
        | JobStatusChange::Adl(_)
        | JobStatusChange::Propose { .. }
        | JobStatusChange::Commit => {}
    }
}

/// A submission begins, and its clock with it (rule job-18).
fn begin(status: &mut JobStatus, attempt: u32, now: Timestamp) {
    status.phase = Some(JobPhase::Submitting);
    status.submission_attempts = attempt;
    status.submission_started_at = Some(Time(now));
    status.submission_worked_milliseconds = 0;
    condition::remove(&mut status.conditions, condition::SUBMITTED);
}

/// Times of a roll-out that lie in the future, because the clock of the leader before was ahead, or this one was put
/// back, are now: what waits for some time after them would wait for as much longer (rule job-16). They are written, as
/// what counts as now at each look never passes.
pub(crate) fn bring_back(status: &mut JobStatus, now: Timestamp) {
    let Some(rollout) = status.rollout.as_mut().filter(|rollout| rollout.finished_at.is_none()) else { return };
    let of_all = [&mut rollout.started_at, &mut rollout.unfinished_since].into_iter().flatten();
    let removals = rollout.removals.iter_mut().map(|removal| &mut removal.since);
    of_all.chain(removals).for_each(|at| at.0 = at.0.min(now));
}

/// How long the frontend has worked on the submission, for the status.
pub(crate) fn work(observed: &JobObservation) -> u64 {
    u64::try_from(observed.worked.as_millis()).unwrap_or(u64::MAX)
}

/// Clears everything of an earlier attempt but the job id and the ADL.
fn forget(status: &mut JobStatus) {
    status.generation = None;
    status.plan = None;
    status.proposal = None;
    status.applied_widths = Vec::new();
    status.regions = Vec::new();
    status.older_texts = Vec::new();
    status.fusion = None;
    status.redis_configuration = None;
    status.rollout = None;
    status.rejected_resize = None;
    status.refused_edits = Vec::new();
    status.unwritten_widths = Vec::new();
    status.statistics = None;
}

/// The commit (rule job-14).
fn commit(status: &mut JobStatus, observed: &JobObservation) {
    let Some(Loaded::Whole(wanted)) = &observed.proposed else { return };
    let Some(proposal) = status.proposal.take() else { return };
    status.generation = Some(wanted.generation);
    status.plan = Some(proposal.plan);
    let before = std::mem::replace(&mut status.applied_widths, region_widths(&wanted.widths));
    let before: BTreeMap<_, _> = before.into_iter().map(|width| (width.region, width.width)).collect();
    let committed_at = status.rollout.as_ref().and_then(|rollout| rollout.started_at.as_ref()).map(|at| at.0);
    let width_before = |index: u64| {
        let region = wanted.regions.get(&index)?;
        let before = before.get(region).copied()?;
        if wanted.widths.get(region) != Some(&before) {
            return Some(before);
        }
        // A change that the region has not said yet counts as one of this generation (rule elasticity-20). One that was
        // made again since has nothing to say of it: the region before it may have.
        let silent_since = observed.children.regions.get(&index)?.silent_since?;
        status.region(index).filter(|_| Some(silent_since) <= committed_at)?.width_before
    };
    let brought = |index: u64| {
        let region = wanted.regions.get(&index)?;
        let stays = before.get(region).is_some_and(|before| wanted.widths.get(region) == Some(before));
        if stays { status.region(index)?.generation } else { Some(wanted.generation) }
    };
    status.regions = wanted.regions_since(width_before, brought);
    status.older_texts.clone_from(&wanted.older_texts);
    if status.fusion.is_none() {
        status.fusion = Some(wanted.fusion.clone());
    }
    let redis = &wanted.settled.redis;
    status.redis_configuration = (!redis.is_empty()).then(|| redis.clone());
    status.statistics = Some(wanted.statistics.clone());
    let changes = changes(wanted, observed);
    // Who has withdrawn a request was not heard too late, though others want the same.
    let resizes = proposal.resizes.into_iter().filter(|number| observed.requests.is_standing(*number));
    let resizes: Vec<u64> = resizes.collect();
    if !resizes.is_empty() {
        let generation = wanted.generation;
        status.committed_resizes.push(CommittedResizes { generation, resizes, changes });
        let mut unwritten = observed.requests.to_write.clone();
        unwritten.extend(observed.requests.proposed.clone());
        status.unwritten_widths = unwritten.into_values().collect();
    }
    let unfinished = status.rollout.take().filter(|rollout| rollout.finished_at.is_none());
    let unfinished_since = unfinished.and_then(|rollout| rollout.unfinished_since.or(rollout.started_at));
    status.rollout = Some(Rollout {
        generation: wanted.generation,
        kept: changes.kept,
        restarted: changes.restarted,
        added: changes.added,
        removed: changes.removed,
        pending: changes.restarted.saturating_add(changes.added).saturating_add(changes.removed),
        started_at: Some(MicroTime(observed.now)),
        unfinished_since,
        removals: removals(observed, wanted),
        finished_at: None,
    });
}

/// What the generation does to PEs (rule job-53).
fn changes(wanted: &DesiredGeneration, observed: &JobObservation) -> ResizeChanges {
    let before = observed.committed.as_ref().and_then(Loaded::whole).map(|before| &before.processing_elements);
    let stay = wanted.processing_elements.iter().filter(|(id, _)| before.is_some_and(|before| before.contains_key(id)));
    let restarted = stay.clone().filter(|(id, pe)| pe.origin == wanted.generation && is_replaced(observed, **id, pe));
    let (had, stay, restarted) = (before.map_or(0, BTreeMap::len), stay.count(), restarted.count());
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    ResizeChanges {
        kept: count(stay.saturating_sub(restarted)),
        restarted: count(restarted),
        added: count(wanted.processing_elements.len().saturating_sub(stay)),
        removed: count(had.saturating_sub(stay)),
    }
}

/// Whether a PE whose text or place is another one than in the generation before has a pod that is replaced because of
/// that.
fn is_replaced(observed: &JobObservation, id: u64, pe: &DesiredPe) -> bool {
    let current = observed.children.processing_elements.get(&id).filter(|current| !current.object.deleting);
    // One that is made again gets another pod anyway, or none. So does one that is between two pods: the next is made
    // from what is newest.
    let Some(current) = current.filter(|current| current.runtime_id.is_some()) else { return false };
    if observed.suspended || current.has_completed || current.is_stopped {
        return false;
    }
    // A pod that has ended is nowhere, and the next one is made from what is newest.
    let has_other_text = current.runtime_id.as_ref() != Some(&pe.runtime_id);
    let lives = current.has_running_pod || current.is_starting;
    let is_between = !lives && current.next_pod == Some(NextPod::Soon);
    !is_between && current.is_made_from_other_than(pe) && (has_other_text || lives)
}

/// Widths in the form of the status, ascending by region.
pub(crate) fn region_widths(widths: &BTreeMap<String, u32>) -> Vec<RegionWidth> {
    widths.iter().map(|(region, width)| RegionWidth { region: region.clone(), width: *width }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::Removal;

    #[test]
    fn times_of_a_roll_out_that_lie_in_the_future_are_brought_back_to_now() {
        let time = |second: i64| MicroTime(Timestamp::from_second(second).unwrap());
        let status = |started: i64, unfinished: Option<i64>, since: i64, finished: Option<i64>| JobStatus {
            rollout: Some(Rollout {
                started_at: Some(time(started)),
                unfinished_since: unfinished.map(time),
                removals: vec![Removal { first: 1, last: 2, generation: 3, since: time(since) }],
                finished_at: finished.map(time),
                ..Rollout::default()
            }),
            ..JobStatus::default()
        };
        // what is there in second 100 -> what becomes of it
        let table = [
            (status(90, Some(80), 70, None), status(90, Some(80), 70, None)),
            (status(100, None, 100, None), status(100, None, 100, None)),
            (status(700, Some(80), 70, None), status(100, Some(80), 70, None)),
            (status(700, Some(600), 500, None), status(100, Some(100), 100, None)),
            (status(90, None, 500, None), status(90, None, 100, None)),
            // Nobody waits for it any more.
            (status(700, None, 500, Some(800)), status(700, None, 500, Some(800))),
            (JobStatus::default(), JobStatus::default()),
        ];
        for (before, expected) in table {
            let mut after = before.clone();
            bring_back(&mut after, time(100).0);
            assert_eq!(after, expected, "{before:?}");
        }
    }

    #[test]
    fn each_width_is_found_where_the_status_lists_it() {
        let names = ["a", "B", "AB", "A.B2", "A.B[", "A.B.C", "A.B", "A", "\u{e4}"];
        let widths: BTreeMap<String, u32> = names.iter().map(|name| (*name).to_owned()).zip(1..).collect();
        let status = JobStatus { applied_widths: region_widths(&widths), ..JobStatus::default() };
        for (name, width) in &widths {
            assert_eq!(status.applied_width(name), Some(*width), "{name}");
        }
    }
}
