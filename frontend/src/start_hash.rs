//! A hash of what pods are replaced for, or consistent regions reset (rules job-26, pe-4 and consistent-region-13).
//!
//! The job controller writes it to PEs, host pools and consistent regions. If somebody else changes such a field, the
//! hash does not fit any more, and whoever would act on it waits until the field is restored. Otherwise a pod would be
//! replaced, or a region reset, for a change that does not last, and again when it is taken back.
//!
//! The content of a text has no such hash: who has written it last shows ([`is_written_by_others`]).
//!
//! Knows: specs of PEs, host pools and consistent regions. Must not know: how pods are made, what regions do.

use kube::core::ObjectMeta;
use serde::Serialize;
use sha2::{Digest, Sha256};
use streams_api::{ConsistentRegionSpec, HostPoolSpec, ProcessingElementSpec, names};
use streams_kubernetes::cluster::Manager;

/// Hexadecimal digits of the hash.
const DIGITS: usize = 32;

/// A spec with fields that pods are replaced for, or a region reset.
pub(crate) trait Starts {
    /// The hash of these fields.
    fn start_hash(&self) -> String;

    /// The hash that an earlier version has written, if it is another one.
    fn earlier_start_hash(&self) -> Option<String> {
        None
    }

    /// Somebody else has changed one of them: the hash in the metadata is that of other values. An object without a
    /// hash is believed; a user or an older frontend has made it.
    fn is_changed_by_others(&self, meta: &ObjectMeta) -> bool {
        let hash = meta.annotations.as_ref().and_then(|annotations| annotations.get(names::ANNOTATION_START_HASH));
        hash.is_some_and(|hash| *hash != self.start_hash() && Some(hash) != self.earlier_start_hash().as_ref())
    }
}

impl Starts for ProcessingElementSpec {
    fn start_hash(&self) -> String {
        // A PE that is in no region has the hash that it always had, so an update writes none of these.
        if self.consistent_regions.is_empty() {
            hash(&pod_of(self))
        } else {
            hash(&(pod_of(self), &self.consistent_regions))
        }
    }

    fn earlier_start_hash(&self) -> Option<String> {
        (!self.consistent_regions.is_empty()).then(|| hash(&pod_of(self)))
    }
}

/// What the pod of a PE is replaced for.
fn pod_of(spec: &ProcessingElementSpec) -> impl Serialize {
    let ProcessingElementSpec { job_name, job_id, id, generation, content_id, runtime_id, .. } = spec;
    (job_name, job_id, id, generation, content_id, runtime_id, &spec.config_map, &spec.placement)
}

impl Starts for HostPoolSpec {
    fn start_hash(&self) -> String {
        hash(self)
    }
}

impl Starts for ConsistentRegionSpec {
    fn start_hash(&self) -> String {
        // Who is in it, and the settings of its steps.
        let Self { job_name, index, trigger, period_milliseconds, drain_timeout_milliseconds, .. } = self;
        let Self { reset_timeout_milliseconds, max_consecutive_reset_attempts, pe_ids, trigger_operators, .. } = self;
        let settings = (trigger, period_milliseconds, drain_timeout_milliseconds, reset_timeout_milliseconds);
        hash(&(job_name, index, pe_ids, settings, max_consecutive_reset_attempts, trigger_operators))
    }
}

/// Somebody else than this manager has written the content of a ConfigMap, as it is mirrored (rule call-6). One that
/// does not say by whom it was written is believed.
pub(crate) fn is_written_by_others(meta: &ObjectMeta, Manager(manager): Manager) -> bool {
    let mut writers = meta.managed_fields.iter().flatten().peekable();
    writers.peek().is_some() && !writers.any(|writer| writer.manager.as_deref() == Some(manager))
}

fn hash(fields: &impl Serialize) -> String {
    // These types can be written as JSON; were it otherwise, all hashes would be equal, and nobody would wait.
    let json = serde_json::to_vec(fields).unwrap_or_default();
    let mut digits = hex::encode(Sha256::digest(json));
    digits.truncate(DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
    use std::collections::BTreeMap;
    use streams_api::Placement;

    #[test]
    fn a_change_of_what_pods_are_replaced_for_shows() {
        let spec = ProcessingElementSpec { runtime_id: "r".to_owned(), ..ProcessingElementSpec::default() };
        let annotations = BTreeMap::from([(names::ANNOTATION_START_HASH.to_owned(), spec.start_hash())]);
        let meta = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
        let placement = Placement { host: Some("h".to_owned()), ..Placement::default() };
        // spec -> changed
        let table = [
            (spec.clone(), false),
            (ProcessingElementSpec { runtime_id: "s".to_owned(), ..spec.clone() }, true),
            (ProcessingElementSpec { placement, ..spec.clone() }, true),
            (ProcessingElementSpec { restartable: true, ..spec.clone() }, false),
        ];
        for (spec, changed) in table {
            assert_eq!(spec.is_changed_by_others(&meta), changed, "{spec:?}");
            assert!(!spec.is_changed_by_others(&ObjectMeta::default()));
        }
    }

    #[test]
    fn a_change_of_the_regions_of_a_pe_shows_but_where_an_earlier_version_has_written_it() {
        let of = |consistent_regions: &[u64]| ProcessingElementSpec {
            consistent_regions: consistent_regions.to_vec(),
            ..ProcessingElementSpec::default()
        };
        let (none, one, earlier) = (of(&[]).start_hash(), of(&[0]).start_hash(), of(&[0]).earlier_start_hash());
        assert_eq!(earlier.as_ref(), Some(&none), "an earlier version did not look at regions");
        assert_ne!(one, none);
        // hash of the PE, its regions -> changed
        let table: [(&str, &[u64], bool); 5] =
            [(&one, &[0], false), (&one, &[], true), (&one, &[0, 1], true), (&none, &[0], false), (&none, &[], false)];
        for (hash, regions, changed) in table {
            let annotations = BTreeMap::from([(names::ANNOTATION_START_HASH.to_owned(), hash.to_owned())]);
            let meta = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
            assert_eq!(of(regions).is_changed_by_others(&meta), changed, "{regions:?}");
        }
    }

    #[test]
    fn a_change_of_what_regions_follow_shows() {
        let spec = ConsistentRegionSpec { pe_ids: vec![0, 1], ..ConsistentRegionSpec::default() };
        let annotations = BTreeMap::from([(names::ANNOTATION_START_HASH.to_owned(), spec.start_hash())]);
        let meta = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
        // spec -> changed
        let table = [
            (spec.clone(), false),
            (ConsistentRegionSpec { pe_ids: vec![0], ..spec.clone() }, true),
            (ConsistentRegionSpec { reset_timeout_milliseconds: 1, ..spec.clone() }, true),
            (ConsistentRegionSpec { trigger_operators: vec!["o".to_owned()], ..spec.clone() }, true),
            (ConsistentRegionSpec { operator_count: 7, ..spec.clone() }, false),
        ];
        for (spec, changed) in table {
            assert_eq!(spec.is_changed_by_others(&meta), changed, "{spec:?}");
        }
    }

    #[test]
    fn a_text_that_somebody_else_has_written_shows() {
        // who has written the content -> somebody else has
        let table: [(&[&str], bool); 4] =
            [(&[], false), (&["operator"], false), (&["user", "operator"], false), (&["user"], true)];
        for (writers, expected) in table {
            let entry =
                |writer: &&str| ManagedFieldsEntry { manager: Some((*writer).to_owned()), ..Default::default() };
            let managed_fields = Some(writers.iter().map(entry).collect());
            let meta = ObjectMeta { managed_fields, ..ObjectMeta::default() };
            assert_eq!(is_written_by_others(&meta, Manager("operator")), expected, "{writers:?}");
        }
    }
}
