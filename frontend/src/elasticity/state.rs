//! A request to resize as the API shows it (rules elasticity-14 and elasticity-17). Pure.

use super::{ended, outcome, times};
use k8s_openapi::jiff::Timestamp;
use streams_api::{Job, JobStatus, Resize, ResizePhase as Recorded, ResizePolicy};
use streams_kubernetes::Key;
use streams_proto::elasticity::v1::resize_request::{DesiredWidth, Policy};
use streams_proto::elasticity::v1::{ResizePhase, ResizeState};
use tonic_types::StatusExt as _;

/// How far a request has come: what it says itself, and what its job says before.
pub(super) fn phase(request: &Resize, job: Option<&Job>) -> ResizePhase {
    let none = JobStatus::default();
    let of_job = job.and_then(|job| job.status.as_ref()).unwrap_or(&none);
    match (outcome::committed(request, of_job), request.phase()) {
        // What is seen of the job may be behind what is seen of the request.
        (Some((generation, _)), recorded) => {
            let is_current = of_job.generation.is_some_and(|committed| committed >= generation);
            let is_rolled_out = is_current && outcome::is_rolled_out(request, of_job);
            if is_rolled_out || recorded == Recorded::RolledOut {
                ResizePhase::RolledOut
            } else {
                ResizePhase::Committed
            }
        }
        (None, Recorded::Refused) => ResizePhase::Refused,
        (None, Recorded::Superseded) => ResizePhase::Superseded,
        (None, Recorded::Cancelled) => ResizePhase::Cancelled,
        (None, _) if outcome::planned(request, of_job).is_some() => ResizePhase::Planned,
        (None, _) => ResizePhase::Pending,
    }
}

/// Whether nothing becomes of a request any more.
pub(super) fn is_end(phase: ResizePhase) -> bool {
    matches!(phase, ResizePhase::RolledOut | ResizePhase::Refused | ResizePhase::Superseded | ResizePhase::Cancelled)
}

/// Whether a request has ended without its widths.
fn is_without_widths(request: &Resize) -> bool {
    matches!(request.phase(), Recorded::Refused | Recorded::Superseded | Recorded::Cancelled)
}

/// When a request has ended: as it says itself, and before it does, when its job had rolled it out, which ends it.
fn finished_at(request: &Resize, of_job: &JobStatus, phase: ResizePhase) -> Option<Timestamp> {
    let status = request.status.as_ref();
    let said = status.and_then(|status| status.finished_at.as_ref()).map(|at| at.0);
    said.or_else(|| {
        let rolled_out = outcome::rollout(of_job).filter(|_| phase == ResizePhase::RolledOut)?;
        let rolled_out = rolled_out.finished_at.as_ref()?.0;
        // Widths that were in force before may have been rolled out before the request was made.
        let written = status.and_then(|status| status.written_at.as_ref()).map(|at| at.0);
        let created = request.metadata.creation_timestamp.as_ref().map(|at| at.0);
        Some(written.max(created).map_or(rolled_out, |since| since.max(rolled_out)))
    })
}

/// A request as the API shows it, with what is seen of its job.
pub(super) fn state(request: &Resize, job: Option<&Job>) -> ResizeState {
    let meta = &request.metadata;
    let namespace = meta.namespace.clone().unwrap_or_default();
    let status = request.status.clone().unwrap_or_default();
    let none = JobStatus::default();
    let of_job = job.and_then(|job| job.status.as_ref()).unwrap_or(&none);
    let phase = phase(request, job);
    let committed = outcome::committed(request, of_job);
    let changes = match committed {
        Some((_, changes)) => changes,
        None => outcome::planned_changes(request, of_job),
    };
    let regions = request.spec.regions.iter().map(|wanted| DesiredWidth {
        region: wanted.name.clone(),
        width: wanted.width,
        expected_width: wanted.expected_width,
    });
    let mut state = ResizeState {
        job: request.spec.job_name.clone(),
        request: meta.name.clone().unwrap_or_default(),
        regions: regions.collect(),
        policy: match request.spec.policy {
            ResizePolicy::Sticky => Policy::Sticky.into(),
            ResizePolicy::Rebalance => Policy::Rebalance.into(),
        },
        phase: phase.into(),
        generation: committed.map(|(generation, _)| generation).or_else(|| outcome::planned(request, of_job)),
        changes: changes.map(outcome::of_pes),
        message: status.message.clone().unwrap_or_default(),
        created_at: meta.creation_timestamp.as_ref().map(|at| times::timestamp(at.0)),
        finished_at: finished_at(request, of_job, phase).map(times::timestamp),
        ..ResizeState::default()
    };
    if committed.is_none() && is_without_widths(request) {
        let why = ended::why(&Key::new(&namespace, &state.job), request, &ended::known_regions(Some(of_job)));
        let details = why.get_error_details();
        state.code = why.code().into();
        state.message = why.message().to_owned();
        if let Some(info) = details.error_info() {
            state.reason.clone_from(&info.reason);
            state.metadata = info.metadata.clone().into_iter().collect();
        }
    }
    state.namespace = namespace;
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
    use streams_api::{
        BundleReference, CommittedResizes, JobSpec, ProposedPlan, ResizeChanges, ResizeSpec, ResizeStatus, Rollout,
    };

    fn request(phase: Recorded, generation: Option<u64>, reason: Option<&str>) -> Resize {
        let wanted = streams_api::DesiredWidth { name: "R".into(), width: 10, expected_width: Some(2) };
        let spec = ResizeSpec { job_name: "flow".into(), regions: vec![wanted], ..ResizeSpec::default() };
        let mut request = Resize::new("flow-1", spec);
        request.metadata.namespace = Some("n".to_owned());
        request.status = Some(ResizeStatus {
            phase: Some(phase),
            number: Some(3),
            generation,
            reason: reason.map(str::to_owned),
            message: reason.map(|_| "because".to_owned()),
            ..ResizeStatus::default()
        });
        request
    }

    fn job(generation: u64, is_rolled_out: bool, committed: &[u64], proposed: &[u64]) -> Job {
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        let finished_at = is_rolled_out.then_some(MicroTime(Timestamp::UNIX_EPOCH));
        let changes = ResizeChanges { added: 8, ..ResizeChanges::default() };
        let mut proposal = ProposedPlan { resizes: proposed.to_vec(), ..ProposedPlan::default() };
        proposal.plan.generation = generation + 1;
        job.status = Some(JobStatus {
            generation: Some(generation),
            rollout: Some(Rollout { generation, finished_at, ..Rollout::default() }),
            committed_resizes: vec![CommittedResizes { generation, resizes: committed.to_vec(), changes }],
            proposal: (!proposed.is_empty()).then_some(proposal),
            ..JobStatus::default()
        });
        job
    }

    #[test]
    fn a_request_is_as_far_as_it_says_or_as_its_job_says() {
        use ResizePhase::{Committed, Pending, Planned, RolledOut};
        let quiet = || job(4, true, &[], &[]);
        // recorded phase and generation, job -> phase, generation, PEs added
        let table = [
            (Recorded::Pending, None, quiet(), Pending, None, None),
            (Recorded::Pending, None, job(4, true, &[], &[3]), Planned, Some(5), None),
            (Recorded::Planned, Some(5), quiet(), Planned, Some(5), None),
            (Recorded::Planned, Some(5), job(5, false, &[3], &[]), Committed, Some(5), Some(8)),
            (Recorded::Pending, None, job(5, true, &[3], &[]), RolledOut, Some(5), Some(8)),
            (Recorded::Written, Some(5), job(7, false, &[], &[]), Committed, Some(5), None),
            (Recorded::Written, Some(5), job(7, true, &[], &[]), RolledOut, Some(5), None),
            // What is seen of the job is behind.
            (Recorded::Written, Some(5), quiet(), Committed, Some(5), None),
            (Recorded::RolledOut, Some(5), job(7, false, &[], &[]), RolledOut, Some(5), None),
            // Somebody has taken it from its job before it said that it is committed.
            (Recorded::Refused, None, job(5, false, &[3], &[]), Committed, Some(5), Some(8)),
        ];
        for (recorded, generation, job, expected, its_generation, added) in table {
            let state = state(&request(recorded, generation, None), Some(&job));
            assert_eq!((state.phase(), state.generation), (expected, its_generation), "{recorded:?} {:?}", job.status);
            assert_eq!(state.changes.map(|changes| changes.added), added, "{recorded:?}");
            assert_eq!((state.namespace.as_str(), state.request.as_str(), state.code), ("n", "flow-1", 0));
            assert_eq!((state.regions[0].width, state.regions[0].expected_width), (10, Some(2)));
        }
    }

    #[test]
    fn a_request_whose_end_is_seen_by_its_job_says_when_it_ended() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        // recorded phase, when it says that its widths were written and that it ended, the job is rolled out (at 20)
        // -> when it ended; it was made at 10
        let table = [
            (Recorded::Pending, None, None, true, Some(20)),
            (Recorded::Written, Some(15), None, true, Some(20)),
            (Recorded::RolledOut, Some(15), Some(21), true, Some(21)),
            (Recorded::Written, Some(15), None, false, None),
            // Its widths were in force and rolled out before.
            (Recorded::Written, Some(25), None, true, Some(25)),
        ];
        for (recorded, written, finished, is_rolled_out, expected) in table {
            let mut request = request(recorded, Some(5), None);
            request.metadata.creation_timestamp = Some(Time(at(10)));
            let status = request.status.as_mut().unwrap();
            status.written_at = written.map(|second| Time(at(second)));
            status.finished_at = finished.map(|second| Time(at(second)));
            let mut job = job(5, is_rolled_out, &[3], &[]);
            let rollout = job.status.as_mut().unwrap().rollout.as_mut().unwrap();
            rollout.finished_at = is_rolled_out.then(|| MicroTime(at(20)));
            let state = state(&request, Some(&job));
            let ended = state.finished_at.map(|at| at.seconds);
            assert_eq!(ended, expected, "{recorded:?} {written:?} {finished:?} {is_rolled_out}");
            assert_eq!(ended.is_some(), is_end(state.phase()), "{recorded:?} {is_rolled_out}");
        }
    }

    #[test]
    fn how_a_request_ended_is_what_a_call_would_have_answered() {
        use tonic::Code::{Aborted, FailedPrecondition};
        let table = [
            (
                Recorded::Refused,
                "OutOfBounds",
                ResizePhase::Refused,
                FailedPrecondition,
                "REJECTED",
                Some("OutOfBounds"),
            ),
            (Recorded::Refused, "WidthMismatch", ResizePhase::Refused, FailedPrecondition, "WIDTH_MISMATCH", None),
            (Recorded::Cancelled, "Withdrawn", ResizePhase::Cancelled, Aborted, "CANCELLED", None),
        ];
        for (recorded, said, phase, code, reason, cause) in table {
            let state = state(&request(recorded, None, Some(said)), None);
            assert_eq!((state.phase(), state.code, state.reason.as_str()), (phase, code.into(), reason), "{said}");
            assert_eq!(state.metadata.get("cause").map(String::as_str), cause, "{said}");
            assert!(is_end(state.phase()) && state.message.contains("because"), "{state:?}");
        }
    }
}
