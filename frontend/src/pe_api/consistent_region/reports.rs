//! What PEs report to their regions, and what operators ask of them.
//!
//! A report is taken from PEs of the very job that the region is of (rules pe-api-1 and consistent-region-13): PEs of
//! an earlier one of its name may be there for a while, or for ever.
//!
//! Knows: bodies, that a report counts from its first bytes, how long a PE waits for an answer. Must not know: what a
//! region tells its PEs.

use crate::consistent_regions::members::launch;
use crate::consistent_regions::read::ReadRegion;
use crate::consistent_regions::reports::NotTaken;
use crate::consistent_regions::stored;
use crate::of_job::OfJob;
use crate::pe_api::PeApi;
use crate::pe_api::arriving::{SHORT, Unread};
use crate::pe_api::bodies::Number;
use crate::pe_api::caller::{Caller, Speaker};
use crate::pe_api::refusal::{Refusal, TOO_LATE};
use crate::pe_api::write::WITHIN;
use crate::start_hash::Starts as _;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use std::pin::pin;
use streams_api::names;
use streams_consistent_region::{Event, Member, Progress};
use streams_kubernetes::Key;
use tokio::time::{Instant, timeout, timeout_at};
use utoipa::ToSchema;

/// Longest name of an operator.
const NAME_MAX: usize = 1_024;

/// All operators of a PE have written a checkpoint.
#[utoipa::path(
    put, path = "/api/consistentregion/region/{region}/pe/{pe}/checkpoint", request_body = u64,
    responses(
        (status = 204, description = "what came of it is stored"),
        (status = 400, description = "the body is no sequence id"),
        (status = 403, description = "the caller is not the pod of this PE; the answer comes after 1.5 s"),
        (status = 404, description = "there is no such region"),
        (status = 503, description = "not stored; the answer comes after 1.5 s"),
    ),
)]
pub(in super::super) async fn checkpoint(
    State(api): State<PeApi>,
    caller: Caller,
    Path((region, pe)): Path<(String, String)>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let done = |text: &str| Ok(Progress::CheckpointDone { sequence: sequence(text)? });
    api.progress(&caller, &region, &pe, body, done).await
}

/// What is missing of a PE's checkpoint can be written while tuples are processed.
#[utoipa::path(
    put, path = "/api/consistentregion/region/{region}/pe/{pe}/blockingcheckpoint", request_body = u64,
    responses(
        (status = 204, description = "what came of it is stored"),
        (status = 400, description = "the body is no sequence id"),
        (status = 403, description = "the caller is not the pod of this PE; the answer comes after 1.5 s"),
        (status = 404, description = "there is no such region"),
        (status = 503, description = "not stored; the answer comes after 1.5 s"),
    ),
)]
pub(in super::super) async fn blocking_checkpoint(
    State(api): State<PeApi>,
    caller: Caller,
    Path((region, pe)): Path<(String, String)>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let done = |text: &str| Ok(Progress::BlockingCheckpointDone { sequence: sequence(text)? });
    api.progress(&caller, &region, &pe, body, done).await
}

/// That all operators of a PE have gone back.
#[derive(Debug, Deserialize, ToSchema)]
pub(in super::super) struct ResetDone {
    progress: ResetProgress,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ResetProgress {
    /// Number of the checkpoint.
    seq_id: String,
    /// The attempt that the PE was told.
    reset_attempt: String,
}

/// All operators of a PE have gone back to a checkpoint.
#[utoipa::path(
    put, path = "/api/consistentregion/region/{region}/pe/{pe}/reset", request_body = ResetDone,
    responses(
        (status = 204, description = "what came of it is stored"),
        (status = 400, description = "the body cannot be read"),
        (status = 403, description = "the caller is not the pod of this PE; the answer comes after 1.5 s"),
        (status = 404, description = "there is no such region"),
        (status = 503, description = "not stored; the answer comes after 1.5 s"),
    ),
)]
pub(in super::super) async fn reset_done(
    State(api): State<PeApi>,
    caller: Caller,
    Path((region, pe)): Path<(String, String)>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let done = |text: &str| {
        let ResetDone { progress } = read(text)?;
        let attempt = progress.reset_attempt.parse();
        let attempt = attempt.map_err(|_| Refusal::Invalid("resetAttempt is a number in quotes".to_owned()))?;
        Ok(Progress::ResetDone { sequence: sequence(&progress.seq_id)?, attempt })
    };
    api.progress(&caller, &region, &pe, body, done).await
}

/// That an operator has begun to drain its region.
#[derive(Debug, Deserialize, ToSchema)]
pub(in super::super) struct DrainRequest {
    request: DrainRequested,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DrainRequested {
    /// The sequence id that it drains with.
    seq_id: String,
    /// Full name of the operator.
    operator: String,
}

/// An operator has begun to drain its region.
#[utoipa::path(
    put, path = "/api/consistentregion/region/{region}/drain", request_body = DrainRequest,
    responses(
        (status = 204, description = "what came of it is stored"),
        (status = 400, description = "the body cannot be read"),
        (status = 403, description = "the caller is no PE of the region; the answer comes after 1.5 s"),
        (status = 404, description = "there is no such region"),
        (status = 503, description = "not stored; the answer comes after 1.5 s"),
    ),
)]
pub(in super::super) async fn drain(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let drain = |by, text: &str| {
        let DrainRequest { request } = read(text)?;
        Ok(Event::Drain { by, operator: name(request.operator)?, sequence: sequence(&request.seq_id)? })
    };
    api.requested(&caller, &region, body, drain).await
}

/// That an operator asks for a reset.
#[derive(Debug, Deserialize, ToSchema)]
pub(in super::super) struct ResetRequest {
    request: ResetRequested,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ResetRequested {
    /// Full name of the operator.
    operator: String,
    /// "true" if attempts are to be counted anew.
    force: String,
}

/// An operator asks for a reset of its region.
#[utoipa::path(
    put, path = "/api/consistentregion/region/{region}/reset", request_body = ResetRequest,
    responses(
        (status = 204, description = "what came of it is stored"),
        (status = 400, description = "the body cannot be read"),
        (status = 403, description = "the caller is no PE of the region; the answer comes after 1.5 s"),
        (status = 404, description = "there is no such region"),
        (status = 503, description = "not stored; the answer comes after 1.5 s"),
    ),
)]
pub(in super::super) async fn reset(
    State(api): State<PeApi>,
    caller: Caller,
    Path(region): Path<String>,
    body: Unread,
) -> Result<StatusCode, Refusal> {
    let reset = |by, text: &str| {
        let ResetRequest { request } = read(text)?;
        name(request.operator)?;
        let is_forced = match request.force.as_str() {
            "true" => true,
            "false" => false,
            _ => return Err(Refusal::Invalid("force is \"true\" or \"false\"".to_owned())),
        };
        Ok(Event::Reset { by: Some(by), is_forced })
    };
    api.requested(&caller, &region, body, reset).await
}

/// Who reports to a region.
struct Reporter<'a> {
    /// The pod, if it may.
    speaker: Result<&'a Speaker, Refusal>,
    /// It is a pod of the job of the region, or may be.
    may_be_of_job: bool,
}

impl<'a> Reporter<'a> {
    fn of(caller: &Caller, region: &ReadRegion, speaker: Result<&'a Speaker, Refusal>) -> Self {
        Self { speaker, may_be_of_job: caller.may_be_of(job(region)) }
    }
}

/// The job of a region: its name, and which one of the name it is.
fn job(region: &ReadRegion) -> (&str, &OfJob) {
    (&region.spec.job_name, &region.of_job)
}

/// Whether an operator asks for a drain that may not. Nothing would come of it, and it would end the time in which
/// reports of the region wait for each other: the runtime sends it for each operator with which a region starts, at
/// each drain (rule consistent-region-9). While somebody else has changed the region, what it says counts for nothing
/// (rule consistent-region-13).
fn comes_to_nothing(region: &ReadRegion, event: &Event) -> bool {
    let Event::Drain { operator, .. } = event else { return false };
    !region.spec.is_changed_by_others(&region.metadata) && !stored::settings(&region.spec).may_drain(operator)
}

impl PeApi {
    /// A PE reports how far it is.
    async fn progress(
        &self,
        caller: &Caller,
        region: &str,
        pe: &str,
        body: Unread,
        progress: impl FnOnce(&str) -> Result<Progress, Refusal>,
    ) -> Result<StatusCode, Refusal> {
        let since = Instant::now();
        let (_, key, region) = self.consistent_region(caller, region)?;
        let pe = Number::of_path_or_absent(pe)?;
        let reporter = Reporter::of(caller, &region, caller.speaks_as_of(job(&region), pe));
        drop(region);
        self.report(since, &key, reporter, body, |by, text| Ok(Event::Report(by, progress(text)?))).await
    }

    /// A PE asks for something.
    async fn requested(
        &self,
        caller: &Caller,
        region: &str,
        body: Unread,
        event: impl FnOnce(Member, &str) -> Result<Event, Refusal>,
    ) -> Result<StatusCode, Refusal> {
        let since = Instant::now();
        let (_, key, region) = self.consistent_region(caller, region)?;
        let reporter = Reporter::of(caller, &region, caller.speaks_as_one_of(job(&region), &region.spec.pe_ids));
        drop(region);
        self.report(since, &key, reporter, body, event).await
    }

    /// Waits until what comes of a report is stored. The runtime reports once: what is not stored then is lost, and the
    /// region makes up for it by a reset. The region may be large, so nobody has it while the body is long in coming.
    async fn report(
        &self,
        since: Instant,
        key: &Key,
        reporter: Reporter<'_>,
        body: Unread,
        event: impl FnOnce(Member, &str) -> Result<Event, Refusal>,
    ) -> Result<StatusCode, Refusal> {
        let speaker = match reporter.speaker {
            Ok(speaker) => speaker,
            Err(refusal) => {
                // It may be the pod, and only this replica does not know yet. A stranger is not.
                if reporter.may_be_of_job {
                    drop(self.regions.reports.heard(key));
                }
                return Err(refusal.unheard(since).await);
            }
        };
        // The body may be long in coming, and that of another job of the name be there by then.
        let is_its_region = || self.regions.read.get(key).is_some_and(|region| speaker.is_of(&region.of_job));
        // Before anything is awaited: a PE that gives up has reported nevertheless, and then this is dropped.
        let heard = self.regions.reports.heard(key);
        let mut reading = pin!(body.text(SHORT));
        let read = match timeout_at(since + TOO_LATE, &mut reading).await {
            Ok(read) => read,
            Err(_) => {
                // The PE has given up, perhaps before it has sent all.
                if is_its_region() {
                    heard.leave_gap();
                }
                reading.await
            }
        };
        if !is_its_region() {
            heard.comes_to_nothing();
            return Err(Refusal::Absent("the region is gone".to_owned()).unheard(since).await);
        }
        let (text, _memory) = match read {
            Ok(read) => read,
            Err(refusal) => {
                drop(heard);
                return Err(refusal.unheard_if_it_passes(since).await);
            }
        };
        let by = Member { pe: speaker.pe, launch: launch(speaker.launch_count) };
        let event = match event(by, &text) {
            Ok(event) => event,
            Err(refusal) => {
                heard.comes_to_nothing();
                return Err(refusal);
            }
        };
        let comes_to_nothing = || self.regions.read.get(key).is_some_and(|region| comes_to_nothing(&region, &event));
        if self.regions.are_driven_here() {
            // The runtime looks up where it reports for each report, but keeps where it asks for a minute. So what it
            // reports next comes here as well, though it may still ask somewhere else.
            let pe = key.sibling(&names::processing_element(&speaker.job, speaker.pe));
            self.regions.answered.has_come(&pe, by.launch);
            if comes_to_nothing() {
                heard.comes_to_nothing();
                return Ok(StatusCode::NO_CONTENT);
            }
        } else if comes_to_nothing() {
            // Nothing is lost, so the next leader need not hear of it.
            heard.comes_to_nothing();
            return Err(Refusal::Later(NotTaken::NotDriven.to_string()).unheard(since).await);
        }
        let stored = timeout(WITHIN, self.regions.reports.report(heard, by.pe, event)).await;
        let refusal = match stored {
            Ok(Ok(())) => return Ok(StatusCode::NO_CONTENT),
            Ok(Err(not_taken)) => Refusal::Later(not_taken.to_string()),
            Err(_) => Refusal::Later("it takes too long to store it".to_owned()),
        };
        Err(refusal.unheard(since).await)
    }
}

fn sequence(text: &str) -> Result<u64, Refusal> {
    text.trim().parse().map_err(|_| Refusal::Invalid("a sequence id is a number that is not negative".to_owned()))
}

fn name(operator: String) -> Result<String, Refusal> {
    if operator.len() <= NAME_MAX {
        Ok(operator)
    } else {
        Err(Refusal::Invalid(format!("the name of an operator has {NAME_MAX} bytes at most")))
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, Refusal> {
    serde_json::from_str(body).map_err(|error| Refusal::Invalid(format!("the body cannot be read: {error}")))
}
