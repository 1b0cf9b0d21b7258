//! The controllers: one per kind, each with a queue of its own.
//!
//! | Module | What it does |
//! |---|---|
//! | [`job`] | turns a Job into PEs, one generation after the other |
//! | [`processing_element`] | keeps one pod per PE, under its restart policies |
//! | [`parallel_region`] | writes the status of regions: applied width, refusals, selector |
//! | [`resize`] | gives requests to resize to their jobs, and deletes those that ended long ago |
//! | [`host_pool`] | writes the status of host pools |
//! | [`standing`] | writes the status of exports and imports |
//! | [`consistent_region`] | drives consistent regions: their PEs checkpoint and go back together |
//! | [`consistent_region_service`] | leads the PEs of consistent regions to the replica that drives them |
//! | [`routes`] | tells PEs who sends to them and whom they send to |
//! | [`pe_api_service`] | keeps the Service under which PEs reach the frontend |
//! | [`endpoint_slices`] | writes the addresses of Services that select no pods |
//! | [`messenger`] | sends datagrams to PEs |
//! | [`known_launches`] | PEs of which this process knows how often they were launched |
//! | [`remembered`] | what is kept of objects beside the mirrors, and when it ends |
//! | [`resizing`] | whether somebody waits for a job |
//! | [`restorations`] | how often an object was restored that somebody else changes, and when it may be again |
//! | [`resync`] | looks at every object again from time to time |
//! | [`traces`] | what work shows in the trace of a request |
//! | [`start_hash`] | how a change by somebody else shows, of what pods are replaced for |
//! | [`placement_hash`] | whether a pod runs where it must |
//! | [`times`] | times as statuses hold them, and as controllers wait for them |
//! | [`token_labels`] | labels by which pods are put together, or apart |
//! | [`user_requests`] | what users ask of a PE by annotations, as its status remembers it |
//! | [`reconciler`] | the trait that all of them implement |
//!
//! Changes of objects wake a controller. It observes the mirrors, decides by a pure function, and acts. It does not
//! depend on having seen every change: if it is woken twice, or without a reason, it finds nothing to do.
//!
//! Knows: how controllers are put together. Must not know: what any of them does.

pub(crate) mod consistent_region;
pub(crate) mod consistent_region_service;
pub(crate) mod endpoint_slices;
pub(crate) mod host_pool;
pub(crate) mod job;
pub(crate) mod known_launches;
pub(crate) mod messenger;
pub(crate) mod parallel_region;
pub(crate) mod pe_api_service;
pub(crate) mod placement_hash;
pub(crate) mod processing_element;
pub(crate) mod reconciler;
pub(crate) mod remembered;
pub(crate) mod resize;
pub(crate) mod resizing;
pub(crate) mod restorations;
mod resync;
pub(crate) mod routes;
pub(crate) mod standing;
pub(crate) mod start_hash;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod times;
pub(crate) mod token_labels;
pub(crate) mod traces;
pub(crate) mod user_requests;

use self::consistent_region::{ConsistentRegionReconciler, RegionFigures};
use self::consistent_region_service::{ConsistentRegionServiceReconciler, Led};
use self::job::long_work::dry_run::{DryRuns, Foresee};
use self::job::services::ClusterBundles;
use self::known_launches::KnownLaunches;
use self::messenger::Datagrams;
use self::pe_api_service::{Addresses, PeApiServiceReconciler};
pub use self::processing_element::last_seen::LastSeen;
use self::reconciler::{Reconciler, reconcile};
use self::routes::RoutesReconciler;
use self::standing::{StandingReconciler, Stands};
use crate::broker::Boards;
use crate::bundles::Fetcher;
use crate::consistent_regions::ConsistentRegions;
use crate::fusion;
use crate::mirrors::Mirrors;
use crate::owner::{owner_of_child, owner_of_job};
use crate::settings::{JobSettings, PodSettings};
use futures::future;
use kube::Client;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Export, Import};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{ApiServer, troubles_of};
use streams_kubernetes::events::Events;
use streams_kubernetes::gate::{Gate, Limits};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Queue, Sharing};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Calls of the API server that dry runs make at the same time.
const DRY_RUN_CALLS: usize = 4;

/// What the controllers need of the process.
pub struct Dependencies {
    /// The API server.
    pub client: Client,
    /// Consistent regions, and the shared watches, filled.
    pub(crate) regions: ConsistentRegions,
    /// Who sends to whom.
    pub(crate) boards: Boards,
    /// Where PEs reach the replicas of the frontend.
    pub(crate) pe_api: Addresses,
    /// Where PEs reach this replica.
    pub(crate) pe_api_address: Option<IpAddr>,
    /// Where Events go.
    pub events: Events,
    /// Where figures go.
    pub metrics: Metrics,
    /// Where calls to the API server wait for each other.
    pub gate: Gate,
    /// The fusion service.
    pub fusion: fusion::Client,
    /// Where bundles come from.
    pub bundles: Fetcher,
    /// Options for jobs.
    pub jobs: JobSettings,
    /// Options for pods.
    pub pods: PodSettings,
    /// How pods were seen last, also before this replica led.
    pub last_seen: Arc<LastSeen>,
}

/// Dry runs of requests to resize, which every replica can do (rule elasticity-24). Their calls have a gate of their
/// own: they are in front of nothing that the controllers do.
pub(crate) fn dry_runs(
    client: &Client,
    mirrors: &Mirrors,
    events: &Events,
    metrics: &Metrics,
    fusion: &fusion::Client,
    jobs: &JobSettings,
) -> Arc<dyn Foresee> {
    let gate = Gate::new(Limits::of(DRY_RUN_CALLS), metrics);
    let cluster = ApiServer::new(client.clone(), events.clone(), gate);
    Arc::new(DryRuns::new(cluster, mirrors.clone(), Arc::new(fusion.clone()), jobs.clone()))
}

/// Runs all controllers until `stop`, then finishes the reconciles that are under way, or as much of them as `finish`
/// allows (rule call-13). Long work that is under way is dropped; the next leader does it again.
pub async fn run(dependencies: Dependencies, stop: CancellationToken, finish: Duration) {
    end_in_time(run_all(dependencies, stop.clone()), &stop, finish).await;
}

/// Does `work`, which ends some time after `stop`, but drops what is left of it after `finish`.
async fn end_in_time(work: impl Future<Output = ()>, stop: &CancellationToken, finish: Duration) {
    let late = async {
        stop.cancelled().await;
        sleep(finish).await;
    };
    tokio::select! {
        () = work => {}
        () = late => tracing::warn!("reconciles that take long are left to the next leader"),
    }
}

async fn run_all(dependencies: Dependencies, stop: CancellationToken) {
    let Dependencies { client, regions, boards, pe_api, pe_api_address, .. } = dependencies;
    let Dependencies { events, metrics, gate, fusion, bundles, jobs, pods, last_seen, .. } = dependencies;
    let mirrors = regions.mirrors.clone();
    let workers = usize::from(jobs.workers);
    let cluster = ApiServer::new(client.clone(), events, gate).while_leading(regions.term.clone());
    let known_launches = KnownLaunches::of(&mirrors.processing_elements, regions.term.clone());
    let processing_elements = processing_element::controller::PeController::new(
        cluster.clone(),
        &mirrors,
        &metrics,
        &pods,
        &jobs,
        last_seen,
        known_launches.clone(),
    );
    let job_controller = job::controller::JobController::new(
        cluster.clone(),
        &mirrors,
        Arc::new(ClusterBundles { fetcher: bundles, client }),
        Arc::new(fusion),
        known_launches,
        &metrics,
        &jobs,
    );
    let sharing = Sharing::among(jobs.workers, owner_of_child);
    let troubles = || troubles_of(&cluster);
    let region_queue = Queue::new("parallel_region", BackOff::default(), sharing, &metrics).with_troubles(troubles());
    let pool_queue = Queue::new("host_pool", BackOff::default(), sharing, &metrics).with_troubles(troubles());
    parallel_region::subscribe(&mirrors, &region_queue);
    let sharing = Sharing::among(jobs.workers, owner_of_child);
    let resize_queue = Queue::new("resize", BackOff::default(), sharing, &metrics).with_troubles(troubles());
    host_pool::subscribe(&mirrors, &pool_queue);
    resize::subscribe(&mirrors, &resize_queue);
    let exports = standing::<Export>(&cluster, &mirrors, &boards, &metrics, &jobs, &stop);
    let imports = standing::<Import>(&cluster, &mirrors, &boards, &metrics, &jobs, &stop);
    let consistent_regions = consistent_regions(&cluster, regions, pe_api_address, &metrics, &jobs, &stop);
    let sharing = Sharing::among(jobs.workers, owner_of_child);
    let routes_queue = Queue::new("routes", BackOff::default(), sharing, &metrics);
    let until_settled = routes::subscribe(&mirrors, &boards, &routes_queue);
    let service_queue =
        Queue::new("pe_api_service", BackOff::default(), Sharing::among(jobs.workers, owner_of_job), &metrics)
            .with_troubles(troubles());
    pe_api_service::subscribe(&mirrors, &service_queue);

    let close = {
        let (regions, pools, stop) = (region_queue.clone(), pool_queue.clone(), stop.clone());
        let (resizes, routes, services) = (resize_queue.clone(), routes_queue.clone(), service_queue.clone());
        async move {
            stop.cancelled().await;
            regions.close();
            routes.close();
            services.close();
            pools.close();
            resizes.close();
        }
    };
    let resync = {
        let (interval, stop) = (jobs.resync_seconds, || stop.clone());
        let (of_jobs, of_pes) = (job_controller.queue().clone(), processing_elements.queue().clone());
        let (of_regions, of_pools) = (region_queue.clone(), pool_queue.clone());
        let of_resizes = resync::run(mirrors.resizes.clone(), resize_queue.clone(), interval, stop());
        let others = future::join4(
            resync::run(mirrors.jobs.clone(), of_jobs, interval, stop()),
            resync::run(mirrors.processing_elements.clone(), of_pes, interval, stop()),
            resync::run(mirrors.parallel_regions.clone(), of_regions, interval, stop()),
            resync::run(mirrors.host_pools.clone(), of_pools, interval, stop()),
        );
        future::join(of_resizes, others)
    };
    let resizes = resize::ResizeReconciler { cluster: cluster.clone(), mirrors: mirrors.clone() };
    let of_resizes = each(resize_queue, workers, resizes);
    let regions = parallel_region::RegionReconciler { cluster: cluster.clone(), mirrors: mirrors.clone() };
    let of_regions = each(region_queue, workers, regions);
    let of_pools =
        each(pool_queue, workers, host_pool::HostPoolReconciler { cluster: cluster.clone(), mirrors: mirrors.clone() });
    let standing = async { tokio::join!(exports, imports, consistent_regions) };
    let of_routes = each(
        routes_queue,
        workers,
        RoutesReconciler::new(mirrors.clone(), boards, until_settled, Datagrams::to(messenger::ROUTES)),
    );
    let following = pe_api_service::follow(mirrors.clone(), pe_api.clone(), service_queue.clone());
    let services = each(service_queue, workers, PeApiServiceReconciler::new(cluster, mirrors, pe_api));
    let of_services = async {
        tokio::select! {
            () = services => {}
            () = async { following.await; std::future::pending().await } => {}
        }
    };
    let of_pe_api = future::join(of_routes, of_services);
    let of_jobs = job_controller.run(stop.clone());
    let of_pes = processing_elements.run(stop);
    tokio::join!(close, resync, of_jobs, of_regions, of_resizes, of_pools, of_pe_api, standing, of_pes);
}

/// The controllers of consistent regions and of their Services, until `stop`.
fn consistent_regions(
    cluster: &ApiServer,
    regions: ConsistentRegions,
    address: Option<IpAddr>,
    metrics: &Metrics,
    jobs: &JobSettings,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let sharing = || Sharing::among(jobs.workers, owner_of_child);
    let queue =
        Queue::new("consistent_region", BackOff::default(), sharing(), metrics).with_troubles(troubles_of(cluster));
    let services = Queue::new("consistent_region_service", BackOff::default(), sharing(), metrics)
        .with_troubles(troubles_of(cluster));
    consistent_region::subscribe(&regions, &queue);
    consistent_region_service::subscribe(&regions.mirrors, &services);
    regions.reports.open(queue.clone(), regions.mirrors.consistent_regions.keys());
    let mirror = regions.mirrors.consistent_regions.clone();
    let resync = resync::run(mirror, queue.clone(), jobs.resync_seconds, stop.clone());
    let (of_regions, of_services, stop) = (queue.clone(), services.clone(), stop.clone());
    let reports = regions.reports.clone();
    let close = async move {
        stop.cancelled().await;
        reports.close();
        of_regions.close();
        of_services.close();
    };
    let (cluster, workers, figures) = (cluster.clone(), usize::from(jobs.workers), RegionFigures::among(metrics));
    let led = Led::among(&regions.mirrors);
    let leading = ConsistentRegionServiceReconciler::new(cluster.clone(), regions.mirrors.clone(), address, &led);
    async move {
        let messenger = Datagrams::to(messenger::CONSISTENT_REGIONS);
        let driving = ConsistentRegionReconciler::new(cluster, regions, led, messenger, figures);
        tokio::join!(close, resync, each(queue, workers, driving), each(services, workers, leading));
    }
}

/// The controller of exports or of imports, until `stop`.
fn standing<K: Stands>(
    cluster: &ApiServer,
    mirrors: &Mirrors,
    boards: &Boards,
    metrics: &Metrics,
    jobs: &JobSettings,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + use<K> {
    let queue = Queue::new(K::CONTROLLER, BackOff::default(), Sharing::among(jobs.workers, owner_of_child), metrics)
        .with_troubles(troubles_of(cluster));
    let until_settled = standing::subscribe::<K>(mirrors, boards, &queue);
    let resync = resync::run(K::mirror(mirrors).clone(), queue.clone(), jobs.resync_seconds, stop.clone());
    let (closing, stop) = (queue.clone(), stop.clone());
    let close = async move {
        stop.cancelled().await;
        closing.close();
    };
    let (mirrors, boards) = (mirrors.clone(), boards.clone());
    let reconciler = StandingReconciler::<_, K>::new(cluster.clone(), mirrors, boards, until_settled);
    let work = each(queue, jobs.workers.into(), reconciler);
    async move {
        tokio::join!(close, resync, work);
    }
}

/// Reconciles the objects of a queue until it is closed.
async fn each<R: Reconciler>(queue: Queue<Key>, workers: usize, reconciler: R) {
    let reconciler = Arc::new(reconciler);
    queue::run(queue, workers, move |key| {
        let reconciler = Arc::clone(&reconciler);
        async move { reconcile(&*reconciler, &key).await }
    })
    .await;
}
