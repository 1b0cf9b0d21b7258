//! What a job has brought about, without what differs from one job to the next: names of namespaces, uids, times,
//! addresses, how often something was started. Two jobs that are alike have equal pictures.
//!
//! Knows: kinds of objects, what in them differs from job to job. Must not know: what a job should have.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Resource};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use streams_api::names;

/// Keys whose values say nothing about what a user asked for, wherever they stand.
const VOLATILE: [&str; 27] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "nodeName",
    "clusterIP",
    "clusterIPs",
    "selfLink",
    "generation",
    "streams.ibm.com/generation",
    names::LABEL_LAUNCH_COUNT,
    names::ANNOTATION_APPLIED_HASH,
    names::ANNOTATION_TRACE_PARENT,
    names::ANNOTATION_TRACE_GENERATION,
    names::ANNOTATION_RESTART_REQUESTED,
    names::ANNOTATION_STOP_REQUESTED,
    // Has the number of the generation in it; everything else that it is made of is compared by itself.
    names::ANNOTATION_START_HASH,
    names::ANNOTATION_POD_TEMPLATE_HASH,
    names::ANNOTATION_REQUESTED_WIDTHS,
    // Has the number of a request, and one is left out where the API server did not take an admission.
    names::ANNOTATION_WIDTH_OF_RESIZE,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "status",
    "specGeneration",
    "cpuFree",
];
/// An environment variable of which the same holds.
const LAUNCH_COUNT: &str = "STREAMS_PE_LAUNCH_COUNT";

/// The objects of a job by kind and what tells them apart, and the conditions of the job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture(BTreeMap<String, Value>);

/// How closely two pictures are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// In everything.
    Whole,
    /// Ids of PEs and what follows from them depend on how widths came about: numbers of objects, and which operators
    /// run.
    Operators,
    /// So does how many PEs there are, if PEs were stopped meanwhile (rule job-55): nothing is put into these.
    OperatorsOfAnyPes,
    /// In what has an effect: not in the options that PE objects carry.
    Effects,
}

impl Picture {
    /// The picture of a job that may have been deleted.
    ///
    /// # Errors
    /// When objects cannot be listed.
    pub async fn of(client: &Client, namespace: &str, job: &str) -> Result<Self> {
        let mut picture = BTreeMap::new();
        let object = get_job(client, namespace, job).await?.unwrap_or_default();
        for kind in kinds()? {
            for object in list(client, namespace, job, &kind).await? {
                let value = serde_json::to_value(&object)?;
                let key = another(&picture, key(&kind.kind, &value));
                picture.insert(key, normal(drawn(&kind.kind, value), namespace));
            }
        }
        for condition in object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten() {
            let part = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
            picture.insert(format!("Condition {}", part("type")), json!([part("status"), part("reason")]));
        }
        if let Some(days) = validity(&object) {
            picture.insert("Validity of the certificate, in days".to_owned(), json!(days));
        }
        for part in ["fusion", "appliedWidths", "phase", "adl"] {
            let value = object.pointer(&format!("/status/{part}")).cloned().unwrap_or(Value::Null);
            picture.insert(format!("Status {part}"), normal(value, namespace));
        }
        Ok(Self(picture))
    }

    /// What is in the picture of this kind, by what tells it apart.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        let begins = format!("{kind} ");
        self.0.iter().filter(move |(key, _)| key.starts_with(&begins)).map(|(key, value)| (key.as_str(), value))
    }

    /// What two pictures differ in, in words; empty if nothing.
    pub fn differences(&self, other: &Self, likeness: Likeness) -> Vec<String> {
        let (this, other) = (self.seen(likeness), other.seen(likeness));
        let mut differences = Vec::new();
        for (key, value) in &this {
            match other.get(key) {
                None => differences.push(format!("{key} is there")),
                Some(there) => differ(key, value, there, &mut differences),
            }
        }
        differences
            .extend(other.keys().filter(|key| !this.contains_key(*key)).map(|key| format!("{key} is not there")));
        differences
    }

    fn seen(&self, likeness: Likeness) -> BTreeMap<String, Value> {
        match likeness {
            Likeness::Whole => self.0.clone(),
            Likeness::Effects => {
                let has_effect = |key: &str| !key.starts_with("ProcessingElement");
                self.0
                    .iter()
                    .filter(|(key, _)| has_effect(key))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            }
            Likeness::Operators | Likeness::OperatorsOfAnyPes => {
                let mut seen = BTreeMap::<String, Value>::new();
                for (key, value) in &self.0 {
                    let kind = key.split(' ').next().unwrap_or_default();
                    match kind {
                        "Status" | "Condition" | "Validity" => drop(seen.insert(key.clone(), value.clone())),
                        "ProcessingElement" | "Pod" | "Service" | "ConfigMap"
                            if likeness == Likeness::OperatorsOfAnyPes => {}
                        _ => {
                            let count = seen.entry(format!("number of {kind}")).or_insert(json!(0));
                            *count = json!(count.as_u64().unwrap_or(0) + 1);
                        }
                    }
                    for operator in value.pointer("/spec/operators").and_then(Value::as_array).into_iter().flatten() {
                        seen.insert(format!("operator {operator}"), json!(true));
                    }
                }
                seen
            }
        }
    }
}

/// The job as the API server has it; `None` if there is none.
///
/// # Errors
/// When it cannot be read.
pub async fn get_job(client: &Client, namespace: &str, job: &str) -> Result<Option<Value>> {
    let kind = ApiResource::erase::<streams_api::Job>(&());
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    jobs.get_opt(job).await.context("the job cannot be read")?.map(serde_json::to_value).transpose().map_err(Into::into)
}

/// For how long the certificate of a job is valid, in days: it is renewed when two thirds of that are over.
fn validity(job: &Value) -> Option<i64> {
    let time = |key: &str| job.pointer(&format!("/status/transport/{key}"))?.as_str()?.parse::<jiff::Timestamp>().ok();
    Some((time("notAfter")?.as_second() - time("renewAt")?.as_second() + 14_400) * 3 / 86_400)
}

/// Kinds of what belongs to a job: ours, whichever there are, and those of Kubernetes.
fn kinds() -> Result<Vec<ApiResource>> {
    let own = streams_api::crds::crds()?.into_iter().filter(|crd| crd.spec.names.kind != "Job").map(|crd| {
        let version = crd.spec.versions.first().map(|version| version.name.clone()).unwrap_or_default();
        ApiResource {
            api_version: format!("{}/{version}", crd.spec.group),
            group: crd.spec.group,
            version,
            kind: crd.spec.names.kind,
            plural: crd.spec.names.plural,
        }
    });
    fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    // Pods first: one whose PE goes away meanwhile is left over.
    Ok([of::<Pod>(), of::<Service>(), of::<ConfigMap>(), of::<Secret>()].into_iter().chain(own).collect())
}

async fn list(client: &Client, namespace: &str, job: &str, kind: &ApiResource) -> Result<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
    let selector = format!("{}={job}", names::LABEL_JOB);
    let list = api.list(&ListParams::default().labels(&selector)).await;
    let mut items = list.with_context(|| format!("{} cannot be listed", kind.plural))?.items;
    for item in &mut items {
        // The items of a list do not say their kind.
        item.types = None;
    }
    Ok(items)
}

/// Kind and name of every object of a job.
///
/// # Errors
/// When they cannot be listed.
pub async fn names_of(client: &Client, namespace: &str, job: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for kind in kinds()? {
        let objects = list(client, namespace, job, &kind).await?;
        names.extend(
            objects.into_iter().map(|object| format!("{} {}", kind.kind, object.metadata.name.unwrap_or_default())),
        );
    }
    Ok(names)
}

/// What tells an object apart from others of its kind.
fn key(kind: &str, object: &Value) -> String {
    let label = |label: &str| {
        let labels = object.pointer("/metadata/labels")?;
        labels.get(label)?.as_str()
    };
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    match (kind, label(names::LABEL_PE), label(names::LABEL_PART)) {
        // Named after the launch.
        ("Pod", Some(pe), _) => {
            format!("Pod of PE {pe} ({})", object.pointer("/status/phase").and_then(Value::as_str).unwrap_or("-"))
        }
        // Named after content that has times and names of its own.
        ("ConfigMap", _, Some(part)) if part != names::PART_AADL => {
            let index = object.pointer("/metadata/annotations").and_then(|a| a.get(names::ANNOTATION_CHUNK_INDEX));
            format!("ConfigMap of {part} {}", index.and_then(Value::as_str).unwrap_or("-"))
        }
        // Named by the API server, or after the uid of the job.
        ("Resize", ..) => {
            let wanted = |region: &Value| {
                let name = region.get("name").and_then(Value::as_str).unwrap_or_default();
                format!("{name}={}", region.get("width").unwrap_or(&Value::Null))
            };
            let regions = object.pointer("/spec/regions").and_then(Value::as_array);
            let regions: Vec<_> = regions.into_iter().flatten().map(wanted).collect();
            format!("Resize to {}", regions.join(" "))
        }
        _ => format!("{kind} {name}"),
    }
}

/// The key of an object that cannot be told from those that are there: two pods of one PE are two.
fn another(picture: &BTreeMap<String, Value>, key: String) -> String {
    let numbered = (2..).map(|number| format!("{key}, number {number}"));
    [key.clone()].into_iter().chain(numbered).find(|key| !picture.contains_key(key)).unwrap_or(key)
}

/// What is compared of an object of this kind.
fn drawn(kind: &str, mut object: Value) -> Value {
    let part = object.pointer("/metadata/labels").and_then(|labels| labels.get(names::LABEL_PART)).cloned();
    let is_chunk = kind == "ConfigMap" && part.is_some_and(|part| part != names::PART_AADL);
    if kind == "Secret" || is_chunk {
        return json!({"labels": object.pointer("/metadata/labels")});
    }
    let is_launched = kind == "Pod" || kind == "ProcessingElement";
    let phase = object.pointer("/status/phase").cloned().filter(|_| is_launched);
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("name");
        metadata.remove("namespace");
    }
    if let (Some(object), Some(phase)) = (object.as_object_mut(), phase) {
        object.insert("phase".to_owned(), phase);
    }
    object
}

/// Without what is volatile, and with the name of the namespace replaced.
fn normal(value: Value, namespace: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(key, _)| !VOLATILE.contains(&key.as_str()));
            let kept: Map<String, Value> = kept.map(|(key, value)| (key, normal(value, namespace))).collect();
            Value::Object(kept)
        }
        Value::Array(items) => {
            let is_kept = |item: &Value| item.get("name").and_then(Value::as_str) != Some(LAUNCH_COUNT);
            Value::Array(items.into_iter().filter(is_kept).map(|item| normal(item, namespace)).collect())
        }
        Value::String(text) => Value::String(text.replace(namespace, "NAMESPACE")),
        other => other,
    }
}

fn differ(place: &str, this: &Value, that: &Value, differences: &mut Vec<String>) {
    match (this, that) {
        (Value::Object(these), Value::Object(those)) => {
            for (key, value) in these {
                differ(&format!("{place}/{key}"), value, those.get(key).unwrap_or(&Value::Null), differences);
            }
            let others = those.iter().filter(|(key, _)| !these.contains_key(*key));
            differences.extend(others.map(|(key, value)| format!("{place}/{key}: nothing, not {value}")));
        }
        (Value::Array(these), Value::Array(those)) if these.len() == those.len() => {
            for (index, (this, that)) in these.iter().zip(those).enumerate() {
                differ(&format!("{place}/{index}"), this, that, differences);
            }
        }
        _ if this == that => {}
        _ => differences.push(format!("{place}: {this}, not {that}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(parts: &[(&str, Value)]) -> Picture {
        Picture(parts.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }

    #[test]
    fn what_differs_from_job_to_job_is_not_in_a_picture() {
        let pod = |namespace: &str, launch: &str| {
            json!({
                "metadata": {"name": format!("j-0-{launch}"), "namespace": namespace, "uid": launch, "labels": {"a": "b"}},
                "spec": {"nodeName": launch, "containers": [{"env": [
                    {"name": LAUNCH_COUNT, "value": launch}, {"name": "STREAMS_INSTANCE_ID", "value": namespace},
                ]}]},
                "status": {"phase": "Running", "podIP": launch},
            })
        };
        let [one, two] = [("n1", "1"), ("n2", "2")].map(|(n, l)| normal(drawn("Pod", pod(n, l)), n));
        assert_eq!(one, two);
        assert_eq!(one["spec"]["containers"][0]["env"][0]["value"], "NAMESPACE");
        assert_eq!(one["phase"], "Running");
    }

    #[test]
    fn two_objects_that_cannot_be_told_apart_are_two() {
        let mut picture = BTreeMap::new();
        for _ in 0..3 {
            let key = another(&picture, "Pod of PE 0 (Running)".to_owned());
            picture.insert(key, json!({}));
        }
        let keys: Vec<_> = picture.into_keys().collect();
        let of = |rest: &str| format!("Pod of PE 0 (Running){rest}");
        assert_eq!(keys, [of(""), of(", number 2"), of(", number 3")]);
    }

    #[test]
    fn differences_are_told_by_their_place() {
        let one = picture(&[("Pod 0", json!({"image": "a", "env": [1]})), ("Service 0", json!({}))]);
        let two = picture(&[("Pod 0", json!({"image": "b", "env": [1, 2]}))]);
        let told = one.differences(&two, Likeness::Whole);
        assert_eq!(told, ["Pod 0/env: [1], not [1,2]", "Pod 0/image: \"a\", not \"b\"", "Service 0 is there"]);
        assert!(one.differences(&one, Likeness::Whole).is_empty());
    }

    #[test]
    fn options_of_pe_objects_are_no_effect_and_ids_of_pes_may_follow_from_the_way() {
        let one = picture(&[("ProcessingElement j-0", json!({"spec": {"operators": ["A"], "image": "a"}}))]);
        let two = picture(&[("ProcessingElement j-1", json!({"spec": {"operators": ["A"], "image": "b"}}))]);
        let three = picture(&[("ProcessingElement j-1", json!({"spec": {"operators": ["B"]}}))]);
        assert!(one.differences(&two, Likeness::Effects).is_empty());
        assert!(one.differences(&two, Likeness::Operators).is_empty());
        for likeness in [Likeness::Operators, Likeness::OperatorsOfAnyPes] {
            assert_eq!(one.differences(&three, likeness).len(), 2);
        }
        let beside = |kind: &str| {
            picture(&[("ProcessingElement j-0", json!({"spec": {"operators": ["A"]}})), (kind, json!({"spec": {}}))])
        };
        for (kind, [in_operators, of_any_pes]) in [("Pod 1", [1, 0]), ("Export e", [1, 1])] {
            assert_eq!(one.differences(&beside(kind), Likeness::Operators).len(), in_operators, "{kind}");
            assert_eq!(one.differences(&beside(kind), Likeness::OperatorsOfAnyPes).len(), of_any_pes, "{kind}");
        }
        assert_eq!(one.differences(&two, Likeness::Whole).len(), 2);
    }
}
