//! Runs the reconciler: wakes PEs when objects change, and runs the workers.

use super::counters::Counters;
use super::memory::LastSeen;
use super::observe::redis_configuration;
use super::reconciler::PeReconciler;
use crate::controllers::owner::owner_of_child;
use crate::controllers::reconciler::reconcile;
use crate::controllers::remembered::Remembered;
use crate::mirrors::{ByOwner as _, Mirrors, pe_of};
use crate::settings::{JobSettings, PodSettings};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::ApiServer;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Queue, Sharing};
use tokio_util::sync::CancellationToken;

/// The PE controller, to be run by the leader.
#[derive(Debug)]
pub(crate) struct PeController {
    reconciler: PeReconciler<ApiServer>,
    queue: Queue<Key>,
    workers: usize,
}

impl PeController {
    /// A controller of the PEs of these mirrors. From now on changes wake it; nothing is written before
    /// [`PeController::run`].
    pub(crate) fn new(
        cluster: ApiServer,
        mirrors: &Mirrors,
        metrics: &Metrics,
        pods: &PodSettings,
        jobs: &JobSettings,
        last_seen: Arc<LastSeen>,
    ) -> Self {
        let reconciler = PeReconciler::new(
            cluster,
            mirrors,
            pods.clone(),
            jobs.min_ready_seconds,
            Counters::new(metrics),
            last_seen,
        );
        // Subscribed after the reconciler: its memory knows of a pod before the pod wakes a PE.
        let queue =
            Queue::new("processing_element", BackOff::default(), Sharing::among(jobs.workers, owner_of_child), metrics);
        wake(mirrors, &queue);
        Self { reconciler, queue, workers: jobs.workers.into() }
    }

    /// Keys that are to be looked at.
    pub(crate) fn queue(&self) -> &Queue<Key> {
        &self.queue
    }

    /// Runs until `stop`, then finishes the reconciles that are under way. The mirrors must be filled before.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { reconciler, queue, workers } = self;
        let reconciler = Arc::new(reconciler);
        let closing = queue.clone();
        let work = queue::run(queue, workers, move |key: Key| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconcile(&*reconciler, &key).await }
        });
        let close = async move {
            stop.cancelled().await;
            closing.close();
        };
        tokio::join!(work, close);
    }
}

/// Queues a PE whenever an object that it depends on changes.
fn wake(mirrors: &Mirrors, queue: &Queue<Key>) {
    mirrors.processing_elements.wake(queue, |pe| [Key::of(pe)]);
    mirrors.pods.wake(queue, pe_of);
    mirrors.config_maps.wake(queue, pe_of);
    let pes = mirrors.processing_elements.clone();
    mirrors.host_pools.wake(queue, move |pool| {
        let job = Key::of(pool).sibling(&pool.spec.job_name);
        let index = pool.spec.index;
        let placed = move |pe: &Arc<ProcessingElement>| {
            pe.spec.placement.pool.as_ref().is_some_and(|location| location.index == index)
        };
        pes.of_job(&job).into_iter().filter(placed).map(|pe| Key::of(&*pe)).collect::<Vec<_>>()
    });
    // The status of a job changes often; its PEs depend on a small part of it only.
    let (pes, jobs) = (mirrors.processing_elements.clone(), mirrors.jobs.clone());
    let concerns: Remembered<Option<RelevantState>> = Remembered::default();
    mirrors.jobs.wake(queue, move |job| {
        let key = Key::of(job);
        let changed = if jobs.get(&key).is_none() {
            concerns.forget_all_of(&key);
            true
        } else {
            let (uid, concern) = (job.uid().unwrap_or_default(), Some(RelevantState::of(job)));
            concerns.with(&key, &uid, || None, |known| std::mem::replace(known, concern.clone()) != concern)
        };
        let woken = if changed { pes.of_job(&key) } else { Vec::new() };
        woken.into_iter().map(|pe| Key::of(&*pe)).collect::<Vec<_>>()
    });
}

/// The part of a job that its PEs depend on.
#[derive(Clone, Debug, PartialEq)]
struct RelevantState {
    uid: Option<String>,
    generation: Option<u64>,
    deleting: bool,
    suspended: bool,
    min_ready: Option<Duration>,
    redis: Option<String>,
}

impl RelevantState {
    fn of(job: &Job) -> Self {
        Self {
            uid: job.uid(),
            generation: job.status.as_ref().and_then(|status| status.generation),
            deleting: job.metadata.deletion_timestamp.is_some(),
            suspended: job.spec.suspend,
            min_ready: job.spec.min_ready(),
            redis: redis_configuration(job).cloned(),
        }
    }
}
