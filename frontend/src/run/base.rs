//! What every replica has before it serves anybody: the client, mirrors and boards that follow them, and Events.
//!
//! Knows: the cluster, and when the process is asked to stop. Must not know: what is served, who leads.

use super::tasks::Tasks;
use crate::broker::Boards;
use crate::consistent_regions::ConsistentRegions;
use crate::controllers::LastSeen;
use crate::mirrors::Mirrors;
use crate::options::RunOptions;
use crate::pe_api::Callers;
use anyhow::{Context as _, anyhow};
use kube::{Client, Config};
use std::sync::Arc;
use streams_kubernetes::client::{CallOptions, configuration};
use streams_kubernetes::cluster::ApiServer;
use streams_kubernetes::events::{Events, Reporter};
use streams_kubernetes::gate::{Gate, Limits};
use streams_kubernetes::leadership::{LeaseOptions, Term};
use streams_kubernetes::metrics::Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Who reports Events.
const REPORTER: &str = "streams.ibm.com/frontend";

/// Makes the client of the API server.
pub(crate) type MakeClient = fn(Config, CallOptions, &Metrics) -> kube::Result<Client>;

/// What every replica has.
pub(super) struct Base {
    /// Cancelled by a signal, or when a part of the process has ended.
    pub(super) asked_to_stop: CancellationToken,
    /// Cancelled when all that others wait for has ended.
    pub(super) last: CancellationToken,
    pub(super) metrics: Metrics,
    pub(super) client: Client,
    /// The namespace of the configuration.
    pub(super) here: String,
    /// Names and addresses of the API server.
    pub(super) api_server: Vec<String>,
    /// How it is agreed on who leads; nothing, if this process leads without that.
    pub(super) lease: Option<LeaseOptions>,
    pub(super) term: Term,
    pub(super) mirrors: Mirrors,
    pub(super) last_seen: Arc<LastSeen>,
    pub(super) boards: Boards,
    pub(super) callers: Callers,
    pub(super) regions: ConsistentRegions,
    pub(super) events: Events,
    /// Where calls of the controllers wait for each other, and what PEs tell of their connections.
    pub(super) gate: Gate,
}

impl Base {
    /// Mirrors begin to be filled, boards follow them, Events go out.
    ///
    /// # Errors
    /// Options do not fit together, there is no usable cluster, or signals cannot be handled.
    pub(super) fn new(options: &RunOptions, make_client: MakeClient, tasks: &mut Tasks) -> anyhow::Result<Self> {
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
        let client =
            make_client(config, options.calls(), &metrics).context("the Kubernetes client cannot be set up")?;

        let last = CancellationToken::new();
        let mirrors = Mirrors::new(&metrics);
        // Before the mirrors are filled: how a pod ends is seen by whoever leads next, too.
        let last_seen = LastSeen::of(&mirrors);
        let boards = Boards::of(&mirrors);
        tasks.background.spawn("boards", {
            let (boards, last) = (boards.clone(), last.clone());
            async move { boards.settle(&last).await }
        });
        let callers = Callers::of(&mirrors);
        let term = if lease.is_some() { Term::default() } else { Term::endless() };
        let regions = ConsistentRegions::of(&mirrors, term.clone());
        tasks.background.spawn("mirrors", {
            let (mirrors, client, scope, last) = (mirrors.clone(), client.clone(), options.scope(), last.clone());
            async move { mirrors.run(&client, &scope, &last).await }
        });
        let reporter = Reporter { controller: REPORTER.into(), instance: identity.into() };
        let (events, publishing) = Events::new(client.clone(), reporter, &metrics);
        tasks.background.spawn("Events", publishing);
        let gate = Gate::new(Limits::of(options.jobs.concurrent_calls.into()), &metrics);
        Ok(Self {
            asked_to_stop,
            last,
            metrics,
            client,
            here,
            api_server,
            lease,
            term,
            mirrors,
            last_seen,
            boards,
            callers,
            regions,
            events,
            gate,
        })
    }

    /// The API server, for calls that wait for each other at this gate.
    pub(super) fn cluster(&self, gate: Gate) -> ApiServer {
        ApiServer::new(self.client.clone(), self.events.clone(), gate)
    }
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
