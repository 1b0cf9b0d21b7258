//! Computes the Events of a change of a job's status, for `kubectl describe` (rule job-34). Pure.

use super::long_work::redis;
use super::observed::DesiredGeneration;
use streams_api::{JobPhase, JobStatus, condition};
use streams_kubernetes::events::Notice;

/// The Events between two statuses of the job `name`. `proposed` is the generation that was proposed before;
/// `spec_warnings` are reason and message of what users should know of its spec.
pub(crate) fn between(
    name: &str,
    before: &JobStatus,
    after: &JobStatus,
    proposed: Option<&DesiredGeneration>,
    spec_warnings: &[(String, String)],
) -> Vec<Notice> {
    let mut events = Vec::new();
    let became_true =
        |kind: &str| condition::is_true(&after.conditions, kind) && !condition::is_true(&before.conditions, kind);
    let message = |kind: &str| {
        condition::get(&after.conditions, kind).map_or(String::new(), |condition| condition.message.clone())
    };
    if after.phase == Some(JobPhase::Failed) && before.phase != Some(JobPhase::Failed) {
        events.push(Notice::warning("SubmissionFailed", message(condition::SUBMITTED)));
    } else if after.submission_attempts > before.submission_attempts.max(1) {
        let note = format!("the submission took too long; attempt {} begins", after.submission_attempts);
        events.push(Notice::warning("SubmissionTimedOut", note));
    }
    let bundle_trouble = |status: &JobStatus| {
        condition::get(&status.conditions, condition::BUNDLE_UNAVAILABLE).map(|trouble| trouble.reason.clone())
    };
    if let Some(reason) = bundle_trouble(after)
        && bundle_trouble(before).as_ref() != Some(&reason)
    {
        events.push(Notice::warning(reason, message(condition::BUNDLE_UNAVAILABLE)));
    }
    let lacks_servers = |status: &JobStatus| {
        condition::get(&status.conditions, condition::SUBMITTED).is_some_and(|said| said.reason == redis::MISSING)
    };
    if lacks_servers(after) && !lacks_servers(before) && after.phase != Some(JobPhase::Failed) {
        events.push(Notice::warning(redis::MISSING, message(condition::SUBMITTED)));
    }
    if became_true(condition::SUBMITTED) {
        let pes = after.statistics.as_ref().map_or(0, |statistics| statistics.processing_elements);
        let note = format!("Running job {name}: {pes} pods were created");
        events.push(Notice::normal("SubmissionSucceeded", note));
    }
    if after.generation != before.generation
        && let (Some(generation), Some(rollout)) = (after.generation, &after.rollout)
    {
        let note = format!(
            "generation {generation}: {} PEs kept, {} restarted, {} added, {} removed",
            rollout.kept, rollout.restarted, rollout.added, rollout.removed
        );
        events.push(Notice::normal("GenerationCommitted", note));
        events.extend(fusion(after));
        let warnings = proposed.into_iter().flat_map(|proposed| &proposed.warnings);
        events.extend(warnings.map(|(reason, message)| Notice::warning(reason.clone(), message.clone())));
    }
    let finished = |status: &JobStatus| {
        status.rollout.as_ref().and_then(|rollout| Some((rollout.generation, rollout.finished_at.as_ref()?.0)))
    };
    if let Some((generation, _)) = finished(after).filter(|_| finished(before).is_none())
        && generation > 0
    {
        events.push(Notice::normal("ParallelRegionWidthChangeSuccess", format!("generation {generation} runs")));
    }
    if let Some(rejected) = &after.rejected_resize
        && before.rejected_resize.as_ref() != Some(rejected)
    {
        events.push(Notice::warning("ParallelRegionWidthChangeFailure", rejected.message.clone()));
    }
    events.extend(certificate(before, after));
    let warns_of = |status: &JobStatus, message: &str| {
        condition::get(&status.conditions, condition::WARNING).is_some_and(|warning| warning.message.contains(message))
    };
    let is_new = |message: &str| warns_of(after, message) && !warns_of(before, message);
    let new = spec_warnings.iter().filter(|(_, message)| is_new(message));
    events.extend(new.map(|(reason, message)| Notice::warning(reason.clone(), message.clone())));
    if became_true(condition::SUSPENDED) {
        events.push(Notice::normal("Suspended", "the pods of the job go; everything else stays"));
    }
    let was_suspended = condition::is_true(&before.conditions, condition::SUSPENDED);
    if was_suspended && !condition::is_true(&after.conditions, condition::SUSPENDED) {
        events.push(Notice::normal("Resumed", "the pods of the job start again"));
    }
    let told = [
        (condition::DEGRADED, "Degraded"),
        (condition::RESIZE_DELAYED, "ResizeDelayed"),
        (condition::CONTENDED, "Contended"),
    ];
    for (kind, reason) in told {
        if became_true(kind) {
            events.push(Notice::warning(reason, message(kind)));
        }
    }
    events
}

/// The Event that says what became of the certificate of the PEs (rule job-48).
fn certificate(before: &JobStatus, after: &JobStatus) -> Option<Notice> {
    let of = |status: &JobStatus| {
        let transport = status.transport.as_ref()?;
        Some((transport.authority.clone()?, transport.not_after.as_ref()?.0))
    };
    let (old_authority, old_end) = of(before)?;
    let (authority, end) = of(after)?;
    if authority != old_authority {
        let note = "the certificate authority of the job was lost and there is a new one: PEs accept new connections of \
                    each other once the files of both were updated, which takes nodes about a minute";
        return Some(Notice::warning("TransportAuthorityReplaced", note));
    }
    (end != old_end).then(|| {
        Notice::normal("TransportCertificateRenewed", format!("the certificate of the PEs is valid until {end}"))
    })
}

/// The Event that says how automatic fusion computed the number of PEs.
fn fusion(status: &JobStatus) -> Option<Notice> {
    let fusion = status.fusion.as_ref().filter(|_| status.generation == Some(0))?;
    let figures = fusion.automatic.as_ref()?;
    let free = figures.cpu_free.map_or("unknown".to_owned(), |free| format!("{free}m"));
    let note = format!(
        "{} PEs for {} to {} threads, between {} and {}; free CPU {free}",
        fusion.processing_elements.unwrap_or_default(),
        figures.threads_min,
        figures.threads_max,
        figures.low,
        figures.high
    );
    Some(Notice::normal("FusionResolved", note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{RejectedResize, Rollout};

    fn status(phase: JobPhase, generation: Option<u64>, submitted: bool) -> JobStatus {
        let rollout = generation.map(|generation| Rollout { generation, restarted: 2, added: 1, ..Rollout::default() });
        let mut status =
            JobStatus { phase: Some(phase), generation, rollout, submission_attempts: 1, ..JobStatus::default() };
        let conditions = &mut status.conditions;
        condition::set(conditions, condition::SUBMITTED, submitted, "R", "why", None, Timestamp::UNIX_EPOCH);
        status
    }

    fn summary(before: &JobStatus, after: &JobStatus) -> Vec<(bool, String)> {
        between("flow", before, after, None, &[("UnmatchedRegion".to_owned(), "bounds".to_owned())])
            .into_iter()
            .map(|notice| (notice.warning, notice.reason.into_owned()))
            .collect()
    }

    #[test]
    fn each_turn_in_the_life_of_a_job_makes_one_event() {
        let submitting = status(JobPhase::Submitting, None, false);
        let committed = status(JobPhase::Submitting, Some(0), false);
        let running = status(JobPhase::Running, Some(0), true);
        let failed = status(JobPhase::Failed, None, false);
        let waits = |reason: &str| {
            let mut waiting = submitting.clone();
            let conditions = &mut waiting.conditions;
            let kind = condition::BUNDLE_UNAVAILABLE;
            condition::set(conditions, kind, true, reason, "why", None, Timestamp::UNIX_EPOCH);
            waiting
        };
        let (missing, silent) = (waits("BundleNotFound"), waits("BundleUnavailable"));
        let again = JobStatus { submission_attempts: 2, ..submitting.clone() };
        let resized = status(JobPhase::Running, Some(1), true);
        let mut finished = resized.clone();
        finished.rollout.as_mut().unwrap().finished_at = Some(MicroTime(Timestamp::UNIX_EPOCH));
        let rejected = JobStatus { rejected_resize: Some(RejectedResize::default()), ..running.clone() };
        let mut degraded = running.clone();
        condition::set(&mut degraded.conditions, condition::DEGRADED, true, "R", "", None, Timestamp::UNIX_EPOCH);
        let (mut warned, mut warned_of_more) = (running.clone(), running.clone());
        for (status, message) in [(&mut warned, "bounds"), (&mut warned_of_more, "bounds; more")] {
            condition::set(&mut status.conditions, condition::WARNING, true, "R", message, None, Timestamp::UNIX_EPOCH);
        }
        // before, after -> warning and reason of the Event
        let table = [
            (&submitting, &committed, Some((false, "GenerationCommitted"))),
            (&committed, &running, Some((false, "SubmissionSucceeded"))),
            (&submitting, &failed, Some((true, "SubmissionFailed"))),
            (&submitting, &again, Some((true, "SubmissionTimedOut"))),
            (&failed, &submitting, None),
            (&submitting, &missing, Some((true, "BundleNotFound"))),
            (&missing, &silent, Some((true, "BundleUnavailable"))),
            (&missing, &submitting, None),
            (&missing, &failed, Some((true, "SubmissionFailed"))),
            (&running, &resized, Some((false, "GenerationCommitted"))),
            (&resized, &finished, Some((false, "ParallelRegionWidthChangeSuccess"))),
            (&running, &rejected, Some((true, "ParallelRegionWidthChangeFailure"))),
            (&running, &degraded, Some((true, "Degraded"))),
            (&degraded, &running, None),
            (&running, &warned, Some((true, "UnmatchedRegion"))),
            (&warned, &warned_of_more, None),
            (&warned, &running, None),
        ];
        for (before, after, expected) in table {
            let expected: Vec<_> = expected.into_iter().map(|(warning, reason)| (warning, reason.to_owned())).collect();
            assert_eq!(summary(before, after), expected);
            assert!(summary(after, after).is_empty(), "it is published once");
        }
    }
}
