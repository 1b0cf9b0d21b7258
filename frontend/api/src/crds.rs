//! The manifests of the custom resources.
//!
//! The schemas that are derived from the types are put into the form that the API server likes best: integer formats
//! that it knows, and no `nullable`, so that an explicit `null` means "not set". What the types cannot read is refused:
//! numbers beyond theirs, and times that only others have (rule call-6). A status that only programs write is
//! one value to server-side apply: they write it as a whole, and to keep a record of each field costs the API server
//! at each write. Users, too, write parts of that of exports and imports.

use super::{ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, ProcessingElement, Resize};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value};

/// The custom resource definitions, by name.
///
/// # Errors
/// A schema that cannot be represented; only possible by a mistake in the types, and tested.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    let pes = lenient(ProcessingElement::crd())?;
    let by_name = [
        ConsistentRegion::crd(),
        Export::crd(),
        HostPool::crd(),
        Import::crd(),
        Job::crd(),
        pes,
        ParallelRegion::crd(),
        Resize::crd(),
    ];
    by_name.into_iter().map(tidy).collect()
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

/// Name of the file that holds the manifest of a definition.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}.yaml", crd.spec.names.plural)
}

fn tidy(crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    let is_written_by_users =
        [Export::crd_name(), Import::crd_name()].contains(&crd.metadata.name.as_deref().unwrap_or_default());
    let mut value = serde_json::to_value(crd)?;
    let versions = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema").and_then(Value::as_object_mut) {
            tidy_schema(schema);
        }
        let status = version.pointer_mut("/schema/openAPIV3Schema/properties/status");
        if let Some(status) = status.filter(|_| !is_written_by_users).and_then(Value::as_object_mut) {
            status.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
    }
    serde_json::from_value(value)
}

/// Takes the rules out of the fields of a spec that only a controller writes. What it has is what users wrote into a
/// job: there the rules let pass what was stored before they were there, and a PE that is made of it must exist to say
/// what is wrong.
fn lenient(crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut value = serde_json::to_value(crd)?;
    let versions = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        version.pointer_mut("/schema/openAPIV3Schema/properties/spec").map(without_rules);
    }
    serde_json::from_value(value)
}

/// Walks a schema; its depth is that of the types.
fn without_rules(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    schema.remove("x-kubernetes-validations");
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).for_each(without_rules);
    for key in ["items", "additionalProperties"] {
        schema.get_mut(key).map(without_rules);
    }
}

/// How a time is written. The API server takes years and zones that the types do not have, and times without a zone.
const TIME: &str = concat!(
    "^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?",
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
);
/// The longest of them.
const TIME_MAX: usize = "2026-11-27T03:04:05.123456789+01:00".len();

/// The numbers of a format that is narrower than what the API server keeps as an integer.
fn range(format: &str) -> Option<(i64, i64)> {
    Some(match format {
        "uint8" => (0, u8::MAX.into()),
        "uint16" => (0, u16::MAX.into()),
        "uint32" => (0, u32::MAX.into()),
        "int8" => (i8::MIN.into(), i8::MAX.into()),
        "int16" => (i16::MIN.into(), i16::MAX.into()),
        "int32" => (i32::MIN.into(), i32::MAX.into()),
        _ => return None,
    })
}

/// Walks a schema; its depth is that of the types.
fn tidy_schema(schema: &mut Map<String, Value>) {
    schema.remove("nullable");
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default().to_owned();
    let known = match format.as_str() {
        "uint8" | "uint16" | "int8" | "int16" => Some("int32"),
        "uint32" | "uint64" | "uint" | "int" => Some("int64"),
        _ => None,
    };
    if let Some(known) = known {
        schema.insert("format".to_owned(), known.into());
    }
    if let Some((least, most)) = range(&format) {
        schema.entry("minimum").or_insert_with(|| least.into());
        schema.entry("maximum").or_insert_with(|| most.into());
    }
    if format == "date-time" {
        schema.insert("pattern".to_owned(), TIME.into());
        schema.insert("maxLength".to_owned(), TIME_MAX.into());
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn manifests() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
    }

    #[test]
    fn the_manifests_in_deploy_are_those_of_the_types() {
        let mut files: Vec<_> =
            std::fs::read_dir(manifests()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        files.retain(|name| name != "kustomization.yaml");
        files.sort();
        let crds = crds().unwrap();
        let expected: Vec<_> = crds.iter().map(|crd| file_name(crd).into()).collect::<Vec<std::ffi::OsString>>();
        assert_eq!(files, expected, "{REGENERATE}");
        for crd in &crds {
            let stored = std::fs::read_to_string(manifests().join(file_name(crd))).unwrap();
            assert!(stored == manifest(crd).unwrap(), "{} differs from the types: {REGENERATE}", file_name(crd));
        }
    }

    #[test]
    fn a_column_shows_all_of_what_it_is_about() {
        for crd in crds().unwrap() {
            for column in
                crd.spec.versions.iter().flat_map(|version| version.additional_printer_columns.iter().flatten())
            {
                // The API server shows the first result of a path only.
                assert!(!column.json_path.contains("[*]"), "{} of {}", column.name, crd.spec.names.kind);
            }
        }
    }

    /// Else the column is empty where the number is 0. A default is shown of what was stored before, too: nobody has to
    /// write it.
    #[test]
    fn a_column_of_figures_shows_a_number_as_soon_as_there_are_figures() {
        let mut seen = Vec::new();
        for crd in crds().unwrap() {
            let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
            let figures = &version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["statistics"];
            for column in version["additionalPrinterColumns"].as_array().into_iter().flatten() {
                let path = column["jsonPath"].as_str().unwrap();
                let Some(figure) = path.strip_prefix(".status.statistics.") else { continue };
                let is_required = figures["required"].as_array().unwrap().iter().any(|required| required == figure);
                let has_default = figures["properties"][figure]["default"] == 0;
                assert!(is_required || has_default, "{path}");
                seen.push(column["name"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(seen, ["PEs", "Ready", "Completed", "Connected"]);
    }

    #[test]
    fn a_status_that_programs_write_is_one_value_and_a_spec_is_not() {
        for crd in crds().unwrap() {
            let kind = &crd.spec.names.kind;
            for version in &crd.spec.versions {
                let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
                let kind_of_map = |part: &str| schema.properties.as_ref()?.get(part)?.x_kubernetes_map_type.as_deref();
                let expected = Some("atomic").filter(|_| !["Export", "Import"].contains(&kind.as_str()));
                assert_eq!((kind_of_map("status"), kind_of_map("spec")), (expected, None), "{kind}");
            }
        }
    }

    const REGENERATE: &str = "run `cargo run --bin streams-frontend -- crds --directory deploy/crds`";

    /// Calls `visit` with the path and the content of every schema.
    fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), child, visit);
        }
        for key in ["items", "additionalProperties"] {
            if schema[key].is_object() {
                walk(&format!("{path}[]"), &schema[key], visit);
            }
        }
    }

    #[test]
    fn everything_is_bounded_and_nothing_is_nullable() {
        let mut seen = 0;
        for crd in crds().unwrap() {
            let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
            let name = crd.spec.names.kind;
            walk(&name, &version["schema"]["openAPIV3Schema"], &mut |path, schema| {
                seen += 1;
                assert!(schema.get("nullable").is_none(), "{path}");
                let bounded = |bound: &str| assert!(schema[bound].is_u64(), "{path} has no {bound}");
                match schema["type"].as_str() {
                    Some("array") => bounded("maxItems"),
                    Some("string") if schema.get("enum").is_none() => bounded("maxLength"),
                    Some("object") if schema.get("additionalProperties").is_some() => bounded("maxProperties"),
                    _ => {}
                }
                match schema["format"].as_str() {
                    Some("int32") => {
                        let bound = |bound: &str| schema[bound].as_f64().unwrap();
                        assert!(bound("minimum") >= i32::MIN.into() && bound("maximum") <= i32::MAX.into(), "{path}");
                    }
                    Some("date-time") => assert!(schema["pattern"].is_string(), "{path}"),
                    format => assert!(matches!(format, None | Some("int64")), "{path}: {format:?}"),
                }
            });
        }
        assert!(seen > 100, "{seen}");
    }

    /// The API server tests itself that there is such a day, and such a time of the day.
    #[test]
    fn the_first_and_the_last_times_that_are_not_refused_can_be_read() {
        let read = |time: &str| serde_json::from_value::<Time>(time.into()).is_ok();
        for time in ["1000-01-01T00:00:00", "2028-02-29T12:00:00.5", "2999-12-31T23:59:59.999999999"] {
            for zone in ["Z", "+00:00", "-19:59", "+23:59", "-23:59"] {
                let time = format!("{time}{zone}");
                assert!(read(&time) && time.len() <= TIME_MAX, "{time}");
            }
        }
        for zone in ["+26:00", "-29:59", "+00:60"] {
            assert!(!read(&format!("2026-01-01T00:00:00{zone}")), "{zone} need not be refused");
        }
    }

    #[test]
    fn a_number_that_a_type_does_not_have_is_refused() {
        let schema = |format: &str, more: Value| {
            let mut schema = serde_json::json!({"type": "integer", "format": format});
            schema.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
            tidy_schema(schema.as_object_mut().unwrap());
            (schema["format"].clone(), schema["minimum"].as_i64(), schema["maximum"].as_i64())
        };
        let most = |most: u32| Some(i64::from(most));
        // format, bounds -> format, bounds
        let table = [
            ("uint8", serde_json::json!({"minimum": 0.0}), "int32", Some(0), Some(255)),
            ("uint16", serde_json::json!({"minimum": 1.0}), "int32", Some(1), Some(65_535)),
            ("uint32", serde_json::json!({"minimum": 0.0}), "int64", Some(0), most(u32::MAX)),
            ("uint32", serde_json::json!({"minimum": 0.0, "maximum": 7.0}), "int64", Some(0), Some(7)),
            ("int32", Value::Null, "int32", Some(i32::MIN.into()), Some(i32::MAX.into())),
            ("uint64", serde_json::json!({"minimum": 0.0}), "int64", Some(0), None),
            ("int64", Value::Null, "int64", None, None),
        ];
        for (format, more, expected, least, most) in table {
            assert_eq!(schema(format, more), (expected.into(), least, most), "{format}");
        }
        // What the frontend is to read of a PE.
        let pe = ProcessingElement::crd().spec.versions[0].schema.clone();
        let derived = serde_json::to_value(pe).unwrap();
        let field = &derived["openAPIV3Schema"]["properties"]["spec"]["properties"]["operatorCount"];
        assert_eq!(field["format"], "uint32", "it is not told from wider ones any more");
    }
}
