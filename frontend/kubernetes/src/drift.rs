//! Drift: what others have changed of the fields that a controller sets (rule call-19).
//!
//! A controller says what it wants of an object ([`difference`] calls it *desired*); others may add to the object what
//! they like. So an object agrees if every field that is desired has the desired value, whatever else it has. There is
//! no list of these fields: they are found by walking the desired object.
//!
//! | Place | What agrees |
//! |---|---|
//! | maps and objects | every desired key is there with its value; other keys are of no concern |
//! | the selector of a Service | exactly the desired keys: another one selects other pods |
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
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Fields of `metadata` that name the object.
const NAMES: [&str; 2] = ["name", "namespace"];
/// What of a ConfigMap is not mirrored.
const CONTENT: [&str; 3] = ["data", "binaryData", "immutable"];

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
    let wanted: Vec<String> = wanted.iter().map(port).collect();
    let kept: Vec<Value> = ports.iter().filter(|item| wanted.contains(&port(item))).cloned().collect();
    Ok((kept.len() < ports.len()).then(|| json!({"spec": {"ports": kept}})))
}

/// A merge patch that removes from `existing` the fields that an apply leaves in the spec of a custom resource because
/// others own them. `None` if there are none.
///
/// # Errors
/// As [`difference`].
pub(crate) fn removal_of_others<K: Object>(desired: &K, existing: &K) -> Result<Option<Value>, Error> {
    if !is_custom::<K>() {
        return Ok(None);
    }
    let (desired, existing) = (value(desired)?, value(existing)?);
    Ok(removal(&desired["spec"], &existing["spec"]).map(|spec| json!({ "spec": spec })))
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

impl Comparison<'_> {
    fn object(&self, desired: &Value, existing: &Value) -> Option<String> {
        let fields = desired.as_object()?;
        fields.iter().find_map(|(name, value)| match (name.as_str(), value) {
            ("apiVersion" | "kind" | "status", _) => None,
            ("metadata", Value::Object(metadata)) => {
                let mut metadata = metadata.clone();
                metadata.retain(|name, _| !NAMES.contains(&name.as_str()));
                self.fields("metadata", &metadata, existing.get(name).unwrap_or(&Value::Null), false)
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
                let exact = (self.exact_spec && is_of_spec) || (self.kind == "Service" && path == "spec.selector");
                self.fields(path, fields, existing, exact)
            }
            Value::Array(items) => self.list(path, items, existing.as_array().map_or(&[], Vec::as_slice)),
            _ => (desired != existing).then(|| path.to_owned()),
        }
    }

    fn fields(&self, path: &str, desired: &Map<String, Value>, existing: &Value, exact: bool) -> Option<String> {
        let differs = desired.iter().find_map(|(name, value)| {
            let inner = format!("{path}.{name}");
            self.value(&inner, value, existing.get(name))
        });
        differs.or_else(|| {
            let existing = existing.as_object().filter(|_| exact)?;
            let surplus = existing.iter().find(|(name, value)| !value.is_null() && !desired.contains_key(*name));
            surplus.map(|(name, _)| format!("{path}.{name}"))
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
