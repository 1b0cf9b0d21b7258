//! Where the elasticity API sees jobs and regions.

use crate::mirrors::{ByOwner as _, Mirrors};
use std::sync::Arc;
use streams_api::{Job, ParallelRegion};
use streams_kubernetes::Key;
use tokio::sync::watch;

/// A mirror of the jobs and regions of the cluster, as fresh as the shared watches.
pub trait ClusterView: Send + Sync + 'static {
    /// The job of this name.
    fn job(&self, namespace: &str, name: &str) -> Option<Arc<Job>>;

    /// The regions of a job, or of all jobs of the namespace, in any order.
    fn regions(&self, namespace: &str, job: Option<&str>) -> Vec<Arc<ParallelRegion>>;

    /// Why what is seen may be too old to be relied on, if it is.
    fn too_old(&self) -> Option<String>;

    /// Marked as changed whenever a job or region may have changed.
    fn changes(&self) -> watch::Receiver<u64>;
}

impl ClusterView for Mirrors {
    fn job(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.jobs.get(&Key::new(namespace, name))
    }

    fn regions(&self, namespace: &str, job: Option<&str>) -> Vec<Arc<ParallelRegion>> {
        match job {
            Some(job) => self.parallel_regions.of_job(&Key::new(namespace, job)).collect(),
            None => self.parallel_regions.of_namespace(namespace).collect(),
        }
    }

    fn too_old(&self) -> Option<String> {
        let mut problems = self.health().into_iter().filter_map(|(kind, problem)| Some((kind, problem?)));
        problems.next().map(|(kind, problem)| format!("watch of {kind}: {problem}"))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.job_changes()
    }
}
