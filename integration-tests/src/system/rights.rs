//! The rights of the frontend and of users: those of the manifest, and no others.
//!
//! Whoever follows the manifests gives the service account of the frontend what `deploy/base/rbac.yaml` says. So what
//! is started here talks to the API server as that service account, not as administrator: a right that the manifest
//! forgets is missing here, too.
//!
//! Knows: which manifest that is, and in which namespace it puts what has none. Must not know: which rights they are.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding, RoleRef, Subject};
use kube::api::{Api, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
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

/// The rights of the frontend in some namespaces only, as its documents say, for a service account that has no others.
pub struct RightsInSome {
    kubeconfig: PathBuf,
    client: Client,
    account: Subject,
}

impl RightsInSome {
    /// Makes the service account in `home`, where it may have its Lease, too. The manifest has been applied before.
    ///
    /// # Errors
    /// When the API server refuses something.
    pub async fn none(control_plane: &ControlPlane, manifest: &FrontendRights, home: &str) -> Result<Self> {
        let client = control_plane.client().await?;
        let metadata = ObjectMeta { name: Some(FRONTEND.to_owned()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), home);
        accounts.create(&PostParams::default(), &account).await?;
        let kubeconfig = control_plane.service_account_kubeconfig(home, FRONTEND).await?;
        let account = service_account(home);
        manifest.lease_in(&client, home).await?;
        let role = RoleRef { kind: Role::kind(&()).into_owned(), ..role_ref(LEASE) };
        create_binding(&client, home, "lease-of-some", role, account.clone()).await?;
        Ok(Self { kubeconfig, client, account })
    }

    /// A kubeconfig with these rights.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Gives the rights in a namespace.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn give_in(&self, namespace: &str) -> Result<()> {
        bind(&self.client, namespace, FRONTEND, self.account.clone()).await
    }

    /// Takes the rights away in a namespace.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn take_in(&self, namespace: &str) -> Result<()> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        bindings.delete(FRONTEND, &DeleteParams::default()).await?;
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
        bind(client, namespace, role, service_account(SYSTEM)).await
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

/// The service account of the frontend in a namespace.
fn service_account(namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: FRONTEND.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    }
}

/// A role of the cluster.
fn role_ref(role: &str) -> RoleRef {
    RoleRef {
        api_group: ClusterRole::group(&()).into_owned(),
        kind: ClusterRole::kind(&()).into_owned(),
        name: role.to_owned(),
    }
}

async fn bind(client: &Client, namespace: &str, role: &str, subject: Subject) -> Result<()> {
    create_binding(client, namespace, role, role_ref(role), subject).await
}

async fn create_binding(
    client: &Client,
    namespace: &str,
    name: &str,
    role_ref: RoleRef,
    subject: Subject,
) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let binding = RoleBinding { metadata, role_ref, subjects: Some(vec![subject]) };
    let api = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &binding).await.with_context(|| format!("cannot bind {name}"))?;
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
