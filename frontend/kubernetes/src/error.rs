//! Errors of reading and writing objects, one for each way to react (rule call-4).
//!
//! Knows: statuses of the API server, and the texts by which it tells what no field of a status says. Must not know:
//! what a controller does about an error.

use kube::core::Status;
use kube::{Resource, ResourceExt};

/// An object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else wrote or deleted the object since it was read: read again and decide again.
    #[error("{kind} {name} was changed or deleted by somebody else")]
    Conflict {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The object is being deleted: wait until it is gone.
    #[error("{kind} {name} is being deleted")]
    Terminating {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
    },
    /// An object of this name exists and belongs to somebody else: report it, and leave it alone.
    #[error("{kind} {name} exists and belongs to {owner}")]
    Foreign {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// Who it belongs to, for people.
        owner: String,
    },
    /// The API server refused what was sent, and would again: the object is wrong.
    #[error("{kind} {name} was refused: {message}")]
    Refused {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// The API server's words.
        message: String,
    },
    /// The API server has the custom resource definition of an earlier version: it refuses or drops this field. Tell
    /// people what to do, and do not try again and again.
    #[error("{kind} {name}: {}", outdated(.definition, .field))]
    Undeclared {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// Name of the definition.
        definition: String,
        /// The field.
        field: String,
    },
    /// The namespace is being deleted: nothing can be created in it any more.
    #[error("{message}")]
    NamespaceTerminating {
        /// The API server's words.
        message: String,
    },
    /// Anything else; try again later.
    #[error("{}", with_causes(.0))]
    Call(#[source] kube::Error),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if is_namespace_terminating(status) => {
                Self::NamespaceTerminating { message: words(status) }
            }
            _ => Self::Call(error),
        }
    }
}

impl Error {
    /// Whether to read again at once instead of backing off.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether nobody knows if the call has had an effect, or will: it was not answered, or the API server failed at it
    /// (5xx).
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Call(error) if is_unanswered(error))
    }

    /// Whether the API server has answered, and the object that it has answered with cannot be read (rule call-6).
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Call(kube::Error::SerdeError(error)) if error.is_data())
    }

    /// Whether the caller may not do this, or an admission plugin does not permit it (403).
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call(kube::Error::Api(status)) if status.code == 403)
    }

    /// Whether a ResourceQuota does not permit it (403). The message names the quota, and what it limits.
    pub fn is_of_quota(&self) -> bool {
        matches!(self, Self::Call(error) if is_of_quota(error))
    }

    /// Whether the object is too large to be stored: the API server says so itself (413), or tells what etcd has said
    /// (500).
    pub fn is_too_large(&self) -> bool {
        let says_so = |message: &str| ["too large", "larger than max"].iter().any(|words| message.contains(words));
        match self {
            Self::Refused { message, .. } => says_so(message),
            Self::Call(kube::Error::Api(status)) => says_so(&status.message),
            _ => false,
        }
    }

    /// Whether trying again without a change cannot help.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Foreign { .. })
    }
}

/// Whether a ResourceQuota does not permit it.
pub(crate) fn is_of_quota(error: &kube::Error) -> bool {
    // The API server has no other sign of it.
    let of_quota = |message: &str| message.contains("exceeded quota: ") || message.contains("failed quota: ");
    matches!(error, kube::Error::Api(status) if status.code == 403 && of_quota(&status.message))
}

/// Reason of a status that stands for an answer which was none: it says nothing of objects.
pub const NOT_A_STATUS: &str = "NotAStatus";

/// Whether something has answered that does not say what the API server makes of the call: a gateway, or the API server
/// itself that does not serve the kind.
pub fn is_no_status(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == NOT_A_STATUS)
}

/// An answer that says nothing but its code, in words for people.
pub(crate) fn wordless(code: u16) -> String {
    let known = http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
    known.map_or_else(|| format!("HTTP {code}"), |known| format!("HTTP {code} {known}"))
}

/// What the API server said. Any JSON object is taken for a status, of code 0 if it has none.
fn words(status: &Status) -> String {
    match (status.message.trim(), status.code) {
        ("", 0) => "JSON that says nothing known".to_owned(),
        ("", code) => wordless(code),
        _ => status.message.clone(),
    }
}

/// How the API server refuses to apply a field that the definition of a kind does not declare (500).
pub(crate) const NOT_DECLARED: &str = "field not declared in schema";

/// Name of the custom resource definition of a kind.
pub fn definition<K: Resource<DynamicType = ()>>() -> String {
    format!("{}.{}", K::plural(&()), K::group(&()))
}

/// That the API server does not keep a field, in words for people, and what to do about it.
pub fn outdated(definition: &str, field: &str) -> String {
    format!(
        "custom resource definitions of an earlier version: field {field} of {definition} is not kept by the API \
         server; apply those of this version (kubectl apply --server-side -k deploy/crds)"
    )
}

/// Whether a kind is no one of Kubernetes' own, whose groups are names without a dot, or end in `k8s.io`.
pub(crate) fn is_custom<K: Resource<DynamicType = ()>>() -> bool {
    let group = K::group(&());
    group.contains('.') && !group.ends_with("k8s.io")
}

/// The first field that the API server does not know by what it says, e.g.
/// `failed to create typed patch object (n/a; g/v1, Kind=K): .spec.size: field not declared in schema`.
fn undeclared_field(message: &str) -> Option<String> {
    let (before, _) = message.split_once(NOT_DECLARED)?;
    let field = before.trim_end().trim_end_matches(':').rsplit(char::is_whitespace).next()?;
    Some(field.trim_start_matches('.').to_owned())
}

/// Sorts the error of a call that wrote `object`.
pub fn written<K: Resource<DynamicType = ()>>(object: &K, error: kube::Error) -> Error {
    let kind = || K::kind(&()).into_owned();
    let name = || object.name_any();
    if let kube::Error::Api(status) = &error
        && is_custom::<K>()
        && let Some(field) = undeclared_field(&status.message)
    {
        return Error::Undeclared { kind: kind(), name: name(), definition: definition::<K>(), field };
    }
    match &error {
        // A gateway does not look at the object, but at how large it is.
        kube::Error::Api(status) if status.reason == NOT_A_STATUS && status.code != 413 => error.into(),
        kube::Error::Api(status) if status.is_conflict() => Error::Conflict { kind: kind(), name: name() },
        // 400: cannot be read; 413: too large; 422: the schema or a CEL rule refuses it.
        kube::Error::Api(status) if status.is_invalid() || matches!(status.code, 400 | 413 | 422) => {
            Error::Refused { kind: kind(), name: name(), message: words(status) }
        }
        _ => error.into(),
    }
}

/// The namespace is being deleted (403 with this cause).
fn is_namespace_terminating(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// `None` instead of the error that the object does not exist ([`is_not_found`]).
///
/// # Errors
/// Every other error.
pub fn absent<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The API server says that the object does not exist, or the namespace in which to create it. Any other 404 says
/// nothing of it: a gateway has no way to the API server, or the kind is not served.
pub fn is_not_found(error: &kube::Error) -> bool {
    // kube takes every 404 for one whose reason it does not know.
    matches!(error, kube::Error::Api(status) if status.reason == "NotFound")
}

/// The call was not answered, or the API server failed at it (5xx).
pub(crate) fn is_unanswered(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        _ => true,
    }
}

/// The API server says that the caller may not do this (403). A 403 of something else says nothing of rights.
pub(crate) fn is_without_right(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.reason == "Forbidden")
}

/// There are too many such calls (429).
pub(crate) fn is_too_many(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429)
}

/// The object was changed by somebody else (409).
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason != NOT_A_STATUS && status.is_conflict())
}

/// An object of this name exists (409).
pub fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// The error with its causes, for people: nothing is said twice, and of the API server only what it said.
///
/// Errors of other crates often end in the whole text of their cause, and kube's in a dump of the whole answer.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let status = status(error);
        next = if status.is_some() { None } else { error.source() };
        let message = status.map_or_else(|| without_cause(error), words);
        if !text.contains(&message) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&message);
        }
    }
    text
}

/// The status of the API server that an error is.
fn status<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Status> {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status),
        _ => error.downcast_ref().or_else(|| error.downcast_ref::<Box<Status>>().map(Box::as_ref)),
    }
}

/// What an error says, without the text of its cause at the end.
fn without_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    if !cause.is_empty() && text.ends_with(&cause) {
        text.truncate(text.len() - cause.len());
        text.truncate(text.trim_end_matches([' ', ':']).len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher;
    use serde::de::Error as _;

    fn api(reason: &str, code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("words of the server", reason).with_code(code).boxed())
    }

    #[test]
    fn errors_are_told_apart_by_what_to_do() {
        let object = ConfigMap::default();
        // reason, code -> conflict, permanent
        let table = [
            ("Conflict", 409, true, false),
            ("Invalid", 422, false, true),
            ("BadRequest", 400, false, true),
            ("RequestEntityTooLarge", 413, false, true),
            ("TooManyRequests", 429, false, false),
            ("InternalError", 500, false, false),
            ("Forbidden", 403, false, false),
            (NOT_A_STATUS, 400, false, false),
            (NOT_A_STATUS, 404, false, false),
            (NOT_A_STATUS, 409, false, false),
            (NOT_A_STATUS, 413, false, true),
            (NOT_A_STATUS, 422, false, false),
        ];
        for (reason, code, conflict, permanent) in table {
            let error = written(&object, api(reason, code));
            assert_eq!((error.is_conflict(), error.is_permanent()), (conflict, permanent), "{reason}");
        }
    }

    #[test]
    fn a_field_that_the_definition_does_not_declare_is_named() {
        let typed = "failed to create typed patch object (n/a; streams.ibm.com/v1, Kind=ProcessingElement)";
        let table = [
            (format!("{typed}: .spec.placementHash: {NOT_DECLARED}"), 500, Some("spec.placementHash")),
            (format!("{typed}: errors:\n  .spec.a: {NOT_DECLARED}\n  .spec.b: {NOT_DECLARED}"), 422, Some("spec.a")),
            (format!("{typed}: .spec.ports[port=1,protocol=\"TCP\"].x: {NOT_DECLARED}"), 500, Some("x")),
            ("etcd is gone".to_owned(), 500, None),
        ];
        for (message, code, expected) in table {
            assert_eq!(
                undeclared_field(&message).as_deref().map(|field| field.ends_with(expected.unwrap_or("-"))),
                expected.map(|_| true),
                "{message}"
            );
            let answer = kube::Error::Api(Status::failure(&message, "InternalError").with_code(code).boxed());
            let error = written(&ConfigMap::default(), answer);
            assert!(!matches!(error, Error::Undeclared { .. }), "it has no definition: {error}");
        }
    }

    #[test]
    fn a_quota_is_told_apart_from_a_permission_that_is_missing() {
        let refusal =
            |message: &str, code| kube::Error::Api(Status::failure(message, "Forbidden").with_code(code).boxed());
        let table = [
            ("pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2", 403, true),
            ("pods \"p\" is forbidden: failed quota: q: must specify cpu for: pe", 403, true),
            ("pods is forbidden: User \"u\" cannot create resource", 403, false),
            ("exceeded quota: q", 500, false),
        ];
        for (message, code, expected) in table {
            let error = written(&ConfigMap::default(), refusal(message, code));
            assert_eq!((error.is_of_quota(), error.is_forbidden()), (expected, code == 403), "{message}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_by_the_api_server_or_by_what_stores_it() {
        let refusal =
            |message: &str, code| kube::Error::Api(Status::failure(message, "Unknown").with_code(code).boxed());
        let table = [
            ("Request entity too large: limit is 3145728", 413, true),
            ("etcdserver: request is too large", 500, true),
            ("rpc error: code = ResourceExhausted desc = trying to send message larger than max", 500, true),
            ("spec.regions: Too many: 300", 422, false),
            ("etcdserver: leader changed", 500, false),
        ];
        for (message, code, expected) in table {
            assert_eq!(written(&ConfigMap::default(), refusal(message, code)).is_too_large(), expected, "{message}");
        }
    }

    #[test]
    fn a_namespace_that_goes_is_told_apart_from_a_permission_that_is_missing() {
        let refusal = |cause: &str| {
            let status = serde_json::json!({
                "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no",
                "details": {"causes": [{"reason": cause}]},
            });
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        for (cause, expected) in [("NamespaceTerminating", true), ("", false)] {
            for error in [Error::from(refusal(cause)), written(&ConfigMap::default(), refusal(cause))] {
                assert_eq!(matches!(error, Error::NamespaceTerminating { .. }), expected, "{cause}");
            }
        }
    }

    #[test]
    fn causes_are_said_once_and_without_a_dump() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        #[derive(Debug, thiserror::Error)]
        #[error("watching failed: {0}")]
        struct Watching(#[source] kube::Error);
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused");
        let gone = Status::failure("gone", "Expired").with_code(410);
        let table = [
            (with_causes(&kube::Error::Service(Box::new(refused))), "ServiceError: refused"),
            (with_causes(&Outer(std::io::Error::other("inner"))), "outer: inner"),
            (with_causes(&api("Forbidden", 403)), "words of the server"),
            (
                with_causes(&kube::Error::Api(Status::failure("", "").with_code(503).boxed())),
                "HTTP 503 Service Unavailable",
            ),
            (Error::from(api("Forbidden", 403)).to_string(), "words of the server"),
            (with_causes(&Watching(api("Gone", 410))), "watching failed: words of the server"),
            (
                with_causes(&watcher::Error::WatchError(Box::new(gone))),
                "error returned by apiserver during watch: gone",
            ),
            (
                with_causes(&watcher::Error::WatchFailed(kube::Error::Api(Box::default()))),
                "watch stream failed: JSON that says nothing known",
            ),
            (
                with_causes(&watcher::Error::WatchFailed(kube::Error::SerdeError(serde_json::Error::custom("old")))),
                "watch stream failed: Error deserializing response: old",
            ),
        ];
        for (actual, expected) in table {
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn only_not_found_means_absent() {
        assert!(matches!(absent::<()>(Err(api("NotFound", 404))), Ok(None)));
        assert!(matches!(absent(Ok(1)), Ok(Some(1))));
        let others = [("Conflict", 409), ("AlreadyExists", 409), ("Gone", 410), (NOT_A_STATUS, 404), ("", 404)];
        for (reason, code) in others {
            assert!(absent::<()>(Err(api(reason, code))).is_err(), "{reason} {code}");
        }
        assert!(is_already_exists(&api("AlreadyExists", 409)) && !is_conflict(&api("AlreadyExists", 409)));
    }
}
