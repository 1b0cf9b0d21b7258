//! Memory of what the frontend keeps of each PE, beside the JSON of the same objects after trimming, of callers whose
//! requests are long in coming, and of exports and imports that say much.
//!
//! Every allocation of Rust is counted; zstd has its dictionaries and contexts beside them, whose number is bounded.
//! `cargo test -p streams-frontend --test memory -- --nocapture` prints the table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use bytes::Bytes;
use futures::future::join_all;
use futures::{FutureExt as _, stream};
use peak_alloc::PeakAlloc;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spl_expression::{Expression, Limits, List, Value as Property};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use streams_broker::{Application, Board, Changes, Export, Import, NamedStream, Pe, Port, Subscription};
use streams_frontend::controllers::LastSeen;
use streams_frontend::mirrors::Mirrors;
use streams_frontend::pe_api;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::watch::{Mirrored, Trim, Watch, trimmed};
use streams_kubernetes_fake::Server;
use tokio::runtime::Builder;
use tower::ServiceExt as _;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Jobs, each in a namespace with others, and the PEs of each.
const JOBS: usize = 100;
const PES: usize = 12;

/// Bytes of the heap for each byte of JSON, at most.
const MOST: f64 = 0.4;

/// Callers whose bodies are long in coming, and bytes of the heap for each, at most.
const CALLERS: usize = 20;
const MOST_OF_CALLER: usize = 16 << 10;
/// Bytes that their jobs, PEs and regions have more than is needed of them.
const LARGE: usize = 64 << 10;

/// Bytes of the heap for what the imports, or the exports, of a namespace ask for, which have 32 MiB, and for these.
const MOST_OF_BOARD: usize = 40 << 20;

/// The metadata of an object of a PE as the API server has it.
fn metadata(job: usize, pe: usize, name: &str, owner: (&str, &str), more: &Value) -> Value {
    let uid = |number: usize| {
        let digits = digest(job, pe, number + 100);
        format!("{}-{}-4{}-9{}-{}", &digits[..8], &digits[8..12], &digits[12..15], &digits[15..18], &digits[18..30])
    };
    let (owner_kind, owner_name) = owner;
    let mut metadata = json!({
        "namespace": format!("team-{}", job % 12), "name": name, "uid": uid(name.len()),
        "resourceVersion": (100_000 + job * 97 + pe).to_string(), "generation": 1,
        "creationTimestamp": "2026-11-22T18:12:07Z",
        "labels": {
            "app": "streams", "svc": "pe", "streams.ibm.com/job": format!("flow-{job}"),
            "streams.ibm.com/pe": pe.to_string(),
        },
        "ownerReferences": [{
            "apiVersion": "streams.ibm.com/v1", "kind": owner_kind, "name": owner_name,
            "uid": owner_uid(job), "controller": true, "blockOwnerDeletion": true,
        }],
        "managedFields": [{
            "manager": "streams-job-controller", "operation": "Apply", "apiVersion": "v1",
            "time": "2026-11-22T18:12:07Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:data": {"f:aadl.xml": {}}, "f:immutable": {}},
        }],
    });
    for part in ["labels", "annotations"] {
        for (key, value) in more[part].as_object().into_iter().flatten() {
            metadata[part][key] = value.clone();
        }
    }
    metadata
}

/// A number that looks like any other: what repeats itself takes less than it does in a cluster.
fn digest(job: usize, pe: usize, salt: usize) -> String {
    hex::encode(Sha256::digest(format!("{job} {pe} {salt}")))
}

/// The uid of what controls the objects of a job.
fn owner_uid(job: usize) -> String {
    format!("{job:08x}-77aa-4f0e-8a11-0242ac110002")
}

/// The name of the pod of a PE's first launch.
fn pod_name(job: usize, pe: usize) -> String {
    let digits = hex::encode(Sha256::digest(format!("{}/1", owner_uid(job))));
    format!("flow-{job}-{pe}-{}", &digits[..10])
}

/// The PE, once its pod runs.
fn processing_element(job: usize, pe: usize) -> Value {
    let (flow, name) = (format!("flow-{job}"), format!("flow-{job}-{pe}"));
    let annotations = json!({"annotations": {
        "streams.ibm.com/applied-hash": digest(job, pe, 1), "streams.ibm.com/start-hash": "0011223344",
        "streams.ibm.com/application-name": "com.example.sensors::Sensors",
        "streams.ibm.com/application-scope": "Default",
    }});
    json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement",
        "metadata": metadata(job, pe, &name, ("Job", &flow), &annotations),
        "spec": {
            "jobName": flow, "jobId": job, "applicationName": "com.example.sensors::Sensors",
            "applicationScope": "Default", "id": pe, "generation": 1, "contentId": digest(job, pe, 2),
            "runtimeId": digest(job, pe, 3),
            "configMap": {"name": format!("{name}-{}", &digest(job, pe, 2)[54..]), "compressed": false},
            "operatorCount": 2, "operators": ["Source", format!("Parallel[{pe}].Work")], "restartable": true,
            "inputPorts": [0], "sabName": "com.example.sensors.Sensors.sab", "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        },
        "status": {
            "phase": "Running", "observedGeneration": 1, "launchCount": 1, "createdLaunchCount": 1,
            "podName": pod_name(job, pe), "podUid": "0b5c1f54-6c7e-4a53-9dfd-0242ac110002",
            "contentId": digest(job, pe, 2), "runtimeId": digest(job, pe, 3), "podTemplateHash": "5566778899",
            "nodeName": "node-3", "runningSince": "2026-11-22T18:12:11Z", "restarts": 0, "consecutiveRestarts": 0,
            "conditions": [
                {
                    "type": "Ready", "status": "True", "reason": "PodRunning", "message": "the pod runs",
                    "lastTransitionTime": "2026-11-22T18:12:11Z", "observedGeneration": 1,
                },
                {
                    "type": "Connected", "status": "Unknown", "reason": "NotReported",
                    "message": "the runtime does not say whether the PE is connected",
                    "lastTransitionTime": "2026-11-22T18:12:11Z", "observedGeneration": 1,
                },
            ],
        },
    })
}

/// The pod as a kubelet reports it.
fn pod(job: usize, pe: usize) -> Value {
    let name = format!("flow-{job}-{pe}");
    let more = json!({
        "labels": {"streams.ibm.com/launch-count": "1"},
        "annotations": {
            "streams.ibm.com/content-id": digest(job, pe, 2), "streams.ibm.com/runtime-id": digest(job, pe, 3),
            "streams.ibm.com/pod-template-hash": "5566778899", "streams.ibm.com/placement-hash": "aabbccddee",
        },
    });
    let condition = |name: &str| json!({"type": name, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-22T18:12:09Z"});
    let kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let container = |name: &str, state: Value| {
        json!({
            "name": name, "ready": true, "restartCount": 0, "image": "registry.example.com/streams/runtime:7.2",
            "imageID": format!("registry.example.com/streams/runtime@sha256:{}", digest(0, 0, 9)),
            "containerID": format!("containerd://{}", digest(job, pe, 8)), "started": true, "lastState": {},
            "state": state,
        })
    };
    let ended = json!({"terminated": {
        "exitCode": 0, "reason": "Completed", "startedAt": "2026-11-22T18:12:09Z",
        "finishedAt": "2026-11-22T18:12:10Z", "containerID": format!("containerd://{}", digest(job, pe, 7)),
    }});
    json!({
        "metadata": metadata(job, pe, &pod_name(job, pe), ("ProcessingElement", &name), &more),
        "spec": {
            "nodeName": "node-3", "restartPolicy": "Never", "serviceAccountName": "default",
            "containers": [{"name": "pe", "image": "registry.example.com/streams/runtime:7.2"}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.3.17", "podIPs": [{"ip": "10.0.3.17"}], "hostIP": "192.168.1.7",
            "startTime": "2026-11-22T18:12:08Z", "qosClass": "Burstable", "conditions": kinds.map(condition),
            "initContainerStatuses": [container("unpack", ended)],
            "containerStatuses": [container("pe", json!({"running": {"startedAt": "2026-11-22T18:12:11Z"}}))],
        },
    })
}

/// The Service, with what the API server fills in.
fn service(job: usize, pe: usize) -> Value {
    let (flow, name) = (format!("flow-{job}"), format!("flow-{job}-{pe}"));
    let annotations = json!({"annotations": {
        "streams.ibm.com/applied-hash": digest(job, pe, 4),
        "streams.ibm.com/application-name": "com.example.sensors::Sensors",
        "streams.ibm.com/application-scope": "Default",
    }});
    let port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port, "targetPort": port});
    json!({
        "metadata": metadata(job, pe, &name, ("Job", &flow), &annotations),
        "spec": {
            "clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster", "type": "ClusterIP",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "publishNotReadyAddresses": true,
            "sessionAffinity": "None",
            "selector": {"app": "streams", "streams.ibm.com/job": flow, "streams.ibm.com/pe": pe.to_string()},
            "ports": [
                port("sys-0", "TCP", 10000), port("sys-metrics", "TCP", 9876), port("sys-notifications", "UDP", 9877),
                port("sys-consistentregion", "UDP", 9878),
            ],
        },
        "status": {"loadBalancer": {}},
    })
}

/// What is watched of the ConfigMap with the text.
fn config_map(job: usize, pe: usize) -> Value {
    let (flow, name) = (format!("flow-{job}"), format!("flow-{job}-{pe}-{}", &digest(job, pe, 2)[54..]));
    let more = json!({
        "labels": {"streams.ibm.com/part": "aadl"},
        "annotations": {"streams.ibm.com/content-id": digest(job, pe, 2)},
    });
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": metadata(job, pe, &name, ("Job", &flow), &more),
    })
}

/// Bytes of the heap that what `work` leaves behind takes.
fn growth(work: impl FnOnce()) -> usize {
    let before = ALLOCATOR.current_usage();
    work();
    ALLOCATOR.current_usage() - before
}

/// Delivers an object of each PE to a mirror. Gives the bytes of their JSON after trimming.
fn fill<K: Mirrored>(mirror: &Watch<K>, object: impl Fn(usize, usize) -> Value, trim: Trim<K>) -> usize {
    let mut bytes = 0;
    for (job, pe) in (0..JOBS).flat_map(|job| (0..PES).map(move |pe| (job, pe))) {
        let mut trimmed: K = serde_json::from_value(object(job, pe)).unwrap();
        trim(&mut trimmed);
        bytes += serde_json::to_vec(&trimmed).unwrap().len();
        mirror.insert(trimmed);
    }
    bytes
}

/// One test only: others would be counted with it.
#[test]
fn little_is_kept_of_each_pe_for_each_caller_and_of_long_subscriptions() {
    what_is_kept_of_a_pe_takes_less_than_half_of_its_json();
    nothing_is_kept_for_a_caller_of_what_it_asks_about();
    ports_of_a_namespace_take_no_more_than_there_is_room_for();
    an_export_and_an_import_by_name_take_little_beside_what_they_say();
}

fn what_is_kept_of_a_pe_takes_less_than_half_of_its_json() {
    let mirrors = Mirrors::new(&Metrics::new("test"));
    let seen = LastSeen::of(&mirrors);
    let mut json = [0; 4];
    let grown = [
        growth(|| json[0] = fill(&mirrors.processing_elements, processing_element, trimmed::custom_resource)),
        growth(|| json[1] = fill(&mirrors.pods, pod, trimmed::pod)),
        growth(|| json[2] = fill(&mirrors.services, service, trimmed::service)),
        growth(|| json[3] = fill(&mirrors.config_maps, config_map, trimmed::config_map)),
    ];
    println!("| of a PE | JSON | heap | heap / JSON |\n|---|---|---|---|");
    let ratio = |grown: usize, json: usize| grown as f64 / json as f64;
    let kinds = ["the PE", "its pod, and how it was seen last", "its Service", "its ConfigMap"];
    let (all_json, all_grown) = (json.iter().sum(), grown.iter().sum());
    let rows = kinds.into_iter().zip(json).zip(grown).map(|((kind, json), grown)| (kind, json, grown));
    for (kind, json, grown) in rows.chain([("all", all_json, all_grown)]) {
        let of_pe = |bytes: usize| bytes / (JOBS * PES);
        println!("| {kind} | {} | {} | {:.2} |", of_pe(json), of_pe(grown), ratio(grown, json));
    }
    assert!(ratio(all_grown, all_json) <= MOST, "{:.2}", ratio(all_grown, all_json));
    drop(seen);
}

/// Each asks for something else that takes as much as it may.
fn ports_of_a_namespace_take_no_more_than_there_is_room_for() {
    let long = "a|".repeat(4_000);
    let alternatives = |prefix: &str| (0..256).map(|n| format!("{prefix}_{n} == {n}")).collect::<Vec<_>>().join(" || ");
    let many = (0..150).map(|n| format!("name_{n} == {n}")).collect::<Vec<_>>().join(" || ");
    let most = alternatives("name");
    let subscribed = |id: u64, scope: &str, text: &str| {
        let expression = Expression::parse(text, &Limits::of_evaluation()).unwrap().into();
        Import { subscription: Some(Subscription { scope: scope.into(), expression }), ..import_of_nothing(id) }
    };
    let filtered = |id: u64, filter: &str| Import { filter: Some(filter.into()), ..import_of_nothing(id) };
    let named = |id: u64| NamedStream {
        application: None,
        scope: "Default".into(),
        stream: format!("{}-{id}", "s".repeat(500)).into(),
    };
    let by_name =
        |id: u64| Import { named: (0..1_024).map(|n| named(1_024 * id + n)).collect(), ..import_of_nothing(id) };
    let exported = |id: u64, count: u64, list: &dyn Fn(u64) -> Property| {
        let properties = (0..count).map(|n| (format!("name_{n}"), list(1_000 * id))).collect();
        Export { properties: Some(Arc::new(properties)), ..export_of_nothing(id) }
    };
    let numbers = |from: u64| {
        Property::List(List::Int64((from..from + 1_000).map(|n| i64::try_from(n).unwrap().into()).collect()))
    };
    let texts =
        |from: u64| Property::List(List::Rstring((from..from + 1_000).map(|n| format!("{n}").into()).collect()));
    let long_text = |from: u64| Property::Rstring(format!("{from}{}", "x".repeat(65_000)).into());
    type Made<'a> = (&'a str, u64, &'a dyn Fn(u64) -> Import);
    let imports: [Made<'_>; 7] = [
        ("many streams by name", 300, &by_name),
        ("long subscriptions", 300, &|id| subscribed(id, "Default", &format!("{long}n == {id}"))),
        ("many alternatives", 1_000, &|id| subscribed(id, "Default", &format!("{many} || n == {id}"))),
        ("the same alternatives", 3_000, &|id| subscribed(id, "Default", &many)),
        ("the same alternatives in other scopes", 3_000, &|id| subscribed(id, &format!("scope-{id}"), &most)),
        ("alternatives of their own", 600, &|id| subscribed(id, "Default", &alternatives(&format!("name_{id}")))),
        ("filters", 1_000, &|id| filtered(id, &format!("{} == {id}", "f".repeat(65_000)))),
    ];
    for (what, count, made) in imports {
        board_takes_no_more(what, count, &|board, id| board.put_import(made(id)));
    }
    let exports: [(&str, u64, &dyn Fn(u64) -> Export); 3] = [
        ("properties that are lists of numbers", 20, &|id| exported(id, 100, &numbers)),
        ("properties that are lists of texts", 20, &|id| exported(id, 100, &texts)),
        ("a property that is a long text", 1_000, &|id| exported(id, 1, &long_text)),
    ];
    for (what, count, made) in exports {
        board_takes_no_more(what, count, &|board, id| board.put_export(made(id)));
    }
}

/// Puts so many ports on a board, each by its number, and again as often as they are to be.
fn board_takes_no_more(what: &str, count: u64, put: &dyn Fn(&mut Board, u64) -> Changes) {
    let mut board = Board::default();
    let those = |Changes { again, exports_again, .. }: Changes| again.into_iter().chain(exports_again);
    let grown = growth(|| {
        for id in 0..count {
            let mut again: BTreeSet<Port> = those(put(&mut board, id)).collect();
            while let Some(port) = again.pop_first() {
                again.extend(those(put(&mut board, port.pe.id)));
            }
        }
    });
    println!("| ports with {what} | {grown} |");
    assert!(grown <= MOST_OF_BOARD, "{what}: {grown}");
}

fn port(job: &str, id: u64) -> Port {
    Port { pe: Pe { job: job.into(), id }, id: 0 }
}

fn import_of_nothing(id: u64) -> Import {
    Import { port: port("in", id), job_id: 1, port_index: 0, named: Arc::default(), subscription: None, filter: None }
}

fn export_of_nothing(id: u64) -> Export {
    Export {
        port: port("out", id),
        job_id: 1,
        application: Application { name: "a".into(), scope: format!("scope-{id}").into() },
        name: Some(format!("stream-{id}").into()),
        properties: None,
        allows_filter: true,
    }
}

/// Nothing bounds how many exports, and imports by name, a namespace has, but a quota: so each takes little.
fn an_export_and_an_import_by_name_take_little_beside_what_they_say() {
    const COUNT: usize = 500;
    let values = |id: u64, count: u64| {
        let values = (0..count).map(|n| format!("value-{id}-{n}").into()).collect::<Vec<_>>();
        Property::List(List::Rstring(values.into()))
    };
    let export = |id: u64, count: u64| Export {
        properties: Some(Arc::new([("list", values(id, count))].into_iter().collect())),
        ..export_of_nothing(id)
    };
    let named = |id: u64, count: u64| {
        let named = |n| NamedStream {
            application: None,
            scope: format!("scope-{id}").into(),
            stream: format!("s-{id}-{n}").into(),
        };
        Import { named: (0..count).map(named).collect(), ..import_of_nothing(id) }
    };
    type Put<'a> = (&'a str, usize, &'a dyn Fn(&mut Board, u64));
    // bytes that each may take
    let table: [Put<'_>; 4] = [
        ("exports with 30 values", 24 << 10, &|board, id| _ = board.put_export(export(id, 30))),
        ("exports with 250 values", 24 << 10, &|board, id| _ = board.put_export(export(id, 250))),
        ("imports of 30 streams by name", 24 << 10, &|board, id| _ = board.put_import(named(id, 30))),
        ("imports of 1,024 streams by name", 128 << 10, &|board, id| _ = board.put_import(named(id, 1_024))),
    ];
    for (what, most, put) in table {
        let mut board = Board::default();
        let each = growth(|| (0..COUNT as u64).for_each(|id| put(&mut board, id))) / COUNT;
        println!("| each of {what} | {each} |");
        assert!(each <= most, "{what}: {each}");
    }
}

/// An object of a user who makes it as large as it may be.
fn large<K: DeserializeOwned>(kind: &str, name: &str, owner: Option<(&str, &str)>, rest: Value) -> K {
    let owner = owner.map(|(kind, name)| {
        let api_version = "streams.ibm.com/v1";
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true}])
    });
    let mut object = rest;
    object["apiVersion"] = json!(if kind == "Pod" { "v1" } else { "streams.ibm.com/v1" });
    object["kind"] = json!(kind);
    object["metadata"] = json!({
        "namespace": "n", "name": name, "uid": name, "ownerReferences": owner,
        "labels": {"streams.ibm.com/launch-count": "1"}, "annotations": {"a": "x".repeat(LARGE)},
    });
    serde_json::from_value(object).unwrap()
}

/// A PE of job `flow`, its pod, and what else the paths below name.
fn fill_large(mirrors: &Mirrors) {
    let of_job = Some(("Job", "flow"));
    let job = json!({"spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": 1, "generation": 0}});
    mirrors.jobs.insert(large("Job", "flow", None, job));
    let pe = processing_element(0, 0)["spec"].clone();
    let mut pe = json!({"spec": pe, "status": {"launchCount": 1}});
    (pe["spec"]["jobName"], pe["spec"]["jobId"]) = (json!("flow"), json!(1));
    mirrors.processing_elements.insert(large("ProcessingElement", "flow-0", of_job, pe));
    let pod = json!({"spec": {"containers": []}, "status": {"phase": "Running", "podIP": "10.0.0.1"}});
    mirrors.pods.insert(large("Pod", "flow-0-x", Some(("ProcessingElement", "flow-0")), pod));
    let region = json!({"spec": {"jobName": "flow", "index": 0, "name": "R", "width": 2}});
    mirrors.parallel_regions.insert(large("ParallelRegion", "flow-0", of_job, region));
    let export = json!({"spec": {
        "jobName": "flow", "jobId": 1, "applicationName": "A", "applicationScope": "Default", "peId": 0, "portId": 0,
        "type": "ByProperties", "stream": {"exportOperName": "Out", "properties": []},
    }});
    mirrors.exports.insert(large("Export", "flow-0-0", of_job, export));
    let region = json!({"spec": {
        "jobName": "flow", "jobId": 1, "index": 0, "logicalIndex": 0, "trigger": "operatorDriven", "peIds": [0],
        "drainTimeoutMilliseconds": 1, "resetTimeoutMilliseconds": 1, "maxConsecutiveResetAttempts": 1,
        "operatorCount": 1, "startOperatorCount": 1,
    }});
    mirrors.consistent_regions.insert(large("ConsistentRegion", "flow-cr0", of_job, region));
}

fn nothing_is_kept_for_a_caller_of_what_it_asks_about() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (mirrors, metrics, server) = (Mirrors::new(&Metrics::new("test")), Metrics::new("test"), Server::new());
    let (router, _) = runtime.block_on(async { pe_api::of_mirrors(server.connect(), &mirrors, &metrics) });
    fill_large(&mirrors);
    mirrors.jobs.has_everything();
    mirrors.processing_elements.has_everything();
    mirrors.pods.has_everything();
    mirrors.services.has_everything();
    mirrors.parallel_regions.has_everything();
    mirrors.consistent_regions.has_everything();
    mirrors.exports.has_everything();
    mirrors.imports.has_everything();
    println!("| a caller of | heap |\n|---|---|");
    for (method, path) in [
        ("PUT", "/api/endpoints/job/flow/pe/0/endpoint/web"),
        ("PUT", "/api/state/job/flow/pe/0/connectivity"),
        ("PUT", "/api/state/job/flow/pr/R/width"),
        ("POST", "/api/subscriptions/job/flow/pe/0/export/0/properties"),
        ("PUT", "/api/subscriptions/job/flow/pe/0/export/0/properties"),
        ("PUT", "/api/consistentregion/region/0/pe/0/checkpoint"),
        ("PUT", "/api/consistentregion/region/0/drain"),
    ] {
        let call = || {
            let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
            let address: SocketAddr = "10.0.0.1:1".parse().unwrap();
            let request = Request::builder().method(method).uri(path).header("host", "streams-api.n:10000");
            Box::pin(router.clone().oneshot(request.extension(ConnectInfo(address)).body(body).unwrap()))
        };
        let mut calls = None;
        let grown = growth(|| {
            let mut all = join_all((0..CALLERS).map(|_| call()));
            assert!(runtime.block_on(async { (&mut all).now_or_never() }).is_none(), "{path}: it was answered");
            calls = Some(all);
        });
        drop(calls);
        println!("| {method} {path} | {} |", grown / CALLERS);
        assert!(grown / CALLERS <= MOST_OF_CALLER, "{method} {path}: {}", grown / CALLERS);
    }
}
