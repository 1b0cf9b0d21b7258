//! The PEs of jobs, as their doubles see them.

use super::connections::Statuses;
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use std::path::PathBuf;
use std::time::Duration;
use streams_api::{ProcessingElement, names};
use streams_control_plane::wait::eventually;
use streams_node_agent::NodeAgent;
use streams_pe_double::UNREADABLE;
use streams_pe_double::status::{Connectivity, Status};

/// How long a status page may take.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Where a double shows its status.
pub const STATUS_PORT: u16 = 9_696;

/// The PEs of the jobs of a namespace.
#[derive(Clone, Debug)]
pub struct Pes {
    pods: Api<Pod>,
    elements: Api<ProcessingElement>,
    namespace: String,
    pages: reqwest::Client,
    logs: PathBuf,
}

impl Pes {
    /// The PEs that the agent runs for jobs of a namespace.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(client: &Client, namespace: &str, agent: &NodeAgent) -> Result<Self> {
        // Whoever was first is right, too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let pages = reqwest::Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build()?;
        Ok(Self {
            pods: Api::namespaced(client.clone(), namespace),
            elements: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            pages,
            logs: agent.state().path().to_owned(),
        })
    }

    /// What each PE of a job says of itself, by its number. A pod that is being deleted does not count.
    ///
    /// # Errors
    /// When a pod has no address yet, or its double does not answer.
    pub async fn statuses(&self, job: &str) -> Result<Statuses> {
        self.looks(job).await?.into_iter().map(|status| status.map(|status| (status.pe, status))).collect()
    }

    /// No PE of a job was told of its regions what it cannot read. It would have ended, and gone on as after any crash.
    ///
    /// # Errors
    /// One was, and that was how it ended last; or PEs cannot be listed.
    pub async fn could_read_all(&self, job: &str) -> Result<()> {
        let of_job = ListParams::default().labels(&format!("{}={job}", names::LABEL_JOB));
        for pe in self.elements.list(&of_job).await?.items {
            let last = pe.status.as_ref().and_then(|status| status.last_termination.as_ref());
            let message = last.map_or("", |last| last.message.as_str());
            ensure!(!message.contains(UNREADABLE), "{}: {message}", pe.name_any());
        }
        Ok(())
    }

    /// What each PE of a job says of itself that answers.
    ///
    /// # Errors
    /// When the pods cannot be listed.
    pub async fn answering(&self, job: &str) -> Result<Statuses> {
        Ok(self.looks(job).await?.into_iter().flatten().map(|status| (status.pe, status)).collect())
    }

    async fn looks(&self, job: &str) -> Result<Vec<Result<Status>>> {
        let of_job = ListParams::default().labels(&format!("{}={job}", names::LABEL_JOB));
        let pods = self.pods.list(&of_job).await?.items;
        let there = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(join_all(there.map(|pod| self.look(pod))).await)
    }

    async fn look(&self, pod: &Pod) -> Result<Status> {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
        let address = address.with_context(|| format!("pod {} has no address yet", pod.name_any()))?;
        let page = self.pages.get(format!("http://{address}:{STATUS_PORT}/status")).send().await?;
        Ok(serde_json::from_slice(&page.error_for_status()?.bytes().await?)?)
    }

    /// The last words of those PEs of a job that have ended because they were asked to: each writes its status into its
    /// log then.
    pub fn ended(&self, job: &str) -> Vec<Status> {
        let last_line = |text: String| serde_json::from_str::<Status>(text.lines().next_back()?).ok();
        let ended = self.logs().into_iter().filter_map(|log| last_line(std::fs::read_to_string(log).ok()?));
        ended.filter(|status| status.job == job && status.namespace == self.namespace).collect()
    }

    /// The logs of all PEs of the namespace.
    pub fn logs(&self) -> Vec<PathBuf> {
        let prefix = format!("{}.", self.namespace);
        let files = std::fs::read_dir(&self.logs).into_iter().flatten().flatten();
        let of_namespace = files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix));
        let mut logs: Vec<PathBuf> = of_namespace.map(|file| file.path()).collect();
        logs.sort();
        logs
    }

    /// Waits until each PE of the job has all its connections and its bundle, and the frontend knows it.
    ///
    /// # Errors
    /// When one does not within this time.
    pub async fn until_connected(&self, job: &ObservedJob, within: Duration) -> Result<Statuses> {
        eventually("every PE has all its connections", within, || async {
            let statuses = self.statuses(job.name()).await?;
            let elements = job.list::<ProcessingElement>().await?;
            ensure!(statuses.len() == elements.len(), "{} of {} PEs run", statuses.len(), elements.len());
            for element in &elements {
                let status = statuses.get(&element.spec.id).context("a PE does not run")?;
                let known = element.status.as_ref().map(|status| status.connectivity()).unwrap_or_default();
                let is_whole = status.started && status.connectivity == Connectivity::Full;
                let is_known = known == streams_api::Connectivity::Full;
                let problems = &status.problems.last;
                ensure!(
                    is_whole && is_known,
                    "PE {}: {:?}, reported {:?}, known as {known:?}: {:?}; {problems:?}",
                    status.pe,
                    status.connectivity,
                    status.reported,
                    status.outputs
                );
                ensure!(status.bundle.as_ref().is_some_and(|bundle| bundle.bytes > 0), "{:?}", status.bundle);
            }
            Ok(statuses)
        })
        .await
    }

    /// Waits until each PE of the job has made or taken tuples since `earlier`, and gives what they say then.
    ///
    /// # Errors
    /// When one does not within this time, or it is not the same PEs.
    pub async fn until_moving(&self, job: &str, earlier: &Statuses, within: Duration) -> Result<Statuses> {
        eventually("every PE gets or makes tuples", within, || async {
            let statuses = self.statuses(job).await?;
            ensure!(statuses.len() == earlier.len(), "{} of {} PEs", statuses.len(), earlier.len());
            for (pe, status) in &statuses {
                let earlier = earlier.get(pe).with_context(|| format!("PE {pe} is new"))?;
                ensure!(earlier.launch == status.launch, "PE {pe} was restarted");
                ensure!(moved(status) > moved(earlier), "PE {pe} stands still: {:?}", status.operators);
            }
            Ok(statuses)
        })
        .await
    }
}

/// Tuples that the operators of a PE have made or taken.
fn moved(status: &Status) -> u64 {
    status.operators.iter().map(|operator| operator.made + operator.taken).sum()
}
