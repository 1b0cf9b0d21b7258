//! Statuses of calls that do not come as far as their service, with `google.rpc` details (rule elasticity-29). The
//! domain of a detail is that of the service.

use super::answers::Unanswered;
use super::reviewer::Right;
use super::token::Unusable;
use crate::grpc::certificate::Worthless;
use crate::grpc::status::{LATER, bounded, details, status};
use crate::grpc::subject::Subject;
use std::time::Duration;
use streams_places::Full;
use tonic::{Code, Status};

const NO_TOKEN: &str = "NO_TOKEN";

/// It is not known who calls, and it does not help to ask again with the same token.
pub(super) fn unauthenticated(domain: &str, why: Unusable, audiences: &[String]) -> Status {
    let (reason, message) = match why {
        Unusable::Missing => (NO_TOKEN, "a token is needed: send the metadata `authorization: Bearer TOKEN`"),
        Unusable::Malformed => ("INVALID_TOKEN", "what stands behind `authorization: Bearer` is no token"),
        Unusable::Nobodys => {
            ("INVALID_TOKEN", "the API server does not take the token: it is nobody's, has expired, or is for others")
        }
    };
    of_token(domain, reason, message, audiences)
}

/// There is no token, nor a certificate, which was asked for.
pub(super) fn unshown(domain: &str, audiences: &[String]) -> Status {
    let message = "no certificate was shown (libraries show none that the authorities of the frontend have not \
                   signed), and no token was sent: the metadata `authorization: Bearer TOKEN`";
    of_token(domain, NO_TOKEN, message, audiences)
}

fn of_token(domain: &str, reason: &str, message: &str, audiences: &[String]) -> Status {
    let audiences = audiences.join(", ");
    let details = details(domain, reason, &[("audience", &audiences)]);
    status(Code::Unauthenticated, &format!("{message} (of the audience {audiences})"), details)
}

/// There is no token, and it is not known who calls by the certificate that was shown.
pub(super) fn worthless(domain: &str, why: Worthless) -> Status {
    let message = match why {
        Worthless::Nameless => "the certificate of the connection names nobody: its subject needs a common name",
        Worthless::Oversized => {
            "the certificate of the connection has too long names: 8 KiB is what user and groups have"
        }
        Worthless::Untrusted => "the certificate of the connection is not trusted any more: connect with another one",
    };
    status(Code::Unauthenticated, message, details(domain, "INVALID_CERTIFICATE", &[]))
}

/// Whoever calls has not the right that the call takes.
pub(super) fn access_denied(domain: &str, subject: &Subject, right: &Right) -> Status {
    let Right { verb, group, namespace, name, .. } = right;
    let (user, resource) = (&*subject.name.0, right.of());
    let of = if name.is_empty() { String::new() } else { format!(" {name}") };
    let message = format!("{user} may not {verb} {resource}{of} ({group}) in namespace {namespace}");
    let metadata = [
        ("user", user),
        ("verb", verb),
        ("group", group),
        ("resource", &resource),
        ("namespace", namespace),
        ("name", name),
    ];
    status(Code::PermissionDenied, &message, details(domain, "ACCESS_DENIED", &metadata))
}

/// A request without a namespace in this field: there is nothing that somebody could have a right to.
pub(super) fn no_namespace(domain: &str, field: &str) -> Status {
    let message = "a name is needed";
    let mut details = details(domain, "INVALID_REQUEST", &[]);
    details.add_bad_request_violation(field, message);
    status(Code::InvalidArgument, &format!("{field}: {message}"), details)
}

/// It is not known who calls, or what they may: `what` was waited for.
pub(super) fn unanswered(domain: &str, what: &str, why: &Unanswered) -> Status {
    let later = |code, reason, message: &str| {
        let mut details = details(domain, reason, &[]);
        details.set_retry_info(Some(LATER));
        status(code, message, details)
    };
    match why {
        Unanswered::Full(full) => {
            let (Full::InAll(count) | Full::OfGroup(count) | Full::OfOne(count) | Full::OfUser(count)) = full;
            let message = format!("{count} calls wait already for {what}; nothing was written");
            later(Code::ResourceExhausted, "TOO_MANY_REVIEWS", &message)
        }
        Unanswered::Failed(why) => {
            let message = format!("waited in vain for {what}: {}; nothing was written", bounded(why));
            later(Code::Unavailable, "NOT_REVIEWED", &message)
        }
        Unanswered::Stopping => {
            let mut details = details(domain, "SHUTTING_DOWN", &[("waiting_for", what)]);
            details.set_retry_info(Some(Duration::ZERO));
            let message = format!("this frontend is shutting down while it waits for {what}; nothing was written");
            status(Code::Unavailable, &message, details)
        }
        Unanswered::Late => {
            let details = details(domain, "STILL_WAITING", &[("waiting_for", what)]);
            status(Code::DeadlineExceeded, &format!("still waiting for {what}; nothing was written"), details)
        }
    }
}
