//! Deletes objects of a job.
//!
//! Knows: the API server, that people are told of an edit before it goes. Must not know: why an object goes, and in
//! which words that is told.

use super::Actor;
use crate::controllers::job::decide::{Child, Owned, Propagation};
use crate::controllers::job::describe::events::{LostEdit, lost_edit};
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
            Child::Region(index) if self.observed.status.generation.is_none() => {
                self.delete_as_seen(object, index, name).await
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
        let Some(uid) = self.shown_uid(mirror, name) else { return Ok(()) };
        self.writer().delete::<K>(name, Some(&uid), propagation).await?;
        self.note_deletion(object, uid);
        Ok(())
    }

    /// Deletes the region with this index and name of a job without a generation, unless somebody has written it since
    /// it was looked at: an edit of it would count after the commit, and the mirror may not show it yet (rule job-25).
    /// One that was not shown then is looked at when it is.
    ///
    /// # Errors
    /// [`Error::Conflict`]: it was written since. Failures of the call.
    async fn delete_as_seen(&self, object: &Owned, index: u64, name: &str) -> Result<(), Error> {
        let region = self.observed.children.regions.get(&index);
        let seen = region.and_then(|region| region.version.as_deref());
        let shown = self.shown_uid(&self.reconciler.mirrors.parallel_regions, name);
        let Some((version, uid)) = seen.zip(shown) else { return Ok(()) };
        // Whoever looks after the deletion does not know any more that there was an edit.
        if let Some(region) = region.and_then(|region| region.created.as_ref()?.edited()) {
            self.tell_of_lost_edit(index, region);
        }
        let at_once = PropagationPolicy::Background;
        self.writer().delete_if_unchanged::<ParallelRegion>(name, &uid, version, at_once).await?;
        self.note_deletion(object, uid);
        Ok(())
    }

    /// Tells that the width goes which somebody has written into the region with this index and name, unless that was
    /// told with others that go together, of which not all may go in one turn. The same words count as the same Event.
    fn tell_of_lost_edit(&self, index: u64, region: &str) {
        let LostEdit { notice, together } = lost_edit(self.observed, index, region);
        let of = self.observed.spec_generation;
        let was_told = together.is_some_and(|together| {
            self.remember(|entry| {
                let told = entry.lost_edits.as_ref().filter(|(told_of, _)| *told_of == of);
                let was_told = told.is_some_and(|(_, regions)| regions.contains(&index));
                if !was_told {
                    entry.lost_edits = Some((of, together));
                }
                was_told
            })
        });
        if !was_told {
            self.reconciler.cluster.announce(&*self.snapshot.job, &notice);
        }
    }

    /// The uid of the object of this name that the mirror shows.
    fn shown_uid<M: Mirrored>(&self, mirror: &Watch<M>, name: &str) -> Option<String> {
        mirror.get(&self.snapshot.key.sibling(name))?.meta().uid.clone()
    }

    /// Remembers that the object with this uid was deleted.
    fn note_deletion(&self, object: &Owned, uid: String) {
        let now = self.reconciler.cluster.now();
        self.remember(|entry| entry.deleted(object.clone(), uid, now));
    }
}
