//! Requests of a job that has no generation yet, or whose plan cannot be read (rule elasticity-16): none is admitted or
//! compiled. Whoever withdraws one hears of it, and nobody waits for a submission that has failed. Pure.

use super::super::refusals;
use super::admission::{ended, waits_for_regions_until};
use super::observe::{Requests, ToTell};
use super::standing::{WITHDRAWN, is_new, name_of};
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use streams_api::{JobStatus, Resize, ResizePhase, ResizeStatus};

/// Reason of a request for a job whose submission has failed.
pub(crate) const NOT_SUBMITTED: &str = "NotSubmitted";

/// What is to be done about requests of such a job.
pub(crate) fn without_generation(status: &JobStatus, requests: &[Arc<Resize>], now: Timestamp) -> Requests {
    let has_failed = refusals::is_final(status);
    let mut found = Requests::default();
    for request in requests.iter().filter(|request| !request.phase().is_final()) {
        let before = || request.status.clone().unwrap_or_default();
        let mut end = |phase: ResizePhase, reason: &str, message: &str| {
            let status = ResizeStatus { generation: None, ..ended(before(), phase, reason, message, now) };
            found.to_tell.insert(name_of(request), ToTell::of(request, status));
        };
        if request.is_withdrawn() {
            if !may_be_in_force(status, request) {
                end(ResizePhase::Cancelled, WITHDRAWN, "it was withdrawn before it was committed");
            }
            continue;
        }
        let until = waits_for_regions_until(request).filter(|_| has_failed && is_new(request));
        match until {
            Some(until) if until <= now => {
                let message = "the job has no generation: its submission has failed";
                end(ResizePhase::Refused, NOT_SUBMITTED, message);
            }
            Some(until) => found.looks_again_at(until),
            None => {}
        }
    }
    found
}

/// Whether a generation has the widths of the request, or the proposal does, which cannot be given up now.
fn may_be_in_force(status: &JobStatus, request: &Resize) -> bool {
    let number = request.status.as_ref().and_then(|status| status.number);
    let is_carried_out = |number| status.commit_of(number).is_some() || status.proposes(number);
    request.phase() == ResizePhase::Written || number.is_some_and(is_carried_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use streams_api::{CommittedResizes, JobPhase, ProposedPlan, names};

    #[test]
    fn who_is_withdrawn_is_told_so_and_who_waits_for_a_failed_submission_ends_after_a_while() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let failed = JobStatus { phase: Some(JobPhase::Failed), ..JobStatus::default() };
        let lost = JobStatus {
            generation: Some(4),
            proposal: Some(ProposedPlan { resizes: vec![2], ..ProposedPlan::default() }),
            committed_resizes: vec![CommittedResizes { generation: 4, resizes: vec![1], ..Default::default() }],
            ..JobStatus::default()
        };
        let none = JobStatus::default();
        let cancelled = Some((ResizePhase::Cancelled, WITHDRAWN));
        let refused = Some((ResizePhase::Refused, NOT_SUBMITTED));
        // status of the job, number and phase of the request, it is withdrawn, seconds since it was made -> its end,
        // when it is looked at again
        let table = [
            (&none, None, ResizePhase::Pending, false, 10_000, None, None),
            (&none, None, ResizePhase::Pending, true, 1, cancelled, None),
            (&failed, None, ResizePhase::Pending, false, 1, None, Some(600)),
            (&failed, None, ResizePhase::Pending, false, 600, refused, None),
            (&failed, None, ResizePhase::Pending, true, 1, cancelled, None),
            (&failed, None, ResizePhase::Cancelled, true, 600, None, None),
            (&lost, Some(1), ResizePhase::Planned, true, 1, None, None),
            (&lost, Some(2), ResizePhase::Planned, true, 1, None, None),
            (&lost, Some(3), ResizePhase::Pending, true, 1, cancelled, None),
            (&lost, Some(3), ResizePhase::Pending, false, 10_000, None, None),
            (&lost, Some(3), ResizePhase::Written, true, 1, None, None),
        ];
        for (status, number, phase, is_withdrawn, seconds, expected, again) in table {
            let mut request = Resize::new("r", Default::default());
            request.metadata.creation_timestamp = Some(Time(at(0)));
            let annotations = is_withdrawn.then(|| [(names::ANNOTATION_CANCEL_REQUESTED.to_owned(), "yes".to_owned())]);
            request.metadata.annotations = annotations.map(Into::into);
            request.status = Some(ResizeStatus { phase: Some(phase), number, ..ResizeStatus::default() });
            let found = without_generation(status, &[Arc::new(request)], at(seconds));
            let said = found.to_tell.get("r").map(|told| &told.status);
            let said = said.map(|said| (said.phase.unwrap(), said.reason.as_deref().unwrap()));
            let case = format!("{:?} {number:?} {phase:?} {is_withdrawn} {seconds}", status.phase);
            assert_eq!((said, found.lacks_regions_until), (expected, again.map(at)), "{case}");
            assert!(found.to_tell.values().all(|told| told.status.finished_at == Some(Time(at(seconds)))), "{case}");
        }
    }
}
