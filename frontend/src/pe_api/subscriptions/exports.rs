//! Properties of exported streams (rule pe-api-6).

use super::super::PeApi;
use super::super::arriving::Unread;
use super::super::bodies::{Number, OneProperty, Properties, PropertyNames, Xml};
use super::super::caller::Caller;
use super::super::lookup::{Changeable, PortObject};
use super::super::refusal::Refusal;
use super::super::write::made_and_looked_at;
use crate::run_time::Problem;
use crate::run_time::exports::{self, ExportChange};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use std::collections::HashSet;
use streams_api::{Export, StreamProperty};

/// Job, PE and port, as a path has them.
type PortPath = Path<(String, String, String)>;
/// The same, and the name of a property.
type PropertyPath = Path<(String, String, String, String)>;

/// What an output port exports.
#[utoipa::path(
    get, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}",
    responses(
        (status = 200, body = Object),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "the port exports nothing"),
    ),
)]
pub(in super::super) async fn object(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
) -> Result<Response, Refusal> {
    let answer = |export: &Export| {
        let mut spec = export.spec.clone();
        spec.stream.properties = export.properties().unwrap_or_default().to_vec();
        Ok(Json(spec).into_response())
    };
    found(&api, &caller, &path)?.read(&api, &caller, answer).await
}

/// The properties of these names; all, if the scope is `all` or there are no names.
#[utoipa::path(
    post, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 200, content_type = "application/xml", body = Object, description = "those that there are"),
        (status = 400, description = "there is no such job, or no such document"),
        (status = 404, description = "the port exports nothing, or by a name"),
    ),
)]
pub(in super::super) async fn read(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    body: Unread,
) -> Result<Response, Refusal> {
    // What is not there is not waited for.
    found(&api, &caller, &path)?;
    let (names, _memory) = body.xml::<PropertyNames>().await?;
    let names = names.into_those_to_read()?.map(|names| names.into_iter().collect::<HashSet<String>>());
    let answer = move |export: &Export| {
        let is_asked = |property: &&StreamProperty| names.as_ref().is_none_or(|names| names.contains(&property.name));
        Ok(Xml(Properties::of(properties(export)?.iter().filter(is_asked))).into_response())
    };
    found(&api, &caller, &path)?.read(&api, &caller, answer).await
}

/// One property.
#[utoipa::path(
    get, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}",
    responses(
        (status = 200, content_type = "application/xml", body = Object),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "the port exports nothing, or by a name, or without this property"),
    ),
)]
pub(in super::super) async fn read_one(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe, port, name)): PropertyPath,
) -> Result<Response, Refusal> {
    let answer = move |export: &Export| {
        let property = properties(export)?.iter().find(|property| property.name == name);
        let property = property.ok_or_else(|| Refusal::Absent(Problem::Missing(name.clone()).to_string()))?;
        Ok(Xml(OneProperty::from(property)).into_response())
    };
    found(&api, &caller, &Path((job, pe, port)))?.read(&api, &caller, answer).await
}

/// Adds properties.
#[utoipa::path(
    put, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 204, description = "added; the routes follow"),
        (status = 400, description = "no such job; one is there already; the port exports by a name"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port exports nothing"),
    ),
)]
pub(in super::super) async fn add(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let export = changeable(&api, &caller, &path)?;
    let (added, _memory) = body.xml::<Properties>().await?;
    change(&api, export, ExportChange::add(added.into_properties()?)).await
}

/// Adds one property.
#[utoipa::path(
    put, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 204, description = "added; the routes follow"),
        (status = 400, description = "no such job; it is there already; the port exports by a name"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port exports nothing"),
    ),
)]
pub(in super::super) async fn add_one(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe, port, name)): PropertyPath,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let export = changeable(&api, &caller, &Path((job, pe, port)))?;
    let (added, _memory) = body.xml::<OneProperty>().await?;
    change(&api, export, ExportChange::add(vec![named(&name, added)?])).await
}

/// Replaces properties.
#[utoipa::path(
    patch, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 204, description = "replaced; the routes follow"),
        (status = 400, description = "no such job; one is not there; the port exports by a name"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port exports nothing"),
    ),
)]
pub(in super::super) async fn replace(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let export = changeable(&api, &caller, &path)?;
    let (others, _memory) = body.xml::<Properties>().await?;
    change(&api, export, ExportChange::replace(others.into_properties()?)).await
}

/// Replaces one property.
#[utoipa::path(
    patch, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 204, description = "replaced; the routes follow"),
        (status = 400, description = "no such job; it is not there; the port exports by a name"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port exports nothing"),
    ),
)]
pub(in super::super) async fn replace_one(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe, port, name)): PropertyPath,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let export = changeable(&api, &caller, &Path((job, pe, port)))?;
    let (other, _memory) = body.xml::<OneProperty>().await?;
    change(&api, export, ExportChange::replace(vec![named(&name, other)?])).await
}

/// Removes the properties of these names; all, if the scope is `all`; none, if there are no names.
#[utoipa::path(
    delete, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 204, description = "removed; the routes follow"),
        (status = 400, description = "no such job; one is not there; the port exports by a name"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port exports nothing"),
    ),
)]
pub(in super::super) async fn remove(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let export = changeable(&api, &caller, &path)?;
    let (names, _memory) = body.xml::<PropertyNames>().await?;
    let removed = names.into_those_to_remove()?.map_or_else(|| ExportChange::Set(Vec::new()), ExportChange::remove);
    change(&api, export, removed).await
}

/// Removes one property.
#[utoipa::path(
    delete, path = "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}",
    responses(
        (status = 204, description = "removed; the routes follow"),
        (status = 400, description = "no such job; it is not there; the port exports by a name"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port exports nothing"),
    ),
)]
pub(in super::super) async fn remove_one(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe, port, name)): PropertyPath,
) -> Result<StatusCode, Refusal> {
    let export = changeable(&api, &caller, &Path((job, pe, port)))?;
    change(&api, export, ExportChange::remove(vec![name])).await
}

/// The export of a port.
fn found(api: &PeApi, caller: &Caller, Path((job, pe, port)): &PortPath) -> Result<PortObject<Export>, Refusal> {
    api.job(caller, job)?;
    api.export(caller, job, Number::of_path(pe)?, Number::of_path(port)?)
}

/// The properties in force.
fn properties(export: &Export) -> Result<&[StreamProperty], Refusal> {
    exports::properties(export).map_err(|problem| Refusal::Absent(problem.to_string()))
}

/// The property of a body, which must be the one of the path.
fn named(name: &str, property: OneProperty) -> Result<StreamProperty, Refusal> {
    let property = StreamProperty::from(property);
    let words = || Refusal::Invalid(format!("the path names property {name}, the body {}", property.name));
    if property.name == name { Ok(property) } else { Err(words()) }
}

/// The export of a port, if the caller may change it.
fn changeable(api: &PeApi, caller: &Caller, path: &PortPath) -> Result<Changeable<Export>, Refusal> {
    found(api, caller, path)?.changeable_by(caller)
}

/// Changes the properties in force, and waits until the board knows, as long as the runtime waits.
async fn change(api: &PeApi, export: Changeable<Export>, change: ExportChange) -> Result<StatusCode, Refusal> {
    let (key, whose) = export.key();
    let change = export.change(change.octets(), move |export| Ok(exports::changed(export, &change)?));
    let look = api.boards.look_at_export(&key, &whose);
    made_and_looked_at(api.changes.export(&key, change), look).await?;
    Ok(StatusCode::NO_CONTENT)
}
