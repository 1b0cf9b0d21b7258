//! What there is of the job and its objects: whoever takes two ways to the same end compares what both have come to.
//!
//! Left out is what may differ between the ways: times, versions, uids, numbers that depend on the way.

use super::super::{JOB, JobSimulation, NAMESPACE, Visible};
use super::names_of;
use crate::controllers::job::objects::port_labels;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeMap;
use streams_api::{
    ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, ProcessingElement, TransportStatus, names,
};
use streams_kubernetes::Key;

impl JobSimulation {
    /// The ports of the Service of a PE that operators have opened under a name.
    pub(in super::super::super) fn user_ports(&self, id: u64) -> BTreeMap<String, i32> {
        let service = self.server.get::<Service>(&Key::new(NAMESPACE, &names::processing_element(JOB, id)));
        let ports = service.and_then(|service| service.spec?.ports).unwrap_or_default();
        let named = ports.into_iter().filter_map(|port| Some((port.name?, port.port)));
        named.filter(|(name, _)| name.starts_with("usr-")).collect()
    }

    /// The port labels of the job, a line each.
    pub(super) fn port_labels(&self) -> String {
        let map: Option<ConfigMap> = self.server.get(&Key::new(NAMESPACE, &names::job_config_map(JOB)));
        map.and_then(|map| map.data?.remove(port_labels::FILE)).unwrap_or_default()
    }

    /// Objects that are there, but for what is counted in the namespace.
    pub(in super::super::super) fn left(&self) -> Vec<String> {
        let kinds = [
            names_of::<Job>(&self.server),
            names_of::<ProcessingElement>(&self.server),
            names_of::<Service>(&self.server),
            names_of::<ParallelRegion>(&self.server),
            names_of::<HostPool>(&self.server),
            names_of::<Export>(&self.server),
            names_of::<Import>(&self.server),
            names_of::<ConsistentRegion>(&self.server),
            names_of::<Secret>(&self.server),
        ];
        let all = kinds.into_iter().flatten().chain(self.texts()).chain(self.chunks());
        all.chain(Some(self.port_labels()).filter(|labels| !labels.is_empty())).collect()
    }

    /// What the job has become, without numbers that depend on the way: widths, and operators with what their PEs run.
    pub(in super::super::super) fn shape(&self) -> impl PartialEq + std::fmt::Debug {
        let operators = self.pes().into_values().map(|pe| (pe.spec.operators, pe.spec.restartable));
        let mut operators: Vec<_> = operators.collect();
        operators.sort();
        (self.wanted(), operators)
    }

    /// What users see of the job and its objects, without what a crash may change: times, versions, uids, the number of
    /// the job and what follows from that.
    pub(in super::super::super) fn visible(&self) -> Visible {
        let mut visible = BTreeMap::new();
        let mut status = self.status();
        let said = status.conditions.iter().map(|c| json!([c.type_, c.status, c.reason]));
        visible.insert("conditions".to_owned(), said.collect());
        status.conditions.clear();
        status.job_id = None;
        status.submission_started_at = None;
        status.submission_worked_milliseconds = 0;
        // Keys are made by chance.
        status.transport.iter_mut().for_each(|transport| *transport = TransportStatus::default());
        status.rollout.iter_mut().for_each(|rollout| (rollout.started_at, rollout.finished_at) = (None, None));
        status.plan.iter_mut().for_each(|plan| plan.sha256.clear());
        visible.insert("status".to_owned(), json!(status));
        for mut pe in self.server.list::<ProcessingElement>() {
            pe.spec.job_id = 0;
            let runs = pe.status.as_ref().map(|status| (status.phase, status.runtime_id.clone()));
            visible.insert(format!("PE {}", pe.name_any()), json!([pe.spec, runs]));
        }
        for service in self.server.list::<Service>() {
            visible.insert(format!("Service {}", service.name_any()), json!(service.spec));
        }
        for region in self.server.list::<ParallelRegion>() {
            visible.insert(format!("region {}", region.name_any()), json!(region.spec));
        }
        for pool in self.server.list::<HostPool>() {
            visible.insert(format!("pool {}", pool.name_any()), json!(pool.spec));
        }
        for map in self.config_maps(&[names::PART_AADL]) {
            visible.insert(format!("text {}", map.name_any()), json!(map.data));
        }
        visible.insert("labels".to_owned(), json!(self.port_labels()));
        visible.insert("chunks".to_owned(), json!(self.chunks().len()));
        visible.insert("starts".to_owned(), json!(self.starts()));
        Visible(visible)
    }
}
