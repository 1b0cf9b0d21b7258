//! Subscriptions and filters of input ports (rule pe-api-6).

use super::super::PeApi;
use super::super::arriving::{FILTER, Unread};
use super::super::bodies::{Number, Streams, Xml};
use super::super::caller::Caller;
use super::super::lookup::{Changeable, PortObject};
use super::super::refusal::Refusal;
use super::super::write::made_and_looked_at;
use crate::run_time::imports::{self, ImportChange};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use spl_expression::is_no_filter;
use std::sync::Arc;
use streams_api::{Import, ImportSpec};

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
) -> Result<Response, Refusal> {
    let answer = |import: &Import| {
        let spec = ImportSpec { streams: import.streams().clone(), ..import.spec.clone() };
        Ok(Json(spec).into_response())
    };
    found(&api, &caller, &path)?.read(&api, &caller, answer).await
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
    let answer = |import: &Import| {
        let filter = import.streams().filter.clone().filter(|filter| !is_no_filter(filter));
        filter.ok_or_else(|| Refusal::Absent("the port has no filter".to_owned()))
    };
    found(&api, &caller, &path)?.read(&api, &caller, answer).await
}

/// Changes the filter of an input port; an empty body removes it.
#[utoipa::path(
    put, path = "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/filter",
    request_body(content_type = "text/plain", content = String),
    responses(
        (status = 204, description = "changed; the routes follow"),
        (status = 400, description = "no such job; PEs cannot read the filter, or an export forbids filters"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port imports nothing"),
    ),
)]
pub(in super::super) async fn set_filter(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let import = changeable(&api, &caller, &path)?;
    let (text, _memory) = body.text(FILTER).await?;
    let filter = Some(text.trim().to_owned()).filter(|filter| !is_no_filter(filter));
    change(&api, import, ImportChange::Edit { subscription: None, filter: Some(filter) }).await
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
) -> Result<Response, Refusal> {
    let answer = |import: &Import| Ok(Xml(Streams::from(import.streams())).into_response());
    found(&api, &caller, &path)?.read(&api, &caller, answer).await
}

/// Changes all that an input port asks for, its filter as well.
#[utoipa::path(
    put, path = "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/streams",
    request_body(content_type = "application/xml", content = Object),
    responses(
        (status = 204, description = "changed; the routes follow"),
        (status = 400, description = "no such job; something cannot be read, or an export forbids filters"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "the port imports nothing"),
    ),
)]
pub(in super::super) async fn set_streams(
    State(api): State<PeApi>,
    caller: Caller,
    path: PortPath,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let import = changeable(&api, &caller, &path)?;
    let (streams, _memory) = body.xml::<Streams>().await?;
    change(&api, import, ImportChange::Set(streams.into())).await
}

/// The import of a port.
fn found(api: &PeApi, caller: &Caller, Path((job, pe, port)): &PortPath) -> Result<PortObject<Import>, Refusal> {
    api.job(caller, job)?;
    api.import(caller, job, Number::of_path(pe)?, Number::of_path(port)?)
}

/// The import of a port, if the caller may change it.
fn changeable(api: &PeApi, caller: &Caller, path: &PortPath) -> Result<Changeable<Import>, Refusal> {
    found(api, caller, path)?.changeable_by(caller)
}

/// Changes what the port asks for, and waits until the board knows, as long as the runtime waits.
async fn change(api: &PeApi, import: Changeable<Import>, change: ImportChange) -> Result<StatusCode, Refusal> {
    let (key, whose) = import.key();
    let (boards, namespace) = (api.boards.clone(), Arc::clone(&key.namespace));
    let change = import.change(change.octets(), move |import| {
        let forbids = |import: &streams_broker::Import| boards.forbids_filters(&namespace, import);
        Ok(imports::changed(import, &change, forbids)?)
    });
    let look = api.boards.look_at_import(&key, &whose);
    made_and_looked_at(api.changes.import(&key, change), look).await?;
    Ok(StatusCode::NO_CONTENT)
}
