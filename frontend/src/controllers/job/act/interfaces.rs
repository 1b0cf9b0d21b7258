//! Writes and deletes exports, imports, consistent regions and their Service.
//!
//! Knows: the API server. Must not know: the reasons of a decision.

use super::{Actor, Kept};
use crate::controllers::job::child::Child;
use crate::controllers::job::generation::Generation;
use crate::controllers::job::owned::Owned;
use k8s_openapi::api::core::v1::Service;
use kube::api::PropagationPolicy;
use streams_api::{ConsistentRegion, Export, Import, names};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;

impl<C: Cluster> Actor<'_, C> {
    /// Brings an export, an import, a consistent region or their Service to what this generation wants of it.
    pub(super) async fn apply_interface(&self, child: Child, generation: &Generation) -> Result<Kept, Error> {
        let builder = self.snapshot.builder();
        let mirrors = &self.reconciler.mirrors;
        let (job, plan) = (&*self.snapshot.key.name, &generation.plan);
        let key = |name: &str| self.snapshot.key.sibling(name);
        let pe = |id: u64| generation.member(id).map(|(pe, _)| pe);
        match child {
            Child::Export(port) => {
                let planned = pe(port.pe).and_then(|pe| pe.exports.iter().find(|export| export.port_id == port.id));
                let Some(planned) = planned else { return Ok(Kept::Whole) };
                let existing = mirrors.exports.get(&key(&names::export(job, port.pe, port.id)));
                self.put(child, &builder.export(generation, port, planned), existing.as_deref()).await
            }
            Child::Import(port) => {
                let planned = pe(port.pe).and_then(|pe| pe.imports.iter().find(|import| import.port_id == port.id));
                let Some(planned) = planned else { return Ok(Kept::Whole) };
                let existing = mirrors.imports.get(&key(&names::import(job, port.pe, port.id)));
                self.put(child, &builder.import(generation, port, planned), existing.as_deref()).await
            }
            Child::ConsistentRegion(index) => {
                let planned = plan.consistent_regions.iter().find(|region| region.index == index);
                let Some(planned) = planned else { return Ok(Kept::Whole) };
                let existing = mirrors.consistent_regions.get(&key(&names::consistent_region(job, index)));
                self.put(child, &builder.consistent_region(plan, planned), existing.as_deref()).await
            }
            _ => {
                let name = names::consistent_region_service(job);
                let existing = mirrors.services.get(&key(&name));
                self.put(child, &builder.consistent_region_service(plan), existing.as_deref()).await
            }
        }
    }

    /// Deletes one of them. Nothing depends on it.
    pub(super) async fn delete_interface(&self, child: Child) -> Result<(), Error> {
        let job = &*self.snapshot.key.name;
        let mirrors = &self.reconciler.mirrors;
        let (object, at_once) = (Owned::Child(child), PropagationPolicy::Background);
        match child {
            Child::Export(port) => {
                let name = names::export(job, port.pe, port.id);
                self.delete_one::<Export, _>(&object, &mirrors.exports, &name, at_once).await
            }
            Child::Import(port) => {
                let name = names::import(job, port.pe, port.id);
                self.delete_one::<Import, _>(&object, &mirrors.imports, &name, at_once).await
            }
            Child::ConsistentRegion(index) => {
                let name = names::consistent_region(job, index);
                self.delete_one::<ConsistentRegion, _>(&object, &mirrors.consistent_regions, &name, at_once).await
            }
            _ => {
                let name = names::consistent_region_service(job);
                self.delete_one::<Service, _>(&object, &mirrors.services, &name, at_once).await
            }
        }
    }
}
