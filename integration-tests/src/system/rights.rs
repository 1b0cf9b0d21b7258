//! The rights of the frontend and of users: those of the manifest, and no others.
//!
//! Whoever follows the manifests gives the service account of the frontend what `deploy/base/rbac.yaml` says. So what
//! is started here talks to the API server as that service account, not as administrator: a right that the manifest
//! forgets is missing here, too.
//!
//! Knows: which manifest that is, and in which namespace it puts what has none. Must not know: which rights they are.

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding, RoleRef, Subject};
use kube::api::{Api, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, Resource as _, ResourceExt as _};
use std::path::{Path, PathBuf};
use streams_control_plane::ControlPlane;

/// What the project deploys.
const NAMESPACE: &str = include_str!("../../../deploy/base/namespace.yaml");
const ACCOUNTS: &str = include_str!("../../../deploy/base/service-accounts.yaml");
const MANIFEST: &str = include_str!("../../../deploy/base/rbac.yaml");
/// Where the manifests put what names no namespace.
const SYSTEM: &str = "streams-system";
const FRONTEND: &str = "streams-frontend";
const LEASE: &str = "streams-frontend-lease";
const ENDPOINTS: &str = "streams-frontend-endpoints";
const BUNDLE_SECRETS: &str = "streams-frontend-bundle-secrets";
const TRANSPORT_SECRETS: &str = "streams-frontend-transport-secrets";
/// A role of every cluster, to which the manifest adds.
const EDIT: &str = "edit";
const FIELD_MANAGER: &str = "streams-integration-tests";

/// The rights of the frontend, given in a cluster.
#[derive(Debug)]
pub struct FrontendRights {
    kubeconfig: PathBuf,
    manifest: Vec<DynamicObject>,
}

impl FrontendRights {
    /// Applies the manifest and what it is about, and makes a kubeconfig for the service account of the frontend.
    ///
    /// # Errors
    /// When the API server refuses something, or an object of the manifest has a kind that is not known here.
    pub async fn give(control_plane: &ControlPlane) -> Result<Self> {
        let client = control_plane.client().await?;
        let manifest = objects(MANIFEST)?;
        let subjects = [objects(NAMESPACE)?, objects(ACCOUNTS)?].concat();
        for object in subjects.iter().chain(&manifest) {
            apply(&client, object, SYSTEM).await?;
        }
        let kubeconfig = control_plane.service_account_kubeconfig(SYSTEM, FRONTEND).await?;
        Ok(Self { kubeconfig, manifest })
    }

    /// A kubeconfig with these rights.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Lets frontends have their Lease in `namespace`, for `--lease-namespace`: with the same Role as in the namespace
    /// of the manifests.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn lease_in(&self, client: &Client, namespace: &str) -> Result<()> {
        self.give_in(client, namespace, LEASE).await
    }

    /// Lets frontends watch the fusion service in `namespace`, for `--fusion-service-endpoints`: with the same Role as
    /// in the namespace of the manifests.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn endpoints_in(&self, client: &Client, namespace: &str) -> Result<()> {
        self.give_in(client, namespace, ENDPOINTS).await
    }

    async fn give_in(&self, client: &Client, namespace: &str, name: &str) -> Result<()> {
        for object in self.manifest.iter().filter(|object| object.name_any() == name) {
            apply(client, object, namespace).await?;
        }
        Ok(())
    }
}

/// Secrets that the frontend has to be permitted to use in the namespaces of jobs that need it: roles of the manifest
/// that it binds nowhere.
#[derive(Debug, Clone, Copy)]
pub enum Secrets {
    /// Reading the tokens of private bundles.
    OfBundles,
    /// Reading and writing certificates for transport security.
    OfTransport,
}

impl Secrets {
    /// Permits it in `namespace`, as the manifest tells its readers to.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn permit(self, client: &Client, namespace: &str) -> Result<()> {
        let role = match self {
            Self::OfBundles => BUNDLE_SECRETS,
            Self::OfTransport => TRANSPORT_SECRETS,
        };
        let frontend = Subject {
            kind: "ServiceAccount".to_owned(),
            name: FRONTEND.to_owned(),
            namespace: Some(SYSTEM.to_owned()),
            ..Subject::default()
        };
        bind(client, namespace, role, frontend).await
    }
}

/// Gives a user the built-in role `edit` in `namespace`, with what the manifest adds to it.
///
/// # Errors
/// When the API server refuses it.
pub async fn let_edit(client: &Client, namespace: &str, user: &str) -> Result<()> {
    let subject = Subject {
        api_group: Some(ClusterRole::group(&()).into_owned()),
        kind: "User".to_owned(),
        name: user.to_owned(),
        ..Subject::default()
    };
    bind(client, namespace, EDIT, subject).await
}

async fn bind(client: &Client, namespace: &str, role: &str, subject: Subject) -> Result<()> {
    let binding = RoleBinding {
        metadata: ObjectMeta { name: Some(role.to_owned()), ..ObjectMeta::default() },
        role_ref: RoleRef {
            api_group: ClusterRole::group(&()).into_owned(),
            kind: ClusterRole::kind(&()).into_owned(),
            name: role.to_owned(),
        },
        subjects: Some(vec![subject]),
    };
    let api = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &binding).await.with_context(|| format!("cannot bind {role}"))?;
    Ok(())
}

/// Applies an object of a manifest, in `namespace` if it belongs in one.
async fn apply(client: &Client, object: &DynamicObject, namespace: &str) -> Result<()> {
    let name = object.name_any();
    let types = object.types.as_ref().with_context(|| format!("{name} has no kind"))?;
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::try_from(types)?).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let mut object = object.clone();
    // A binding says where its service account is.
    object.metadata.namespace = None;
    let applied = api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&object)).await;
    applied.with_context(|| format!("cannot apply {} {name}", types.kind)).map(drop)
}

fn objects(manifest: &str) -> Result<Vec<DynamicObject>> {
    serde_saphyr::from_multiple(manifest).context("cannot read a manifest")
}
