//! What the server has: objects, and all that ever happened to them.

use crate::fields::Owners;
use crate::kind::{Id, Kind};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// An object and the owners of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) object: Value,
    pub(crate) owners: Owners,
}

/// Something that a watch tells.
#[derive(Clone, Debug)]
pub(crate) enum LogEntry {
    /// The object is like this now.
    Written(Value),
    /// It was like this when it was removed.
    Removed(Value),
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Timestamp,
    version: u64,
    uids: u64,
    pub(crate) objects: BTreeMap<Id, Stored>,
    changes: BTreeMap<Kind, Vec<LogEntry>>,
    /// Fields that the definition of a kind does not declare.
    pub(crate) undeclared: BTreeMap<Kind, Vec<UndeclaredField>>,
}

/// A field that the definition of its kind does not declare.
#[derive(Clone, Debug)]
pub(crate) struct UndeclaredField {
    pub(crate) path: Vec<String>,
    /// An apply that sets it is refused; otherwise the field is dropped, as from every other write.
    pub(crate) refuses: bool,
}

impl State {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now,
            version: 0,
            uids: 0,
            objects: BTreeMap::new(),
            changes: BTreeMap::new(),
            undeclared: BTreeMap::new(),
        }
    }

    /// The same objects, counted on from the same numbers.
    pub(crate) fn without_history(&self) -> Self {
        let (now, version, uids) = (self.now, self.version, self.uids);
        let (objects, undeclared) = (self.objects.clone(), self.undeclared.clone());
        Self { now, version, uids, objects, changes: BTreeMap::new(), undeclared }
    }

    /// The version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// All changes of a kind.
    pub(crate) fn changes(&self, kind: &Kind) -> &[LogEntry] {
        self.changes.get(kind).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-0000-0000-{:012}", self.uids)
    }

    /// The time as objects have it.
    pub(crate) fn time(&self, seconds: i64) -> Value {
        let time = Timestamp::from_second(self.now.as_second().saturating_add(seconds)).unwrap_or(self.now);
        Value::String(time.to_string())
    }

    /// Puts a written object into the place of the one before, unless nothing has changed. One that was only waiting to
    /// be rid of its finalizers goes.
    pub(crate) fn commit(&mut self, id: &Id, before: Option<&Stored>, mut after: Stored) -> Value {
        for field in self.undeclared.get(&id.kind).into_iter().flatten() {
            let path: Vec<&str> = field.path.iter().map(String::as_str).collect();
            drop_field(&mut after.object, &path);
        }
        if let Some(before) = before {
            if before.object == after.object && before.owners == after.owners {
                return after.object;
            }
            if id.kind.counts_generations() && own(&before.object) != own(&after.object) {
                let generation = before.object["metadata"]["generation"].as_i64().unwrap_or(0);
                after.object["metadata"]["generation"] = json!(generation.saturating_add(1));
            }
        }
        self.version += 1;
        after.object["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        if id.kind.shows_managers() {
            after.object["metadata"]["managedFields"] = after.owners.shown();
        }
        let written = after.object.clone();
        if is_finished(&written) {
            self.objects.remove(id);
            self.tell(id, LogEntry::Removed(written.clone()));
        } else {
            self.objects.insert(id.clone(), after);
            self.tell(id, LogEntry::Written(written.clone()));
        }
        written
    }

    /// Watches hear that the object is like this before it is removed.
    pub(crate) fn announce(&mut self, id: &Id, mut last: Stored) {
        self.version += 1;
        last.object["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        self.tell(id, LogEntry::Written(last.object.clone()));
        self.objects.insert(id.clone(), last);
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, id: &Id) {
        if let Some(mut gone) = self.objects.remove(id) {
            self.version += 1;
            gone.object["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
            self.tell(id, LogEntry::Removed(gone.object));
        }
    }

    fn tell(&mut self, id: &Id, change: LogEntry) {
        self.changes.entry(id.kind.clone()).or_default().push(change);
    }
}

/// Removes a field that is not declared.
fn drop_field(object: &mut Value, path: &[&str]) {
    match path {
        [] => {}
        [last] => drop(object.as_object_mut().and_then(|fields| fields.remove(*last))),
        [first, rest @ ..] => {
            if let Some(inner) = object.get_mut(*first) {
                drop_field(inner, rest);
            }
        }
    }
}

/// Everything but metadata and status.
fn own(object: &Value) -> Map<String, Value> {
    let mut fields = object.as_object().cloned().unwrap_or_default();
    fields.remove("metadata");
    fields.remove("status");
    fields
}

/// Its deletion waits for nobody.
fn is_finished(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let has_finalizers = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    !metadata["deletionTimestamp"].is_null() && metadata["deletionGracePeriodSeconds"] == json!(0) && !has_finalizers
}
