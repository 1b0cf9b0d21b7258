//! The state of the instance: jobs, PEs, operators, ports and connections of the caller's namespace (rule pe-api-10).
//!
//! There may be thousands of PEs, so nothing of it is in memory as a whole: the answer is made piece by piece, as fast
//! as the caller reads it, and never on a thread that serves others. What of a piece needs a lock is looked at first,
//! on a thread like any other, where no object is read: there may be hundreds of long jobs. It is read and written on
//! one that makes way for everything else, each job once, in passing: who captures time and again keeps none unpacked.
//!
//! Between two pieces a caller may take its time, and objects are as large as their users make them. So a capture has
//! numbers and names then, and no object: each is what the mirror shows when its piece is made.
//!
//! Knows: what the mirrors and boards show. Must not know: how it is written, HTTP.
//!
//! Invariants: jobs are sorted by number, PEs of a job by number, ports and connections by theirs; a piece has
//! [`PIECE`] bytes at most, and what it ends with; at most [`AT_ONCE`] pieces are made at the same time, of one
//! namespace [`AT_ONCE_OF_ONE`]. A capture has its place until its last byte was sent.

use super::PeApi;
use super::caller::Caller;
use super::callers::{Asker, Tenant};
use super::documents::{
    ConnectionState, Document, Form, InputPortState, InstanceState, JobState, OperatorState, OutputPortState, PeState,
    RegionState,
};
use super::lookup::PortObject;
use super::memory::{holding, whose};
use super::refusal::Refusal;
use crate::fair_semaphore::FairSemaphore;
use crate::made_by_job::is_region_of;
use crate::mirrors::ByOwner;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use streams_api::{Connectivity, Job, JobPhase, PePhase, ProcessingElement, Termination, TerminationOutcome, names};
use streams_broker::{Pe, Receivers};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controller;
use streams_kubernetes::watch::Kept;
use streams_places::{Place, Places};
use streams_process::background;
use tokio::task::spawn_blocking;

/// Bytes after which a piece of the answer ends.
const PIECE: usize = 64 << 10;
/// Parts of the answer, such as PEs, that are looked at for one piece.
const PARTS_OF_PIECE: usize = 64;
/// Connections after which no more is looked at for one piece.
const CONNECTIONS_OF_PIECE: usize = 4_096;
/// Pieces that are made at the same time, in all and for one namespace.
const AT_ONCE: usize = 2;
const AT_ONCE_OF_ONE: usize = 1;
/// Captures that go on at the same time, each of which may have a piece that was not read yet; of one namespace a
/// quarter.
const CAPTURES: usize = 256;
/// Captures of one address.
const CAPTURES_OF_ADDRESS: usize = 8;
/// Connections of a PE that are shown.
const CONNECTIONS_OF_PE: usize = 4_096;
/// The user of all jobs: nobody knows another one.
const USER: &str = "streams";
/// Exit codes of processes that a signal has ended are this, and the number of the signal.
const SIGNALLED: i32 = 128;

/// Which captures go on, and whose turn it is. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Captures {
    places: Places<Tenant, IpAddr>,
    pub(super) turns: FairSemaphore,
}

impl Default for Captures {
    fn default() -> Self {
        let turns = FairSemaphore::new(AT_ONCE, AT_ONCE_OF_ONE);
        Self { places: Places::new(CAPTURES, CAPTURES_OF_ADDRESS), turns }
    }
}

impl Captures {
    /// A place for one more.
    fn begin(&self, asker: &Asker) -> Result<Place<Tenant, IpAddr>, Refusal> {
        let words = |full| Refusal::Later(format!("too many captures {} go on now, try again", whose(full)));
        self.places.take(&asker.namespace, &asker.address).map_err(words)
    }

    /// How many go on.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.places.taken()
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
        (status = 503, description = "the mirrors are not filled, or too many ask"),
    ),
)]
pub(super) async fn capture(State(api): State<PeApi>, caller: Caller, headers: HeaderMap) -> Result<Response, Refusal> {
    let form = Form::accepted(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default());
    let asker = api.callers.asker(caller.address);
    let place = Arc::new(api.captures.begin(&asker)?);
    let (turns, owner) = (api.captures.turns.clone(), asker.owner());
    let (document, left, parts) = (Document::new(form), Some(Left::All), VecDeque::new());
    let walk = Walk { api, caller, document, left, parts, in_job: None };
    // A piece is made when the caller has read the one before.
    let pieces = stream::try_unfold(walk, move |mut walk| {
        let (turns, owner, place) = (turns.clone(), owner.clone(), Arc::clone(&place));
        async move {
            if walk.is_over() {
                return Ok(None);
            }
            let turn = turns.acquire_for(owner).await;
            let looked = spawn_blocking(move || {
                let sources = walk.look();
                (walk, sources, turn)
            });
            let (mut walk, sources, turn) = looked.await.map_err(io::Error::other)?;
            let written = background::spawn(move || {
                let _turn = turn;
                (walk.write(sources), walk)
            });
            let (piece, walk) = written.await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(Some((holding(piece?, place), walk)))
        }
    });
    Ok(([(CONTENT_TYPE, form.media_type())], Body::from_stream(pieces)).into_response())
}

/// What of the answer was made, and what is to come.
struct Walk {
    api: PeApi,
    caller: Caller,
    document: Document,
    /// What was not looked at. `None`: nothing.
    left: Option<Left>,
    /// What was looked at, and not written yet.
    parts: VecDeque<Part>,
    /// The uid of the job that was begun, and not ended. Another one of its name may come.
    in_job: Option<String>,
}

/// A job whose turn has come.
struct CapturedJob {
    id: u64,
    key: Key,
}

/// What is to be looked at.
enum Left {
    All,
    /// The jobs of these numbers and names.
    Jobs(VecDeque<(u64, Arc<str>)>),
    /// The PEs of these numbers of a job, and the jobs after it.
    Pes {
        job: Arc<CapturedJob>,
        pes: VecDeque<u64>,
        jobs: VecDeque<(u64, Arc<str>)>,
    },
}

/// A part of the answer, as it was looked at.
enum Part {
    Begin,
    /// A job, and the number of the first of its PEs.
    BeginJob {
        job: Arc<CapturedJob>,
        first: Option<u64>,
    },
    /// A PE of a job, and who imports from it.
    Pe {
        job: Arc<CapturedJob>,
        id: u64,
        connections: Connections,
    },
    EndJob,
    End,
}

/// Who imports from a PE, by its ports.
type Connections = BTreeMap<u32, Vec<ConnectionState>>;

/// What a part is written from, as the mirrors show it when its piece is made.
#[derive(Default)]
struct Source {
    /// The job, if it begins.
    job: Option<Kept<Job>>,
    /// The PE, or the first of the job.
    pe: Option<Kept<ProcessingElement>>,
}

impl Walk {
    /// Whether all was written.
    fn is_over(&self) -> bool {
        self.left.is_none() && self.parts.is_empty()
    }

    /// Looks at what comes next, if all that was looked at is written: as much as a piece may have. Returns what it is
    /// written from. It takes locks that others wait for, and reads no object.
    fn look(&mut self) -> Vec<Source> {
        if self.parts.is_empty() {
            let mut connections = 0;
            while self.parts.len() < PARTS_OF_PIECE && connections < CONNECTIONS_OF_PIECE {
                let Some(left) = self.left.take() else { break };
                let (part, left) = self.next(left);
                if let Part::Pe { connections: of_pe, .. } = &part {
                    connections += of_pe.values().map(Vec::len).sum::<usize>();
                }
                self.parts.push_back(part);
                self.left = left;
            }
        }
        self.parts.iter().map(|part| self.source(part)).collect()
    }

    /// The first part of what is left, and the rest.
    fn next(&self, left: Left) -> (Part, Option<Left>) {
        match left {
            Left::All => {
                let jobs = self.api.job_names.of_namespace(&self.caller.namespace);
                (Part::Begin, Some(Left::Jobs(jobs.into())))
            }
            Left::Jobs(mut jobs) => match jobs.pop_front() {
                None => (Part::End, None),
                Some((id, name)) => {
                    let key = Key::new(&self.caller.namespace, &name);
                    let pes = self.pes(&key);
                    let (job, first) = (Arc::new(CapturedJob { id, key }), pes.front().copied());
                    (Part::BeginJob { job: Arc::clone(&job), first }, Some(Left::Pes { job, pes, jobs }))
                }
            },
            Left::Pes { job, mut pes, jobs } => match pes.pop_front() {
                None => (Part::EndJob, Some(Left::Jobs(jobs))),
                Some(id) => {
                    let of = Pe { job: Arc::clone(&job.key.name), id };
                    // None, as long as they are not known, or if they are too many.
                    let receivers = self.api.boards.receivers(&self.caller.namespace, &of).unwrap_or_default();
                    let connections = connections(&receivers);
                    (Part::Pe { job: Arc::clone(&job), id, connections }, Some(Left::Pes { job, pes, jobs }))
                }
            },
        }
    }

    /// What a part is written from now.
    fn source(&self, part: &Part) -> Source {
        match part {
            Part::BeginJob { job, first } => {
                let pe = first.and_then(|id| self.kept_pe(job, id));
                Source { job: self.api.mirrors.jobs.kept(&job.key), pe }
            }
            Part::Pe { job, id, .. } => Source { job: None, pe: self.kept_pe(job, *id) },
            Part::Begin | Part::EndJob | Part::End => Source::default(),
        }
    }

    fn kept_pe(&self, job: &CapturedJob, id: u64) -> Option<Kept<ProcessingElement>> {
        let key = job.key.sibling(&names::processing_element(&job.key.name, id));
        self.api.mirrors.processing_elements.kept(&key)
    }

    /// Writes what was looked at, until a piece is full, from these sources. Takes time: it reads objects.
    fn write(&mut self, sources: Vec<Source>) -> io::Result<Vec<u8>> {
        for Source { job, pe } in sources {
            if self.document.written() >= PIECE {
                break;
            }
            let Some(part) = self.parts.pop_front() else { break };
            match part {
                Part::Begin => {
                    let id = self.caller.namespace.clone();
                    self.document.begin(&InstanceState { id, request_time: Timestamp::now().as_second() })?;
                }
                Part::BeginJob { job: captured, .. } => {
                    let job = job.and_then(|job| job.read_in_passing());
                    // Another one of its name has another number.
                    if let Some(job) = job.filter(|job| number_of(job) == Some(captured.id)) {
                        let first = pe.and_then(|pe| pe.read());
                        self.document.begin_job(&self.job(captured.id, &job, first.as_deref()))?;
                        self.in_job = Some(job.metadata.uid.clone().unwrap_or_default());
                    }
                }
                Part::Pe { connections, .. } => {
                    // One that cannot be read is of a newer version.
                    let pe = pe.filter(|_| self.in_job.is_some()).and_then(|pe| pe.read());
                    if let Some(pe) = pe.filter(|pe| self.is_of_begun(pe)) {
                        self.document.pe(&self.pe(&pe, connections), pe.spec.job_id)?;
                    }
                }
                Part::EndJob => {
                    // Else the job went before it was begun.
                    if self.in_job.take().is_some() {
                        self.document.end_job()?;
                    }
                }
                Part::End => self.document.end()?,
            }
        }
        Ok(self.document.take())
    }

    /// Whether the job that was begun controls this PE.
    fn is_of_begun(&self, pe: &ProcessingElement) -> bool {
        let owner = controller(&pe.metadata).map(|owner| &owner.uid);
        owner.is_some() && owner == self.in_job.as_ref()
    }

    /// Numbers of the PEs of a job, with which their names end.
    fn pes(&self, job: &Key) -> VecDeque<u64> {
        let number = |name: &Key| {
            let id = name.name.strip_prefix(&*job.name)?.strip_prefix('-')?.parse::<u64>().ok()?;
            (names::processing_element(&job.name, id) == *name.name).then_some(id)
        };
        let pes = self.api.mirrors.processing_elements.kept_of_job(job).into_iter();
        let mut pes: Vec<_> = pes.filter_map(|(name, _)| number(&name)).collect();
        pes.sort_unstable();
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
        let mut regions: Vec<_> = regions.filter(|region| is_region_of(region, job)).collect();
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

    fn pe(&self, pe: &ProcessingElement, connections: Connections) -> PeState {
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
        let connected = match connectivity {
            Connectivity::Full => "connected",
            Connectivity::Partial => "partiallyConnected",
            Connectivity::None => "disconnected",
        };
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
            required_connections: connected,
            optional_connections: connected,
            launch_count: status.launch_count,
            operator_count: spec.operator_count,
            operators: operators.collect(),
            input_ports: inputs.into_iter().map(|index| InputPortState { index }).collect(),
            output_ports: self.outputs(pe, connections),
            endpoints: status.endpoints,
        }
    }

    /// The exported ports, and who imports from them.
    fn outputs(&self, pe: &ProcessingElement, mut ports: Connections) -> Vec<OutputPortState> {
        for port in &pe.spec.exported_ports {
            ports.entry(*port).or_default();
        }
        let port = |(index, connections)| {
            let export = PortObject::export(&self.caller.namespace, &pe.spec.job_name, pe.spec.id, index);
            let export = export.read_here(&self.api);
            let stream_name = export.and_then(|export| export.spec.stream.name.clone());
            OutputPortState { index, stream_name, connections }
        };
        ports.into_iter().map(port).collect()
    }
}

/// Who imports from a PE, without what they import.
fn connections(receivers: &Receivers) -> Connections {
    let mut ports = Connections::new();
    for (export, imports) in receivers {
        let importers = imports.iter().map(|import| ConnectionState {
            input_job_id: import.job_id,
            input_pe_id: import.port.pe.id,
            input_port_index: import.port.id,
            required: false,
        });
        let connections = ports.entry(export.port.id).or_default();
        connections.extend(importers);
        connections.sort_unstable();
    }
    let mut rest = CONNECTIONS_OF_PE;
    for connections in ports.values_mut() {
        connections.truncate(rest);
        connections.shrink_to_fit();
        rest -= connections.len();
    }
    ports
}

/// The number of a job.
fn number_of(job: &Job) -> Option<u64> {
    job.status.as_ref()?.job_id
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
