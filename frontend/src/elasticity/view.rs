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

    /// The same, for who looks at many jobs.
    fn job_in_passing(&self, namespace: &str, name: &str) -> Option<Arc<Job>>;

    /// Whether the namespace has any job.
    fn has_jobs(&self, namespace: &str) -> bool;

    /// The regions of a job, or of all jobs of the namespace, in any order. `None`: all of them together are more than
    /// anybody may look at. Users may make some, and whoever looks has all of them in memory.
    fn regions(&self, namespace: &str, job: Option<&str>) -> Option<Vec<Arc<ParallelRegion>>>;

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

/// Octets of the JSON of all regions that somebody looks at together, at most. In memory they take several times as
/// much.
const REGIONS_MAX: usize = 64 << 20;

/// The regions of a job, or of all jobs of the namespace, if they have no more octets together.
fn regions_within(
    octets: usize,
    mirrors: &Mirrors,
    namespace: &str,
    job: Option<&str>,
) -> Option<Vec<Arc<ParallelRegion>>> {
    let kept = match job {
        Some(job) => {
            let of_job = mirrors.parallel_regions.kept_of_job(&Key::new(namespace, job));
            of_job.into_iter().map(|(_, kept)| kept).collect()
        }
        None => mirrors.parallel_regions.kept_of_namespace(namespace),
    };
    let (mut regions, mut left) = (Vec::new(), octets);
    for kept in kept {
        if let Some(region) = kept.read().filter(|region| is_of(region, job)) {
            left = left.checked_sub(kept.octets())?;
            regions.push(region);
        }
    }
    Some(regions)
}

/// Whether a job controls the region; `None`: any job. Anybody may make one that names the job, or a copy of one that
/// the job controls.
fn is_of(region: &ParallelRegion, job: Option<&str>) -> bool {
    let owner = controller(&region.metadata);
    let owner = owner.filter(|owner| owner.kind == Job::kind(&()) && owner.api_version == Job::api_version(&()));
    !region.is_copy() && owner.is_some_and(|owner| job.is_none_or(|job| owner.name == job))
}

impl ClusterView for Mirrors {
    fn job(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.jobs.get(&Key::new(namespace, name))
    }

    fn job_in_passing(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.jobs.kept(&Key::new(namespace, name))?.read_in_passing()
    }

    fn has_jobs(&self, namespace: &str) -> bool {
        self.jobs.has_namespace(namespace)
    }

    fn regions(&self, namespace: &str, job: Option<&str>) -> Option<Vec<Arc<ParallelRegion>>> {
        regions_within(REGIONS_MAX, self, namespace, job)
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
        let read = kept.into_iter().filter_map(|(_, element)| element.read());
        Box::new(read.filter(|element| !element.is_copy()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::LateMirrors;
    use kube::core::ObjectMeta;
    use streams_api::{BundleReference, JobSpec, ParallelRegionSpec, ProcessingElementSpec};
    use streams_kubernetes::ownership::controlled_by;
    use streams_kubernetes_fake::Server;

    /// Whoever copies an object keeps its owner references and labels.
    #[test]
    fn copies_of_regions_and_pes_are_none_of_the_job() {
        let server = Server::new();
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        job.metadata.namespace = Some("n".to_owned());
        let job = server.create(&job);
        let meta = |name: &str| ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some(name.to_owned()),
            labels: Some(names::job_labels("flow")),
            owner_references: Some(vec![controlled_by(&job)]),
            ..ObjectMeta::default()
        };
        let (job_name, name) = ("flow".to_owned(), "R".to_owned());
        let of_region = ParallelRegionSpec { job_name: job_name.clone(), index: 0, name, width: 2 };
        let of_pe = ProcessingElementSpec { job_name, id: 3, ..ProcessingElementSpec::default() };
        // The names of copies come before those of the others, and after them.
        for name in ["flow-0", "a-copy", "flow-0b"] {
            server.create(&ParallelRegion { metadata: meta(name), spec: of_region.clone(), status: None });
        }
        for name in ["flow-3", "a-copy", "flow-3b"] {
            server.create(&ProcessingElement { metadata: meta(name), spec: of_pe.clone(), status: None });
        }
        let mirrors = LateMirrors::of(&server).mirrors;
        let name_of = |region: Arc<ParallelRegion>| region.metadata.name.clone().unwrap();
        assert_eq!(mirrors.region("n", "flow", "R").map(name_of).as_deref(), Some("flow-0"));
        for job in [Some("flow"), None] {
            let found: Vec<_> = ClusterView::regions(&mirrors, "n", job).unwrap().into_iter().map(name_of).collect();
            assert_eq!(found, ["flow-0"], "{job:?}");
            let octets = mirrors.parallel_regions.kept(&Key::new("n", "flow-0")).unwrap().octets();
            let is_within = |octets| regions_within(octets, &mirrors, "n", job).is_some();
            assert_eq!([octets, octets - 1].map(is_within), [true, false], "{job:?}: copies do not count");
        }
        let pes = ClusterView::processing_elements(&mirrors, "n", "flow");
        assert_eq!(pes.map(|pe| pe.metadata.name.clone().unwrap()).collect::<Vec<_>>(), ["flow-3"]);
    }
}
