//! What every replica serves: probes, PEs, the gRPC APIs, bundles; and whom it calls for that.
//!
//! Knows: addresses to listen at, in which order each ends. Must not know: who leads, what callers ask.

use super::base::Base;
use super::hand_over::Awake;
use super::tasks::Tasks;
use crate::bundles::Fetcher;
use crate::bundles::repository::{self, BundleRepository};
use crate::call_figures::{HttpRequests, MadeCalls, ServedCalls};
use crate::consistent_regions::ConsistentRegions;
use crate::controllers::job::long_work::dry_run::DryRuns;
use crate::elasticity::Elasticity;
use crate::elasticity::view::ClusterView as _;
use crate::fusion;
use crate::grpc;
use crate::grpc::server::Services;
use crate::mirrors::Mirrors;
use crate::options::RunOptions;
use crate::pe_api::{self, PeApi};
use crate::service_endpoints::{self, ServicePort};
use crate::status_changes::Turns;
use crate::subscription::SubscriptionApi;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::gate::{Gate, Limits};
use streams_process::pages::{Pages, Readiness};
use streams_proto::{elasticity, subscription};
use tokio::net::TcpListener;
use tokio::sync::watch as latest;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Calls of the API server for callers of the subscription API at the same time. They have a gate of their own: they
/// are in front of no PE, and of nothing that the controllers do.
const SUBSCRIPTION_CALLS: usize = 8;
/// The same for dry runs of requests to resize: they are in front of nothing that the controllers do.
const DRY_RUN_CALLS: usize = 4;

/// Metrics, and whether the process is well.
pub(super) async fn probes(base: &Base, options: &RunOptions, tasks: &mut Tasks) -> anyhow::Result<()> {
    let http = listen(options.endpoints.http_listen, "--http-listen").await?;
    let pages = {
        let (metrics, mirrors) = (base.metrics.clone(), base.mirrors.clone());
        Pages::new(move || metrics.text(), move || readiness(&mirrors))
    };
    let probes = pages.serve(http, base.last.clone().cancelled_owned());
    tasks.servers.spawn("metrics and probes", async move { probes.await.context("probes") });
    Ok(())
}

/// The fusion service.
pub(super) fn fusion_client(base: &Base, options: &RunOptions, tasks: &mut Tasks) -> anyhow::Result<fusion::Client> {
    let mut fusion = options.fusion()?;
    fusion.figures = MadeCalls::among(&base.metrics);
    if let Some(service) = options.fusion_service_endpoints.clone() {
        let (told, endpoints) = latest::channel(Vec::new());
        fusion.endpoints = Some(endpoints);
        follow(base, service, told, std::convert::identity, tasks);
    }
    Ok(fusion::Client::new(fusion))
}

/// Where PEs reach the replicas of the frontend.
pub(super) fn pe_api_addresses(
    base: &Base,
    options: &RunOptions,
    tasks: &mut Tasks,
) -> latest::Receiver<BTreeSet<IpAddr>> {
    let (told, pe_api_addresses) = latest::channel(BTreeSet::from_iter(options.endpoints.pe_api_address));
    if let Some(service) = options.endpoints.pe_api_endpoints.clone() {
        follow(base, service, told, addresses, tasks);
    }
    pe_api_addresses
}

/// Tells of the endpoints of a Service whenever they change.
fn follow<T: PartialEq + Debug + Send + Sync + 'static>(
    base: &Base,
    service: ServicePort,
    told: latest::Sender<T>,
    of: fn(Vec<fusion::Endpoint>) -> T,
    tasks: &mut Tasks,
) {
    let Base { client, metrics, last, here, .. } = base;
    let (client, metrics, last, here) = (client.clone(), metrics.clone(), last.clone(), here.clone());
    tasks.background.spawn("endpoints", async move {
        service_endpoints::watch(client, service, &here, &metrics, (told, of), last).await
    });
}

/// How long a replica that ends still writes of which connections PEs of consistent regions have told that they lost
/// them.
const LAST_LOSSES: Duration = Duration::from_secs(2);

/// How this process hears PEs, until it is dropped.
pub(super) struct Hearing {
    /// Ends it; cancelled as well when it has ended by itself.
    pub(super) ends: CancellationToken,
    pub(super) awake: Awake,
    /// Cancelled when nobody is heard any more.
    has_ended: CancellationToken,
    /// Keeps going what is to be written.
    _pe_api: PeApi,
    _looking: AbortOnDropHandle<()>,
}

impl Hearing {
    /// Hears nobody any more. Nobody else knows of connections that PEs of regions have told this replica that they
    /// lost, so that is stored first, if it can be (rule pe-api-4).
    pub(super) async fn end(self, regions: &ConsistentRegions) {
        self.ends.cancel();
        let stored = async {
            self.has_ended.cancelled().await;
            regions.losses.stored().await;
        };
        if timeout(LAST_LOSSES, stored).await.is_ok() {
            return;
        }
        for region in regions.losses.regions() {
            // They may only have been starting. Whether they had all connections before, the mirror may not show yet.
            tracing::warn!(%region, "connections of PEs are not recorded: its next checkpoint may lack tuples");
        }
    }
}

/// The PE API.
pub(super) async fn pes(base: &Base, options: &RunOptions, tasks: &mut Tasks) -> anyhow::Result<(PeApi, Hearing)> {
    let Base { asked_to_stop, metrics, mirrors, boards, callers, regions, gate, .. } = base;
    let listener = listen(options.endpoints.pe_api_listen, "--pe-api-listen").await?;
    tracing::info!(address = %listener.local_addr()?, "serving the PE API");
    let grace = options.time_outs.grace_seconds;
    let of_a_kind = || base.cluster(Gate::new(Limits::of(pe_api::CALLS_OF_A_KIND), metrics));
    let shared = base.cluster(gate.clone());
    let (stop, seen) = (asked_to_stop.clone(), mirrors.clone());
    let are_led_away = Arc::new(move || stop.is_cancelled() || seen.too_old().is_some());
    let (boards, callers, regions) = (boards.clone(), callers.clone(), regions.clone());
    let pe_api = PeApi::new(of_a_kind, shared, boards, callers, regions, are_led_away, metrics);
    tasks.background.spawn("tasks of the PE API", pe_api.task_ended());
    let ends = CancellationToken::new();
    let awake = Awake::default();
    // Looks, from when the process is asked to stop, whether it was frozen: reports that came meanwhile were not heard
    // (rule call-32). On a worker thread, because a worker that hangs is what would make PEs give up.
    let looking = AbortOnDropHandle::new(tokio::spawn(awake.clone().look(asked_to_stop.clone())));
    let (served, stop) = (pe_api.clone(), ends.clone());
    let figures = HttpRequests::among(metrics);
    let has_ended = CancellationToken::new();
    let guard = has_ended.clone().drop_guard();
    tasks.servers.spawn("PE API", async move {
        // However it ends, nobody is heard from then on.
        let (_ends, _has_ended) = (stop.clone().drop_guard(), guard);
        pe_api::server::serve(listener, served, figures, stop, grace).await;
        Ok(())
    });
    let hearing = Hearing { ends, awake, has_ended, _pe_api: pe_api.clone(), _looking: looking };
    Ok((pe_api, hearing))
}

/// The elasticity API and the subscription API, which changes the same objects as the PE API and so takes turns with
/// it.
pub(super) async fn grpc_apis(
    base: &Base,
    options: &RunOptions,
    fusion: &fusion::Client,
    turns: Turns,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    let Base { asked_to_stop, metrics, client, mirrors, boards, .. } = base;
    let listener = listen(options.endpoints.elasticity_listen, "--elasticity-listen").await?;
    tracing::info!(address = %listener.local_addr()?, "serving the elasticity API and the subscription API");
    // Every replica can do them (rule elasticity-24).
    let cluster = base.cluster(Gate::new(Limits::of(DRY_RUN_CALLS), metrics));
    let dry_runs = DryRuns::new(cluster, mirrors.clone(), Arc::new(fusion.clone()), options.jobs.clone());
    let service = Elasticity::new(
        client.clone(),
        Arc::new(mirrors.clone()),
        Arc::new(dry_runs),
        options.time_outs.longest_wait_seconds,
        metrics,
    );
    let cluster = base.cluster(Gate::new(Limits::of(SUBSCRIPTION_CALLS), metrics));
    let stopping = service.stopping();
    let subscriptions = SubscriptionApi::new(cluster, mirrors.clone(), boards.clone(), turns, stopping.clone());
    let access = options.access(client, stopping.clone());
    let services = Services::new(access.clone())
        .secured(options.elasticity_tls()?)
        .counted(ServedCalls::among(metrics))
        .with(service.into_server(access.clone()), elasticity::ERROR_DOMAIN)
        .with(subscriptions.into_server(access), subscription::ERROR_DOMAIN);
    let (stop, filled, grace) = (asked_to_stop.clone(), mirrors.clone(), options.time_outs.grace_seconds);
    tasks.servers.spawn("gRPC APIs", async move {
        // Until then it would say that jobs do not exist; callers wait to be accepted.
        tokio::select! {
            () = filled.synced() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let stop = stop.cancelled_owned();
        let too_old = move || filled.too_old();
        grpc::server::serve(listener, services, too_old, stopping, stop, grace).await.context("gRPC services")
    });
    Ok(())
}

/// Bundles for PEs. Whom this process has them from, too.
pub(super) async fn bundles(
    base: &Base,
    options: &RunOptions,
    pe_api: PeApi,
    tasks: &mut Tasks,
) -> anyhow::Result<Fetcher> {
    let fetcher = Fetcher::new(options.bundles.fetcher(base.api_server.clone(), options.jobs.download_workers))
        .context("bundles cannot be fetched")?;
    let listener = listen(options.endpoints.bundle_repository_listen, "--bundle-repository-listen").await?;
    tracing::info!(address = %listener.local_addr()?, "serving bundles to PEs");
    let settings = options.bundles.repository(options.time_outs.grace_seconds);
    let repository = BundleRepository::new(fetcher.clone(), base.client.clone(), settings, pe_api);
    let (counters, stop) = (repository::counters(&base.metrics), base.asked_to_stop.clone());
    tasks.servers.spawn("bundles for PEs", async move {
        repository.serve(listener, counters, stop.cancelled_owned()).await.context("bundles for PEs")
    });
    Ok(fetcher)
}

/// Whether all mirrors can be relied on, and which cannot (rule call-18). That a namespace may not be read keeps nobody
/// from serving the others, and is said (rule call-33).
fn readiness(mirrors: &Mirrors) -> Readiness {
    let health = mirrors.health().into_iter().map(|(kind, problem)| match problem {
        None => (format!("watch of {kind}"), true),
        Some(problem) => (format!("watch of {kind}: {problem}"), false),
    });
    let unread = mirrors.refusals.namespaces().into_iter().filter_map(|namespace| mirrors.unread(&namespace));
    let lines: Vec<_> = health.chain(unread.map(|words| (words, true))).collect();
    let conditions: Vec<_> = lines.iter().map(|(line, good)| (line.as_str(), *good)).collect();
    Readiness::all(&conditions)
}

/// The addresses of the replicas that are not about to go.
fn addresses(replicas: Vec<fusion::Endpoint>) -> BTreeSet<IpAddr> {
    replicas.into_iter().filter(|replica| !replica.is_terminating).map(|replica| replica.address.ip()).collect()
}

async fn listen(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{option} {address}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::LateMirrors;
    use streams_kubernetes::metrics::Metrics;
    use streams_kubernetes_fake::Server;

    #[test]
    fn a_namespace_that_may_not_be_read_is_told_and_keeps_nobody_from_being_ready() {
        assert!(!readiness(&Mirrors::new(&Metrics::new("test"))).ready, "nothing is filled");
        let mirrors = LateMirrors::of(&Server::new()).mirrors;
        for (is_refused, expected) in [(false, None), (true, Some("[+] the API server does not let"))] {
            if is_refused {
                mirrors.pods.refuse("b");
            }
            let Readiness { ready, text } = readiness(&mirrors);
            let told = text.lines().find(|line| line.contains("namespace b: Pod"));
            assert_eq!((ready, told.is_some()), (true, expected.is_some()), "{text}");
            assert!(told.is_none_or(|line| expected.is_some_and(|expected| line.starts_with(expected))), "{text}");
        }
    }
}
