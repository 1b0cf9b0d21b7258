//! The errors for requests that ended without their widths (rule elasticity-12): what the job controller says of a
//! request, as a status that a program can act on.

use super::errors;
use streams_api::{JobStatus, Resize, ResizePhase, SupersededBy};
use streams_kubernetes::Key;
use tonic::Status;

/// Most regions of a job that an error names. The text of an error is cut anyway.
const NAMED: usize = 100;

/// Why the request ended. `known` are the names of the regions of its job; none, if the job is not there.
pub(super) fn why(job: &Key, request: &Resize, known: &[&str]) -> Status {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let status = request.status.clone().unwrap_or_default();
    let reason = status.reason.as_deref().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    // What is there again was missed then.
    let is_gone = |region: &str| !known.is_empty() && !known.contains(&region);
    let gone = || request.spec.regions.iter().find(|wanted| is_gone(&wanted.name));
    match (request.phase(), reason) {
        (ResizePhase::Cancelled, _) => errors::aborted("CANCELLED", name, message, &[]),
        (ResizePhase::Refused, "WidthMismatch") => errors::mismatch("WIDTH_MISMATCH", name, message),
        (ResizePhase::Refused, "GenerationMismatch") => errors::mismatch("GENERATION_MISMATCH", name, message),
        (ResizePhase::Refused, "TooManyRequests") => errors::no_room(name, message),
        (ResizePhase::Refused, "RegionNotFound") => match gone() {
            Some(gone) => not_found(job, known, &gone.name, name),
            None => errors::region_missed(&job.namespace, &job.name, name, message),
        },
        (ResizePhase::Superseded, _) => {
            let by = status.superseded_by.clone().unwrap_or_default();
            let is_known = status.superseded_by.is_some();
            match by.width {
                None if is_known && is_gone(&by.region) => not_found(job, known, &by.region, name),
                None if is_known => errors::region_missed(&job.namespace, &job.name, name, message),
                _ => errors::aborted("SUPERSEDED", name, message, &by_whom(reason, by)),
            }
        }
        _ => {
            let metadata =
                [("cause", Some(reason)), ("stage", status.stage.as_deref()), ("code", status.code.as_deref())];
            errors::rejected(name, message, &metadata)
        }
    }
}

/// The names of the regions of a job, as its status has them: the object of one may be missing for a moment.
pub(super) fn known_regions(job: Option<&JobStatus>) -> Vec<&str> {
    let applied = job.into_iter().flat_map(|status| &status.applied_widths);
    applied.map(|applied| applied.region.as_str()).collect()
}

/// The job has no region of this name, but these, as a request wants; empty: there is no object of it.
pub(super) fn not_found(job: &Key, known: &[&str], name: &str, request: &str) -> Status {
    let mut known: Vec<&str> = known.to_vec();
    if known.len() > NAMED {
        // The first ones. The others need no order.
        known.select_nth_unstable(NAMED);
        known.truncate(NAMED);
    }
    known.sort_unstable();
    known.dedup();
    errors::region_not_found(&job.namespace, &job.name, name, &known, request)
}

/// Who asked for something else, as far as the request says it: one that ended under an older frontend does not.
fn by_whom(reason: &str, by: SupersededBy) -> Vec<(&'static str, String)> {
    let known = [
        ("region", Some(by.region).filter(|region| !region.is_empty())),
        ("width", by.width.map(|width| width.to_string())),
        ("by", by.request.or(by.manager)),
    ];
    let known = known.into_iter().filter_map(|(key, value)| Some((key, value?)));
    [("cause", reason.to_owned())].into_iter().chain(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use streams_api::{DesiredWidth, ResizeSpec, ResizeStatus};
    use tonic::Code;
    use tonic_types::StatusExt as _;

    fn request(phase: ResizePhase, reason: &str) -> Resize {
        let regions = vec![DesiredWidth { name: "R".into(), width: 5, expected_width: None }];
        let mut request = Resize::new("r", ResizeSpec { job_name: "flow".into(), regions, ..ResizeSpec::default() });
        request.status = Some(ResizeStatus {
            phase: Some(phase),
            number: Some(3),
            reason: Some(reason.to_owned()),
            message: Some("because".to_owned()),
            ..ResizeStatus::default()
        });
        request
    }

    fn superseded(reason: &str, width: Option<u32>, request: Option<&str>, manager: Option<&str>) -> Resize {
        let mut superseded = self::request(ResizePhase::Superseded, reason);
        let (request, manager) = (request.map(str::to_owned), manager.map(str::to_owned));
        let by = SupersededBy { region: "R".to_owned(), width, request, manager };
        superseded.status.as_mut().unwrap().superseded_by = Some(by);
        superseded
    }

    #[test]
    fn each_end_is_an_error_that_says_who_and_why() {
        use ResizePhase::{Cancelled, Refused, Superseded};
        let table = [
            (request(Refused, "WidthMismatch"), Code::FailedPrecondition, "WIDTH_MISMATCH", vec![("request", "r")]),
            (
                request(Refused, "GenerationMismatch"),
                Code::FailedPrecondition,
                "GENERATION_MISMATCH",
                vec![("request", "r")],
            ),
            (
                request(Refused, "OutOfBounds"),
                Code::FailedPrecondition,
                "REJECTED",
                vec![("request", "r"), ("cause", "OutOfBounds")],
            ),
            (request(Refused, "TooManyRequests"), Code::ResourceExhausted, "TOO_MANY_REQUESTS", vec![("request", "r")]),
            (request(Refused, "RegionNotFound"), Code::NotFound, "REGION_NOT_FOUND", vec![("request", "r")]),
            (request(Cancelled, "Withdrawn"), Code::Aborted, "CANCELLED", vec![("request", "r")]),
            (
                superseded("NewerRequest", Some(9), Some("newer"), None),
                Code::Aborted,
                "SUPERSEDED",
                vec![("request", "r"), ("cause", "NewerRequest"), ("region", "R"), ("width", "9"), ("by", "newer")],
            ),
            (
                superseded("RegionEdited", Some(8), None, Some("kubectl-edit")),
                Code::Aborted,
                "SUPERSEDED",
                vec![
                    ("request", "r"),
                    ("cause", "RegionEdited"),
                    ("region", "R"),
                    ("width", "8"),
                    ("by", "kubectl-edit"),
                ],
            ),
            // An older frontend has ended it.
            (
                request(Superseded, "NewerRequest"),
                Code::Aborted,
                "SUPERSEDED",
                vec![("request", "r"), ("cause", "NewerRequest")],
            ),
            (superseded("RegionEdited", None, None, None), Code::NotFound, "REGION_NOT_FOUND", vec![("request", "r")]),
        ];
        let job = Key::new("n", "flow");
        for (request, code, expected, metadata) in table {
            let status = why(&job, &request, &[]);
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((status.code(), info.reason.as_str()), (code, expected), "{request:?}");
            let told: Vec<_> = info.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(BTreeMap::from_iter(told), BTreeMap::from_iter(metadata), "{request:?}");
            assert_eq!(details.retry_info().is_some(), code == Code::ResourceExhausted, "{request:?}");
            // Nobody else knows why.
            let is_said = status.message().contains("because") || expected == "REGION_NOT_FOUND";
            assert!(is_said, "{status:?}");
        }
    }

    /// What is said of a region that is missing names those that there are, and not the region itself.
    #[test]
    fn a_region_that_is_there_again_was_missed() {
        let missed = request(ResizePhase::Refused, "RegionNotFound");
        let deleted = superseded("RegionEdited", None, None, None);
        // regions of the job -> the message
        let table: [(&[&str], &str); 3] =
            [(&["R", "S"], "because"), (&["S"], "job flow has no parallel region R; it has: S"), (&[], "because")];
        for request in [missed, deleted] {
            for (known, expected) in table {
                let status = why(&Key::new("n", "flow"), &request, known);
                assert_eq!((status.code(), status.message()), (Code::NotFound, expected), "{known:?} {request:?}");
            }
        }
    }
}
