//! Names, versions, generation, the status, immutable ConfigMaps and Secrets.

use super::Case;
use super::SampleKind::{ConfigMap, Pod, Sample, Secret};
use serde_json::{Value, json};

fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

fn sample(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// The metadata of the object `a` at a version.
fn a(version: &str) -> Value {
    json!({"name": "a", "resourceVersion": version})
}

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "a name can be used once, and again after a deletion",
            exchanges: vec![
                ConfigMap.get("a").nothing(),
                ConfigMap
                    .create(map("a", json!({"x": "1"})))
                    .has(json!({"data": {"x": "1"}, "metadata": {"generation": null}})),
                ConfigMap.create(map("a", json!({"x": "1"}))).refused(409, "AlreadyExists"),
                ConfigMap.delete("a").nothing(),
                ConfigMap.create(map("a", json!({"x": "2"}))).has(json!({"data": {"x": "2"}})),
            ],
        },
        Case {
            name: "what does not exist is not found",
            exchanges: vec![
                ConfigMap.replace(map("a", json!({}))).refused(404, "NotFound"),
                ConfigMap.merge("a", json!({"data": {}})).refused(404, "NotFound"),
                ConfigMap.delete("a").refused(404, "NotFound"),
                Sample
                    .replace(json!({"metadata": {"name": "b", "resourceVersion": "1"}, "spec": {}}))
                    .refused(404, "NotFound"),
                Sample
                    .replace_status(
                        json!({"metadata": {"name": "b", "resourceVersion": "1"}, "spec": {}, "status": {}}),
                    )
                    .refused(404, "NotFound"),
            ],
        },
        Case {
            name: "an object that is created has no version yet",
            exchanges: vec![
                ConfigMap.create(json!({"metadata": {"name": "a", "resourceVersion": "1"}})).refused(500, ""),
            ],
        },
        Case {
            name: "a replacement with an old version is a conflict",
            exchanges: vec![
                ConfigMap.create(map("a", json!({"x": "1"}))),
                ConfigMap.replace(map("a", json!({"x": "2"}))).has(json!({"data": {"x": "2"}})),
                ConfigMap
                    .replace(json!({"metadata": a("<first version a>"), "data": {"x": "3"}}))
                    .refused(409, "Conflict"),
                ConfigMap
                    .replace(json!({"metadata": a("<version a>"), "data": {"x": "3"}}))
                    .has(json!({"data": {"x": "3"}})),
                ConfigMap
                    .replace(json!({"metadata": {"name": "a", "uid": "another"}, "data": {"x": "4"}}))
                    .refused(409, "Conflict"),
                ConfigMap
                    .merge("a", json!({"metadata": {"uid": "another"}, "data": {"x": "4"}}))
                    .refused(422, "Invalid"),
            ],
        },
        Case {
            name: "a write that changes nothing gives no version",
            exchanges: vec![
                Sample.create(sample("a", json!({"width": 1}))),
                Sample.merge("a", json!({"spec": {"width": 1}})).unchanged(),
                Sample.replace(json!({"metadata": a("<version a>"), "spec": {"width": 1}})).unchanged(),
                Sample.replace_status(json!({"metadata": a("<version a>"), "spec": {}})).unchanged(),
            ],
        },
        Case {
            name: "a custom resource is replaced with a version only",
            exchanges: vec![
                Sample.create(sample("a", json!({"width": 1}))),
                Sample.replace(sample("a", json!({"width": 2}))).refused(422, "Invalid"),
                Sample
                    .replace(json!({"metadata": a("<version a>"), "spec": {"width": 2}}))
                    .has(json!({"spec": {"width": 2}, "metadata": {"generation": 2}})),
            ],
        },
        Case {
            name: "the generation counts changes of the spec",
            exchanges: vec![
                Sample.create(sample("a", json!({"width": 1}))).has(json!({"metadata": {"generation": 1}})),
                Sample
                    .merge("a", json!({"metadata": {"labels": {"x": "y"}}}))
                    .has(json!({"metadata": {"generation": 1, "labels": {"x": "y"}}})),
                Sample.merge("a", json!({"spec": {"width": 2}})).has(json!({"metadata": {"generation": 2}})),
                Sample.apply(sample("a", json!({"hosts": ["h"]}))).has(json!({"metadata": {"generation": 3}})),
                Sample
                    .replace_status(json!({"metadata": a("<version a>"), "spec": {}, "status": {"width": 2}}))
                    .has(json!({"metadata": {"generation": 3}, "status": {"width": 2}})),
            ],
        },
        Case {
            name: "fields of the system cannot be written",
            exchanges: vec![
                Sample
                    .create(json!({"metadata": {"name": "a", "generation": 7, "uid": "mine"}, "spec": {}}))
                    .has(json!({"metadata": {"generation": 1}})),
                Sample
                    .merge("a", json!({"metadata": {"generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}}))
                    .unchanged(),
            ],
        },
        Case {
            name: "the status is written apart from the rest",
            exchanges: vec![
                Sample
                    .create(json!({"metadata": {"name": "a"}, "spec": {"width": 1}, "status": {"width": 9}}))
                    .has(json!({"status": null})),
                Sample
                    .replace_status(json!({
                        "metadata": {"name": "a", "resourceVersion": "<version a>", "labels": {"x": "y"}},
                        "spec": {"width": 2}, "status": {"width": 1},
                    }))
                    .has(json!({"spec": {"width": 1}, "status": {"width": 1}, "metadata": {"labels": null}})),
                Sample.merge("a", json!({"status": {"width": 2}})).unchanged(),
                Sample
                    .replace(json!({"metadata": a("<version a>"), "spec": {"width": 3}}))
                    .has(json!({"spec": {"width": 3}, "status": {"width": 1}})),
                Sample
                    .apply(json!({"metadata": {"name": "a"}, "spec": {"hosts": ["h"]}, "status": {"width": 5}}))
                    .has(json!({"spec": {"width": 3, "hosts": ["h"]}, "status": {"width": 1}})),
                Sample
                    .replace_status(json!({"metadata": a("<first version a>"), "spec": {}, "status": {}}))
                    .refused(409, "Conflict"),
                Sample
                    .replace_status(json!({"metadata": {"name": "a"}, "spec": {}, "status": {"width": 4}}))
                    .refused(422, "Invalid"),
            ],
        },
        Case {
            name: "the status of a new pod says that it is pending",
            exchanges: vec![
                Pod.create(json!({
                    "metadata": {"name": "a"}, "status": {"phase": "Running"},
                    "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "none"},
                }))
                .has(json!({"status": {"phase": "Pending"}})),
            ],
        },
        Case {
            name: "a patch removes what is null, and may have a version",
            exchanges: vec![
                ConfigMap.create(map("a", json!({"x": "1", "y": "2"}))),
                ConfigMap
                    .merge("a", json!({"data": {"x": null, "z": "3"}}))
                    .has(json!({"data": {"x": null, "y": "2", "z": "3"}})),
                ConfigMap
                    .merge("a", json!({"metadata": {"resourceVersion": "<first version a>"}, "data": {"y": "4"}}))
                    .refused(409, "Conflict"),
                ConfigMap
                    .merge("a", json!({"metadata": {"resourceVersion": "<version a>"}, "data": {"y": "4"}}))
                    .has(json!({"data": {"y": "4"}})),
            ],
        },
        Case {
            name: "null is a value of a custom resource, and no value elsewhere",
            exchanges: vec![
                // Without a text the type writes null.
                Sample.apply(sample("a", json!({"width": 1}))).by("one").has(json!({"spec": {"text": null}})),
                Sample.apply(sample("a", json!({"text": "t"}))).by("two").refused(409, "Conflict"),
                Sample
                    .force(sample("a", json!({"text": "t"})))
                    .by("two")
                    .has(json!({"spec": {"text": "t", "width": 1}})),
                Sample.merge("a", json!({"spec": {"text": null}})).has(json!({"spec": {"text": null}})),
            ],
        },
        Case {
            name: "an immutable ConfigMap keeps its content",
            exchanges: vec![
                ConfigMap.create(json!({"metadata": {"name": "a"}, "immutable": true, "data": {"x": "1"}})),
                ConfigMap.merge("a", json!({"data": {"x": "2"}})).refused(422, "Invalid"),
                ConfigMap.apply(map("a", json!({"y": "2"}))).refused(422, "Invalid"),
                ConfigMap.merge("a", json!({"immutable": null})).refused(422, "Invalid"),
                ConfigMap
                    .merge("a", json!({"metadata": {"labels": {"l": "v"}}}))
                    .has(json!({"metadata": {"labels": {"l": "v"}}, "data": {"x": "1"}})),
                ConfigMap.delete("a").nothing(),
            ],
        },
        Case {
            name: "what somebody has made immutable keeps its content, whoever applies it with force",
            exchanges: vec![
                ConfigMap.force(json!({"metadata": {"name": "a"}, "immutable": false, "data": {"x": "1"}})).by("one"),
                ConfigMap.merge("a", json!({"immutable": true})).by("user").has(json!({"immutable": true})),
                ConfigMap
                    .force(json!({"metadata": {"name": "a"}, "immutable": false, "data": {"x": "1"}}))
                    .by("one")
                    .refused(422, "Invalid"),
                ConfigMap.delete("a").nothing(),
                ConfigMap.create(json!({"metadata": {"name": "a"}, "immutable": false, "data": {"x": "1"}})),
            ],
        },
        Case {
            name: "an immutable Secret keeps its content",
            exchanges: vec![
                Secret.create(json!({"metadata": {"name": "a"}, "data": {"x": "MQ=="}})),
                Secret.merge("a", json!({"immutable": true})).has(json!({"immutable": true})),
                Secret.merge("a", json!({"data": {"x": "Mg=="}})).refused(422, "Invalid"),
                Secret.replace(json!({"metadata": {"name": "a"}, "data": {"x": "MQ=="}})).refused(422, "Invalid"),
                Secret.merge("a", json!({"metadata": {"labels": {"l": "v"}}})).has(json!({"data": {"x": "MQ=="}})),
                Secret.delete("a").nothing(),
            ],
        },
    ]
}
