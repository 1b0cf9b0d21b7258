//! The objects of a job: what users delete of them, and what they change although it is not theirs.
//!
//! Knows: which kinds there are, and how one sees that an object is back or restored. Must not know: who does that.

use super::propagation::Propagation;
use super::world::{JOB, World};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement, names};

/// A kind of object that a job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Child {
    Service,
    /// One with the text of a PE.
    ConfigMap,
    /// That of the job itself.
    JobConfigMap,
    Region,
    ProcessingElement,
    HostPool,
    Export,
    Import,
    ConsistentRegion,
    Secret,
    Pod,
    /// That under which the PEs of a namespace reach the frontend.
    PeApiService,
}

impl Child {
    fn kind(self) -> ApiResource {
        let none = &();
        match self {
            Self::Service | Self::PeApiService => ApiResource::erase::<Service>(none),
            Self::ConfigMap | Self::JobConfigMap => ApiResource::erase::<ConfigMap>(none),
            Self::Region => ApiResource::erase::<ParallelRegion>(none),
            Self::ProcessingElement => ApiResource::erase::<ProcessingElement>(none),
            Self::HostPool => ApiResource::erase::<HostPool>(none),
            Self::Export => ApiResource::erase::<Export>(none),
            Self::Import => ApiResource::erase::<Import>(none),
            Self::ConsistentRegion => ApiResource::erase::<ConsistentRegion>(none),
            Self::Secret => ApiResource::erase::<Secret>(none),
            Self::Pod => ApiResource::erase::<Pod>(none),
        }
    }

    fn api(self, world: &World, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(world.client.clone(), namespace, &self.kind())
    }

    fn is_one(self, object: &DynamicObject) -> bool {
        let is_text = object.labels().get(names::LABEL_PART).is_some_and(|part| part == names::PART_AADL);
        match self {
            Self::ConfigMap => is_text,
            Self::JobConfigMap => object.name_any() == names::job_config_map(JOB),
            Self::PeApiService => object.name_any() == names::PE_API_SERVICE,
            _ => true,
        }
    }

    /// Those of the job that are not going away, by name.
    async fn all(self, world: &World, namespace: &str) -> Result<Vec<DynamicObject>> {
        let of_job = ListParams::default().labels(&format!("{}={JOB}", names::LABEL_JOB));
        // It is that of all jobs.
        let selection = if self == Self::PeApiService { ListParams::default() } else { of_job };
        let list = self.api(world, namespace).list(&selection).await?;
        let mut objects = list.items;
        objects.retain(|object| self.is_one(object) && object.metadata.deletion_timestamp.is_none());
        objects.sort_by_key(kube::ResourceExt::name_any);
        Ok(objects)
    }
}

/// An object that was deleted.
#[derive(Debug)]
pub(super) struct Lost {
    child: Child,
    name: String,
    uid: Option<String>,
}

impl Lost {
    /// Deletes the first object of a kind.
    pub(super) async fn new(world: &World, namespace: &str, child: Child, propagation: Propagation) -> Result<Self> {
        let object = child.all(world, namespace).await?.into_iter().next();
        let object = object.with_context(|| format!("there is no {child:?}"))?;
        let lost = Self { child, name: object.name_any(), uid: object.uid() };
        child.api(world, namespace).delete(&lost.name, &propagation.parameters()).await?;
        Ok(lost)
    }

    /// What is missing, if something is.
    pub(super) async fn missing(&self, world: &World, namespace: &str) -> Result<Option<String>> {
        let objects = self.child.all(world, namespace).await?;
        let is_another = |object: &&DynamicObject| object.uid() != self.uid;
        let is_back = match self.child {
            // Named after its launch.
            Child::Pod => {
                let pes = Child::ProcessingElement.all(world, namespace).await?.len();
                objects.iter().filter(is_another).count() >= pes
            }
            // A PE that has another text by now needs this one no more.
            Child::ConfigMap => {
                let texts: BTreeSet<_> = objects.iter().filter(is_another).map(kube::ResourceExt::name_any).collect();
                let pes = Child::ProcessingElement.all(world, namespace).await?;
                pes.iter().all(|pe| {
                    let name = pe.data.pointer("/spec/configMap/name").and_then(Value::as_str);
                    name.is_some_and(|name| texts.contains(name))
                })
            }
            _ => objects.iter().filter(is_another).any(|object| object.name_any() == self.name),
        };
        Ok((!is_back).then(|| format!("{:?} {} is not back", self.child, self.name)))
    }
}

/// An object that somebody has changed.
#[derive(Debug)]
pub(super) struct Spoilt {
    child: Child,
    name: String,
    place: String,
    before: Option<Value>,
    after: Option<Value>,
    pods: BTreeSet<String>,
}

impl Spoilt {
    /// Changes an object, by the first of these values that it does not have and that the API server takes; `None` if
    /// there is none.
    pub(super) async fn new(
        world: &World,
        namespace: &str,
        (child, number): (Child, usize),
        at: &[String],
        values: &[Value],
    ) -> Result<Option<Self>> {
        let objects = child.all(world, namespace).await?;
        let object = objects.get(number % objects.len().max(1)).with_context(|| format!("there is no {child:?}"))?;
        let (api, name) = (child.api(world, namespace), object.name_any());
        let place: String = at.iter().map(|key| format!("/{}", key.replace('/', "~1"))).collect();
        let pods = pods(world, namespace).await?;
        let before = something(serde_json::to_value(object)?.pointer(&place)).cloned();
        for value in values.iter().filter(|value| something(Some(*value)) != before.as_ref()) {
            let patch = Patch::Merge(super::fields::patch(at, value));
            match api.patch(&name, &PatchParams::default(), &patch).await {
                Ok(changed) => {
                    let after = something(serde_json::to_value(&changed)?.pointer(&place)).cloned();
                    if after != before {
                        return Ok(Some(Self { child, name, place, before, after, pods }));
                    }
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {}
                Err(error) => return Err(error).context("an object cannot be changed"),
            }
        }
        Ok(None)
    }

    /// In what the object is not restored, if it is not.
    pub(super) async fn differs(&self, world: &World, namespace: &str) -> Result<Option<String>> {
        let object = serde_json::to_value(self.child.api(world, namespace).get(&self.name).await?)?;
        let now = something(object.pointer(&self.place));
        // An edit meanwhile gives the object another hash.
        let is_hash = self.place.ends_with(&names::ANNOTATION_APPLIED_HASH.replace('/', "~1"));
        let has_another = is_hash && now.is_some() && now != self.after.as_ref();
        if now == self.before.as_ref() || has_another {
            return Ok(None);
        }
        let said = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        let (place, now, before) = (&self.place, said(now), said(self.before.as_ref()));
        Ok(Some(format!("{:?} {}: {place} is {now}, not {before}", self.child, self.name)))
    }

    /// Pods that ran when the object was changed and do not any more: nothing was asked of them.
    pub(super) async fn replaced(&self, world: &World, namespace: &str) -> Result<Vec<String>> {
        let now = pods(world, namespace).await?;
        Ok(self.pods.iter().filter(|uid| !now.contains(*uid)).cloned().collect())
    }
}

/// An empty list or map says what nothing says.
fn something(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| **value != json!([]) && **value != json!({}) && !value.is_null())
}

async fn pods(world: &World, namespace: &str) -> Result<BTreeSet<String>> {
    Ok(Child::Pod.all(world, namespace).await?.iter().filter_map(kube::ResourceExt::uid).collect())
}
