//! The fields that a user can write, read from the schemas of the custom resources: a field that is added to a schema
//! is tried without anybody doing anything.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// A field of a schema that has no fields of its own, or an element of a list or of a map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    /// Its path, as messages of the API server have it but for indexes: `parallelRegions[].width`.
    pub(super) name: String,
    /// What is written to change it: the path to the field itself, or to the list or map around it.
    pub(super) at: Vec<String>,
    /// Its schema.
    pub(super) schema: Value,
}

impl Field {
    /// The last part of its name, by which a message can be told to be about it.
    pub(super) fn last(&self) -> &str {
        let name = self.name.trim_end_matches("[]").trim_end_matches("{}");
        name.rsplit('.').next().unwrap_or(name)
    }

    /// Whether it is an element of a list or a map, or a field of one.
    pub(super) fn is_inner(&self) -> bool {
        self.at.join(".") != self.name
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// The fields of the spec of this kind.
///
/// # Errors
/// When there is no such kind, or its definition has no schema.
pub(super) fn of_spec(kind: &str) -> Result<Vec<Field>> {
    let crds = streams_api::crds::crds()?;
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).with_context(|| format!("no kind {kind}"))?;
    let crd = serde_json::to_value(crd)?;
    let spec = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec");
    let mut fields = Vec::new();
    walk(spec.context("a definition without schema")?, "", &[], false, &mut fields);
    Ok(fields)
}

/// The places in the spec of this kind that hold other fields, a list or a map.
///
/// # Errors
/// As [`of_spec`].
pub(super) fn sections_of_spec(kind: &str) -> Result<Vec<Vec<String>>> {
    let mut sections = BTreeSet::new();
    for field in of_spec(kind)? {
        let depth = if field.is_inner() { field.at.len() } else { field.at.len() - 1 };
        sections.extend((1..=depth).map(|depth| field.at.iter().take(depth).cloned().collect::<Vec<_>>()));
    }
    Ok(sections.into_iter().collect())
}

/// `inner`: below a list or a map, whose place is `at`.
fn walk(schema: &Value, name: &str, at: &[String], inner: bool, fields: &mut Vec<Field>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let elements = [("[]", schema.get("items")), ("{}", schema.get("additionalProperties"))];
    let element = elements.into_iter().find_map(|(suffix, schema)| Some((suffix, schema.filter(|s| s.is_object())?)));
    match (properties, element) {
        (Some(properties), _) => walk_properties(properties, name, at, inner, fields),
        (None, Some((suffix, element))) => walk(element, &format!("{name}{suffix}"), at, true, fields),
        (None, None) => fields.push(Field { name: name.to_owned(), at: at.to_vec(), schema: schema.clone() }),
    }
}

fn walk_properties(properties: &Map<String, Value>, name: &str, at: &[String], inner: bool, fields: &mut Vec<Field>) {
    for (property, schema) in properties {
        let name = if name.is_empty() { property.clone() } else { format!("{name}.{property}") };
        let mut at = at.to_vec();
        if !inner {
            at.push(property.clone());
        }
        walk(schema, &name, &at, inner, fields);
    }
}

/// A merge patch that has this value at this place.
pub(super) fn patch(at: &[String], value: &Value) -> Value {
    at.iter().rev().fold(value.clone(), |inner, key| Value::Object(Map::from_iter([(key.clone(), inner)])))
}

/// The merge patch that leaves nothing of a value but another one.
pub(super) fn instead_of(before: &Value, value: &Value) -> Value {
    let (Some(before), Some(after)) = (before.as_object(), value.as_object()) else { return value.clone() };
    let mut patch = after.clone();
    for (key, part) in before {
        let part = after.get(key).map_or(Value::Null, |after| instead_of(part, after));
        patch.insert(key.clone(), part);
    }
    Value::Object(patch)
}

/// What a document is after a merge patch (RFC 7396).
pub(super) fn merged(document: &Value, patch: &Value) -> Value {
    let Some(patch) = patch.as_object() else { return patch.clone() };
    let mut result = document.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            result.remove(key);
        } else {
            let before = result.get(key).cloned().unwrap_or(Value::Null);
            result.insert(key.clone(), merged(&before, value));
        }
    }
    Value::Object(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_corrected_leaves_nothing_of_what_was_wrong() {
        let before = json!({"cpu": 1, "example.com/device": 1000, "inner": {"a": 1, "b": 2}});
        for value in [json!({"cpu": 2}), json!({"inner": {"b": 3}}), json!({}), json!(7)] {
            assert_eq!(merged(&before, &instead_of(&before, &value)), value);
        }
    }
    use serde_json::json;

    #[test]
    fn every_field_of_a_job_has_a_name_and_a_place() {
        let fields = of_spec("Job").unwrap();
        let place = |name: &str| {
            let field = fields.iter().find(|field| field.name == name);
            field.map(|field| field.at.join("."))
        };
        let table = [
            ("imagePullPolicy", Some("imagePullPolicy")),
            ("bundle.file", Some("bundle.file")),
            ("parallelRegions[].width", Some("parallelRegions")),
            ("resources.limits{}", Some("resources.limits")),
            ("submissionTimeValues{}", Some("submissionTimeValues")),
            (
                "processingElement.checkpointRepository.fileSystem.path",
                Some("processingElement.checkpointRepository.fileSystem.path"),
            ),
            ("bundle", None),
        ];
        for (name, expected) in table {
            assert_eq!(place(name).as_deref(), expected, "{name}");
        }
        assert!(fields.len() > 60, "{}", fields.len());
        let width = fields.iter().find(|field| field.name == "parallelRegions[].width").unwrap();
        assert_eq!((width.last(), width.is_inner()), ("width", true));
        let limits = fields.iter().find(|field| field.name == "resources.limits{}").unwrap();
        assert_eq!(limits.last(), "limits");
    }

    #[test]
    fn sections_are_what_is_around_fields() {
        let sections: Vec<_> = sections_of_spec("Job").unwrap().iter().map(|section| section.join(".")).collect();
        for expected in ["bundle", "parallelRegions", "processingElement.resources.limits", "threadingModel.dynamic"] {
            assert!(sections.iter().any(|section| section == expected), "{expected} is not in {sections:?}");
        }
        assert!(!sections.iter().any(|section| section.ends_with("image")), "{sections:?}");
    }

    #[test]
    fn a_merge_patch_sets_and_removes() {
        let at = ["a".to_owned(), "b".to_owned()];
        let document = json!({"a": {"b": 1, "c": 2}, "d": [3]});
        assert_eq!(merged(&document, &patch(&at, &json!(7))), json!({"a": {"b": 7, "c": 2}, "d": [3]}));
        assert_eq!(merged(&document, &patch(&at, &Value::Null)), json!({"a": {"c": 2}, "d": [3]}));
        assert_eq!(merged(&json!({}), &patch(&at, &json!({"e": null}))), json!({"a": {"b": {}}}));
    }
}
