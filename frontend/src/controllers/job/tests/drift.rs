//! What others change of the objects of a job is restored, without a restart; what they add stays, but for specs of the
//! operator, selectors and ports (rule call-19).

use super::simulation::{JOB, JobSimulation, NAMESPACE, NOT_RESTARTABLE, wait_for};
use crate::controllers::job::reconciler::rewrites::Rewrites;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use kube::core::Status;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{
    ConsistentRegion, Export, HostPool, Import, ParallelRegion, PeOptions, ProcessingElement, TraceLevel, condition,
    names,
};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, Manager, Object};
use streams_kubernetes_fake::Verb;

const USER: Manager = Manager("user");

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

/// The object without what every write changes.
fn shown<K: Object>(simulation: &JobSimulation, name: &str) -> Value {
    let object = simulation.server.get::<K>(&key(name)).unwrap_or_else(|| panic!("{name} is gone"));
    let mut value = serde_json::to_value(object).unwrap();
    for field in ["resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"] {
        value["metadata"].as_object_mut().unwrap().remove(field);
    }
    value.as_object_mut().unwrap().remove("status");
    // The order of ports means nothing.
    if let Some(ports) = value["spec"]["ports"].as_array_mut() {
        ports.sort_by_key(Value::to_string);
    }
    value
}

/// Somebody patches the object.
fn patch<K: Object>(simulation: &JobSimulation, name: &str, patch: &Value) {
    let user = simulation.server.connect();
    wait_for(user.merge::<K>(USER, &key(name), patch)).unwrap_or_else(|error| panic!("{patch}: {error}"));
}

/// The ways to all values that are no objects.
fn leaves(value: &Value) -> Vec<Vec<String>> {
    match value {
        Value::Object(fields) if !fields.is_empty() => fields
            .iter()
            .flat_map(|(name, value)| leaves(value).into_iter().map(move |rest| [vec![name.clone()], rest].concat()))
            .collect(),
        _ => vec![vec![]],
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(value, |value, name| &value[name])
}

/// A merge patch that sets the field.
fn setting(path: &[String], value: Value) -> Value {
    path.iter().rev().fold(value, |inner, name| json!({name: inner}))
}

/// Other values than this one, of its type.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) => vec![json!(format!("{text}-of-others"))],
        Value::Number(number) => vec![json!(number.as_u64().unwrap_or(0) + 1)],
        Value::Bool(value) => vec![json!(!value)],
        Value::Array(items) => {
            let changed = items.first().map(|first| {
                let mut items = items.clone();
                items[0] = match first {
                    Value::Object(_) => {
                        let path = leaves(first).remove(0);
                        let mut first = first.clone();
                        let place = path.iter().fold(&mut first, |value, name| &mut value[name]);
                        *place = others(place).remove(0);
                        first
                    }
                    first => others(first).remove(0),
                };
                Value::Array(items)
            });
            let removed = (!items.is_empty()).then(|| json!(items[1..]));
            changed.into_iter().chain(removed).collect()
        }
        _ => Vec::new(),
    }
}

fn name_of_first<K: Object>(simulation: &JobSimulation) -> String {
    simulation.server.list::<K>().first().map(ResourceExt::name_any).unwrap()
}

/// What of an object others may not have, or what the system has of it.
fn is_of_no_concern(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        path.as_slice(),
        ["apiVersion" | "kind"] | ["metadata", "name" | "namespace" | "ownerReferences"] | ["spec", "width"]
    )
}

/// Whatever field of the object others change or remove is restored, and no PE starts again. Returns how many fields
/// there were.
fn every_field_is_restored<K: Object>(simulation: &mut JobSimulation, name: &str, content: &[&str]) -> usize {
    let before = shown::<K>(simulation, name);
    let starts = simulation.starts();
    let paths: Vec<_> = leaves(&before).into_iter().filter(|path| !is_of_no_concern(path)).collect();
    let paths: Vec<_> = paths.into_iter().filter(|path| !content.contains(&path[0].as_str())).collect();
    for path in &paths {
        let value = at(&before, path);
        for change in others(value).into_iter().chain([Value::Null]) {
            let change = setting(path, change);
            let mut changed = before.clone();
            merge(&mut changed, &change);
            if serde_json::from_value::<K>(changed).is_err() {
                // A schema would refuse it.
                continue;
            }
            patch::<K>(simulation, name, &change);
            simulation.settle();
            assert_eq!(shown::<K>(simulation, name), before, "{name}: {change}");
            assert_eq!(simulation.starts(), starts, "{name}: {change}");
            // None of them is a contention.
            simulation.wait(3600);
        }
    }
    simulation.settle();
    simulation.check_at_rest();
    paths.len()
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        object.clone_from(patch);
        return;
    };
    for (name, value) in fields {
        match value {
            Value::Null => drop(object.as_object_mut().and_then(|object| object.remove(name))),
            value => merge(&mut object[name], value),
        }
    }
}

fn pe_name(id: u64) -> String {
    names::processing_element(JOB, id)
}

#[test]
fn every_field_that_the_controller_sets_is_restored() {
    let mut simulation = JobSimulation::running();
    let text = simulation.pe(0).unwrap().spec.config_map.name;
    let chunk = simulation.chunks().remove(0);
    let pool = simulation.server.list::<HostPool>().first().map(ResourceExt::name_any);
    let content = ["data", "binaryData", "immutable"];
    let mut fields = every_field_is_restored::<ProcessingElement>(&mut simulation, &pe_name(0), &[]);
    fields += every_field_is_restored::<Service>(&mut simulation, &pe_name(0), &[]);
    fields += every_field_is_restored::<ParallelRegion>(&mut simulation, &names::parallel_region(JOB, 0), &[]);
    if let Some(pool) = pool {
        fields += every_field_is_restored::<HostPool>(&mut simulation, &pool, &[]);
    }
    let [export, import, consistent_region] = [
        name_of_first::<Export>(&simulation),
        name_of_first::<Import>(&simulation),
        name_of_first::<ConsistentRegion>(&simulation),
    ];
    fields += every_field_is_restored::<Export>(&mut simulation, &export, &[]);
    fields += every_field_is_restored::<Import>(&mut simulation, &import, &[]);
    fields += every_field_is_restored::<ConsistentRegion>(&mut simulation, &consistent_region, &[]);
    fields += every_field_is_restored::<Service>(&mut simulation, &names::consistent_region_service(JOB), &[]);
    fields += every_field_is_restored::<ConfigMap>(&mut simulation, &names::job_config_map(JOB), &[]);
    fields += every_field_is_restored::<ConfigMap>(&mut simulation, &text, &content);
    fields += every_field_is_restored::<ConfigMap>(&mut simulation, &chunk, &content);
    assert!(fields > 60, "{fields} fields were found");
}

/// Deleted, the ADL and the plan might be had from nowhere else, and a text might come out as another one.
#[test]
fn what_somebody_labels_as_another_part_is_restored_and_not_made_again() {
    for part in [names::PART_AADL, names::PART_ADL, names::PART_PLAN, "other"] {
        let mut simulation = JobSimulation::running();
        let maps = [simulation.texts(), simulation.chunks()].concat();
        let seen = |simulation: &JobSimulation| -> Vec<_> {
            let uid = |name: &String| simulation.server.get::<ConfigMap>(&key(name)).and_then(|map| map.uid());
            maps.iter().map(|name| (uid(name), shown::<ConfigMap>(simulation, name))).collect()
        };
        let (before, starts) = (seen(&simulation), simulation.starts());
        // Whoever leads next has not read the ADL.
        simulation.crash();
        let change = json!({"metadata": {"labels": {names::LABEL_PART: part}}});
        maps.iter().for_each(|name| patch::<ConfigMap>(&simulation, name, &change));
        simulation.settle();
        assert_eq!(seen(&simulation), before, "{part}");
        assert_eq!(simulation.starts(), starts, "{part}");
        simulation.check_at_rest();
    }
}

#[test]
fn what_others_add_stays_but_for_selectors_and_ports_of_services() {
    let mut simulation = JobSimulation::running();
    let addition = json!({"metadata": {"labels": {"mesh": "on"}, "annotations": {"note": "mine"}}});
    let text = simulation.pe(0).unwrap().spec.config_map.name;
    patch::<ProcessingElement>(&simulation, &pe_name(0), &addition);
    patch::<Service>(&simulation, &pe_name(0), &addition);
    patch::<ParallelRegion>(&simulation, &names::parallel_region(JOB, 0), &addition);
    patch::<ConfigMap>(&simulation, &text, &addition);
    patch::<ConfigMap>(&simulation, JOB, &json!({"data": {"more": "mine"}}));
    let version = simulation.server.version();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "nothing is written");
    // Additions stay when something else is restored.
    patch::<Service>(&simulation, &pe_name(0), &json!({"metadata": {"labels": {"app": null}}}));
    patch::<ConfigMap>(&simulation, JOB, &json!({"metadata": {"labels": {"streams.ibm.com/job": "x"}}}));
    simulation.settle();
    let service = shown::<Service>(&simulation, &pe_name(0));
    assert_eq!(
        (&service["metadata"]["labels"]["mesh"], &service["metadata"]["labels"]["app"]),
        (&json!("on"), &json!("streams"))
    );
    assert_eq!(shown::<ConfigMap>(&simulation, JOB)["data"]["more"], json!("mine"));

    let before = shown::<Service>(&simulation, &pe_name(1));
    let mut ports = before["spec"]["ports"].as_array().unwrap().clone();
    ports.push(json!({"name": "mine", "port": 4711, "protocol": "TCP"}));
    patch::<Service>(&simulation, &pe_name(1), &json!({"spec": {"ports": ports, "selector": {"mine": "yes"}}}));
    simulation.settle();
    assert_eq!(shown::<Service>(&simulation, &pe_name(1)), before);
    simulation.check_at_rest();
}

/// Whatever others add to the spec of the object is removed, and no PE starts again because of it.
fn additions_are_removed<K: Object>(simulation: &mut JobSimulation, name: &str, additions: &[Value]) {
    let before = shown::<K>(simulation, name);
    let starts = simulation.starts();
    for addition in additions {
        patch::<K>(simulation, name, &json!({ "spec": addition }));
        assert_ne!(shown::<K>(simulation, name), before, "{addition} adds nothing");
        simulation.settle();
        assert_eq!(shown::<K>(simulation, name), before, "{name}: {addition}");
        assert_eq!(simulation.starts(), starts, "{name}: {addition}");
        simulation.wait(3600);
    }
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn what_others_add_to_a_spec_of_the_operator_goes() {
    let mut simulation = JobSimulation::running();
    let options = [
        json!({"image": "of-others"}),
        json!({"appPropertiesSecret": "of-others"}),
        json!({"buildType": "release"}),
        json!({"dataPath": "/of/others"}),
        json!({"dataVolumeClaim": {"name": "of-others", "subPath": "a"}}),
        json!({"checkpointRepository": {"fileSystem": {"path": "/of/others"}}}),
        json!({"environment": {"OF": "others"}}),
        json!({"placement": {"host": "of-others"}}),
        json!({"resources": {"limits": {"cpu": "1"}}}),
        json!({"restartFailedPod": false}),
    ];
    additions_are_removed::<ProcessingElement>(&mut simulation, &pe_name(0), &options);
    let [export, import] = [name_of_first::<Export>(&simulation), name_of_first::<Import>(&simulation)];
    additions_are_removed::<Export>(&mut simulation, &export, &[json!({"applicationScope": "Others"})]);
    additions_are_removed::<Import>(&mut simulation, &import, &[json!({"applicationScope": "Others"})]);
    if let Some(pool) = simulation.server.list::<HostPool>().first().map(ResourceExt::name_any) {
        additions_are_removed::<HostPool>(&mut simulation, &pool, &[json!({"size": 7, "hosts": ["of-others"]})]);
    }
}

#[test]
fn two_who_disagree_do_not_write_for_ever() {
    let mut simulation = JobSimulation::running();
    simulation.server.announced();
    let change = json!({"spec": {"publishNotReadyAddresses": false}});
    let is_ours = |simulation: &JobSimulation| {
        shown::<Service>(simulation, &pe_name(0))["spec"]["publishNotReadyAddresses"] == json!(true)
    };
    let disagree = |simulation: &mut JobSimulation| {
        patch::<Service>(simulation, &pe_name(0), &change);
        for _ in 0..4 {
            simulation.reconcile();
        }
        is_ours(simulation)
    };
    assert!(disagree(&mut simulation) && disagree(&mut simulation));
    assert_eq!(contended(&simulation), None);
    assert!(disagree(&mut simulation), "the third time it is restored");
    let message = contended(&simulation).expect("there is a contention");
    assert!(message.contains("spec.publishNotReadyAddresses of Service job-0"), "{message}");
    assert!(message.ends_with("; their managedFields say who"), "{message}");
    assert!(!disagree(&mut simulation), "it waits");
    // It waits for a minute, then for two.
    for minutes in [1, 2, 4] {
        simulation.wait(60 * minutes - 1);
        simulation.reconcile();
        assert!(!is_ours(&simulation), "{minutes}");
        simulation.wait(1);
        for _ in 0..4 {
            simulation.reconcile();
        }
        assert!(is_ours(&simulation), "{minutes}");
        assert!(!disagree(&mut simulation));
    }
    let warnings = simulation.server.announced();
    let told: Vec<_> = warnings.iter().filter(|told| told.notice.reason == "Contended").collect();
    assert_eq!(told.len(), 1, "{warnings:?}");
    // The other one gives up: after a while there is no contention any more.
    simulation.settle();
    assert!(is_ours(&simulation));
    simulation.wait(3600);
    simulation.settle();
    assert_eq!(contended(&simulation), None);
    simulation.check_at_rest();
}

/// Somebody takes the label by which the mirror selects: it never shows that.
fn is_not_labelled_for_ever<K: Object>(name: &str) {
    let mut simulation = JobSimulation::running();
    simulation.server.announced();
    let (before, starts) = (shown::<K>(&simulation, name), simulation.starts());
    let is_whole = |simulation: &JobSimulation| shown::<K>(simulation, name) == before;
    let disagree = |simulation: &mut JobSimulation| {
        patch::<K>(simulation, name, &unlabelled());
        for _ in 0..4 {
            simulation.reconcile();
        }
        is_whole(simulation)
    };
    assert!(disagree(&mut simulation) && disagree(&mut simulation), "{name}");
    assert_eq!(contended(&simulation), None, "{name}");
    assert!(disagree(&mut simulation), "{name}: the third time it is restored");
    let message = contended(&simulation).unwrap_or_else(|| panic!("{name}: there is no contention"));
    assert!(message.contains(&format!("metadata.labels.app of {} {name}", K::kind(&()))), "{name}: {message}");
    assert!(!disagree(&mut simulation), "{name}: it waits");
    assert!(condition::is_true(&simulation.status().conditions, condition::READY), "{name}: it counts as there");
    // It waits for a minute, then for two.
    for minutes in [1, 2, 4] {
        simulation.wait(60 * minutes - 1);
        simulation.reconcile();
        assert!(!is_whole(&simulation), "{name}: {minutes} min");
        simulation.wait(1);
        for _ in 0..4 {
            simulation.reconcile();
        }
        assert!(is_whole(&simulation), "{name}: {minutes} min");
        assert!(!disagree(&mut simulation), "{name}: {minutes} min");
    }
    let announced = simulation.server.announced();
    let told: Vec<_> = announced.iter().map(|announced| &*announced.notice.reason).collect();
    assert_eq!(told, ["Contended"], "{name}");
    // The other one gives up.
    simulation.settle();
    assert!(is_whole(&simulation), "{name}");
    simulation.wait(3600);
    simulation.settle();
    assert_eq!((contended(&simulation), simulation.starts()), (None, starts), "{name}");
    simulation.check_at_rest();
}

fn unlabelled() -> Value {
    json!({"metadata": {"labels": {"app": null}}})
}

fn contended(simulation: &JobSimulation) -> Option<String> {
    let status = simulation.status();
    condition::get(&status.conditions, condition::CONTENDED).map(|condition| condition.message.clone())
}

#[test]
fn two_who_disagree_about_what_no_mirror_shows_do_not_write_for_ever_either() {
    is_not_labelled_for_ever::<Service>(&pe_name(0));
    is_not_labelled_for_ever::<Service>(&names::consistent_region_service(JOB));
    is_not_labelled_for_ever::<ConfigMap>(&names::job_config_map(JOB));
}

#[test]
fn a_resize_does_not_wait_for_an_object_whose_label_somebody_takes() {
    let mut simulation = JobSimulation::running();
    for _ in 0..4 {
        patch::<ConfigMap>(&simulation, JOB, &unlabelled());
        for _ in 0..4 {
            simulation.reconcile();
        }
    }
    assert!(contended(&simulation).is_some());
    assert_eq!(shown::<ConfigMap>(&simulation, JOB)["metadata"]["labels"]["app"], Value::Null, "it waits");
    simulation.resize(0, 3);
    simulation.until_committed(1);
    // The generation wants other port labels, which are written at once.
    assert_eq!(shown::<ConfigMap>(&simulation, JOB)["metadata"]["labels"]["app"], json!("streams"));
    simulation.settle();
    simulation.check_at_rest();
}

/// The controller itself has deleted it, so it is gone, and not out of sight.
#[test]
fn a_service_whose_label_somebody_takes_is_made_anew_before_the_commit_that_brings_its_pe_back() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 3);
    simulation.settle();
    for _ in 0..3 {
        patch::<Service>(&simulation, &pe_name(8), &unlabelled());
        for _ in 0..4 {
            simulation.reconcile();
        }
    }
    assert!(contended(&simulation).is_some());
    // No time passes: later the Service would be looked for anyway.
    simulation.resize(0, 2);
    for _ in 0..100 {
        if !simulation.has_service(8) {
            break;
        }
        simulation.reconcile();
        simulation.work();
        simulation.run_pods();
        simulation.collect();
    }
    assert!(!simulation.has_service(8));
    simulation.resize(0, 3);
    simulation.until_committed(3);
    assert!(simulation.has_service(8));
    simulation.settle();
    simulation.check_at_rest();
}

/// As an admission webhook does with each write.
#[test]
fn a_submission_comes_to_an_end_though_somebody_takes_the_labels_of_its_services() {
    let mut simulation = JobSimulation::new();
    for _ in 0..100 {
        simulation.round();
        simulation.work();
        for service in simulation.server.list::<Service>().iter().filter(|service| service.labels().contains_key("app"))
        {
            patch::<Service>(&simulation, &service.name_any(), &unlabelled());
        }
    }
    assert_eq!(simulation.status().generation, Some(0));
    let message = contended(&simulation).expect("there is a contention");
    assert!(message.contains("metadata.labels.app of Service job-0"), "{message}");
    // The other one gives up.
    simulation.settle();
    simulation.check_at_rest();
}

/// Somebody writes into an object what cannot be read, such as a number that its type does not have.
fn what_nobody_can_read_is_written_again<K: Object>(simulation: &mut JobSimulation, name: &str, field: &str) {
    let before = shown::<K>(simulation, name);
    let starts = simulation.starts();
    for is_shown in [true, false] {
        simulation.server.edit_json::<K>(&key(name), |object| object["spec"][field] = json!(5_000_000_000_u64));
        assert!(simulation.server.get::<K>(&key(name)).is_none(), "{name}: it can be read");
        if !is_shown {
            // Whoever leads next has never seen a state that can be read.
            simulation.crash();
        }
        simulation.settle();
        assert_eq!(shown::<K>(simulation, name), before, "{name} {is_shown}");
        assert_eq!(simulation.starts(), starts, "{name} {is_shown}");
        simulation.wait(3600);
        simulation.settle();
        simulation.check_at_rest();
    }
}

#[test]
fn what_cannot_be_read_is_restored_without_being_read() {
    let mut simulation = JobSimulation::running();
    let [export, import, region] = [
        name_of_first::<Export>(&simulation),
        name_of_first::<Import>(&simulation),
        name_of_first::<ConsistentRegion>(&simulation),
    ];
    // If a user had deleted the other one, it would not be made again.
    for pe in [pe_name(0), pe_name(NOT_RESTARTABLE)] {
        what_nobody_can_read_is_written_again::<ProcessingElement>(&mut simulation, &pe, "operatorCount");
    }
    what_nobody_can_read_is_written_again::<Export>(&mut simulation, &export, "portId");
    what_nobody_can_read_is_written_again::<Import>(&mut simulation, &import, "portIndex");
    what_nobody_can_read_is_written_again::<ConsistentRegion>(&mut simulation, &region, "operatorCount");
}

/// It would match nothing until the job has that generation.
#[test]
fn nobody_else_says_that_an_export_or_import_is_of_a_later_generation() {
    let mut simulation = JobSimulation::running();
    let [export, import] = [name_of_first::<Export>(&simulation), name_of_first::<Import>(&simulation)];
    let before = (shown::<Export>(&simulation, &export), shown::<Import>(&simulation, &import));
    let later = json!({"metadata": {"annotations": {names::ANNOTATION_SINCE_GENERATION: "7"}}});
    patch::<Export>(&simulation, &export, &later);
    patch::<Import>(&simulation, &import, &later);
    simulation.settle();
    assert_eq!((shown::<Export>(&simulation, &export), shown::<Import>(&simulation, &import)), before);
    simulation.check_at_rest();
}

/// It would be deleted, as if it were one of an abandoned proposal, and one that is not restartable for good.
#[test]
fn a_pe_of_the_job_is_restored_although_somebody_has_made_it_one_of_a_later_generation() {
    let mut simulation = JobSimulation::running();
    let starts = simulation.starts();
    // Without its hash the spec is believed.
    let later = json!({"metadata": {"annotations": {names::ANNOTATION_START_HASH: null}}, "spec": {"generation": 99}});
    for id in [0, NOT_RESTARTABLE] {
        let seen = |simulation: &JobSimulation| {
            let uid = simulation.pe(id).and_then(|pe| pe.uid());
            (uid, shown::<ProcessingElement>(simulation, &pe_name(id)))
        };
        let before = seen(&simulation);
        patch::<ProcessingElement>(&simulation, &pe_name(id), &later);
        simulation.settle();
        assert_eq!(seen(&simulation), before, "{id}");
        assert_eq!(simulation.starts(), starts, "{id}");
    }
    simulation.check_at_rest();
}

/// Users may write it. Whoever says the condition writes it again.
#[test]
fn a_condition_that_cannot_be_read_leaves_the_object_as_it_is() {
    let mut simulation = JobSimulation::running();
    let export = name_of_first::<Export>(&simulation);
    let before = shown::<Export>(&simulation, &export);
    let time = "2026-01-01T00:00:00+29:00";
    let condition =
        json!({"type": "Ready", "status": "True", "reason": "A", "message": "", "lastTransitionTime": time});
    let status = json!({"conditions": [condition]});
    simulation.server.edit_json::<Export>(&key(&export), |object| object["status"] = status);
    assert_eq!(shown::<Export>(&simulation, &export), before);
    simulation.settle();
    simulation.check_at_rest();
}

/// It would keep its port labels over every resize.
#[test]
fn a_config_map_that_somebody_makes_immutable_is_made_again() {
    // The process ends with the write after so many: the apply is refused, the deletion and the creation are not.
    for crash in [None, Some(0), Some(1), Some(2)] {
        let mut simulation = JobSimulation::running();
        let starts = simulation.starts();
        patch::<ConfigMap>(&simulation, JOB, &json!({"immutable": true, "metadata": {"labels": {"mesh": "on"}}}));
        if let Some(after) = crash {
            simulation.crash_at_write(after, true);
        }
        simulation.settle();
        simulation.check_at_rest();
        let map = shown::<ConfigMap>(&simulation, JOB);
        assert_eq!(map["immutable"], json!(false), "{crash:?}");
        // What is made because nothing is there has nothing of others.
        let kept = if crash == Some(1) { Value::Null } else { json!("on") };
        assert_eq!(map["metadata"]["labels"]["mesh"], kept, "{crash:?}");
        assert_eq!(simulation.starts(), starts, "{crash:?}");
        simulation.resize(0, 4);
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// Whatever counts the objects hears of the deletion a moment later.
#[test]
fn what_is_made_again_is_not_missing_because_a_quota_still_counts_it() {
    let mut simulation = JobSimulation::running();
    patch::<ConfigMap>(&simulation, JOB, &json!({"immutable": true}));
    let tries = AtomicUsize::new(0);
    simulation.server.refuse(move |call| {
        let is_it = call.kind == "ConfigMap" && *call.key.name == *JOB && call.verb == Verb::Create;
        let is_full = is_it && tries.fetch_add(1, Ordering::Relaxed) < 3;
        is_full.then(|| Status::failure("exceeded quota: q", "Forbidden").with_code(403))
    });
    assert!(simulation.reconcile().is_some(), "nothing fails");
    assert_eq!(shown::<ConfigMap>(&simulation, JOB)["immutable"], json!(false));
    simulation.settle();
    simulation.check_at_rest();
}

/// The API server does not let a Service with an address have none again.
#[test]
fn a_service_with_an_address_is_made_again() {
    let mut simulation = JobSimulation::running();
    let (before, starts) = (shown::<Service>(&simulation, &pe_name(0)), simulation.starts());
    let uid = |simulation: &JobSimulation| simulation.server.get::<Service>(&key(&pe_name(0))).unwrap().uid();
    let first = uid(&simulation);
    patch::<Service>(&simulation, &pe_name(0), &json!({"spec": {"clusterIP": "10.0.0.1"}}));
    simulation.server.refuse(|call| {
        let is_it = call.kind == "Service" && *call.key.name == *pe_name(0) && call.verb == Verb::Apply;
        is_it.then(|| Status::failure("may not change once set", "Invalid").with_code(422))
    });
    simulation.settle();
    assert_eq!(shown::<Service>(&simulation, &pe_name(0)), before);
    assert!(uid(&simulation) != first && simulation.starts() == starts);
    simulation.check_at_rest();
}

#[test]
fn what_others_add_to_services_that_select_nothing_goes() {
    let mut simulation = JobSimulation::running();
    let name = names::consistent_region_service(JOB);
    for (name, change) in [
        (&name, json!({"selector": {"app": "mine"}})),
        (&name, json!({"type": "ExternalName", "externalName": "example.com", "clusterIP": null})),
        (&name, json!({"externalIPs": ["192.0.2.1"]})),
        (&name, json!({"internalTrafficPolicy": "Local"})),
        (&pe_name(0), json!({"type": "ExternalName", "externalName": "example.com", "clusterIP": null})),
    ] {
        let before = shown::<Service>(&simulation, name);
        patch::<Service>(&simulation, name, &json!({ "spec": change }));
        simulation.settle();
        assert_eq!(shown::<Service>(&simulation, name), before, "{name} {change}");
    }
    simulation.check_at_rest();
}

#[test]
fn an_object_without_its_label_is_not_lost() {
    let mut simulation = JobSimulation::running();
    let starts = simulation.starts();
    let unlabelled = unlabelled();
    let text = simulation.pe(0).unwrap().spec.config_map.name;
    let mut maps = vec![text, JOB.to_owned()];
    maps.extend(simulation.chunks());
    for name in &maps {
        patch::<ConfigMap>(&simulation, name, &unlabelled);
    }
    patch::<Service>(&simulation, &pe_name(0), &unlabelled);
    simulation.settle();
    for name in &maps {
        assert_eq!(shown::<ConfigMap>(&simulation, name)["metadata"]["labels"]["app"], json!("streams"), "{name}");
    }
    assert_eq!(shown::<Service>(&simulation, &pe_name(0))["metadata"]["labels"]["app"], json!("streams"));
    assert_eq!(simulation.starts(), starts);
    simulation.check_at_rest();
}

/// Somebody deletes a ConfigMap that is named after its content, and makes another one of its name.
#[test]
fn content_that_somebody_else_made_is_looked_at() {
    for is_same in [true, false] {
        let mut simulation = JobSimulation::running();
        let text = simulation.pe(0).unwrap().spec.config_map.name;
        let mut names = simulation.chunks();
        names.push(text);
        let before: Vec<Value> = names.iter().map(|name| shown::<ConfigMap>(&simulation, name)).collect();
        for name in &names {
            let mut map = simulation.server.get::<ConfigMap>(&key(name)).unwrap();
            simulation.server.remove::<ConfigMap>(&key(name));
            map.metadata.resource_version = None;
            map.metadata.managed_fields = None;
            if !is_same {
                map.data = map.data.map(|data| data.into_keys().map(|key| (key, "<other/>".to_owned())).collect());
                map.binary_data =
                    map.binary_data.map(|data| data.into_keys().map(|key| (key, Default::default())).collect());
            }
            simulation.server.create(&map);
        }
        simulation.settle();
        for (name, before) in names.iter().zip(before) {
            assert_eq!(shown::<ConfigMap>(&simulation, name), before, "{name} {is_same}");
        }
        simulation.check_at_rest();
        // It is not looked at again.
        let version = simulation.server.version();
        simulation.crash();
        simulation.settle();
        assert_eq!(simulation.server.version(), version);
    }
}

/// Another version of the frontend wants another form of all objects.
#[test]
fn objects_are_rewritten_at_a_bounded_rate_when_nobody_has_changed_the_job() {
    let mut simulation = JobSimulation::running();
    let starts = simulation.starts();
    let old = json!({"metadata": {"annotations": {names::ANNOTATION_APPLIED_HASH: "of an older version"}}});
    for id in simulation.pes().into_keys() {
        patch::<ProcessingElement>(&simulation, &pe_name(id), &old);
        patch::<Service>(&simulation, &pe_name(id), &old);
    }
    let left = |simulation: &JobSimulation| {
        let is_old = |annotations: &std::collections::BTreeMap<String, String>| {
            annotations.get(names::ANNOTATION_APPLIED_HASH).is_some_and(|hash| hash.starts_with("of an"))
        };
        let pes = simulation.server.list::<ProcessingElement>();
        let services = simulation.server.list::<Service>();
        pes.iter().filter(|pe| is_old(pe.annotations())).count()
            + services.iter().filter(|service| is_old(service.annotations())).count()
    };
    let all = left(&simulation);
    simulation.crash();
    Arc::get_mut(&mut simulation.leader.reconciler).unwrap().rewrites = Rewrites::new(5);
    for second in 1..=all.div_ceil(5) {
        for _ in 0..3 {
            simulation.reconcile();
        }
        assert_eq!(left(&simulation), all.saturating_sub(5 * second), "after {second} s");
        assert!(condition::is_true(&simulation.status().conditions, condition::READY));
        simulation.wait(1);
    }
    simulation.settle();
    assert_eq!((left(&simulation), simulation.starts()), (0, starts));
    simulation.check_at_rest();
}

/// Nobody leads when a user edits the job, or whoever does ends in the midst of carrying it out; the next frontend does
/// not take it for the wish of another version.
#[test]
fn an_edit_that_no_frontend_has_carried_out_to_its_end_is_carried_out_at_once() {
    for is_begun in [false, true] {
        let mut simulation = JobSimulation::running();
        let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
        simulation.change_spec(|spec| spec.processing_element = Some(options.clone()));
        let is_written = |pe: &ProcessingElement| pe.spec.options.runtime_trace_level == options.runtime_trace_level;
        if is_begun {
            simulation.server.refuse(|call| {
                let is_late = call.kind == "ProcessingElement" && !call.key.name.ends_with("-0");
                is_late.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
            });
            simulation.reconcile();
            simulation.server.refuse(|_| None);
            assert_eq!(simulation.pes().values().filter(|pe| is_written(pe)).count(), 1);
        }
        simulation.crash();
        Arc::get_mut(&mut simulation.leader.reconciler).unwrap().rewrites = Rewrites::new(0);
        for _ in 0..3 {
            simulation.reconcile();
        }
        assert!(simulation.pes().values().all(is_written), "{is_begun}");
    }
}
