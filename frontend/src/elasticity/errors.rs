//! Statuses of the elasticity API with `google.rpc` details (rule elasticity-13). Where there is no object of the
//! request, the name of the request is empty; where it is not known whether there is one, it is the name that the
//! object would have.
//!
//! Knows: codes, reasons and details of the contract. Must not know: when there is an error.

use crate::grpc;
use crate::grpc::places::Full;
use crate::grpc::status::{LATER, bounded, status};
use std::time::Duration;
use streams_proto::elasticity::ERROR_DOMAIN;
use tonic::{Code, Status};
use tonic_types::ErrorDetails;

/// When a caller may come back if somebody has to make room.
const A_WHILE: Duration = Duration::from_secs(30);

/// What a call says that has come to nothing.
const NOTHING_WRITTEN: &str = "; nothing was written";

/// The reason of an error, and what else is known.
fn details(reason: &str, metadata: &[(&str, &str)]) -> ErrorDetails {
    grpc::status::details(ERROR_DOMAIN, reason, metadata)
}

/// The request itself is wrong.
pub fn invalid_request(field: &str, message: &str) -> Status {
    invalid("INVALID_REQUEST", field, message)
}

/// A token of a page that cannot be read, and why.
pub(crate) fn bad_token(why: &str) -> Status {
    invalid_request("page_token", why)
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
pub fn job_not_found(namespace: &str, job: &str, request: &str) -> Status {
    job_missing(namespace, job, request, &format!("there is no job {job} in namespace {namespace}"))
}

/// The job is being deleted: to who wants something of it, it is not there any more.
pub fn job_goes(namespace: &str, job: &str, request: &str) -> Status {
    job_missing(namespace, job, request, &format!("job {job} in namespace {namespace} is being deleted"))
}

fn job_missing(namespace: &str, job: &str, request: &str, message: &str) -> Status {
    let mut details = details("JOB_NOT_FOUND", &[("request", request)]);
    details.set_resource_info("streams.ibm.com/v1, Kind=Job", format!("{namespace}/{job}"), "", bounded(message));
    status(Code::NotFound, message, details)
}

/// No such region in the job; `known` are those there are.
pub fn region_not_found(namespace: &str, job: &str, region: &str, known: &[&str], request: &str) -> Status {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let message = format!("job {job} has no parallel region {region}; it has: {known}");
    region_missing(&format!("{namespace}/{job}/{region}"), request, &message)
}

/// A region was not in the job when a request for it was looked at, as `message` says; it may be there by now.
pub fn region_missed(namespace: &str, job: &str, request: &str, message: &str) -> Status {
    region_missing(&format!("{namespace}/{job}"), request, message)
}

/// The job has the region, and its object is not there: it is being made again, or is not seen yet.
pub fn region_not_seen(job: &str, region: &str) -> Status {
    let mut details = details("REGION_NOT_SEEN", &[]);
    details.set_retry_info(Some(LATER));
    let message = format!("the object of parallel region {region} of job {job} is not there now: it is made again");
    status(Code::Unavailable, &message, details)
}

fn region_missing(resource: &str, request: &str, message: &str) -> Status {
    let mut details = details("REGION_NOT_FOUND", &[("request", request)]);
    details.set_resource_info("streams.ibm.com/v1, Kind=ParallelRegion", bounded(resource), "", bounded(message));
    status(Code::NotFound, message, details)
}

/// A precondition of the request does not hold.
pub fn mismatch(reason: &str, request: &str, message: &str) -> Status {
    status(Code::FailedPrecondition, message, details(reason, &[("request", request)]))
}

/// The job has no running generation yet.
pub fn not_submitted(job: &str, why: &str) -> Status {
    let message = format!("job {job} has not been submitted yet: {why}");
    status(Code::FailedPrecondition, &message, details("NOT_SUBMITTED", &[]))
}

/// The widths cannot be: the compiler refused them, or the frontend.
pub fn rejected(request: &str, message: &str, metadata: &[(&str, Option<&str>)]) -> Status {
    let known = metadata.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
    let metadata: Vec<_> = [("request", request)].into_iter().chain(known).collect();
    status(Code::FailedPrecondition, message, details("REJECTED", &metadata))
}

/// Somebody asked for something else of one of the regions before the request was committed, or withdrew it.
pub fn aborted(reason: &str, request: &str, message: &str, metadata: &[(&str, String)]) -> Status {
    let known = metadata.iter().map(|(key, value)| (*key, value.as_str()));
    let metadata: Vec<_> = [("request", request)].into_iter().chain(known).collect();
    status(Code::Aborted, &format!("request {request}: {message}"), details(reason, &metadata))
}

/// Another request of the job has this key.
pub fn key_reused(request: &str) -> Status {
    let message =
        format!("the idempotency key is that of another request of the job, {request}, which wants something else");
    status(Code::AlreadyExists, &message, details("KEY_REUSED", &[("request", request)]))
}

/// No such request, or it is forgotten.
pub fn resize_not_found(namespace: &str, request: &str) -> Status {
    let message =
        format!("there is no request {request} in namespace {namespace}; those that ended are kept for a while");
    let mut details = details("RESIZE_NOT_FOUND", &[]);
    let name = bounded(&format!("{namespace}/{request}"));
    details.set_resource_info("streams.ibm.com/v1, Kind=Resize", name, "", bounded(&message));
    status(Code::NotFound, &message, details)
}

/// A generation has the widths of the request already.
pub fn already_committed(request: &str, generation: u64) -> Status {
    let message = format!("request {request} cannot be withdrawn: generation {generation} has its widths");
    let metadata = [("request", request), ("generation", &generation.to_string())];
    status(Code::FailedPrecondition, &message, details("ALREADY_COMMITTED", &metadata))
}

/// The request ended without its widths, and not because somebody withdrew it.
pub fn already_ended(request: &str, phase: &str, why: &str) -> Status {
    let message = format!("request {request} has ended already: {why}");
    status(Code::FailedPrecondition, &message, details("ALREADY_ENDED", &[("request", request), ("cause", phase)]))
}

/// The job has as many requests as are kept: one after the other goes.
pub fn too_many_requests(job: &str, most: usize) -> Status {
    let mut details = details("TOO_MANY_REQUESTS", &[]);
    details.set_retry_info(Some(A_WHILE));
    let message = format!("job {job} has {most} requests, no more are kept; nothing is resized");
    status(Code::ResourceExhausted, &message, details)
}

/// The request is one too many, or its job has no room for what it names, as `message` says.
pub fn no_room(request: &str, message: &str) -> Status {
    let mut details = details("TOO_MANY_REQUESTS", &[("request", request)]);
    details.set_retry_info(Some(A_WHILE));
    status(Code::ResourceExhausted, &format!("{message}; nothing is resized"), details)
}

/// The caller has as many requests of the job as it may have: others get the rest.
pub fn too_many_requests_by(caller: &str, job: &str, most: usize) -> Status {
    let mut details = details("TOO_MANY_REQUESTS", &[]);
    details.set_retry_info(Some(A_WHILE));
    let message = format!("caller {caller} has {most} requests of job {job}, the others are kept for others");
    status(Code::ResourceExhausted, &format!("{message}; nothing is resized"), details)
}

/// Somebody has deleted the request while it was waited for.
pub fn request_gone(request: &str) -> Status {
    let message = format!("request {request} was deleted; whether its widths come into force is not known");
    status(Code::Aborted, &message, details("CANCELLED", &[("request", request)]))
}

/// What is waited for, with which request.
fn waiting<'a>(request: &'a str, what: &'a str) -> [(&'static str, &'a str); 2] {
    [("request", request), ("waiting_for", what)]
}

/// The time of the caller, or the longest that the API waits, is over.
pub fn still_waiting(request: &str, what: &str) -> Status {
    late(request, what, "; the widths stay desired")
}

/// The same for a call that changes no width.
pub fn still_waiting_to(request: &str, what: &str) -> Status {
    late(request, what, "")
}

/// The same for a call of which nothing was written.
pub fn still_waiting_unwritten(request: &str, what: &str) -> Status {
    late(request, what, NOTHING_WRITTEN)
}

/// The same for a call whose request may be stored.
pub fn still_waiting_unheard(request: &str, what: &str) -> Status {
    late(request, what, "; it may be stored, its widths are desired then")
}

fn late(request: &str, what: &str, besides: &str) -> Status {
    let message = format!("still waiting for {what}{besides}");
    status(Code::DeadlineExceeded, &message, details("STILL_WAITING", &waiting(request, what)))
}

/// This frontend ends; another one knows the same.
pub fn shutting_down(request: &str, what: &str) -> Status {
    stopping(request, what, "; the widths stay desired")
}

/// The same for a call that changes no width.
pub fn shutting_down_while(request: &str, what: &str) -> Status {
    stopping(request, what, "")
}

/// The same for a call of which nothing was written.
pub fn shutting_down_unwritten(request: &str, what: &str) -> Status {
    stopping(request, what, NOTHING_WRITTEN)
}

fn stopping(request: &str, what: &str, besides: &str) -> Status {
    let mut details = details("SHUTTING_DOWN", &waiting(request, what));
    details.set_retry_info(Some(Duration::ZERO));
    let message = format!("this frontend is shutting down while it waits for {what}{besides}");
    status(Code::Unavailable, &message, details)
}

/// There are as many streams as may be.
pub(crate) fn too_many_watching(full: &Full) -> Status {
    let mut details = details("TOO_MANY_WATCHING", &[]);
    details.set_retry_info(Some(LATER));
    status(Code::ResourceExhausted, &format!("there are {} streams {} already", full.most, full.of), details)
}

/// As many lists are being sent as a whole as may be.
pub(crate) fn too_many_lists(full: &Full) -> Status {
    let mut details = details("TOO_MANY_LISTS", &[]);
    details.set_retry_info(Some(LATER));
    let message = format!("{} lists of regions {} are being sent as a whole already", full.most, full.of);
    status(Code::ResourceExhausted, &format!("{message}; with page_size there are pages"), details)
}

/// All regions that are asked for are more than anybody may look at.
pub(crate) fn too_many_regions() -> Status {
    let mut details = details("TOO_MANY_REGIONS", &[]);
    details.set_retry_info(Some(LATER));
    let message = "the regions are too many, or their names too long, to be looked at together";
    status(Code::ResourceExhausted, &format!("{message}: ask for those of one job, or for each"), details)
}

/// As many requests are being asked for by name as may be.
pub(crate) fn too_many_lookups(request: &str, full: &Full) -> Status {
    let mut details = details("TOO_MANY_LOOKUPS", &[("request", request)]);
    details.set_retry_info(Some(LATER));
    let message = format!("{} requests {} that this frontend does not see are being asked for", full.most, full.of);
    status(Code::ResourceExhausted, &message, details)
}

/// There are as many dry runs as may be.
pub(crate) fn too_many_dry_runs(full: &Full) -> Status {
    let mut details = details("TOO_MANY_DRY_RUNS", &[]);
    details.set_retry_info(Some(LATER));
    let message = format!("there are {} dry runs {} under way already", full.most, full.of);
    status(Code::ResourceExhausted, &message, details)
}

/// What a request would come to is not known now.
pub fn not_foreseen(why: &str) -> Status {
    let mut details = details("NOT_FORESEEN", &[]);
    details.set_retry_info(Some(LATER));
    status(Code::Unavailable, &format!("what the request would come to is not known now: {why}"), details)
}

/// What this frontend sees of the namespace may be less than there is.
pub fn not_current(why: &str) -> Status {
    let mut details = details("NOT_CURRENT", &[]);
    details.set_retry_info(Some(A_WHILE));
    let message = format!("this frontend does not see the namespace as it is: {why}{NOTHING_WRITTEN}");
    status(Code::Unavailable, &message, details)
}

/// The namespace of the job is being deleted, or is gone: nothing can be asked for in it any more.
pub fn namespace_goes(why: &str) -> Status {
    status(Code::FailedPrecondition, why, details("NAMESPACE_TERMINATING", &[]))
}

/// A ResourceQuota of the namespace does not permit another request.
pub fn over_quota(why: &str) -> Status {
    let mut details = details("QUOTA_EXCEEDED", &[]);
    details.set_retry_info(Some(A_WHILE));
    status(Code::ResourceExhausted, why, details)
}

/// The cluster does not permit the request: a policy of it, or the frontend's own rights.
pub fn not_permitted(why: &str) -> Status {
    status(Code::PermissionDenied, why, details("NOT_PERMITTED", &[]))
}

/// The API server did not take the request now.
pub fn not_taken(why: &str) -> Status {
    taken_or_not("", &format!("the Kubernetes API did not take the request: {why}"))
}

/// It is not known whether the API server has taken the request, which would have this name.
pub fn perhaps_taken(request: &str, why: &str) -> Status {
    taken_or_not(request, &format!("it is not known whether the Kubernetes API took the request {request}: {why}"))
}

/// The API server does not say now whether there is such a request. Where it was asked for once, it may be there.
pub fn not_looked_up(request: &str, why: &str) -> Status {
    taken_or_not(request, &format!("the Kubernetes API did not say whether there is such a request: {why}"))
}

/// It is not known whether the API server has taken the withdrawal of a request.
pub fn perhaps_withdrawn(request: &str, why: &str) -> Status {
    let message = format!("it is not known whether the Kubernetes API took the withdrawal of request {request}: {why}");
    taken_or_not(request, &message)
}

fn taken_or_not(request: &str, message: &str) -> Status {
    let mut details = details("NOT_TAKEN", &[("request", request)]);
    details.set_retry_info(Some(LATER));
    status(Code::Unavailable, message, details)
}

/// As many requests, or whatever it is, wait as may.
pub(crate) fn too_many_waiting(what: &str, full: &Full) -> Status {
    let mut details = details("TOO_MANY_WAITING", &[]);
    details.set_retry_info(Some(LATER));
    let message = format!("{} {what} {} wait already{NOTHING_WRITTEN}", full.most, full.of);
    status(Code::ResourceExhausted, &message, details)
}

/// As many calls wait as may; this one is about a request that is stored, and goes on without it.
pub(crate) fn too_many_waiting_for(request: &str, full: &Full) -> Status {
    let mut details = details("TOO_MANY_WAITING", &[("request", request)]);
    details.set_retry_info(Some(LATER));
    let message = format!("{} requests {} wait already; request {request} goes on", full.most, full.of);
    status(Code::ResourceExhausted, &message, details)
}

/// The request would wait for too long behind those that wait.
pub fn behind(again: Duration) -> Status {
    let mut details = details("TOO_MANY_WAITING", &[]);
    details.set_retry_info(Some(again));
    let message = "other jobs of the namespace wait, and this one would have to wait for too long; nothing was written";
    status(Code::ResourceExhausted, message, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_fits_into_eight_kibibytes_of_trailers() {
        // Two bytes each: no text is cut within a character.
        let long = "\u{e9}".repeat(4000);
        let known = vec![long.as_str(); 100];
        let statuses = [
            invalid_request(&long, &long),
            invalid_width(&long, &long),
            job_not_found("n", &long[..200], &long[..200]),
            region_not_found("n", "j", &long, &known, &long[..200]),
            region_missed("n", &long[..200], &long[..200], &long),
            rejected("flow-1", &long, &[("stage", Some("topology")), ("code", Some("CDISR1164E"))]),
            aborted("SUPERSEDED", &long[..200], &long, &[("by", "r".to_owned()), ("region", long[..200].to_owned())]),
            mismatch("WIDTH_MISMATCH", &long[..200], &long),
            key_reused(&long[..200]),
            resize_not_found(&long[..200], &long),
            already_committed(&long[..200], u64::MAX),
            already_ended(&long[..200], "Refused", &long),
            not_foreseen(&long),
            not_submitted("j", &long),
            region_not_seen(&long[..200], &long),
            still_waiting(&long[..200], &long),
            shutting_down(&long[..200], &long),
            too_many_requests(&long[..200], 1_000),
            too_many_requests_by(&long, &long[..200], 500),
            no_room(&long[..200], &long),
            not_current(&long),
            namespace_goes(&long),
            over_quota(&long),
            not_permitted(&long),
            not_taken(&long),
            perhaps_taken(&long[..200], &long),
            not_looked_up(&long[..200], &long),
            perhaps_withdrawn(&long[..200], &long),
        ];
        for status in statuses {
            let size = grpc::status::size_in_trailers(&status);
            assert!(size <= 7800, "{size}: {}", &status.message()[..40]);
        }
    }
}
