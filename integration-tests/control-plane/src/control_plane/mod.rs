//! A Kubernetes control plane of its own: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok,
//! whose nodes and pods only seem to run.
//!
//! ```text
//!   Options --> ControlPlane::start
//!                 binaries      find or build the programs
//!                 credentials   keys, tokens, kubeconfigs
//!                 components    arguments; etcd, then kube-apiserver, then CRDs, then the others
//!                 nodes         fake nodes, ready
//!           --> kubeconfig, client, namespaces, and every program as a Process that can be killed and started again
//! ```
//!
//! It listens on one port of the loopback interface (the API server's); etcd is reached by a Unix socket. So any number
//! of them run side by side.
//!
//! What differs from a real cluster: no kubelet, so no containers, logs, probes or network. `stages.yaml` says what
//! becomes of a pod and by which annotations a test directs it.
//!
//! Knows: the programs, their arguments, what they need of each other. Must not know: how a program is kept from
//! outliving this one, kinds of this project.

mod components;
mod credentials;
mod nodes;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures::future::{try_join_all, try_join3};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::components::Component;
use self::credentials::Credentials;
use crate::binaries::{Binaries, Tool};
use crate::process::{Process, StateDirectory, Supervisor, free_port};
use crate::wait::eventually;

/// Name of the context in its kubeconfigs.
pub const CONTEXT: &str = "test";
/// Five seconds on an idle machine for all; each step gets this much.
const STEP_WITHIN: Duration = Duration::from_secs(120);
/// How often another port is tried for the API server.
const PORTS_TRIED: usize = 5;
/// Owner of what this harness applies.
const FIELD_MANAGER: &str = "streams-control-plane";

/// What a control plane is to be like.
#[derive(Debug, Clone)]
pub struct Options {
    /// There before the controllers start: the garbage collector looks for new kinds every 30 s only, and without them
    /// an owner's end would reach its dependents that late.
    pub crds: Vec<CustomResourceDefinition>,
    /// Fake nodes, called `node-0`, `node-1`, ..., with addresses from 10.1.0.0 on.
    pub nodes: u16,
    /// Pods that fit on one of them.
    pub pods_per_node: u32,
    /// Users with a token each, beside the administrator.
    pub users: Vec<User>,
    /// More arguments for single programs. Where a flag is given twice, the later one counts.
    pub arguments: BTreeMap<Component, Vec<String>>,
    /// The API server's port. Another is chosen if it is taken, or not given.
    pub port: Option<u16>,
}

impl Default for Options {
    /// Two nodes for 500 pods each, nothing else.
    fn default() -> Self {
        Self {
            crds: Vec::new(),
            nodes: 2,
            pods_per_node: 500,
            users: Vec::new(),
            arguments: BTreeMap::new(),
            port: None,
        }
    }
}

/// Somebody whom the API server knows by a token. May do what roles bound to the name or the groups allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// Groups besides `system:authenticated`.
    pub groups: Vec<String>,
}

/// A running control plane. All its programs end, and all its files go, when this value is dropped or the process ends
/// in any way.
#[derive(Debug)]
pub struct ControlPlane {
    // In this order: the programs are told to end before the directory is.
    processes: BTreeMap<Component, Process>,
    state: StateDirectory,
    credentials: Credentials,
    binaries: Binaries,
    port: u16,
}

impl ControlPlane {
    /// Starts one, building its programs first if need be. When this returns, the CRDs are established, the nodes
    /// ready, the default service account is there and the garbage collector works.
    ///
    /// # Errors
    /// When a program cannot be found or built, or ends or is not ready in time: with the end of its log.
    pub async fn start(supervisor: &Supervisor, options: &Options) -> Result<Self> {
        let binaries = Binaries::find_or_build(supervisor).await?;
        // The TLS library has to be told once which cryptography to use; whoever was first is right, too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let state = StateDirectory::create(supervisor)?;
        let credentials = Credentials::create(state.path(), &options.users)?;
        let mut control_plane = Self { processes: BTreeMap::new(), state, credentials, binaries, port: 0 };
        control_plane.start_programs(supervisor, options).await?;
        Ok(control_plane)
    }

    async fn start_programs(&mut self, supervisor: &Supervisor, options: &Options) -> Result<()> {
        let etcd = self.start_program(supervisor, Component::Etcd, options).await?;
        let socket = components::etcd_socket(self.state.path());
        etcd.ready(STEP_WITHIN, || async {
            tokio::net::UnixStream::connect(&socket).await.map(drop).context("its socket cannot be connected")
        })
        .await?;
        self.processes.insert(Component::Etcd, etcd);

        let api_server = self.start_api_server(supervisor, options).await?;
        self.processes.insert(Component::KubeApiserver, api_server);
        let client = self.client().await?;
        establish(&client, &options.crds).await?;
        nodes::create(&client, options.nodes, options.pods_per_node).await?;

        let others = [Component::KubeControllerManager, Component::KubeScheduler, Component::Kwok].into_iter();
        // kwok ends at once when there is no node for it.
        let others: Vec<Component> =
            others.filter(|component| *component != Component::Kwok || options.nodes > 0).collect();
        let started = others.iter().map(|component| self.start_program(supervisor, *component, options));
        let started = try_join_all(started).await?;
        self.processes.extend(others.into_iter().zip(started));

        let ready = try_join3(
            nodes::ready(&client, options.nodes, STEP_WITHIN),
            default_service_account(&client, "default", STEP_WITHIN),
            garbage_is_collected(&client),
        );
        let ended = futures::future::select_all(self.processes.values().map(|process| {
            Box::pin(async move {
                let exit = process.ended().await;
                anyhow!("{process} ended with {exit}; the end of its log:\n{}", process.last_lines(15))
            })
        }));
        tokio::select! {
            ready = ready => ready.map(drop),
            (error, ..) = ended => Err(error),
        }
    }

    async fn start_program(&self, supervisor: &Supervisor, component: Component, options: &Options) -> Result<Process> {
        let executable = self.binaries.path(component.tool());
        let mut program = components::program(component, executable, self.state.path(), self.port);
        if let Some(more) = options.arguments.get(&component) {
            program = program.arguments(more);
        }
        Process::start(supervisor, &self.state, program).await
    }

    /// Starts the API server on a port that turns out to be free, and waits until it is ready.
    async fn start_api_server(&mut self, supervisor: &Supervisor, options: &Options) -> Result<Process> {
        let mut asked_for = options.port;
        for _ in 0..PORTS_TRIED {
            self.port = asked_for.take().map_or_else(free_port, Ok)?;
            self.credentials.write_kubeconfigs(self.port)?;
            let process = self.start_program(supervisor, Component::KubeApiserver, options).await?;
            // A new client each time: the certificate authority is there only once the server has made it.
            let ready = process.ready(STEP_WITHIN, || async {
                let request = http_get("/readyz")?;
                let answer = self.client().await?.request_text(request).await?;
                ensure!(answer == "ok", "{answer}");
                Ok(())
            });
            match ready.await {
                Ok(()) => return Ok(process),
                Err(error) if components::port_was_taken(&process) => {
                    tracing::info!(port = self.port, %error, "port taken")
                }
                Err(error) => return Err(error),
            }
        }
        bail!("each of {PORTS_TRIED} ports was taken by another program before kube-apiserver could listen")
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        self.credentials.administrator()
    }

    /// A client with the administrator's rights. It belongs to the runtime in which it is made: each test makes its
    /// own.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        client(self.kubeconfig()).await
    }

    /// The kubeconfig of one of [`Options::users`].
    ///
    /// # Errors
    /// When there is no such user.
    pub fn user_kubeconfig(&self, name: &str) -> Result<PathBuf> {
        self.credentials.user(name)
    }

    /// A kubeconfig with a token of the service account `name`, valid for a day: for programs that are to have the
    /// rights of their manifest only.
    ///
    /// # Errors
    /// When there is no such service account.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client().await?, namespace);
        let spec = TokenRequestSpec { audiences: Vec::new(), expiration_seconds: Some(86_400), bound_object_ref: None };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("no token for the service account {namespace}/{name}"))?;
        let token = answer.status.context("a token request without answer")?.token;
        self.credentials.write_kubeconfig(&format!("{namespace}.{name}"), &token, self.port)
    }

    /// Makes a namespace with a name that begins with `purpose`, and waits until pods can be created in it. Each test
    /// uses its own and leaves it: the deletion of a namespace takes five seconds.
    ///
    /// # Errors
    /// When `purpose` cannot begin a name, or the namespace is not ready in time.
    pub async fn namespace(&self, purpose: &str) -> Result<String> {
        let client = self.client().await?;
        let metadata = ObjectMeta { generate_name: Some(format!("{purpose}-")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let namespace = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let name = namespace.name_any();
        default_service_account(&client, &name, STEP_WITHIN).await?;
        Ok(name)
    }

    /// One of its programs, e.g. to kill it and to start it again. There is none for [`Component::Kwok`] without nodes.
    ///
    /// # Errors
    /// When it was not started.
    pub fn process(&self, component: Component) -> Result<&Process> {
        self.processes.get(&component).with_context(|| format!("{} was not started", component.tool()))
    }

    /// The executable of one of its programs or clients.
    #[must_use]
    pub fn executable(&self, tool: Tool) -> &Path {
        self.binaries.path(tool)
    }

    /// Its directory: programs that are started to work with it can keep their logs here.
    #[must_use]
    pub fn state(&self) -> &StateDirectory {
        &self.state
    }

    /// Ends it and waits until nothing is left.
    ///
    /// # Errors
    /// When something is left.
    pub async fn stop(self) -> Result<()> {
        let Self { processes, state, .. } = self;
        drop(processes);
        state.remove().await
    }
}

/// A client for the cluster and the user of a kubeconfig, in the runtime that is current.
///
/// # Errors
/// When the kubeconfig cannot be used.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let unusable = || format!("cannot use the kubeconfig {}", kubeconfig.display());
    let parsed = Kubeconfig::read_from(kubeconfig).with_context(unusable)?;
    let mut config =
        Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.with_context(unusable)?;
    // The API server is on the loopback interface, whatever the environment says about proxies.
    config.proxy_url = None;
    Client::try_from(config).with_context(unusable)
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

/// Applies `crds` and waits until the API server serves them.
async fn establish(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        let applied = api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(crd)).await;
        applied.with_context(|| format!("the API server does not take the CRD {name}"))?;
    }
    for crd in crds {
        let name = crd.name_any();
        eventually(&format!("the CRD {name} is established"), STEP_WITHIN, || async {
            let conditions = api.get(&name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
            let established =
                conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
            ensure!(established, "{conditions:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Waits for what the API server demands of a namespace before it takes a pod.
async fn default_service_account(client: &Client, namespace: &str, within: Duration) -> Result<()> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let what = format!("the namespace {namespace} has its default service account");
    eventually(&what, within, || async { Ok(accounts.get("default").await.map(drop)?) }).await
}

/// Waits until the garbage collector works: an object whose owner is gone goes, too.
async fn garbage_is_collected(client: &Client) -> Result<()> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let named = |name: &str| ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let owner = api.create(&PostParams::default(), &named("harness-owner")).await?;
    let mut dependent = named("harness-dependent");
    dependent.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: owner.name_any(),
        uid: owner.uid().context("an object without uid")?,
        ..OwnerReference::default()
    }]);
    api.create(&PostParams::default(), &dependent).await?;
    api.delete("harness-owner", &DeleteParams::background()).await?;
    eventually("the garbage collector works", STEP_WITHIN, || async {
        ensure!(api.get_metadata_opt("harness-dependent").await?.is_none(), "an object without owner is still there");
        Ok(())
    })
    .await
}
