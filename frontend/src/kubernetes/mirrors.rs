//! All shared watches of the process.

use futures::future;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use super::watch::{ConfigMapMeta, Scope, Watch, of_streams};
use crate::{
    api::{HostPool, Job, ParallelRegion, ProcessingElement},
    metrics::Metrics,
};

/// One mirror per kind. Cheap to clone; all clones are the same mirrors.
#[derive(Clone)]
pub struct Mirrors {
    /// Jobs.
    pub jobs: Watch<Job>,
    /// Processing elements.
    pub processing_elements: Watch<ProcessingElement>,
    /// Parallel regions.
    pub parallel_regions: Watch<ParallelRegion>,
    /// Host pools.
    pub host_pools: Watch<HostPool>,
    /// Pods of PEs, trimmed.
    pub pods: Watch<Pod>,
    /// Services of jobs and PEs.
    pub services: Watch<Service>,
    /// ConfigMaps of jobs and PEs, without their data.
    pub config_maps: Watch<ConfigMapMeta>,
    job_changes: latest::Sender<u64>,
}

impl Mirrors {
    /// Empty mirrors that [`Mirrors::run`] fills.
    pub fn new(metrics: &Metrics) -> Self {
        let (jobs, parallel_regions) = (Watch::new(metrics), Watch::new(metrics));
        let job_changes = latest::Sender::new(0);
        let changed =
            |sender: &latest::Sender<u64>| sender.send_modify(|number: &mut u64| *number = number.wrapping_add(1));
        jobs.subscribe({
            let sender = job_changes.clone();
            move |_: &Job| changed(&sender)
        });
        parallel_regions.subscribe({
            let sender = job_changes.clone();
            move |_: &ParallelRegion| changed(&sender)
        });
        Self {
            jobs,
            processing_elements: Watch::new(metrics),
            parallel_regions,
            host_pools: Watch::new(metrics),
            pods: Watch::new(metrics),
            services: Watch::new(metrics),
            config_maps: Watch::new(metrics),
            job_changes,
        }
    }

    /// A number that is another one after every change of a job or a region.
    pub fn job_changes(&self) -> latest::Receiver<u64> {
        self.job_changes.subscribe()
    }

    /// Fills the mirrors and keeps them filled until `stop`.
    pub async fn run(&self, client: &Client, scope: &Scope, stop: &CancellationToken) {
        let of_streams = of_streams();
        let of_streams = Some(of_streams.as_str());
        let (client, scope, stop) = (|| client.clone(), || scope.clone(), || stop.clone());
        // Users need not label their jobs; everything else is labelled by the job controller.
        future::join(
            future::join4(
                self.jobs.run(client(), scope(), None, stop()),
                self.processing_elements.run(client(), scope(), None, stop()),
                self.parallel_regions.run(client(), scope(), None, stop()),
                self.host_pools.run(client(), scope(), None, stop()),
            ),
            future::join3(
                self.pods.run(client(), scope(), of_streams, stop()),
                self.services.run(client(), scope(), of_streams, stop()),
                self.config_maps.run(client(), scope(), of_streams, stop()),
            ),
        )
        .await;
    }

    /// Waits until every mirror has been filled once.
    pub async fn synced(&self) {
        self.jobs.synced().await;
        self.processing_elements.synced().await;
        self.parallel_regions.synced().await;
        self.host_pools.synced().await;
        self.pods.synced().await;
        self.services.synced().await;
        self.config_maps.synced().await;
    }

    /// Whether every mirror has been filled once.
    pub fn are_synced(&self) -> bool {
        self.jobs.is_synced()
            && self.processing_elements.is_synced()
            && self.parallel_regions.is_synced()
            && self.host_pools.is_synced()
            && self.pods.is_synced()
            && self.services.is_synced()
            && self.config_maps.is_synced()
    }
}
