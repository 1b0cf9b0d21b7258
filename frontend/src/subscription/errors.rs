//! Statuses of the subscription API with `google.rpc` details (rule import-9).

use crate::broker::facts;
use crate::grpc;
use crate::grpc::places::Full;
use crate::grpc::status::{LATER, bounded, status};
use crate::run_time::Problem;
use std::time::Duration;
use streams_kubernetes::Error;
use streams_kubernetes::error::with_causes;
use streams_proto::subscription::ERROR_DOMAIN;
use tonic::{Code, Status};
use tonic_types::ErrorDetails;

fn details(reason: &str, metadata: &[(&str, &str)]) -> ErrorDetails {
    grpc::status::details(ERROR_DOMAIN, reason, metadata)
}

fn invalid(reason: &str, field: &str, message: &str, metadata: &[(&str, &str)]) -> Status {
    let mut details = details(reason, metadata);
    details.add_bad_request_violation(bounded(field), bounded(message));
    status(Code::InvalidArgument, &format!("{field}: {message}"), details)
}

fn not_now(reason: &str, code: Code, message: &str, again: Duration) -> Status {
    let mut details = details(reason, &[]);
    details.set_retry_info(Some(again));
    status(code, message, details)
}

/// The request itself is wrong.
pub(super) fn invalid_request(field: &str, message: &str) -> Status {
    invalid("INVALID_REQUEST", field, message, &[])
}

/// A token of a page that cannot be read, and why.
pub(super) fn bad_token(why: &str) -> Status {
    invalid_request("page_token", why)
}

/// What a change at run time is refused for; `field` of the request is at fault.
pub(super) fn refused(problem: &Problem, field: &str) -> Status {
    let message = problem.to_string();
    let failed =
        |reason, metadata: &[(&str, &str)]| status(Code::FailedPrecondition, &message, details(reason, metadata));
    let expression = |error: &spl_expression::Error| {
        invalid("INVALID_EXPRESSION", field, &error.to_string(), &[("offset", &error.offset.to_string())])
    };
    match problem {
        Problem::ByName => failed("EXPORTED_BY_NAME", &[]),
        Problem::Exists(name) => failed("PROPERTY_EXISTS", &[("property", name)]),
        Problem::Missing(name) => failed("PROPERTY_NOT_FOUND", &[("property", name)]),
        Problem::Fact(facts::Problem::Property { name, .. } | facts::Problem::Twice(name)) => {
            invalid("INVALID_PROPERTY", field, &message, &[("property", name)])
        }
        Problem::Fact(facts::Problem::Subscription(error) | facts::Problem::Filter(error)) => expression(error),
        Problem::FilterForbidden(export) => failed("FILTER_FORBIDDEN", &[("export", export)]),
        Problem::FilterUndecided => failed("FILTER_UNDECIDED", &[]),
    }
}

/// The object is another than the caller has seen.
pub(super) fn etag_mismatch(name: &str, etag: &str) -> Status {
    let message = format!("{name} is another than expected: its etag is {etag}; nothing was written");
    status(Code::FailedPrecondition, &message, details("ETAG_MISMATCH", &[("etag", etag)]))
}

/// No such job.
pub(super) fn job_not_found(namespace: &str, job: &str) -> Status {
    not_found("JOB_NOT_FOUND", "Job", namespace, job, &format!("there is no job {job} in namespace {namespace}"))
}

/// No such export.
pub(super) fn export_not_found(namespace: &str, name: &str) -> Status {
    let message = format!("there is no export {name} in namespace {namespace}");
    not_found("EXPORT_NOT_FOUND", "Export", namespace, name, &message)
}

/// No such import.
pub(super) fn import_not_found(namespace: &str, name: &str) -> Status {
    let message = format!("there is no import {name} in namespace {namespace}");
    not_found("IMPORT_NOT_FOUND", "Import", namespace, name, &message)
}

fn not_found(reason: &str, kind: &str, namespace: &str, name: &str, message: &str) -> Status {
    let mut details = details(reason, &[]);
    let named = bounded(&format!("{namespace}/{name}"));
    details.set_resource_info(format!("streams.ibm.com/v1, Kind={kind}"), named, "", bounded(message));
    status(Code::NotFound, message, details)
}

/// As many calls need the API server as may.
pub(super) fn too_many_calls(full: &Full) -> Status {
    let message = format!("{} calls {} go on already; nothing was written", full.most, full.of);
    not_now("TOO_MANY_CALLS", Code::ResourceExhausted, &message, LATER)
}

/// What this frontend sees is too old.
pub(super) fn not_current(why: &str) -> Status {
    let message = format!("this frontend does not see the cluster as it is: {why}; nothing was written");
    not_now("NOT_CURRENT", Code::Unavailable, &message, LATER)
}

/// This frontend ends; another one knows the same.
pub(super) fn shutting_down() -> Status {
    let message = "this frontend is shutting down; whether the change was written is not known";
    not_now("SHUTTING_DOWN", Code::Unavailable, message, Duration::ZERO)
}

/// The time of the caller, or the longest that a change may take, is over.
pub(super) fn still_waiting(what: &str) -> Status {
    let message = format!("still waiting for {what}; whether it has happened, or will, is not known");
    status(Code::DeadlineExceeded, &message, details("STILL_WAITING", &[("waiting_for", what)]))
}

/// The cluster has custom resource definitions of an earlier version.
pub(super) fn definitions_outdated(message: &str) -> Status {
    status(Code::FailedPrecondition, message, details("DEFINITIONS_OUTDATED", &[]))
}

/// What an answer of the API server is to the caller; `field` of the request has what it may have refused.
pub(super) fn from_kubernetes(error: &Error, field: &str) -> Status {
    match error {
        Error::Refused { message, .. } => invalid_request(field, message),
        Error::Undeclared { .. } => definitions_outdated(&error.to_string()),
        _ if error.is_forbidden() => status(Code::PermissionDenied, &with_causes(error), details("NOT_PERMITTED", &[])),
        _ => {
            let message = format!("the Kubernetes API did not take the call: {}", with_causes(error));
            not_now("NOT_TAKEN", Code::Unavailable, &message, LATER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::StatusExt as _;

    #[test]
    fn every_status_fits_into_eight_kibibytes_of_trailers() {
        let long = "\u{e9}".repeat(4000);
        let error = || spl_expression::Error { message: long.clone(), offset: 7 };
        let problems = [
            Problem::ByName,
            Problem::Exists(long.clone()),
            Problem::Missing(long.clone()),
            facts::Problem::Twice(long.clone()).into(),
            facts::Problem::Filter(error()).into(),
            facts::Problem::Subscription(error()).into(),
            Problem::FilterForbidden(long.clone()),
            Problem::FilterUndecided,
        ];
        let refused = problems.iter().map(|problem| refused(problem, "edit"));
        let others = [
            invalid_request("edit", &long),
            etag_mismatch(&long[..200], "e"),
            export_not_found(&long[..200], &long),
            not_current(&long),
            still_waiting(&long),
            from_kubernetes(&Error::NamespaceTerminating { message: long.clone() }, "edit"),
        ];
        for status in refused.chain(others) {
            let size = grpc::status::size_in_trailers(&status);
            assert!(size <= 7800, "{size}: {}", &status.message()[..40]);
            assert_eq!(status.get_error_details().error_info().unwrap().domain, ERROR_DOMAIN);
        }
    }
}
