//! The metadata of a PE's pod that the controller relies on, and what others have changed of it (rule pe-25). Pure.
//!
//! The Service of the PE selects the pod by its labels, the watch knows it by one, people read the others, and its
//! owner reference says whose it is.
//!
//! Knows: which labels and annotations the pod of a launch has. Must not know: why there is a pod, how often something
//! was restored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use streams_api::{ProcessingElement, ProcessingElementStatus, names};
use streams_kubernetes::ownership::{controlled_by, controller};

/// The annotations that say what a pod was made from, each with what the PE has recorded of that.
const ORIGIN: [(&str, fn(&ProcessingElementStatus) -> Option<&String>); 4] = [
    (names::ANNOTATION_CONTENT_ID, |status| status.content_id.as_ref()),
    (names::ANNOTATION_RUNTIME_ID, |status| status.runtime_id.as_ref()),
    (names::ANNOTATION_POD_TEMPLATE_HASH, |status| status.pod_template_hash.as_ref()),
    (names::ANNOTATION_PLACEMENT_HASH, |status| status.placement_hash.as_ref()),
];

/// The metadata that a pod is to have besides what others add.
pub(super) struct Wanted {
    labels: BTreeMap<String, String>,
    /// Those that the PE has recorded.
    annotations: BTreeMap<String, String>,
}

impl Wanted {
    /// Of the pod of this launch, which the PE has recorded.
    pub(super) fn of(pe: &ProcessingElement, launch_count: u64) -> Self {
        let mut labels = names::pe_labels(&pe.spec.job_name, pe.spec.id);
        labels.insert(names::LABEL_LAUNCH_COUNT.to_owned(), launch_count.to_string());
        let status = pe.status.as_ref();
        let annotations =
            ORIGIN.into_iter().filter_map(|(key, recorded)| Some((key.to_owned(), recorded(status?)?.clone())));
        Self { labels, annotations: annotations.collect() }
    }

    /// The first field in which this metadata differs.
    pub(super) fn difference(&self, meta: &ObjectMeta) -> Option<String> {
        difference("labels", &self.labels, meta.labels.as_ref())
            .or_else(|| difference("annotations", &self.annotations, meta.annotations.as_ref()))
    }
}

fn difference(
    part: &str,
    wanted: &BTreeMap<String, String>,
    existing: Option<&BTreeMap<String, String>>,
) -> Option<String> {
    let has = |(key, value): &(&String, &String)| existing.and_then(|existing| existing.get(*key)) == Some(*value);
    wanted.iter().find(|field| !has(field)).map(|(key, _)| format!("metadata.{part}.{key}"))
}

/// The first field that somebody has changed of the metadata of the pod of this launch, which the PE has recorded. A
/// pod that something else controls by now cannot be given back to the PE.
pub(super) fn spoilt(meta: &ObjectMeta, pe: &ProcessingElement, launch_count: u64) -> Option<String> {
    let disowned = || controller(meta).is_none().then(|| "metadata.ownerReferences".to_owned());
    Wanted::of(pe, launch_count).difference(meta).or_else(disowned)
}

/// The first of the annotations that say what a pod was made from which the pod has not, or not as it was sent, when it
/// was just created.
pub(super) fn changed_by_admission(sent: &ObjectMeta, created: &ObjectMeta) -> Option<String> {
    let is_of_origin = |key: &str| ORIGIN.iter().any(|(of_origin, _)| key == *of_origin);
    let sent = sent.annotations.iter().flatten().filter(|(key, _)| is_of_origin(key));
    let sent: BTreeMap<String, String> = sent.map(|(key, value)| (key.clone(), value.clone())).collect();
    difference("annotations", &sent, created.annotations.as_ref())
}

/// A merge patch that makes the metadata of the pod what it was, but for what others have added. The owner reference is
/// only restored if it `may_own` the pod.
pub(super) fn patch(meta: &ObjectMeta, pe: &ProcessingElement, launch_count: u64, may_own: bool) -> Value {
    let Wanted { labels, annotations } = Wanted::of(pe, launch_count);
    let mut metadata = json!({"uid": meta.uid, "labels": labels, "annotations": annotations});
    if may_own && controller(meta).is_none() {
        // A merge patch replaces a list as a whole: nobody may have written it since.
        let others = meta.owner_references.iter().flatten().filter(|owner| Some(&owner.uid) != pe.meta().uid.as_ref());
        let owners: Vec<OwnerReference> = others.cloned().chain([controlled_by(pe)]).collect();
        metadata["ownerReferences"] = json!(owners);
        metadata["resourceVersion"] = json!(meta.resource_version);
    }
    json!({ "metadata": metadata })
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_api::ProcessingElementSpec;

    fn pe() -> ProcessingElement {
        let spec = ProcessingElementSpec { job_name: "flow".to_owned(), id: 3, ..ProcessingElementSpec::default() };
        let mut pe = ProcessingElement::new("flow-3", spec);
        pe.metadata.uid = Some("p".to_owned());
        pe.status = Some(ProcessingElementStatus { runtime_id: Some("r".to_owned()), ..Default::default() });
        pe
    }

    /// As the controller has made the pod of launch 4.
    fn made() -> ObjectMeta {
        let Wanted { labels, annotations } = Wanted::of(&pe(), 4);
        ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![controlled_by(&pe())]),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn what_the_controller_relies_on_is_told_and_what_others_add_is_not() {
        type Change = fn(&mut ObjectMeta);
        let table: [(Change, Option<&str>); 9] = [
            (|_| (), None),
            (|meta| drop(meta.labels.get_or_insert_default().insert("mesh".to_owned(), "on".to_owned())), None),
            (|meta| drop(meta.labels.get_or_insert_default().remove("app")), Some("metadata.labels.app")),
            (
                |meta| drop(meta.labels.get_or_insert_default().insert(names::LABEL_PE.to_owned(), "4".to_owned())),
                Some("metadata.labels.streams.ibm.com/pe"),
            ),
            (|meta| meta.labels = None, Some("metadata.labels.app")),
            (|meta| meta.annotations = None, Some("metadata.annotations.streams.ibm.com/runtime-id")),
            (|meta| meta.owner_references = None, Some("metadata.ownerReferences")),
            // Something that adopts pods was faster.
            (|meta| meta.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = "x".to_owned()), None),
            (
                |meta| meta.owner_references.iter_mut().flatten().for_each(|owner| owner.controller = None),
                Some("metadata.ownerReferences"),
            ),
        ];
        for (number, (change, expected)) in table.into_iter().enumerate() {
            let mut meta = made();
            change(&mut meta);
            assert_eq!(spoilt(&meta, &pe(), 4).as_deref(), expected, "{number}");
        }
    }

    #[test]
    fn the_owners_of_a_pod_are_written_only_if_it_has_lost_its_own() {
        // it is there without its reference, the PE is deleted -> owners in the patch
        for (is_disowned, may_own, expected) in [(false, true, None), (true, true, Some(1)), (true, false, None)] {
            let mut meta = made();
            if is_disowned {
                meta.owner_references = None;
            }
            let patch = patch(&meta, &pe(), 4, may_own);
            let owners = patch["metadata"]["ownerReferences"].as_array().map(Vec::len);
            assert_eq!(owners, expected);
            assert_eq!(patch["metadata"]["resourceVersion"].is_null(), expected.is_none());
            assert_eq!(patch["metadata"]["labels"]["streams.ibm.com/launch-count"], "4");
        }
    }
}
