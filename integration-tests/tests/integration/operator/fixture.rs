//! A namespace with the services that look after it.

use crate::support::{control_plane, frontend_rights, programs, supervisor};
use anyhow::{Context as _, Result, bail, ensure};
use integration_tests::sample::{self, Widths};
use integration_tests::system::inventory::Inventory;
use integration_tests::system::job::ObservedJob;
use integration_tests::system::snapshot::Snapshot;
use integration_tests::system::{Frontend, LONG_LEASE, SHORT_LEASE, System, SystemOptions};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::future::Future;
use std::io::pipe;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use streams_api::Job;
use streams_control_plane::binaries::Tool;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{ResizeRequest, ResizeResponse};
use tokio::process::Command;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};
use tonic_types::StatusExt as _;

/// For what takes a second or two on an idle machine, and much longer on one with a lot else to do.
pub(crate) const WITHIN: Duration = Duration::from_secs(180);
/// For what hundreds do at once.
pub(crate) const ALL: Duration = Duration::from_secs(480);
/// When to ask again what was not known: what `RetryInfo` says, at least.
const AGAIN: Duration = Duration::from_secs(1);
/// The job of most tests.
pub(crate) const JOB: &str = "sensors";
const LINES_SHOWN: usize = 25;

/// A namespace, the services that look after it, and the sample's bundle.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) system: System,
}

/// Runs `body` with two replicas of the fusion service and a frontend. If it fails, the ends of their logs belong to
/// the failure.
pub(crate) async fn with_system(purpose: &str, body: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    with(purpose, 1, &[], body).await
}

/// [`with_system`], with this number of frontends and more arguments for them; `{namespace}` in one is the namespace.
pub(crate) async fn with(
    purpose: &str,
    frontend_replicas: usize,
    arguments: &[&str],
    body: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    start(purpose, frontend_replicas, arguments, Vec::new(), body).await
}

/// [`with_system`], with more arguments for the frontend, and these environment variables for all services.
pub(crate) async fn with_options(
    purpose: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
    body: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    start(purpose, 1, arguments, environment, body).await
}

async fn start(
    purpose: &str,
    frontend_replicas: usize,
    arguments: &[&str],
    environment: Vec<(String, String)>,
    body: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace(purpose).await?;
    let lease = if frontend_replicas > 1 { &SHORT_LEASE[..] } else { &LONG_LEASE };
    let client = control_plane.client().await?;
    let rights = frontend_rights().await?;
    rights.lease_in(&client, &namespace).await?;
    let options = SystemOptions {
        kubeconfig: rights.kubeconfig().to_owned(),
        namespace: Some(namespace.clone()),
        fusion_replicas: 2,
        frontend_replicas,
        pe_api: Vec::new(),
        frontend_arguments: (lease.iter().chain(arguments))
            .map(|argument| argument.replace("{namespace}", &namespace))
            .collect(),
        environment,
    };
    let system = System::start(&supervisor(), programs().await?, &options).await?;
    sample::write_bundle(system.bundles())?;
    let fixture = Fixture { client, namespace, system };
    match body(&fixture).await {
        Ok(()) => fixture.clean_up().await,
        Err(error) => Err(error.context(format!(
            "in namespace {}; the ends of the logs:\n{}",
            fixture.namespace,
            fixture.system.last_lines(LINES_SHOWN)
        ))),
    }
}

impl Fixture {
    /// The sample as job [`JOB`], with all its pods running.
    pub(crate) async fn submitted(&self) -> Result<ObservedJob> {
        let job = ObservedJob::create(&self.client, &self.sample(JOB)).await?;
        job.settled(Widths::default(), WITHIN).await?;
        Ok(job)
    }

    /// The sample under this name, not created yet.
    pub(crate) fn sample(&self, name: &str) -> Job {
        sample::job(&self.namespace, name)
    }

    pub(crate) fn frontend(&self) -> Result<&Frontend> {
        self.system.frontend()
    }

    /// Asks the first frontend for widths as a load balancer does.
    pub(crate) async fn resize(
        &self,
        job: &ObservedJob,
        widths: &[(&str, u32)],
        wait_for: WaitFor,
    ) -> Result<ResizeResponse> {
        let wanted = job.resize_request(widths, wait_for);
        let answer = until_taken(self.frontend()?.balancer().await?, wanted, WITHIN).await;
        answer.with_context(|| format!("resize to {widths:?}"))
    }

    /// Runs `kubectl` in the namespace and gives what it prints.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let namespace = ["--namespace", self.namespace.as_str()];
        run(Tool::Kubectl, namespace.iter().chain(arguments).map(OsString::from)).await
    }

    /// Runs `grpcurl` against the first frontend and gives what it prints.
    pub(crate) async fn grpcurl(&self, options: &[&str], arguments: &[&str]) -> Result<String> {
        let address = self.frontend()?.elasticity().to_string();
        let first = ["-plaintext"].into_iter().chain(options.iter().copied());
        let all = first.chain([address.as_str()]).chain(arguments.iter().copied());
        run(Tool::Grpcurl, all.map(OsString::from)).await
    }

    /// `kubectl streams` with these arguments: its exit status, and what it says to whom.
    pub(crate) async fn kubectl_streams(&self, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
        let mut command = Command::new(&programs().await?.kubectl_streams);
        command.args(["--namespace", &self.namespace]).args(arguments);
        let output = output(command).await?;
        let text = |bytes| String::from_utf8(bytes).context("no text");
        Ok((output.status.code(), text(output.stdout)?, text(output.stderr)?))
    }

    /// The same, and nobody reads what it says: its exit status.
    pub(crate) async fn kubectl_streams_unread(&self, arguments: &[&str]) -> Result<Option<i32>> {
        let mut command = Command::new(&programs().await?.kubectl_streams);
        command.args(["--namespace", &self.namespace]).args(arguments);
        let [stdout, stderr] = [pipe()?, pipe()?].map(|(_, unread)| unread);
        let command = as_administrator(&mut command).await?.stdout(stdout).stderr(stderr);
        Ok(timeout(WITHIN, command.status()).await.context("it does not end")??.code())
    }

    /// Deletes the jobs, so that their pods do not fill the nodes. Nobody waits for it.
    async fn clean_up(&self) -> Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        jobs.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        Ok(())
    }
}

/// With `true` the pod, once it is deleted, takes until the call with `false` to terminate.
pub(crate) async fn lingers(job: &ObservedJob, pod: &str, lingers: bool) -> Result<()> {
    let finalizers: &[&str] = if lingers { &["streams-test/lingers"] } else { &[] };
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    job.api::<Pod>().patch(pod, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Asks for widths until it is known what becomes of the request, or this time is over. It has a key, so that it is the
/// same request however often it is asked for (rule elasticity-10).
pub(crate) async fn until_taken(
    balancer: ElasticityServiceClient<Channel>,
    mut wanted: ResizeRequest,
    within: Duration,
) -> Result<ResizeResponse, Status> {
    if wanted.idempotency_key.is_empty() {
        wanted.idempotency_key = format!("{:032x}", fastrand::u128(..));
    }
    until_known(within, |left| {
        let (mut balancer, mut request) = (balancer.clone(), tonic::Request::new(wanted.clone()));
        request.set_timeout(left);
        async move { balancer.resize(request).await }
    })
    .await
}

/// Makes a call that may be repeated, for as long as it is told that the API server is too slow. `ask` is given the
/// time that is left.
pub(crate) async fn until_known<T, Answer>(
    within: Duration,
    mut ask: impl FnMut(Duration) -> Answer,
) -> Result<T, Status>
where
    Answer: Future<Output = Result<Response<T>, Status>>,
{
    let end = Instant::now() + within;
    loop {
        match ask(end.saturating_duration_since(Instant::now())).await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) if is_unknown(&status) && Instant::now() + AGAIN < end => tokio::time::sleep(AGAIN).await,
            Err(status) => return Err(status),
        }
    }
}

/// Whoever asks again will know: the API server was too slow.
pub(crate) fn is_unknown(status: &Status) -> bool {
    matches!(reason(status).as_str(), "NOT_TAKEN" | "TOO_MANY_LOOKUPS" | "NOT_FORESEEN" | "NOT_REVIEWED")
}

/// People are told of this once. An Event is stored after what it tells of, and by itself.
pub(crate) async fn is_told_once(job: &ObservedJob, reason: &str) -> Result<()> {
    eventually(&format!("{job:?} is told of once: {reason}"), WITHIN, || async {
        let events = job.events().await?;
        let told = events.iter().filter(|(_, event, _)| event == reason).count();
        ensure!(told == 1, "{told} times: {events:?}");
        Ok(())
    })
    .await
}

/// The reason in the details of an error of a gRPC service.
pub(crate) fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map_or_else(String::new, |info| info.reason.clone())
}

/// What became of the operators of a job between two moments. Every operator has a PE of its own; of a renamed one, the
/// new name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) kept: Vec<String>,
    pub(crate) restarted: Vec<String>,
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
}

/// A job at a moment.
pub(crate) struct Moment {
    /// The pods of its PEs.
    pub(crate) pods: Snapshot,
    inventory: Inventory,
}

impl Moment {
    pub(crate) async fn of(job: &ObservedJob) -> Result<Self> {
        let inventory = job.inventory().await?;
        Ok(Self { pods: Snapshot::of(&inventory.pods, &inventory.processing_elements)?, inventory })
    }

    /// What is wrong with the job, but for pods that outlive PEs which it had `before`; and these pods.
    pub(crate) fn problems_since(&self, before: &Self, job: &Job, widths: &Widths) -> (Vec<String>, Vec<Pod>) {
        let mut inventory = self.inventory.clone();
        let outliving = inventory.take_outliving_pods(&before.inventory);
        (inventory.problems(job, widths), outliving)
    }

    fn operators(&self) -> BTreeMap<u64, String> {
        let pes = self.inventory.processing_elements.iter();
        pes.map(|pe| (pe.spec.id, pe.spec.operators.join(" "))).collect()
    }

    /// What has happened since `before`. Fails when a PE was launched more often than one change needs, or when there
    /// is a pod of no PE, neither now nor before.
    pub(crate) fn since(&self, before: &Self) -> Result<Changed> {
        let mut inventory = self.inventory.clone();
        inventory.take_outliving_pods(&before.inventory);
        let pes: BTreeSet<_> = inventory.processing_elements.iter().filter_map(ResourceExt::uid).collect();
        let is_of_one = |pod: &&Pod| pod.owner_references().iter().any(|owner| pes.contains(&owner.uid));
        if let Some(pod) = inventory.pods.iter().find(|pod| !is_of_one(pod)) {
            bail!("pod {} belongs to no PE, neither now nor before", pod.name_any());
        }
        let twice = self.pods.launched_too_often_since(&before.pods);
        ensure!(twice.is_empty(), "{}", twice.join("; "));
        let difference = self.pods.since(&before.pods);
        let names = |ids: &[u64], of: &Self| -> Result<Vec<String>> {
            let operators = of.operators();
            let name = |id| operators.get(id).cloned().with_context(|| format!("a pod of PE {id}, but no PE"));
            let mut names: Vec<_> = ids.iter().map(name).collect::<Result<_>>()?;
            names.sort();
            Ok(names)
        };
        Ok(Changed {
            kept: names(&difference.kept, self)?,
            restarted: names(&difference.restarted, self)?,
            added: names(&difference.added, self)?,
            removed: names(&difference.removed, before)?,
        })
    }
}

/// What a change of the width of `Clean` does to the sample: it touches the operators around it and those that split
/// onto or merge from its channels. Neither models, nor what follows them.
pub(crate) fn resize_of_clean(from: u32, to: u32) -> Changed {
    let clean = |channels: std::ops::Range<u32>| channels.map(|channel| format!("Clean[{channel}]"));
    let others = Widths::default().operators().into_iter().filter(|name| !name.starts_with("Clean"));
    let (around, kept): (Vec<_>, Vec<_>) = others.partition(|name| name == "Readings" || name.ends_with(".Window"));
    let mut changed = Changed {
        kept,
        restarted: around.into_iter().chain(clean(0..from.min(to))).collect(),
        added: clean(from..to).collect(),
        removed: clean(to..from).collect(),
    };
    for names in [&mut changed.kept, &mut changed.restarted, &mut changed.added, &mut changed.removed] {
        names.sort();
    }
    changed
}

/// What a resize of `Clean` from 2 to `width` leads to when nothing disturbs it: the content of each PE by id. The same
/// application under the same name and number gives the same texts in every namespace, so that it is found out once for
/// all tests.
pub(crate) async fn undisturbed(width: u32) -> Result<BTreeMap<u64, String>> {
    use tokio::sync::Mutex;
    static KNOWN: Mutex<BTreeMap<u32, BTreeMap<u64, String>>> = Mutex::const_new(BTreeMap::new());
    let mut known = KNOWN.lock().await;
    if let Some(contents) = known.get(&width) {
        return Ok(contents.clone());
    }
    let mut contents = None;
    with_system("undisturbed", async |it| {
        let job = it.submitted().await?;
        it.resize(&job, &[(sample::CLEAN, width)], WaitFor::RolledOut).await?;
        let widths = Widths { clean: width, ..Widths::default() };
        contents = Some(job.settled(widths, WITHIN).await?.contents());
        Ok(())
    })
    .await?;
    let contents: BTreeMap<u64, String> = contents.context("no result")?;
    known.insert(width, contents.clone());
    Ok(contents)
}

/// The job has come to rest with this width of `Clean` just as if nothing had disturbed the resize, and nothing was
/// done twice.
pub(crate) async fn as_if_undisturbed(job: &ObservedJob, before: &Moment, width: u32) -> Result<Inventory> {
    let inventory = job.settled(Widths { clean: width, ..Widths::default() }, WITHIN).await?;
    let changed = Moment::of(job).await?.since(before)?;
    ensure!(changed == resize_of_clean(2, width), "{changed:#?}");
    ensure!(inventory.contents() == undisturbed(width).await?, "other texts than without disturbance");
    let generation = job.status().await?.generation;
    ensure!(generation == Some(1), "generation {generation:?}");
    Ok(inventory)
}

/// Runs a program of the control plane and gives what it prints; a failure says what it complains about.
async fn run(tool: Tool, arguments: impl Iterator<Item = OsString>) -> Result<String> {
    let mut command = Command::new(control_plane().await?.executable(tool));
    command.args(arguments);
    let output = output(command).await?;
    if !output.status.success() {
        bail!("{tool} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// What a command says that is an administrator of the control plane.
async fn output(mut command: Command) -> Result<Output> {
    let command = as_administrator(&mut command).await?;
    Ok(timeout(WITHIN, command.output()).await.context("it does not end")??)
}

async fn as_administrator(command: &mut Command) -> Result<&mut Command> {
    command.env("KUBECONFIG", control_plane().await?.kubeconfig()).stdin(Stdio::null()).kill_on_drop(true);
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name);
    }
    Ok(command)
}
