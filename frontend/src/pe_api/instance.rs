//! The state of the instance: jobs, PEs, operators, ports and connections of the caller's namespace (rule pe-api-10).
//!
//! There may be thousands of PEs, so nothing of it is in memory as a whole: the answer is made piece by piece, as fast
//! as the caller reads it, and never on a thread that serves others.
//!
//! Knows: what the mirrors and boards show. Must not know: how it is written, HTTP.
//!
//! Invariants: jobs are sorted by number, PEs of a job by number, ports and connections by theirs; a piece has
//! [`PES_OF_PIECE`] PEs at most; at most [`AT_A_TIME`] pieces are made at the same time.

use super::PeApi;
use super::caller::Caller;
use super::documents::{
    ConnectionState, Document, Form, InputPortState, InstanceState, JobState, OperatorState, OutputPortState, PeState,
    RegionState,
};
use super::refusal::Refusal;
use crate::mirrors::ByOwner;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use streams_api::{Connectivity, Job, JobPhase, PePhase, ProcessingElement, Termination, TerminationOutcome};
use streams_broker::{Pe, Routes};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::Kept;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// PEs that are read for one piece of the answer.
const PES_OF_PIECE: usize = 64;
/// Pieces that are made at the same time, for all callers.
const AT_A_TIME: usize = 2;
/// Connections of a PE that are shown: a piece may have 64 times as many.
const CONNECTIONS_OF_PE: usize = 4_096;
/// The user of all jobs: nobody knows another one.
const USER: &str = "streams";
/// Exit codes of processes that a signal has ended are this, and the number of the signal.
const SIGNALLED: i32 = 128;

/// Bounds what is made at the same time. Cheap to clone.
#[derive(Clone)]
pub(super) struct Captures(Arc<Semaphore>);

impl Default for Captures {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_A_TIME)))
    }
}

/// Jobs, PEs, operators, ports and connections of the namespace.
#[utoipa::path(
    get, path = "/api/state",
    responses(
        (
            status = 200, description = "the state of the namespace; as JSON, if the caller accepts that first",
            content((String = "application/xml"), (Object = "application/json")),
        ),
        (status = 503, description = "the mirrors are not filled"),
    ),
)]
pub(super) async fn capture(State(api): State<PeApi>, caller: Caller, headers: HeaderMap) -> Result<Response, Refusal> {
    let form = Form::accepted(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default());
    let walk =
        Walk { document: Document::new(form), captures: api.captures.clone(), next: Some(Next::Begin), api, caller };
    // A piece is made when the caller has read the one before.
    let pieces = stream::try_unfold(walk, |mut walk| async move {
        let permit = Arc::clone(&walk.captures.0).acquire_owned().await.map_err(io::Error::other)?;
        let made = spawn_blocking(move || {
            let piece = walk.piece();
            (piece, walk)
        });
        let (piece, walk) = made.await.map_err(io::Error::other)?;
        drop(permit);
        Ok::<_, io::Error>(piece?.map(|piece| (Bytes::from(piece), walk)))
    });
    Ok(([(CONTENT_TYPE, form.media_type())], Body::from_stream(pieces)).into_response())
}

/// What of the answer was made, and what is to come.
struct Walk {
    api: PeApi,
    caller: Caller,
    captures: Captures,
    document: Document,
    /// `None`: the answer is complete.
    next: Option<Next>,
}

/// What comes next.
enum Next {
    Begin,
    /// A job, of those that are left.
    Job(VecDeque<(u64, Arc<Job>)>),
    /// PEs of a job, of those that are left; and the jobs after it.
    Pes {
        job: Arc<Job>,
        pes: VecDeque<(u64, Kept<ProcessingElement>)>,
        jobs: VecDeque<(u64, Arc<Job>)>,
    },
}

impl Walk {
    /// The next piece; `None` if there is none. Takes time: it reads objects.
    fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        let next = match self.next.take() {
            None => return Ok(None),
            Some(Next::Begin) => {
                let id = self.caller.namespace.clone();
                self.document.begin(&InstanceState { id, request_time: Timestamp::now().as_second() })?;
                Some(Next::Job(self.jobs()))
            }
            Some(Next::Job(mut jobs)) => match jobs.pop_front() {
                None => {
                    self.document.end()?;
                    None
                }
                Some((id, job)) => {
                    let pes = self.pes(&job);
                    let first = pes.front().and_then(|(_, pe)| pe.read());
                    self.document.begin_job(&self.job(id, &job, first.as_deref()))?;
                    Some(Next::Pes { job, pes, jobs })
                }
            },
            Some(Next::Pes { job, mut pes, jobs }) => {
                for (_, pe) in pes.drain(..pes.len().min(PES_OF_PIECE)) {
                    // One that cannot be read is of a newer version.
                    if let Some(pe) = pe.read().filter(|pe| is_controlled_by(&pe.metadata, &*job)) {
                        self.document.pe(&self.pe(&pe), pe.spec.job_id)?;
                    }
                }
                if pes.is_empty() {
                    self.document.end_job()?;
                    Some(Next::Job(jobs))
                } else {
                    Some(Next::Pes { job, pes, jobs })
                }
            }
        };
        self.next = next;
        Ok(Some(self.document.take()))
    }

    /// Jobs of the namespace that have a number, by their numbers.
    fn jobs(&self) -> VecDeque<(u64, Arc<Job>)> {
        let jobs = self.api.mirrors.jobs.of_namespace(&self.caller.namespace);
        let numbered = jobs.filter_map(|job| Some((job.status.as_ref()?.job_id?, job)));
        let mut numbered: Vec<_> = numbered.collect();
        numbered.sort_by(|(one, a), (other, b)| (one, &a.metadata.name).cmp(&(other, &b.metadata.name)));
        numbered.into()
    }

    /// PEs of a job by their numbers, which their names end with.
    fn pes(&self, job: &Job) -> VecDeque<(u64, Kept<ProcessingElement>)> {
        let key = Key::of(job);
        let number = |name: &Key| name.name.strip_prefix(&*key.name)?.strip_prefix('-')?.parse::<u64>().ok();
        let pes = self.api.mirrors.processing_elements.kept_of_job(&key).into_iter();
        let mut pes: Vec<_> = pes.filter_map(|(name, pe)| Some((number(&name)?, pe))).collect();
        pes.sort_by_key(|(id, _)| *id);
        pes.into()
    }

    fn job(&self, id: u64, job: &Job, first: Option<&ProcessingElement>) -> JobState {
        let status = job.status.clone().unwrap_or_default();
        let state = match status.phase {
            _ if job.metadata.deletion_timestamp.is_some() => "cancelling",
            Some(JobPhase::Failed) => "failed",
            None | Some(JobPhase::Pending | JobPhase::Submitting) => "constructed",
            Some(JobPhase::Running | JobPhase::Degraded | JobPhase::Suspended) => "running",
        };
        let figures = status.statistics.unwrap_or_default();
        let all = figures.processing_elements;
        let health_summary = match (figures.ready_processing_elements, figures.connected_processing_elements) {
            (0, _) => "unhealthy",
            (ready, connected) if ready == all && connected == all => "healthy",
            _ => "partiallyUnhealthy",
        };
        let key = Key::of(job);
        let regions = self.api.mirrors.parallel_regions.of_job(&key);
        let mut regions: Vec<_> = regions.filter(|region| is_controlled_by(&region.metadata, job)).collect();
        regions.sort_by_key(|region| region.spec.index);
        let regions = regions.iter().map(|region| RegionState {
            name: region.spec.name.clone(),
            width: region.spec.width,
            applied_width: region.status.as_ref().and_then(|status| status.width),
        });
        JobState {
            id,
            name: job.metadata.name.clone().unwrap_or_default(),
            application_name: first.map(|pe| pe.spec.application_name.clone()).unwrap_or_default(),
            state,
            health_summary,
            user: USER,
            submit_time: job.metadata.creation_timestamp.as_ref().map_or(0, |at| at.0.as_second()),
            parallel_regions: regions.collect(),
        }
    }

    fn pe(&self, pe: &ProcessingElement) -> PeState {
        let spec = &pe.spec;
        let status = pe.status.clone().unwrap_or_default();
        let connectivity = status.connectivity();
        let state = match status.phase {
            _ if pe.metadata.deletion_timestamp.is_some() => "stopping",
            None | Some(PePhase::Waiting) => "constructed",
            Some(PePhase::Starting) => "starting",
            Some(PePhase::Running) => "running",
            Some(PePhase::BackOff | PePhase::Replacing) => "restarting",
            Some(PePhase::Completed | PePhase::Failed | PePhase::Stopped | PePhase::Suspended) => "stopped",
        };
        let health_summary = match (state, connectivity) {
            ("running", Connectivity::Full) => "healthy",
            ("stopped" | "stopping", _) => "unhealthy",
            _ => "partiallyUnhealthy",
        };
        // A PE tells of both together.
        let connections = match connectivity {
            Connectivity::Full => "connected",
            Connectivity::Partial => "partiallyConnected",
            Connectivity::None => "disconnected",
        };
        let of = Pe { job: Arc::from(&*spec.job_name), id: spec.id };
        // None, as long as they are not known, or if they are too many.
        let routes = self.api.boards.routes(&self.caller.namespace, &of).unwrap_or_default();
        let mut inputs = spec.input_ports.clone();
        inputs.sort_unstable();
        let operators = spec.operators.iter().map(|name| OperatorState { name: name.clone() });
        PeState {
            id: spec.id,
            host: status.node_name.clone().unwrap_or_default(),
            process_id: 0,
            state,
            reason_code: reason(status.phase, status.stopped, status.last_termination.as_ref()),
            health_summary,
            required_connections: connections,
            optional_connections: connections,
            launch_count: status.launch_count,
            operator_count: spec.operator_count,
            operators: operators.collect(),
            input_ports: inputs.into_iter().map(|index| InputPortState { index }).collect(),
            output_ports: self.outputs(pe, &routes),
            endpoints: status.endpoints,
        }
    }

    /// The exported ports, and who imports from them.
    fn outputs(&self, pe: &ProcessingElement, routes: &Routes) -> Vec<OutputPortState> {
        let mut ports: BTreeMap<u32, Vec<ConnectionState>> =
            pe.spec.exported_ports.iter().map(|port| (*port, Vec::new())).collect();
        for export in routes.exports.values() {
            let importers = export.entries.values().map(|importer| ConnectionState {
                input_job_id: importer.job_id,
                input_pe_id: importer.pe_id,
                input_port_index: importer.port_id,
                required: false,
            });
            let connections = ports.entry(export.port_id).or_default();
            connections.extend(importers);
            connections.sort_unstable();
        }
        let mut rest = CONNECTIONS_OF_PE;
        for connections in ports.values_mut() {
            connections.truncate(rest);
            rest -= connections.len();
        }
        let port = |(index, connections)| {
            let export = self.api.export(&self.caller, &pe.spec.job_name, pe.spec.id, index).ok();
            let stream_name = export.and_then(|(_, export)| export.spec.stream.name.clone());
            OutputPortState { index, stream_name, connections }
        };
        ports.into_iter().map(port).collect()
    }
}

/// Why a PE is in its state.
fn reason(phase: Option<PePhase>, stopped: bool, last: Option<&Termination>) -> &'static str {
    let of_end = || match last {
        Some(Termination { outcome: TerminationOutcome::Lost, .. }) => "hostFailure",
        Some(Termination { exit_code: Some(code), .. }) if *code > SIGNALLED => "crash",
        Some(Termination { outcome: TerminationOutcome::Failed, .. }) => "failure",
        _ => "none",
    };
    match phase {
        Some(PePhase::Completed) => "voluntary",
        Some(PePhase::Suspended) => "userRequest",
        Some(PePhase::Stopped) if stopped => "userRequest",
        Some(PePhase::Failed | PePhase::Stopped | PePhase::BackOff | PePhase::Replacing) => of_end(),
        None | Some(PePhase::Waiting | PePhase::Starting | PePhase::Running) => "none",
    }
}
