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
//! | [`pe_api_names`] | in which namespaces somebody else has a Service of that name |
//! | [`endpoint_slices`] | writes the addresses of Services that select no pods |
//! | [`messenger`] | sends datagrams to PEs |
//! | [`known_launches`] | PEs of which this process knows how often they were launched |
//! | [`remembered`] | what is kept of objects beside the mirrors, and when it ends |
//! | [`resizing`] | whether somebody waits for a job |
//! | [`restorations`] | how often an object was restored that somebody else changes, and when it may be again |
//! | [`resync`] | looks at every object again from time to time |
//! | [`submissions`] | jobs that are being submitted, and PEs that let them go first |
//! | [`traces`] | what work shows in the trace of a request |
//! | [`placement_hash`] | whether a pod runs where it must |
//! | [`times`] | times as statuses hold them, and as controllers wait for them |
//! | [`token_labels`] | labels by which pods are put together, or apart |
//! | [`user_requests`] | what users ask of a PE by annotations, as its status remembers it |
//! | [`reconciler`] | the trait that all of them implement |
//!
//! Changes of objects wake a controller. It observes the mirrors, decides by a pure function, and acts. It does not
//! depend on having seen every change: if it is woken twice, or without a reason, it finds nothing to do. No controller
//! is given anything of a namespace that the frontend may not read (rule call-33): what the mirrors lack of it is not
//! gone.
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
mod pe_api_names;
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
pub(crate) mod submissions;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod times;
pub(crate) mod token_labels;
pub(crate) mod traces;
pub(crate) mod user_requests;

use self::consistent_region::{ConsistentRegionReconciler, RegionFigures};
use self::consistent_region_service::{ConsistentRegionServiceReconciler, Led};
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
use streams_kubernetes::gate::Gate;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Owner, Queue, Sharing};
use streams_kubernetes::watch::{Mirrored, Refusals, Watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

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

async fn run_all(needs: Dependencies, stop: CancellationToken) {
    let (regions, boards, pe_api) = (needs.regions, needs.boards, needs.pe_api);
    let mirrors = regions.mirrors.clone();
    let cluster = ApiServer::new(needs.client.clone(), needs.events, needs.gate).while_leading(regions.term.clone());
    let known_launches = KnownLaunches::of(&mirrors.processing_elements, regions.term.clone());
    let pes = processing_element::controller::PeController::new(
        cluster.clone(),
        &mirrors,
        &needs.metrics,
        &needs.pods,
        &needs.jobs,
        needs.last_seen,
        known_launches.clone(),
    );
    let jobs = job::controller::JobController::new(
        cluster.clone(),
        &mirrors,
        Arc::new(ClusterBundles { fetcher: needs.bundles, client: needs.client }),
        Arc::new(needs.fusion),
        known_launches,
        &needs.metrics,
        &needs.jobs,
    );
    let (pe_api_names, job_queue) = (jobs.pe_api_names(), jobs.queue().clone());
    let submissions = pes.submissions();
    let refusals = &mirrors.refusals;
    let all = Controllers { cluster: &cluster, metrics: &needs.metrics, jobs: &needs.jobs, refusals, stop: &stop };

    let jobs = future::join(all.resync(&mirrors.jobs, jobs.queue()), jobs.run(stop.clone()));
    let pes = future::join(all.resync(&mirrors.processing_elements, pes.queue()), pes.run(stop.clone()));
    let parallel_regions = all.resynced("parallel_region", &mirrors.parallel_regions, |queue| {
        parallel_region::subscribe(&mirrors, queue);
        parallel_region::RegionReconciler { cluster: cluster.clone(), mirrors: mirrors.clone(), submissions }
    });
    let host_pools = all.resynced("host_pool", &mirrors.host_pools, |queue| {
        host_pool::subscribe(&mirrors, queue);
        host_pool::HostPoolReconciler { cluster: cluster.clone(), mirrors: mirrors.clone() }
    });
    let resizes = all.resynced("resize", &mirrors.resizes, |queue| {
        resize::subscribe(&mirrors, queue);
        resize::ResizeReconciler { cluster: cluster.clone(), mirrors: mirrors.clone() }
    });
    let exports = all.standing::<Export>(&mirrors, &boards);
    let imports = all.standing::<Import>(&mirrors, &boards);
    let services_of_regions = all.queue("consistent_region_service", owner_of_child);
    let led = Led::among(&mirrors, services_of_regions.clone());
    let reports = regions.reports.clone();
    let consistent_regions = all.resynced("consistent_region", &mirrors.consistent_regions, |queue| {
        consistent_region::subscribe(&regions, queue);
        regions.reports.open(queue.clone(), mirrors.consistent_regions.keys());
        let (messenger, figures) = (Datagrams::to(messenger::CONSISTENT_REGIONS), RegionFigures::among(&needs.metrics));
        ConsistentRegionReconciler::new(cluster.clone(), regions, led.clone(), messenger, figures)
    });
    let consistent_region_services = all.woken(services_of_regions, |queue| {
        consistent_region_service::subscribe(&mirrors, queue);
        ConsistentRegionServiceReconciler::new(cluster.clone(), mirrors.clone(), needs.pe_api_address, &led)
    });
    // It calls nobody, so no namespace is in trouble.
    let sharing = Sharing::among(needs.jobs.workers, owner_of_child);
    let routes = refusals.hold_back(Queue::new("routes", BackOff::default(), sharing, &needs.metrics));
    let routes = all.woken(routes, |queue| {
        let until_settled = routes::subscribe(&mirrors, &boards, queue);
        RoutesReconciler::new(mirrors.clone(), boards.clone(), until_settled, Datagrams::to(messenger::ROUTES))
    });
    let pe_api_queue = all.queue("pe_api_service", owner_of_job);
    let following = pe_api_service::follow(mirrors.clone(), pe_api.clone(), pe_api_queue.clone());
    let pe_api_services = all.woken(pe_api_queue, |queue| {
        pe_api_service::subscribe(&mirrors, queue);
        PeApiServiceReconciler::new(cluster.clone(), mirrors.clone(), pe_api).telling(pe_api_names, job_queue)
    });

    // Reports are refused before the queue is closed that they would wait in.
    let consistent_regions = future::join(
        async {
            stop.cancelled().await;
            reports.close();
        },
        consistent_regions,
    );
    let pe_api_services = async {
        tokio::select! {
            () = pe_api_services => {}
            () = async { following.await; std::future::pending().await } => {}
        }
    };
    tokio::join!(
        jobs,
        pes,
        parallel_regions,
        host_pools,
        resizes,
        exports,
        imports,
        consistent_regions,
        consistent_region_services,
        routes,
        pe_api_services,
    );
}

/// What the controllers have in common.
struct Controllers<'a> {
    cluster: &'a ApiServer,
    metrics: &'a Metrics,
    jobs: &'a JobSettings,
    refusals: &'a Refusals,
    stop: &'a CancellationToken,
}

impl Controllers<'_> {
    /// A queue whose workers are shared by these owners of keys, and left to others by namespaces in trouble. Of a
    /// namespace that may not be read they get no key (rule call-33).
    fn queue(&self, name: &'static str, owner: fn(&Key) -> Owner) -> Queue<Key> {
        let sharing = Sharing::among(self.jobs.workers, owner);
        let queue = Queue::new(name, BackOff::default(), sharing, self.metrics);
        self.refusals.hold_back(queue.with_troubles(troubles_of(self.cluster)))
    }

    /// A controller that looks at all objects of this mirror from time to time as well.
    fn resynced<K: Mirrored, R: Reconciler>(
        &self,
        name: &'static str,
        mirror: &Watch<K>,
        begin: impl FnOnce(&Queue<Key>) -> R,
    ) -> impl Future<Output = ()> {
        let queue = self.queue(name, owner_of_child);
        let resync = self.resync(mirror, &queue);
        let work = self.woken(queue, begin);
        async move {
            tokio::join!(resync, work);
        }
    }

    /// A controller of what is added to the queue, until `stop`. `begin` makes what reconciles it, and whatever adds to
    /// the queue.
    fn woken<R: Reconciler>(
        &self,
        queue: Queue<Key>,
        begin: impl FnOnce(&Queue<Key>) -> R,
    ) -> impl Future<Output = ()> {
        let reconciler = begin(&queue);
        let (closing, stop) = (queue.clone(), self.stop.clone());
        let work = each(queue, usize::from(self.jobs.workers), reconciler);
        async move {
            let close = async {
                stop.cancelled().await;
                closing.close();
            };
            tokio::join!(close, work);
        }
    }

    /// Looks at all objects of a mirror from time to time, until `stop`.
    fn resync<K: Mirrored>(&self, mirror: &Watch<K>, queue: &Queue<Key>) -> impl Future<Output = ()> + use<K> {
        resync::run(mirror.clone(), queue.clone(), self.jobs.resync_seconds, self.stop.clone())
    }

    /// The controller of exports or of imports.
    fn standing<K: Stands>(&self, mirrors: &Mirrors, boards: &Boards) -> impl Future<Output = ()> {
        let (cluster, boards) = (self.cluster.clone(), boards.clone());
        self.resynced(K::CONTROLLER, K::mirror(mirrors), |queue| {
            let until_settled = standing::subscribe::<K>(mirrors, &boards, queue);
            StandingReconciler::<_, K>::new(cluster, mirrors.clone(), boards, until_settled)
        })
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
