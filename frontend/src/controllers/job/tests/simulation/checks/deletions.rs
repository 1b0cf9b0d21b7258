//! What holds before an object is deleted.
//!
//! It is the object that was observed, no stored generation has it, and no PE that runs sends to it (rule job-16).

use super::super::JOB;
use super::super::journal::Journal;
use super::super::services::{SINK, SOURCE};
use super::names_of_chunks;
use super::writes::Now;
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::generation::Generation;
use crate::settings::JobSettings;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use serde_json::Value;
use std::sync::Arc;
use streams_api::{Export, PePhase, ProcessingElement, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Object;
use streams_kubernetes_fake::Call;
use streams_proto::fusion::v1::ProcessingElement as Planned;

impl Now<'_> {
    /// Nobody refers to what is deleted, and it is the object that was observed.
    pub(super) fn object_is_deleted(&self, call: &Call, journal: &Journal) {
        let uid = call.body.as_ref().map(|parameters| parameters["preconditions"]["uid"].clone());
        let Some(Value::String(uid)) = uid else { panic!("{call}: whichever object has the name is deleted") };
        let name = call.key.name.to_string();
        let is_it = |uid_of: Option<String>| uid_of.as_deref() == Some(uid.as_str());
        let kind = call.kind.as_str();
        if self.is_clean_slate() {
            return;
        }
        if kind == "ProcessingElement" && is_it(self.uid_of::<ProcessingElement>(&call.key)) {
            let is_in_use = |g: &Generation| g.members().any(|(p, _)| names::processing_element(JOB, p.id) == name);
            assert!(!self.generations().any(is_in_use), "{name} is in use");
            self.nobody_sends_to(&call.key, journal);
        }
        // One with an address has none again only if it is made again.
        let has_address =
            |service: Service| service.spec.is_some_and(|spec| spec.cluster_ip.as_deref() != Some("None"));
        if kind == "Service"
            && is_it(self.uid_of::<Service>(&call.key))
            && !self.server.get::<Service>(&call.key).is_some_and(has_address)
        {
            let is_in_use = |g: &Generation| g.members().any(|(p, _)| names::processing_element(JOB, p.id) == name);
            assert!(!self.generations().any(is_in_use), "Service {name} is in use");
        }
        if kind == "Export" && is_it(self.uid_of::<Export>(&call.key)) {
            let exports = |(p, _): (&Planned, _)| !p.exports.is_empty() && names::export(JOB, p.id, 0) == name;
            assert!(!self.generations().any(|g| g.members().any(exports)), "{name} is in use");
        }
        let made_by_others = |map: ConfigMap| {
            let mut writers = map.managed_fields().iter().filter_map(|entry| entry.manager.as_deref());
            writers.all(|writer| writer != "streams-job-controller")
        };
        if kind == "ConfigMap"
            && is_it(self.uid_of::<ConfigMap>(&call.key))
            && !self.server.get::<ConfigMap>(&call.key).is_some_and(made_by_others)
        {
            let newest =
                |g: &Generation| g.members().any(|(p, _)| names::aadl_config_map(JOB, p.id, &p.content_id) == name);
            assert!(!self.generations().any(newest), "text {name} is in use");
            let mounted = self.server.list::<ProcessingElement>();
            assert!(mounted.iter().all(|pe| pe.spec.config_map.name != name), "{name} is mounted");
            let plans = self.status.plan.iter().chain(self.status.proposal.as_ref().map(|proposal| &proposal.plan));
            for plan in plans {
                let document = Document::Plan { generation: plan.generation };
                let chunks = names_of_chunks(&document, &plan.sha256, plan.chunks);
                assert!(!chunks.contains(&name), "{name} is a chunk of a plan");
            }
        }
    }

    /// No pod runs that was made from a text which names this PE, unless such pods took too long to be replaced (rule
    /// job-16).
    fn nobody_sends_to(&self, pe: &Key, journal: &Journal) {
        let Some(removed) = self.server.get::<ProcessingElement>(pe) else { return };
        let id = removed.spec.id;
        let Some(rollout) = &self.status.rollout else { return };
        let listed = rollout.removals.iter().find(|removal| (removal.first..=removal.last).contains(&id));
        let since = listed.map(|removal| removal.since.0).or(rollout.started_at.as_ref().map(|started| started.0));
        let resize = JobSettings::default().resize_seconds;
        if since.is_none_or(|since| self.server.now().duration_since(since).unsigned_abs() >= resize) {
            return;
        }
        for running in self.server.list::<ProcessingElement>() {
            let status = running.status.unwrap_or_default();
            if ![SOURCE, SINK].contains(&running.spec.id) || status.phase != Some(PePhase::Running) {
                continue;
            }
            let is_its_text = |generation: &&Arc<Generation>| {
                generation.members().any(|(pe, origin)| {
                    pe.id == running.spec.id && Some(&origin.runtime_id) == status.runtime_id.as_ref()
                })
            };
            // Other generations may have the same text, with other PEs.
            let mut texts = journal.generations.values().filter(is_its_text).peekable();
            let is_known = texts.peek().is_some() && texts.all(|text| text.members().any(|(pe, _)| pe.id == id));
            assert!(!is_known, "PE {id} is deleted, and PE {} sends to it", running.spec.id);
        }
    }

    fn uid_of<K: Object>(&self, key: &Key) -> Option<String> {
        self.server.get::<K>(key)?.meta().uid.clone()
    }
}
