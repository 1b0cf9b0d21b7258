//! Applies children, and remembers what the API server has kept of them.
//!
//! Knows: the API server, what the process remembers. Must not know: why a child is applied.

use super::Actor;
use crate::controllers::job::decide::{Child, Owned};
use crate::controllers::job::generation::Generation;
use crate::controllers::job::objects::created_region::CreatedRegion;
use crate::controllers::job::observed::DesiredGeneration;
use crate::controllers::job::observed::drift::region_fields;
use crate::controllers::job::observed::own_writes::{OwnWrite, WrittenPe};
use crate::controllers::job::refusals::outdated::UndeclaredField;
use k8s_openapi::api::core::v1::Service;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use streams_api::{HostPool, ParallelRegion, names};
use streams_kubernetes::cluster::{Cluster, Object};
use streams_kubernetes::drift::dropped;
use streams_kubernetes::error::definition;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::{ConfigMapMeta, version};
use streams_kubernetes::writer::{Applied, hash_of_applied};
use streams_kubernetes::{Error, Key};

/// What the API server has kept of an object that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptByServer {
    /// All of it, or nothing had to be written.
    Whole,
    /// Not all: it does not know a field.
    InPart,
}

impl<C: Cluster> Actor<'_, C> {
    /// Applies the child, unless it is known that the API server refuses it: then that is the error, without a call
    /// (rule call-30).
    pub(super) async fn apply_unless_undeclared(
        &self,
        child: Child,
        generation: &Generation,
        wanted: &DesiredGeneration,
    ) -> Result<KeptByServer, Error> {
        let now = || self.reconciler.cluster.now();
        if let Some(error) = self.remember(|entry| entry.outdated.pauses(child, now())) {
            return Err(error);
        }
        // On the heap: the stack of a thread has little room for all of it in debug builds.
        let result = Box::pin(self.apply(child, generation, wanted)).await;
        if let Err(error) = &result {
            self.remember(|entry| entry.outdated.failed(error, child, now()));
        }
        result
    }

    pub(super) async fn apply(
        &self,
        child: Child,
        generation: &Generation,
        wanted: &DesiredGeneration,
    ) -> Result<KeptByServer, Error> {
        let builder = self.snapshot.builder();
        let mirrors = &self.reconciler.mirrors;
        let key = self.snapshot.key.sibling(&child.name(&self.snapshot.key.name));
        match child {
            Child::ProcessingElement(id) => {
                let Some((pe, origin)) = generation.member(id) else { return Ok(KeptByServer::Whole) };
                let text = wanted.processing_elements.get(&id).and_then(|pe| {
                    pe.choose(&self.observed.children, self.observed.children.processing_elements.get(&id))
                });
                let Some((version, _)) = text else { return Ok(KeptByServer::Whole) };
                let desired = builder.processing_element(generation, pe, origin, version);
                let as_written = Some(WrittenPe::of(&desired.spec));
                let applied = Box::pin(self.apply_pe(generation.number, &desired)).await?;
                if let Some(pe) = applied.object() {
                    self.reconciler.known_launches.note_applied(pe);
                }
                self.note_write(child, as_written, &desired, &applied)
            }
            Child::Service(id) => {
                let Some((pe, _)) = generation.member(id) else { return Ok(KeptByServer::Whole) };
                let endpoints = self.observed.children.user_ports.of(id);
                let desired: Service = builder.service(&generation.plan, pe, endpoints);
                self.put(child, &desired, mirrors.services.get(&key).as_deref()).await
            }
            Child::Region(index) => {
                let Some(region) = generation.plan.parallel_regions.iter().find(|region| region.index == index) else {
                    return Ok(KeptByServer::Whole);
                };
                let desired: ParallelRegion = builder.region(&generation.plan, region);
                let existing = mirrors.parallel_regions.get(&key);
                let existing = existing.filter(|region| is_controlled_by(&region.metadata, &*self.snapshot.job));
                if let Some(existing) = existing {
                    let fields = region_fields(&builder, &generation.plan, region, false);
                    let owner = &self.snapshot.owner;
                    let meta = self.with_all_owners(&key, &existing.metadata).await?;
                    let restored = self.writer().restore::<ParallelRegion>(owner, fields, &meta).await?;
                    return self.note_kept(child, &desired, &restored);
                }
                let created = self.writer().create_or_match(&desired, |_| true).await?.object();
                // After the commit it has whatever width users write.
                let is_committed = self.observed.status.generation == Some(generation.number);
                let width = if is_committed { created.spec.width } else { desired.spec.width };
                if !CreatedRegion::of(&created).fits(&desired.spec.name, Some(width)) {
                    // An earlier attempt has created it. It is deleted as soon as the mirror shows it.
                    let (kind, name) = (ParallelRegion::kind(&()).into_owned(), desired.name_any());
                    return Err(Error::Conflict { kind, name });
                }
                self.note_version(child, None, String::new(), version(&created.metadata));
                self.note_kept(child, &desired, &created)
            }
            Child::HostPool(index) => {
                let Some(pool) = generation.plan.host_pools.iter().find(|pool| pool.index == index) else {
                    return Ok(KeptByServer::Whole);
                };
                let desired: HostPool = builder.host_pool(generation, pool);
                self.put(child, &desired, mirrors.host_pools.get(&key).as_deref()).await
            }
            Child::JobConfigMap => {
                let desired = self.snapshot.config_map();
                match mirrors.config_maps.get(&key) {
                    Some(existing) => self.put_in_place(child, &desired, &*existing).await,
                    None => self.put(child, &desired, None::<&ConfigMapMeta>).await,
                }
            }
            Child::Export(port) => self.apply_export(port, generation).await,
            Child::Import(port) => self.apply_import(port, generation).await,
            Child::ConsistentRegion(index) => self.apply_consistent_region(index, generation).await,
            Child::ConsistentRegionService => self.apply_consistent_region_service(generation).await,
            Child::TransportSecret => self.apply_transport().await.map(|()| KeptByServer::Whole),
        }
    }

    /// The metadata of a region that the mirror shows, with all of its owners: the mirror has the one that controls it
    /// (rule call-6), and the list of them is written as a whole. If somebody has written the region meanwhile, the
    /// version tells.
    async fn with_all_owners(&self, key: &Key, shown: &ObjectMeta) -> Result<ObjectMeta, Error> {
        let read = self.reconciler.cluster.get_metadata::<ParallelRegion>(key).await?;
        let conflict = || Error::Conflict { kind: ParallelRegion::kind(&()).into_owned(), name: key.name.to_string() };
        let owner_references = read.ok_or_else(conflict)?.owner_references;
        Ok(ObjectMeta { owner_references, ..shown.clone() })
    }

    /// Applies a child that is no PE.
    pub(super) async fn put<K: Object, M: Resource + Serialize>(
        &self,
        child: Child,
        desired: &K,
        existing: Option<&M>,
    ) -> Result<KeptByServer, Error> {
        let applied = self.writer().apply(names::ANNOTATION_APPLIED_HASH, desired, existing).await?;
        self.note_write(child, None, desired, &applied)
    }

    /// Applies a child that PEs read, and that counts as long as it is there, whoever deletes it (rule job-26).
    async fn put_in_place<K: Object, M: Resource + Serialize>(
        &self,
        child: Child,
        desired: &K,
        existing: &M,
    ) -> Result<KeptByServer, Error> {
        let applied = self.writer().apply_in_place(names::ANNOTATION_APPLIED_HASH, desired, existing).await?;
        self.note_write(child, None, desired, &applied)
    }

    /// The mirror may take a while to show what was written. `pe`: of a PE, what was written of it. What was applied is
    /// what was sent, be it that admission has dropped the annotation that says so (rule call-19).
    fn note_write<K: Object>(
        &self,
        child: Child,
        pe: Option<WrittenPe>,
        desired: &K,
        applied: &Applied<K>,
    ) -> Result<KeptByServer, Error> {
        let Some(object) = applied.object() else { return Ok(KeptByServer::Whole) };
        let hash = hash_of_applied(names::ANNOTATION_APPLIED_HASH, desired)?;
        if let Applied::Relabelled(_, label) = applied {
            self.note_relabelled(child, label, &hash);
        }
        self.note_version(child, pe, hash, version(object.meta()));
        self.note_kept(child, desired, object)
    }

    /// The object has its label again, which somebody had taken: no look has seen that, unless it was known to be so
    /// again and again.
    fn note_relabelled(&self, child: Child, label: &str, hash: &str) {
        let (owned, now) = (Owned::Child(child), self.reconciler.cluster.now());
        // Then it is remembered as what others changed of any object.
        let is_known = self.observed.children.drift(&owned).is_some();
        self.remember(|entry| {
            entry.relabelled.insert(child, hash.to_owned());
            if !is_known {
                entry.restored(&self.snapshot.key, owned, label, now);
            }
        });
    }

    /// Remembers whether the API server has kept all that was written of the object (rule call-30). If not, it is
    /// written again after a pause.
    fn note_kept<K: Object>(&self, child: Child, desired: &K, answer: &K) -> Result<KeptByServer, Error> {
        let dropped = dropped(desired, answer)?;
        let (now, owned) = (self.reconciler.cluster.now(), Owned::Child(child));
        self.remember(|entry| match dropped {
            None => {
                entry.outdated.kept(child);
                if entry.restorations.get(&owned).is_some_and(|restorations| restorations.in_vain) {
                    entry.restorations.remove(&owned);
                }
                Ok(KeptByServer::Whole)
            }
            Some(field) => {
                entry.restorations.entry(owned).or_default().note_in_vain(&field, now);
                entry.outdated.dropped(UndeclaredField { definition: definition::<K>(), field }, child, now);
                Ok(KeptByServer::InPart)
            }
        })
    }

    /// The mirror does not show this version of the object yet, or a newer one. `applied`: the hash of what was applied
    /// to it; empty for a region, which is created.
    pub(super) fn note_version(&self, child: Child, pe: Option<WrittenPe>, applied: String, version: u64) {
        let at = self.reconciler.cluster.now();
        let write = OwnWrite { version, at, applied, pe };
        self.remember(|entry| entry.own_writes.note(Owned::Child(child), write));
    }

    /// The object was applied; if because somebody had changed it, that is remembered.
    pub(super) fn note_restoration(&self, owned: &Owned) {
        let Some(drift) = self.observed.children.drift(owned) else {
            return;
        };
        let now = self.reconciler.cluster.now();
        self.remember(|entry| entry.restored(&self.snapshot.key, owned.clone(), &drift.field, now));
    }
}
