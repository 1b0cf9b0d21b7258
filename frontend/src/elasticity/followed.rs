//! Requests that somebody follows (rule elasticity-23), and jobs of which somebody waits for one.
//!
//! Each change of a job, of one of its regions or of one of its requests wakes all who follow one of its requests:
//! there may be a thousand, and each request may name hundreds of regions. So a request is read again only if it is
//! another one, once for all who follow it, and what is kept of it has no regions: what a request wants never changes.
//! Most changes of a job, of its labels or its counters, change nothing of how far a request has come. Whether one does
//! is found out once for all who wait for its requests.
//!
//! Knows: the mirrors of requests and jobs. Must not know: who follows one, and why.
//!
//! Invariants: nothing is kept of what nobody follows, of a request that the mirror does not show, or of a job but what
//! decides how far its requests have come.

use super::outcome::decisive;
use super::view::ClusterView;
use crate::controllers::job::requests::in_part::without_regions;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use streams_api::{Job, JobStatus, Resize};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Kept;

/// The requests that are followed, and their jobs. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(super) struct Followed {
    requests: ByKey<FollowedRequest>,
    jobs: ByKey<FollowedJob>,
}

type ByKey<T> = Arc<Mutex<HashMap<Key, Weak<T>>>>;

/// A request that is followed.
pub(super) struct FollowedRequest {
    key: Key,
    latest: Mutex<Option<ShownRequest>>,
}

/// A job of which somebody waits for a request.
pub(super) struct FollowedJob {
    key: Key,
    latest: Mutex<LatestJob>,
}

/// What decides how far the requests of a job have come, as the mirror has shown it last.
#[derive(Default)]
struct LatestJob {
    /// The same one says the same.
    job: Weak<Job>,
    decisive: Option<Decisive>,
    state: u64,
}

#[derive(PartialEq)]
struct Decisive {
    uid: Option<String>,
    is_going: bool,
    status: Option<JobStatus>,
}

/// A job as the mirror has shown it.
pub(super) struct ShownJob {
    pub(super) job: Arc<Job>,
    /// A number that is another one whenever how far its requests have come may be something else.
    pub(super) state: u64,
}

/// A request as the mirror has shown it.
#[derive(Clone)]
pub(super) struct ShownRequest {
    /// All of it, to be read.
    pub(super) kept: Kept<Resize>,
    /// The same without its regions.
    pub(super) request: Arc<Resize>,
}

impl Followed {
    /// The request of this name, for one more who follows it.
    pub(super) fn request(&self, request: &Key) -> Arc<FollowedRequest> {
        one_more(&self.requests, request, |key| FollowedRequest { key, latest: Mutex::default() })
    }

    /// The job of this name, for one more who waits for one of its requests.
    pub(super) fn job(&self, job: &Key) -> Arc<FollowedJob> {
        one_more(&self.jobs, job, |key| FollowedJob { key, latest: Mutex::default() })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.requests.lock().len()
    }
}

/// What is followed under this name, for one more who does; `new` makes it for the first one.
fn one_more<T>(followed: &ByKey<T>, key: &Key, new: impl FnOnce(Key) -> T) -> Arc<T> {
    let mut followed = followed.lock();
    if let Some(known) = followed.get(key).and_then(Weak::upgrade) {
        return known;
    }
    followed.retain(|_, followed| followed.strong_count() > 0);
    let new = Arc::new(new(key.clone()));
    followed.insert(key.clone(), Arc::downgrade(&new));
    new
}

impl FollowedRequest {
    /// The request as the mirror shows it now.
    pub(super) fn now<V: ClusterView>(&self, view: &V) -> Option<ShownRequest> {
        let mut latest = self.latest.lock();
        let kept = view.kept_resize(&self.key.namespace, &self.key.name);
        let known = latest.take().filter(|known| kept.as_ref().is_some_and(|kept| kept.is_identical(&known.kept)));
        *latest = known.or_else(|| {
            let kept = kept?;
            let request = without_regions(kept.read()?);
            Some(ShownRequest { kept, request })
        });
        latest.clone()
    }
}

impl FollowedJob {
    /// The job as the mirror shows it now.
    pub(super) fn now<V: ClusterView>(&self, view: &V) -> Option<ShownJob> {
        let job = view.job(&self.key.namespace, &self.key.name)?;
        let mut latest = self.latest.lock();
        if latest.job.as_ptr() != Arc::as_ptr(&job) {
            let decisive = Some(Decisive {
                uid: job.metadata.uid.clone(),
                is_going: job.metadata.deletion_timestamp.is_some(),
                status: job.status.as_ref().map(decisive),
            });
            if latest.decisive != decisive {
                latest.decisive = decisive;
                latest.state += 1;
            }
            latest.job = Arc::downgrade(&job);
        }
        Some(ShownJob { job, state: latest.state })
    }
}
