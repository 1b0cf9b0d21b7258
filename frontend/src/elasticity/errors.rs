//! Statuses of the elasticity API with `google.rpc` details (rule elasticity-13).

use std::collections::HashMap;
use streams_proto::elasticity::ERROR_DOMAIN;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

fn details(reason: &str, metadata: &[(&str, &str)]) -> ErrorDetails {
    let metadata: HashMap<_, _> = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata)
}

/// The request itself is wrong.
pub fn invalid_request(field: &str, message: &str) -> Status {
    invalid("INVALID_REQUEST", field, message)
}

/// A width that no region can have.
pub fn invalid_width(field: &str, message: &str) -> Status {
    invalid("INVALID_WIDTH", field, message)
}

fn invalid(reason: &str, field: &str, message: &str) -> Status {
    let mut details = details(reason, &[]);
    details.add_bad_request_violation(field, message);
    Status::with_error_details(Code::InvalidArgument, format!("{field}: {message}"), details)
}

/// No such job.
pub fn job_not_found(namespace: &str, job: &str) -> Status {
    let message = format!("there is no job {job} in namespace {namespace}");
    let mut details = details("JOB_NOT_FOUND", &[]);
    details.set_resource_info("streams.ibm.com/v1, Kind=Job", format!("{namespace}/{job}"), "", message.as_str());
    Status::with_error_details(Code::NotFound, message, details)
}

/// No such region in the job; `known` are those there are.
pub fn region_not_found(namespace: &str, job: &str, region: &str, known: &[&str]) -> Status {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let message = format!("job {job} has no parallel region {region}; it has: {known}");
    let mut details = details("REGION_NOT_FOUND", &[]);
    details.set_resource_info(
        "streams.ibm.com/v1, Kind=ParallelRegion",
        format!("{namespace}/{job}/{region}"),
        "",
        message.as_str(),
    );
    Status::with_error_details(Code::NotFound, message, details)
}

/// The precondition on the desired width does not hold.
pub fn width_mismatch(region: &str, expected: u32, actual: u32) -> Status {
    let message = format!("the desired width of {region} is {actual}, not {expected}");
    let details = details("WIDTH_MISMATCH", &[("region", region), ("width", &actual.to_string())]);
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

/// The job has no running generation yet.
pub fn not_submitted(job: &str, why: &str) -> Status {
    let message = format!("job {job} has not been submitted yet: {why}");
    Status::with_error_details(Code::FailedPrecondition, message, details("NOT_SUBMITTED", &[]))
}

/// The compiler refused the widths.
pub fn rejected(message: &str, stage: Option<&str>, code: Option<&str>) -> Status {
    let metadata: Vec<_> =
        [("stage", stage), ("code", code)].into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    Status::with_error_details(Code::FailedPrecondition, message, details("REJECTED", &metadata))
}

/// Somebody else changed the region before the width was applied.
pub fn superseded(region: &str, wanted: u32, now: u32) -> Status {
    let message = format!("width {wanted} of {region} was superseded by width {now} before it was applied");
    let details = details("SUPERSEDED", &[("region", region), ("width", &now.to_string())]);
    Status::with_error_details(Code::Aborted, message, details)
}
