//! Creating, replacing, patching and applying.

use crate::error::{already_exists, bad_request, conflict, has_version, invalid, not_declared, not_found};
use crate::fields::{self, OF_THE_SYSTEM, Owners, Path, Writer, leaves, normal};
use crate::kind::Id;
use crate::state::{State, Stored, UndeclaredField};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use streams_kubernetes::cluster::Conflicts;

/// Name of the manager of somebody who does not name one.
pub(crate) const UNNAMED: &str = "unknown";

pub(crate) fn updates(manager: &str, status: bool) -> Writer {
    Writer { manager: manager.to_owned(), applies: false, status }
}

impl State {
    pub(crate) fn existing(&self, id: &Id) -> Result<Stored, kube::Error> {
        self.objects.get(id).cloned().ok_or_else(|| not_found(id))
    }

    pub(crate) fn create(&mut self, id: &Id, manager: &str, object: Value) -> Result<Value, kube::Error> {
        let object = normal(&id.kind, object);
        if !object["metadata"]["resourceVersion"].is_null() {
            return Err(has_version(id));
        }
        if self.objects.contains_key(id) {
            return Err(already_exists(id));
        }
        let object = self.new_object(id, object);
        let mut owners = Owners::default();
        owners.change(updates(manager, false), &id.kind, &json!({}), &object);
        Ok(self.commit(id, None, Stored { object, owners }))
    }

    /// What an object is like when it has just been created.
    fn new_object(&mut self, id: &Id, mut object: Value) -> Value {
        let mut metadata = metadata_of(&object);
        for name in OF_THE_SYSTEM {
            metadata.remove(name);
        }
        metadata.insert("name".to_owned(), json!(&*id.key.name));
        if !id.key.namespace.is_empty() {
            metadata.insert("namespace".to_owned(), json!(&*id.key.namespace));
        }
        metadata.insert("uid".to_owned(), json!(self.next_uid()));
        metadata.insert("creationTimestamp".to_owned(), self.time(0));
        if id.kind.counts_generations() {
            metadata.insert("generation".to_owned(), json!(1));
        }
        object["metadata"] = Value::Object(metadata);
        if id.kind.has_status() {
            set(&mut object, "status", if id.kind.is_pod() { json!({"phase": "Pending"}) } else { Value::Null });
        }
        object
    }

    pub(crate) fn replace(&mut self, id: &Id, manager: &str, object: Value) -> Result<Value, kube::Error> {
        let before = self.existing(id)?;
        let object = normal(&id.kind, object);
        if !is_of(&before.object, &object) {
            return Err(conflict(id, "the UID in the precondition is that of another object"));
        }
        check_version(id, &before.object, &object)?;
        if id.kind.is_custom() && object["metadata"]["resourceVersion"].is_null() {
            return Err(invalid(id, "metadata.resourceVersion: must be specified for an update"));
        }
        let after = with_system_fields(id, &before.object, object);
        self.update(id, manager, before, after, false)
    }

    pub(crate) fn replace_status(&mut self, id: &Id, manager: &str, object: Value) -> Result<Value, kube::Error> {
        let before = self.existing(id)?;
        if !id.kind.has_status() {
            return Err(not_found(id));
        }
        let object = normal(&id.kind, object);
        if !is_of(&before.object, &object) {
            return Err(conflict(id, "the UID in the precondition is that of another object"));
        }
        check_version(id, &before.object, &object)?;
        if id.kind.is_custom() && object["metadata"]["resourceVersion"].is_null() {
            return Err(invalid(id, "metadata.resourceVersion: must be specified for an update"));
        }
        let mut after = before.object.clone();
        set(&mut after, "status", object["status"].clone());
        self.update(id, manager, before, after, true)
    }

    pub(crate) fn merge(&mut self, id: &Id, manager: &str, patch: &Value) -> Result<Value, kube::Error> {
        let before = self.existing(id)?;
        if !is_of(&before.object, patch) {
            return Err(invalid(id, "metadata.uid: field is immutable"));
        }
        check_version(id, &before.object, patch)?;
        let mut after = before.object.clone();
        fields::patch(&mut after, patch);
        let after = with_system_fields(id, &before.object, after);
        self.update(id, manager, before, after, false)
    }

    fn update(
        &mut self,
        id: &Id,
        manager: &str,
        before: Stored,
        object: Value,
        status: bool,
    ) -> Result<Value, kube::Error> {
        let mut owners = before.owners.clone();
        owners.change(updates(manager, status), &id.kind, &before.object, &object);
        check(id, &before.object, &object)?;
        Ok(self.commit(id, Some(&before), Stored { object, owners }))
    }

    /// Server-side apply.
    pub(crate) fn apply(
        &mut self,
        id: &Id,
        manager: &str,
        config: Value,
        conflicts: Conflicts,
    ) -> Result<Value, kube::Error> {
        let mut config = normal(&id.kind, config);
        if !config["metadata"]["managedFields"].is_null() {
            return Err(bad_request(id, "metadata.managedFields must be nil"));
        }
        let sets =
            |field: &&UndeclaredField| !field.path.iter().fold(&config, |value, name| &value[name.as_str()]).is_null();
        let undeclared = self.undeclared.get(&id.kind).into_iter().flatten();
        if let Some(field) = undeclared.filter(|field| field.refuses).find(sets) {
            return Err(not_declared(id, &field.path.join(".")));
        }
        let writer = Writer { manager: manager.to_owned(), applies: true, status: false };
        let before = self.objects.get(id).cloned();
        match &before {
            Some(before) => {
                if !is_of(&before.object, &config) {
                    return Err(invalid(id, "metadata.uid: field is immutable"));
                }
                check_version(id, &before.object, &config)?;
            }
            None if config["metadata"]["uid"].is_string() || config["metadata"]["resourceVersion"].is_string() => {
                return Err(conflict(id, "there is no such object"));
            }
            None => {}
        }
        if id.kind.has_status() {
            set(&mut config, "status", Value::Null);
        }
        let mut metadata = metadata_of(&config);
        for name in OF_THE_SYSTEM {
            metadata.remove(name);
        }
        config["metadata"] = Value::Object(metadata);
        let wanted = leaves(&id.kind, &config);
        let owned: BTreeSet<Path> = wanted.keys().cloned().collect();
        let Some(before) = before else {
            let object = self.new_object(id, config);
            let mut owners = Owners::default();
            owners.set(writer, owned);
            return Ok(self.commit(id, None, Stored { object, owners }));
        };
        let live = leaves(&id.kind, &before.object);
        let differs = |path: &&Path| live.get(*path) != wanted.get(*path);
        let contested: BTreeSet<Path> = owned
            .iter()
            .filter(differs)
            .filter(|path| before.owners.others(&writer, path).next().is_some())
            .cloned()
            .collect();
        if conflicts == Conflicts::Fail && !contested.is_empty() {
            return Err(conflict(id, &format!("apply failed with {} conflicts: {contested:?}", contested.len())));
        }
        let mut owners = before.owners.clone();
        owners.take(&writer, &contested);
        let mut object = before.object.clone();
        fields::merge(&id.kind, &mut Vec::new(), &mut object, &config);
        for path in owners.of(&writer) {
            let is_kept = owned.iter().any(|kept| kept.starts_with(&path) || path.starts_with(kept));
            if !is_kept && owners.others(&writer, &path).next().is_none() {
                fields::remove(&id.kind, &mut object, &path);
            }
        }
        owners.set(writer, owned);
        check(id, &before.object, &object)?;
        Ok(self.commit(id, Some(&before), Stored { object, owners }))
    }
}

fn metadata_of(object: &Value) -> Map<String, Value> {
    object["metadata"].as_object().cloned().unwrap_or_default()
}

/// Sets a field, or removes it.
pub(crate) fn set(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(fields) = object {
        if value.is_null() {
            fields.remove(name);
        } else {
            fields.insert(name.to_owned(), value);
        }
    }
}

/// The object that was written, with what its writer cannot change.
fn with_system_fields(id: &Id, before: &Value, mut after: Value) -> Value {
    let (former, mut metadata) = (metadata_of(before), metadata_of(&after));
    for name in OF_THE_SYSTEM {
        match former.get(name) {
            Some(value) => metadata.insert(name.to_owned(), value.clone()),
            None => metadata.remove(name),
        };
    }
    after["metadata"] = Value::Object(metadata);
    if id.kind.has_status() {
        set(&mut after, "status", before["status"].clone());
    }
    for name in ["apiVersion", "kind"] {
        set(&mut after, name, before[name].clone());
    }
    after
}

/// A version that is written must be that of the object.
fn check_version(id: &Id, existing: &Value, written: &Value) -> Result<(), kube::Error> {
    let expected = &written["metadata"]["resourceVersion"];
    if expected.is_null() || *expected == existing["metadata"]["resourceVersion"] {
        return Ok(());
    }
    Err(conflict(id, "the object has been modified; apply your changes to the latest version and try again"))
}

/// Whether the uid that is written, if any, is that of the object.
fn is_of(existing: &Value, written: &Value) -> bool {
    let expected = &written["metadata"]["uid"];
    expected.is_null() || *expected == existing["metadata"]["uid"]
}

/// Changes that are refused.
fn check(id: &Id, before: &Value, after: &Value) -> Result<(), kube::Error> {
    let finalizers = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !before["metadata"]["deletionTimestamp"].is_null() {
        let former = finalizers(before);
        if finalizers(after).iter().any(|finalizer| !former.contains(finalizer)) {
            return Err(invalid(id, "no finalizer can be added while the object is being deleted"));
        }
    }
    if matches!(id.kind.name.as_str(), "ConfigMap" | "Secret") && before["immutable"] == json!(true) {
        let content =
            |object: &Value| (object["data"].clone(), object["binaryData"].clone(), object["immutable"].clone());
        if content(before) != content(after) {
            return Err(invalid(id, "field is immutable when `immutable` is set"));
        }
    }
    Ok(())
}
