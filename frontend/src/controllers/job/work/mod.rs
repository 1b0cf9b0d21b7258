//! The long work of jobs: fetching, compiling, writing texts.
//!
//! A reconciler asks for work ([`start`]) and goes on; workers take it from a keyed queue, one piece per job and kind
//! at a time (rule job-4). The result is kept in memory and wakes the reconciler, which records it. A newer request of
//! the same kind ends the work that is going on and takes its place.
//!
//! | Module | Work | Leaves behind |
//! |---|---|---|
//! | [`fetch`] | bundle -> ADL | chunks of the ADL |
//! | [`compile`] | ADL, layout, widths -> plan | chunks of the plan |
//! | [`publish`] | plan -> texts | ConfigMaps, named after their content |
//!
//! What is left behind is the same however often the work is done, and nobody refers to it until the reconciler has
//! recorded it.

pub(crate) mod compile;
pub(crate) mod fetch;
pub(crate) mod hosts;
pub(crate) mod publish;

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{bundles, fusion};
use streams_api::Job;
use streams_kubernetes::{
    self, Key,
    queue::{Outcome, Queue},
};
use streams_process::telemetry;

use super::{
    decide::Task,
    documents::WriteError,
    memory::Entry,
    observed::{Failure, Remedy, Slot},
};
use crate::controllers::Context;

/// First delay of a retry; doubled for each further one (rule job-20).
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest delay of a retry.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A kind of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// See [`Task::Fetch`].
    Fetch,
    /// See [`Task::Compile`].
    Compile,
    /// See [`Task::Publish`].
    Publish,
    /// See [`Task::Repair`].
    Repair,
}

/// A piece of long work in the queue: one per job and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Piece {
    job: Key,
    kind: Kind,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Fetch => "fetch",
            Kind::Compile => "compile",
            Kind::Publish => "publish",
            Kind::Repair => "repair",
        };
        write!(f, "{} {kind}", self.job)
    }
}

/// Asks for long work. Work of this kind that is going on for something else is ended. What a running job waits for
/// goes first.
pub(crate) fn start(context: &Context, key: &Key, uid: &str, task: &Task, urgent: bool) {
    let kind = context.memory.with(key, uid, |entry| {
        let work = &mut entry.work;
        let kind = match task {
            Task::Fetch { spec_generation } => {
                work.fetch = Slot::Running(*spec_generation);
                Kind::Fetch
            }
            Task::Compile(compilation) => {
                work.compile = Slot::Running(compilation.clone());
                Kind::Compile
            }
            Task::Publish(publish) => {
                work.publish = Slot::Running(publish.clone());
                Kind::Publish
            }
            Task::Repair(publish) => {
                work.repair = Slot::Running(publish.clone());
                Kind::Repair
            }
        };
        if let Some(earlier) = entry.cancel.remove(&kind) {
            earlier.cancel();
        }
        kind
    });
    let piece = Piece { job: key.clone(), kind };
    if urgent { context.long_work.add_urgent(piece) } else { context.long_work.add(piece) }
}

/// Works on the queue until it is closed.
pub(crate) async fn run(context: Arc<Context>, jobs: Queue<Key>) {
    let queue = context.long_work.clone();
    let workers = usize::from(context.jobs.long_workers);
    streams_kubernetes::queue::run(queue, workers, move |piece: Piece| {
        let (context, jobs) = (Arc::clone(&context), jobs.clone());
        async move {
            work(&context, &piece).await;
            jobs.add_urgent(piece.job);
            Ok::<_, std::convert::Infallible>(Outcome::Done)
        }
    })
    .await;
}

/// Does a piece of work, unless nobody wants it any more.
async fn work(context: &Context, piece: &Piece) {
    let Some(job) = context.mirrors.jobs.get(&piece.job) else { return };
    let job = context.memory.latest(&piece.job, job);
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let token = CancellationToken::new();
    let wish = context.memory.find(&piece.job, &uid, |entry| {
        let task = wish(entry, piece.kind)?;
        entry.cancel.insert(piece.kind, token.clone());
        Some(task)
    });
    let Some(task) = wish.flatten() else { return };
    tokio::select! {
        () = token.cancelled() => tracing::debug!(%piece, "not wanted any more"),
        () = perform(context, &piece.job, &job, &uid, task) => {}
    }
}

/// What is wanted of this kind now.
fn wish(entry: &Entry, kind: Kind) -> Option<Task> {
    match kind {
        Kind::Fetch => running(&entry.work.fetch).map(|key| Task::Fetch { spec_generation: *key }),
        Kind::Compile => running(&entry.work.compile).cloned().map(Task::Compile),
        Kind::Publish => running(&entry.work.publish).cloned().map(Task::Publish),
        Kind::Repair => running(&entry.work.repair).cloned().map(Task::Repair),
    }
}

fn running<K, R>(slot: &Slot<K, R>) -> Option<&K> {
    match slot {
        Slot::Running(key) => Some(key),
        _ => None,
    }
}

async fn perform(context: &Context, key: &Key, job: &Arc<Job>, uid: &str, task: Task) {
    match task {
        Task::Fetch { spec_generation } => {
            let result = fetch::fetch(context, key, job).await;
            let result = result.map(|adl| streams_api::StoredAdl { spec_generation, ..adl });
            finish(context, key, uid, Kind::Fetch, spec_generation, result, |entry| &mut entry.work.fetch);
        }
        Task::Compile(compilation) => {
            let span = tracing::info_span!("compile", job = %key, generation = compilation.generation);
            if let Some(trace) = compile::trace_of(context, key, job, &compilation.target) {
                telemetry::continue_trace(&span, &trace);
            }
            let result = compile::compile(context, key, job, &compilation).instrument(span).await;
            finish(context, key, uid, Kind::Compile, compilation, result, |entry| &mut entry.work.compile);
        }
        Task::Publish(publish) => {
            let span = span_of(context, key, uid, &publish.plan);
            let result = publish::publish(context, key, job, &publish).instrument(span).await;
            finish(context, key, uid, Kind::Publish, publish, result, |entry| &mut entry.work.publish);
            forget_success(context, key, uid, |entry| &mut entry.work.publish);
        }
        Task::Repair(publish) => {
            let span = span_of(context, key, uid, &publish.plan);
            let result = publish::publish(context, key, job, &publish).instrument(span).await;
            finish(context, key, uid, Kind::Repair, publish, result, |entry| &mut entry.work.repair);
            forget_success(context, key, uid, |entry| &mut entry.work.repair);
        }
    }
}

/// A span for writing the texts of a plan, in the trace that the plan was made in.
fn span_of(context: &Context, key: &Key, uid: &str, plan: &str) -> tracing::Span {
    let span = tracing::info_span!("publish", job = %key);
    let trace = context.memory.find(key, uid, |entry| entry.generations.get(plan).map(|g| g.trace_parent.clone()));
    if let Some(trace) = trace.flatten() {
        telemetry::continue_trace(&span, &trace);
    }
    span
}

/// Why a piece of work gave no result; whether to try it again is known, when is not yet.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    pub(crate) retry: bool,
    pub(crate) recompile: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) stage: Option<String>,
    pub(crate) code: Option<String>,
}

impl Unfinished {
    /// Somebody must change what is wanted.
    pub(crate) fn permanent(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self { retry: false, recompile: false, reason, message, stage: None, code: None }
    }

    /// It may work later.
    pub(crate) fn transient(reason: &str, message: impl Into<String>) -> Self {
        Self { retry: true, ..Self::permanent(reason, message) }
    }

    /// The plan's compiler is gone (rule job-21).
    pub(crate) fn recompile(message: impl Into<String>) -> Self {
        Self { recompile: true, ..Self::permanent("OtherCompiler", message) }
    }

    /// The failure after `failures` others in a row.
    fn failure(self, failures: u32) -> Failure {
        let delay = FIRST_RETRY.saturating_mul(1 << failures.min(16)).min(LONGEST_RETRY);
        let at = SignedDuration::try_from(delay).ok().and_then(|delay| Timestamp::now().checked_add(delay).ok());
        let remedy = match (self.recompile, self.retry) {
            (true, _) => Remedy::Recompile,
            (false, true) => Remedy::Retry(at.unwrap_or(Timestamp::MAX)),
            (false, false) => Remedy::Correct,
        };
        Failure { remedy, reason: self.reason, message: self.message, stage: self.stage, code: self.code }
    }
}

impl From<WriteError> for Unfinished {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Kubernetes(error) => error.into(),
            WriteError::Compression(_) | WriteError::Task(_) => Self::transient("Internal", error.to_string()),
        }
    }
}

impl From<streams_kubernetes::Error> for Unfinished {
    fn from(error: streams_kubernetes::Error) -> Self {
        match &error {
            streams_kubernetes::Error::Foreign { .. } => Self::transient("NameTaken", error.to_string()),
            streams_kubernetes::Error::Refused { .. } => Self::permanent("ObjectRefused", error.to_string()),
            _ => Self::transient("ApiServer", error.to_string()),
        }
    }
}

impl From<kube::Error> for Unfinished {
    fn from(error: kube::Error) -> Self {
        streams_kubernetes::Error::from(error).into()
    }
}

impl From<bundles::Error> for Unfinished {
    fn from(error: bundles::Error) -> Self {
        let new = if error.is_transient() { Self::transient } else { Self::permanent };
        new(error.reason(), error.to_string())
    }
}

impl From<fusion::Error> for Unfinished {
    fn from(error: fusion::Error) -> Self {
        let message = error.to_string();
        match error {
            fusion::Error::Rejected { stage, code, .. } => Self {
                stage: Some(stage).filter(|stage| !stage.is_empty()),
                code,
                ..Self::permanent("ApplicationRejected", message)
            },
            fusion::Error::LayoutRejected(_) => Self::permanent("LayoutRejected", message),
            fusion::Error::OtherCompiler(_) => Self::recompile(message),
            fusion::Error::InputMissing(_) | fusion::Error::Internal(_) => Self::transient("FusionFailed", message),
            fusion::Error::Unavailable(_) => Self::transient("FusionUnavailable", message),
            fusion::Error::DeadlineExceeded(_) => Self::transient("FusionDeadlineExceeded", message),
        }
    }
}

/// Keeps what came of the work, if it is still wanted.
fn finish<K: PartialEq + Clone, R>(
    context: &Context,
    key: &Key,
    uid: &str,
    kind: Kind,
    of: K,
    result: Result<R, Unfinished>,
    slot: impl Fn(&mut Entry) -> &mut Slot<K, R>,
) {
    context.memory.find(key, uid, |entry| {
        entry.cancel.remove(&kind);
        if running(slot(entry)) != Some(&of) {
            return;
        }
        let outcome = match result {
            Ok(result) => {
                entry.failures.remove(&kind);
                Slot::Done(of, result)
            }
            Err(unfinished) => {
                tracing::warn!(job = %key, ?kind, reason = %unfinished.reason, "{}", unfinished.message);
                let failures = entry.failures.entry(kind).or_insert(0);
                let failure = unfinished.failure(*failures);
                *failures = failures.saturating_add(1);
                Slot::Failed(of, failure)
            }
        };
        *slot(entry) = outcome;
    });
}

/// Texts that are written are seen in the mirror; one that a user deletes later is written again.
fn forget_success<K>(context: &Context, key: &Key, uid: &str, slot: impl Fn(&mut Entry) -> &mut Slot<K, ()>) {
    context.memory.find(key, uid, |entry| {
        let slot = slot(entry);
        if matches!(slot, Slot::Done(..)) {
            *slot = Slot::Idle;
        }
    });
}
