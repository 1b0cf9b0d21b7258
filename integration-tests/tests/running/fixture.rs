//! A namespace with the services, a node whose pods are processes, and what these say of themselves.

use anyhow::{Result, anyhow};
use integration_tests::running::pes::Pes;
use integration_tests::system::job::ObservedJob;
use integration_tests::system::rights::FrontendRights;
use integration_tests::system::{LONG_LEASE, Programs, System, SystemOptions};
use integration_tests::{running, sample};
use kube::Client;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use streams_api::{Job, condition};
use streams_control_plane::process::Supervisor;
use streams_control_plane::{ControlPlane, Options};
use streams_node_agent::NodeAgent;
use streams_test_support::application::Sketch;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// For what takes some seconds on an idle machine.
pub(crate) const WITHIN: Duration = Duration::from_secs(120);
/// Tuples a second of each source.
const RATE: f64 = 100.0;
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
    pub(crate) pes: Pes,
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
    // What the agent has begun goes on after the test that has started it; the runtime of a test ends with it.
    let (kubeconfig, doubles) = (control_plane.kubeconfig().to_owned(), programs.clone());
    let of_agent = Runtime::new()?;
    let agent = of_agent.spawn(async move {
        let client = streams_control_plane::client(&kubeconfig).await?;
        running::agent::start(&supervisor(), &client, &doubles, RATE).await
    });
    let agent = agent.await??;
    Ok(Shared { control_plane, rights, programs, agent, _of_agent: of_agent })
}

/// Runs `body`. If it fails, the ends of all logs belong to the failure. On a machine on which pods cannot have
/// addresses it says so instead.
pub(crate) async fn with_running_pes(purpose: &str, body: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    with_running_pes_led(purpose, &LONG_LEASE, body).await
}

/// The same, with arguments of the frontend that say how it comes to lead. Its Lease would be in its namespace.
pub(crate) async fn with_running_pes_led(
    purpose: &str,
    leading: &[&str],
    body: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    with_running_pes_of(purpose, 1, leading, body).await
}

/// The same, with so many replicas of the frontend.
pub(crate) async fn with_running_pes_of(
    purpose: &str,
    frontends: usize,
    leading: &[&str],
    body: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    if let Err(error) = running::possible().await {
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
        frontend_replicas: frontends,
        pe_api: (0..frontends).map(|_| agent.reserve_address().map(IpAddr::from)).collect::<Result<_>>()?,
        frontend_arguments: leading.iter().map(|&argument| argument.to_owned()).chain(checkpoints).collect(),
        environment: Vec::new(),
    };
    let system = System::start(&supervisor(), programs, &options).await?;
    sample::write_bundle(system.bundles())?;
    let pes = Pes::new(&client, &namespace, agent)?;
    let fixture = Fixture { client, namespace, system, agent, pes };
    body(&fixture).await.map_err(|error| {
        let ends = [fixture.system.last_lines(LINES_SHOWN), last_lines(&fixture.pes)];
        error.context(format!("in namespace {}; the ends of the logs:\n{}", fixture.namespace, ends.join("\n")))
    })
}

/// The last lines of what the PEs have logged.
fn last_lines(pes: &Pes) -> String {
    let end = |log: &PathBuf| {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES_OF_PE_SHOWN)..];
        format!("{}:\n{}", log.display(), last.join("\n"))
    };
    pes.logs().iter().map(end).collect::<Vec<_>>().join("\n")
}

impl Fixture {
    /// A job of the sample that waits to be created.
    pub(crate) fn sample(&self, name: &str) -> Job {
        sample::job(&self.namespace, name)
    }
}

/// Creates a job of a sketch, and waits until its PEs are connected.
pub(crate) async fn sketched(it: &Fixture, name: &str, sketch: &Sketch) -> Result<ObservedJob> {
    sketched_as(it, name, sketch, |_| ()).await
}

/// The same of a job that is edited before it is created.
pub(crate) async fn sketched_as(
    it: &Fixture,
    name: &str,
    sketch: &Sketch,
    edit: impl FnOnce(&mut Job),
) -> Result<ObservedJob> {
    let file = format!("{name}.sab");
    std::fs::write(it.system.bundles().join(&file), sample::bundle_of(&sketch.adl())?)?;
    let mut job = it.sample(name);
    job.spec.bundle.file = Some(file);
    edit(&mut job);
    let job = ObservedJob::create(&it.client, &job).await?;
    job.until_condition(condition::READY, true, WITHIN).await?;
    it.pes.until_connected(&job, WITHIN).await?;
    Ok(job)
}
