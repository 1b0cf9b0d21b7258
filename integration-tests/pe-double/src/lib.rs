//! A test double of the PE runtime. It is a test double for the contract, not a stream processor: it reads what a pod
//! gives a PE, finds its peers, moves numbered tuples along its connections, and counts.
//!
//! ```text
//!   options, aadl      what the pod says                    api, bundle, resolver    the operator and names
//!   operators  <---->  engine  ---->  link  ---->  other doubles (frame)
//!     seen, waves, checkpoints          peers
//!   routes, filter     messages about dynamic connections, and which tuples go there
//!   region             messages about consistent regions, reports
//!   report, status     connectivity, the status page
//! ```
//!
//! What is the contract: environment, files, ports, paths and bodies of calls, the forms of messages, the ways from a
//! port to an address, deadlines and intervals. What is not: the format of what doubles send each other ([`start`] of
//! one and of a real PE do not understand each other), tuples, operators, and the status page.
//!
//! Knows: the contract. Must not know: Kubernetes, and how the operator works inside.
//!
//! Invariants: every call has a deadline and every queue a length; all that a [`Double`] does ends with it.
//!
//! [`start`]: Double::start

mod aadl;
mod api;
mod bundle;
mod checkpoints;
mod connections;
mod control;
mod engine;
mod filter;
mod frame;
mod link;
mod operators;
mod options;
mod peers;
mod region;
mod report;
mod resolver;
mod routes;
mod scope;
mod seen;
pub mod status;
mod waves;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;

pub use self::api::{API_PORT, CALL};
pub use self::bundle::{BUNDLE_PORT, question};
pub use self::options::{CheckpointStyle, Options};
pub use self::peers::{DATA_PORT, PortLabel, data_port};
pub use self::region::{REGIONS_PORT, UNREADABLE};
pub use self::routes::ROUTES_PORT;
pub use self::status::Status;

/// Where the document of the PE is.
const DOCUMENT: &str = "/etc/config/pe/aadl.xml";
/// Where the labels of ports are.
const LABELS: &str = "/etc/config/job/operator_port_labels.properties";
/// What has arrived and was not moved yet.
const ARRIVED: usize = 1024;
/// What the engine was told and has not done yet.
const TOLD: usize = 64;

/// A running double. All of it ends with this value.
#[derive(Debug)]
pub struct Double {
    facts: Arc<report::Facts>,
    owner: scope::Owner,
}

impl Double {
    /// Reads what the pod gives, fetches the bundle, and starts. When this returns, its ports are open.
    ///
    /// # Errors
    /// When something of it is missing or wrong, or a port is taken.
    pub async fn start(options: &Options) -> Result<Self> {
        let pe = document(options).await?;
        let resolver = Arc::new(match (&options.hosts, options.dns) {
            (Some(hosts), _) => resolver::Resolver::Hosts(hosts.clone()),
            (None, Some(server)) => resolver::Resolver::dns(server, options.address),
            (None, None) => anyhow::bail!("neither a DNS server nor a file of names is given"),
        });
        let service = format!("streams-api.{}", options.namespace);
        let bundle = if options.without_bundle {
            None
        } else {
            let (from, name) = (options.address, &options.sab);
            let bytes = bundle::fetch(&resolver, from, &service, name).await?.len();
            Some(status::BundleStatus { name: name.clone(), bytes })
        };
        let api = api::Api::new(Arc::clone(&resolver), options.address, service)?;
        Self::connect(options, pe, resolver, api, bundle).await
    }

    async fn connect(
        options: &Options,
        pe: aadl::Pe,
        resolver: Arc<resolver::Resolver>,
        api: api::Api,
        bundle: Option<status::BundleStatus>,
    ) -> Result<Self> {
        let connections = Arc::new(connections::Connections::default());
        let peers = pe.inputs.iter().flat_map(|port| &port.peers);
        let label = |(of, port): &(u64, u32)| PortLabel { pe: *of, port: *port, job_id: pe.job_id };
        connections.expect(peers.map(label).collect::<BTreeSet<_>>());
        let peers = peers::Peers::new(
            api.clone(),
            Arc::clone(&resolver),
            options.namespace.clone(),
            pe.job_id,
            options.path(LABELS),
            options.cache(),
        );
        let network = Arc::new(link::Network {
            peers,
            connections: Arc::clone(&connections),
            address: options.address,
            pe: pe.id,
            job_id: pe.job_id,
        });
        let checkpoints =
            checkpoints::Checkpoints::new(options.checkpoint_directory(), &format!("{}-{}", options.job, options.pe));
        let Options { limit, drain_every, reset_every, rests, .. } = *options;
        let habits = operators::Habits { limit, drain_every, reset_every, rests };
        let operators = operators::Operators::new(&pe, options.launch, habits, checkpoints);
        let regions = operators.regions().next().is_some();
        let operators = Arc::new(Mutex::new(operators));
        let facts = Arc::new(report::Facts {
            namespace: options.namespace.clone(),
            job: options.job.clone(),
            job_id: pe.job_id,
            pe: pe.id,
            launch: options.launch,
            address: options.address,
            bundle,
            started: Arc::new(AtomicBool::new(false)),
            reported: Mutex::new(None),
            routes: Arc::default(),
            connections: Arc::clone(&connections),
            operators: Arc::clone(&operators),
        });

        let (scope, owner) = scope::Scope::new();
        let (arrive, arrived) = mpsc::channel(ARRIVED);
        let (control, told) = mpsc::channel(TOLD);
        let (reports, reported) = mpsc::channel(TOLD);
        let page = tcp(options.address, options.status_port).await?;
        let routes = udp(options.address, ROUTES_PORT).await?;
        let of_regions = if regions { Some(udp(options.address, REGIONS_PORT).await?) } else { None };
        for port in &pe.inputs {
            let listener = tcp(options.address, data_port(port.id)?).await?;
            scope.spawn(link::listen(scope.clone(), listener, port.id, Arc::clone(&connections), arrive.clone()));
        }

        let mut ports: BTreeMap<u32, engine::Port> = BTreeMap::new();
        for port in &pe.outputs {
            let attributes = port.integers.clone();
            let links = &mut ports.entry(port.id).or_insert(engine::Port { attributes, links: Vec::new() }).links;
            for peer in &port.peers {
                let described = status::OutputStatus {
                    port: port.id,
                    kind: "static".to_owned(),
                    ..status::OutputStatus::default()
                };
                let target = link::Target::Operator(*peer);
                links.push(engine::Way::fixed(link::Link::open(&scope, &network, target, described)));
            }
        }
        let engine = engine::Engine {
            operators,
            ports,
            scope: scope.clone(),
            network,
            reports,
            started: Arc::clone(&facts.started),
            rate: options.rate,
            start_wait: Duration::from_millis(options.start_wait_ms),
        };
        scope.spawn(engine.run(arrived, told));
        scope.spawn(report::page(page, Arc::clone(&facts)));
        scope.spawn(report::connectivity(api.clone(), Arc::clone(&facts)));
        let looked_after = routes::Routes {
            api: api.keeping_connection()?,
            job: options.job.clone(),
            pe: options.pe,
            poll: Duration::from_millis(options.routes_poll_ms),
            status: Arc::clone(&facts.routes),
            connections: Arc::clone(&connections),
            control: control.clone(),
        };
        scope.spawn(looked_after.run(routes));
        if let Some(socket) = of_regions {
            let service = format!("streams-{}-consistentregion-api.{}", options.job, options.namespace);
            let api = api::Api::new(resolver, options.address, service)?;
            let reporter = region::Reporter {
                api: api.clone(),
                pe: options.pe,
                style: options.checkpoint_style,
                connections: Arc::clone(&connections),
                control: control.clone(),
            };
            scope.spawn(reporter.run(reported));
            let poll = Duration::from_millis(options.region_poll_ms);
            let api = api.keeping_connection()?.keeping_address(Duration::from_millis(options.region_address_ms));
            let regions = region::Regions { api, pe: options.pe, poll, connections, control, scope: scope.clone() };
            scope.spawn(regions.run(socket));
        }
        Ok(Self { facts, owner })
    }

    /// What its status page says.
    #[must_use]
    pub fn status(&self) -> Status {
        self.facts.status()
    }

    /// Waits until it ends by itself, as the process of a PE does that is told what it cannot read; says why.
    pub async fn ended(&self) -> String {
        self.owner.ended().await
    }
}

async fn document(options: &Options) -> Result<aadl::Pe> {
    let path = options.path(DOCUMENT);
    let text = tokio::fs::read_to_string(&path).await.with_context(|| format!("cannot read {}", path.display()))?;
    let pe = aadl::parse(&text).with_context(|| format!("cannot use {}", path.display()))?;
    let is = (pe.job.as_str(), pe.id);
    let should = (options.job.as_str(), options.pe);
    ensure!(is == should, "the document is of the PE {is:?}, the environment says {should:?}");
    Ok(pe)
}

async fn tcp(address: IpAddr, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on TCP {address}"))
}

async fn udp(address: IpAddr, port: u16) -> Result<UdpSocket> {
    let address = SocketAddr::new(address, port);
    UdpSocket::bind(address).await.with_context(|| format!("cannot listen on UDP {address}"))
}
