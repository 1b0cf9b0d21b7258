//! Where the elasticity API sees jobs, regions and requests.

use crate::mirrors::{ByOwner as _, Mirrors};
use kube::Resource as _;
use std::sync::Arc;
use streams_api::{Job, ParallelRegion, ProcessingElement, Resize, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controller;
use streams_kubernetes::watch::Kept;
use tokio::sync::watch;

/// A mirror of the jobs, regions and requests of the cluster, as fresh as the shared watches.
pub trait ClusterView: Send + Sync + 'static {
    /// The job of this name.
    fn job(&self, namespace: &str, name: &str) -> Option<Arc<Job>>;

    /// Whether the namespace has any job.
    fn has_jobs(&self, namespace: &str) -> bool;

    /// The regions of a job, or of all jobs of the namespace, in any order.
    fn regions(&self, namespace: &str, job: Option<&str>) -> Vec<Arc<ParallelRegion>>;

    /// The region of this name in the application of a job.
    fn region(&self, namespace: &str, job: &str, name: &str) -> Option<Arc<ParallelRegion>>;

    /// The region that the application of a job has first.
    fn first_region(&self, namespace: &str, job: &str) -> Option<Arc<ParallelRegion>>;

    /// The request of this name, to be read if it is another one than before.
    fn kept_resize(&self, namespace: &str, name: &str) -> Option<Kept<Resize>>;

    /// The request of this name.
    fn resize(&self, namespace: &str, name: &str) -> Option<Arc<Resize>> {
        self.kept_resize(namespace, name)?.read()
    }

    /// The requests of a job, or of all jobs of the namespace, in any order. Each is to be read when it is its turn:
    /// they may be large, and there may be thousands.
    fn resizes(&self, namespace: &str, job: Option<&str>) -> Vec<Kept<Resize>>;

    /// The requests of a job that have not ended and are not being deleted, in any order, each read when it is its
    /// turn.
    fn open_resizes(&self, namespace: &str, job: &str) -> Box<dyn Iterator<Item = Arc<Resize>>>;

    /// How many requests the job has, with those that become its own as soon as they are looked at; no more than it may
    /// have. A label alone, which anybody can write, makes none.
    fn count_resizes(&self, namespace: &str, job: &str) -> usize;

    /// How many of these this caller has asked for.
    fn count_resizes_by(&self, namespace: &str, job: &str, caller: &str) -> usize;

    /// The PEs of a job, in any order. Each is read when it is its turn: there may be thousands.
    fn processing_elements(&self, namespace: &str, job: &str) -> Box<dyn Iterator<Item = Arc<ProcessingElement>>>;

    /// Why what is seen may be too old to be relied on, if it is.
    fn too_old(&self) -> Option<String>;

    /// Why what is seen of a namespace may be less than there is, if it may be: the frontend may not read it.
    fn unread(&self, namespace: &str) -> Option<String>;

    /// Marked as changed whenever any job of the namespace, or anything of it, may have changed.
    fn changes_of_namespace(&self, namespace: &str) -> watch::Receiver<u64>;

    /// Marked as changed whenever the job, one of its regions or one of its requests may have changed.
    fn changes(&self, namespace: &str, job: &str) -> watch::Receiver<u64>;
}

/// Whether a job controls the region; `None`: any job. Anybody may make one that names the job.
fn is_of(region: &ParallelRegion, job: Option<&str>) -> bool {
    let owner = controller(&region.metadata);
    let owner = owner.filter(|owner| owner.kind == Job::kind(&()) && owner.api_version == Job::api_version(&()));
    owner.is_some_and(|owner| job.is_none_or(|job| owner.name == job))
}

impl ClusterView for Mirrors {
    fn job(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.jobs.get(&Key::new(namespace, name))
    }

    fn has_jobs(&self, namespace: &str) -> bool {
        self.jobs.has_namespace(namespace)
    }

    fn regions(&self, namespace: &str, job: Option<&str>) -> Vec<Arc<ParallelRegion>> {
        let is_of_job = |region: &Arc<ParallelRegion>| is_of(region, job);
        match job {
            Some(job) => self.parallel_regions.of_job(&Key::new(namespace, job)).filter(is_of_job).collect(),
            None => self.parallel_regions.of_namespace(namespace).filter(is_of_job).collect(),
        }
    }

    fn region(&self, namespace: &str, job: &str, name: &str) -> Option<Arc<ParallelRegion>> {
        self.regions_named(&Key::new(namespace, job), name).find(|region| is_of(region, Some(job)))
    }

    fn first_region(&self, namespace: &str, job: &str) -> Option<Arc<ParallelRegion>> {
        let first = self.parallel_regions.get(&Key::new(namespace, &names::parallel_region(job, 0)));
        first.filter(|region| is_of(region, Some(job)))
    }

    fn kept_resize(&self, namespace: &str, name: &str) -> Option<Kept<Resize>> {
        self.resizes.kept(&Key::new(namespace, name))
    }

    fn resizes(&self, namespace: &str, job: Option<&str>) -> Vec<Kept<Resize>> {
        match job {
            Some(job) => {
                self.resizes.kept_of_job(&Key::new(namespace, job)).into_iter().map(|(_, kept)| kept).collect()
            }
            None => self.resizes.kept_of_namespace(namespace),
        }
    }

    fn open_resizes(&self, namespace: &str, job: &str) -> Box<dyn Iterator<Item = Arc<Resize>>> {
        Box::new(self.open_resizes(&Key::new(namespace, job)))
    }

    fn count_resizes(&self, namespace: &str, job: &str) -> usize {
        self.number_of_resizes(&Key::new(namespace, job))
    }

    fn count_resizes_by(&self, namespace: &str, job: &str, caller: &str) -> usize {
        self.number_of_resizes_by(&Key::new(namespace, job), caller)
    }

    fn processing_elements(&self, namespace: &str, job: &str) -> Box<dyn Iterator<Item = Arc<ProcessingElement>>> {
        let kept = self.processing_elements.kept_of_job(&Key::new(namespace, job));
        Box::new(kept.into_iter().filter_map(|(_, element)| element.read()))
    }

    fn too_old(&self) -> Option<String> {
        let mut problems = self.health().into_iter().filter_map(|(kind, problem)| Some((kind, problem?)));
        problems.next().map(|(kind, problem)| format!("watch of {kind}: {problem}"))
    }

    fn unread(&self, namespace: &str) -> Option<String> {
        Self::unread(self, namespace)
    }

    fn changes_of_namespace(&self, namespace: &str) -> watch::Receiver<u64> {
        self.job_changes.of_namespace(namespace)
    }

    fn changes(&self, namespace: &str, job: &str) -> watch::Receiver<u64> {
        self.job_changes.of(&Key::new(namespace, job))
    }
}
