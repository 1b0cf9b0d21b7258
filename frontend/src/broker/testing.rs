//! Objects for tests of boards, and of whoever asks them.

use crate::broker::boards::Boards;
use crate::mirrors::Mirrors;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use streams_api::{Export, ExportType, Import, Job, ProcessingElement};
use streams_broker::Pe;
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;

/// A job of namespace `n`, with a number if it has one; then it has a generation, too.
pub(crate) fn job(name: &str, uid: &str, id: Option<u64>) -> Job {
    let status = id.map(|id| json!({"jobId": id, "generation": 0}));
    serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "n", "uid": uid},
        "spec": {"bundle": {"file": "a.sab"}}, "status": status,
    }))
    .unwrap()
}

/// The metadata of an object of a job.
pub(crate) fn metadata(name: &str, job: &str, uid: &str) -> serde_json::Value {
    json!({
        "name": name, "namespace": "n", "uid": format!("of-{name}"), "labels": {"streams.ibm.com/job": job},
        "ownerReferences": [{
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "name": job, "uid": uid, "controller": true,
        }],
    })
}

/// An export of stream `s`.
pub(crate) fn export(name: &str, job: &str, uid: &str, id: u64) -> Export {
    serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Export", "metadata": metadata(name, job, uid),
        "spec": {
            "jobName": job, "jobId": id, "applicationName": "A", "applicationScope": "Default", "peId": 0,
            "portId": 0, "type": "ByName", "stream": {"exportOperName": "Out", "name": "s", "allowFilter": true},
        },
    }))
    .unwrap()
}

/// An import that asks for stream `s`.
pub(crate) fn import(name: &str, job: &str, uid: &str, id: u64) -> Import {
    let named = json!({
        "applicationName": "A", "applicationScope": "Default", "streamName": "s", "importOperName": "In",
    });
    serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Import", "metadata": metadata(name, job, uid),
        "spec": {
            "jobName": job, "jobId": id, "applicationName": "B", "applicationScope": "Default", "peId": 0,
            "portId": 0, "portIndex": 0, "streams": {"nameBasedImports": {"0": named}},
        },
    }))
    .unwrap()
}

/// An export of stream `s`, with so many values that it takes long to be looked at.
pub(super) fn long_export(name: &str, job: &str, uid: &str, id: u64) -> Export {
    let values = vec!["1"; 1_000];
    let list = |number: usize| json!({"name": format!("p{number}"), "type": "list<int64>", "values": values});
    let lists: Vec<serde_json::Value> = (0..100).map(list).collect();
    let mut export = export(name, job, uid, id);
    export.spec.export_type = ExportType::ByProperties;
    export.spec.stream.properties = serde_json::from_value(json!(lists)).unwrap();
    export
}

/// PE 0 of a job, as this generation has written it: whether its text has port 0, its runtime id and that of its pod.
pub(crate) fn element(
    (job, uid, id): (&str, &str, u64),
    generation: u64,
    has_port: bool,
    (runtime_id, launched): (&str, Option<&str>),
) -> ProcessingElement {
    let ports = if has_port { vec![0] } else { vec![] };
    serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement",
        "metadata": metadata(&format!("{job}-0"), job, uid),
        "spec": {
            "jobName": job, "jobId": id, "id": 0, "generation": generation, "contentId": "c", "runtimeId": runtime_id,
            "configMap": {"name": "m"}, "operatorCount": 1, "operators": ["o"], "image": "i", "inputPorts": ports,
            "exportedPorts": ports,
        },
        "status": {"launchCount": 1, "runtimeId": launched},
    }))
    .unwrap()
}

/// Imports of PE 0 of job `in`, each at another port, and so many exports; what the imports get is known.
pub(super) fn many_ports(followed: &Followed, imports: u32, exports: u64) {
    let mirrors = &followed.mirrors;
    mirrors.jobs.insert(job("out", "u1", Some(1)));
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    for pe in 0..exports {
        let mut export = export(&format!("out-{pe}-0"), "out", "u1", 1);
        export.spec.pe_id = pe;
        mirrors.exports.insert(export);
    }
    for port in 0..imports {
        let mut import = import(&format!("in-0-{port}"), "in", "u2", 2);
        import.spec.port_id = port;
        mirrors.imports.insert(import);
    }
    followed.settle();
}

/// Job `in` is suspended.
pub(super) fn suspend(followed: &Followed) {
    let mut resting = job("in", "u2", Some(2));
    resting.spec.suspend = true;
    followed.mirrors.jobs.insert(resting);
}

/// Another namespace, in which a subscription is to be tried with so many exports that cost as much as they can. All of
/// them are short enough to be looked at at once.
pub(crate) fn costly_namespace(mirrors: &Mirrors, namespace: &str, exports: u64) {
    let mut exporter = job("out", "u1", Some(1));
    exporter.metadata.namespace = Some(namespace.to_owned());
    mirrors.jobs.insert(exporter);
    let long = json!([{"name": "a", "type": "rstring", "values": [format!("\"{}\"", "x".repeat(10_000))]}]);
    for pe in 0..exports {
        let mut export = export(&format!("out-{pe}-0"), "out", "u1", 1);
        export.metadata.namespace = Some(namespace.to_owned());
        export.spec.pe_id = pe;
        export.spec.export_type = ExportType::ByProperties;
        export.spec.stream.properties = serde_json::from_value(long.clone()).unwrap();
        mirrors.exports.insert(export);
    }
    let mut import = import("out-0-0", "out", "u1", 1);
    import.metadata.namespace = Some(namespace.to_owned());
    let subscription = ["hash(a) == 1"; 500].join(" || ");
    import.spec.streams.name_based_imports.clear();
    import.spec.streams.property_based_import = serde_json::from_value(json!({
        "subscription": subscription, "applicationScope": "Default", "importOperName": "In", "index": 0,
    }))
    .unwrap();
    mirrors.imports.insert(import);
}

/// All that is in such a namespace goes.
pub(crate) fn remove_costly_namespace(mirrors: &Mirrors, namespace: &str, exports: u64) {
    for pe in 0..exports {
        mirrors.exports.remove(&Key::new(namespace, &format!("out-{pe}-0")));
    }
    mirrors.imports.remove(&Key::new(namespace, "out-0-0"));
    mirrors.jobs.remove(&Key::new(namespace, "out"));
}

/// Boards that follow mirrors, and who was told of changes.
pub(crate) struct Followed {
    pub(crate) mirrors: Mirrors,
    pub(crate) boards: Boards,
    told: Arc<Mutex<Vec<String>>>,
}

impl Followed {
    /// Nothing is there, and nobody was told anything.
    pub(crate) fn new() -> Self {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let boards = Boards::of(&mirrors);
        let told = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&told);
        boards.subscribe(move |pe| list.lock().push(pe.name.to_string()));
        Self { mirrors, boards, told }
    }

    /// The PEs that were told of since this was asked last.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.told.lock());
        told.sort();
        told.dedup();
        told
    }

    /// All namespaces have the turns that they wait for.
    pub(super) fn settle(&self) {
        while !self.boards.line().waiting().is_empty() {
            self.boards.settle_a_slice();
        }
    }

    /// How many imports get what PE 0 of job `out` exports.
    pub(crate) fn receivers(&self) -> usize {
        let routes = self.boards.routes("n", &Pe { job: "out".into(), id: 0 }).unwrap();
        routes.exports.values().map(|published| published.entries.len()).sum()
    }
}
