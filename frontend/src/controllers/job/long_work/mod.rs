//! The long work of jobs: fetching, compiling, writing texts.
//!
//! A reconcile requests work ([`start`]) and goes on. Workers take it from a queue with one entry per job and kind
//! (rule job-4); bundles are fetched from a queue of their own. They keep the output in memory and wake the reconciler,
//! which records it. A newer request of the same kind cancels the work that is under way and takes its place; texts
//! whose plan is not wanted any more are not written to their end.
//!
//! Each kind is a type that implements [`LongWork`]:
//!
//! | Module | Work | Writes |
//! |---|---|---|
//! | [`fetch`] | bundle -> ADL | chunks of the ADL |
//! | [`compile`] | ADL, layout, widths -> plan | chunks of the plan |
//! | [`publish`] | plan -> texts, of a proposal or again of the committed generation | ConfigMaps with texts |
//! | [`renew`] | plan -> texts that are newer than those that PEs run | ConfigMaps with texts |
//!
//! [`early_texts`] has the texts of a resize that need not wait until its plan is recorded. [`dry_run`] compiles and
//! writes nothing, for whoever asks. [`existing_pes`] finds what a resize has to know of the PEs that there are,
//! [`check`] checks plans. [`error`] has the errors of work; [`hosts`] reads the nodes of the cluster, [`redis`] the
//! servers of checkpoints.
//!
//! Work may be repeated. Chunks of the ADL and texts are the same each time; a plan may differ. Nothing refers to
//! chunks until the reconciler has recorded the output; those that it does not record are deleted (rule job-16).
//!
//! Knows: kinds of work, their queues. Must not know: what is decided on their results.

mod check;
mod compile;
pub(crate) mod dry_run;
mod early_texts;
mod error;
mod existing_pes;
mod fetch;
mod hosts;
pub(crate) mod publish;
pub(super) mod redis;
mod renew;

use self::compile::Compile;
use self::error::WorkError;
use self::fetch::Fetch;
use self::publish::{Publish, Repair};
use self::renew::Renew;
use super::MANAGER;
use super::generation::{Generation, Target};
use super::held_up::HeldUp;
use super::memory::Attempt;
use super::off_thread::Thread;
use super::reconciler::JobReconciler;
use super::tasks::{Slot, Task, TaskKind, Tasks, WorkItem};
use futures::future;
use k8s_openapi::jiff::Timestamp;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, StoredPlan};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::queue::{self, Outcome, Queue};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{self, Key, stopwatch};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

/// The kind of thread that computes for a generation of this target.
fn thread_for(target: &Target) -> Thread {
    match target {
        Target::Submission { .. } => Thread::Background,
        Target::Resize { .. } => Thread::Awaited,
    }
}

/// One kind of long work.
trait LongWork {
    /// Which one.
    const KIND: TaskKind;
    /// Whether the mirrors show that the work was done, so that its success need not be kept.
    const RESULT_IS_VISIBLE: bool;
    /// The request.
    type Request: Clone + PartialEq + Send + Sync;
    /// The output.
    type Output: Send;

    /// Whether somebody waits for it, if the job runs. The proposal may be held up.
    fn is_awaited(_: &Self::Request, _: &HeldUp, _: Timestamp) -> bool {
        true
    }

    /// Where its state is kept.
    fn slot(tasks: &mut Tasks) -> &mut Slot<Self::Request, Self::Output>;

    /// The span of the work. It continues the trace of the request that waits for it.
    fn span<C: Cluster>(assignment: &Assignment<'_, C>, request: &Self::Request) -> Span;

    /// Does the work.
    ///
    /// # Errors
    /// See [`WorkError`].
    fn perform<C: Cluster>(
        assignment: &Assignment<'_, C>,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Output, WorkError>> + Send;
}

/// The job that a worker works on, and the reconciler.
struct Assignment<'a, C> {
    reconciler: &'a JobReconciler<C>,
    key: &'a Key,
    job: &'a Job,
    uid: &'a str,
}

/// How often that is let go of jobs which nobody has looked at for long enough.
const LET_REST_EVERY: Duration = Duration::from_secs(10);

/// Requests long work. Cancels work of this kind that is under way for another request. `urgent` work, for a running
/// job, goes first; not texts of a proposal that is held up.
pub(super) fn start<C: Cluster>(reconciler: &JobReconciler<C>, key: &Key, uid: &str, task: &Task, urgent: bool) {
    let now = reconciler.cluster.now();
    let is_held_up = reconciler.memory.find(key, uid, |entry| match task {
        Task::Publish(texts) => entry.held_up.lasts(&texts.plan, now),
        Task::Fetch(_) | Task::Compile(_) | Task::Repair(_) | Task::Renew(_) => false,
    });
    let urgent = urgent && is_held_up != Some(true);
    let kind = match task {
        Task::Fetch(request) => request_work::<Fetch, C>(reconciler, key, uid, request),
        Task::Compile(request) => request_work::<Compile, C>(reconciler, key, uid, request),
        Task::Publish(request) => request_work::<Publish, C>(reconciler, key, uid, request),
        Task::Repair(request) => request_work::<Repair, C>(reconciler, key, uid, request),
        Task::Renew(request) => request_work::<Renew, C>(reconciler, key, uid, request),
    };
    let item = WorkItem { job: key.clone(), kind };
    let queue = if kind == TaskKind::Fetch { &reconciler.downloads } else { &reconciler.long_work };
    match kind {
        _ if urgent => queue.add_urgent(item),
        // Texts of jobs that are compiled go first: such a job is closer to its pods.
        TaskKind::Compile => queue.add_patient(item),
        TaskKind::Fetch | TaskKind::Publish | TaskKind::Repair | TaskKind::Renew => queue.add(item),
    }
}

fn request_work<W: LongWork, C>(reconciler: &JobReconciler<C>, key: &Key, uid: &str, request: &W::Request) -> TaskKind {
    reconciler.memory.with(key, uid, |entry| {
        if W::KIND == TaskKind::Compile {
            entry.note_verdict();
            if let Slot::Running(given_up) = &entry.tasks.compile {
                entry.given_up_for = Some(given_up.generation);
            }
            entry.give_up_storing();
        }
        entry.end(W::KIND);
        *W::slot(&mut entry.tasks) = Slot::Running(request.clone());
    });
    W::KIND
}

/// The priority of the calls of long work (rule call-22). Somebody waits for what a running job has done, unless it is
/// not awaited: texts of a proposal that is held up are not.
fn priority_of(kind: TaskKind, runs: bool, is_awaited: bool) -> Priority {
    match kind {
        _ if !runs => Priority::Preparing,
        TaskKind::Compile => Priority::Awaited,
        TaskKind::Publish if is_awaited => Priority::Awaited,
        TaskKind::Fetch | TaskKind::Repair | TaskKind::Renew if is_awaited => Priority::Urgent,
        TaskKind::Fetch | TaskKind::Publish | TaskKind::Repair | TaskKind::Renew => Priority::Normal,
    }
}

/// Works on both queues until they are closed. Meanwhile what was read of jobs that rest leaves the memory.
pub(super) async fn run<C: Cluster>(reconciler: Arc<JobReconciler<C>>, jobs: Queue<Key>) {
    let settings = &reconciler.settings;
    let of = |queue: &Queue<WorkItem>, workers: u16| {
        let (reconciler, jobs) = (Arc::clone(&reconciler), jobs.clone());
        queue::run(queue.clone(), workers.into(), move |item: WorkItem| {
            let (reconciler, jobs) = (Arc::clone(&reconciler), jobs.clone());
            async move {
                work(&reconciler, &item).await;
                if matches!(item.kind, TaskKind::Compile | TaskKind::Publish) {
                    reconciler.hurries.hurry(&item.job);
                }
                jobs.add_urgent(item.job);
                Ok::<_, Infallible>(Outcome::Done)
            }
        })
    };
    let downloads = of(&reconciler.downloads, settings.download_workers);
    let long_work = of(&reconciler.long_work, settings.long_workers);
    let leave = async {
        loop {
            tokio::time::sleep(LET_REST_EVERY).await;
            reconciler.let_rest();
        }
    };
    tokio::select! {
        _ = future::join(downloads, long_work) => {}
        () = leave => {}
    }
}

/// Does the requested work, if it is still requested.
pub(super) async fn work<C: Cluster>(reconciler: &JobReconciler<C>, item: &WorkItem) {
    let key = &item.job;
    let Some(job) = reconciler.mirrors.jobs.get(key) else { return };
    let job = reconciler.memory.latest(key, job);
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let assignment = Assignment { reconciler, key, job: &job, uid: &uid };
    match item.kind {
        TaskKind::Fetch => assignment.carry_out::<Fetch>().await,
        TaskKind::Compile => assignment.carry_out::<Compile>().await,
        TaskKind::Publish => assignment.carry_out::<Publish>().await,
        TaskKind::Repair => assignment.carry_out::<Repair>().await,
        TaskKind::Renew => assignment.carry_out::<Renew>().await,
    }
}

impl<C: Cluster> Assignment<'_, C> {
    /// Writes into the namespace of the job.
    fn writer(&self) -> Writer<'_, C> {
        Writer { cluster: &self.reconciler.cluster, namespace: &self.key.namespace, manager: MANAGER }
    }

    /// The generation of a stored plan of the job.
    ///
    /// # Errors
    /// It could not be read; the reconciler finds out what is missing.
    async fn generation(&self, plan: &StoredPlan) -> Result<Arc<Generation>, WorkError> {
        let read = self.reconciler.generation(self.key, self.uid, plan).await?;
        read.map_err(|why| WorkError::transient("Outdated", format!("the plan cannot be read any more: {why}")))
    }

    /// Does the requested work of this kind, until it is done or a newer request cancels it.
    async fn carry_out<W: LongWork>(&self) {
        let (token, now) = (CancellationToken::new(), self.reconciler.cluster.now());
        let requested = self.reconciler.memory.find(self.key, self.uid, |entry| {
            let request = W::slot(&mut entry.tasks).running().cloned()?;
            entry.cancel.insert(W::KIND, token.clone());
            Some((W::is_awaited(&request, &entry.held_up, now), request, entry.attempt))
        });
        let Some((is_awaited, request, begun_in)) = requested.flatten() else { return };
        let span = W::span(self, &request);
        let runs = self.job.status.as_ref().is_some_and(|status| status.generation.is_some());
        let priority = priority_of(W::KIND, runs, is_awaited);
        let cluster = self.reconciler.cluster.clone();
        let work = priority.of(W::perform(self, &request)).instrument(span);
        tokio::select! {
            biased;
            () = token.cancelled() => tracing::debug!(job = %self.key, kind = %W::KIND, "nobody wants it any more"),
            (result, worked) = stopwatch::measure(move || cluster.passed(), work) => {
                self.keep::<W>(request, begun_in, result, worked);
            }
        }
    }

    /// Keeps the result, if it is still requested. Only what something came of counts as work on a submission: the rest
    /// was spent on waiting for somebody else (rule job-18).
    fn keep<W: LongWork>(
        &self,
        request: W::Request,
        begun_in: Option<Attempt>,
        result: Result<W::Output, WorkError>,
        worked: Duration,
    ) {
        let submitting = self.job.status.as_ref().is_none_or(|status| status.generation.is_none());
        let is_submission = submitting && !self.job.spec.suspend;
        let applied = self.job.status.iter().flat_map(|status| &status.applied_widths);
        let applied = applied.map(|applied| (applied.region.clone(), applied.width)).collect();
        self.reconciler.memory.find(self.key, self.uid, |entry| {
            entry.cancel.remove(&W::KIND);
            if W::slot(&mut entry.tasks).running() != Some(&request) {
                return;
            }
            if W::KIND == TaskKind::Compile {
                if result.is_ok() {
                    drop(entry.tasks.end_storing());
                } else {
                    entry.give_up_storing();
                }
            }
            if is_submission && result.is_ok() {
                entry.did_long_work(begun_in, worked);
            }
            let state = match result {
                Ok(output) => {
                    entry.failures.remove(&W::KIND);
                    // Texts that are written are seen in the mirror; one that a user deletes later is written again.
                    if W::RESULT_IS_VISIBLE { Slot::Idle } else { Slot::Done(request, output) }
                }
                Err(error) => {
                    tracing::warn!(job = %self.key, kind = %W::KIND, reason = %error.reason, "{}", error.message);
                    entry.refusals.failed();
                    let now = self.reconciler.cluster.now();
                    let failures = entry.failures.entry(W::KIND).or_default();
                    let before = failures.another(self.job.metadata.generation);
                    Slot::Failed(request, error.failure(before, now))
                }
            };
            *W::slot(&mut entry.tasks) = state;
            match W::KIND {
                TaskKind::Compile => entry.note_trouble(&applied),
                TaskKind::Publish => entry.note_texts(self.reconciler.cluster.now()),
                TaskKind::Fetch | TaskKind::Repair | TaskKind::Renew => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prepares_a_job_that_does_not_run_goes_after_what_is_prepared() {
        use Priority::{Awaited, Normal, Preparing, Urgent};
        use TaskKind::{Compile, Fetch, Publish, Renew, Repair};
        // work -> of a job that does not run, of one that does, of one that does and does not wait for it
        let table = [
            (Fetch, [Preparing, Urgent, Normal]),
            (Compile, [Preparing, Awaited, Awaited]),
            (Publish, [Preparing, Awaited, Normal]),
            (Repair, [Preparing, Urgent, Normal]),
            (Renew, [Preparing, Urgent, Normal]),
        ];
        for (kind, expected) in table {
            let found =
                [(false, true), (true, true), (true, false)].map(|(runs, awaited)| priority_of(kind, runs, awaited));
            assert_eq!(found, expected, "{kind}");
        }
    }
}
