//! A namespace with the services, a node whose pods are processes, and what these say of themselves.

use anyhow::{Context as _, Result, anyhow, ensure};
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use integration_tests::system::rights::FrontendRights;
use integration_tests::system::{LONG_LEASE, Programs, System, SystemOptions};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::time::Duration;
use streams_api::{Job, ProcessingElement, names};
use streams_control_plane::process::{StateDirectory, Supervisor};
use streams_control_plane::wait::eventually;
use streams_control_plane::{ControlPlane, Options};
use streams_node_agent::NodeAgent;
use streams_pe_double::status::{Connectivity, Status};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// For what takes some seconds on an idle machine.
pub(crate) const WITHIN: Duration = Duration::from_secs(120);
/// How long a page may take.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Where a double shows its status.
const STATUS_PORT: u16 = 9_696;
/// Some applications want PEs on different hosts.
const NODES: usize = 4;
const LINES_SHOWN: usize = 25;
const LINES_OF_PE_SHOWN: usize = 8;

/// What all tests of this run share.
struct Shared {
    control_plane: ControlPlane,
    rights: FrontendRights,
    programs: Programs,
    /// Pods of all namespaces may be scheduled to its nodes, so there is only one.
    agent: NodeAgent,
    _of_agent: Runtime,
}

/// A namespace, and the services that look after it.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) system: System,
    pub(crate) agent: &'static NodeAgent,
    pages: reqwest::Client,
}

fn supervisor() -> Supervisor {
    Supervisor::at(env!("CARGO_BIN_EXE_demo"))
}

async fn shared() -> Result<&'static Shared> {
    // A failure is kept as well: it would fail again for each test, after a long time.
    static SHARED: OnceCell<Result<Shared, String>> = OnceCell::const_new();
    let shared = SHARED.get_or_init(|| async { share().await.map_err(|error| format!("{error:#}")) });
    shared.await.as_ref().map_err(|error| anyhow!("{error}"))
}

async fn share() -> Result<Shared> {
    // Without nodes of its own there is nobody else who plays kubelet.
    let options = Options { nodes: 0, crds: streams_api::crds::crds()?, ..Options::default() };
    let control_plane = ControlPlane::start(&supervisor(), &options).await?;
    let rights = FrontendRights::give(&control_plane).await?;
    let programs = Programs::build(&supervisor()).await?;
    let state = StateDirectory::create(&supervisor())?;
    let mut built = integration_tests::cargo::build(&supervisor(), &state, &["streams-pe-double"]).await?;
    let double = built.remove("pe-double").context("cargo did not build the double")?;
    let options = streams_node_agent::Options {
        nodes: (0..NODES).map(|number| format!("node-{number}")).collect(),
        pods_per_node: 200,
        program: double,
        arguments: ["--rate", "100", "--cache-ms", "1000"].map(str::to_owned).into(),
    };
    // What the agent has begun goes on after the test that has started it; the runtime of a test ends with it.
    let kubeconfig = control_plane.kubeconfig().to_owned();
    let of_agent = Runtime::new()?;
    let agent = of_agent.spawn(async move {
        let client = streams_control_plane::client(&kubeconfig).await?;
        NodeAgent::start(&supervisor(), &client, options).await
    });
    let agent = agent.await??;
    Ok(Shared { control_plane, rights, programs, agent, _of_agent: of_agent })
}

/// Runs `body`. If it fails, the ends of all logs belong to the failure. On a machine on which pods cannot have
/// addresses it says so instead.
pub(crate) async fn with_running_pes(purpose: &str, body: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    if let Err(error) = streams_node_agent::can_have_addresses().await {
        eprintln!("NOT TESTED: {error:#}");
        return Ok(());
    }
    let Shared { control_plane, rights, programs, agent, .. } = shared().await?;
    let namespace = control_plane.namespace(purpose).await?;
    let client = control_plane.client().await?;
    rights.lease_in(&client, &namespace).await?;
    let checkpoints = agent.state().path().join("checkpoints").join(&namespace);
    std::fs::create_dir_all(&checkpoints)?;
    let checkpoints = ["--checkpoint-path".to_owned(), checkpoints.display().to_string()];
    let options = SystemOptions {
        kubeconfig: rights.kubeconfig().to_owned(),
        namespace: Some(namespace.clone()),
        fusion_replicas: 1,
        frontend_replicas: 1,
        pe_api: vec![agent.reserve_address()?.into()],
        frontend_arguments: LONG_LEASE.map(str::to_owned).into_iter().chain(checkpoints).collect(),
        environment: Vec::new(),
    };
    let system = System::start(&supervisor(), programs, &options).await?;
    sample::write_bundle(system.bundles())?;
    let pages = reqwest::Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build()?;
    let fixture = Fixture { client, namespace, system, agent, pages };
    body(&fixture).await.map_err(|error| {
        let ends = [fixture.system.last_lines(LINES_SHOWN), last_lines(agent, &fixture.namespace)];
        error.context(format!("in namespace {}; the ends of the logs:\n{}", fixture.namespace, ends.join("\n")))
    })
}

/// The last lines of what the PEs of a namespace have logged.
fn last_lines(agent: &NodeAgent, namespace: &str) -> String {
    let files = std::fs::read_dir(agent.state().path()).into_iter().flatten().flatten();
    let of_namespace = files.filter(|file| file.file_name().to_string_lossy().starts_with(&format!("{namespace}.")));
    let mut ends: Vec<String> = of_namespace
        .map(|file| {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES_OF_PE_SHOWN)..];
            format!("{}:\n{}", file.file_name().display(), last.join("\n"))
        })
        .collect();
    ends.sort();
    ends.join("\n")
}

impl Fixture {
    /// A job of the sample that waits to be created.
    pub(crate) fn sample(&self, name: &str) -> Job {
        sample::job(&self.namespace, name)
    }

    /// What the PEs of a job say of themselves, by their numbers.
    pub(crate) async fn statuses(&self, job: &str) -> Result<BTreeMap<u64, Status>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_job = ListParams::default().labels(&format!("{}={job}", names::LABEL_JOB));
        let mut statuses = BTreeMap::new();
        for pod in pods.list(&of_job).await?.items {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
            let address = address.with_context(|| format!("pod {} has no address yet", pod.name_any()))?;
            let page = self.pages.get(format!("http://{address}:{STATUS_PORT}/status")).send().await?;
            let status: Status = serde_json::from_slice(&page.error_for_status()?.bytes().await?)?;
            statuses.insert(status.pe, status);
        }
        Ok(statuses)
    }

    /// Waits until each PE of the job has all its connections and its bundle, and the frontend knows it.
    pub(crate) async fn until_connected(&self, job: &ObservedJob) -> Result<BTreeMap<u64, Status>> {
        let mut found = BTreeMap::new();
        eventually("every PE has all its connections", WITHIN, || async {
            let statuses = self.statuses(job.name()).await?;
            let elements = job.list::<ProcessingElement>().await?;
            ensure!(statuses.len() == elements.len(), "{} of {} PEs run", statuses.len(), elements.len());
            for element in &elements {
                let status = statuses.get(&element.spec.id).context("a PE does not run")?;
                let known = element.status.as_ref().map(|status| status.connectivity()).unwrap_or_default();
                let is_whole = status.started && status.connectivity == Connectivity::Full;
                let is_known = known == streams_api::Connectivity::Full;
                let problems = &status.problems.last;
                ensure!(
                    is_whole && is_known,
                    "PE {}: {:?}, known as {known:?}; {problems:?}",
                    status.pe,
                    status.outputs
                );
                ensure!(status.bundle.as_ref().is_some_and(|bundle| bundle.bytes > 0), "{:?}", status.bundle);
            }
            Ok(())
        })
        .await?;
        found.extend(self.statuses(job.name()).await?);
        Ok(found)
    }
}

/// Tuples that have arrived at the sinks of these PEs.
pub(crate) fn received(statuses: &BTreeMap<u64, Status>) -> u64 {
    statuses.values().flat_map(|status| &status.sinks).map(|sink| sink.received).sum()
}

/// Tuples that the operators without inputs of these PEs have made.
pub(crate) fn made(statuses: &BTreeMap<u64, Status>) -> u64 {
    statuses.values().flat_map(|status| &status.operators).map(|operator| operator.made).sum()
}
