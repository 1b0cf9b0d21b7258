//! Somebody asks a job for something, or what somebody waits for is ready, while a turn of the job is under way: the
//! turn ends early (rule call-27).
//!
//! Knows: jobs, by name and uid. Must not know: what is asked, what a turn does.
//!
//! Invariant: what happens after a look has begun ends its turn, whatever of it the look has seen.

use crate::controllers::remembered::Remembered;
use kube::ResourceExt as _;
use streams_api::Job;
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;
use tokio_util::sync::CancellationToken;

/// The last look at each job. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Hurries {
    jobs: Watch<Job>,
    /// Cancelled by the first that happens since.
    looks: Remembered<CancellationToken>,
}

impl Hurries {
    /// For the jobs of this mirror.
    pub(super) fn new(jobs: &Watch<Job>) -> Self {
        let looks = Remembered::default();
        looks.end_with(jobs);
        Self { jobs: jobs.clone(), looks }
    }

    /// A look at the job with this uid begins.
    pub(super) fn begin(&self, job: &Key, uid: &str) {
        self.looks.keep(job, uid, CancellationToken::new());
    }

    /// Cancelled once somebody is in a hurry since the last look at the job with this uid has begun.
    pub(super) fn since_last_look(&self, job: &Key, uid: &str) -> CancellationToken {
        self.looks.find(job, uid, |hurry| hurry.clone()).unwrap_or_default()
    }

    /// Somebody waits for the next look at the job.
    pub(super) fn hurry(&self, job: &Key) {
        let uid = self.jobs.get(job).and_then(|job| job.uid()).unwrap_or_default();
        self.since_last_look(job, &uid).cancel();
    }

    /// There is no job of this name.
    pub(super) fn forget(&self, job: &Key) {
        self.looks.forget_all_of(job);
    }

    /// Jobs of which something is kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.looks.len()
    }
}
