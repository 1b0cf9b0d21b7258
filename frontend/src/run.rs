//! Starts everything that the process runs, in order, and ends it.
//!
//! ```text
//! client -> mirrors --+--> gRPC APIs, PE API, metrics, probes       every replica, at once
//!                     +--> leadership --> catch up --> controllers  one replica
//! ```
//!
//! SIGTERM or SIGINT: requests and reconciles that are under way are finished, then the Lease is released, then the
//! rest is stopped. The next leader goes on with what is not finished in time. The PE API of a leader lasts longer,
//! until PEs of consistent regions are led to the next one (rule call-32). A lost Lease ends the process at once (rule
//! call-13); so does a second signal. What runs as long as the process does, and ends or panics unasked, ends the
//! process in the same order as a signal: a process of which a part is missing must not lead.

use crate::broker::Boards;
use crate::bundles::Fetcher;
use crate::bundles::repository::{self, BundleRepository};
use crate::call_figures::{HttpRequests, MadeCalls, ServedCalls};
use crate::consistent_regions::ConsistentRegions;
use crate::controllers::{self, Dependencies, LastSeen};
use crate::elasticity::Elasticity;
use crate::elasticity::view::ClusterView as _;
use crate::fusion;
use crate::grpc;
use crate::grpc::server::Services;
use crate::mirrors::Mirrors;
use crate::options::RunOptions;
use crate::pe_api::{self, Callers, PeApi};
use crate::service_endpoints;
use crate::subscription::SubscriptionApi;
use anyhow::{Context as _, anyhow};
use futures::FutureExt as _;
use kube::{Client, Config};
use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use streams_kubernetes::client::{CallOptions, configuration};
use streams_kubernetes::cluster::ApiServer;
use streams_kubernetes::error::with_causes;
use streams_kubernetes::events::{Events, Reporter};
use streams_kubernetes::gate::{Gate, Limits};
use streams_kubernetes::leadership::{self, LINGER, Leader, Released, Term};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::watch::Scope;
use streams_process::pages::{Pages, Readiness};
use streams_proto::{elasticity, subscription};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch as latest;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Who reports Events.
const REPORTER: &str = "streams.ibm.com/frontend";
/// How long tasks that only have to notice the end may take.
const LAST_TASKS: Duration = Duration::from_secs(3);

/// Calls of the API server that PEs cause at the same time. They have a gate of their own: they are in front of nothing
/// that the controllers do. What PEs tell of their connections is not among them: a thousand may tell at once, and the
/// processors of the API server are shared, whatever gate a call has passed.
const PE_API_CALLS: usize = 8;
/// The same for callers of the subscription API: they are in front of no PE.
const SUBSCRIPTION_CALLS: usize = 8;

/// After a second a PE takes it that a report did not arrive.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(1);
/// How often a process that is asked to stop looks whether it is frozen.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the last words of a leader may take.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(5);

/// When the mirrors are compared again with what the API server has, if that failed.
const CATCH_UP_AGAIN: Duration = Duration::from_secs(1);

/// Makes the client of the API server.
pub(crate) type MakeClient = fn(Config, CallOptions, &Metrics) -> kube::Result<Client>;

/// Runs until a signal.
///
/// # Errors
/// Something cannot be started, or failed for good; leadership was lost.
pub(crate) async fn run(options: RunOptions, make_client: MakeClient) -> anyhow::Result<()> {
    // Fails only if there is a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Whoever cancels it is no signal: the next one is the first.
    let asked_to_stop = signals()?.child_token();
    let metrics = Metrics::new("streams_frontend");
    let mut lease = options.lease()?;
    let config = configuration(options.kube_context.as_deref())?;
    if let Some(lease) = lease.as_mut().filter(|lease| lease.namespace.is_empty()) {
        lease.namespace.clone_from(&config.default_namespace);
    }
    let here = config.default_namespace.clone();
    let identity = lease.as_ref().map_or_else(|| options.identity(), |lease| lease.identity.clone());
    let api_server = api_server(&config);
    let client = make_client(config, options.calls(), &metrics).context("the Kubernetes client cannot be set up")?;

    // Every replica: mirrors, Events, probes, the gRPC APIs, the PE API.
    let mut tasks = Tasks::default();
    let last = CancellationToken::new();
    let mirrors = Mirrors::new(&metrics);
    // Before the mirrors are filled: how a pod ends is seen by whoever leads next, too.
    let last_seen = LastSeen::of(&mirrors);
    let boards = Boards::of(&mirrors);
    tasks.background.spawn({
        let (boards, last) = (boards.clone(), last.clone());
        async move { boards.settle(&last).await }
    });
    let callers = Callers::of(&mirrors);
    let term = if lease.is_some() { Term::default() } else { Term::endless() };
    let regions = ConsistentRegions::of(&mirrors, term.clone());
    tasks.background.spawn({
        let (mirrors, client, scope, last) = (mirrors.clone(), client.clone(), options.scope(), last.clone());
        async move { mirrors.run(&client, &scope, &last).await }
    });
    let reporter = Reporter { controller: REPORTER.into(), instance: identity.into() };
    let (events, publishing) = Events::new(client.clone(), reporter, &metrics);
    tasks.background.spawn(publishing);

    let http = listen(options.endpoints.http_listen, "--http-listen").await?;
    let pages = {
        let (metrics, mirrors) = (metrics.clone(), mirrors.clone());
        Pages::new(move || metrics.text(), move || readiness(&mirrors))
    };
    let probes = pages.serve(http, last.clone().cancelled_owned());
    tasks.servers.spawn(async move { probes.await.context("probes") });

    let mut fusion = options.fusion()?;
    fusion.figures = MadeCalls::among(&metrics);
    if let Some(service) = options.fusion_service_endpoints.clone() {
        let (told, endpoints) = latest::channel(Vec::new());
        fusion.endpoints = Some(endpoints);
        let (client, metrics, last, here) = (client.clone(), metrics.clone(), last.clone(), here.clone());
        let told = (told, std::convert::identity as fn(_) -> _);
        tasks
            .background
            .spawn(async move { service_endpoints::watch(client, service, &here, &metrics, told, last).await });
    }
    let fusion = fusion::Client::new(fusion);

    let (told, pe_api_addresses) = latest::channel(BTreeSet::from_iter(options.endpoints.pe_api_address));
    if let Some(service) = options.endpoints.pe_api_endpoints.clone() {
        let (client, metrics, last) = (client.clone(), metrics.clone(), last.clone());
        let told = (told, addresses as fn(_) -> _);
        tasks
            .background
            .spawn(async move { service_endpoints::watch(client, service, &here, &metrics, told, last).await });
    }
    let listener = listen(options.endpoints.pe_api_listen, "--pe-api-listen").await?;
    tracing::info!(address = %listener.local_addr()?, "serving the PE API");
    let grace = options.time_outs.grace_seconds;
    let gate = Gate::new(Limits::of(options.jobs.concurrent_calls.into()), &metrics);
    let cluster = |gate| ApiServer::new(client.clone(), events.clone(), gate);
    let (own, shared) = (cluster(Gate::new(Limits::of(PE_API_CALLS), &metrics)), cluster(gate.clone()));
    let (stop, seen) = (asked_to_stop.clone(), mirrors.clone());
    let are_led_away = Arc::new(move || stop.is_cancelled() || seen.too_old().is_some());
    let pe_api = PeApi::new(own, shared, boards.clone(), callers, regions.clone(), are_led_away, &metrics);
    tasks.background.spawn(pe_api.task_ended());
    let pe_api_ends = CancellationToken::new();
    // From when regions are not driven any more. On a worker, as all that hears PEs.
    let awake = Awake::default();
    let _looking = AbortOnDropHandle::new(tokio::spawn(awake.clone().look(asked_to_stop.clone())));
    let (served, stop) = (pe_api.clone(), pe_api_ends.clone());
    let figures = HttpRequests::among(&metrics);
    tasks.servers.spawn(async move {
        // However it ends, nobody is heard from then on.
        let _ends = stop.clone().drop_guard();
        pe_api::server::serve(listener, served, figures, stop, grace).await;
        Ok(())
    });

    let listener = listen(options.endpoints.elasticity_listen, "--elasticity-listen").await?;
    tracing::info!(address = %listener.local_addr()?, "serving the elasticity API and the subscription API");
    let dry_runs = controllers::dry_runs(&client, &mirrors, &events, &metrics, &fusion, &options.jobs);
    let service =
        Elasticity::new(client.clone(), Arc::new(mirrors.clone()), dry_runs, options.time_outs.longest_wait_seconds);
    let cluster = cluster(Gate::new(Limits::of(SUBSCRIPTION_CALLS), &metrics));
    let (stopping, turns) = (service.stopping(), pe_api.turns());
    let subscriptions = SubscriptionApi::new(cluster, mirrors.clone(), boards.clone(), turns, stopping.clone());
    let access = options.access(&client, stopping.clone());
    let services = Services::new(access.clone())
        .counted(ServedCalls::among(&metrics))
        .with(service.into_server(access.clone()), elasticity::ERROR_DOMAIN)
        .with(subscriptions.into_server(access), subscription::ERROR_DOMAIN);
    let (stop, filled) = (asked_to_stop.clone(), mirrors.clone());
    tasks.servers.spawn(async move {
        // Until then it would say that jobs do not exist; callers wait to be accepted.
        tokio::select! {
            () = filled.synced() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let stop = stop.cancelled_owned();
        let too_old = move || filled.too_old();
        grpc::server::serve(listener, services, too_old, stopping, stop, grace).await.context("gRPC services")
    });

    let fetcher = Fetcher::new(options.bundles.fetcher(api_server, options.jobs.download_workers))
        .context("bundles cannot be fetched")?;
    let listener = listen(options.endpoints.bundle_repository_listen, "--bundle-repository-listen").await?;
    tracing::info!(address = %listener.local_addr()?, "serving bundles to PEs");
    let settings = options.bundles.repository(grace);
    let repository = BundleRepository::new(fetcher.clone(), client.clone(), settings, pe_api);
    let (counters, stop) = (repository::counters(&metrics), asked_to_stop.clone());
    tasks.servers.spawn(async move {
        repository.serve(listener, counters, stop.cancelled_owned()).await.context("bundles for PEs")
    });

    // One replica: the controllers.
    let dependencies = Dependencies {
        client: client.clone(),
        regions: regions.clone(),
        boards,
        pe_api: pe_api_addresses,
        pe_api_address: options.endpoints.pe_api_address,
        events: events.clone(),
        metrics: metrics.clone(),
        gate,
        fusion,
        bundles: fetcher,
        jobs: options.jobs.clone(),
        pods: options.pods.clone(),
        last_seen,
    };
    let mut released = None;
    let lead = async {
        tokio::select! {
            () = mirrors.synced() => {}
            () = asked_to_stop.cancelled() => return Ok(()),
        }
        tracing::info!("the mirrors are filled");
        let (client, scope, stop) = (client.clone(), options.scope(), asked_to_stop.clone());
        let has_predecessor = lease.is_some();
        // On the heap: it is large, and whatever is put around it would need room on the stack for it.
        let controllers = Box::pin(async {
            if has_predecessor && !catch_up(&mirrors, &client, &scope, &stop).await {
                return Ok(());
            }
            work(dependencies, stop.clone(), options.calls().deadline).await
        });
        match lease {
            None => without_lease(&metrics, controllers).await,
            Some(lease) => match leadership::acquire(client.clone(), lease, term, &metrics, &asked_to_stop).await {
                Some(leader) => {
                    released = while_leading(leader, controllers).await?;
                    Ok(())
                }
                None => Ok(()),
            },
        }
    };
    let patience = options.calls().deadline * 2 + LAST_TASKS;
    // Another replica goes on, if that fails: nothing may be written any more, not even to say good-bye.
    let unasked = tasks.unasked_end_beside(lead, &asked_to_stop, patience).await?;

    // One that has no address leads nobody to itself.
    if let (None, Some(released), Some(_)) = (&unasked, released, options.endpoints.pe_api_address) {
        hand_over(released, &regions, &pe_api_ends, &awake).await;
    }
    pe_api_ends.cancel();
    drop(events);
    last.cancel();
    if timeout(grace + LAST_TASKS, tasks.end()).await.is_err() {
        tracing::warn!("some tasks did not end in time");
    }
    if let Some(unasked) = unasked {
        return Err(unasked);
    }
    tracing::info!("ended as asked");
    Ok(())
}

/// What runs as long as the process does.
#[derive(Default)]
struct Tasks {
    /// Those that others call.
    servers: JoinSet<anyhow::Result<()>>,
    /// All others.
    background: JoinSet<()>,
}

impl Tasks {
    /// Leads until that ends. If a task ends before although nobody has asked for it, leading is asked to end: why is
    /// returned after it has, or has not for so long.
    ///
    /// # Errors
    /// What leads failed.
    async fn unasked_end_beside(
        &mut self,
        lead: impl Future<Output = anyhow::Result<()>>,
        asked_to_stop: &CancellationToken,
        patience: Duration,
    ) -> anyhow::Result<Option<anyhow::Error>> {
        let mut lead = pin!(lead);
        let unasked = tokio::select! {
            result = &mut lead => return result.map(|()| None),
            unasked = self.unasked_end(asked_to_stop) => unasked,
        };
        tracing::error!(error = format!("{unasked:#}"), "this process ends, because a part of it does");
        asked_to_stop.cancel();
        match timeout(patience, lead).await {
            Ok(result) => result.context(format!("leading failed after {unasked:#}"))?,
            Err(_) => tracing::warn!("the lease was not released in time; others wait until it ends"),
        }
        Ok(Some(unasked))
    }

    /// Why one of them has ended although nobody asked for it.
    async fn unasked_end(&mut self, asked_to_stop: &CancellationToken) -> anyhow::Error {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.servers.join_next() => ended.map_err(anyhow::Error::from).flatten(),
                Some(ended) = self.background.join_next() => ended.map_err(anyhow::Error::from),
                else => std::future::pending().await,
            };
            if !asked_to_stop.is_cancelled() {
                return ended.err().unwrap_or_else(|| anyhow!("a task ended that runs as long as the process"));
            }
            report(ended);
        }
    }

    /// Waits for the end of all.
    async fn end(&mut self) {
        while let Some(ended) = self.servers.join_next().await {
            report(ended.map_err(anyhow::Error::from).flatten());
        }
        while let Some(ended) = self.background.join_next().await {
            report(ended.map_err(anyhow::Error::from));
        }
    }
}

/// Brings the mirrors up to the moment at which this process begins to lead. False if it is asked to stop before.
async fn catch_up(mirrors: &Mirrors, client: &Client, scope: &Scope, stop: &CancellationToken) -> bool {
    let caught_up = async {
        while let Err(error) = mirrors.catch_up(client, scope).await {
            tracing::warn!(error = with_causes(&error), "the mirrors cannot be compared; will try again");
            sleep(CATCH_UP_AGAIN).await;
        }
    };
    tokio::select! {
        () = caught_up => true,
        () = stop.cancelled() => false,
    }
}

/// Does the work of the leader in a process that leads as long as it does, until it ends by itself.
///
/// # Errors
/// The work failed.
async fn without_lease(metrics: &Metrics, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    metrics.set_leader(true);
    let result = work.await;
    metrics.set_leader(false);
    result
}

/// Does the work of the leader until it ends by itself, then releases the Lease: also if it has failed, so that nobody
/// waits for its end.
///
/// # Errors
/// The work failed, or leadership was lost; then the work is dropped where it is.
async fn while_leading(
    leader: Leader,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Option<Released>> {
    let release = CancellationToken::new();
    // A task of its own: however long a step of the work takes, the Lease is renewed beside it.
    let holding = AbortOnDropHandle::new(tokio::spawn({
        let release = release.clone();
        async move { leader.hold(&release).await }
    }));
    let hold = async { holding.await?.context("leadership was lost") };
    let work = async {
        let result = work.await;
        release.cancel();
        Ok::<_, anyhow::Error>(result)
    };
    tokio::try_join!(hold, work).and_then(|(released, result)| result.map(|()| released))
}

/// Whether this process runs all the time. One that was frozen for a while has not heard who has given up meanwhile.
/// Cheap to clone; all clones are the same. By default nobody looks.
#[derive(Clone, Default)]
struct Awake {
    /// When it was seen to run last, if it has done so all the time.
    last: Arc<Mutex<Option<Instant>>>,
}

impl Awake {
    /// Looks from when that is cancelled, until it was frozen.
    async fn look(self, begin: CancellationToken) {
        begin.cancelled().await;
        *self.lock() = Some(Instant::now());
        while self.is_so() {
            sleep(LOOK_EVERY).await;
        }
        tracing::warn!("this process was frozen, and may not have heard what PEs report");
    }

    /// Whether it has run since it was looked at first.
    fn is_so(&self) -> bool {
        let mut last = self.lock();
        *last = last.filter(|last| last.elapsed() < GIVEN_UP_AFTER / 2).map(|_| Instant::now());
        last.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears what PEs report until they are led to the next leader, and says to that of which regions something is lost
/// (rule call-32). If the PE API ends before, or this process was frozen, it has not heard all, and says nothing.
async fn hand_over(released: Released, regions: &ConsistentRegions, pe_api_ends: &CancellationToken, awake: &Awake) {
    if !regions.mirrors.consistent_regions.keys().is_empty() {
        tracing::info!("PEs of consistent regions may report for {LINGER:?}");
        tokio::select! {
            () = sleep_until(released.at() + LINGER) => {}
            () = pe_api_ends.cancelled() => {}
        }
    }
    let words = || if awake.is_so() && !pe_api_ends.is_cancelled() { regions.last_words() } else { None };
    let error = match timeout(LAST_WORDS, released.say(words)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => with_causes(&error),
        Err(_) => "it took too long".to_owned(),
    };
    tracing::warn!(error, "the next leader does not hear what is lost of reports, and takes nothing for granted");
}

/// Whether all mirrors can be relied on, and which cannot (rule call-18).
fn readiness(mirrors: &Mirrors) -> Readiness {
    let health = mirrors.health().map(|(kind, problem)| match problem {
        None => (format!("watch of {kind}"), true),
        Some(problem) => (format!("watch of {kind}: {problem}"), false),
    });
    Readiness::all(&health.each_ref().map(|(line, good)| (line.as_str(), *good)))
}

/// A token that is cancelled by SIGTERM or SIGINT. The second signal ends the process.
fn signals() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let asked = CancellationToken::new();
    let token = asked.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if token.is_cancelled() {
                std::process::exit(130);
            }
            tracing::info!("asked to stop");
            token.cancel();
        }
    });
    Ok(asked)
}

/// The cluster of a context of the kubeconfig; without one, of its current context or of the pod.
fn configuration(context: Option<&str>) -> anyhow::Result<Config> {
    let is_named = context.is_some();
    // kube's messages have their causes in them already.
    let config = match configuration::from_kubeconfig(context) {
        Err(of_kubeconfig) if !is_named => Config::incluster().map_err(|of_pod| anyhow!("{of_pod}; {of_kubeconfig}")),
        config => config.map_err(|error| anyhow!("{error}")),
    };
    config.context("there is no usable cluster configuration")
}

/// Names and addresses of the API server: that of the configuration, and that which every pod is given.
fn api_server(config: &Config) -> Vec<String> {
    let of_pod = std::env::var("KUBERNETES_SERVICE_HOST").ok().filter(|host| !host.is_empty());
    config.cluster_url.host().map(str::to_owned).into_iter().chain(of_pod).collect()
}

/// The addresses of the replicas that are not about to go.
fn addresses(replicas: Vec<fusion::Endpoint>) -> BTreeSet<IpAddr> {
    replicas.into_iter().filter(|replica| !replica.is_terminating).map(|replica| replica.address.ip()).collect()
}

async fn listen(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{option} {address}"))
}

fn report(result: anyhow::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(error = format!("{error:#}"), "a task failed at the end");
    }
}

/// The controllers; they end when they are asked to stop and what they are at is finished. No call that is under way
/// takes longer than `finish`.
///
/// # Errors
/// A part of them has panicked.
async fn work(dependencies: Dependencies, stop: CancellationToken, finish: Duration) -> anyhow::Result<()> {
    unless_panicked(Box::pin(controllers::run(dependencies, stop, finish))).await
}

/// Does the work of the controllers. What has panicked is told already, and nothing of it is used any more.
///
/// # Errors
/// It has panicked.
async fn unless_panicked(controllers: impl Future<Output = ()>) -> anyhow::Result<()> {
    AssertUnwindSafe(controllers).catch_unwind().await.map_err(|_| anyhow!("the controllers have panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request, Response};
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use streams_api::{ConsistentRegion, ConsistentRegionSpec};
    use streams_kubernetes::leadership::LeaseOptions;
    use streams_kubernetes::queue::{BackOff, Queue, Sharing};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_task_that_ends_unasked_is_noticed() {
        let fails = || async { Err(anyhow!("no port")) };
        // what ends -> part of why
        let table: [(fn(&mut Tasks), &str); 4] = [
            (|tasks| _ = tasks.background.spawn(async { panic!("on purpose") }), "on purpose"),
            (|tasks| _ = tasks.background.spawn(ready(())), "a task ended"),
            (|tasks| _ = tasks.servers.spawn(ready(Ok(()))), "a task ended"),
            (|tasks| _ = tasks.servers.spawn(async { panic!("on purpose") }), "on purpose"),
        ];
        for (end, expected) in table {
            let mut tasks = Tasks::default();
            tasks.background.spawn(pending());
            tasks.servers.spawn(pending());
            end(&mut tasks);
            let stop = CancellationToken::new();
            let why = tasks.unasked_end_beside(stop.clone().cancelled_owned().map(Ok), &stop, PATIENCE).await;
            let why = format!("{:#}", why.unwrap().unwrap());
            assert!(why.contains(expected) && stop.is_cancelled(), "{why}");
        }
        let mut tasks = Tasks::default();
        tasks.servers.spawn(fails());
        let why = tasks.unasked_end(&CancellationToken::new()).await;
        assert_eq!(why.to_string(), "no port");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_as_asked_or_while_leading_fails_is_none_of_these() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        stop.cancel();
        tasks.background.spawn(ready(()));
        let lead = async {
            sleep(PATIENCE).await;
            Ok(())
        };
        assert!(tasks.unasked_end_beside(lead, &stop, PATIENCE).await.unwrap().is_none());
        let lead = async { Err(anyhow!("the lease is lost")) };
        assert!(tasks.unasked_end_beside(lead, &stop, PATIENCE).await.is_err());
        // Leading that does not end is left.
        let stop = CancellationToken::new();
        tasks.background.spawn(ready(()));
        assert!(tasks.unasked_end_beside(pending(), &stop, PATIENCE).await.unwrap().is_some());
    }

    /// The API server, as far as it has one Lease: the last that was written.
    fn api_server_with_lease(lease: &Arc<Mutex<Option<Lease>>>) -> Client {
        let lease = Arc::clone(lease);
        let service = tower::service_fn(move |request: Request<Body>| {
            let lease = Arc::clone(&lease);
            async move {
                let is_read = request.method() == Method::GET;
                let body = request.into_body().collect_bytes().await.unwrap_or_default();
                let mut lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
                if !is_read {
                    *lease = serde_json::from_slice(&body).ok();
                }
                let (status, body) = match &*lease {
                    Some(lease) => (200, serde_json::to_vec(lease).unwrap()),
                    None => (
                        404,
                        br#"{"kind":"Status","status":"Failure","message":"","reason":"NotFound","code":404}"#.to_vec(),
                    ),
                };
                Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(body)).unwrap())
            }
        });
        Client::new(service, "n")
    }

    #[tokio::test]
    async fn a_process_without_a_lease_says_that_it_leads_as_long_as_it_does() {
        let metrics = Metrics::new("test");
        let says = |leads: u8| metrics.text().unwrap().contains(&format!("\ntest_leader {leads}\n"));
        assert!(says(0));
        let work = async {
            assert!(says(1));
            Ok(())
        };
        without_lease(&metrics, work).await.unwrap();
        assert!(says(0));
    }

    fn holder(lease: &Mutex<Option<Lease>>) -> Option<String> {
        lease.lock().unwrap().as_ref().and_then(|lease| lease.spec.clone()?.holder_identity)
    }

    /// Who has got this Lease.
    async fn leader(lease: &Arc<Mutex<Option<Lease>>>) -> Leader {
        let client = api_server_with_lease(lease);
        let options = LeaseOptions {
            namespace: "n".to_owned(),
            name: "l".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_secs(15),
            renew_interval: Duration::from_secs(2),
            renew_deadline: Duration::from_secs(10),
        };
        let (stop, metrics) = (CancellationToken::new(), Metrics::new("test"));
        let leader = leadership::acquire(client, options, Term::default(), &metrics, &stop).await.unwrap();
        assert_eq!(holder(lease).as_deref(), Some("me"));
        leader
    }

    #[tokio::test]
    async fn the_lease_is_given_up_when_controllers_panic() {
        let lease = Arc::default();
        let work = unless_panicked(async { panic!("on purpose") });
        let why = while_leading(leader(&lease).await, work).await.err().unwrap();
        assert_eq!((why.to_string().as_str(), holder(&lease)), ("the controllers have panicked", None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_has_ended_stays_for_pes_and_speaks_if_it_has_heard_all() {
        // whether there are regions, the PE API goes on, it was frozen -> whether it stays, whether it speaks
        for (has_regions, is_heard, is_frozen, stays, speaks) in [
            (true, true, false, true, true),
            (false, true, false, false, true),
            (true, false, false, false, false),
            (true, true, true, true, false),
        ] {
            let (lease, metrics, ends) = (Arc::default(), Metrics::new("test"), CancellationToken::new());
            let released = while_leading(leader(&lease).await, ready(Ok(()))).await.unwrap().unwrap();
            let regions = ConsistentRegions::of(&Mirrors::new(&metrics), Term::default());
            if has_regions {
                let mut region = ConsistentRegion::new("flow-cr0", ConsistentRegionSpec::default());
                region.metadata.namespace = Some("n".to_owned());
                regions.mirrors.consistent_regions.insert(region);
            }
            let queue = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
            regions.reports.open(queue, []);
            if !is_heard {
                ends.cancel();
            }
            let begun = Instant::now();
            let awake = looked_at();
            tokio::task::yield_now().await;
            if is_frozen {
                tokio::time::advance(GIVEN_UP_AFTER).await;
            }
            hand_over(released, &regions, &ends, &awake).await;
            let annotations =
                lease.lock().unwrap().as_ref().and_then(|lease: &Lease| lease.metadata.annotations.clone());
            let note = annotations.unwrap_or_default().into_values().collect::<String>();
            assert_eq!(
                (begun.elapsed() > LINGER / 2, note.contains("words")),
                (stays, speaks),
                "{has_regions} {is_heard} {is_frozen}"
            );
        }
    }

    /// A process that is asked to stop now.
    fn looked_at() -> Awake {
        let (awake, stop) = (Awake::default(), CancellationToken::new());
        stop.cancel();
        tokio::spawn(awake.clone().look(stop));
        awake
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_frozen_knows_that_it_has_not_heard_all() {
        assert!(!Awake::default().is_so(), "nobody has looked");
        // milliseconds for which it was frozen, from any moment on -> it has heard all
        for (frozen, expected) in [(0, true), (300, true), (600, false), (1_000, false), (1_700, false)] {
            for before in [0, 30, 99] {
                let awake = looked_at();
                sleep(LINGER / 2 + Duration::from_millis(before)).await;
                assert!(awake.is_so());
                tokio::time::advance(Duration::from_millis(frozen)).await;
                assert_eq!(awake.is_so(), expected, "{frozen} {before}: whoever asks at once knows it, too");
                sleep(LINGER / 2).await;
                assert_eq!(awake.is_so(), expected, "{frozen} {before}");
            }
        }
    }

    #[tokio::test]
    async fn the_lease_is_given_up_when_a_mirror_panics() {
        let (lease, stop) = (Arc::default(), CancellationToken::new());
        let leader = leader(&lease).await;
        let mut tasks = Tasks::default();
        tasks.background.spawn(async { panic!("on purpose") });
        let work = stop.clone().cancelled_owned().map(Ok);
        let lead = async { while_leading(leader, work).await.map(drop) };
        let unasked = tasks.unasked_end_beside(lead, &stop, PATIENCE).await.unwrap();
        assert!(unasked.is_some());
        assert_eq!(holder(&lease), None);
    }
}
