//! What PEs ask of their regions: what to do, and how the regions are set up.
//!
//! Knows: documents of regions, and that a PE has heard what it was told. Must not know: reports.

use crate::consistent_regions::members::{self, launch};
use crate::pe_api::PeApi;
use crate::pe_api::bodies::Number;
use crate::pe_api::caller::Caller;
use crate::pe_api::refusal::Refusal;
use axum::extract::{Path, State};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Json, Response};
use std::time::Duration;
use streams_api::consistent_region::RegionTrigger;
use streams_consistent_region::Document;
use streams_kubernetes::Key;

/// What a PE is told.
#[utoipa::path(
    get, path = "/api/consistentregion/pe/{pe}",
    responses(
        (status = 200, body = Object, description = "type and message, by region"),
        (status = 404, description = "its regions have nothing to say, or there is no such PE"),
        (status = 503, description = "another replica drives the regions"),
    ),
)]
pub(in super::super) async fn of_pe(
    State(api): State<PeApi>,
    caller: Caller,
    method: Method,
    Path(pe): Path<String>,
) -> Result<Response, Refusal> {
    let told = api.told(&caller, &pe)?;
    // Who asks for a head only has heard nothing.
    if method == Method::GET {
        told.is_heard(&api);
    }
    let document = told.document;
    if document.is_empty() {
        return Err(Refusal::Absent(format!("no region of PE {pe} has anything to say")));
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], document.json()).into_response())
}

/// What a PE is told by one region.
#[utoipa::path(
    get, path = "/api/consistentregion/pe/{pe}/region/{region}",
    responses(
        (status = 200, body = Object, description = "type and message"),
        (status = 404, description = "the region has nothing to say, or there is no such region or PE"),
        (status = 503, description = "another replica drives the regions"),
    ),
)]
pub(in super::super) async fn of_pe_and_region(
    State(api): State<PeApi>,
    caller: Caller,
    Path((pe, region)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (index, _, _) = api.consistent_region(&caller, &region)?;
    // This is no answer about the other regions of the PE, nor what a PE asks to know what to do.
    let message = api.told(&caller, &pe)?.document.message(index);
    let silent = || Refusal::Absent(format!("region {region} has nothing to say to PE {pe}"));
    message.map(|message| Json(message).into_response()).ok_or_else(silent)
}

/// What goes on in a region.
#[utoipa::path(
    get, path = "/api/consistentregion/region/{region}/state",
    responses((status = 200, body = String), (status = 404, description = "there is no such region")),
)]
pub(in super::super) async fn state(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<Json<&'static str>, Refusal> {
    Ok(Json(api.region_state(&caller, &region)?.name()))
}

/// The checkpoint that a reset goes back to.
#[utoipa::path(
    get, path = "/api/consistentregion/region/{region}/lastcompletedseqid",
    responses((status = 200, body = u64), (status = 404, description = "there is no such region")),
)]
pub(in super::super) async fn last_completed(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<Json<u64>, Refusal> {
    Ok(Json(api.region_state(&caller, &region)?.last_completed()))
}

/// Seconds between checkpoints; 0 if operators ask for them.
#[utoipa::path(
    get, path = "/api/consistentregion/region/{region}/period",
    responses((status = 200, body = f64), (status = 404, description = "there is no such region")),
)]
pub(in super::super) async fn period(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<Json<f64>, Refusal> {
    let (_, _, region) = api.consistent_region(&caller, &region)?;
    Ok(Json(seconds(region.spec.period_milliseconds.unwrap_or_default())))
}

/// Seconds that a checkpoint may take.
#[utoipa::path(
    get, path = "/api/consistentregion/region/{region}/draintimeout",
    responses((status = 200, body = f64), (status = 404, description = "there is no such region")),
)]
pub(in super::super) async fn drain_timeout(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<Json<f64>, Refusal> {
    let (_, _, region) = api.consistent_region(&caller, &region)?;
    Ok(Json(seconds(region.spec.drain_timeout_milliseconds)))
}

/// Seconds that a reset may take.
#[utoipa::path(
    get, path = "/api/consistentregion/region/{region}/resettimeout",
    responses((status = 200, body = f64), (status = 404, description = "there is no such region")),
)]
pub(in super::super) async fn reset_timeout(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<Json<f64>, Refusal> {
    let (_, _, region) = api.consistent_region(&caller, &region)?;
    Ok(Json(seconds(region.spec.reset_timeout_milliseconds)))
}

/// How many resets in a row may fail.
#[utoipa::path(
    get, path = "/api/consistentregion/region/{region}/maxconsecutiveresetattempts",
    responses((status = 200, body = u32), (status = 404, description = "there is no such region")),
)]
pub(in super::super) async fn reset_attempts(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<Json<u32>, Refusal> {
    let (_, _, region) = api.consistent_region(&caller, &region)?;
    Ok(Json(region.spec.max_consecutive_reset_attempts))
}

/// What asks for checkpoints.
#[utoipa::path(
    get, path = "/api/consistentregion/region/{region}/trigger",
    responses(
        (status = 200, content_type = "text/plain", body = String, description = "periodic, or operator driven"),
        (status = 404, description = "there is no such region"),
    ),
)]
pub(in super::super) async fn trigger(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
) -> Result<&'static str, Refusal> {
    let (_, _, region) = api.consistent_region(&caller, &region)?;
    Ok(match region.spec.trigger {
        RegionTrigger::Periodic => "periodic",
        RegionTrigger::OperatorDriven => "operator driven",
    })
}

/// What a PE is told by all of its regions.
struct Told {
    document: Document,
    pe: Key,
    member: members::Member,
    /// The launch of the pod that asks; nothing, if somebody else does.
    of_pod: Option<u32>,
}

impl Told {
    /// This is the answer to who asks. It is noted when it is made: whether it arrives, nobody knows (rule
    /// consistent-region-8).
    fn is_heard(&self, api: &PeApi) {
        if let Some(launch) = self.of_pod {
            api.regions.has_answered(&self.pe, &self.member, launch, &self.document);
        }
    }
}

impl PeApi {
    /// The state of a region.
    fn region_state(&self, caller: &Caller, index: &str) -> Result<streams_consistent_region::State, Refusal> {
        let (_, _, region) = self.consistent_region(caller, index)?;
        let state = region.state.as_ref().cloned();
        state.map_err(|error| Refusal::Later(format!("the state cannot be read: {error}")))
    }

    /// What a PE is told, as long as this replica drives the regions: what another one says may be newer.
    fn told(&self, caller: &Caller, pe: &str) -> Result<Told, Refusal> {
        let job = caller.job_of_regions()?;
        let (key, element) = self.pe(caller, job, Number::of_path_or_absent(pe)?)?;
        let member = self.regions.members.get(&key);
        let member = member.ok_or_else(|| Refusal::Absent(format!("PE {pe} of job {job} is in no region")))?;
        let of_pod = caller.speaks_as(job, element.spec.id).map(|speaker| launch(speaker.launch_count)).ok();
        let document = self.regions.document(&key, &member, of_pod.unwrap_or(member.facts.launch));
        if !self.regions.are_driven_here() {
            return Err(Refusal::Later("another replica drives the consistent regions".to_owned()));
        }
        Ok(Told { document, pe: key, member, of_pod })
    }
}

/// Milliseconds as the seconds that the runtime reads.
fn seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}
