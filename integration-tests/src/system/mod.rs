//! The services of the project as processes of their own: replicas of the fusion service and of the frontend.
//!
//! [`Programs`] are the executables, [`System`] is them running against an API server. Addresses stay the same when a
//! process is killed and started again. What they have brought about:
//!
//! * [`rights`] — what the frontend may do in a cluster;
//! * [`job`] — a job as its users see it: objects, conditions, waiting;
//! * [`snapshot`] — its pods at a moment, and what two moments differ in;
//! * [`inventory`] — all its objects, and what is wrong with them once the job has settled;
//! * [`picture`] — all its objects without what differs from one job to the next, to compare two jobs.
//!
//! Knows: how the programs are started, what a job consists of. Must not know: what a test does with it.

pub mod inventory;
pub mod job;
pub mod picture;
pub mod rights;
pub mod snapshot;

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use streams_control_plane::process::{Process, Program, StateDirectory, Supervisor, free_port, serves_grpc};
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::subscription::v1::subscription_service_client::SubscriptionServiceClient;
use tonic::transport::Channel;

/// A service is there in a second on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// A figure takes milliseconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Ports at which PEs ask the frontend.
const PE_API_PORT: u16 = 10_000;
const BUNDLES_PORT: u16 = 6_379;
/// gRPC service whose health says that the fusion service can compile.
const FUSION_SERVICE: &str = "streams.fusion.v1.FusionService";
/// gRPC service whose health says that the elasticity API answers.
const ELASTICITY_SERVICE: &str = "streams.elasticity.v1.ElasticityService";

/// Arguments of a frontend after whose death another one leads within ten seconds. Not less: on a machine with much
/// else to do a leader must be able to renew its lease.
pub const SHORT_LEASE: [&str; 8] =
    ["--lease-seconds", "10", "--renew-deadline-seconds", "8", "--renew-seconds", "1", "--call-seconds", "8"];

/// Arguments of a frontend that is the only one: however busy the machine is, it goes on leading.
pub const LONG_LEASE: [&str; 6] = ["--lease-seconds", "120", "--renew-deadline-seconds", "100", "--renew-seconds", "5"];

/// The executables of the services, and of the double of a PE.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `streams-frontend`.
    pub frontend: PathBuf,
    /// `fusion-service`.
    pub fusion: PathBuf,
    /// `kubectl-streams`.
    pub kubectl_streams: PathBuf,
    /// `pe-double`.
    pub pe_double: PathBuf,
}

impl Programs {
    /// Builds them if need be, for the profile of this process.
    ///
    /// # Errors
    /// When they do not compile.
    pub async fn build(supervisor: &Supervisor) -> Result<Self> {
        Self::with_frontend(supervisor, "streams-frontend").await
    }

    /// The same, with the frontend whose calls fail as a referee says ([`faults`](crate::faults)).
    ///
    /// # Errors
    /// When they do not compile.
    pub async fn build_with_faults(supervisor: &Supervisor) -> Result<Self> {
        Self::with_frontend(supervisor, "frontend-with-faults").await
    }

    async fn with_frontend(supervisor: &Supervisor, frontend: &str) -> Result<Self> {
        let state = StateDirectory::create(supervisor)?;
        let packages =
            ["streams-frontend", "fusion-service", "kubectl-streams", "streams-pe-double", "integration-tests"];
        let mut built = crate::cargo::build(supervisor, &state, &packages).await?;
        let mut take = |name: &str| built.remove(name).with_context(|| format!("cargo did not build {name}"));
        Ok(Self {
            frontend: take(frontend)?,
            fusion: take("fusion-service")?,
            kubectl_streams: take("kubectl-streams")?,
            pe_double: take("pe-double")?,
        })
    }
}

/// What a system is to be like.
#[derive(Debug, Clone)]
pub struct SystemOptions {
    /// The cluster, and who the frontend is in it.
    pub kubeconfig: PathBuf,
    /// Look at this namespace only; else at all.
    pub namespace: Option<String>,
    /// Replicas of the fusion service.
    pub fusion_replicas: usize,
    /// Replicas of the frontend, one of which leads.
    pub frontend_replicas: usize,
    /// Further arguments of the frontend.
    pub frontend_arguments: Vec<String>,
    /// Addresses at which PEs reach the replicas of the frontend, at the ports that the runtime knows. A replica
    /// without one listens where nobody asks.
    pub pe_api: Vec<IpAddr>,
    /// Environment variables of all of them, beside those of this process.
    pub environment: Vec<(String, String)>,
}

/// A replica of the frontend.
#[derive(Debug)]
pub struct Frontend {
    process: Process,
    elasticity: SocketAddr,
    http: SocketAddr,
    pe_api: SocketAddr,
}

impl Frontend {
    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Where the elasticity API listens.
    pub fn elasticity(&self) -> SocketAddr {
        self.elasticity
    }

    /// Where it answers `/metrics`, `/healthz` and `/readyz`.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where it answers PEs.
    pub fn pe_api(&self) -> SocketAddr {
        self.pe_api
    }

    /// A client of its elasticity API.
    ///
    /// # Errors
    /// When nothing listens there.
    pub async fn balancer(&self) -> Result<ElasticityServiceClient<Channel>> {
        let address = format!("http://{}", self.elasticity);
        ElasticityServiceClient::connect(address).await.context("cannot connect to the elasticity API")
    }

    /// A client of its subscription API, which it serves at the same address.
    ///
    /// # Errors
    /// When nothing listens there.
    pub async fn subscriptions(&self) -> Result<SubscriptionServiceClient<Channel>> {
        let address = format!("http://{}", self.elasticity);
        SubscriptionServiceClient::connect(address).await.context("cannot connect to the subscription API")
    }

    /// Waits until it serves the elasticity API.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    pub async fn ready(&self) -> Result<()> {
        self.process.ready(READY_WITHIN, || serves_grpc(self.elasticity, ELASTICITY_SERVICE)).await
    }

    /// Starts it again after its end, and waits until it serves.
    ///
    /// # Errors
    /// When it still runs, or does not become ready.
    pub async fn start_again(&self) -> Result<()> {
        self.process.start_again().await?;
        self.ready().await
    }

    /// A figure of `/metrics`, by its name without labels.
    ///
    /// # Errors
    /// When it does not answer, or has no such figure.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.with_context(|| format!("there is no figure {name}"))?.parse().context("not a number")
    }
}

/// Tries of calls of one kind to the API server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tries {
    /// Those that were answered, with whatever.
    pub answered: u64,
    /// Those of them that met another write; not of creations.
    pub met_another: u64,
    /// Those that the API server had no time for: they were made again, or given up.
    pub in_vain: u64,
}

impl Frontend {
    /// Tries of calls to the API server until now, by verb and resource.
    ///
    /// # Errors
    /// When it does not answer, or counts in another form.
    pub async fn calls(&self) -> Result<BTreeMap<(String, String), Tries>> {
        let mut calls: BTreeMap<_, Tries> = BTreeMap::new();
        for line in self.metrics().await?.lines() {
            let Some((labels, count)) =
                line.split_once("kubernetes_calls_total{").and_then(|(_, rest)| rest.split_once("} "))
            else {
                continue;
            };
            let label = |name: &str| {
                let (_, rest) = labels.split_once(&format!("{name}=\""))?;
                Some(rest.split_once('"')?.0.to_owned())
            };
            let (verb, resource) = (label("verb").context("no verb")?, label("resource").context("no resource")?);
            let count: u64 = count.parse().context("no number of calls")?;
            let code = label("code").context("no code")?;
            let is_creation = verb == "create";
            let tries = calls.entry((verb, resource)).or_default();
            if matches!(code.as_str(), "timeout" | "transport" | "429" | "500" | "503" | "504") {
                tries.in_vain += count;
                continue;
            }
            tries.answered += count;
            tries.met_another += if code == "409" && !is_creation { count } else { 0 };
        }
        Ok(calls)
    }

    /// All figures of `/metrics`, as text.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        metrics(self.http).await
    }

    /// The status of `/readyz`, and what it says.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build()?;
        let answer = client.get(format!("http://{}/readyz", self.http)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}

/// What a service that listens there answers at `/metrics`.
///
/// # Errors
/// When it does not answer.
pub async fn metrics(http: SocketAddr) -> Result<String> {
    let client = reqwest::Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build()?;
    Ok(client.get(format!("http://{http}/metrics")).send().await?.error_for_status()?.text().await?)
}

/// A replica of the fusion service.
#[derive(Debug)]
struct Fusion {
    process: Process,
    grpc: SocketAddr,
    http: SocketAddr,
}

/// The running services. They end with this value, or when the process ends in any way.
#[derive(Debug)]
pub struct System {
    frontends: Vec<Frontend>,
    fusion: Vec<Fusion>,
    bundles: PathBuf,
    state: StateDirectory,
}

impl System {
    /// Starts the services and waits until they serve.
    ///
    /// # Errors
    /// When one does not, with the end of its log.
    pub async fn start(supervisor: &Supervisor, programs: &Programs, options: &SystemOptions) -> Result<Self> {
        let state = StateDirectory::create(supervisor)?;
        let bundles = state.path().join("bundles");
        std::fs::create_dir(&bundles)?;
        let mut fusion = Vec::new();
        for number in 0..options.fusion_replicas {
            let (grpc, http) = (address()?, address()?);
            let program = Program::new(format!("fusion-service-{number}"), &programs.fusion)
                .arguments(["serve", "--listen", &grpc.to_string(), "--http-listen", &http.to_string()])
                .without_proxy();
            let process = Process::start(supervisor, &state, with_environment(program, options)).await?;
            fusion.push(Fusion { process, grpc, http });
        }
        let mut system = Self { frontends: Vec::new(), fusion, bundles, state };
        for number in 0..options.frontend_replicas {
            let frontend = system.start_frontend(supervisor, programs, options, number).await?;
            system.frontends.push(frontend);
        }
        for number in 0..options.fusion_replicas {
            system.fusion_ready(number).await?;
        }
        for frontend in &system.frontends {
            frontend.ready().await?;
        }
        Ok(system)
    }

    async fn start_frontend(
        &self,
        supervisor: &Supervisor,
        programs: &Programs,
        options: &SystemOptions,
        number: usize,
    ) -> Result<Frontend> {
        let (elasticity, http) = (address()?, address()?);
        let pe_api = options.pe_api.get(number);
        let (pe_api_listen, bundles_listen) = match pe_api {
            Some(own) => ((*own, PE_API_PORT).into(), (*own, BUNDLES_PORT).into()),
            None => (address()?, address()?),
        };
        let mut program = Program::new(format!("frontend-{number}"), &programs.frontend)
            .arguments(["run", "--elasticity-listen", &elasticity.to_string(), "--http-listen", &http.to_string()])
            .arguments(["--pe-api-listen", &pe_api_listen.to_string()])
            .arguments(["--bundle-repository-listen", &bundles_listen.to_string()])
            // Its own name: started again, it need not wait until its old lease is over.
            .arguments(["--identity", &format!("frontend-{number}")])
            .argument("--bundle-directory")
            .argument(&self.bundles)
            .environment("KUBECONFIG", &options.kubeconfig)
            .without_proxy();
        for replica in &self.fusion {
            program = program.arguments(["--fusion-service", &replica.grpc.to_string()]);
        }
        if let Some(own) = pe_api {
            program = program.arguments(["--pe-api-address", &own.to_string()]);
        }
        if let Some(namespace) = &options.namespace {
            program = program.arguments(["--namespace", namespace, "--lease-namespace", namespace]);
        }
        let program = with_environment(program.arguments(&options.frontend_arguments), options);
        let process = Process::start(supervisor, &self.state, program).await?;
        Ok(Frontend { process, elasticity, http, pe_api: pe_api_listen })
    }

    /// Waits until a replica of the fusion service serves.
    ///
    /// # Errors
    /// When it does not, or there is no such replica.
    pub async fn fusion_ready(&self, replica: usize) -> Result<()> {
        let replica = self.fusion.get(replica).with_context(|| format!("there is no replica {replica}"))?;
        replica.process.ready(READY_WITHIN, || serves_grpc(replica.grpc, FUSION_SERVICE)).await
    }

    /// The first replica of the frontend.
    ///
    /// # Errors
    /// When the system has none.
    pub fn frontend(&self) -> Result<&Frontend> {
        self.frontends.first().context("this system has no frontend")
    }

    /// The replicas of the frontend.
    pub fn frontends(&self) -> &[Frontend] {
        &self.frontends
    }

    /// The replicas of the fusion service.
    pub fn fusion(&self) -> impl Iterator<Item = &Process> {
        self.fusion.iter().map(|replica| &replica.process)
    }

    /// Where replicas of the fusion service listen.
    pub fn fusion_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.fusion.iter().map(|replica| replica.grpc)
    }

    /// Where replicas of the fusion service answer `/metrics`, `/healthz` and `/readyz`.
    pub fn fusion_pages(&self) -> impl Iterator<Item = SocketAddr> {
        self.fusion.iter().map(|replica| replica.http)
    }

    /// The directory that a job's `bundle.file` refers to.
    pub fn bundles(&self) -> &Path {
        &self.bundles
    }

    /// Where logs are.
    pub fn state(&self) -> &StateDirectory {
        &self.state
    }

    /// Ends the services and waits until they have ended and their files are gone.
    ///
    /// # Errors
    /// When a service does not end, or a file cannot be removed.
    pub async fn stop(self) -> Result<()> {
        let Self { frontends, fusion, state, .. } = self;
        drop((frontends, fusion));
        state.remove().await
    }

    /// The last `lines` lines of each log.
    pub fn last_lines(&self, lines: usize) -> String {
        let processes = self.frontends.iter().map(Frontend::process).chain(self.fusion());
        let logs = processes.map(|process| format!("{process}:\n{}", process.last_lines(lines)));
        logs.collect::<Vec<_>>().join("\n")
    }
}

fn with_environment(program: Program, options: &SystemOptions) -> Program {
    options.environment.iter().fold(program, |program, (name, value)| program.environment(name, value))
}

fn address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}
