//! What the tests share: a control plane, and for each test an agent with a node and a namespace of its own.

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use streams_control_plane::process::Supervisor;
use streams_control_plane::wait::eventually;
use streams_control_plane::{ControlPlane, Options};
use streams_node_agent::NodeAgent;
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// For what takes a second on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Plays the entry point of images: says how it was called, and stays.
const ENTRY_POINT: &str = "#!/bin/sh\necho \"called with $*, VALUE is $VALUE\"\nexec sleep 1000\n";

async fn control_plane() -> Result<&'static ControlPlane> {
    // A failure is kept as well: it would fail again for each test, after a long time.
    static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
    let shared = SHARED.get_or_init(|| async {
        // Without nodes of its own there is no kwok.
        let options = Options { nodes: 0, ..Options::default() };
        ControlPlane::start(&supervisor(), &options).await.map_err(|error| format!("{error:#}"))
    });
    shared.await.as_ref().map_err(|error| anyhow!("no control plane: {error}"))
}

fn supervisor() -> Supervisor {
    Supervisor::at(env!("CARGO_BIN_EXE_node-agent"))
}

/// An agent, its node and a namespace.
pub(crate) struct Fixture {
    pub(crate) agent: NodeAgent,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    directory: TempDir,
}

impl Fixture {
    /// `None`, and it is said why, on a machine on which pods cannot have addresses.
    pub(crate) async fn new(purpose: &str) -> Result<Option<Self>> {
        Self::only_labelled(purpose, None).await
    }

    /// The same, with an agent that runs only pods with a label.
    pub(crate) async fn only_labelled(purpose: &str, label: Option<&str>) -> Result<Option<Self>> {
        if let Err(error) = streams_node_agent::can_have_addresses().await {
            eprintln!("NOT TESTED: {error:#}");
            return Ok(None);
        }
        let control_plane = control_plane().await?;
        let client = control_plane.client().await?;
        let namespace = control_plane.namespace(purpose).await?;
        let directory = tempfile::tempdir()?;
        let program = directory.path().join("entry-point");
        fs::write(&program, ENTRY_POINT)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        let options = streams_node_agent::Options {
            nodes: BTreeSet::from([namespace.clone()]),
            pods_per_node: 100,
            program,
            arguments: vec!["--more".to_owned()],
            only_labelled: label.map(str::to_owned),
        };
        let agent = NodeAgent::start(&supervisor(), &client, options).await?;
        Ok(Some(Self { agent, client, namespace, directory }))
    }

    /// A directory of this machine.
    pub(crate) fn out(&self) -> PathBuf {
        self.directory.path().join("out")
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a pod with one container, for the node of the agent. `spec` says more of the pod, `container` more of the
    /// container.
    pub(crate) async fn pod(&self, name: &str, mut container: Value, mut spec: Value) -> Result<()> {
        merge(&mut container, &json!({"name": "main", "image": "none"}));
        let given = json!({
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            // So that the scheduler binds it.
            "nodeSelector": {"kubernetes.io/hostname": self.namespace},
            "containers": [container],
        });
        merge(&mut spec, &given);
        let pod = json!({"metadata": {"name": name, "labels": {"app": name.split('-').next()}}, "spec": spec});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// A pod that runs a script of the shell.
    pub(crate) async fn script(&self, name: &str, script: &str) -> Result<()> {
        self.pod(name, json!({"command": ["/bin/sh", "-c", script]}), json!({})).await
    }

    /// Waits until a pod is in a phase.
    pub(crate) async fn reaches(&self, name: &str, phase: &str) -> Result<Pod> {
        eventually(&format!("the pod {name} is {phase}"), SOON, || async {
            let pod = self.pods().get(name).await?;
            let status = pod.status.clone().unwrap_or_default();
            ensure!(status.phase.as_deref() == Some(phase), "{status:?}");
            Ok(pod)
        })
        .await
    }

    /// Waits until a file has a content that a test wants.
    pub(crate) async fn reads(&self, path: &Path, wanted: &str) -> Result<()> {
        eventually(&format!("{} is {wanted:?}", path.display()), SOON, || async {
            let is = fs::read_to_string(path).context("it cannot be read")?;
            ensure!(is == wanted, "it is {is:?}");
            Ok(())
        })
        .await
    }

    pub(crate) async fn delete(&self, name: &str, how: &DeleteParams) -> Result<()> {
        self.pods().delete(name, how).await?;
        eventually(&format!("the pod {name} is gone"), SOON, || async {
            ensure!(self.pods().get_opt(name).await?.is_none(), "it is there");
            Ok(())
        })
        .await
    }
}

fn merge(into: &mut Value, more: &Value) {
    if let (Some(into), Some(more)) = (into.as_object_mut(), more.as_object()) {
        into.extend(more.clone());
    }
}

/// How the container of a pod has ended.
pub(crate) fn terminated(pod: &Pod) -> Option<ContainerStateTerminated> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.terminated.clone()
}
