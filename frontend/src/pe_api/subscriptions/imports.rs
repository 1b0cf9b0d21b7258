//! Subscriptions and filters of input ports (rule pe-api-6).

use super::super::PeApi;
use super::super::bodies::{Number, Streams, Xml};
use super::super::caller::Caller;
use super::super::refusal::Refusal;
use crate::broker::facts;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use spl_expression::{Expression, Limits};
use std::sync::Arc;
use streams_api::{Import, ImportAtRunTime, ImportSpec, ImportedStreams};
use streams_kubernetes::Key;

/// Job, PE and port, as a path has them.
type PortPath = Path<(String, String, String)>;

/// What an input port imports.
#[utoipa::path(
    get, path = "/api/subscriptions/job/{job}/pe/{pe}/import/{port}",
    responses(
        (status = 200, body = Object),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "the port imports nothing"),
    ),
)]
pub(in super::super) async fn object(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
) -> Result<Json<ImportSpec>, Refusal> {
    let (_, import) = found(&api, &caller, &path)?;
    Ok(Json(ImportSpec { streams: import.streams().clone(), ..import.spec.clone() }))
}

/// The filter of an input port.
#[utoipa::path(
    get, path = "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/filter",
    responses(
        (status = 200, content_type = "text/plain", body = String),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "the port imports nothing, or has no filter"),
    ),
)]
pub(in super::super) async fn filter(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
) -> Result<String, Refusal> {
    let (_, import) = found(&api, &caller, &path)?;
    let filter = import.streams().filter.clone().filter(|filter| !filter.is_empty());
    filter.ok_or_else(|| Refusal::Absent("the port has no filter".to_owned()))
}

/// Changes the filter of an input port; an empty body removes it.
#[utoipa::path(
    put, path = "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/filter",
    request_body(content_type = "text/plain", content = String),
    responses(
        (status = 204, description = "changed; the routes follow"),
        (status = 400, description = "no such job; the filter is no expression, or an export forbids filters"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port imports nothing"),
    ),
)]
pub(in super::super) async fn set_filter(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    body: String,
) -> Result<StatusCode, Refusal> {
    let filter = Some(body.trim().to_owned()).filter(|filter| !filter.is_empty());
    change(&api, &caller, &path, |before| ImportedStreams { filter: filter.clone(), ..before.clone() }).await
}

/// The streams that an input port asks for.
#[utoipa::path(
    get, path = "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/streams",
    responses(
        (status = 200, content_type = "application/xml", body = Object),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "the port imports nothing"),
    ),
)]
pub(in super::super) async fn streams(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
) -> Result<Xml<Streams>, Refusal> {
    let (_, import) = found(&api, &caller, &path)?;
    Ok(Xml(import.streams().into()))
}

/// Changes all that an input port asks for, its filter as well.
#[utoipa::path(
    put, path = "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/streams",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 204, description = "changed; the routes follow"),
        (status = 400, description = "no such job; something is no expression, or an export forbids filters"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port imports nothing"),
    ),
)]
pub(in super::super) async fn set_streams(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    Xml(streams): Xml<Streams>,
) -> Result<StatusCode, Refusal> {
    let streams = ImportedStreams::from(streams);
    change(&api, &caller, &path, |_| streams.clone()).await
}

/// The import of a port.
fn found(api: &PeApi, caller: &Caller, Path((job, pe, port)): &PortPath) -> Result<(Key, Arc<Import>), Refusal> {
    api.job(caller, job)?;
    api.import(caller, job, Number::of_path(pe)?, Number::of_path(port)?)
}

/// Makes what the port asks for what `make` makes of it, and waits until the board knows.
async fn change(
    api: &PeApi,
    caller: &Caller,
    path: &PortPath,
    make: impl Fn(&ImportedStreams) -> ImportedStreams + Send + Sync,
) -> Result<StatusCode, Refusal> {
    let (key, _) = found(api, caller, path)?;
    caller.speaks_for(&path.0.0)?;
    let change = |import: &Import| {
        let before = import.streams();
        let after = make(before);
        // Numbers of streams are only an order.
        if Streams::from(&after) == Streams::from(before) {
            return Ok(None);
        }
        let filter = after.filter.as_ref().filter(|_| after.filter != before.filter);
        if let Some(filter) = filter {
            let parsed = Expression::parse(filter, &Limits::default());
            parsed.map_err(|error| Refusal::Invalid(format!("filter: {error}")))?;
            is_allowed(api, &key, import)?;
        }
        let mut status = import.status.clone().unwrap_or_default();
        status.run_time = Some(ImportAtRunTime { streams: after });
        let changed = Import { status: Some(status), ..import.clone() };
        facts::import(&changed)?;
        Ok(Some(changed))
    };
    api.changes.import(&key, &change).await?;
    api.boards.look_at_import(&key);
    Ok(StatusCode::NO_CONTENT)
}

/// Nobody who sends to the port forbids filters.
fn is_allowed(api: &PeApi, key: &Key, import: &Import) -> Result<(), Refusal> {
    let port = facts::input_port(import);
    let routes = api.boards.routes(&key.namespace, &port.pe);
    let senders = routes.imports.get(&port.to_string()).map(|subscribed| subscribed.entries.keys());
    let forbids = |label: &&String| {
        api.mirrors.exports.get(&key.sibling(label)).is_some_and(|export| !export.spec.stream.allow_filter)
    };
    match senders.into_iter().flatten().find(forbids) {
        Some(label) => Err(Refusal::Invalid(format!("export {label}, which sends to the port, forbids filters"))),
        None => Ok(()),
    }
}
