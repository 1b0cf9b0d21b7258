//! What becomes of the pods of the agent's nodes: each is a task that follows one pod from its binding to its end.
//!
//! | the pod | what happens |
//! |---|---|
//! | has not the label that the agent asks for | it stays `Pending`, and says so: nobody makes another one instead |
//! | is bound to one of the nodes | it gets an address, its volumes are written (as often as need be) |
//! | has init containers | they run one after the other; if one fails, the pod has failed |
//! | | its container runs; status, with the address |
//! | its process ends | `Succeeded` or `Failed`, with exit code, reason and the end of the log |
//! | is being deleted | SIGTERM, after the grace period SIGKILL; status; then it is removed |
//! | is gone | SIGKILL |
//!
//! A container with a command runs that, with the paths of its mounts replaced; for one without, the program of the
//! agent plays the entry point of the image. Pods with several containers are refused. Nothing is restarted.
//!
//! Knows: pods. Must not know: jobs, what a container does.

use crate::addresses::Addresses;
use crate::environment::{expand, variables};
use crate::objects::{CALL, Objects};
use crate::status::{Ended, ended, init_failed, now, pending, refused, running};
use crate::volumes::{self, Directories};
use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::reflector;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, ResourceExt as _};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use streams_control_plane::process::{Process, Program, StateDirectory, Supervisor};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Between two tries to write volumes.
const VOLUMES_AGAIN: Duration = Duration::from_millis(500);
/// How often volumes that may change are written again.
const VOLUMES_REFRESHED: Duration = Duration::from_secs(5);
/// How often a status is tried, and the pause after the first try. It doubles.
const TRIES: (u32, Duration) = (8, Duration::from_millis(100));
/// Grace of a pod that says nothing of it.
const GRACE: Duration = Duration::from_secs(30);
/// Lines of a log that are shown of a container that has failed.
const LAST_LINES: usize = 20;
/// Longest message of a container.
const MESSAGE: usize = 2048;
/// Variables of this process that those of pods have as well.
const HANDED_DOWN: [&str; 4] = ["PATH", "TMPDIR", "RUST_BACKTRACE", "LD_LIBRARY_PATH"];

/// Everything that pods of an agent need.
pub(crate) struct Kubelet {
    pub(crate) client: Client,
    pub(crate) supervisor: Supervisor,
    pub(crate) state: StateDirectory,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) only_labelled: Option<String>,
    pub(crate) processes: Mutex<BTreeMap<(String, String), Arc<Process>>>,
    pub(crate) stopped: CancellationToken,
}

/// What is asked of a pod that runs.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// To end within this time.
    ToEnd(Duration),
    /// Nothing: it is not there any more.
    Nothing,
}

impl Kubelet {
    /// Looks after the pods of its nodes until it is stopped.
    pub(crate) async fn watch(self: Arc<Self>, writer: Writer<Pod>) {
        let pods = watcher(Api::<Pod>::all(self.client.clone()), Config::default()).default_backoff();
        let pods = reflector(writer, pods);
        pin_mut!(pods);
        let mut followed: HashMap<String, watch::Sender<Arc<Pod>>> = HashMap::new();
        let mut listed = BTreeSet::new();
        while let Some(event) = pods.next().await {
            match event {
                Ok(Event::Apply(pod)) => self.see(pod, &mut followed),
                Ok(Event::Delete(pod)) => drop(followed.remove(&pod.uid().unwrap_or_default())),
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(pod)) => {
                    listed.insert(pod.uid().unwrap_or_default());
                    self.see(pod, &mut followed);
                }
                Ok(Event::InitDone) => followed.retain(|uid, _| listed.contains(uid)),
                // The watch begins again by itself.
                Err(_) => {}
            }
        }
    }

    fn see(self: &Arc<Self>, pod: Pod, followed: &mut HashMap<String, watch::Sender<Arc<Pod>>>) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if !node.is_some_and(|node| self.nodes.contains(node)) {
            return;
        }
        let (uid, pod) = (pod.uid().unwrap_or_default(), Arc::new(pod));
        if let Some(follows) = followed.get(&uid) {
            follows.send_replace(pod);
            return;
        }
        let (send, receive) = watch::channel(Arc::clone(&pod));
        followed.insert(uid, send);
        let (kubelet, stopped) = (Arc::clone(self), self.stopped.clone());
        tokio::spawn(async move {
            stopped.run_until_cancelled(PodRun::new(kubelet, pod).follow(receive)).await;
        });
    }

    /// The process of a pod.
    pub(crate) fn process(&self, namespace: &str, name: &str) -> Option<Arc<Process>> {
        lock(&self.processes).get(&(namespace.to_owned(), name.to_owned())).cloned()
    }
}

/// One pod from its binding to its end.
struct PodRun {
    kubelet: Arc<Kubelet>,
    pod: Arc<Pod>,
    namespace: String,
    name: String,
    uid: String,
    /// The process that runs, and since when.
    current: Mutex<Option<(Arc<Process>, String)>>,
}

impl PodRun {
    fn new(kubelet: Arc<Kubelet>, pod: Arc<Pod>) -> Self {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let uid = pod.uid().unwrap_or_default();
        Self { kubelet, pod, namespace, name, uid, current: Mutex::new(None) }
    }

    async fn follow(self, pod: watch::Receiver<Arc<Pod>>) {
        let asked = tokio::select! {
            biased;
            asked = asked(pod.clone()) => asked,
            () = self.live() => {
                self.forget();
                asked(pod).await
            }
        };
        let current = lock(&self.current).take();
        if let Some((process, started)) = current {
            match asked {
                Asked::ToEnd(grace) => {
                    if let Ok(exit) = process.stop(grace).await {
                        let message = message(&process);
                        self.publish(ended(&self.pod, &Ended::of(exit, message), &started)).await;
                    }
                }
                Asked::Nothing => drop(process.kill().await),
            }
        }
        self.forget();
        if matches!(asked, Asked::ToEnd(_)) {
            self.remove().await;
        }
        // What is left over goes with the state directory.
        let _ = std::fs::remove_dir_all(self.directories().pod);
    }

    /// Runs the pod; returns when it has ended by itself.
    async fn live(&self) {
        if let Some(label) = self.kubelet.only_labelled.as_ref().filter(|label| !self.pod.labels().contains_key(*label))
        {
            let message = format!("this node runs only pods with the label {label}");
            return self.publish(pending(&self.pod, "NotRunHere", &message)).await;
        }
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        match phase {
            Some("Succeeded" | "Failed") => return,
            Some("Running") => {
                let message = "its process ended with the agent that had started it";
                return self.publish(refused("NodeAgentRestarted", message)).await;
            }
            _ => {}
        }
        let spec = self.pod.spec.clone().unwrap_or_default();
        let [container] = spec.containers.as_slice() else {
            let message = "this node runs pods with one container";
            return self.publish(refused("SeveralContainers", message)).await;
        };
        let address = loop {
            match self.kubelet.addresses.give() {
                Ok(address) => break address,
                Err(error) => self.wait(&format!("{error:#}"), &mut String::new()).await,
            }
        };
        let may_change = self.write_volumes(address.get()).await;
        for init in spec.init_containers.iter().flatten() {
            let started = now();
            let end = match self.start(init, address.get()).await {
                Ok(process) => self.end_of(process, &started).await,
                Err(error) => Ended::not_started(format!("{error:#}")),
            };
            if end.code != 0 {
                return self.publish(init_failed(&self.pod, &init.name, &end, &started)).await;
            }
        }
        let started = now();
        let end = match self.start(container, address.get()).await {
            Ok(process) => {
                let process = Arc::new(process);
                *lock(&self.current) = Some((Arc::clone(&process), started.clone()));
                let key = (self.namespace.clone(), self.name.clone());
                lock(&self.kubelet.processes).insert(key, Arc::clone(&process));
                let host = self.kubelet.addresses.own();
                self.publish(running(&self.pod, address.get(), host, &started)).await;
                tokio::select! {
                    exit = process.ended() => Ended::of(exit, message(&process)),
                    () = self.refresh_volumes(address.get()), if may_change => return,
                }
            }
            Err(error) => Ended::not_started(format!("{error:#}")),
        };
        *lock(&self.current) = None;
        self.publish(ended(&self.pod, &end, &started)).await;
    }

    /// Waits for the end of an init container.
    async fn end_of(&self, process: Process, started: &str) -> Ended {
        let process = Arc::new(process);
        *lock(&self.current) = Some((Arc::clone(&process), started.to_owned()));
        let exit = process.ended().await;
        *lock(&self.current) = None;
        Ended::of(exit, message(&process))
    }

    /// Writes the volumes, as often as need be. Says whether any of them may change.
    async fn write_volumes(&self, address: Ipv4Addr) -> bool {
        let mut said = String::new();
        loop {
            match volumes::write(&self.pod, address, &self.directories(), &self.objects()).await {
                Ok(may_change) => return may_change,
                Err(error) => self.wait(&format!("{error:#}"), &mut said).await,
            }
        }
    }

    async fn wait(&self, why: &str, said: &mut String) {
        if said != why {
            self.publish(pending(&self.pod, "ContainerCreating", why)).await;
            why.clone_into(said);
        }
        sleep(VOLUMES_AGAIN).await;
    }

    async fn refresh_volumes(&self, address: Ipv4Addr) {
        loop {
            sleep(VOLUMES_REFRESHED).await;
            // Objects that are gone leave the files as they are.
            let _ = volumes::write(&self.pod, address, &self.directories(), &self.objects()).await;
        }
    }

    async fn start(&self, container: &Container, address: Ipv4Addr) -> Result<Process> {
        let root = volumes::mount(container, &self.directories())?;
        let variables = variables(container, &self.pod, address, &self.objects()).await?;
        let text = |text: &String| expand(text, &variables);
        let inside = |text: &String| volumes::paths_replaced(&expand(text, &variables), container, &root);
        let own: Vec<&String> = container.args.iter().flatten().collect();
        let (executable, arguments): (PathBuf, Vec<String>) = match container.command.as_deref() {
            Some([executable, arguments @ ..]) => {
                (text(executable).into(), arguments.iter().chain(own).map(inside).collect())
            }
            _ => {
                let given = [
                    format!("--address={address}"),
                    format!("--dns={}", self.kubelet.addresses.dns()),
                    format!("--root={}", root.display()),
                ];
                let given = given.into_iter().chain(self.kubelet.arguments.iter().cloned());
                let given = given.chain(["--".to_owned()]).chain(own.into_iter().map(text));
                (self.kubelet.program.clone(), given.collect())
            }
        };
        if executable.is_absolute() && !executable.exists() {
            bail!("there is no program {}", executable.display());
        }
        let short: String = self.uid.chars().take(8).collect();
        let name = format!("{}.{}.{}.{short}", self.namespace, self.name, container.name);
        let mut program = Program::new(name, executable).arguments(arguments).directory(&root);
        for (name, _) in std::env::vars_os() {
            if !HANDED_DOWN.iter().any(|handed| name == *handed) {
                program = program.without(name);
            }
        }
        for (name, value) in variables {
            program = program.environment(name, value);
        }
        Process::start(&self.kubelet.supervisor, &self.kubelet.state, program).await
    }

    fn directories(&self) -> Directories {
        let state = self.kubelet.state.path();
        Directories { pod: state.join("pods").join(&self.uid), claims: state.join("claims").join(&self.namespace) }
    }

    fn objects(&self) -> Objects<'_> {
        Objects { client: &self.kubelet.client, namespace: &self.namespace }
    }

    fn forget(&self) {
        let mut processes = lock(&self.kubelet.processes);
        let key = (self.namespace.clone(), self.name.clone());
        let short: String = self.uid.chars().take(8).collect();
        if processes.get(&key).is_some_and(|process| process.name().ends_with(&short)) {
            processes.remove(&key);
        }
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.kubelet.client.clone(), &self.namespace)
    }

    /// Writes the status, unless the pod is gone.
    async fn publish(&self, status: Value) {
        let patch = json!({"metadata": {"uid": self.uid}, "status": status});
        let api = self.api();
        let (tries, mut pause) = TRIES;
        for _ in 0..tries {
            match timeout(CALL, api.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(&patch))).await
            {
                Ok(Ok(_)) => return,
                // It is another pod, or none.
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return,
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Removes the pod: nothing of it runs any more.
    async fn remove(&self) {
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
        let (tries, mut pause) = TRIES;
        for _ in 0..tries {
            match timeout(CALL, self.api().delete(&self.name, &how)).await {
                Ok(Ok(_)) => return,
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return,
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(pause).await;
            pause *= 2;
        }
    }
}

/// Waits until a pod is being deleted or is gone.
async fn asked(mut pod: watch::Receiver<Arc<Pod>>) -> Asked {
    loop {
        {
            let pod = pod.borrow_and_update();
            if pod.metadata.deletion_timestamp.is_some() {
                let seconds = pod.metadata.deletion_grace_period_seconds;
                let grace = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
                return Asked::ToEnd(grace.unwrap_or(GRACE));
            }
        }
        if pod.changed().await.is_err() {
            return Asked::Nothing;
        }
    }
}

/// The end of the log of a process.
fn message(process: &Process) -> String {
    let mut message = process.last_lines(LAST_LINES);
    if message.len() > MESSAGE {
        let from = (message.len() - MESSAGE..message.len()).find(|at| message.is_char_boundary(*at));
        message = message.split_off(from.unwrap_or_default());
    }
    message
}

/// Locks, also after a panic of another task.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Refuses a node agent without nodes, or with a program that is not there.
///
/// # Errors
/// See above.
pub(crate) fn check(nodes: &BTreeSet<String>, program: &PathBuf) -> Result<()> {
    if nodes.is_empty() {
        bail!("the agent has no nodes");
    }
    std::fs::metadata(program).with_context(|| format!("cannot use the program {}", program.display())).map(drop)
}
