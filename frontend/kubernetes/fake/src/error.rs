//! Answers of an API server that refuses something.

use crate::kind::Id;
use kube::core::Status;

pub(crate) fn not_found(id: &Id) -> kube::Error {
    answer(404, "NotFound", &format!("{id} not found"))
}

pub(crate) fn already_exists(id: &Id) -> kube::Error {
    answer(409, "AlreadyExists", &format!("{id} already exists"))
}

pub(crate) fn conflict(id: &Id, why: &str) -> kube::Error {
    answer(409, "Conflict", &format!("operation cannot be fulfilled on {id}: {why}"))
}

pub(crate) fn invalid(id: &Id, why: &str) -> kube::Error {
    answer(422, "Invalid", &format!("{id} is invalid: {why}"))
}

pub(crate) fn bad_request(id: &Id, why: &str) -> kube::Error {
    answer(400, "BadRequest", &format!("{id}: {why}"))
}

/// What an API server answers to a version on an object that is to be created.
pub(crate) fn has_version(id: &Id) -> kube::Error {
    answer(500, "", &format!("{id}: resourceVersion should not be set on objects to be created"))
}

/// What an API server answers to an apply of a field that the definition of the kind does not declare.
pub(crate) fn not_declared(id: &Id, field: &str) -> kube::Error {
    let why = format!(".{field}: field not declared in schema");
    answer(500, "InternalError", &format!("failed to create typed patch object ({id}): {why}"))
}

fn answer(code: u16, reason: &str, message: &str) -> kube::Error {
    kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
}

/// The connection broke: whether the call had its effect is not known.
pub(crate) fn broken() -> kube::Error {
    kube::Error::Service("the connection broke".into())
}
