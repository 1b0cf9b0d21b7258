//! Preconditions, finalizers, pods, garbage.

use super::Case;
use super::SampleKind::{self, ConfigMap, Pod, Sample};
use kube::api::PropagationPolicy::{Background, Foreground, Orphan};
use serde_json::{Value, json};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn reference(owner: &str, blocks: bool) -> Value {
    json!({
        "apiVersion": "test.streams.ibm.com/v1", "kind": "Sample", "name": owner, "uid": format!("<uid {owner}>"),
        "controller": owner == "owner", "blockOwnerDeletion": blocks,
    })
}

/// An object of these owners.
fn dependent(owners: &[Value]) -> Value {
    json!({"metadata": {"name": "dependent", "ownerReferences": owners}})
}

fn owner(name: &str) -> super::Exchange {
    Sample.create(json!({"metadata": {"name": name}, "spec": {}}))
}

/// An owner that can be looked at after its deletion, however fast the garbage collector is.
fn held_owner() -> super::Exchange {
    Sample.create(json!({"metadata": {"name": "owner", "finalizers": ["x.test/held"]}, "spec": {}}))
}

/// Waits until the garbage collector knows the ConfigMaps that were created before.
///
/// It learns of them from a watch, in their order. A deletion that it hears of before it knows a dependent leaves that
/// dependent out: an orphan keeps its reference, an owner does not wait. So it is given garbage, and has to collect it.
fn known_to_the_collector() -> [super::Exchange; 2] {
    let nobody = json!({
        "apiVersion": "test.streams.ibm.com/v1", "kind": "Sample", "name": "nobody",
        "uid": "00000000-0000-4000-8000-000000000000",
    });
    [
        ConfigMap.create(json!({"metadata": {"name": "garbage", "ownerReferences": [nobody]}})),
        ConfigMap.collected("garbage"),
    ]
}

fn pod(name: &str, node: Option<&str>) -> super::Exchange {
    SampleKind::Pod.create(json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "i"}], "nodeName": node, "terminationGracePeriodSeconds": 20,
            // Nobody else gives it a node.
            "schedulerName": "none",
        },
    }))
}

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "a deletion may name a uid and a version",
            exchanges: vec![
                ConfigMap.create(map("a")),
                ConfigMap.merge("a", json!({"data": {"x": "1"}})),
                ConfigMap.delete("a").of_uid("another").refused(409, "Conflict"),
                ConfigMap.delete("a").of_version("<first version a>").refused(409, "Conflict"),
                ConfigMap.get("a").unchanged(),
                ConfigMap.delete("a").of_uid("<uid a>").of_version("<version a>").nothing(),
                ConfigMap.delete("a").of_uid("<uid a>").refused(404, "NotFound"),
            ],
        },
        Case {
            name: "an object stays until its last finalizer is removed",
            exchanges: vec![
                Sample.create(json!({"metadata": {"name": "a", "finalizers": ["x.test/a", "x.test/b"]}, "spec": {}})),
                Sample.delete("a").has(json!({"metadata": {"deletionTimestamp": "<any>", "generation": 2}})),
                Sample.delete("a").unchanged(),
                Sample.create(json!({"metadata": {"name": "a"}, "spec": {}})).refused(409, "AlreadyExists"),
                Sample
                    .merge("a", json!({"metadata": {"finalizers": ["x.test/a", "x.test/b", "x.test/c"]}}))
                    .refused(422, "Invalid"),
                // It can still be changed.
                Sample
                    .merge("a", json!({"metadata": {"finalizers": ["x.test/b"]}, "spec": {"width": 1}}))
                    .has(json!({"metadata": {"deletionTimestamp": "<any>", "generation": 3}})),
                Sample
                    .force(json!({"metadata": {"name": "a"}, "spec": {"text": "t"}}))
                    .by("two")
                    .has(json!({"spec": {"text": "t"}})),
                Sample.merge("a", json!({"metadata": {"finalizers": null}})),
                Sample.get("a").nothing(),
            ],
        },
        Case {
            name: "a pod that is on no node goes at once",
            exchanges: vec![pod("a", None), Pod.delete("a").nothing()],
        },
        Case {
            name: "a pod on a node stays until its kubelet has ended it",
            exchanges: vec![
                pod("a", Some("no-such-node")),
                Pod.delete("a").of_uid("<uid a>").has(json!({"metadata": {
                    "deletionTimestamp": "<any>", "deletionGracePeriodSeconds": 20,
                }})),
                Pod.delete("a").unchanged(),
                Pod.delete("a").at_once().nothing(),
            ],
        },
        Case {
            name: "a pod that has ended goes at once",
            exchanges: vec![
                pod("a", Some("no-such-node")),
                Pod.replace_status(json!({
                    "metadata": {"name": "a", "resourceVersion": "<version a>"}, "spec": {"containers": []},
                    "status": {"phase": "Failed"},
                }))
                .has(json!({"status": {"phase": "Failed"}})),
                Pod.delete("a").nothing(),
            ],
        },
        Case {
            name: "dependents follow their owner",
            exchanges: vec![
                owner("owner"),
                ConfigMap.create(dependent(&[reference("owner", true)])),
                Sample.delete("owner").propagating(Background).nothing(),
                ConfigMap.collected("dependent"),
            ],
        },
        Case {
            name: "an owner may wait for its dependents",
            exchanges: [
                vec![
                    owner("owner"),
                    ConfigMap.create(dependent(&[reference("owner", true)])),
                    ConfigMap.merge("dependent", json!({"metadata": {"finalizers": ["x.test/a"]}})),
                ],
                known_to_the_collector().into(),
                vec![
                    Sample.delete("owner").propagating(Foreground).has(json!({"metadata": {
                        "deletionTimestamp": "<any>", "finalizers": ["foregroundDeletion"],
                    }})),
                    ConfigMap.get("dependent").has(json!({"metadata": {"deletionTimestamp": "<any>"}})),
                    Sample.get("owner").has(json!({"metadata": {"deletionTimestamp": "<any>"}})),
                    ConfigMap.merge("dependent", json!({"metadata": {"finalizers": null}})),
                    Sample.collected("owner"),
                    ConfigMap.get("dependent").nothing(),
                ],
            ]
            .concat(),
        },
        Case {
            name: "a dependent that does not block is not waited for",
            exchanges: [
                vec![
                    held_owner(),
                    ConfigMap.create(dependent(&[reference("owner", false)])),
                    ConfigMap.merge("dependent", json!({"metadata": {"finalizers": ["x.test/a"]}})),
                ],
                known_to_the_collector().into(),
                vec![
                    Sample
                        .delete("owner")
                        .propagating(Foreground)
                        .has(json!({"metadata": {"deletionTimestamp": "<any>"}})),
                    Sample.get("owner").has(json!({"metadata": {"finalizers": ["x.test/held"]}})),
                    Sample.merge("owner", json!({"metadata": {"finalizers": null}})),
                    Sample.collected("owner"),
                    ConfigMap.get("dependent").has(json!({"metadata": {"deletionTimestamp": "<any>"}})),
                    ConfigMap.merge("dependent", json!({"metadata": {"finalizers": null}})),
                ],
            ]
            .concat(),
        },
        Case {
            name: "dependents may stay without their owner",
            exchanges: [
                vec![held_owner(), ConfigMap.create(dependent(&[reference("owner", true)]))],
                known_to_the_collector().into(),
                vec![
                    Sample.delete("owner").propagating(Orphan).has(json!({"metadata": {"deletionTimestamp": "<any>"}})),
                    // A finalizer of its own keeps the owner until its dependents have forgotten it.
                    Sample.get("owner").has(json!({"metadata": {"finalizers": ["x.test/held"]}})),
                    ConfigMap
                        .get("dependent")
                        .has(json!({"metadata": {"ownerReferences": null, "deletionTimestamp": null}})),
                    Sample.merge("owner", json!({"metadata": {"finalizers": null}})),
                    Sample.collected("owner"),
                ],
            ]
            .concat(),
        },
        Case {
            name: "an object stays as long as one of its owners does",
            exchanges: vec![
                owner("owner"),
                owner("other"),
                ConfigMap.create(dependent(&[reference("owner", true), reference("other", true)])),
                Sample.delete("owner").propagating(Background).nothing(),
                ConfigMap.get("dependent").has(json!({"metadata": {
                    "deletionTimestamp": null, "ownerReferences": [reference("other", true)],
                }})),
                Sample.delete("other").propagating(Background).nothing(),
                ConfigMap.collected("dependent"),
            ],
        },
        Case {
            name: "an object whose owner never existed is garbage, whatever has the owner's name",
            exchanges: vec![
                owner("owner"),
                Sample.delete("owner").nothing(),
                // The reference names the first one.
                ConfigMap.create(dependent(&[reference("owner", true)])),
                ConfigMap.collected("dependent"),
            ],
        },
    ]
}
