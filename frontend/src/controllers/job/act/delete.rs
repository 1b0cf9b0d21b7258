//! Deletes objects of a job.
//!
//! Knows: the API server. Must not know: why an object goes.

use super::Actor;
use crate::controllers::job::decide::{Child, Owned, Propagation};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::PropagationPolicy;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::{Cluster, Object};
use streams_kubernetes::watch::{Mirrored, Watch};

impl<C: Cluster> Actor<'_, C> {
    pub(super) async fn delete(&self, object: &Owned, propagation: Propagation) -> Result<(), Error> {
        let mirrors = &self.reconciler.mirrors;
        let propagation = match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
        };
        // Only PEs have dependents; other objects are deleted at once.
        let at_once = PropagationPolicy::Background;
        let child = match object {
            Owned::Child(child) => *child,
            Owned::ConfigMap(name) => {
                self.remember(|entry| entry.forget_result_of(name));
                return self.delete_one::<ConfigMap, _>(object, &mirrors.config_maps, name, at_once).await;
            }
        };
        let name = &*child.name(&self.snapshot.key.name);
        match child {
            Child::ProcessingElement(_) => {
                self.delete_one::<ProcessingElement, _>(object, &mirrors.processing_elements, name, propagation).await
            }
            Child::Service(_) | Child::ConsistentRegionService => {
                self.delete_one::<Service, _>(object, &mirrors.services, name, at_once).await
            }
            Child::Region(_) => {
                self.delete_one::<ParallelRegion, _>(object, &mirrors.parallel_regions, name, at_once).await
            }
            Child::HostPool(_) => self.delete_one::<HostPool, _>(object, &mirrors.host_pools, name, at_once).await,
            Child::JobConfigMap => self.delete_one::<ConfigMap, _>(object, &mirrors.config_maps, name, at_once).await,
            Child::Export(_) => self.delete_one::<Export, _>(object, &mirrors.exports, name, at_once).await,
            Child::Import(_) => self.delete_one::<Import, _>(object, &mirrors.imports, name, at_once).await,
            Child::ConsistentRegion(_) => {
                self.delete_one::<ConsistentRegion, _>(object, &mirrors.consistent_regions, name, at_once).await
            }
            Child::TransportSecret => self.delete_transport().await,
        }
    }

    /// Deletes the object with the observed uid. If the mirror no longer has it, there is nothing to delete; otherwise
    /// it may take a while to show that it is gone.
    pub(super) async fn delete_one<K: Object, M: Mirrored>(
        &self,
        object: &Owned,
        mirror: &Watch<M>,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<(), Error> {
        let shown = mirror.get(&self.snapshot.key.sibling(name)).and_then(|object| object.meta().uid.clone());
        let Some(uid) = shown else { return Ok(()) };
        self.writer().delete::<K>(name, Some(&uid), propagation).await?;
        let now = self.reconciler.cluster.now();
        self.remember(|entry| entry.deleted(object.clone(), uid, now));
        Ok(())
    }
}
