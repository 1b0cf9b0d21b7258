//! Statuses of the elasticity API with `google.rpc` details (rule elasticity-13).

use std::collections::HashMap;
use std::time::Duration;
use streams_proto::elasticity::ERROR_DOMAIN;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Longest text of a status, in bytes. It is in the trailers up to three times, once as percent-encoded text, and many
/// clients take no more than 8 KiB of them.
const LONGEST: usize = 1024;
/// When a caller may come back to a server that has no room, or to another one.
const LATER: Duration = Duration::from_secs(1);

fn details(reason: &str, metadata: &[(&str, &str)]) -> ErrorDetails {
    let metadata: HashMap<_, _> = metadata.iter().map(|(k, v)| ((*k).to_owned(), bounded(v))).collect();
    ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata)
}

/// The beginning of a text that is too long for trailers.
fn bounded(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    format!("{} ...", &text[..text.floor_char_boundary(LONGEST)])
}

/// A status whose texts fit into trailers.
fn status(code: Code, message: &str, details: ErrorDetails) -> Status {
    Status::with_error_details(code, bounded(message), details)
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
    details.add_bad_request_violation(bounded(field), bounded(message));
    status(Code::InvalidArgument, &format!("{field}: {message}"), details)
}

/// No such job.
pub fn job_not_found(namespace: &str, job: &str) -> Status {
    let message = format!("there is no job {job} in namespace {namespace}");
    let mut details = details("JOB_NOT_FOUND", &[]);
    details.set_resource_info("streams.ibm.com/v1, Kind=Job", format!("{namespace}/{job}"), "", bounded(&message));
    status(Code::NotFound, &message, details)
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
        bounded(&message),
    );
    status(Code::NotFound, &message, details)
}

/// The precondition on the desired width does not hold.
pub fn width_mismatch(region: &str, expected: u32, actual: u32) -> Status {
    let message = format!("the desired width of {region} is {actual}, not {expected}");
    let details = details("WIDTH_MISMATCH", &[("region", region), ("width", &actual.to_string())]);
    status(Code::FailedPrecondition, &message, details)
}

/// The job has no running generation yet.
pub fn not_submitted(job: &str, why: &str) -> Status {
    let message = format!("job {job} has not been submitted yet: {why}");
    status(Code::FailedPrecondition, &message, details("NOT_SUBMITTED", &[]))
}

/// The compiler refused the widths.
pub fn rejected(message: &str, stage: Option<&str>, code: Option<&str>) -> Status {
    let metadata: Vec<_> =
        [("stage", stage), ("code", code)].into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    status(Code::FailedPrecondition, message, details("REJECTED", &metadata))
}

/// Somebody else changed the region before the width was applied.
pub fn superseded(region: &str, wanted: u32, now: u32) -> Status {
    let message = format!("width {wanted} of {region} was superseded by width {now} before it was applied");
    let details = details("SUPERSEDED", &[("region", region), ("width", &now.to_string())]);
    status(Code::Aborted, &message, details)
}

/// The time of the caller, or the longest that the API waits, is over.
pub fn still_waiting(what: &str) -> Status {
    let message = format!("still waiting for {what}; the widths stay desired");
    status(Code::DeadlineExceeded, &message, details("STILL_WAITING", &[("waiting_for", what)]))
}

/// This frontend ends; another one knows the same.
pub fn shutting_down(what: &str) -> Status {
    let mut details = details("SHUTTING_DOWN", &[("waiting_for", what)]);
    details.set_retry_info(Some(Duration::ZERO));
    let message = format!("this frontend is shutting down while it waits for {what}; the widths stay desired");
    status(Code::Unavailable, &message, details)
}

/// As many requests wait as may.
pub fn too_many_waiting(most: usize) -> Status {
    let mut details = details("TOO_MANY_WAITING", &[]);
    details.set_retry_info(Some(LATER));
    let message = format!("{most} requests wait already; nothing was written");
    status(Code::ResourceExhausted, &message, details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;

    #[test]
    fn every_status_fits_into_eight_kibibytes_of_trailers() {
        // Two bytes each: no text is cut within a character.
        let long = "\u{e9}".repeat(4000);
        let known = vec![long.as_str(); 100];
        let statuses = [
            invalid_request(&long, &long),
            invalid_width(&long, &long),
            job_not_found("n", &long[..200]),
            region_not_found("n", "j", &long[..200], &known),
            rejected(&long, Some("topology"), Some("CDISR1164E")),
            not_submitted("j", &long),
            still_waiting(&long),
            shutting_down(&long),
        ];
        for status in statuses {
            let encoded =
                |text: &str| text.bytes().map(|b| if b.is_ascii_alphanumeric() { 1 } else { 3 }).sum::<usize>();
            let details = base64::engine::general_purpose::STANDARD_NO_PAD.encode(status.details()).len();
            let size = encoded(status.message()) + details;
            assert!(size <= 7800, "{size}: {}", &status.message()[..40]);
        }
    }
}
