//! Drift: what others have changed of the fields that a controller sets (rule call-19).
//!
//! A controller says what it wants of an object ([`difference`] calls it *desired*); others may add to the object what
//! they like. So an object agrees if every field that is desired has the desired value, whatever else it has. There is
//! no list of these fields: they are found by walking the desired object.
//!
//! | Place | What agrees |
//! |---|---|
//! | maps and objects | every desired key is there with its value; other keys are of no concern |
//! | the selector of a Service | exactly the desired keys, or none at all: another one selects other pods |
//! | the external name of a Service | exactly the desired one, or none: it would stand for another host |
//! | the external addresses of a Service | exactly the desired ones, or none: it could be reached from elsewhere |
//! | the spec of a custom resource | exactly the desired fields: it is the controller's alone |
//! | owner references, finalizers | every desired item is there; other items are of no concern |
//! | ports of a Service | exactly the desired items, told by number and protocol, each with its desired fields |
//! | other lists | the same items in the same order, each with its desired fields |
//! | content of a ConfigMap | the controller has written it last |
//!
//! The content of ConfigMaps is not mirrored (rule call-6). Its managed fields are: whoever changes a field takes it
//! over, so a key that the controller owns has the value that the controller wrote.
//!
//! Knows: how the API server merges objects of Kubernetes' own kinds, and how to tell others from them. Must not know:
//! any custom resource.

use super::cluster::{Manager, Object};
use super::error::{Error, is_custom};
use kube::core::ObjectMeta;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Fields of `metadata` that name the object.
const NAMES: [&str; 2] = ["name", "namespace"];
/// What of a ConfigMap is not mirrored.
const CONTENT: [&str; 3] = ["data", "binaryData", "immutable"];
/// What is removed from the spec of a Service that is to have none.
const NOT_OF_OTHERS: [&str; 3] = ["selector", "externalName", "externalIPs"];
/// What the API server lets nobody change of a Service, or not from every value to every other.
const OF_A_NEW_SERVICE: [&str; 2] = ["type", "clusterIP"];

/// The first field that `desired` sets and `existing`, the object as it is mirrored, has otherwise. `None` if they
/// agree.
///
/// # Errors
/// An object cannot be written as JSON, which is not possible for the kinds of mirrors.
pub fn difference<K: Object, M: Serialize>(
    Manager(manager): Manager,
    desired: &K,
    existing: &M,
) -> Result<Option<String>, Error> {
    let desired = value(desired)?;
    let existing = value(existing)?;
    let exact_spec = is_custom::<K>();
    Ok(Comparison { kind: &K::kind(&()), manager, exact_spec }.object(&desired, &existing))
}

/// [`difference`], of fields that are written as JSON: others may set the other ones.
///
/// # Errors
/// As [`difference`].
pub fn difference_of_fields<K: Object, M: Serialize>(desired: &Value, existing: &M) -> Result<Option<String>, Error> {
    let existing = value(existing)?;
    Ok(Comparison { kind: &K::kind(&()), manager: "", exact_spec: false }.object(desired, &existing))
}

/// A merge patch that removes from `existing` the items that an apply would leave in a list that is to have exactly the
/// desired ones: ports of a Service. `None` if there are none.
///
/// # Errors
/// As [`difference`].
pub(crate) fn removal_of_surplus<K: Object, M: Serialize>(desired: &K, existing: &M) -> Result<Option<Value>, Error> {
    if K::kind(&()) != "Service" {
        return Ok(None);
    }
    let (desired, existing) = (value(desired)?, value(existing)?);
    let Some(wanted) = desired["spec"]["ports"].as_array() else { return Ok(None) };
    let ports = existing["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let wanted_keys: Vec<String> = wanted.iter().map(port).collect();
    let mut kept: Vec<Value> = ports.iter().filter(|item| wanted_keys.contains(&port(item))).cloned().collect();
    let has_surplus = kept.len() < ports.len();
    if kept.is_empty() {
        // The API server refuses a Service with an address that has no port at all.
        kept.clone_from(wanted);
    }
    Ok(has_surplus.then(|| json!({"spec": {"ports": kept}})))
}

/// A merge patch that removes from `existing` what an apply leaves: in the spec of a custom resource or of a Service
/// the fields that others own, and annotations that this manager has given to the object at its creation and wants no
/// more. `None` if there are none.
///
/// # Errors
/// As [`difference`].
pub(crate) fn removal_after_apply<K: Object>(
    manager: Manager,
    desired: &K,
    existing: &K,
) -> Result<Option<Value>, Error> {
    let spec = removal_of_others(desired, existing)?;
    let annotations = outlived_annotations(manager, desired.meta(), existing.meta());
    if annotations.is_empty() {
        return Ok(spec);
    }
    let mut patch = spec.unwrap_or_else(|| json!({}));
    patch["metadata"] = json!({ "annotations": annotations });
    Ok(Some(patch))
}

/// Annotations that are not desired, and that this manager owns by another write than an apply: an apply removes what
/// an apply has set. Those of users belong to other managers. Each is null.
fn outlived_annotations(
    Manager(manager): Manager,
    desired: &ObjectMeta,
    existing: &ObjectMeta,
) -> BTreeMap<String, Value> {
    let entries = existing.managed_fields.iter().flatten();
    let ours = entries
        .filter(|entry| entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Update"));
    let fields = ours.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer("/f:metadata/f:annotations")?.as_object());
    let keys = fields.flat_map(Map::keys).filter_map(|field| field.strip_prefix("f:"));
    let has = |meta: &ObjectMeta, key: &str| meta.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    keys.filter(|key| has(existing, key) && !has(desired, key)).map(|key| (key.to_owned(), Value::Null)).collect()
}

/// A merge patch that removes from `existing` the fields that an apply leaves in the spec of a custom resource or of a
/// Service because others own them. `None` if there are none.
///
/// # Errors
/// As [`difference`].
fn removal_of_others<K: Object>(desired: &K, existing: &K) -> Result<Option<Value>, Error> {
    let is_service = K::kind(&()) == "Service";
    if !is_service && !is_custom::<K>() {
        return Ok(None);
    }
    let (desired, existing) = (value(desired)?, value(existing)?);
    let (desired, mut existing) = (&desired["spec"], existing["spec"].clone());
    if is_service && let Some(fields) = existing.as_object_mut() {
        fields.retain(|name, _| NOT_OF_OTHERS.contains(&name.as_str()) && desired[name].is_null());
    }
    Ok(removal(desired, &existing).map(|spec| json!({ "spec": spec })))
}

/// The object as it is made again if others have made `existing` such that it cannot become `desired`: an immutable
/// ConfigMap or Secret that is to be another one, a Service of another type or with another address. It keeps what
/// others have added of metadata and content. `None`: nothing of the kind keeps it from being changed.
///
/// # Errors
/// As [`difference`].
pub(crate) fn made_again<K: Object>(desired: &K, existing: &K) -> Result<Option<K>, Error> {
    let (mut object, had) = (value(desired)?, value(existing)?);
    let cannot_change = match &*K::kind(&()) {
        "ConfigMap" | "Secret" => had["immutable"] == json!(true) && object["immutable"] != json!(true),
        "Service" => OF_A_NEW_SERVICE.iter().any(|field| {
            let wanted = &object["spec"][field];
            !wanted.is_null() && *wanted != had["spec"][field]
        }),
        _ => false,
    };
    if !cannot_change {
        return Ok(None);
    }
    for part in ["data", "binaryData"] {
        let Some(content) = had[part].as_object() else { continue };
        if object[part].is_null() {
            object[part] = json!({});
        }
        let Some(wanted) = object[part].as_object_mut() else { continue };
        for (key, value) in content {
            wanted.entry(key.as_str()).or_insert_with(|| value.clone());
        }
    }
    let mut again: K = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    *again.meta_mut() = with_additions(desired.meta(), existing.meta());
    Ok(Some(again))
}

/// The desired metadata with what others have added.
fn with_additions(desired: &ObjectMeta, existing: &ObjectMeta) -> ObjectMeta {
    type Texts = Option<BTreeMap<String, String>>;
    fn texts(desired: &Texts, existing: &Texts) -> Texts {
        let mut all = existing.clone().unwrap_or_default();
        all.extend(desired.clone().unwrap_or_default());
        Some(all).filter(|all| !all.is_empty())
    }
    fn items<T: Clone>(
        desired: &Option<Vec<T>>,
        existing: &Option<Vec<T>>,
        same: fn(&T, &T) -> bool,
    ) -> Option<Vec<T>> {
        let mut all = desired.clone().unwrap_or_default();
        for item in existing.iter().flatten() {
            if !all.iter().any(|wanted| same(wanted, item)) {
                all.push(item.clone());
            }
        }
        Some(all).filter(|all| !all.is_empty())
    }
    ObjectMeta {
        labels: texts(&desired.labels, &existing.labels),
        annotations: texts(&desired.annotations, &existing.annotations),
        owner_references: items(&desired.owner_references, &existing.owner_references, |a, b| a.uid == b.uid),
        finalizers: items(&desired.finalizers, &existing.finalizers, |a, b| a == b),
        ..desired.clone()
    }
}

/// A merge patch that removes what only `existing` has; lists are values.
fn removal(desired: &Value, existing: &Value) -> Option<Value> {
    let (desired, existing) = (desired.as_object()?, existing.as_object()?);
    let removed = existing.iter().filter_map(|(name, value)| match desired.get(name) {
        None => (!value.is_null()).then(|| (name.clone(), Value::Null)),
        Some(desired) => Some((name.clone(), removal(desired, value)?)),
    });
    let removed: Map<String, Value> = removed.collect();
    (!removed.is_empty()).then_some(Value::Object(removed))
}

/// The first field of the spec of a custom resource that `sent` sets and the API server's answer does not have: the
/// definition of the kind does not declare it, and the API server has dropped it (rule call-30). `None` for the kinds
/// of Kubernetes itself.
///
/// # Errors
/// As [`difference`].
pub fn dropped<K: Object>(sent: &K, answer: &K) -> Result<Option<String>, Error> {
    dropped_of("spec", sent, answer)
}

/// [`dropped`], of the status.
///
/// # Errors
/// As [`difference`].
pub(crate) fn dropped_of_status<K: Object>(sent: &K, answer: &K) -> Result<Option<String>, Error> {
    dropped_of("status", sent, answer)
}

fn dropped_of<K: Object>(part: &str, sent: &K, answer: &K) -> Result<Option<String>, Error> {
    if !is_custom::<K>() {
        return Ok(None);
    }
    let (sent, answer) = (value(sent)?, value(answer)?);
    Ok(missing(part, &sent[part], &answer[part]))
}

/// The first field that `sent` has and `answer` lacks. Values that differ are of no concern: somebody may have written
/// the object since. The depth is that of a type.
fn missing(path: &str, sent: &Value, answer: &Value) -> Option<String> {
    match (sent, answer) {
        (Value::Null, _) => None,
        (_, Value::Null) => Some(path.to_owned()),
        (Value::Object(sent), Value::Object(answer)) => sent.iter().find_map(|(name, value)| {
            missing(&format!("{path}.{name}"), value, answer.get(name).unwrap_or(&Value::Null))
        }),
        // Other items are other values.
        (Value::Array(sent), Value::Array(answer)) if sent.len() == answer.len() => {
            sent.iter().zip(answer).find_map(|(sent, answer)| missing(&format!("{path}[]"), sent, answer))
        }
        _ => None,
    }
}

fn value<T: Serialize>(object: &T) -> Result<Value, Error> {
    Ok(serde_json::to_value(object).map_err(kube::Error::SerdeError)?)
}

struct Comparison<'a> {
    kind: &'a str,
    manager: &'a str,
    /// In the spec is nothing but what is desired.
    exact_spec: bool,
}

/// Which fields of an object differ although nothing is desired of them.
#[derive(Clone, Copy)]
enum Surplus {
    None,
    Any,
    Of(&'static [&'static str]),
}

impl Surplus {
    fn has(self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Of(names) => names.contains(&name),
        }
    }
}

impl Comparison<'_> {
    fn object(&self, desired: &Value, existing: &Value) -> Option<String> {
        let fields = desired.as_object()?;
        fields.iter().find_map(|(name, value)| match (name.as_str(), value) {
            ("apiVersion" | "kind" | "status", _) => None,
            ("metadata", Value::Object(metadata)) => {
                let mut metadata = metadata.clone();
                metadata.retain(|name, _| !NAMES.contains(&name.as_str()));
                self.fields("metadata", &metadata, existing.get(name).unwrap_or(&Value::Null), Surplus::None)
            }
            (name, value) if self.kind == "ConfigMap" && CONTENT.contains(&name) => {
                self.content(name, value, &existing["metadata"]["managedFields"])
            }
            (name, value) => self.value(name, value, existing.get(name)),
        })
    }

    /// Compares what is at `path`.
    fn value(&self, path: &str, desired: &Value, existing: Option<&Value>) -> Option<String> {
        let existing = existing.unwrap_or(&Value::Null);
        match desired {
            Value::Null => None,
            Value::Object(fields) => {
                let is_of_spec = path == "spec" || path.starts_with("spec.");
                let surplus = match (self.kind, path) {
                    _ if self.exact_spec && is_of_spec => Surplus::Any,
                    ("Service", "spec") => Surplus::Of(&NOT_OF_OTHERS),
                    ("Service", "spec.selector") => Surplus::Any,
                    _ => Surplus::None,
                };
                self.fields(path, fields, existing, surplus)
            }
            Value::Array(items) => self.list(path, items, existing.as_array().map_or(&[], Vec::as_slice)),
            _ => (desired != existing).then(|| path.to_owned()),
        }
    }

    fn fields(&self, path: &str, desired: &Map<String, Value>, existing: &Value, surplus: Surplus) -> Option<String> {
        let differs = desired.iter().find_map(|(name, value)| {
            let inner = format!("{path}.{name}");
            self.value(&inner, value, existing.get(name))
        });
        differs.or_else(|| {
            let is_surplus =
                |name: &str, value: &Value| surplus.has(name) && !value.is_null() && !desired.contains_key(name);
            let found = existing.as_object()?.iter().find(|(name, value)| is_surplus(name, value));
            found.map(|(name, _)| format!("{path}.{name}"))
        })
    }

    fn list(&self, path: &str, desired: &[Value], existing: &[Value]) -> Option<String> {
        let (key, exact): (fn(&Value) -> String, bool) = match path {
            "metadata.ownerReferences" => (|item| item["uid"].to_string(), false),
            "metadata.finalizers" => (Value::to_string, false),
            "spec.ports" if self.kind == "Service" => (port, true),
            _ => {
                let differs = desired
                    .iter()
                    .enumerate()
                    .find_map(|(index, value)| self.value(&format!("{path}[{index}]"), value, existing.get(index)));
                return differs.or_else(|| (desired.len() != existing.len()).then(|| path.to_owned()));
            }
        };
        let differs = desired.iter().find_map(|value| {
            let found = existing.iter().find(|item| key(item) == key(value));
            self.value(&format!("{path}[{}]", key(value).trim_matches('"')), value, found)
        });
        differs.or_else(|| {
            let surplus = |item: &&Value| !desired.iter().any(|value| key(value) == key(item));
            existing.iter().filter(|_| exact).find(surplus).map(|item| format!("{path}[{}]", key(item)))
        })
    }

    /// Compares a part of a ConfigMap's content by who has written it.
    fn content(&self, part: &str, desired: &Value, managed_fields: &Value) -> Option<String> {
        let entries = managed_fields.as_array().map_or(&[][..], Vec::as_slice);
        let ours = || entries.iter().filter(|entry| entry["manager"] == json!(self.manager));
        let part_field = format!("f:{part}");
        let owns = |path: &[&str]| {
            ours().any(|entry| path.iter().try_fold(&entry["fieldsV1"], |field, name| field.get(name)).is_some())
        };
        match desired {
            Value::Null => None,
            Value::Object(keys) => {
                let lost = keys.keys().find(|key| !owns(&[&part_field, &format!("f:{key}")]));
                lost.map(|key| format!("{part}.{key}"))
            }
            _ => (!owns(&[&part_field])).then(|| part.to_owned()),
        }
    }
}

/// What tells a port of a Service from the others.
fn port(item: &Value) -> String {
    format!("{}/{}", item["port"], item["protocol"].as_str().unwrap_or("TCP"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Service};

    const US: Manager = Manager("us");

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    fn desired() -> Value {
        json!({
            "metadata": {
                "name": "s", "labels": {"app": "x"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u", "controller": true}],
            },
            "spec": {
                "clusterIP": "None", "selector": {"app": "x"},
                "ports": [{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 1, "protocol": "UDP"}],
            },
        })
    }

    /// The desired object after a merge patch.
    fn changed(patch: &Value) -> Service {
        fn merge(object: &mut Value, patch: &Value) {
            let Value::Object(fields) = patch else {
                object.clone_from(patch);
                return;
            };
            if !object.is_object() {
                *object = json!({});
            }
            for (name, value) in fields {
                merge(&mut object[name], value);
            }
        }
        let mut object = desired();
        merge(&mut object, patch);
        service(object)
    }

    #[test]
    fn what_is_desired_must_be_there_and_what_others_add_may() {
        let ours = json!({"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u", "controller": true});
        let (a, b) = (
            json!({"name": "a", "port": 1, "protocol": "TCP", "targetPort": 1}),
            json!({"name": "b", "port": 1, "protocol": "UDP", "targetPort": 1}),
        );
        // what others did -> the field that differs
        let table = [
            (json!({}), None),
            (json!({"metadata": {"labels": {"mesh": "on"}, "annotations": {"note": "x"}}}), None),
            (json!({"metadata": {"finalizers": ["x/y"]}}), None),
            (
                json!({"metadata": {"ownerReferences": [ours, {"apiVersion": "v1", "kind": "K", "name": "p", "uid": "v"}]}}),
                None,
            ),
            (json!({"spec": {"clusterIPs": ["None"], "type": "ClusterIP", "ipFamilies": ["IPv4"]}}), None),
            (json!({"spec": {"ports": [b, a]}}), None),
            (json!({"metadata": {"labels": {"app": "y"}}}), Some("metadata.labels.app")),
            (json!({"metadata": {"labels": null}}), Some("metadata.labels.app")),
            (json!({"metadata": {"ownerReferences": null}}), Some("metadata.ownerReferences[u].apiVersion")),
            (json!({"spec": {"selector": {"app": "y"}}}), Some("spec.selector.app")),
            (json!({"spec": {"selector": {"more": "y"}}}), Some("spec.selector.more")),
            (json!({"spec": {"clusterIP": null}}), Some("spec.clusterIP")),
            (json!({"spec": {"ports": [a]}}), Some("spec.ports[1/UDP].name")),
            (json!({"spec": {"ports": [a, b, {"name": "c", "port": 2}]}}), Some("spec.ports[2/TCP]")),
            (
                json!({"spec": {"ports": [{"name": "z", "port": 1, "protocol": "TCP"}, b]}}),
                Some("spec.ports[1/TCP].name"),
            ),
        ];
        for (patch, expected) in table {
            let found = difference(US, &service(desired()), &changed(&patch)).unwrap();
            assert_eq!(found.as_deref(), expected, "{patch}");
        }
    }

    #[test]
    fn only_ports_that_others_added_are_removed() {
        let surplus = |ports: Value| {
            let existing = changed(&json!({"spec": {"ports": ports}}));
            removal_of_surplus(&service(desired()), &existing).unwrap()
        };
        let (ours, other) = (json!({"name": "z", "port": 1, "protocol": "TCP"}), json!({"name": "c", "port": 2}));
        assert_eq!(surplus(json!([ours])), None);
        assert_eq!(surplus(json!([other, ours])), Some(json!({"spec": {"ports": [ours]}})));
        // None of them is left, and a Service with an address has ports.
        assert_eq!(surplus(json!([other])), Some(json!({"spec": {"ports": desired()["spec"]["ports"]}})));
    }

    #[test]
    fn a_service_selects_nothing_and_stands_for_nobody_else_unless_that_is_desired() {
        let of = |spec: Value| service(json!({"metadata": {"name": "s"}, "spec": spec}));
        let selector = json!({"app": "x"});
        // desired, existing -> field that differs, what is removed after the apply
        let table = [
            (json!({"clusterIP": "None"}), json!({"clusterIP": "None"}), None, None),
            (
                json!({"clusterIP": "None"}),
                json!({"clusterIP": "None", "selector": selector}),
                Some("spec.selector"),
                Some(json!({"spec": {"selector": null}})),
            ),
            (
                json!({"type": "ClusterIP"}),
                json!({"type": "ClusterIP", "externalName": "h", "internalTrafficPolicy": "Local"}),
                Some("spec.externalName"),
                Some(json!({"spec": {"externalName": null}})),
            ),
            (
                json!({"type": "ClusterIP"}),
                json!({"type": "ClusterIP", "externalIPs": ["192.0.2.1"]}),
                Some("spec.externalIPs"),
                Some(json!({"spec": {"externalIPs": null}})),
            ),
            (
                json!({"type": "ClusterIP", "internalTrafficPolicy": "Cluster"}),
                json!({"type": "ClusterIP", "internalTrafficPolicy": "Local"}),
                Some("spec.internalTrafficPolicy"),
                None,
            ),
            (
                json!({"type": "ClusterIP"}),
                json!({"type": "ExternalName", "externalName": "h", "selector": selector}),
                Some("spec.type"),
                Some(json!({"spec": {"externalName": null, "selector": null}})),
            ),
            // An apply replaces a selector as a whole.
            (json!({"selector": selector}), json!({"selector": {"app": "x", "b": "y"}}), Some("spec.selector.b"), None),
        ];
        for (desired, existing, field, removed) in table {
            let (desired, existing) = (of(desired), of(existing));
            assert_eq!(difference(US, &desired, &existing).unwrap().as_deref(), field, "{existing:?}");
            assert_eq!(removal_of_others(&desired, &existing).unwrap(), removed, "{existing:?}");
        }
    }

    #[test]
    fn annotations_that_an_object_was_created_with_go_when_they_are_not_desired_any_more() {
        let entry = |manager: &str, operation: &str, keys: &[&str]| {
            let fields: Map<String, Value> = keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
            json!({
                "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:annotations": fields}},
            })
        };
        let annotations = json!({"kept": "1", "x/old": "1", "of-user": "1"});
        // who has set which annotation -> those that are removed
        let table = [
            (json!([entry("us", "Update", &["kept", "x/old"]), entry("us", "Apply", &["kept"])]), Some("x/old")),
            (json!([entry("us", "Update", &[".", "kept", "gone"])]), None),
            (json!([entry("us", "Apply", &["x/old"])]), None),
            (json!([entry("kubectl", "Update", &["of-user"]), entry("us", "Update", &["kept"])]), None),
            (json!([]), None),
        ];
        for (managed_fields, expected) in table {
            let metadata = json!({"name": "s", "annotations": annotations, "managedFields": managed_fields});
            let existing = service(json!({"metadata": metadata, "spec": {"type": "ClusterIP"}}));
            let desired = service(json!({
                "metadata": {"name": "s", "annotations": {"kept": "1"}}, "spec": {"type": "ClusterIP"},
            }));
            let patch = removal_after_apply(US, &desired, &existing).unwrap();
            let expected = expected.map(|key| json!({"metadata": {"annotations": {key: null}}}));
            assert_eq!(patch, expected, "{managed_fields}");
        }
    }

    #[test]
    fn what_cannot_be_changed_any_more_is_made_again_with_what_others_have_added() {
        let map = |fields: Value| -> ConfigMap { serde_json::from_value(fields).unwrap() };
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "K", "name": "o", "uid": uid});
        let desired = map(json!({
            "metadata": {"name": "m", "namespace": "n", "labels": {"app": "x"}, "ownerReferences": [owner("u")]},
            "data": {"a": "1"}, "immutable": false,
        }));
        let existing = |immutable: Value| {
            map(json!({
                "metadata": {
                    "name": "m", "namespace": "n", "uid": "1", "resourceVersion": "7",
                    "labels": {"app": "y", "mesh": "on"}, "annotations": {"note": "mine"},
                    "ownerReferences": [owner("u"), owner("v")],
                },
                "data": {"a": "2", "b": "3"}, "immutable": immutable,
            }))
        };
        let again = map(json!({
            "metadata": {
                "name": "m", "namespace": "n", "labels": {"app": "x", "mesh": "on"}, "annotations": {"note": "mine"},
                "ownerReferences": [owner("u"), owner("v")],
            },
            "data": {"a": "1", "b": "3"}, "immutable": false,
        }));
        assert_eq!(made_again(&desired, &existing(json!(true))).unwrap(), Some(again));
        for immutable in [json!(false), json!(null)] {
            assert_eq!(made_again(&desired, &existing(immutable)).unwrap(), None);
        }
        let never_changes = ConfigMap { immutable: Some(true), ..desired };
        assert_eq!(made_again(&never_changes, &existing(json!(true))).unwrap(), None);

        let headless = |more: Value| {
            let mut spec = json!({"clusterIP": "None", "type": "ClusterIP"});
            spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
            service(json!({"metadata": {"name": "s"}, "spec": spec}))
        };
        let desired = headless(json!({}));
        for (existing, is_made) in [
            (json!({"ipFamilies": ["IPv4"]}), false),
            (json!({"clusterIP": "10.0.0.1"}), true),
            (json!({"clusterIP": null, "type": "ExternalName"}), true),
        ] {
            let again = made_again(&desired, &headless(existing.clone())).unwrap();
            assert_eq!(again, is_made.then(|| desired.clone()), "{existing}");
        }
    }

    fn map(managed_fields: Value) -> kube::core::PartialObjectMeta<ConfigMap> {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "managedFields": managed_fields},
        }))
        .unwrap()
    }

    #[test]
    fn the_content_of_a_config_map_is_as_desired_while_its_keys_are_ours() {
        let desired: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": "m"}, "data": {"a": "1"}, "immutable": true,
        }))
        .unwrap();
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let ours = json!({"f:data": {".": {}, "f:a": {}}, "f:immutable": {}});
        // managed fields -> field that differs
        let table = [
            (json!([entry("us", ours.clone())]), None),
            (json!([entry("them", json!({"f:metadata": {}})), entry("us", ours.clone())]), None),
            // Somebody added a key.
            (json!([entry("us", ours.clone()), entry("them", json!({"f:data": {"f:b": {}}}))]), None),
            (
                json!([entry("them", json!({"f:data": {"f:a": {}}})), entry("us", json!({"f:immutable": {}}))]),
                Some("data.a"),
            ),
            (json!([entry("us", json!({"f:data": {"f:a": {}}}))]), Some("immutable")),
            (json!([entry("them", ours)]), Some("data.a")),
            (json!([]), Some("data.a")),
        ];
        for (managed_fields, field) in table {
            let existing = map(managed_fields.clone());
            assert_eq!(difference(US, &desired, &existing).unwrap().as_deref(), field, "{managed_fields}");
        }
    }
}
