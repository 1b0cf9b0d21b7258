//! What the targets have in common that talk to a cluster: objects of two jobs, mirrors that show them, boards that are
//! settled.
//!
//! Knows: kinds of objects, the fake API server. Must not know: who asks for what.

use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use streams_api::{ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, ProcessingElement, Resize};
use streams_frontend::mirrors::Mirrors;
use streams_kubernetes::cluster::Object;
use streams_kubernetes::watch::{ConfigMapMeta, trimmed};
use streams_kubernetes_fake::{Mirror, Server};

/// Most turns of boards before something is wrong with them: a turn takes some milliseconds.
const TURNS: usize = 1_000;

/// Gives turns until everybody is told what matches, so that the next answer depends on no turn.
pub(crate) fn settle(turn: &dyn Fn() -> bool) {
    let turns = (0..TURNS).take_while(|_| turn()).count();
    assert!(turns < TURNS, "what matches is never known");
}

/// Fills the mirrors, and gives what brings them up to date.
pub(crate) fn following(server: &Server, mirrors: &Mirrors) -> Vec<Box<dyn FnMut()>> {
    macro_rules! follow {
        ($($mirror:ident: $kind:ty, $read:expr;)*) => {
            vec![$({
                let mut mirror = Mirror::<$kind>::new(server, &mirrors.$mirror, $read);
                let follow: Box<dyn FnMut()> = Box::new(move || { mirror.deliver(usize::MAX); });
                follow
            }),*]
        };
    }
    follow! {
        jobs: Job, trimmed::custom_resource;
        processing_elements: ProcessingElement, trimmed::custom_resource;
        parallel_regions: ParallelRegion, trimmed::custom_resource;
        resizes: Resize, trimmed::custom_resource;
        host_pools: HostPool, trimmed::custom_resource;
        exports: Export, trimmed::custom_resource;
        imports: Import, trimmed::custom_resource;
        consistent_regions: ConsistentRegion, trimmed::custom_resource;
        pods: Pod, trimmed::pod;
        services: Service, trimmed::service;
        config_maps: ConfigMapMeta, trimmed::config_map;
    }
}

/// Two jobs with PEs that run, exports, imports, a parallel and a consistent region. PE 0 and 1 of job `a`, and PE 0 of
/// job `b`, have these addresses.
pub(crate) fn fill(server: &Server, addresses: [&str; 3]) {
    let mut uids = BTreeMap::new();
    for (id, name) in [(1, "a"), (2, "b")] {
        let job: Job = object(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n"},
            "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": id, "generation": 0},
        }));
        uids.insert(name, server.create(&job).metadata.uid);
    }
    let meta = |kind: &str, owner: &str, uid: &Option<String>, name: &str| {
        json!({
            "name": name, "namespace": "n", "labels": {"app": "streams"},
            "ownerReferences": [
                {"apiVersion": "streams.ibm.com/v1", "kind": kind, "name": owner, "uid": uid, "controller": true},
            ],
        })
    };
    for (job, id, address) in [("a", 0, addresses[0]), ("a", 1, addresses[1]), ("b", 0, addresses[2])] {
        let name = format!("{job}-{id}");
        let pe: ProcessingElement = object(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement",
            "metadata": meta("Job", job, &uids[job], &name),
            "spec": {
                "jobName": job, "jobId": 1, "id": id, "generation": 1, "contentId": "c", "runtimeId": "r",
                "configMap": {"name": "m"}, "operatorCount": 1, "operators": ["o"], "inputPorts": [0, 1], "image": "i",
                "exportedPorts": [0], "consistentRegions": [0],
            },
            "status": {"launchCount": 2},
        }));
        let uid = server.create(&pe).metadata.uid;
        let mut pod = meta("ProcessingElement", &name, &uid, &format!("{name}-x"));
        pod["labels"] = json!({
            "app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": id.to_string(),
            "streams.ibm.com/launch-count": "2",
        });
        server.create::<Pod>(&object(json!({
            "metadata": pod, "spec": {"containers": [{"name": "pe"}]},
            "status": {"phase": "Running", "podIP": address},
        })));
    }
    let uid = &uids["a"];
    let properties = json!([{"name": "prop", "type": "int64", "values": ["1"]}]);
    server.create::<Export>(&object(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Export", "metadata": meta("Job", "a", uid, "a-1-0"),
        "spec": {
            "jobName": "a", "jobId": 1, "applicationName": "A", "applicationScope": "Default", "peId": 1, "portId": 0,
            "type": "ByProperties",
            "stream": {"exportOperName": "Out", "properties": properties, "allowFilter": false},
        },
    })));
    for (job, name) in [("a", "a-0-1"), ("b", "b-0-1")] {
        server.create::<Import>(&object(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Import", "metadata": meta("Job", job, &uids[job], name),
            "spec": {
                "jobName": job, "jobId": if job == "a" { 1 } else { 2 }, "applicationName": "B",
                "applicationScope": "Default", "peId": 0, "portId": 1, "portIndex": 1,
                "streams": {"propertyBasedImport": {
                    "subscription": "prop == 1", "applicationScope": "Default", "importOperName": "In", "index": 0,
                }},
            },
        })));
    }
    server.create::<ParallelRegion>(&object(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ParallelRegion", "metadata": meta("Job", "a", uid, "a-0"),
        "spec": {"jobName": "a", "index": 0, "name": "R", "width": 2},
    })));
    server.create::<ConsistentRegion>(&object(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ConsistentRegion", "metadata": meta("Job", "a", uid, "a-cr0"),
        "spec": {
            "jobName": "a", "jobId": 1, "index": 0, "logicalIndex": 0, "trigger": "periodic",
            "periodMilliseconds": 1_500, "drainTimeoutMilliseconds": 180_000, "resetTimeoutMilliseconds": 90_000,
            "maxConsecutiveResetAttempts": 5, "peIds": [0, 1], "operatorCount": 2, "startOperatorCount": 1,
        },
        "status": {"record": {
            "sequence": 3, "lastCompleted": 2, "retired": 1,
            "phase": {"processing": {"launches": {"2": [0, 1]}, "told": "resumed", "since": 39_000}},
        }},
    })));
}

fn object<K: Object>(object: Value) -> K {
    serde_json::from_value(object).expect("an object of this kind")
}
