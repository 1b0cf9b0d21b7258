//! The steps of the demo.
//!
//! Knows: the steps. Must not know: where the cluster comes from, how a table is written.

use super::cluster::Cluster;
use super::report::{Handles, Step};
use super::tuples::{Begun, Flow, Watcher};
use crate::running;
use crate::running::pes::Pes;
use crate::sample;
use crate::sample::Widths;
use crate::system::job::ObservedJob;
use crate::system::snapshot::{Difference, Snapshot};
use crate::system::{self, Frontend, Programs, System};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use streams_api::{Job, condition, crds};
use streams_control_plane::binaries::Tool;
use streams_control_plane::process::Supervisor;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_node_agent::NodeAgent;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{Changes, GetRegionRequest};

/// Name of the job.
pub const JOB: &str = "sensors";
/// Region whose width is changed: it has 2 channels and is next to another region.
pub const REGION: &str = sample::CLEAN;
/// Widths that the region is taken to, one after another.
pub const WIDTHS: [u32; 2] = [10, 4];

/// Fake nodes, where the PEs do not run.
const FAKE_NODES: u16 = 2;
const FIELD_MANAGER: &str = "streams-demo";
const SUBMITTED_WITHIN: Duration = Duration::from_secs(180);
const RESIZED_WITHIN: Duration = Duration::from_secs(180);

/// What the demo is asked for.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Context of an existing cluster; else a control plane is started.
    pub context: Option<String>,
    /// Namespace of the job; made if it is not there.
    pub namespace: String,
    /// Tuples a second that the source makes, where the PEs run.
    pub rate: f64,
}

/// The demo, done and still running.
#[derive(Debug)]
pub struct Demo {
    /// The steps so far.
    pub steps: Vec<Step>,
    cluster: Cluster,
    system: System,
    namespace: String,
    kubectl_streams: PathBuf,
    pes: Option<RunningPes>,
}

/// The PEs of the job as processes. They end with this value.
#[derive(Debug)]
struct RunningPes {
    agent: NodeAgent,
    watcher: Watcher,
    /// The PE with the sink, once it is known.
    sink: Option<u64>,
}

impl Demo {
    /// Does it all.
    ///
    /// # Errors
    /// When a step fails or does not have the result that it should have.
    pub async fn run(supervisor: &Supervisor, options: &DemoOptions) -> Result<Self> {
        let run_pes = run_pes(options).await;
        let mut steps = Vec::new();
        let start = Instant::now();
        let programs = Programs::build(supervisor).await?;
        steps.push(step("build the services", start));

        let start = Instant::now();
        let name = if options.context.is_some() { "connect to the cluster" } else { "start the control plane" };
        let progress = Progress::begin(name);
        // Nodes with running PEs have no other kubelet.
        let fake_nodes = if run_pes { 0 } else { FAKE_NODES };
        let cluster = Cluster::start(supervisor, options.context.as_deref(), crds::crds()?, fake_nodes).await?;
        progress.done();
        steps.push(step(name, start));

        let start = Instant::now();
        let also = if run_pes { ", and nodes whose pods are processes" } else { "" };
        let progress = Progress::begin(format!("fusion service (2 replicas) and frontend{also}"));
        let client = cluster.client().await?;
        make_namespace(&client, &options.namespace).await?;
        let pes = if run_pes {
            let agent = running::agent::start(supervisor, &client, &programs, options.rate).await?;
            let job = ObservedJob::new(&client, &options.namespace, JOB);
            let watcher = Watcher::new(Pes::new(&client, &options.namespace, &agent)?, job);
            Some(RunningPes { agent, watcher, sink: None })
        } else {
            None
        };
        let pe_api = pes.as_ref().map(|pes| pes.agent.reserve_address()).transpose()?;
        let system_options = system::SystemOptions {
            kubeconfig: cluster.frontend_kubeconfig(&client, &options.namespace).await?,
            namespace: Some(options.namespace.clone()),
            fusion_replicas: 2,
            frontend_replicas: 1,
            frontend_arguments: Vec::new(),
            pe_api: pe_api.into_iter().map(IpAddr::from).collect(),
            environment: Vec::new(),
        };
        let system = System::start(supervisor, &programs, &system_options).await?;
        progress.done();
        steps.push(step("start the services", start));

        let (namespace, kubectl_streams) = (options.namespace.clone(), programs.kubectl_streams);
        let mut demo = Self { steps, cluster, system, namespace, kubectl_streams, pes };
        demo.submit(&client).await?;
        for width in WIDTHS {
            demo.resize(&client, width).await?;
        }
        Ok(demo)
    }

    async fn submit(&mut self, client: &Client) -> Result<()> {
        sample::write_bundle(self.system.bundles())?;
        let start = Instant::now();
        let progress = Progress::begin(format!("job {JOB}"));
        let begun = match &mut self.pes {
            Some(pes) => Some(pes.watcher.begin().await?),
            None => None,
        };
        let observed = ObservedJob::new(client, &self.namespace, JOB);
        let job = sample::job(&self.namespace, JOB);
        observed
            .api::<Job>()
            .patch(JOB, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&job))
            .await
            .with_context(|| format!("cannot apply job {JOB}"))?;
        observed
            .until("all pods run", SUBMITTED_WITHIN, |status| {
                let figures = status.statistics.clone().unwrap_or_default();
                progress.at(format!("{} of {} PEs", figures.ready_processing_elements, figures.processing_elements));
                ensure!(condition::is_true(&status.conditions, condition::READY), "it is not ready");
                Ok(())
            })
            .await?;
        let took = start.elapsed();
        let after = observed.snapshot().await?;
        if let Some(pes) = &mut self.pes {
            pes.sink = Some(observed.pe(sample::SINK).await?.spec.id);
        }
        let flow = self.flow(begun, &progress).await?;
        progress.done();
        let expected = Widths::default().processing_elements();
        ensure!(after.running() == expected, "{} pods run, {expected} were expected", after.running());
        self.steps.push(Step {
            name: format!("submit {JOB}"),
            running: Some(after.running()),
            difference: Some(after.since(&Snapshot::default())),
            took,
            flow,
        });
        Ok(())
    }

    /// Asks for a width as a load balancer does, and waits until it is rolled out.
    async fn resize(&mut self, client: &Client, width: u32) -> Result<()> {
        let observed = ObservedJob::new(client, &self.namespace, JOB);
        let before = observed.snapshot().await?;
        let mut balancer = self.system.frontend()?.balancer().await?;
        let region = REGION.to_owned();
        let (namespace, job) = (self.namespace.clone(), JOB.to_owned());
        let request = GetRegionRequest { namespace, job, region: region.clone() };
        let from = balancer.get_region(request).await?.into_inner().desired_width;
        let name = format!("resize {region} {from} -> {width}");
        let progress = Progress::begin(&name);
        let begun = match &mut self.pes {
            Some(pes) => Some(pes.watcher.begin().await?),
            None => None,
        };
        let start = Instant::now();
        let mut request = observed.resize_request(&[(&region, width)], WaitFor::RolledOut);
        request.regions.iter_mut().for_each(|region| region.expected_width = Some(from));
        let mut request = tonic::Request::new(request);
        request.set_timeout(RESIZED_WITHIN);
        let resized = async { balancer.resize(request).await.with_context(|| name.clone()) };
        let answer = match &mut self.pes {
            Some(pes) => pes.watcher.follow(resized, &progress).await?,
            None => resized.await?,
        };
        let took = start.elapsed();
        let after = observed.snapshot().await?;
        let flow = self.flow(begun, &progress).await?;
        progress.done();
        let difference = after.since(&before);
        let changes = answer.into_inner().changes.unwrap_or_default();
        ensure!(
            counts(&difference) == changes,
            "the answer says {changes:?}, but the pods show {:?}",
            counts(&difference)
        );
        self.steps.push(Step { name, running: Some(after.running()), difference: Some(difference), took, flow });
        Ok(())
    }

    /// What became of tuples in a step that begun so, once every PE has its connections and tuples.
    async fn flow(&mut self, begun: Option<Begun>, progress: &Progress) -> Result<Option<Flow>> {
        match (&mut self.pes, begun) {
            (Some(pes), Some(begun)) => Ok(Some(pes.watcher.end(&begun, progress).await?)),
            _ => Ok(None),
        }
    }

    /// What one needs to go on by hand.
    pub fn handles(&self) -> Handles {
        let program = |tool: Tool| self.cluster.program(tool).display().to_string();
        let frontend = |of: fn(&Frontend) -> SocketAddr| {
            self.system.frontend().map(|frontend| of(frontend).to_string()).unwrap_or_default()
        };
        let first = |address: Option<SocketAddr>| address.map(|address| address.to_string()).unwrap_or_default();
        Handles {
            variables: vec![
                ("KUBECONFIG", self.cluster.kubeconfig().display().to_string()),
                ("KUBECTL", program(Tool::Kubectl)),
                ("KUBECTL_STREAMS", self.kubectl_streams.display().to_string()),
                ("GRPCURL", program(Tool::Grpcurl)),
                ("JOB", JOB.to_owned()),
                ("NAMESPACE", self.namespace.clone()),
                ("REGION", REGION.to_owned()),
                ("ELASTICITY", frontend(Frontend::elasticity)),
                ("METRICS", frontend(Frontend::http)),
                ("FUSION", first(self.system.fusion_addresses().next())),
                ("FUSION_METRICS", first(self.system.fusion_pages().next())),
                ("BUNDLES", self.system.bundles().display().to_string()),
            ],
            sink: self.pes.as_ref().and_then(|pes| pes.sink),
        }
    }

    /// Directory with the logs of the services.
    pub fn logs(&self) -> PathBuf {
        self.system.state().path().to_owned()
    }

    /// Ends everything that was started. In an existing cluster the job is deleted; the custom resources stay.
    ///
    /// # Errors
    /// When something does not end.
    pub async fn stop(self) -> Result<()> {
        if let Cluster::Existing { .. } = self.cluster {
            let client = self.cluster.client().await?;
            let jobs: Api<Job> = Api::namespaced(client, &self.namespace);
            jobs.delete(JOB, &kube::api::DeleteParams::foreground()).await?;
            eventually("the job is gone", SUBMITTED_WITHIN, || async {
                ensure!(jobs.get_opt(JOB).await?.is_none(), "it is still there");
                Ok(())
            })
            .await?;
        }
        drop(self.pes);
        self.system.stop().await?;
        self.cluster.stop().await
    }
}

/// Whether PEs can run as processes. Where they cannot, it says why.
async fn run_pes(options: &DemoOptions) -> bool {
    if options.context.is_some() {
        return false;
    }
    match running::possible().await {
        Ok(()) => true,
        Err(why) => {
            eprintln!("No tuples will move, as the pods will be objects without processes: {why}.");
            false
        }
    }
}

fn step(name: &str, start: Instant) -> Step {
    Step { name: name.to_owned(), difference: None, running: None, took: start.elapsed(), flow: None }
}

fn counts(difference: &Difference) -> Changes {
    let count = |list: &Vec<u64>| u32::try_from(list.len()).unwrap_or(u32::MAX);
    Changes {
        kept: count(&difference.kept),
        restarted: count(&difference.restarted),
        added: count(&difference.added),
        removed: count(&difference.removed),
    }
}

async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    if api.get_opt(name).await?.is_some() {
        return Ok(());
    }
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let made = api.create(&kube::api::PostParams::default(), &namespace).await?;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), &made.name_any());
    eventually("the namespace has a service account", Duration::from_secs(60), || async {
        accounts.get("default").await?;
        Ok(())
    })
    .await
}
