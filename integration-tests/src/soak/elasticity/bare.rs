//! The bare client: writes what a request has the frontend write until the commit, and knows nothing. Nothing that
//! writes the same can be much faster.
//!
//! ```text
//! the request, its status -> texts and plan -> what new PEs need -> the commit in the status of the job
//! ```

use crate::soak::load::bare::bare;
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use streams_api::{Job, ProcessingElement, Resize, names};

/// Calls at a time.
const AT_ONCE: usize = 16;

/// What one request creates before its commit.
#[derive(Debug)]
pub(super) struct Writes {
    texts: Vec<(ApiResource, Value)>,
    others: Vec<(ApiResource, Value)>,
    job: Value,
    request: Value,
}

fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

async fn objects(job: &ObservedJob, kind: &ApiResource, client: &Client) -> Result<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), job.namespace(), kind);
    let selector = format!("{}={}", names::LABEL_JOB, job.name());
    Ok(api.list(&ListParams::default().labels(&selector)).await?.items)
}

impl Writes {
    /// Uids of what a job has now.
    pub(super) async fn there(job: &ObservedJob) -> Result<BTreeSet<String>> {
        let client = job.api::<Job>().into_client();
        let mut uids = BTreeSet::new();
        for kind in [resource::<ConfigMap>(), resource::<Service>(), resource::<ProcessingElement>()] {
            uids.extend(objects(job, &kind, &client).await?.iter().filter_map(ResourceExt::uid));
        }
        Ok(uids)
    }

    /// What has been created since. Pods are created after the commit.
    pub(super) async fn since(job: &ObservedJob, there: &BTreeSet<String>) -> Result<Self> {
        let client = job.api::<Job>().into_client();
        let mut new = Vec::new();
        for kind in [resource::<ConfigMap>(), resource::<Service>(), resource::<ProcessingElement>()] {
            let mut of_kind = Vec::new();
            for object in objects(job, &kind, &client).await? {
                if object.uid().is_none_or(|uid| !there.contains(&uid)) {
                    of_kind.push((kind.clone(), bare(serde_json::to_value(object)?)));
                }
            }
            new.push(of_kind);
        }
        let texts = if new.is_empty() { Vec::new() } else { new.remove(0) };
        let mut request = Resize::new("request", streams_api::ResizeSpec::default());
        request.spec.job_name = job.name().to_owned();
        request.spec.regions =
            vec![streams_api::DesiredWidth { name: crate::sample::CLEAN.to_owned(), width: 3, expected_width: None }];
        Ok(Self {
            texts,
            others: new.into_iter().flatten().collect(),
            job: bare(serde_json::to_value(job.get().await?)?),
            request: serde_json::to_value(request)?,
        })
    }

    /// How many objects are created.
    pub(super) fn count(&self) -> usize {
        self.texts.len() + self.others.len() + 1
    }

    /// Writes them into another namespace; how long it takes.
    pub(super) async fn write(&self, client: &Client, namespace: &str) -> Result<Duration> {
        let job = create(client, namespace, &resource::<Job>(), &self.job).await?.name_any();
        let start = Instant::now();
        let request = create(client, namespace, &resource::<Resize>(), &self.request).await?.name_any();
        let requests: Api<Resize> = Api::namespaced(client.clone(), namespace);
        status(&requests, &request, json!({"phase": "Pending", "number": 1})).await?;
        all(client, namespace, &self.texts).await?;
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        status(&jobs, &job, json!({"jobId": 1})).await?;
        all(client, namespace, &self.others).await?;
        status(&jobs, &job, json!({"jobId": 1, "generation": 1})).await?;
        Ok(start.elapsed())
    }
}

async fn all(client: &Client, namespace: &str, objects: &[(ApiResource, Value)]) -> Result<()> {
    let creating = stream::iter(objects).map(|(kind, value)| create(client, namespace, kind, value));
    creating.buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await
}

async fn create(client: &Client, namespace: &str, kind: &ApiResource, value: &Value) -> Result<DynamicObject> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
    let created = api.create(&PostParams::default(), &serde_json::from_value(value.clone())?).await;
    created.with_context(|| format!("a {} cannot be created", kind.kind))
}

async fn status<K>(api: &Api<K>, name: &str, status: Value) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.map(drop).context("a status cannot be written")
}
