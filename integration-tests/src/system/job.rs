//! Reads and changes a job as its users do.

use super::inventory::Inventory;
use super::snapshot::Snapshot;
use crate::sample::Widths;
use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use streams_api::{Job, JobStatus, ParallelRegion, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::ResizeRequest;
use streams_proto::elasticity::v1::resize_request::{DesiredWidth, WaitFor};

/// A job in a cluster, whether it exists or not.
#[derive(Clone)]
pub struct ObservedJob {
    client: Client,
    namespace: String,
    name: String,
}

impl Debug for ObservedJob {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl ObservedJob {
    /// The job of this name.
    pub fn new(client: &Client, namespace: &str, name: &str) -> Self {
        Self { client: client.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Creates a job and looks at it from now on.
    ///
    /// # Errors
    /// When the API server does not take it.
    pub async fn create(client: &Client, job: &Job) -> Result<Self> {
        let (namespace, name) = (&job.metadata.namespace, &job.metadata.name);
        let created = Self::new(
            client,
            namespace.as_deref().context("a job without namespace")?,
            name.as_deref().context("a job without name")?,
        );
        let create = created.api::<Job>().create(&PostParams::default(), job).await;
        create.with_context(|| format!("job {created:?} is not taken"))?;
        Ok(created)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Objects of a kind in its namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Its objects of a kind.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn list<K>(&self) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let selector = format!("{}={}", names::LABEL_JOB, self.name);
        let list = self.api::<K>().list(&ListParams::default().labels(&selector)).await;
        Ok(list.with_context(|| format!("cannot list objects of {self:?}"))?.items)
    }

    /// The object.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self) -> Result<Job> {
        self.api::<Job>().get(&self.name).await.with_context(|| format!("there is no job {self:?}"))
    }

    /// Its status; the default if there is none yet.
    ///
    /// # Errors
    /// When the job is not there.
    pub async fn status(&self) -> Result<JobStatus> {
        Ok(self.get().await?.status.unwrap_or_default())
    }

    /// Its pods at the moment.
    ///
    /// # Errors
    /// When they cannot be listed, or a PE has two of them.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        // In this order: a pod whose PE goes away in between does not count.
        let pods = self.list::<Pod>().await?;
        Snapshot::of(&pods, &self.list::<ProcessingElement>().await?)
    }

    /// All its objects at the moment.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn inventory(&self) -> Result<Inventory> {
        Ok(Inventory {
            // First: a pod whose PE is created in between is not there, one whose PE goes away is left over.
            pods: self.list().await?,
            processing_elements: self.list().await?,
            services: self.list().await?,
            config_maps: self.list().await?,
            regions: self.list().await?,
            host_pools: self.list().await?,
            exports: self.list().await?,
            imports: self.list().await?,
            consistent_regions: self.list().await?,
            secrets: self.list().await?,
        })
    }

    /// Names of the operators of each PE, joined by blanks, by PE id.
    ///
    /// # Errors
    /// When the PEs cannot be listed.
    pub async fn operators(&self) -> Result<BTreeMap<u64, String>> {
        let pes = self.list::<ProcessingElement>().await?;
        Ok(pes.into_iter().map(|pe| (pe.spec.id, pe.spec.operators.join(" "))).collect())
    }

    /// The PE with this operator.
    ///
    /// # Errors
    /// When there is none.
    pub async fn pe(&self, operator: &str) -> Result<ProcessingElement> {
        let pes = self.list::<ProcessingElement>().await?;
        let found = pes.into_iter().find(|pe| pe.spec.operators.iter().any(|name| name == operator));
        found.with_context(|| format!("{self:?} has no PE with operator {operator}"))
    }

    /// The region of this logical name.
    ///
    /// # Errors
    /// When there is none.
    pub async fn region(&self, name: &str) -> Result<ParallelRegion> {
        let regions = self.list::<ParallelRegion>().await?;
        let found = regions.into_iter().find(|region| region.spec.name == name);
        found.with_context(|| format!("{self:?} has no region {name}"))
    }

    /// A request for widths of its regions, by name, as a load balancer makes it.
    pub fn resize_request(&self, widths: &[(&str, u32)], wait_for: WaitFor) -> ResizeRequest {
        let desired = |(region, width): &(&str, u32)| DesiredWidth {
            region: (*region).to_owned(),
            width: *width,
            expected_width: None,
        };
        ResizeRequest {
            namespace: self.namespace.clone(),
            job: self.name.clone(),
            regions: widths.iter().map(desired).collect(),
            wait_for: wait_for.into(),
            ..ResizeRequest::default()
        }
    }

    /// Sets the desired width of a region as `kubectl edit` does.
    ///
    /// # Errors
    /// When there is no such region or the width is not taken.
    pub async fn set_width(&self, region: &str, width: u32) -> Result<()> {
        let name = self.region(region).await?.metadata.name.unwrap_or_default();
        let patch = Patch::Merge(serde_json::json!({"spec": {"width": width}}));
        self.api::<ParallelRegion>().patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Events about the job and its objects: type, reason, note.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn events(&self) -> Result<Vec<(String, String, String)>> {
        let events = self.api::<Event>().list(&ListParams::default()).await?;
        let of = |event: Event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref()).unwrap_or_default();
            let about_it = about == self.name || about.starts_with(&format!("{}-", self.name));
            about_it
                .then(|| [event.type_, event.reason, event.note].map(Option::unwrap_or_default))
                .map(|[kind, reason, note]| (kind, reason, note))
        };
        Ok(events.items.into_iter().filter_map(of).collect())
    }

    /// Waits until `expected` holds for the status and gives what it gives.
    ///
    /// # Errors
    /// When it does not within this time: with what it said last, and the conditions.
    pub async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        expected: impl Fn(&JobStatus) -> Result<T>,
    ) -> Result<T> {
        eventually(&format!("job {}: {what}", self.name), within, || async {
            let status = self.status().await?;
            expected(&status).map_err(|seen| anyhow!("{seen:#}; {}", conditions(&status)))
        })
        .await
    }

    /// Waits until a condition has this status, and gives reason and message.
    ///
    /// # Errors
    /// When it does not within this time.
    pub async fn until_condition(&self, kind: &str, status: bool, within: Duration) -> Result<(String, String)> {
        let wanted = if status { "True" } else { "False" };
        self.until(&format!("condition {kind} is {wanted}"), within, |seen| {
            let found = condition::get(&seen.conditions, kind).context("there is no such condition")?;
            ensure!(found.status == wanted, "it is {}", found.status);
            Ok((found.reason.clone(), found.message.clone()))
        })
        .await
    }

    /// Waits until a condition is true and its message has all these words, whatever it says before; gives its reason
    /// and message.
    ///
    /// # Errors
    /// When it does not within this time: with what it says instead.
    pub async fn until_told(&self, kind: &str, words: &[&str], within: Duration) -> Result<(String, String)> {
        self.until(&format!("condition {kind} says {words:?}"), within, |seen| {
            let found = condition::get(&seen.conditions, kind).context("there is no such condition")?;
            let Condition { status, reason, message, .. } = found;
            let is_told = status == "True" && words.iter().all(|word| message.contains(word));
            ensure!(is_told, "{status}, {reason}: {message}");
            Ok((reason.clone(), message.clone()))
        })
        .await
    }

    /// Waits until the job has these widths, all its pods run, and nothing else is there; gives what is there.
    ///
    /// # Errors
    /// When something is wrong until the end of this time: with all that is wrong.
    pub async fn settled(&self, widths: Widths, within: Duration) -> Result<Inventory> {
        let what = format!("job {} has settled with {widths:?}", self.name);
        eventually(&what, within, || async {
            let job = self.get().await?;
            let status = job.status.clone().unwrap_or_default();
            let unfinished = super::inventory::unfinished(&status, &widths);
            // What is wrong with the objects of a job that is still at work is not worth the many calls.
            ensure!(unfinished.is_empty(), "{}; {}", unfinished.join("; "), conditions(&status));
            let inventory = self.inventory().await?;
            let problems = inventory.problems(&job, &widths);
            ensure!(problems.is_empty(), "{}", problems.join("; "));
            Ok(inventory)
        })
        .await
    }
}

/// The conditions in one line.
pub fn conditions(status: &JobStatus) -> String {
    let condition = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        format!("{}={} ({}: {})", c.type_, c.status, c.reason, c.message)
    };
    let conditions: Vec<_> = status.conditions.iter().map(condition).collect();
    if conditions.is_empty() { "no conditions".to_owned() } else { conditions.join(", ") }
}
