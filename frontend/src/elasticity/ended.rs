//! The errors for requests that ended without their widths (rule elasticity-12): what the job controller says of a
//! request, as a status that a program can act on.

use super::errors;
use std::sync::Arc;
use std::time::Duration;
use streams_api::resize::{RESIZES_KEPT, RESIZES_MAX};
use streams_api::{ParallelRegion, Resize, ResizePhase, ResizeStatus};
use streams_kubernetes::Key;
use tonic::Status;

/// Why the request ended. `regions` and `others` are the regions and the requests of its job.
pub(super) fn why(job: &Key, request: &Resize, regions: &[Arc<ParallelRegion>], others: &[Arc<Resize>]) -> Status {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let status = request.status.clone().unwrap_or_default();
    let reason = status.reason.as_deref().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    let gone = request.spec.regions.iter().find(|wanted| regions.iter().all(|region| region.spec.name != wanted.name));
    match (request.phase(), reason) {
        (ResizePhase::Cancelled, _) => errors::aborted("CANCELLED", name, message, &[]),
        (ResizePhase::Refused, "WidthMismatch") => errors::mismatch("WIDTH_MISMATCH", name, message),
        (ResizePhase::Refused, "GenerationMismatch") => errors::mismatch("GENERATION_MISMATCH", name, message),
        (ResizePhase::Refused, "TooManyRequests") => errors::too_many_requests(&job.name, RESIZES_MAX, RESIZES_KEPT),
        (ResizePhase::Refused, "RegionNotFound") => not_found(job, regions, gone.map_or("", |gone| &gone.name)),
        (ResizePhase::Superseded, _) if gone.is_some() => not_found(job, regions, gone.map_or("", |gone| &gone.name)),
        (ResizePhase::Superseded, _) => {
            errors::aborted("SUPERSEDED", name, message, &by_whom(request, &status, regions, others))
        }
        _ => {
            let metadata =
                [("cause", Some(reason)), ("stage", status.stage.as_deref()), ("code", status.code.as_deref())];
            errors::rejected(name, message, &metadata)
        }
    }
}

/// The job has no region of this name.
pub(super) fn not_found(job: &Key, regions: &[Arc<ParallelRegion>], name: &str) -> Status {
    let mut known: Vec<&str> = regions.iter().map(|region| region.spec.name.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    errors::region_not_found(&job.namespace, &job.name, name, &known)
}

/// Who asked for something else, as far as is seen here.
fn by_whom(
    request: &Resize,
    status: &ResizeStatus,
    regions: &[Arc<ParallelRegion>],
    others: &[Arc<Resize>],
) -> Vec<(&'static str, String)> {
    let mut known = vec![("cause", status.reason.clone().unwrap_or_default())];
    let mut in_region = |name: &str, width: u32| {
        known.extend([("region", name.to_owned()), ("width", width.to_string())]);
    };
    let edited = status.regions.iter().find_map(|admitted| {
        let region = regions.iter().find(|region| region.spec.name == admitted.name)?;
        (region.edited() > admitted.edited).then_some(region)
    });
    if let Some(region) = edited {
        in_region(&region.spec.name, region.spec.width);
        return known;
    }
    let newer = others.iter().filter_map(|other| {
        let number = other.status.as_ref()?.number.filter(|number| Some(*number) > status.number)?;
        let names = |name: &str| request.spec.regions.iter().any(|wanted| wanted.name == name);
        let wanted = other.spec.regions.iter().find(|wanted| names(&wanted.name))?;
        (other.phase() <= ResizePhase::RolledOut).then_some((number, other, wanted))
    });
    if let Some((_, other, wanted)) = newer.max_by_key(|(number, ..)| *number) {
        in_region(&wanted.name, wanted.width);
        known.push(("by", other.metadata.name.clone().unwrap_or_default()));
    }
    known
}

/// When somebody may come back whose job has as many requests as are kept: when the first of them goes.
pub(super) fn room_after(requests: &[Arc<Resize>], now: k8s_openapi::jiff::Timestamp) -> Duration {
    let ends = requests.iter().filter_map(|request| request.status.as_ref()?.finished_at.as_ref().map(|at| at.0));
    let since = ends.min().map(|first| Duration::try_from(now.duration_since(first)).unwrap_or_default());
    RESIZES_KEPT.saturating_sub(since.unwrap_or_default()).max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{AdmittedRegion, DesiredWidth, ParallelRegionSpec, ResizeSpec};
    use tonic::Code;
    use tonic_types::StatusExt as _;

    fn request(name: &str, number: u64, width: u32, phase: ResizePhase, reason: &str) -> Resize {
        let regions = vec![DesiredWidth { name: "R".into(), width, expected_width: None }];
        let mut request = Resize::new(name, ResizeSpec { job_name: "flow".into(), regions, ..ResizeSpec::default() });
        request.status = Some(ResizeStatus {
            phase: Some(phase),
            number: Some(number),
            regions: vec![AdmittedRegion { name: "R".into(), uid: "u".into(), edited: 4 }],
            reason: Some(reason.to_owned()),
            message: Some("because".to_owned()),
            ..ResizeStatus::default()
        });
        request
    }

    fn region(width: u32, generation: i64) -> Arc<ParallelRegion> {
        let spec = ParallelRegionSpec { job_name: "flow".into(), index: 0, name: "R".into(), width };
        let mut region = ParallelRegion::new("flow-0", spec);
        region.metadata.generation = Some(generation);
        Arc::new(region)
    }

    #[test]
    fn each_end_is_an_error_that_says_who_and_why() {
        use ResizePhase::{Cancelled, Refused, Superseded, Written};
        let newer = Arc::new(request("newer", 7, 9, Written, ""));
        let table = [
            (Refused, "WidthMismatch", Code::FailedPrecondition, "WIDTH_MISMATCH", vec![]),
            (Refused, "GenerationMismatch", Code::FailedPrecondition, "GENERATION_MISMATCH", vec![]),
            (Refused, "OutOfBounds", Code::FailedPrecondition, "REJECTED", vec![("cause", "OutOfBounds")]),
            (Refused, "TooManyRequests", Code::ResourceExhausted, "TOO_MANY_REQUESTS", vec![]),
            (Cancelled, "Withdrawn", Code::Aborted, "CANCELLED", vec![("request", "r")]),
            (
                Superseded,
                "NewerRequest",
                Code::Aborted,
                "SUPERSEDED",
                vec![("cause", "NewerRequest"), ("by", "newer"), ("region", "R"), ("width", "9")],
            ),
        ];
        let job = Key::new("n", "flow");
        for (phase, reason, code, expected, metadata) in table {
            let others = [Arc::clone(&newer)];
            let status = why(&job, &request("r", 3, 5, phase, reason), &[region(2, 4)], &others);
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((status.code(), info.reason.as_str()), (code, expected), "{reason}");
            for (key, value) in metadata {
                assert_eq!(info.metadata.get(key).map(String::as_str), Some(value), "{reason}: {key}");
            }
            assert_eq!(details.retry_info().is_some(), code == Code::ResourceExhausted, "{reason}");
        }
        let edited = why(&job, &request("r", 3, 5, Superseded, "RegionEdited"), &[region(8, 5)], &[]);
        assert_eq!(edited.get_error_details().error_info().unwrap().metadata["width"], "8");
        let gone = why(&job, &request("r", 3, 5, Superseded, "RegionEdited"), &[], &[]);
        assert_eq!(gone.code(), Code::NotFound);
    }

    #[test]
    fn a_caller_comes_back_when_the_first_request_goes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ended = |second| {
            let mut request = request("r", 1, 2, ResizePhase::RolledOut, "");
            request.status.as_mut().unwrap().finished_at = Some(Time(at(second)));
            Arc::new(request)
        };
        let open = Arc::new(request("o", 2, 2, ResizePhase::Pending, ""));
        assert_eq!(room_after(&[ended(400), ended(300), Arc::clone(&open)], at(500)), Duration::from_secs(400));
        assert_eq!(room_after(&[ended(1)], at(5_000)), Duration::from_secs(1));
        assert_eq!(room_after(&[open], at(5_000)), RESIZES_KEPT);
    }
}
