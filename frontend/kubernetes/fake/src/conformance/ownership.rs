//! Server-side apply: conflicts, owners of fields, fields that are removed.

use super::Case;
use super::SampleKind::{ConfigMap, Sample, Service};
use serde_json::{Value, json};

fn map(data: Value) -> Value {
    json!({"metadata": {"name": "a"}, "data": data})
}

fn sample(spec: Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": spec})
}

/// The ConfigMap `a`, owned by another one. That must exist: a cluster's garbage collector deletes what has no owner.
fn owned_by(owner: &str) -> Value {
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": format!("<uid {owner}>")});
    json!({"metadata": {"name": "a", "ownerReferences": [reference]}})
}

/// A Service with this selector and ports, without an address.
fn service(selector: Value, ports: Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "selector": selector, "ports": ports}})
}

fn port(name: &str, number: u16) -> Value {
    json!({"name": name, "port": number, "protocol": "TCP", "targetPort": number})
}

/// The managers that own data of a ConfigMap, and its keys.
fn writers(writers: Value) -> Value {
    json!({"metadata": {"managedFields": writers}})
}

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "an apply creates what does not exist, and the same apply again changes nothing",
            exchanges: vec![
                Sample
                    .apply(sample(json!({"width": 1})))
                    .has(json!({"spec": {"width": 1}, "metadata": {"generation": 1}})),
                Sample.apply(sample(json!({"width": 1}))).unchanged(),
                Sample.force(sample(json!({"width": 1}))).unchanged(),
            ],
        },
        Case {
            name: "an apply leaves fields alone that it does not set",
            exchanges: vec![
                ConfigMap.create(map(json!({"x": "1"}))).by("user"),
                ConfigMap.apply(map(json!({"y": "2"}))).has(json!({"data": {"x": "1", "y": "2"}})),
            ],
        },
        Case {
            name: "a field that is applied no more is removed",
            exchanges: vec![
                ConfigMap.apply(map(json!({"x": "1", "y": "2"}))),
                ConfigMap.apply(map(json!({"y": "2"}))).has(json!({"data": {"x": null, "y": "2"}})),
                ConfigMap.apply(json!({"metadata": {"name": "a"}})).has(json!({"data": null})),
            ],
        },
        Case {
            name: "another value for a field of another manager is a conflict",
            exchanges: vec![
                ConfigMap.apply(map(json!({"x": "1"}))).by("one"),
                ConfigMap.apply(map(json!({"x": "2"}))).by("two").refused(409, "Conflict"),
                ConfigMap.get("a").unchanged(),
                ConfigMap.apply(map(json!({"y": "2"}))).by("two").has(json!({"data": {"x": "1", "y": "2"}})),
            ],
        },
        Case {
            name: "a forced apply takes the field over",
            exchanges: vec![
                ConfigMap.apply(map(json!({"x": "1"}))).by("one"),
                ConfigMap.force(map(json!({"x": "2"}))).by("two").has(json!({"data": {"x": "2"}})),
                ConfigMap.apply(map(json!({"x": "1"}))).by("one").refused(409, "Conflict"),
                // The first manager does not own it any more: that it is applied no more removes nothing.
                ConfigMap.apply(map(json!({"z": "3"}))).by("one").has(json!({"data": {"x": "2", "z": "3"}})),
                ConfigMap.apply(map(json!({"y": "4"}))).by("two").has(json!({"data": {"x": null, "y": "4", "z": "3"}})),
            ],
        },
        Case {
            name: "a field with two owners stays until both have given it up",
            exchanges: vec![
                ConfigMap.apply(map(json!({"x": "1"}))).by("one"),
                ConfigMap.apply(map(json!({"x": "1"}))).by("two").has(json!({"data": {"x": "1"}})),
                ConfigMap.apply(map(json!({"y": "1"}))).by("one").has(json!({"data": {"x": "1", "y": "1"}})),
                ConfigMap.apply(map(json!({"z": "1"}))).by("two").has(json!({"data": {"x": null, "y": "1", "z": "1"}})),
            ],
        },
        Case {
            name: "whoever replaces or patches owns what was changed",
            exchanges: vec![
                Sample.apply(sample(json!({"width": 1, "hosts": ["h"]}))).by("one"),
                Sample.merge("a", json!({"spec": {"width": 2}})).by("user").has(json!({"spec": {"width": 2}})),
                Sample.apply(sample(json!({"width": 1, "hosts": ["h"]}))).by("one").refused(409, "Conflict"),
                // The value that it has does not contradict.
                Sample
                    .apply(sample(json!({"width": 2, "hosts": ["h"]})))
                    .by("one")
                    .has(json!({"spec": {"width": 2, "hosts": ["h"]}})),
                // The user owns it as well.
                Sample
                    .apply(sample(json!({"hosts": ["h"]})))
                    .by("one")
                    .has(json!({"spec": {"width": 2, "hosts": ["h"]}})),
                Sample.force(sample(json!({"width": 3}))).by("one").has(json!({"spec": {"width": 3, "hosts": null}})),
                Sample.apply(sample(json!({"text": "t"}))).by("one").has(json!({"spec": {"width": null}})),
            ],
        },
        Case {
            name: "what somebody created is theirs, also under the same name of a manager",
            exchanges: vec![
                ConfigMap.create(map(json!({"x": "1"}))).by("one"),
                ConfigMap.apply(map(json!({"x": "2"}))).by("one").refused(409, "Conflict"),
                ConfigMap.force(map(json!({"x": "2"}))).by("one").has(json!({"data": {"x": "2"}})),
                ConfigMap.apply(map(json!({"y": "2"}))).by("one").has(json!({"data": {"x": null, "y": "2"}})),
            ],
        },
        Case {
            name: "a field that somebody removed belongs to nobody",
            exchanges: vec![
                ConfigMap.apply(map(json!({"x": "1", "y": "1"}))).by("one"),
                ConfigMap
                    .merge("a", json!({"data": {"x": null}}))
                    .by("user")
                    .has(json!({"data": {"x": null, "y": "1"}})),
                ConfigMap.apply(map(json!({"x": "2"}))).by("two").has(json!({"data": {"x": "2"}})),
                ConfigMap.apply(map(json!({"y": "1"}))).by("one").has(json!({"data": {"x": "2", "y": "1"}})),
            ],
        },
        Case {
            name: "a list is a value",
            exchanges: vec![
                Sample.apply(sample(json!({"hosts": ["a", "b"]}))).by("one"),
                Sample.apply(sample(json!({"hosts": ["a", "b", "c"]}))).by("two").refused(409, "Conflict"),
                Sample.force(sample(json!({"hosts": ["c"]}))).by("two").has(json!({"spec": {"hosts": ["c"]}})),
            ],
        },
        Case {
            name: "owner references belong to whoever wrote them, one by one",
            exchanges: vec![
                ConfigMap.create(json!({"metadata": {"name": "x"}})).by("user"),
                ConfigMap.create(json!({"metadata": {"name": "y"}})).by("user"),
                ConfigMap.apply(owned_by("x")).by("one"),
                ConfigMap.apply(owned_by("y")).by("two").has(json!({"metadata": {"name": "a"}})),
                ConfigMap.apply(json!({"metadata": {"name": "a"}})).by("one").has(owned_by("y")),
            ],
        },
        Case {
            name: "the selector of a Service is a value",
            exchanges: vec![
                Service.apply(service(json!({"x": "1"}), json!([port("p", 1)]))).by("one"),
                Service
                    .merge("a", json!({"spec": {"selector": {"y": "2"}}}))
                    .by("user")
                    .has(json!({"spec": {"selector": {"x": "1", "y": "2"}}})),
                Service
                    .force(service(json!({"x": "1"}), json!([port("p", 1)])))
                    .by("one")
                    .has(json!({"spec": {"selector": {"x": "1", "y": null}}})),
            ],
        },
        Case {
            name: "ports that others added to a Service stay until they are removed by name",
            exchanges: vec![
                Service.apply(service(json!({"x": "1"}), json!([port("p", 1)]))).by("one"),
                Service
                    .merge("a", json!({"spec": {"ports": [port("p", 1), port("q", 2)]}}))
                    .by("user")
                    .has(json!({"spec": {"ports": [port("p", 1), port("q", 2)]}})),
                Service
                    .force(service(json!({"x": "1"}), json!([port("p", 1)])))
                    .by("one")
                    .has(json!({"spec": {"ports": [port("p", 1), port("q", 2)]}})),
                Service
                    .merge("a", json!({"spec": {"ports": [port("p", 1)]}}))
                    .by("one")
                    .has(json!({"spec": {"ports": [port("p", 1)]}})),
            ],
        },
        Case {
            name: "a ConfigMap says who has written its data last",
            exchanges: vec![
                ConfigMap.create(map(json!({"x": "1", "y": "1"}))).by("one").has(writers(json!({"one": ["x", "y"]}))),
                ConfigMap
                    .merge("a", json!({"data": {"x": "2"}}))
                    .by("user")
                    .has(writers(json!({"one": ["y"], "user": ["x"]}))),
                ConfigMap.merge("a", json!({"data": {"y": null}})).by("user").has(writers(json!({"user": ["x"]}))),
                ConfigMap.force(map(json!({"x": "1"}))).by("one").has(writers(json!({"one": ["x"], "user": null}))),
                // The value that it has: both own it.
                ConfigMap.apply(map(json!({"x": "1"}))).by("two").has(writers(json!({"one": ["x"], "two": ["x"]}))),
            ],
        },
        Case {
            name: "an apply with a version or a uid needs the object that has it",
            exchanges: vec![
                ConfigMap.apply(map(json!({"x": "1"}))),
                ConfigMap.apply(map(json!({"x": "2"}))),
                ConfigMap
                    .apply(
                        json!({"metadata": {"name": "a", "resourceVersion": "<first version a>"}, "data": {"x": "3"}}),
                    )
                    .refused(409, "Conflict"),
                ConfigMap
                    .apply(json!({"metadata": {"name": "a", "uid": "another"}, "data": {"x": "3"}}))
                    .refused(422, "Invalid"),
                ConfigMap
                    .apply(json!({"metadata": {"name": "b", "uid": "<uid a>"}, "data": {"x": "3"}}))
                    .refused(409, "Conflict"),
            ],
        },
    ]
}
