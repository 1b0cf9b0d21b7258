//! What the mirrors keep of the metadata of each kind (rule call-6): those annotations and labels that somebody reads,
//! and those that the operator gives to its objects, as they are compared with what they should be (rule call-19); and
//! what controls an object. Of finalizers people are told, and nothing depends on them. Labels, owners and finalizers
//! that are few are all kept.
//!
//! Tenants may annotate and label all of these, with hundreds of kilobytes each, and whoever looks at an object unpacks
//! it. Jobs even stay unpacked while they are looked at.
//!
//! What is written is never what is left of an object: of a status that is written the API server takes nothing but the
//! status, and all other writes say which fields they change. But it takes what is left out of such an object for
//! managed by nobody from then on, so that who has applied it cannot remove it by applying.
//!
//! Knows: annotations, labels. Must not know: what they are read for.

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::ObjectMeta;
use streams_api::{ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, ProcessingElement, Resize, names};
use streams_kubernetes::watch::trimmed;

/// What the operator gives to objects that are made for a job.
const OF_PARTS: [&str; 7] = [
    names::ANNOTATION_APPLIED_HASH,
    names::ANNOTATION_START_HASH,
    names::ANNOTATION_APPLICATION_NAME,
    names::ANNOTATION_APPLICATION_SCOPE,
    names::ANNOTATION_SINCE_GENERATION,
    names::ANNOTATION_NEWEST_TEXT,
    names::ANNOTATION_TRACE_PARENT,
];

/// The labels of objects that are made for a job.
const LABELS: [&str; 4] = [names::LABEL_APP, names::LABEL_JOB, names::LABEL_SERVICE, names::LABEL_PE];

/// A job.
pub(crate) fn job(job: &mut Job) {
    trimmed::custom_resource(job);
    trimmed::relations(&mut job.metadata, &LABELS);
    let whole = [names::ANNOTATION_REDIS_CONFIGURATION, names::ANNOTATION_TRACE_STATE];
    trimmed::annotations(&mut job.metadata, &[names::ANNOTATION_TRACE_PARENT], &whole);
}

/// A PE.
pub(crate) fn processing_element(pe: &mut ProcessingElement) {
    let of_pes = [names::ANNOTATION_RESTART_REQUESTED, names::ANNOTATION_STOP_REQUESTED, names::ANNOTATION_MADE_AGAIN];
    part(pe, &of_pes);
}

/// A parallel region, with who manages its width. A request for the widths of all regions of a job may be long.
pub(crate) fn parallel_region(region: &mut ParallelRegion) {
    trimmed::managed(region, "f:width");
    trimmed::relations(&mut region.metadata, &LABELS);
    let read = [&OF_PARTS[..], &[names::ANNOTATION_TRACE_GENERATION, names::ANNOTATION_WIDTH_OF_RESIZE]].concat();
    trimmed::annotations(&mut region.metadata, &read, &[names::ANNOTATION_REQUESTED_WIDTHS]);
}

/// A host pool.
pub(crate) fn host_pool(pool: &mut HostPool) {
    part(pool, &[]);
}

/// An exported stream.
pub(crate) fn export(export: &mut Export) {
    part(export, &[]);
}

/// A subscription.
pub(crate) fn import(import: &mut Import) {
    part(import, &[]);
}

/// A consistent region.
pub(crate) fn consistent_region(region: &mut ConsistentRegion) {
    part(region, &[names::ANNOTATION_RESET_REQUESTED]);
}

fn part<K: Resource>(object: &mut K, besides: &[&str]) {
    trimmed::custom_resource(object);
    trimmed::relations(object.meta_mut(), &LABELS);
    trimmed::annotations(object.meta_mut(), &[&OF_PARTS[..], besides].concat(), &[]);
}

/// A pod.
pub(crate) fn pod(pod: &mut Pod) {
    trimmed::pod(pod);
    let read = [
        names::ANNOTATION_CONTENT_ID,
        names::ANNOTATION_RUNTIME_ID,
        names::ANNOTATION_POD_TEMPLATE_HASH,
        names::ANNOTATION_PLACEMENT_HASH,
        names::ANNOTATION_SAB_NAME,
    ];
    trimmed::annotations(&mut pod.metadata, &read, &[]);
}

/// A request to resize.
pub(crate) fn request(request: &mut Resize) {
    request_meta(&mut request.metadata);
}

/// The metadata of a request to resize.
pub(crate) fn request_meta(meta: &mut ObjectMeta) {
    let read = [
        names::ANNOTATION_CANCEL_REQUESTED,
        names::ANNOTATION_REQUESTED_BY,
        names::ANNOTATION_TRACE_PARENT,
        names::ANNOTATION_TRACE_STATE,
    ];
    trimmed::keep(meta, &[names::LABEL_JOB], &read);
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use std::collections::BTreeMap;
    use streams_api::{BundleReference, JobSpec, ParallelRegionSpec, ProcessingElementSpec};

    const LONG: usize = 200_000;

    /// Keys and the lengths of their values after trimming, of an object on which somebody has put these and more.
    fn kept<K: Resource>(mut object: K, trim: fn(&mut K), keys: &[&str]) -> BTreeMap<String, usize> {
        let all = keys.iter().chain(&["note", names::ANNOTATION_CHUNK_INDEX]);
        let annotations = all.map(|key| ((*key).to_owned(), "x".repeat(LONG))).collect();
        object.meta_mut().annotations = Some(annotations);
        trim(&mut object);
        let annotations = object.meta().annotations.clone().unwrap_or_default();
        annotations.into_iter().map(|(key, value)| (key, value.len())).collect()
    }

    /// The labels, finalizers and owners that are left of an object which somebody has given many of each.
    fn related<K: Resource>(mut object: K, trim: fn(&mut K)) -> (Vec<String>, usize, Vec<String>) {
        let meta = object.meta_mut();
        let mut labels = names::pe_labels("flow", 3);
        labels.extend((0..100_000).map(|number| (format!("l{number}"), String::new())));
        meta.labels = Some(labels);
        meta.finalizers = Some((0..1_000).map(|number| format!("a.test/f{number}")).collect());
        let owner = |number: usize| OwnerReference {
            uid: format!("u{number}"),
            controller: Some(number == 500),
            ..OwnerReference::default()
        };
        meta.owner_references = Some((0..1_000).map(owner).collect());
        trim(&mut object);
        let meta = object.meta();
        let labels = meta.labels.iter().flat_map(|labels| labels.keys().cloned()).collect();
        let owners = meta.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect();
        (labels, meta.finalizers.iter().flatten().count(), owners)
    }

    #[test]
    fn of_labels_those_are_kept_that_the_operator_gives_and_of_owners_the_one_that_controls() {
        let labels = ["app", "streams.ibm.com/job", "streams.ibm.com/pe", "svc"].map(str::to_owned).to_vec();
        let expected = (labels, 0, vec!["u500".to_owned()]);
        assert_eq!(related(Job::new("flow", JobSpec::of(BundleReference::default())), job), expected);
        let region = ParallelRegion::new("flow-0", ParallelRegionSpec::default());
        assert_eq!(related(region, parallel_region), expected);
        let pe = ProcessingElement::new("flow-0", ProcessingElementSpec::default());
        assert_eq!(related(pe, processing_element), expected);
    }

    #[test]
    fn of_annotations_those_are_kept_that_are_read_and_of_long_values_a_digest_unless_they_may_be_long() {
        let digest = "sha256:".len() + 64;
        let lengths = |all: &[(&str, usize)]| -> BTreeMap<String, usize> {
            all.iter().map(|(key, length)| ((*key).to_owned(), *length)).collect()
        };
        let requested = names::ANNOTATION_RESTART_REQUESTED;
        let pe = ProcessingElement::new("flow-0", ProcessingElementSpec::default());
        assert_eq!(kept(pe, processing_element, &[requested]), lengths(&[(requested, digest)]));
        let (widths, of_resize) = (names::ANNOTATION_REQUESTED_WIDTHS, names::ANNOTATION_WIDTH_OF_RESIZE);
        let region = ParallelRegion::new("flow-0", ParallelRegionSpec::default());
        let expected = lengths(&[(widths, LONG), (of_resize, digest)]);
        assert_eq!(kept(region, parallel_region, &[widths, of_resize, requested]), expected);
        let redis = names::ANNOTATION_REDIS_CONFIGURATION;
        let flow = Job::new("flow", JobSpec::of(BundleReference::default()));
        assert_eq!(kept(flow, job, &[redis]), lengths(&[(redis, LONG)]));
        let id = names::ANNOTATION_RUNTIME_ID;
        assert_eq!(kept(Pod::default(), pod, &[id, names::ANNOTATION_TRACE_PARENT]), lengths(&[(id, digest)]));
    }
}
