//! The long work of jobs: fetching, compiling, writing texts.
//!
//! A reconcile asks for work ([`start`]) and goes on. Workers take it from a queue with one entry per job and kind
//! (rule job-4). The output is kept in memory and wakes the reconciler, which records it. A newer request of the same
//! kind ends the work that is going on and takes its place.
//!
//! Each kind is a type that implements [`LongWork`]:
//!
//! | Module | Work | Leaves behind |
//! |---|---|---|
//! | [`fetch`] | bundle -> ADL | chunks of the ADL |
//! | [`compile`] | ADL, layout, widths -> plan | chunks of the plan |
//! | [`publish`] | plan -> texts, of the proposal or, to repair it, of the committed generation | ConfigMaps, named after their content |
//!
//! [`error`] says why work gave no output; [`hosts`] is what a plan needs to know of nodes.
//!
//! What is left behind is the same however often the work is done, and nobody refers to it until the reconciler has
//! recorded it.

mod compile;
mod error;
mod fetch;
mod hosts;
mod publish;

use std::{fmt, future::Future, sync::Arc};

use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use streams_api::Job;
use streams_kubernetes::{
    self, Key,
    queue::{Outcome, Queue},
};

use super::tasks::{Slot, Task, TaskKind, Tasks};
use crate::controllers::Context;

use self::{
    compile::Compile,
    error::WorkError,
    fetch::Fetch,
    publish::{Publish, Repair},
};

/// One kind of long work.
trait LongWork {
    /// Which one.
    const KIND: TaskKind;
    /// Whether what is left behind says that the work was done, so that its success need not be kept.
    const SHOWS: bool;
    /// What is asked for.
    type Request: Clone + PartialEq + Send + Sync;
    /// What comes of it.
    type Output: Send;

    /// Where its state is kept.
    fn slot(tasks: &mut Tasks) -> &mut Slot<Self::Request, Self::Output>;

    /// The span that it is done in. It continues the trace of whoever is waiting for it.
    fn span(assignment: &Assignment<'_>, request: &Self::Request) -> Span;

    /// Does it.
    fn perform(
        assignment: &Assignment<'_>,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Output, WorkError>> + Send;
}

/// The job that is worked on, and what it takes to do so.
struct Assignment<'a> {
    context: &'a Context,
    key: &'a Key,
    job: &'a Job,
    uid: &'a str,
}

/// An entry of the queue: one per job and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkItem {
    job: Key,
    kind: TaskKind,
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.job, self.kind)
    }
}

/// Asks for long work. Work of this kind that is going on for something else is ended. What a running job waits for
/// (`urgent`) goes first.
pub(crate) fn start(context: &Context, key: &Key, uid: &str, task: &Task, urgent: bool) {
    let kind = match task {
        Task::Fetch(request) => request_work::<Fetch>(context, key, uid, request),
        Task::Compile(request) => request_work::<Compile>(context, key, uid, request),
        Task::Publish(request) => request_work::<Publish>(context, key, uid, request),
        Task::Repair(request) => request_work::<Repair>(context, key, uid, request),
    };
    let item = WorkItem { job: key.clone(), kind };
    if urgent { context.long_work.add_urgent(item) } else { context.long_work.add(item) }
}

fn request_work<W: LongWork>(context: &Context, key: &Key, uid: &str, request: &W::Request) -> TaskKind {
    context.memory.with(key, uid, |entry| {
        *W::slot(&mut entry.tasks) = Slot::Running(request.clone());
        if let Some(earlier) = entry.cancel.remove(&W::KIND) {
            earlier.cancel();
        }
    });
    W::KIND
}

/// Works on the queue until it is closed.
pub(crate) async fn run(context: Arc<Context>, jobs: Queue<Key>) {
    let queue = context.long_work.clone();
    let workers = usize::from(context.jobs.long_workers);
    streams_kubernetes::queue::run(queue, workers, move |item: WorkItem| {
        let (context, jobs) = (Arc::clone(&context), jobs.clone());
        async move {
            work(&context, &item).await;
            jobs.add_urgent(item.job);
            Ok::<_, std::convert::Infallible>(Outcome::Done)
        }
    })
    .await;
}

/// Does the work that is asked for, unless nobody asks for it any more.
async fn work(context: &Context, item: &WorkItem) {
    let key = &item.job;
    let Some(job) = context.mirrors.jobs.get(key) else { return };
    let job = context.memory.latest(key, job);
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let assignment = Assignment { context, key, job: &job, uid: &uid };
    match item.kind {
        TaskKind::Fetch => assignment.carry_out::<Fetch>().await,
        TaskKind::Compile => assignment.carry_out::<Compile>().await,
        TaskKind::Publish => assignment.carry_out::<Publish>().await,
        TaskKind::Repair => assignment.carry_out::<Repair>().await,
    }
}

impl Assignment<'_> {
    /// Does what is asked for of this kind, until it is done or a newer request takes its place.
    async fn carry_out<W: LongWork>(&self) {
        let token = CancellationToken::new();
        let requested = self.context.memory.find(self.key, self.uid, |entry| {
            let request = W::slot(&mut entry.tasks).running().cloned()?;
            entry.cancel.insert(W::KIND, token.clone());
            Some(request)
        });
        let Some(request) = requested.flatten() else { return };
        let span = W::span(self, &request);
        tokio::select! {
            () = token.cancelled() => tracing::debug!(job = %self.key, kind = %W::KIND, "a newer request takes its place"),
            result = W::perform(self, &request).instrument(span) => self.keep::<W>(request, result),
        }
    }

    /// Keeps the result, if it is still asked for.
    fn keep<W: LongWork>(&self, request: W::Request, result: Result<W::Output, WorkError>) {
        self.context.memory.find(self.key, self.uid, |entry| {
            entry.cancel.remove(&W::KIND);
            if W::slot(&mut entry.tasks).running() != Some(&request) {
                return;
            }
            let state = match result {
                Ok(output) => {
                    entry.failures.remove(&W::KIND);
                    // Texts that are written are seen in the mirror; one that a user deletes later is written again.
                    if W::SHOWS { Slot::Idle } else { Slot::Done(request, output) }
                }
                Err(error) => {
                    tracing::warn!(job = %self.key, kind = %W::KIND, reason = %error.reason, "{}", error.message);
                    let failures = entry.failures.entry(W::KIND).or_insert(0);
                    let failure = error.failure(*failures);
                    *failures = failures.saturating_add(1);
                    Slot::Failed(request, failure)
                }
            };
            *W::slot(&mut entry.tasks) = state;
        });
    }
}
