//! What the process remembers of a job, and what it has written that the mirrors do not show yet.
//!
//! Knows: the memory of the process. Must not know: what is decided on it.

use super::objects::Objects;
use super::plans::Plans;
use crate::controllers::job::child::Child;
use crate::controllers::job::generation::next_generation;
use crate::controllers::job::held_up::HoldUp;
use crate::controllers::job::memory::Entry;
use crate::controllers::job::observed::drift::Difference;
use crate::controllers::job::observed::snapshot::JobSnapshot;
use crate::controllers::job::observed::{Children, Contention, ObservedDrift, ObservedObject};
use crate::controllers::job::owned::Owned;
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::refusals::outdated::UndeclaredField;
use crate::controllers::job::tasks::{Failure, Tasks};
use crate::controllers::restorations::Restorations;
use crate::controllers::times::Clocks;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;
use streams_api::{JobStatus, condition};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::watch::version;

/// What is remembered of a job. [`JobObservation`](crate::controllers::job::observed::JobObservation) says what most of
/// it is.
pub(super) struct Remembrance {
    pub(super) worked: Duration,
    pub(super) contended: Vec<Contention>,
    pub(super) last_failure: Option<Failure>,
    pub(super) tasks: Tasks,
    pub(super) written_until: Option<Timestamp>,
    pub(super) outdated: BTreeSet<UndeclaredField>,
    /// The job is as it was when this process looked at it first, and was at rest then.
    pub(super) is_inherited: bool,
    pub(super) has_given_up: bool,
    pub(super) unanswered_until: Option<Timestamp>,
    pub(super) proposed_at: Option<Timestamp>,
    pub(super) refusals_are_over: bool,
    pub(super) held_up: Option<HoldUp>,
    pub(super) cannot_store_proposal: bool,
}

/// What is remembered of the job. Adds to the objects what of it the mirrors do not show.
pub(super) fn remembered<C: Cluster>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    status: &JobStatus,
    plans: &Plans,
    objects: &mut Objects,
    now: Timestamp,
) -> Remembrance {
    let JobSnapshot { key, job, .. } = snapshot;
    let is_settled = is_settled(job.metadata.generation, status);
    let state = (job.metadata.generation, status.plan.as_ref().map(|plan| plan.sha256.clone()));
    let recorded = Duration::from_millis(status.submission_worked_milliseconds);
    let next = next_generation(status);
    let proposal = status.proposal.as_ref().map(|proposal| &proposal.plan);
    let clocks = Clocks { now, passed: reconciler.cluster.passed() };
    reconciler.memory.with(key, snapshot.uid(), |entry| {
        entry.saw(version(&job.metadata));
        add_what_is_not_shown(entry, objects, now);
        add_what_is_out_of_sight(entry, &mut objects.children, plans);
        let inherited = entry.inherited.get_or_insert_with(|| is_settled.then(|| state.clone()));
        if inherited.as_ref().is_some_and(|inherited| *inherited != state) {
            *inherited = None;
        }
        let is_inherited = inherited.is_some();
        Remembrance {
            worked: recorded.saturating_add(entry.unrecorded_work),
            contended: entry.contended(key),
            last_failure: entry.last_failure.clone(),
            tasks: entry.tasks.clone(),
            written_until: entry.written_until(),
            outdated: entry.outdated.fields(now),
            is_inherited,
            has_given_up: entry.given_up_for == Some(next),
            unanswered_until: entry.unanswered_until(version(&job.metadata), clocks),
            proposed_at: entry.proposed_at,
            refusals_are_over: entry.refusals.are_over(),
            held_up: proposal.and_then(|plan| entry.held_up.longest(&plan.sha256)).cloned(),
            cannot_store_proposal: proposal.is_some_and(|plan| entry.unstorable_plan.as_ref() == Some(&plan.sha256)),
        }
    })
}

/// This process finds the job at rest, so what it would write differently is a rewrite by a new version, of which there
/// are so many a second (rule job-45). An edit that nobody has carried out yet, or only in part, is none: it is carried
/// out at once, by whoever comes. So is one from when the plan was lost, which was noticed, and no more: `Ready` is of
/// the spec before it.
fn is_settled(generation: Option<i64>, status: &JobStatus) -> bool {
    status.proposal.is_none()
        && status.observed_generation == generation
        && condition::plan_lost(&status.conditions).is_none_or(|ready| ready.observed_generation == generation)
        && status.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_some() && rollout.pending == 0)
}

/// Adds what this process has written or deleted, as far as the mirrors do not show it, and what others changed of the
/// rest.
fn add_what_is_not_shown(entry: &mut Entry, objects: &mut Objects, now: Timestamp) {
    let Objects { mirrored, children, differences, .. } = objects;
    entry.own_writes.delete_from(children, now, |owned| mirrored.uid(owned));
    let shown = |name: &str| children.texts.get(name).is_some_and(|text| !text.just_deleted);
    for name in entry.just_written(now, shown) {
        children.texts.insert(name, ObservedObject::default());
    }
    let shown = |name: &str| children.chunks.get(name).is_some_and(|chunk| !chunk.just_deleted);
    children.just_stored = entry.just_stored(now, shown);
    let shown = |owned: &Owned| mirrored.version(owned);
    entry.own_writes.add_to(children, now, shown);
    entry.restorations.retain(|_, restorations| restorations.count(now));
    children.held_back = entry.held_back(now);
    for (owned, difference) in std::mem::take(differences) {
        let not_before = entry.restorations.get(&owned).and_then(Restorations::not_before);
        let Difference { field, of_content, applied } = difference;
        // What was written since is not shown yet.
        if !entry.own_writes.has(&owned)
            && let Some(object) = children.object(&owned)
        {
            object.drift = Some(ObservedDrift { field, not_before, of_content });
            if let Some(applied) = applied {
                object.applied = applied.to_string();
            }
        }
    }
}

/// Adds what others keep out of sight of the mirrors, so that it waits for its time like what they change of other
/// objects (rule call-19). What no generation wants is not deleted either, so nobody has to know of it.
fn add_what_is_out_of_sight(entry: &mut Entry, children: &mut Children, plans: &Plans) {
    for (child, object) in entry.out_of_sight() {
        let is_wanted = plans.wanted().any(|wanted| match child {
            Child::Service(id) => wanted.processing_elements.contains_key(&id),
            Child::JobConfigMap => true,
            _ => wanted.interfaces.contains_key(&child),
        });
        if is_wanted {
            children.add_unseen(child, object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use streams_api::{ProposedPlan, Rollout};

    #[test]
    fn a_job_is_settled_if_nobody_has_left_anything_of_its_spec_undone() {
        // generation of the spec that was observed, of the spec, the roll-out is finished, PEs that are still to be
        // written, there is a proposal, reason of Ready and the generation it is of -> it is settled
        let table = [
            (Some(2), 2, true, 0, false, Some(("AllRunning", 2)), true),
            (Some(2), 2, true, 0, false, Some(("ProcessingElementsDown", 2)), true),
            (Some(2), 2, true, 0, false, None, true),
            (Some(1), 2, true, 0, false, Some(("AllRunning", 1)), false),
            (None, 2, true, 0, false, Some(("AllRunning", 2)), false),
            (Some(2), 2, false, 0, false, Some(("RollingOut", 2)), false),
            (Some(2), 2, true, 1, false, Some(("AllRunning", 2)), false),
            (Some(2), 2, true, 0, true, Some(("AllRunning", 2)), false),
            (Some(2), 2, true, 0, false, Some(("PlanLost", 1)), false),
            (Some(2), 2, true, 0, false, Some(("PlanLost", 2)), true),
            (Some(2), 2, true, 1, false, Some(("PlanLost", 2)), false),
        ];
        for (observed_generation, generation, finished, pending, proposed, ready, expected) in table {
            let now = Timestamp::UNIX_EPOCH;
            let finished_at = finished.then_some(MicroTime(now));
            let mut status = JobStatus {
                observed_generation,
                proposal: proposed.then(ProposedPlan::default),
                rollout: Some(Rollout { finished_at, pending, ..Rollout::default() }),
                ..JobStatus::default()
            };
            if let Some((reason, of)) = ready {
                condition::set(&mut status.conditions, condition::READY, false, reason, "", Some(of), now);
            }
            let found = is_settled(Some(generation), &status);
            assert_eq!(found, expected, "{observed_generation:?} {finished} {pending} {proposed} {ready:?}");
        }
        assert!(!is_settled(Some(2), &JobStatus { observed_generation: Some(2), ..JobStatus::default() }));
    }
}
