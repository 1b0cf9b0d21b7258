//! Plays the kubelet of some nodes of a test cluster, for programs that stand for containers: pods become processes of
//! this machine, with addresses of their own and names that lead to them.
//!
//! ```text
//!   API server <--- nodes:   Node objects, Leases
//!              <--> kubelet: a task per pod; volumes, environment, status
//!              ---> names:   a DNS server for Services
//!   addresses: of 10.77.0.0/16, by one route of this machine (root, Linux)
//! ```
//!
//! What differs from a kubelet: no images, so one program plays all entry points; no mounts, so containers see their
//! files below a directory that stands for their root; one container per pod; no probes, no restarts, no tokens of
//! service accounts. A control plane that is used with it must not have anybody else who plays kubelet for its nodes.
//!
//! Knows: pods, Services, nodes, as Kubernetes defines them. Must not know: jobs, or what the processes do.
//!
//! Invariants: every process ends with the agent, and the agent with its value or with the process that holds it; every
//! call has a deadline.

mod addresses;
mod environment;
mod kubelet;
mod names;
mod nodes;
mod objects;
mod status;
mod volumes;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::future::Future;
use std::hash::Hash;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use streams_control_plane::process::{Process, StateDirectory, Supervisor};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long the first list of Services may take.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// Whether pods can have addresses on this machine: it is Linux, and the route is there or can be added.
///
/// # Errors
/// They cannot; it says what to do.
pub async fn can_have_addresses() -> Result<()> {
    addresses::see_to_the_route().await
}

/// What an agent is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of its nodes. They are made if they are not there.
    pub nodes: BTreeSet<String>,
    /// Pods that fit on one of them.
    pub pods_per_node: u32,
    /// Plays the entry point of every image. It is given `--address`, `--dns` and `--root`, then the next arguments,
    /// then `--` and those of the container.
    pub program: PathBuf,
    /// Further arguments of the program.
    pub arguments: Vec<String>,
    /// Pods without this label stay pending, because the program cannot play them; if there is none here, all are run.
    pub only_labelled: Option<String>,
}

/// A running agent. Its processes end with it.
pub struct NodeAgent {
    kubelet: Arc<kubelet::Kubelet>,
    _stopped: DropGuard,
}

impl NodeAgent {
    /// Starts one. When this returns, pods may be scheduled to its nodes, and its DNS server answers.
    ///
    /// # Errors
    /// When addresses cannot be had on this machine, or the API server does not do what it is asked for.
    pub async fn start(supervisor: &Supervisor, client: &Client, options: Options) -> Result<Self> {
        kubelet::check(&options.nodes, &options.program)?;
        let (addresses, socket) = addresses::Addresses::claim().await?;
        let stopped = CancellationToken::new();
        let guard = stopped.clone().drop_guard();
        let kubelet = Arc::new(kubelet::Kubelet {
            client: client.clone(),
            supervisor: supervisor.clone(),
            state: StateDirectory::create(supervisor)?,
            addresses,
            nodes: options.nodes,
            program: options.program,
            arguments: options.arguments,
            only_labelled: options.only_labelled,
            processes: Mutex::default(),
            stopped: stopped.clone(),
        });
        let (pods, writer) = store();
        let names = names::Names { services: mirror(&stopped, client), slices: mirror(&stopped, client), pods };
        spawn(&stopped, Arc::clone(&kubelet).watch(writer));
        let listed = async {
            let _ = names.services.wait_until_ready().await;
            let _ = names.slices.wait_until_ready().await;
            let _ = names.pods.wait_until_ready().await;
        };
        tokio::time::timeout(LISTED_WITHIN, listed).await.context("the API server does not list Services and pods")?;
        spawn(&stopped, names.serve(socket));
        let address = kubelet.addresses.own();
        nodes::create(client, &kubelet.nodes, address, options.pods_per_node).await?;
        spawn(&stopped, nodes::keep(client.clone(), kubelet.nodes.clone()));
        Ok(Self { kubelet, _stopped: guard })
    }

    /// Where its DNS server is.
    #[must_use]
    pub fn dns(&self) -> SocketAddr {
        self.kubelet.addresses.dns()
    }

    /// Another address that is not loopback, for a program that is no pod.
    ///
    /// # Errors
    /// When there is none left.
    pub fn reserve_address(&self) -> Result<Ipv4Addr> {
        self.kubelet.addresses.reserve()
    }

    /// The process of a pod, e.g. to kill it or to make it hang. There is none before it runs and after its end.
    #[must_use]
    pub fn process(&self, namespace: &str, pod: &str) -> Option<Arc<Process>> {
        self.kubelet.process(namespace, pod)
    }

    /// Where logs are: `<namespace>.<pod>.<container>.<uid>.log`.
    #[must_use]
    pub fn state(&self) -> &StateDirectory {
        &self.kubelet.state
    }
}

impl Debug for NodeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAgent")
            .field("nodes", &self.kubelet.nodes)
            .field("dns", &self.dns())
            .finish_non_exhaustive()
    }
}

fn spawn(stopped: &CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
    let stopped = stopped.clone();
    tokio::spawn(async move {
        stopped.run_until_cancelled(task).await;
    });
}

/// All objects of a kind, as they become.
fn mirror<K>(stopped: &CancellationToken, client: &Client) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (objects, writer) = store();
    let changes = watcher(Api::<K>::all(client.clone()), Config::default()).default_backoff();
    spawn(stopped, reflector(writer, changes).for_each(|_| std::future::ready(())));
    objects
}
