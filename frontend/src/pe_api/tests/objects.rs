//! The objects of the tests: jobs, PEs with their pods, regions, exports and imports.

use super::{NEIGHBOUR, PE, STRANGER};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use streams_api::{Export, Import, Job, ParallelRegion, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes_fake::Server;

pub(super) fn job(name: &str, id: u64) -> Job {
    serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n"},
        "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": id, "generation": 0},
    }))
    .unwrap()
}

/// Parallel region `R` of job `srcjob`.
pub(super) fn region(server: &Server) {
    let region: ParallelRegion = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ParallelRegion",
        "metadata": metadata(server, "Job", "srcjob-0", "srcjob"),
        "spec": {"jobName": "srcjob", "index": 0, "name": "R", "width": 2},
    }))
    .unwrap();
    server.create(&region);
}

/// What the job of this name controls.
pub(super) fn metadata(server: &Server, kind: &str, name: &str, owner: &str) -> Value {
    let uid = match kind {
        "Job" => server.get::<Job>(&Key::new("n", owner)).unwrap().metadata.uid,
        _ => server.get::<ProcessingElement>(&Key::new("n", owner)).unwrap().metadata.uid,
    };
    json!({
        "name": name, "namespace": "n", "labels": {"app": "streams"},
        "ownerReferences": [
            {"apiVersion": "streams.ibm.com/v1", "kind": kind, "name": owner, "uid": uid, "controller": true},
        ],
    })
}

pub(super) fn element(server: &Server, job: &str, id: u64, address: &str) {
    let name = format!("{job}-{id}");
    let pe: ProcessingElement = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement",
        "metadata": metadata(server, "Job", &name, job),
        "spec": {
            "jobName": job, "jobId": 1, "id": id, "generation": 1, "contentId": "c", "runtimeId": "r",
            "configMap": {"name": "m"}, "operatorCount": 1, "operators": ["o"], "inputPorts": [0], "image": "i",
        },
        "status": {"launchCount": 2},
    }))
    .unwrap();
    server.create(&pe);
    let mut meta = metadata(server, "ProcessingElement", &format!("{name}-x"), &name);
    meta["labels"] = json!({
        "app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": id.to_string(),
        "streams.ibm.com/launch-count": "2",
    });
    let pod: Pod = serde_json::from_value(json!({
        "metadata": meta, "spec": {"containers": [{"name": "pe"}]},
        "status": {"phase": "Running", "podIP": address},
    }))
    .unwrap();
    server.create(&pod);
}

/// Jobs `srcjob` with PEs 0 and 1, and `dstjob` with PE 0.
pub(super) fn jobs(server: &Server) {
    server.create(&job("srcjob", 1));
    server.create(&job("dstjob", 2));
    element(server, "srcjob", 0, NEIGHBOUR);
    element(server, "srcjob", 1, PE);
    element(server, "dstjob", 0, STRANGER);
}

/// Job `srcjob` is deleted, its PEs are not.
pub(super) fn leave_behind(server: &Server) {
    for pe in ["srcjob-0", "srcjob-1"] {
        server.edit::<ProcessingElement>(&Key::new("n", pe), |pe| {
            pe.metadata.owner_references = None;
            let labels = pe.metadata.labels.get_or_insert_default();
            labels.insert("streams.ibm.com/job".to_owned(), "srcjob".to_owned());
        });
    }
    server.remove::<Job>(&Key::new("n", "srcjob"));
}

/// The text of a PE has a port of this number at which it exports, or imports.
pub(super) fn has_port(server: &Server, pe: &str, port: u32, exports: bool) {
    server.edit::<ProcessingElement>(&Key::new("n", pe), |pe| {
        let ports = if exports { &mut pe.spec.exported_ports } else { &mut pe.spec.input_ports };
        if !ports.contains(&port) {
            ports.push(port);
        }
    });
}

pub(super) fn export(server: &Server, by: &str, stream: &Value) {
    has_port(server, "srcjob-1", 10, true);
    let export: Export = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Export",
        "metadata": metadata(server, "Job", "srcjob-1-10", "srcjob"),
        "spec": {
            "jobName": "srcjob", "jobId": 1, "applicationName": "A", "applicationScope": "Default", "peId": 1,
            "portId": 10, "type": by, "stream": stream,
        },
    }))
    .unwrap();
    server.create(&export);
}

/// A port of a PE of `srcjob` exports stream `s`.
pub(super) fn exporting(server: &Server, pe: u64, port: u32) {
    has_port(server, &format!("srcjob-{pe}"), port, true);
    let export: Export = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Export",
        "metadata": metadata(server, "Job", &format!("srcjob-{pe}-{port}"), "srcjob"),
        "spec": {
            "jobName": "srcjob", "jobId": 1, "applicationName": "A", "applicationScope": "Default", "peId": pe,
            "portId": port, "type": "ByName", "stream": {"exportOperName": "Out", "name": "s"},
        },
    }))
    .unwrap();
    server.create(&export);
}

pub(super) fn by_properties(server: &Server) {
    jobs(server);
    let properties = json!([{"name": "prop0", "type": "list<rstring>", "values": ["\"a\"", "\"b\""]}]);
    let stream = json!({"exportOperName": "Out", "properties": properties, "allowFilter": false});
    export(server, "ByProperties", &stream);
}

pub(super) fn by_name(server: &Server) {
    jobs(server);
    export(server, "ByName", &json!({"exportOperName": "Out", "name": "s"}));
}

pub(super) fn importing(server: &Server, name: &str, job: &str, pe: u64, port: u32, streams: &Value) {
    has_port(server, &format!("{job}-{pe}"), port, false);
    let import: Import = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Import", "metadata": metadata(server, "Job", name, job),
        "spec": {
            "jobName": job, "jobId": if job == "srcjob" { 1 } else { 2 }, "applicationName": "B",
            "applicationScope": "Default", "peId": pe, "portId": port, "portIndex": port, "streams": streams,
        },
    }))
    .unwrap();
    server.create(&import);
}

pub(super) fn subscribed(text: &str) -> Value {
    let import = json!({"subscription": text, "applicationScope": "Default", "importOperName": "In", "index": 0});
    json!({"propertyBasedImport": import})
}

/// A stream of this name.
pub(super) fn named(stream: &str) -> Value {
    let import = json!({
        "applicationName": "A", "applicationScope": "Default", "streamName": stream, "importOperName": "In",
    });
    json!({"nameBasedImports": {"0": import}})
}

/// PEs of the job that have an endpoint.
pub(super) fn with_endpoints(server: &Server) -> Vec<u64> {
    let pes = server.list::<ProcessingElement>().into_iter();
    let pes = pes.filter(|pe| pe.status.as_ref().is_some_and(|status| !status.endpoints.is_empty()));
    pes.map(|pe| pe.spec.id).collect()
}

pub(super) fn reservations(server: &Server) -> Vec<ConfigMap> {
    server.list::<ConfigMap>()
}
