//! Where sequences are run: a control plane, the services, a server of bundles, and namespaces that have what a spec
//! may refer to.

use super::propagation::Propagation;
use super::values::{ALL_KINDS, BROKEN, COPY, EXISTING, REDIS, SERVER};
use crate::sample;
use crate::system::picture::{self, Picture};
use crate::system::rights::Secrets;
use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, ParallelRegion, ProcessingElement, names};
use streams_control_plane::ControlPlane;
use streams_control_plane::wait::eventually;
use tokio::sync::{Mutex, OnceCell};

/// Name of the job of every sequence: what is named after it need not be told apart.
pub(super) const JOB: &str = "flow";
/// For what takes seconds on an idle machine; the last namespace goes when the machine has time for it.
pub(super) const WITHIN: Duration = Duration::from_secs(150);

/// The application of [`ALL_KINDS`]. The nodes of a run have no tags.
const TELEMETRY: &str = include_str!("../../../../fusion-service/tests/applications/telemetry.adl");

/// What sequences run in.
pub(super) struct World {
    pub(super) control_plane: ControlPlane,
    pub(super) client: Client,
    server: String,
    /// Pictures of jobs that were created with a spec and never changed, by spec and widths.
    pub(super) fresh: Mutex<BTreeMap<String, Arc<OnceCell<Option<Picture>>>>>,
}

/// What the API server says to something that is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Taken,
    /// With these words.
    Refused(String),
}

impl World {
    /// Begins to serve bundles, and puts some into the frontend's directory.
    pub(super) async fn new(control_plane: ControlPlane, bundles: &Path) -> Result<Self> {
        let bundle = sample::bundle()?;
        std::fs::write(bundles.join(sample::SAB), &bundle)?;
        std::fs::write(bundles.join(COPY), &bundle)?;
        std::fs::write(bundles.join(BROKEN), b"no bundle")?;
        let all_kinds = TELEMETRY.replace("<tag name=\"gpu\"/><tag name=\"fast\"/>", "");
        let all_kinds = all_kinds.replace("<replicateHostTag name=\"gpu\"/>", "");
        std::fs::write(bundles.join(ALL_KINDS), sample::bundle_of(&all_kinds)?)?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let server = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(move |uri: Uri| {
            let is_there = ["/demo.Served.sab", "/demo.Renamed.sab"].iter().any(|name| uri.path().ends_with(name));
            let bundle = bundle.clone();
            async move { if is_there { bundle.into_response() } else { StatusCode::NOT_FOUND.into_response() } }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = control_plane.client().await?;
        Ok(Self { control_plane, client, server, fresh: Mutex::default() })
    }

    /// A namespace with a Secret, a volume claim and redis servers.
    pub(super) async fn namespace(&self) -> Result<String> {
        let namespace = self.control_plane.namespace("declared").await?;
        Secrets::OfBundles.permit(&self.client, &namespace).await?;
        Secrets::OfTransport.permit(&self.client, &namespace).await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let secret = json!({"metadata": {"name": EXISTING}, "stringData": {"token": "t", "password": "p"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        let size = json!({"storage": "1Gi"});
        let volume = json!({
            "metadata": {"name": namespace},
            "spec": {
                "capacity": size, "accessModes": ["ReadWriteMany"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "none",
                "hostPath": {"path": "/nowhere"}, "claimRef": {"namespace": namespace, "name": EXISTING},
            },
        });
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let claim = json!({
            "metadata": {"name": EXISTING},
            "spec": {
                "accessModes": ["ReadWriteMany"], "resources": {"requests": size}, "storageClassName": "none", "volumeName": namespace,
            },
        });
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        self.redis(&namespace).await?;
        Ok(namespace)
    }

    /// Headless Services of redis servers, as a StatefulSet and the controllers of Kubernetes make them.
    async fn redis(&self, namespace: &str) -> Result<()> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        for (name, servers) in REDIS {
            let service =
                json!({"metadata": {"name": name}, "spec": {"clusterIP": "None", "ports": [{"port": 6_379}]}});
            services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
            let server = |number| json!({"hostname": format!("{name}-{number}"), "addresses": [format!("10.1.0.{}", number + 1)]});
            let slice = json!({
                "metadata": {"name": format!("{name}-a"), "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "endpoints": (0..servers).map(server).collect::<Vec<_>>(),
            });
            slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
        }
        Ok(())
    }

    /// Gives the next job of a namespace this number: texts have it, and a job that comes again gets another one.
    pub(super) async fn number(&self, namespace: &str, number: u64) -> Result<()> {
        if number > 0 {
            let counter = json!({"metadata": {"name": names::JOB_IDS}, "data": {"next": number.to_string()}});
            let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
            maps.create(&PostParams::default(), &serde_json::from_value(counter)?).await?;
        }
        Ok(())
    }

    /// Begins to delete a namespace.
    pub(super) async fn leave(&self, namespace: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(namespace, &DeleteParams::background()).await?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.delete(namespace, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Waits until a namespace is gone.
    pub(super) async fn gone(&self, namespace: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        eventually("the namespace is gone", WITHIN, || async {
            let there = namespaces.get_opt(namespace).await?;
            let conditions = there.as_ref().and_then(|there| there.status.as_ref()?.conditions.clone());
            ensure!(there.is_none(), "it is there: {conditions:?}");
            Ok(())
        })
        .await
    }

    fn jobs(&self, namespace: &str) -> Api<DynamicObject> {
        // Not the type: a spec that no program could read is to be written, too.
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Job>(&()))
    }

    fn resolved(&self, value: &Value) -> Result<Value> {
        Ok(serde_json::from_str(&value.to_string().replace(SERVER, &self.server))?)
    }

    /// Creates the job.
    pub(super) async fn create(&self, namespace: &str, spec: &Value) -> Result<Answer> {
        let job = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": JOB}, "spec": self.resolved(spec)?,
        });
        answer(self.jobs(namespace).create(&PostParams::default(), &serde_json::from_value(job)?).await)
    }

    /// Merges this into the spec of the job.
    pub(super) async fn edit(&self, namespace: &str, patch: &Value) -> Result<Answer> {
        let patch = Patch::Merge(json!({"spec": self.resolved(patch)?}));
        answer(self.jobs(namespace).patch(JOB, &PatchParams::default(), &patch).await)
    }

    /// Writes the width of a region, once there is one.
    pub(super) async fn resize(&self, namespace: &str, region: &str, width: &Value) -> Result<Answer> {
        let name = eventually("there is a region", WITHIN, || async {
            let regions = self.list::<ParallelRegion>(namespace).await?;
            let is_it =
                |found: &&ParallelRegion| found.spec.name == region && found.metadata.deletion_timestamp.is_none();
            Ok(regions.iter().find(is_it).with_context(|| format!("there is no region {region}"))?.name_any())
        })
        .await?;
        let kind = ApiResource::erase::<ParallelRegion>(&());
        let regions: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        answer(regions.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"width": width}}))).await)
    }

    /// Asks every PE to restart.
    pub(super) async fn restart(&self, namespace: &str, request: &str) -> Result<()> {
        let pes: Api<ProcessingElement> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: request}}}));
        for pe in self.list::<ProcessingElement>(namespace).await? {
            pes.patch(&pe.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// Asks a PE to stop, or with `null` not to any more: the one of this number in the order of ids, beginning again
    /// where there are fewer.
    pub(super) async fn stop(&self, namespace: &str, number: usize, request: Value) -> Result<()> {
        let mut listed = self.list::<ProcessingElement>(namespace).await?;
        listed.sort_by_key(|pe| pe.spec.id);
        let pe = listed.get(number % listed.len().max(1)).context("there are no PEs")?;
        let name = pe.name_any();
        let pes: Api<ProcessingElement> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {names::ANNOTATION_STOP_REQUESTED: request}}}));
        pes.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Begins to delete the job.
    pub(super) async fn delete(&self, namespace: &str, propagation: Propagation) -> Result<()> {
        match self.jobs(namespace).delete(JOB, &propagation.parameters()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).context("the job cannot be deleted"),
        }
    }

    /// The job, if there is one.
    pub(super) async fn job(&self, namespace: &str) -> Result<Option<Value>> {
        picture::get_job(&self.client, namespace, JOB).await
    }

    /// Its objects of a kind.
    pub(super) async fn list<K>(&self, namespace: &str) -> Result<Vec<K>>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        crate::system::job::ObservedJob::new(&self.client, namespace, JOB).list().await
    }

    /// Its picture.
    pub(super) async fn picture(&self, namespace: &str) -> Result<Picture> {
        Picture::of(&self.client, namespace, JOB).await
    }
}

fn answer<T>(answer: kube::Result<T>) -> Result<Answer> {
    match answer {
        Ok(_) => Ok(Answer::Taken),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 409 | 422) => {
            Ok(Answer::Refused(status.message.clone()))
        }
        Err(error) => Err(error).context("a write failed"),
    }
}
