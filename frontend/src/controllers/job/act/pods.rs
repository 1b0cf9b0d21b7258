//! Deletes pods of PEs that the job has removed, and whose objects do not go (rule job-16).
//!
//! How such a pod ends is recorded nowhere: a PE that is being deleted gets no other one, whatever its restart policies
//! say.
//!
//! Knows: the API server, pods as the mirror shows them. Must not know: which PEs are removed.

use super::Actor;
use crate::controllers::job::removed_pods::pods_left;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::PropagationPolicy;
use streams_api::names;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;

impl<C: Cluster> Actor<'_, C> {
    /// Deletes the pods of the PE with this id, whose object is being deleted.
    pub(super) async fn end_pods(&self, id: u64) -> Result<(), Error> {
        let job = &self.snapshot.key;
        let pe = job.sibling(&names::processing_element(&job.name, id));
        for pod in pods_left(&self.reconciler.mirrors, &pe) {
            tracing::info!(pe = %pe, pod = pod.name_any(), "something keeps a PE that was removed: its pod is deleted");
            let (name, uid) = (pod.name_any(), pod.uid());
            self.writer().delete::<Pod>(&name, uid.as_deref(), PropagationPolicy::Background).await?;
        }
        Ok(())
    }
}
