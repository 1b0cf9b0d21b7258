//! Fields of objects, and who owns them.
//!
//! Knows: paths of fields, managers. Must not know: calls, versions.

use crate::kind::{Kind, ListType};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Fields of `metadata` that only the system writes, or that name the object; nobody owns them.
pub(crate) const OF_THE_SYSTEM: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// The way to a field: names of fields, and items of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Segment {
    Field(String),
    /// The item of a list with these key values, or the value of a set.
    Item(String),
}

pub(crate) type Path = Vec<Segment>;

/// Who writes, how, and what part of the object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) applies: bool,
    pub(crate) status: bool,
}

/// The fields of each writer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Owners(BTreeMap<Writer, BTreeSet<Path>>);

impl Owners {
    /// The fields that a writer owns.
    pub(crate) fn of(&self, writer: &Writer) -> BTreeSet<Path> {
        self.0.get(writer).cloned().unwrap_or_default()
    }

    /// Others than `writer` that own the field, part of it, or what it is a part of.
    pub(crate) fn others<'a>(&'a self, writer: &'a Writer, path: &'a Path) -> impl Iterator<Item = &'a Writer> {
        let overlaps = |owned: &Path| owned.starts_with(path) || path.starts_with(owned);
        self.0
            .iter()
            .filter(move |(other, paths)| *other != writer && paths.iter().any(overlaps))
            .map(|(other, _)| other)
    }

    /// From now on the writer owns exactly these.
    pub(crate) fn set(&mut self, writer: Writer, paths: BTreeSet<Path>) {
        if paths.is_empty() {
            self.0.remove(&writer)
        } else {
            self.0.insert(writer, paths)
        };
    }

    /// Nobody but `writer` owns these any more.
    pub(crate) fn take(&mut self, writer: &Writer, taken: &BTreeSet<Path>) {
        for (other, paths) in &mut self.0 {
            if other != writer {
                paths.retain(|path| !taken.iter().any(|taken| path.starts_with(taken) || taken.starts_with(path)));
            }
        }
        self.0.retain(|_, paths| !paths.is_empty());
    }

    /// What the object says of them in `metadata.managedFields`.
    pub(crate) fn shown(&self) -> Value {
        let entry = |(writer, paths): (&Writer, &BTreeSet<Path>)| {
            let mut fields = Value::Object(Map::new());
            for path in paths {
                let mut place = &mut fields;
                for step in path {
                    let name = match step {
                        Segment::Field(name) => format!("f:{name}"),
                        Segment::Item(item) => format!("k:{item}"),
                    };
                    place = &mut place[name];
                    if place.is_null() {
                        *place = Value::Object(Map::new());
                    }
                }
            }
            let operation = if writer.applies { "Apply" } else { "Update" };
            json!({
                "manager": writer.manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            })
        };
        self.0.iter().map(entry).collect()
    }

    /// The writer has changed an object: it owns what it changed, and nobody owns what is gone.
    pub(crate) fn change(&mut self, writer: Writer, kind: &Kind, before: &Value, after: &Value) {
        let (before, after) = (leaves(kind, before), leaves(kind, after));
        let written: BTreeSet<Path> = after
            .iter()
            .filter(|(path, value)| before.get(*path) != Some(*value))
            .map(|(path, _)| path.clone())
            .collect();
        let gone: BTreeSet<Path> = before.into_keys().filter(|path| !after.contains_key(path)).collect();
        self.take(&writer, &written);
        for paths in self.0.values_mut() {
            paths.retain(|path| !gone.contains(path));
        }
        if !written.is_empty() {
            self.0.entry(writer).or_default().extend(written);
        }
        self.0.retain(|_, paths| !paths.is_empty());
    }
}

/// All fields of an object that somebody can own, with their values.
pub(crate) fn leaves(kind: &Kind, object: &Value) -> BTreeMap<Path, Value> {
    let mut found = BTreeMap::new();
    if let Value::Object(fields) = object {
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("apiVersion" | "kind", _) => {}
                ("metadata", Value::Object(metadata)) => {
                    for (name, value) in metadata.iter().filter(|(name, _)| !OF_THE_SYSTEM.contains(&name.as_str())) {
                        collect(kind, vec![field("metadata"), field(name)], value, &mut found);
                    }
                }
                _ => collect(kind, vec![field(name)], value, &mut found),
            }
        }
    }
    found
}

fn field(name: &str) -> Segment {
    Segment::Field(name.to_owned())
}

fn collect(kind: &Kind, path: Path, value: &Value, found: &mut BTreeMap<Path, Value>) {
    let step = |step: Segment| path.iter().cloned().chain([step]).collect::<Path>();
    match value {
        Value::Object(fields) if !fields.is_empty() && !is_atomic(kind, &path) => {
            for (name, value) in fields {
                collect(kind, step(field(name)), value, found);
            }
        }
        Value::Array(items) => match list_type(kind, &path) {
            ListType::Atomic => {
                found.insert(path, value.clone());
            }
            list => {
                for item in items {
                    collect(kind, step(Segment::Item(key(list, item))), item, found);
                }
            }
        },
        _ => {
            found.insert(path, value.clone());
        }
    }
}

fn list_type(kind: &Kind, path: &Path) -> ListType {
    kind.list_type(&names(path))
}

fn is_atomic(kind: &Kind, path: &Path) -> bool {
    kind.is_atomic(&names(path))
}

fn names(path: &Path) -> Vec<&str> {
    let mut names = Vec::new();
    for step in path {
        names.push(match step {
            Segment::Field(name) => name.as_str(),
            Segment::Item(_) => "*",
        });
    }
    names
}

/// What tells an item of a list from the others.
fn key(list: ListType, item: &Value) -> String {
    match list {
        ListType::Map(keys) => {
            let value = |key: &&str| match item.get(*key) {
                Some(value) => value.to_string(),
                // The only key with a default.
                None => "\"TCP\"".to_owned(),
            };
            keys.iter().map(value).collect::<Vec<_>>().join(",")
        }
        ListType::Atomic | ListType::Set => item.to_string(),
    }
}

/// Makes the fields of `config` in `object` what they are in `config`.
pub(crate) fn merge(kind: &Kind, path: &mut Path, object: &mut Value, config: &Value) {
    match (object, config) {
        (object, config) if is_atomic(kind, path) => object.clone_from(config),
        (Value::Object(object), Value::Object(config)) => {
            for (name, value) in config {
                path.push(field(name));
                merge(kind, path, object.entry(name.as_str()).or_insert(Value::Null), value);
                path.pop();
            }
        }
        (object @ Value::Null, Value::Object(_)) => {
            *object = Value::Object(Map::new());
            merge(kind, path, object, config);
        }
        (Value::Array(items), Value::Array(wanted)) if list_type(kind, path) != ListType::Atomic => {
            let list = list_type(kind, path);
            for item in wanted {
                match items.iter_mut().find(|existing| key(list, existing) == key(list, item)) {
                    Some(existing) => {
                        path.push(Segment::Item(key(list, item)));
                        merge(kind, path, existing, item);
                        path.pop();
                    }
                    None => items.push(item.clone()),
                }
            }
        }
        (object, config) => object.clone_from(config),
    }
}

/// Removes a field, and what it leaves empty.
pub(crate) fn remove(kind: &Kind, object: &mut Value, path: &[Segment]) {
    remove_at(kind, &mut Vec::new(), object, path);
}

fn remove_at(kind: &Kind, here: &mut Path, object: &mut Value, path: &[Segment]) {
    let Some((step, rest)) = path.split_first() else { return };
    match (step, &mut *object) {
        (Segment::Field(name), Value::Object(fields)) => {
            let Some(value) = fields.get_mut(name) else { return };
            here.push(step.clone());
            remove_at(kind, here, value, rest);
            here.pop();
            if rest.is_empty() || is_empty(value) {
                fields.remove(name);
            }
        }
        (Segment::Item(item), Value::Array(items)) => {
            let list = list_type(kind, here);
            let Some(index) = items.iter().position(|existing| key(list, existing) == *item) else { return };
            here.push(step.clone());
            remove_at(kind, here, &mut items[index], rest);
            here.pop();
            if rest.is_empty() || is_empty(&items[index]) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// The object as it is kept. Kinds of Kubernetes have no fields that are `null`; in custom resources it is the value of
/// an optional field.
pub(crate) fn normal(kind: &Kind, object: Value) -> Value {
    if kind.is_custom() { object } else { without_nulls(object) }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        value => value,
    }
}

/// Merge patch (RFC 7396).
pub(crate) fn patch(object: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        object.clone_from(change);
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (name, value) in change {
        if value.is_null() {
            fields.remove(name);
        } else {
            patch(fields.entry(name.as_str()).or_insert(Value::Null), value);
        }
    }
}
