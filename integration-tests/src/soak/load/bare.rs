//! The bare client: writes the objects that the frontend wrote, one after the other, a number of them at the same time,
//! and knows nothing. Nothing that writes the same objects can be much faster.

use anyhow::{Context as _, Result};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use streams_api::{ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, ProcessingElement, names};
use tokio::sync::SetOnce;

/// Objects of a list are read in pages.
const PAGE: u32 = 500;

/// What the frontend wrote, by namespace, in the order in which it has to.
#[derive(Debug, Default)]
pub(super) struct Written {
    objects: BTreeMap<String, Vec<Object>>,
    /// Bytes of what the frontend keeps in its mirrors, as JSON: without what it trims.
    pub(super) mirrored: u64,
    /// Pods.
    pub(super) pods: usize,
}

#[derive(Debug)]
struct Object {
    kind: ApiResource,
    /// As a client would create it, without its owners.
    bare: Value,
    uid: String,
    /// Who owns it, of which it has the uids of what the frontend wrote.
    owners: Vec<Value>,
}

/// Uids of what the bare client has created, by those of what the frontend wrote; only of owners.
type Uids = BTreeMap<String, SetOnce<String>>;

/// In an order in which no object comes before its owner.
fn kinds() -> [ApiResource; 10] {
    fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    [
        of::<Job>(),
        of::<ConfigMap>(),
        of::<ParallelRegion>(),
        of::<HostPool>(),
        of::<ConsistentRegion>(),
        of::<Export>(),
        of::<Import>(),
        of::<Service>(),
        of::<ProcessingElement>(),
        of::<Pod>(),
    ]
}

impl Written {
    /// What is in these namespaces.
    pub(super) async fn read(client: &Client, namespaces: &[String]) -> Result<Self> {
        let mut written = Self::default();
        for namespace in namespaces {
            let objects = written.objects.entry(namespace.clone()).or_default();
            for kind in kinds() {
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
                let mut parameters = ListParams::default().limit(PAGE);
                if kind.kind != "Job" {
                    parameters = parameters.labels(names::LABEL_JOB);
                }
                loop {
                    let page = api.list(&parameters).await.with_context(|| format!("no list of {}", kind.plural))?;
                    for object in page.items {
                        let uid = object.uid().unwrap_or_default();
                        let mut value = serde_json::to_value(object)?;
                        trim(&kind.kind, &mut value);
                        written.mirrored += kept(&kind.kind, &value);
                        written.pods += usize::from(kind.kind == "Pod");
                        let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
                        let owners = owners.cloned().unwrap_or_default();
                        objects.push(Object { kind: kind.clone(), bare: bare(value), uid, owners });
                    }
                    match page.metadata.continue_.filter(|token| !token.is_empty()) {
                        Some(token) => parameters = parameters.continue_token(&token),
                        None => break,
                    }
                }
            }
        }
        Ok(written)
    }

    /// Number of objects.
    pub(super) fn count(&self) -> usize {
        self.objects.values().map(Vec::len).sum()
    }

    /// The pods of each namespace, for other namespaces that are written into.
    pub(super) fn awaited(&self, into: &[String]) -> Awaited {
        let pods = self.objects.values().map(|of| of.iter().filter(|object| object.kind.kind == "Pod").count());
        Awaited::new(into.iter().cloned().zip(pods))
    }

    /// Creates all of it in other namespaces.
    pub(super) async fn write(&self, client: &Client, into: &[String], at_once: usize) -> Result<()> {
        let uids = self.uids();
        let pairs = self.objects.values().zip(into);
        let all = pairs.flat_map(|(objects, namespace)| objects.iter().map(move |object| (object, namespace)));
        // What one job has follows what another has: as if all were created at once.
        stream::iter(all.map(Ok))
            .try_for_each_concurrent(at_once, |(object, namespace)| object.create(client, namespace, &uids))
            .await
    }

    /// The owners, none of which has been created.
    fn uids(&self) -> Uids {
        let written = self.objects.values().flatten();
        written
            .filter(|object| OWNERS.contains(&&*object.kind.kind))
            .map(|it| (it.uid.clone(), SetOnce::new()))
            .collect()
    }
}

/// Kinds of which objects own others.
const OWNERS: [&str; 2] = ["Job", "ProcessingElement"];

impl Object {
    /// Creates it in another namespace as soon as its owners are there.
    async fn create(&self, client: &Client, namespace: &str, uids: &Uids) -> Result<()> {
        let mut owners = Vec::with_capacity(self.owners.len());
        for owner in &self.owners {
            let uid = owner.get("uid").and_then(Value::as_str).and_then(|uid| uids.get(uid));
            let uid = uid.with_context(|| format!("a {} has an owner of another kind", self.kind.kind))?;
            let mut owner = owner.clone();
            owner["uid"] = json!(uid.wait().await);
            owners.push(owner);
        }
        let mut value = self.bare.clone();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), json!(namespace));
            if !owners.is_empty() {
                metadata.insert("ownerReferences".to_owned(), json!(owners));
            }
        }
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &self.kind);
        let created = api.create(&PostParams::default(), &serde_json::from_value(value)?).await;
        let created = created.with_context(|| format!("a {} cannot be created", self.kind.kind))?;
        if let Some(uid) = uids.get(&self.uid) {
            // Each is created once.
            let _ = uid.set(created.uid().unwrap_or_default());
        }
        Ok(())
    }
}

/// What is trimmed before an object is kept.
fn trim(kind: &str, object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let Some(object) = object.as_object_mut() {
        object.insert("kind".to_owned(), json!(kind));
    }
}

/// Bytes that a mirror keeps of it: of a ConfigMap its metadata, of a pod its place and its status.
fn kept(kind: &str, object: &Value) -> u64 {
    let bytes = |part: &str| object.get(part).map_or(0, |part| part.to_string().len() as u64);
    match kind {
        "ConfigMap" => bytes("metadata"),
        "Pod" => bytes("metadata") + bytes("status"),
        _ => bytes("metadata") + bytes("spec") + bytes("status"),
    }
}

/// What a client would create: nothing that the API server adds, and no owner, whose uid is another one.
pub(in crate::soak) fn bare(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "annotations"));
        }
        if let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) {
            for added in ["nodeName", "clusterIPs", "tolerations", "serviceAccount", "serviceAccountName"] {
                spec.remove(added);
            }
            // An address is given by the server; that there is to be none is asked for.
            if spec.get("clusterIP").is_some_and(|address| address != "None") {
                spec.remove("clusterIP");
            }
        }
    }
    object
}

/// Pods that are waited for, by namespace: one namespace is looked at after the other. A look that lists everything
/// costs the API server more than many of the calls that are measured.
#[derive(Debug)]
pub(super) struct Awaited {
    left: Vec<(String, usize)>,
}

impl Awaited {
    /// So many pods in each of these namespaces.
    pub(super) fn new(namespaces: impl IntoIterator<Item = (String, usize)>) -> Self {
        Self { left: namespaces.into_iter().collect() }
    }

    /// Whether all of them run; namespaces whose pods have all run once are not looked at again.
    pub(super) async fn run(&mut self, client: &Client) -> Result<bool> {
        while let Some((namespace, pods)) = self.left.last() {
            let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let parameters = ListParams::default().labels(names::LABEL_JOB);
            let waiting = parameters.clone().fields("status.phase!=Running").limit(1);
            if !api.list_metadata(&waiting).await?.items.is_empty() || count(&api, parameters).await? < *pods {
                return Ok(false);
            }
            self.left.pop();
        }
        Ok(true)
    }

    /// Namespaces that are still waited for.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }
}

/// How many pods of these run.
async fn count(api: &Api<Pod>, parameters: ListParams) -> Result<usize> {
    let mut parameters = parameters.fields("status.phase=Running").limit(PAGE);
    let mut count = 0;
    loop {
        let page = api.list_metadata(&parameters).await?;
        count += page.items.len();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_creates_has_nothing_that_the_server_adds() {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "s", "uid": "u", "labels": {"a": "b"}, "ownerReferences": [{"uid": "o"}], "managedFields": [1]},
            "spec": {"clusterIP": "None", "clusterIPs": ["None"], "ports": [1]}, "status": {"x": 1},
        });
        let created = bare(service);
        let expected = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"a": "b"}}, "spec": {"clusterIP": "None", "ports": [1]},
        });
        assert_eq!(created, expected);
    }

    #[test]
    fn the_data_of_config_maps_and_what_pods_are_made_of_is_not_mirrored() {
        let object = json!({"metadata": {"name": "c"}, "data": {"k": "long"}, "spec": {"s": 1}, "status": {"t": 2}});
        let [map, pod, pe] = ["ConfigMap", "Pod", "ProcessingElement"].map(|kind| kept(kind, &object));
        assert_eq!((map, pod, pe), (12, 12 + 7, 12 + 7 + 7));
    }
}
