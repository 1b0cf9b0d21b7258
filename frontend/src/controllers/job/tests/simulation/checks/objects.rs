//! What holds before a child is created or applied.
//!
//! A stored generation has it, it belongs to the job, and nothing that runs changes before the commit.

use super::super::JOB;
use super::super::journal::Journal;
use super::writes::Now;
use crate::controllers::job::generation::Generation;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use std::sync::Arc;
use streams_api::{ConsistentRegion, Export, HostPool, ParallelRegion, ProcessingElement, names};
use streams_kubernetes::cluster::Object;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes_fake::{Call, Verb};

impl Now<'_> {
    /// Children are written for a stored generation, to objects of the job that stay. Nothing that runs changes before
    /// the commit.
    pub(super) fn object_is_written(&self, call: &Call, journal: &Journal) {
        let name = call.key.name.to_string();
        if let Some(pe) = call.object::<ProcessingElement>() {
            self.is_ours::<ProcessingElement>(call);
            let is_there = self.server.get::<ProcessingElement>(&call.key).is_some();
            let is_changed =
                call.verb == Verb::Apply && call.body.as_ref().is_some_and(|body| body["metadata"]["uid"].is_string());
            let is_gone = journal.gone.contains(&(self.job.metadata.uid.clone(), pe.spec.id));
            assert!(is_there || is_changed || !is_gone, "{name} is made again, which a user has deleted");
            if !journal.unseen.contains(&pe.spec.id) {
                self.few_are_down(&pe, journal);
            }
            assert!(self.has_pe(pe.spec.id), "{name} is applied before a plan that has it is stored");
            let committed = self.committed.as_ref().and_then(|c| c.members().find(|(p, _)| p.id == pe.spec.id));
            if let Some((planned, origin)) = committed {
                assert_eq!(pe.spec.runtime_id, origin.runtime_id, "{name} is changed before the commit");
                assert!([&origin.content_id, &planned.content_id].contains(&&pe.spec.content_id), "{name}");
            }
        } else if let Some(service) = call.object::<Service>() {
            self.is_ours::<Service>(call);
            let is_known = match service.labels().get(names::LABEL_PE) {
                Some(id) => self.has_pe(id.parse().unwrap()),
                None => self.generations().any(|generation| !generation.plan.consistent_regions.is_empty()),
            };
            assert!(is_known, "Service {name} is applied before a plan that has it is stored");
        } else if let Some(export) = call.object::<Export>() {
            self.is_ours::<Export>(call);
            assert!(self.exports(export.spec.pe_id), "{name} is applied before a plan that has it is stored");
            let has_it = |committed: &&Arc<Generation>| {
                committed.member(export.spec.pe_id).is_some_and(|(pe, _)| !pe.exports.is_empty())
            };
            if let Some(committed) = self.committed.as_ref().filter(|committed| !has_it(committed)) {
                let since = export.annotations().get(names::ANNOTATION_SINCE_GENERATION);
                assert_eq!(since, Some(&(committed.number + 1).to_string()), "{name} would match before the commit");
            }
        } else if let Some(region) = call.object::<ConsistentRegion>() {
            self.is_ours::<ConsistentRegion>(call);
            let generation = if self.committed.is_some() { &self.committed } else { &self.proposed };
            let period = generation.as_ref().map(|generation| u64::from(generation.widths()["R"]) * 1_000);
            assert_eq!(region.spec.period_milliseconds, period, "{name} is changed before the commit");
        } else if let Some(pool) = call.object::<HostPool>() {
            self.is_ours::<HostPool>(call);
            let is_it = |g: &Generation| g.plan.host_pools.iter().any(|p| p.tags == pool.spec.tags);
            let generation = if self.committed.is_some() { &self.committed } else { &self.proposed };
            assert!(generation.as_deref().is_some_and(is_it), "{name} is changed before the commit");
        } else if call.object::<ParallelRegion>().is_some() {
            assert!(self.generations().next().is_some(), "{name} is applied before a plan that has it is stored");
        } else if name == names::job_config_map(JOB) {
            self.is_ours::<ConfigMap>(call);
        }
    }

    /// An object that is there belongs to the job, and is not on its way out.
    fn is_ours<K: Object>(&self, call: &Call) {
        let Some(existing) = self.server.get::<K>(&call.key).filter(|_| call.verb == Verb::Apply) else { return };
        assert!(is_controlled_by(existing.meta(), self.job), "{call}: it belongs to somebody else");
    }
}
