//! The services of the project as processes of their own: some replicas of the fusion service and a frontend.
//!
//! [`Programs`] are the executables, [`System`] is them running against an API server. Addresses stay the same when a process is killed and
//! started again. [`snapshot`] is what they have brought about.
//!
//! Knows: how the programs are started. Must not know: what a test expects of them.

pub mod snapshot;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process::{Process, Program, StateDirectory, Supervisor, free_port, serves_grpc};

/// A service is there in a second on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// gRPC service whose health says that the fusion service can compile.
const FUSION_SERVICE: &str = "streams.fusion.v1.FusionService";
/// gRPC service whose health says that the elasticity API answers.
const ELASTICITY_SERVICE: &str = "streams.elasticity.v1.ElasticityService";

/// The executables of the services.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `streams-frontend`.
    pub frontend: PathBuf,
    /// `fusion-service`.
    pub fusion: PathBuf,
}

impl Programs {
    /// Builds them if need be, for the profile of this process.
    ///
    /// # Errors
    /// When they do not compile.
    pub async fn build(supervisor: &Supervisor) -> Result<Self> {
        let state = StateDirectory::create(supervisor)?;
        let mut built = crate::cargo::build(supervisor, &state, &["streams-frontend", "fusion-service"]).await?;
        let mut take = |name: &str| built.remove(name).with_context(|| format!("cargo did not build {name}"));
        Ok(Self { frontend: take("streams-frontend")?, fusion: take("fusion-service")? })
    }
}

/// What a system is to be like.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster.
    pub kubeconfig: PathBuf,
    /// Look at this namespace only; else at all.
    pub namespace: Option<String>,
    /// Replicas of the fusion service.
    pub fusion_replicas: usize,
    /// Further arguments of the frontend.
    pub frontend_arguments: Vec<String>,
}

/// The running services. They end with this value, or when the process ends in any way.
#[derive(Debug)]
pub struct System {
    frontend: Process,
    fusion: Vec<(SocketAddr, Process)>,
    elasticity: SocketAddr,
    http: SocketAddr,
    bundles: PathBuf,
    state: StateDirectory,
}

impl System {
    /// Starts the services and waits until they serve.
    ///
    /// # Errors
    /// When one does not, with the end of its log.
    pub async fn start(supervisor: &Supervisor, programs: &Programs, options: &Options) -> Result<Self> {
        let state = StateDirectory::create(supervisor)?;
        let bundles = state.path().join("bundles");
        std::fs::create_dir(&bundles)?;
        let mut fusion = Vec::new();
        for number in 0..options.fusion_replicas {
            let address = address()?;
            let program = Program::new(format!("fusion-service-{number}"), &programs.fusion)
                .arguments(["serve", "--listen", &address.to_string()])
                .without_proxy();
            fusion.push((address, Process::start(supervisor, &state, program).await?));
        }
        let (elasticity, http) = (address()?, address()?);
        let mut frontend = Program::new("frontend", &programs.frontend)
            .arguments(["run", "--elasticity-listen", &elasticity.to_string(), "--http-listen", &http.to_string()])
            .argument("--bundle-directory")
            .argument(&bundles)
            .environment("KUBECONFIG", &options.kubeconfig)
            .without_proxy();
        for (address, _) in &fusion {
            frontend = frontend.arguments(["--fusion-service", &address.to_string()]);
        }
        if let Some(namespace) = &options.namespace {
            frontend = frontend.arguments(["--namespace", namespace, "--lease-namespace", namespace]);
        }
        let frontend = frontend.arguments(&options.frontend_arguments);
        let frontend = Process::start(supervisor, &state, frontend).await?;
        let system = Self { frontend, fusion, elasticity, http, bundles, state };
        for number in 0..options.fusion_replicas {
            system.fusion_ready(number).await?;
        }
        system.frontend_ready().await?;
        Ok(system)
    }

    /// Waits until a replica of the fusion service serves.
    ///
    /// # Errors
    /// When it does not, or there is no such replica.
    pub async fn fusion_ready(&self, replica: usize) -> Result<()> {
        let (address, process) = self.fusion.get(replica).with_context(|| format!("there is no replica {replica}"))?;
        process.ready(READY_WITHIN, || serves_grpc(*address, FUSION_SERVICE)).await
    }

    /// Waits until the frontend serves the elasticity API.
    ///
    /// # Errors
    /// When it does not.
    pub async fn frontend_ready(&self) -> Result<()> {
        self.frontend.ready(READY_WITHIN, || serves_grpc(self.elasticity, ELASTICITY_SERVICE)).await
    }

    /// The frontend.
    pub fn frontend(&self) -> &Process {
        &self.frontend
    }

    /// The replicas of the fusion service.
    pub fn fusion(&self) -> impl Iterator<Item = &Process> {
        self.fusion.iter().map(|(_, process)| process)
    }

    /// Where the elasticity API listens.
    pub fn elasticity(&self) -> SocketAddr {
        self.elasticity
    }

    /// Where the frontend answers `/metrics`, `/healthz` and `/readyz`.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where replicas of the fusion service listen.
    pub fn fusion_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.fusion.iter().map(|(address, _)| *address)
    }

    /// The directory that a job's `bundle.file` refers to.
    pub fn bundles(&self) -> &Path {
        &self.bundles
    }

    /// Where logs are.
    pub fn state(&self) -> &StateDirectory {
        &self.state
    }
}

fn address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}
