//! Computes the part of a job's status that only describes: phase, conditions, counters.
//!
//! Pure. [`decide`](super::decide::decide) does not read these fields, with two exceptions: a submission that has
//! failed for good stays failed until the spec changes (phase, observed generation and the reason of `Submitted`), and
//! the condition `Submitted` stays true.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | the fields |
//! | [`conditions`] | what each condition says |
//! | [`exhausted_regions`] | what is said of consistent regions that have given up |
//! | [`transition`] | the other fields: the status after a step |
//! | [`warnings`] | what users should know although it stops nothing |
//! | [`events`] | Events of a change of the status |
//!
//! Knows: the observation, what was decided. Must not know: clients, which action comes next.

mod conditions;
pub(crate) mod events;
mod exhausted_regions;
pub(crate) mod transition;
pub(crate) mod warnings;

use self::conditions::Conditions;
use super::decide::{Report, is_submitted};
use super::observed::{JobObservation, Loaded, PodState};
use super::refusals;
use super::requests::refused_edits;
use super::transport::Transport;
use super::waits::Words;
use crate::controllers::times::whole_seconds;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use streams_api::{JobPhase, JobStatus, TransportStatus, condition};

/// Part of the time of a submission that may be lost with the process that worked on it (rule job-18).
const UNRECORDED: u32 = 10;

/// Describes the job in `status`, whose other fields steps have recorded.
///
/// `after_step`: `status` has a step that was just taken, and `observed` is from before the step.
pub(crate) fn describe(
    observed: &JobObservation,
    report: &Report,
    mut status: JobStatus,
    after_step: bool,
) -> JobStatus {
    let submitted = !after_step && is_submitted(observed);
    transition::bring_back(&mut status, observed.now);
    // A step carries nothing of the spec out: whoever leads next takes it for an edit that is still to be carried out
    // (rule job-45).
    if !after_step || observed.status.generation.is_none() {
        status.observed_generation = Some(observed.spec_generation);
    }
    // While the plan is lost nobody looks at regions: what was refused is refused still.
    if !is_plan_lost(observed) {
        refused_edits::keep(&mut status, &observed.requests.keys);
    }
    if !after_step {
        if let Some(Loaded::Whole(wanted)) = &observed.committed {
            // The commit records it; an older frontend did not.
            let (before, brought) =
                (|index| status.region(index)?.width_before, |index| status.region(index)?.generation);
            status.regions = wanted.regions_since(before, brought);
        }
        count(observed, report, &mut status);
        let worked = transition::work(observed);
        let unrecorded = worked.saturating_sub(status.submission_worked_milliseconds);
        if u128::from(unrecorded) * u128::from(UNRECORDED) >= observed.deadlines.submission.as_millis() {
            status.submission_worked_milliseconds = worked;
        }
        transport(observed, &mut status);
    }
    let refused = if after_step { None } else { refused(report) };
    // Without a step, and as long as nothing was written, nothing has come of a submission of which the cluster refused
    // something.
    let nothing_came = !after_step && status.generation.is_none() && !observed.refusals_are_over;
    let refused_still = nothing_came && refusals::is_of_cluster(&observed.status) && report.trouble.is_none();
    // Phase and reason together say so: before either is changed.
    let failed = refusals::is_final(&status);
    if !failed {
        phase(observed, report, submitted, refused.is_some() || refused_still, &mut status);
    }
    let mut say = Conditions { status: &mut status, observed };
    let (dated, no_bundle_still) = say.bundle_unavailable(report, after_step || failed);
    let report = dated.as_ref().unwrap_or(report);
    let no_other_pods = warnings::no_other_pods(observed);
    if !failed && (refused.is_some() || !refused_still) && !no_bundle_still {
        say.submitted(report, submitted, refused.as_ref());
    }
    say.compiled(report, failed);
    say.resources_ready(report, failed);
    say.ready(report, &no_other_pods, failed, after_step);
    say.pods_ready(report, &no_other_pods, failed, after_step);
    say.connected(after_step);
    say.progressing(report, failed, after_step);
    say.suspended(report, after_step);
    say.degraded(report);
    say.resize_delayed(report);
    say.contended();
    say.outdated();
    // While the plan is lost nobody looks at the spec either: what the job has said of it stays, and is not told again
    // later.
    if !is_plan_lost(observed) {
        say.resize_rejected();
        say.warning(&no_other_pods);
    }
    status
}

/// Whether two statuses differ in more than counters and texts (rule job-35). Connectivity counts as a counter: PEs
/// tell of it as often as they like.
pub(crate) fn is_significant(before: &JobStatus, after: &JobStatus) -> bool {
    let essence = |status: &JobStatus| {
        let mut status = status.clone();
        condition::remove(&mut status.conditions, condition::CONNECTED);
        status.conditions.iter_mut().for_each(|condition| condition.message.clear());
        status.statistics = None;
        if let Some(rollout) = &mut status.rollout {
            rollout.pending = 0;
        }
        status
    };
    essence(before) != essence(after)
}

/// Whether the next write follows at once and says the same and more (rule job-50).
pub(crate) fn is_left_to_the_next(before: &JobStatus, after: &JobStatus, report: &Report) -> bool {
    if report.trouble.is_some() || before.generation.is_none() {
        return false;
    }
    let but_for_progress = |status: &JobStatus| {
        let mut status = status.clone();
        condition::remove(&mut status.conditions, condition::PROGRESSING);
        status
    };
    let is_prepared =
        !report.preparing.is_empty() && !is_significant(&but_for_progress(before), &but_for_progress(after));
    let is_unfinished = |status: &JobStatus| status.rollout.as_ref().is_some_and(|out| out.finished_at.is_none());
    let is_ending = report.pending + report.superfluous == 0 && is_unfinished(after);
    let is_cleaned_up = is_ending && (report.deletes || report.unwritten > 0);
    is_prepared || is_cleaned_up
}

/// Whether it is not known what the job consists of: nothing is counted, and no edit is carried out (rule job-28).
fn is_plan_lost(observed: &JobObservation) -> bool {
    matches!(observed.committed, Some(Loaded::Lost(_)))
}

/// Counts PEs, and notes when the roll-out is finished (rule job-17).
fn count(observed: &JobObservation, report: &Report, status: &mut JobStatus) {
    if !matches!(observed.committed, Some(Loaded::Whole(_))) {
        return;
    }
    if let Some(statistics) = &mut status.statistics {
        statistics.ready_processing_elements = report.ready;
        statistics.connected_processing_elements = u32::try_from(connected(observed).0).unwrap_or(u32::MAX);
        statistics.completed_processing_elements = report.completed;
    }
    if let Some(rollout) = &mut status.rollout {
        rollout.pending = report.pending.saturating_add(report.unwritten).saturating_add(report.superfluous);
        // Objects that are deleted only now may still exist.
        if rollout.pending == 0 && !report.deletes && rollout.finished_at.is_none() {
            rollout.finished_at = Some(MicroTime(observed.now));
            rollout.unfinished_since = None;
            rollout.removals = Vec::new();
        }
    }
}

/// How many PEs of the committed generation have all of their connections, and whether all that have not completed do
/// (rule job-54).
fn connected(observed: &JobObservation) -> (usize, bool) {
    let Some(Loaded::Whole(wanted)) = &observed.committed else { return (0, false) };
    let (mut count, mut completed) = (0_usize, 0_usize);
    for (id, wanted) in &wanted.processing_elements {
        let Some(pe) = observed.children.processing_elements.get(id) else { continue };
        if pe.is_connected {
            count += 1;
        } else if pe.state(wanted) == PodState::Completed {
            completed += 1;
        }
    }
    (count, count > 0 && count + completed == wanted.processing_elements.len())
}

/// What certificates say, or that there are none and are to be none (rule job-48).
fn transport(observed: &JobObservation, status: &mut JobStatus) {
    let Some(Transport { wanted, days, sighting: Some(sighting) }) = &observed.transport else { return };
    match sighting.certificates() {
        Some(certificates) => {
            status.transport = Some(TransportStatus {
                authority: Some(certificates.authority.clone()),
                not_after: Some(Time(certificates.not_after)),
                renew_at: Some(Time(whole_seconds(certificates.renew_at(*days)))),
            });
        }
        None if !wanted && sighting.secret.is_none() => status.transport = None,
        None => {}
    }
}

/// What only the cluster can refuse, and does (rule job-41).
fn refused(report: &Report) -> Option<Words> {
    let trouble = report.trouble.as_ref().map(|trouble| Words::of(&trouble.reason, &trouble.message));
    refusals::of_cluster(&report.without_pods, trouble)
}

fn phase(observed: &JobObservation, report: &Report, submitted: bool, refused: bool, status: &mut JobStatus) {
    let was_submitted = condition::is_true(&status.conditions, condition::SUBMITTED);
    let submitting = if refused { JobPhase::Failed } else { JobPhase::Submitting };
    status.phase = Some(match status.generation {
        None if status.job_id.is_none() && !refused => JobPhase::Pending,
        None => submitting,
        Some(_) if observed.suspended => JobPhase::Suspended,
        Some(_) if !submitted && !was_submitted => submitting,
        Some(_) if !report.down.is_empty() || report.lost.is_some() => JobPhase::Degraded,
        Some(_) if !observed.children.exhausted_regions.is_empty() => JobPhase::Degraded,
        Some(_) => JobPhase::Running,
    });
}
