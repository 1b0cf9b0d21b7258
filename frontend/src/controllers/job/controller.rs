//! Runs the reconciler: wakes jobs when objects change, and runs the workers.

use super::long_work;
use super::reconciler::JobReconciler;
use super::services::{Bundles, Fusion};
use crate::controllers::owner::owner_of_job;
use crate::controllers::reconciler::reconcile;
use crate::mirrors::{Mirrors, job_of};
use crate::settings::JobSettings;
use futures::future;
use std::sync::Arc;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::ApiServer;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Queue, Sharing};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// The job controller, to be run by the leader.
pub(crate) struct JobController {
    reconciler: JobReconciler<ApiServer>,
    queue: Queue<Key>,
    workers: usize,
}

impl JobController {
    /// A controller of the jobs of these mirrors. From now on changes wake it; nothing is written before
    /// [`JobController::run`].
    pub(crate) fn new(
        cluster: ApiServer,
        mirrors: &Mirrors,
        bundles: Arc<dyn Bundles>,
        fusion: Arc<dyn Fusion>,
        metrics: &Metrics,
        settings: &JobSettings,
    ) -> Self {
        let queue = Queue::new("job", BackOff::default(), Sharing::among(settings.workers, owner_of_job), metrics);
        wake(mirrors, &queue);
        let reconciler = JobReconciler::new(cluster, mirrors, bundles, fusion, settings.clone(), metrics);
        Self { reconciler, queue, workers: settings.workers.into() }
    }

    /// Keys that are to be looked at.
    pub(crate) fn queue(&self) -> &Queue<Key> {
        &self.queue
    }

    /// Runs until `stop`, then finishes the reconciles that are under way. Long work that is under way is dropped; the
    /// next leader does it again. The mirrors must be filled before.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { reconciler, queue, workers } = self;
        let reconciler = Arc::new(reconciler);
        let (jobs, long_work) = (queue.clone(), Arc::clone(&reconciler));
        let close = {
            let (jobs, stop) = (jobs.clone(), stop.clone());
            async move {
                stop.cancelled().await;
                jobs.close();
                long_work.downloads.close();
                long_work.long_work.close();
            }
        };
        let work = {
            let work = long_work::run(Arc::clone(&reconciler), jobs);
            async move {
                tokio::select! {
                    () = work => {}
                    () = stop.cancelled() => {}
                }
            }
        };
        let reconciles = queue::run(queue, workers, move |key: Key| {
            let reconciler = Arc::clone(&reconciler);
            async move {
                let span = tracing::info_span!("reconcile", job = %key);
                reconcile(&*reconciler, &key).instrument(span).await
            }
        });
        future::join3(close, work, reconciles).await;
    }
}

/// Queues a job whenever an object that belongs to it changes.
fn wake(mirrors: &Mirrors, jobs: &Queue<Key>) {
    mirrors.jobs.wake(jobs, |job| [Key::of(job)]);
    mirrors.processing_elements.wake(jobs, job_of);
    mirrors.services.wake(jobs, job_of);
    mirrors.config_maps.wake(jobs, job_of);
    mirrors.host_pools.wake(jobs, job_of);
    mirrors.exports.wake(jobs, job_of);
    mirrors.imports.wake(jobs, job_of);
    mirrors.consistent_regions.wake(jobs, job_of);
    // A changed region is urgent: somebody waits for the resize.
    let regions = jobs.clone();
    mirrors.parallel_regions.subscribe(move |region| {
        if let Some(job) = job_of(region) {
            regions.add_urgent(job);
        }
    });
}
