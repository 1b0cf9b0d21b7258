//! The manifests of the custom resources.
//!
//! The schemas that are derived from the types are put into the form that the API server likes best: integer formats that it knows,
//! and no `nullable`, so that an explicit `null` means "not set".

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value};

use super::{HostPool, Job, ParallelRegion, ProcessingElement};

/// The custom resource definitions, by name.
///
/// # Errors
/// A schema that cannot be represented; only possible by a mistake in the types, and tested.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    [HostPool::crd(), Job::crd(), ProcessingElement::crd(), ParallelRegion::crd()].into_iter().map(tidy).collect()
}

/// The manifest of a definition as YAML, without what only the API server fills in.
///
/// # Errors
/// A definition that cannot be written as YAML.
pub fn manifest(crd: &CustomResourceDefinition) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(crd)?;
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    Ok(serde_saphyr::to_string(&value)?)
}

fn tidy(crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut value = serde_json::to_value(crd)?;
    let versions = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema").and_then(Value::as_object_mut) {
            tidy_schema(schema);
        }
    }
    serde_json::from_value(value)
}

/// Walks a schema; its depth is that of the types.
fn tidy_schema(schema: &mut Map<String, Value>) {
    schema.remove("nullable");
    let format = match schema.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "int8" | "int16") => Some("int32"),
        Some("uint32" | "uint64" | "uint" | "int") => Some("int64"),
        _ => None,
    };
    if let Some(format) = format {
        schema.insert("format".to_owned(), format.into());
    }
    // Written as a float by the derivation; the API server shows it as it was given.
    for bound in ["minimum", "maximum"] {
        if let Some(number) = schema.get(bound).and_then(Value::as_f64)
            && number.fract() == 0.0
        {
            #[allow(clippy::cast_possible_truncation, reason = "bounds of the types are small integers")]
            schema.insert(bound.to_owned(), Value::from(number as i64));
        }
    }
    for key in ["properties", "patternProperties"] {
        for child in schema.get_mut(key).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            child.as_object_mut().map(tidy_schema);
        }
    }
    for key in ["items", "additionalProperties"] {
        schema.get_mut(key).and_then(Value::as_object_mut).map(tidy_schema);
    }
}
