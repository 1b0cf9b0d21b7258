//! Names of jobs, connectivity of PEs, widths of parallel regions.

use super::PeApi;
use super::arriving::{SHORT, Unread};
use super::bodies::Number;
use super::caller::Caller;
use super::refusal::Refusal;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use streams_api::{Connectivity, ReportedConnectivity};
use streams_kubernetes::Key;
use tokio::time::Instant;

/// Widest a region may be.
const WIDTH_MAX: u32 = 10_000;

/// The name of the job with this number.
#[utoipa::path(
    get, path = "/api/state/job/by-id/{id}/name",
    responses(
        (status = 200, content_type = "text/plain", body = String),
        (status = 400, description = "there is no job of this number"),
    ),
)]
pub(super) async fn job_name(
    State(api): State<PeApi>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<String, Refusal> {
    let name = id.parse::<u64>().ok().and_then(|number| {
        let found = api.job_names.find(&caller.namespace, number).map(|name| name.to_string());
        // PEs that the job has left behind run on, and connect again.
        found.or_else(|| api.left_behind.name(&caller.namespace, number))
    });
    name.ok_or_else(|| Refusal::Invalid(format!("there is no job with the number {id}")))
}

/// Which of its connections a PE has.
#[utoipa::path(
    get, path = "/api/state/job/{job}/pe/{pe}/connectivity",
    responses(
        (status = 200, body = String, description = "None, Partial or Full"),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "there is no such PE"),
    ),
)]
pub(super) async fn connectivity(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe)): Path<(String, String)>,
) -> Result<Json<Connectivity>, Refusal> {
    let (_, element) = api.pe(&caller, &job, Number::of_path(&pe)?)?;
    Ok(Json(element.status.as_ref().map(|status| status.connectivity()).unwrap_or_default()))
}

/// A PE tells which of its connections it has.
///
/// The runtime tries again if it hears nothing, but not if it is told that something failed. So it hears nothing then:
/// the answer comes when it has given up (rule pe-api-4).
#[utoipa::path(
    put, path = "/api/state/job/{job}/pe/{pe}/connectivity", request_body = String,
    responses(
        (status = 204, description = "recorded"),
        (status = 400, description = "the body is none of None, Partial and Full; or no such job, after 1.5 s"),
        (status = 403, description = "the caller is not the pod of this PE; the answer comes after 1.5 s"),
        (status = 404, description = "there is no such PE; the answer comes after 1.5 s"),
        (status = 503, description = "not recorded; the answer comes after 1.5 s"),
    ),
)]
pub(super) async fn set_connectivity(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, pe)): Path<(String, String)>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let since = Instant::now();
    let own = match api.own_pe_soon(&caller, &job, Number::of_path(&pe)?).await {
        Ok(known) => known,
        // All of it may be there, and only this replica does not know yet.
        Err(refusal) => return Err(refusal.unheard(since).await),
    };
    let (text, _memory) = match body.text(SHORT).await {
        Ok(read) => read,
        Err(refusal) => return Err(refusal.unheard_if_it_passes(since).await),
    };
    let state: Connectivity = serde_json::from_str(&text)
        .map_err(|_| Refusal::Invalid("connectivity is \"None\", \"Partial\" or \"Full\"".to_owned()))?;
    // How often it had lost connections is found out when that is written.
    let report = ReportedConnectivity { state, launch_count: own.launch_count, interruptions: 0 };
    match api.reports.tell(&own.key, own.uid, report).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(refusal) => Err(refusal.unheard_if_it_passes(since).await),
    }
}

/// The width that a parallel region is to have.
#[utoipa::path(
    get, path = "/api/state/job/{job}/pr/{name}/width",
    responses(
        (status = 200, body = u32),
        (status = 400, description = "there is no such job"),
        (status = 404, description = "there is no such region"),
    ),
)]
pub(super) async fn width(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, name)): Path<(String, String)>,
) -> Result<Json<u32>, Refusal> {
    Ok(Json(api.region(&caller, &job, &name)?.spec.width))
}

/// Changes the width that a parallel region is to have.
#[utoipa::path(
    put, path = "/api/state/job/{job}/pr/{name}/width", request_body = u32,
    responses(
        (status = 204, description = "written; the resize follows"),
        (status = 400, description = "there is no such job, or no such width"),
        (status = 403, description = "the caller is no PE of this job"),
        (status = 404, description = "there is no such region"),
    ),
)]
pub(super) async fn set_width(
    State(api): State<PeApi>,
    caller: Caller,
    Path((job, name)): Path<(String, String)>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    // The region may be large, and its width be long in coming.
    let (region, uid) = {
        let region = api.region(&caller, &job, &name)?;
        (Key::of(&*region), region.metadata.uid.clone())
    };
    caller.speaks_for(&job)?;
    let (text, _memory) = body.text(SHORT).await?;
    let width = text.trim().parse::<u32>().ok().filter(|width| (1..=WIDTH_MAX).contains(width));
    let width = width.ok_or_else(|| Refusal::Invalid(format!("a width is a number from 1 to {WIDTH_MAX}")))?;
    api.changes.width(&region, uid.as_deref(), width, &caller.changer(&job)).await?;
    Ok(StatusCode::NO_CONTENT)
}
