//! Trims objects before a mirror keeps them (rule call-6).
//!
//! There is a function for each kind. It removes the fields that no controller reads.

use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod, PodSpec, PodStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, OwnerReference};
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A ConfigMap without its data, which is large. Who has written it last is kept
/// ([`drift`](crate::drift) tells by it whether somebody else did).
pub type ConfigMapMeta = PartialObjectMeta<ConfigMap>;

/// `kubectl apply` keeps a copy of the whole object here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Octets of labels, finalizers and owner references, in JSON, up to which all of them are kept: several times what
/// people and their tools give to an object.
const RELATED_MAX: usize = 4096;
/// Longest annotation of which the value is kept.
const VALUE_MAX: usize = 1024;

fn trim(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// A custom resource.
pub fn custom_resource<K: kube::Resource>(object: &mut K) {
    trim(object.meta_mut());
}

/// Keeps of the metadata of an object what is read of it: these labels and annotations, and no finalizers. Of an
/// annotation whose value is longer than any that is read it is known that it is there. Whoever may make objects of a
/// kind can give each of them hundreds of kilobytes of all that, and a mirror unpacks many at a time.
pub fn keep(meta: &mut ObjectMeta, labels: &[&str], annotations: &[&str]) {
    trim(meta);
    meta.finalizers = None;
    if let Some(all) = &mut meta.labels {
        all.retain(|key, _| labels.contains(&key.as_str()));
    }
    if let Some(all) = &mut meta.annotations {
        all.retain(|key, _| annotations.contains(&key.as_str()));
        all.values_mut().filter(|value| value.len() > VALUE_MAX).for_each(|value| *value = String::new());
    }
}

/// Keeps of what an object is related to what is read, if it is more than [`RELATED_MAX`]: these labels and what
/// controls it, and no finalizers. Whoever may change the object can give it a hundred thousand labels, each of which
/// takes far more in memory than in JSON.
///
/// What people give their objects is kept. When a status is written, the API server compares the whole object that it
/// is sent with its own, and what is missing there is managed by nobody any more: `kubectl apply --server-side` could
/// not remove a label that it has applied.
pub fn relations(meta: &mut ObjectMeta, labels: &[&str]) {
    if related(meta) <= RELATED_MAX {
        return;
    }
    meta.finalizers = None;
    if let Some(all) = &mut meta.labels {
        all.retain(|key, _| labels.contains(&key.as_str()));
    }
    if let Some(all) = &mut meta.owner_references {
        all.retain(|owner| owner.controller == Some(true));
        all.shrink_to_fit();
    }
}

/// About how many octets labels, finalizers and owner references have in JSON.
fn related(meta: &ObjectMeta) -> usize {
    let label = |(key, value): (&String, &String)| key.len() + value.len() + "\"\":\"\",".len();
    let owner = |owner: &OwnerReference| {
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        api_version.len() + kind.len() + name.len() + uid.len() + 60
    };
    let labels = meta.labels.iter().flatten().map(label);
    let owners = meta.owner_references.iter().flatten().map(owner);
    let finalizers = meta.finalizers.iter().flatten().map(|finalizer| finalizer.len() + "\"\",".len());
    labels.chain(owners).chain(finalizers).sum()
}

/// Keeps of the annotations of an object those that are read: of `read` the values that are not longer than any that
/// is read, of longer ones what [`digest_of_long`] makes of them, and of `whole` all values.
pub fn annotations(meta: &mut ObjectMeta, read: &[&str], whole: &[&str]) {
    let Some(all) = &mut meta.annotations else { return };
    all.retain(|key, _| read.contains(&key.as_str()) || whole.contains(&key.as_str()));
    for (_, value) in all.iter_mut().filter(|(key, _)| !whole.contains(&key.as_str())) {
        if let Some(digest) = digest_of_long(value) {
            *value = digest;
        }
    }
}

/// What stands for a value that is longer than any that is kept as it is: another value has another one, and it stands
/// for itself.
pub fn digest_of_long(value: &str) -> Option<String> {
    (value.len() > VALUE_MAX).then(|| format!("sha256:{}", hex::encode(Sha256::digest(value))))
}

/// A custom resource, with who manages this field of its spec, e.g. `f:width`: name and time of the last write of each
/// such client.
pub fn managed<K: kube::Resource>(object: &mut K, field: &'static str) {
    let manages = |entry: &ManagedFieldsEntry| {
        entry
            .fields_v1
            .as_ref()
            .is_some_and(|fields| fields.0.get("f:spec").is_some_and(|spec| spec.get(field).is_some()))
    };
    let bare = |entry: ManagedFieldsEntry| ManagedFieldsEntry {
        manager: entry.manager,
        time: entry.time,
        ..ManagedFieldsEntry::default()
    };
    let meta = object.meta_mut();
    let writers = meta.managed_fields.take();
    trim(meta);
    let writers: Option<Vec<_>> = writers.map(|writers| writers.into_iter().filter(manages).map(bare).collect());
    meta.managed_fields = writers.filter(|writers| !writers.is_empty());
}

/// A ConfigMap.
pub fn config_map(object: &mut ConfigMapMeta) {
    let writers = object.metadata.managed_fields.take();
    trim(&mut object.metadata);
    object.metadata.managed_fields = writers.map(|writers| writers.into_iter().filter_map(of_content).collect());
}

/// Of the fields that a client manages, those of a ConfigMap's content.
fn of_content(writer: ManagedFieldsEntry) -> Option<ManagedFieldsEntry> {
    let Value::Object(mut fields) = writer.fields_v1?.0 else { return None };
    fields.retain(|name, _| matches!(name.as_str(), "f:data" | "f:binaryData" | "f:immutable"));
    let fields_v1 = (!fields.is_empty()).then_some(FieldsV1(Value::Object(fields)))?;
    Some(ManagedFieldsEntry { manager: writer.manager, fields_v1: Some(fields_v1), ..ManagedFieldsEntry::default() })
}

/// A Service, without its status.
pub fn service(object: &mut Service) {
    trim(&mut object.metadata);
    object.status = None;
}

/// A pod: where it runs and how it does.
pub fn pod(object: &mut Pod) {
    trim(&mut object.metadata);
    object.spec = object.spec.take().map(|spec| PodSpec { node_name: spec.node_name, ..PodSpec::default() });
    object.status = object.status.take().map(|status| PodStatus {
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        conditions: status.conditions,
        pod_ip: status.pod_ip,
        // One is that above.
        pod_ips: status.pod_ips.filter(|addresses| addresses.len() > 1),
        start_time: status.start_time,
        init_container_statuses: status.init_container_statuses.map(trim_containers),
        container_statuses: status.container_statuses.map(trim_containers),
        ..PodStatus::default()
    });
}

fn trim_containers(containers: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    containers
        .into_iter()
        .map(|container| ContainerStatus {
            name: container.name,
            ready: container.ready,
            restart_count: container.restart_count,
            state: container.state,
            last_state: container.last_state,
            ..ContainerStatus::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_pod_are_kept_if_it_has_several() {
        let [v4, v6] = ["10.0.0.1", "fd00::1"].map(|address| serde_json::json!({"ip": address}));
        for (listed, kept) in [(vec![v4.clone()], None), (vec![v4.clone(), v6.clone()], Some(vec![v4, v6]))] {
            let status = serde_json::json!({"podIP": "10.0.0.1", "podIPs": listed});
            let mut pod: Pod = serde_json::from_value(serde_json::json!({"metadata": {}, "status": status})).unwrap();
            super::pod(&mut pod);
            let addresses = serde_json::to_value(pod.status.unwrap().pod_ips).unwrap();
            assert_eq!(addresses, serde_json::json!(kept));
        }
    }

    #[test]
    fn of_a_pod_only_what_is_read_is_kept() {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "p", "managedFields": [{"manager": "m"}], "labels": {"a": "b"},
                "annotations": {LAST_APPLIED: "{}", "kept": "yes"},
            },
            "spec": {"nodeName": "n", "containers": [{"name": "pe", "image": "i"}]},
            "status": {
                "phase": "Failed", "podIP": "10.0.0.1", "hostIP": "1.2.3.4",
                "containerStatuses": [{
                    "name": "pe", "image": "i", "imageID": "x", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 3}},
                }],
            },
        }))
        .unwrap();
        super::pod(&mut pod);
        let trimmed = serde_json::to_value(pod).unwrap();
        let expected = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"kept": "yes"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {
                "phase": "Failed", "podIP": "10.0.0.1",
                "containerStatuses": [{
                    "name": "pe", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 3}},
                }],
            },
        });
        assert_eq!(trimmed, expected);
    }

    #[test]
    fn of_labels_and_annotations_those_are_kept_that_are_read_and_of_long_ones_that_they_are_there() {
        let mut meta: ObjectMeta = serde_json::from_value(serde_json::json!({
            "name": "o", "finalizers": ["a/b"], "managedFields": [{"manager": "m"}],
            "labels": {"read": "x", "other": "y"},
            "annotations": {"read": "z".repeat(VALUE_MAX), "long": "z".repeat(VALUE_MAX + 1), "other": "y"},
        }))
        .unwrap();
        keep(&mut meta, &["read"], &["read", "long"]);
        let expected = serde_json::json!({
            "name": "o", "labels": {"read": "x"}, "annotations": {"read": "z".repeat(VALUE_MAX), "long": ""},
        });
        assert_eq!(serde_json::to_value(meta).unwrap(), expected);
    }

    #[test]
    fn of_relations_the_labels_that_are_read_and_the_controller_are_kept() {
        let owner = |uid: &str, controls: bool| {
            let of_kind = serde_json::json!({"apiVersion": "v1", "kind": "K", "name": "o", "uid": uid});
            let mut owner: OwnerReference = serde_json::from_value(of_kind).unwrap();
            owner.controller = Some(controls);
            owner
        };
        let few = serde_json::json!({
            "name": "o", "finalizers": ["a/b"], "labels": {"read": "x", "other": "y"}, "annotations": {"other": "y"},
            "ownerReferences": [owner("a", false), owner("b", true), owner("c", false)],
        });
        let trimmed = |meta: serde_json::Value| {
            let mut meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            relations(&mut meta, &["read"]);
            serde_json::to_value(meta).unwrap()
        };
        assert_eq!(trimmed(few.clone()), few);
        let expected = serde_json::json!({
            "name": "o", "labels": {"read": "x"}, "annotations": {"other": "y"}, "ownerReferences": [owner("b", true)],
        });
        let long = "l".repeat(RELATED_MAX);
        for (field, entry) in [
            ("finalizers", serde_json::json!([long])),
            ("labels", serde_json::json!({"read": "x", long.as_str(): ""})),
            ("ownerReferences", serde_json::json!([owner("b", true), owner(&long, false)])),
        ] {
            let mut many = few.clone();
            many[field] = entry;
            assert_eq!(trimmed(many), expected, "{field}");
        }
    }

    #[test]
    fn of_annotations_those_are_kept_that_are_read_and_of_long_ones_a_digest_or_all() {
        let short = "s".repeat(VALUE_MAX);
        let long = "l".repeat(VALUE_MAX + 1);
        let digest = digest_of_long(&long).unwrap();
        assert!(digest_of_long(&short).is_none() && digest_of_long(&digest).is_none());
        let mut meta: ObjectMeta = serde_json::from_value(serde_json::json!({
            "name": "o", "finalizers": ["a/b"], "labels": {"other": "y"},
            "annotations": {"short": short, "long": long, "whole": long, "other": "y"},
        }))
        .unwrap();
        annotations(&mut meta, &["short", "long"], &["whole"]);
        let expected = serde_json::json!({
            "name": "o", "finalizers": ["a/b"], "labels": {"other": "y"},
            "annotations": {"short": short, "long": digest, "whole": long},
        });
        assert_eq!(serde_json::to_value(meta).unwrap(), expected);
    }

    #[test]
    fn of_who_manages_a_field_name_and_time_are_kept() {
        let service = |fields: serde_json::Value| {
            let wire = serde_json::json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "s", "managedFields": [
                    {"manager": "a", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {}}},
                    {"manager": "b", "time": "2026-01-02T03:04:05Z", "fieldsV1": fields, "subresource": "scale"},
                ]},
            });
            let mut service: Service = serde_json::from_value(wire).unwrap();
            super::managed(&mut service, "f:type");
            service.metadata.managed_fields
        };
        // fields of the second client -> whether it is kept
        let table = [
            (serde_json::json!({"f:spec": {"f:type": {}, "f:ports": {}}}), true),
            (serde_json::json!({"f:spec": {"f:ports": {}}}), false),
            (serde_json::json!({"f:status": {"f:type": {}}}), false),
            (serde_json::json!(["f:spec"]), false),
        ];
        for (fields, is_kept) in table {
            let kept = service(fields.clone());
            let expected = serde_json::json!([{"manager": "b", "time": "2026-01-02T03:04:05Z"}]);
            assert_eq!(kept.map(|kept| serde_json::to_value(kept).unwrap()), is_kept.then_some(expected), "{fields}");
        }
    }
}
