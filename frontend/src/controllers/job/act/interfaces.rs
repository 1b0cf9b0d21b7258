//! Writes exports, imports, consistent regions and their Service.
//!
//! Knows: the API server. Must not know: the reasons of a decision.

use super::Actor;
use super::apply::KeptByServer;
use crate::controllers::job::child::{Child, Port};
use crate::controllers::job::generation::Generation;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::{Error, Key};

impl<C: Cluster> Actor<'_, C> {
    fn key(&self, child: Child) -> Key {
        self.snapshot.key.sibling(&child.name(&self.snapshot.key.name))
    }

    /// Brings the export to what this generation wants of it.
    pub(super) async fn apply_export(&self, port: Port, generation: &Generation) -> Result<KeptByServer, Error> {
        let child = Child::Export(port);
        let pe = generation.member(port.pe).map(|(pe, _)| pe);
        let planned = pe.and_then(|pe| pe.exports.iter().find(|export| export.port_id == port.id));
        let Some(planned) = planned else { return Ok(KeptByServer::Whole) };
        let existing = self.reconciler.mirrors.exports.get(&self.key(child));
        self.put(child, &self.snapshot.builder().export(generation, port, planned), existing.as_deref()).await
    }

    /// Brings the import to what this generation wants of it.
    pub(super) async fn apply_import(&self, port: Port, generation: &Generation) -> Result<KeptByServer, Error> {
        let child = Child::Import(port);
        let pe = generation.member(port.pe).map(|(pe, _)| pe);
        let planned = pe.and_then(|pe| pe.imports.iter().find(|import| import.port_id == port.id));
        let Some(planned) = planned else { return Ok(KeptByServer::Whole) };
        let existing = self.reconciler.mirrors.imports.get(&self.key(child));
        self.put(child, &self.snapshot.builder().import(generation, port, planned), existing.as_deref()).await
    }

    /// Brings the consistent region to what this generation wants of it.
    pub(super) async fn apply_consistent_region(
        &self,
        index: u64,
        generation: &Generation,
    ) -> Result<KeptByServer, Error> {
        let (child, plan) = (Child::ConsistentRegion(index), &generation.plan);
        let planned = plan.consistent_regions.iter().find(|region| region.index == index);
        let Some(planned) = planned else { return Ok(KeptByServer::Whole) };
        let existing = self.reconciler.mirrors.consistent_regions.get(&self.key(child));
        self.put(child, &self.snapshot.builder().consistent_region(plan, planned), existing.as_deref()).await
    }

    /// Brings the Service of consistent regions to what this generation wants of it.
    pub(super) async fn apply_consistent_region_service(&self, generation: &Generation) -> Result<KeptByServer, Error> {
        let child = Child::ConsistentRegionService;
        let existing = self.reconciler.mirrors.services.get(&self.key(child));
        let desired = self.snapshot.builder().consistent_region_service(&generation.plan);
        self.put(child, &desired, existing.as_deref()).await
    }
}
