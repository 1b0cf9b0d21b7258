//! The requests to resize of a job, as they were written last.
//!
//! Knows: the mirror, what this process has written. Must not know: what becomes of requests.

use super::own_writes::version;
use super::reconciler::JobReconciler;
use super::requests::standing::is_of;
use crate::mirrors::ByOwner as _;
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_api::{Job, Resize};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;

impl<C> JobReconciler<C> {
    /// The requests of a job that stay, each as it was written last: the mirror may not show that yet.
    pub(super) fn requests(&self, key: &Key, job: &Job) -> Vec<Arc<Resize>> {
        let mirrored = self.mirrors.resizes.of_job(key);
        let ours = mirrored.filter(|request| {
            is_controlled_by(&request.metadata, job)
                && is_of(request, job)
                && request.metadata.deletion_timestamp.is_none()
        });
        let shown: Vec<Arc<Resize>> = ours.collect();
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let latest = self.memory.find(key, &uid, |entry| {
            // What the mirror shows as new or does not have any more is not kept.
            let mut kept = std::mem::take(&mut entry.requests);
            let newer = |shown: &Arc<Resize>| {
                let own = kept.remove(&shown.name_any())?;
                let is_newer =
                    own.metadata.uid == shown.metadata.uid && version(&own.metadata) > version(&shown.metadata);
                is_newer.then_some(own)
            };
            let newer: BTreeMap<String, Arc<Resize>> =
                shown.iter().filter_map(newer).map(|own| (own.name_any(), own)).collect();
            entry.requests.clone_from(&newer);
            newer
        });
        let latest = latest.unwrap_or_default();
        shown.into_iter().map(|shown| latest.get(&shown.name_any()).cloned().unwrap_or(shown)).collect()
    }
}
