//! The cluster of the demo.

use crate::system::rights::FrontendRights;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use streams_control_plane::ControlPlane;
use streams_control_plane::binaries::{Binaries, Tool};
use streams_control_plane::process::{StateDirectory, Supervisor};
use streams_control_plane::wait::eventually;

/// Owner of what the demo applies.
const FIELD_MANAGER: &str = "streams-demo";
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(60);

/// A cluster and the programs to look at it.
#[derive(Debug)]
pub enum Cluster {
    /// Started by the demo; ends with it.
    Own(Box<ControlPlane>),
    /// One that exists.
    Existing {
        /// A kubeconfig whose current context is the one asked for.
        kubeconfig: PathBuf,
        /// `kubectl` and `grpcurl`, if they were found or built.
        binaries: Option<Binaries>,
        /// Where the kubeconfig is.
        state: StateDirectory,
    },
}

impl Cluster {
    /// Starts a control plane with the custom resources and so many fake nodes, or connects to the cluster of a context
    /// of the user's kubeconfig and applies them.
    ///
    /// # Errors
    /// When a program is missing or does not start; when there is no such context or it cannot be used.
    pub async fn start(
        supervisor: &Supervisor,
        context: Option<&str>,
        crds: Vec<CustomResourceDefinition>,
        fake_nodes: u16,
    ) -> Result<Self> {
        let Some(context) = context else {
            let default = streams_control_plane::Options::default();
            let options = streams_control_plane::Options { crds, nodes: fake_nodes, ..default };
            return Ok(Self::Own(Box::new(ControlPlane::start(supervisor, &options).await?)));
        };
        let mut config = Kubeconfig::read().context("cannot read the kubeconfig")?;
        if !config.contexts.iter().any(|c| c.name == context) {
            let known = config.contexts.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
            bail!("there is no context {context}; the kubeconfig has: {known}");
        }
        config.current_context = Some(context.to_owned());
        let state = StateDirectory::create(supervisor)?;
        let kubeconfig = state.path().join("kubeconfig");
        std::fs::write(&kubeconfig, serde_saphyr::to_string(&config)?)?;
        let binaries = Binaries::find_or_build(supervisor).await.ok();
        let cluster = Self::Existing { kubeconfig, binaries, state };
        apply(&cluster.client().await?, &crds).await?;
        Ok(cluster)
    }

    /// A kubeconfig with the rights that the demo needs.
    pub fn kubeconfig(&self) -> &Path {
        match self {
            Self::Own(control_plane) => control_plane.kubeconfig(),
            Self::Existing { kubeconfig, .. } => kubeconfig,
        }
    }

    /// The kubeconfig of the frontend: with the rights of its manifest in a control plane of its own; with the user's
    /// in a cluster that exists, in which the demo gives nobody rights.
    ///
    /// # Errors
    /// When the rights cannot be given.
    pub async fn frontend_kubeconfig(&self, client: &Client, namespace: &str) -> Result<PathBuf> {
        let Self::Own(control_plane) = self else { return Ok(self.kubeconfig().to_owned()) };
        let rights = FrontendRights::give(control_plane).await?;
        rights.lease_in(client, namespace).await?;
        Ok(rights.kubeconfig().to_owned())
    }

    /// A client.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        streams_control_plane::client(self.kubeconfig()).await
    }

    /// The path of a program, or its bare name when it is to be found by the shell.
    pub fn program(&self, tool: Tool) -> PathBuf {
        match self {
            Self::Own(control_plane) => control_plane.executable(tool).to_owned(),
            Self::Existing { binaries: Some(binaries), .. } => binaries.path(tool).to_owned(),
            Self::Existing { binaries: None, .. } => PathBuf::from(tool.name()),
        }
    }

    /// Ends a control plane of its own; leaves an existing cluster alone.
    ///
    /// # Errors
    /// When something does not end.
    pub async fn stop(self) -> Result<()> {
        match self {
            Self::Own(control_plane) => control_plane.stop().await,
            Self::Existing { state, .. } => state.remove().await,
        }
    }
}

async fn apply(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        api.patch(&crd.name_any(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(crd))
            .await
            .with_context(|| format!("cannot apply {}", crd.name_any()))?;
    }
    for crd in crds {
        let name = crd.name_any();
        eventually(&format!("{name} is established"), ESTABLISHED_WITHIN, || async {
            let found = api.get(&name).await?;
            let conditions = found.status.and_then(|s| s.conditions).unwrap_or_default();
            match conditions.iter().find(|c| c.type_ == "Established") {
                Some(condition) if condition.status == "True" => Ok(()),
                Some(condition) => bail!("{}", condition.message.clone().unwrap_or_default()),
                None => bail!("nothing is said of it yet"),
            }
        })
        .await?;
    }
    Ok(())
}
