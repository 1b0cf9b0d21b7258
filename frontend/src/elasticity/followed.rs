//! Requests that somebody follows (rule elasticity-23).
//!
//! Each change of a job, of one of its regions or of one of its requests wakes all who follow one of its requests:
//! there may be a thousand, and each request may name hundreds of regions. So a request is read again only if it is
//! another one, once for all who follow it, and what is kept of it has no regions: what a request wants never changes.
//!
//! Knows: the mirror of requests. Must not know: who follows one, and why.
//!
//! Invariant: nothing is kept of a request that nobody follows, or that the mirror does not show.

use super::view::ClusterView;
use crate::controllers::job::requests::in_part::without_regions;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use streams_api::Resize;
use streams_kubernetes::Key;
use streams_kubernetes::watch::Kept;

/// The requests that are followed. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(super) struct FollowedRequests {
    requests: Arc<Mutex<HashMap<Key, Weak<FollowedRequest>>>>,
}

/// A request that is followed.
pub(super) struct FollowedRequest {
    key: Key,
    latest: Mutex<Option<ShownRequest>>,
}

/// A request as the mirror has shown it.
#[derive(Clone)]
pub(super) struct ShownRequest {
    /// All of it, to be read.
    pub(super) kept: Kept<Resize>,
    /// The same without its regions.
    pub(super) request: Arc<Resize>,
}

impl FollowedRequests {
    /// The request of this name, for one more who follows it.
    pub(super) fn of(&self, request: &Key) -> Arc<FollowedRequest> {
        let mut requests = self.requests.lock();
        if let Some(known) = requests.get(request).and_then(Weak::upgrade) {
            return known;
        }
        requests.retain(|_, followed| followed.strong_count() > 0);
        let new = Arc::new(FollowedRequest { key: request.clone(), latest: Mutex::default() });
        requests.insert(request.clone(), Arc::downgrade(&new));
        new
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.requests.lock().len()
    }
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
