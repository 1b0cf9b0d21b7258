//! A hash of what pods are replaced for (rules job-26 and pe-4).
//!
//! The job controller writes it to PEs and host pools. If somebody else changes such a field, the hash does not fit any
//! more, and the PE controller waits until the field is restored. Otherwise a pod would be replaced for a change that
//! does not last, and again when it is taken back.
//!
//! Knows: specs of PEs and host pools. Must not know: how pods are made.

use kube::core::ObjectMeta;
use serde::Serialize;
use sha2::{Digest, Sha256};
use streams_api::{HostPoolSpec, ProcessingElementSpec, names};

/// Hexadecimal digits of the hash.
const DIGITS: usize = 32;

/// A spec with fields that pods are replaced for.
pub(crate) trait Starts {
    /// The hash of these fields.
    fn start_hash(&self) -> String;

    /// Somebody else has changed one of them: the hash in the metadata is that of other values. An object without a
    /// hash is believed; a user or an older frontend has made it.
    fn is_changed_by_others(&self, meta: &ObjectMeta) -> bool {
        let hash = meta.annotations.as_ref().and_then(|annotations| annotations.get(names::ANNOTATION_START_HASH));
        hash.is_some_and(|hash| *hash != self.start_hash())
    }
}

impl Starts for ProcessingElementSpec {
    fn start_hash(&self) -> String {
        let Self { job_name, job_id, id, generation, content_id, runtime_id, config_map, placement, .. } = self;
        hash(&(job_name, job_id, id, generation, content_id, runtime_id, config_map, placement))
    }
}

impl Starts for HostPoolSpec {
    fn start_hash(&self) -> String {
        hash(self)
    }
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
}
