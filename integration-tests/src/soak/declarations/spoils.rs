//! Each field of the objects of a job, changed by somebody who should not. The fields come from the schemas.
//! Annotations by which the operator tells what it has written are changed beside an edit, too.

use super::children::Child;
use super::fields::{Field, of_spec};
use super::propagation::Propagation;
use super::sequence::{End, Sequence, Step, base, base_of_all_kinds, create};
use anyhow::Result;
use serde_json::{Value, json};
use streams_api::names;

/// As often an object is restored without a word; the next time the job says that somebody else insists.
const AT_ONCE: usize = 2;

/// What is changed of which kind, in jobs that have at least so many of it.
///
/// # Errors
/// When the schema of a kind cannot be read.
pub(super) fn all() -> Result<Vec<Sequence>> {
    let kinds = [
        (Child::ProcessingElement, Some("ProcessingElement"), base(), 3),
        (Child::HostPool, Some("HostPool"), base_of_all_kinds(), 1),
        (Child::Export, Some("Export"), base_of_all_kinds(), 2),
        (Child::Import, Some("Import"), base_of_all_kinds(), 2),
        (Child::ConsistentRegion, Some("ConsistentRegion"), base_of_all_kinds(), 1),
        (Child::Region, None, base(), 3),
        (Child::Service, None, base(), 3),
        (Child::ConfigMap, None, base(), 3),
        (Child::JobConfigMap, None, base(), 1),
        (Child::Pod, None, base(), 3),
        (Child::PeApiService, None, base(), 1),
    ];
    let mut sequences = Vec::new();
    for (child, kind, spec, count) in kinds {
        let mut changes = metadata(child);
        changes.extend(annotations(child));
        if let Some(kind) = kind {
            changes.extend(of_spec(kind)?.iter().map(change));
        }
        for (number, changes) in changes.chunks(count * AT_ONCE).enumerate() {
            let spoils = changes.iter().enumerate().map(|(number, (at, values))| Step::Spoil {
                child,
                number: number % count,
                at: at.clone(),
                values: values.clone(),
            });
            sequences.push(Sequence {
                name: format!("children/{child:?} spoilt, {number}"),
                steps: [create(spec.clone())].into_iter().chain(spoils).collect(),
                end: End::Job(Propagation::Background),
            });
        }
        for (number, changes) in annotations(child).chunks(count * AT_ONCE).enumerate() {
            let steps = changes.iter().enumerate().map(|(number, (at, values))| {
                let (at, values) = (at.clone(), values.clone());
                Step::Together(vec![Step::Spoil { child, number: number % count, at, values }, traced(number)])
            });
            sequences.push(Sequence {
                name: format!("children/{child:?} spoilt beside an edit, {number}"),
                steps: [create(spec.clone())].into_iter().chain(steps).collect(),
                end: End::Job(Propagation::Background),
            });
        }
    }
    Ok(sequences)
}

/// An edit that all PEs are written for, and no pod is replaced for.
fn traced(number: usize) -> Step {
    let level = if number.is_multiple_of(2) { "DEBUG" } else { "TRACE" };
    let at = at(&["processingElement", "runtimeTraceLevel"]);
    Step::Set { at, value: json!(level), words: Vec::new(), refused: false }
}

pub(super) type Change = (Vec<String>, Vec<Value>);

/// Annotations by which the operator tells what it has written: changed, and removed.
pub(super) fn annotations(child: Child) -> Vec<Change> {
    let named: &[&str] = match child {
        Child::ProcessingElement | Child::HostPool | Child::ConsistentRegion => {
            &[names::ANNOTATION_APPLIED_HASH, names::ANNOTATION_START_HASH]
        }
        Child::Service | Child::JobConfigMap | Child::Export | Child::Import => &[names::ANNOTATION_APPLIED_HASH],
        Child::ConfigMap => &[names::ANNOTATION_CONTENT_ID],
        Child::Region | Child::Secret | Child::Pod | Child::PeApiService => &[],
    };
    let both = named.iter().flat_map(|name| [json!("0".repeat(64)), Value::Null].map(|value| (*name, value)));
    both.map(|(name, value)| (at(&["metadata", "annotations", name]), vec![value])).collect()
}

fn at(path: &[&str]) -> Vec<String> {
    path.iter().map(|key| (*key).to_owned()).collect()
}

/// What every kind has, and what Kubernetes' own kinds have instead of a schema of ours.
fn metadata(child: Child) -> Vec<Change> {
    let mut changes = vec![
        (at(&["metadata", "labels", names::LABEL_APP]), vec![json!("other"), Value::Null]),
        (at(&["metadata", "labels"]), vec![Value::Null]),
    ];
    if child != Child::PeApiService {
        changes.push((at(&["metadata", "labels", names::LABEL_JOB]), vec![json!("other")]));
    }
    changes.extend(match child {
        Child::Service => vec![
            (at(&["spec", "selector", "spoilt"]), vec![json!("yes")]),
            (at(&["spec", "publishNotReadyAddresses"]), vec![json!(false)]),
            (at(&["spec", "ports"]), vec![json!([{"name": "other", "port": 1}])]),
        ],
        Child::JobConfigMap => vec![(at(&["data"]), vec![Value::Null])],
        Child::PeApiService => vec![
            (at(&["metadata", "labels", names::LABEL_SERVICE]), vec![json!("other")]),
            (at(&["spec", "selector"]), vec![json!({"spoilt": "yes"})]),
            (at(&["spec", "ports"]), vec![json!([{"name": "other", "port": 1}])]),
        ],
        Child::Pod => {
            let label = |label, value| (at(&["metadata", "labels", label]), vec![value]);
            vec![
                label(names::LABEL_APP, Value::Null),
                label(names::LABEL_SERVICE, Value::Null),
                label(names::LABEL_JOB, Value::Null),
                label(names::LABEL_PE, json!("77")),
                label(names::LABEL_PE, Value::Null),
                label(names::LABEL_LAUNCH_COUNT, json!("0")),
                label(names::LABEL_LAUNCH_COUNT, json!("99")),
                label(names::LABEL_LAUNCH_COUNT, Value::Null),
                (at(&["metadata", "annotations", names::ANNOTATION_PLACEMENT_HASH]), vec![Value::Null]),
                (at(&["metadata", "ownerReferences"]), vec![Value::Null]),
            ]
        }
        _ => Vec::new(),
    });
    changes
}

/// A change of a field.
fn change(field: &Field) -> Change {
    let value = |schema: &Value| -> Vec<Value> {
        let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
        let pattern = schema.get("pattern").and_then(Value::as_str).unwrap_or_default();
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            return words.clone();
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("boolean") => vec![json!(true), json!(false)],
            Some("integer") => vec![json!(7), json!(5)],
            _ if least == 64 => vec![json!("0".repeat(64))],
            _ if pattern.starts_with("^/") => vec![json!("/other"), json!("/another")],
            _ => vec![json!("77"), json!("78")],
        }
    };
    let at: Vec<String> = ["spec".to_owned()].into_iter().chain(field.at.iter().cloned()).collect();
    let values = if field.name.ends_with("[]") {
        [json!([])].into_iter().chain(value(&field.schema).into_iter().map(|value| json!([value]))).collect()
    } else if field.name.ends_with("{}") {
        let key = if field.name.contains("resources") { "cpu" } else { "OTHER" };
        value(&field.schema).into_iter().map(|value| json!({key: value})).collect()
    } else if field.name.contains("[]") || field.name.contains("{}") {
        vec![json!([]), Value::Null]
    } else {
        value(&field.schema)
    };
    (at, values)
}

#[cfg(test)]
mod tests {
    use super::{AT_ONCE, Step, all};

    #[test]
    fn no_object_is_changed_so_often_that_its_restoration_waits() {
        for sequence in all().unwrap() {
            for number in 0..3 {
                let all = sequence.steps.iter().flat_map(|step| match step {
                    Step::Together(steps) => steps.as_slice(),
                    step => std::slice::from_ref(step),
                });
                let is_it = |step: &&Step| matches!(step, Step::Spoil { number: of, .. } if *of == number);
                let often = all.filter(is_it).count();
                assert!(often <= AT_ONCE, "{}: {number} is changed {often} times", sequence.name);
            }
        }
    }
}
