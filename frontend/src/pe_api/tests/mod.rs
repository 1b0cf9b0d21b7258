//! The exchanges with PEs, over a fake API server.

mod bundle_waits;
mod regions;
mod reports;

use super::arriving::{DOCUMENT, FILTER, SHORT, TAGS_MAX};
use super::reports::Reports;
use super::{Callers, PeApi, router};
use crate::broker::Boards;
use crate::consistent_regions::ConsistentRegions;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use futures::future::join_all;
use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{
    Connectivity, Export, Import, Job, JobPhase, ParallelRegion, PePhase, ProcessingElement, ReportedConnectivity,
    Termination, UserEndpoint,
};
use streams_kubernetes::Key;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes_fake::{Connection, Fault, Server};
use tokio::sync::Mutex;
use tower::ServiceExt;

/// Addresses of the pods of PE 1 of job `srcjob`, of PE 0 of it, of a PE of another job, and of nobody.
const PE: &str = "10.0.0.1";
const NEIGHBOUR: &str = "10.0.0.2";
const STRANGER: &str = "10.0.0.3";
const TOOL: &str = "10.0.0.9";
const SUBSCRIPTIONS: &str = "/api/subscriptions/job/srcjob/pe/1";

struct Cluster {
    server: Server,
    connection: Connection,
    mirrors: LateMirrors,
    regions: ConsistentRegions,
    reports: Reports,
    api: PeApi,
    /// Whether PEs are led to another replica.
    are_led_away: Arc<AtomicBool>,
    router: Router,
}

/// A request, and what is expected.
struct Exchange<'a> {
    from: &'a str,
    method: Method,
    path: &'a str,
    body: &'a str,
}

fn get<'a>(path: &'a str) -> Exchange<'a> {
    Exchange { from: PE, method: Method::GET, path, body: "" }
}

fn send<'a>(method: Method, path: &'a str, body: &'a str) -> Exchange<'a> {
    Exchange { from: PE, method, path, body }
}

impl Cluster {
    /// A cluster with these objects.
    fn with(objects: impl FnOnce(&Server)) -> Self {
        let server = Server::new();
        objects(&server);
        Self::of(server)
    }

    /// Another replica of the frontend in the same cluster.
    fn another(&self) -> Self {
        Self::of(self.server.clone())
    }

    fn of(server: Server) -> Self {
        let metrics = Metrics::new("test");
        let mirrors = Mirrors::new(&metrics);
        let boards = Boards::of(&mirrors);
        let callers = Callers::of(&mirrors);
        let regions = ConsistentRegions::of(&mirrors, Term::endless());
        let mirrors = LateMirrors::fill(&server, mirrors);
        let connection = server.connect();
        let are_led_away = Arc::new(AtomicBool::new(false));
        let led_away = Arc::clone(&are_led_away);
        let led_away = Arc::new(move || led_away.load(Ordering::SeqCst));
        let (own, shared) = (connection.clone(), connection.clone());
        let api = PeApi::new(own, shared, boards, callers, regions.clone(), led_away, &metrics);
        let reports = api.reports.clone();
        Self { server, connection, mirrors, regions, reports, are_led_away, router: router(api.clone()), api }
    }

    /// Sends a request; the mirrors show what it has written while it waits.
    async fn answer(&mut self, exchange: Exchange<'_>) -> (StatusCode, String) {
        let peer: SocketAddr = format!("{}:40000", exchange.from).parse().unwrap();
        let kind = if exchange.body.starts_with('<') { "application/xml" } else { "application/json" };
        let mut request = Request::builder()
            .method(exchange.method)
            .uri(exchange.path)
            .header("host", "streams-api.n:10000")
            .header("content-type", kind)
            .body(Body::from(exchange.body.to_owned()))
            .unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let mut response = Box::pin(self.router.clone().oneshot(request));
        let response = loop {
            tokio::select! {
                biased;
                response = &mut response => break response.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(1)) => { self.mirrors.deliver_all(); }
            }
        };
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn expect(&mut self, exchange: Exchange<'_>, status: u16, part: &str) {
        let said = format!("{} {} {}", exchange.from, exchange.method, exchange.path);
        let (actual, body) = self.answer(exchange).await;
        assert_eq!(actual.as_u16(), status, "{said}: {body}");
        assert!(body.contains(part), "{said}: {body} has not {part}");
        assert!(status != 204 || body.is_empty(), "{said}: {body}");
    }
}

fn job(name: &str, id: u64) -> Job {
    serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n"},
        "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": id},
    }))
    .unwrap()
}

/// Parallel region `R` of job `srcjob`.
fn region(server: &Server) {
    let region: ParallelRegion = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ParallelRegion",
        "metadata": metadata(server, "Job", "srcjob-0", "srcjob"),
        "spec": {"jobName": "srcjob", "index": 0, "name": "R", "width": 2},
    }))
    .unwrap();
    server.create(&region);
}

/// What the job of this name controls.
fn metadata(server: &Server, kind: &str, name: &str, owner: &str) -> Value {
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

fn element(server: &Server, job: &str, id: u64, address: &str) {
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
fn jobs(server: &Server) {
    server.create(&job("srcjob", 1));
    server.create(&job("dstjob", 2));
    element(server, "srcjob", 0, NEIGHBOUR);
    element(server, "srcjob", 1, PE);
    element(server, "dstjob", 0, STRANGER);
}

/// Job `srcjob` is deleted, its PEs are not.
fn leave_behind(server: &Server) {
    for pe in ["srcjob-0", "srcjob-1"] {
        server.edit::<ProcessingElement>(&Key::new("n", pe), |pe| {
            pe.metadata.owner_references = None;
            let labels = pe.metadata.labels.get_or_insert_default();
            labels.insert("streams.ibm.com/job".to_owned(), "srcjob".to_owned());
        });
    }
    server.remove::<Job>(&Key::new("n", "srcjob"));
}

fn export(server: &Server, by: &str, stream: &Value) {
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

fn by_properties(server: &Server) {
    jobs(server);
    let properties = json!([{"name": "prop0", "type": "list<rstring>", "values": ["\"a\"", "\"b\""]}]);
    let stream = json!({"exportOperName": "Out", "properties": properties, "allowFilter": false});
    export(server, "ByProperties", &stream);
}

fn by_name(server: &Server) {
    jobs(server);
    export(server, "ByName", &json!({"exportOperName": "Out", "name": "s"}));
}

fn importing(server: &Server, name: &str, job: &str, pe: u64, port: u32, streams: &Value) {
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

fn subscribed(text: &str) -> Value {
    let import = json!({"subscription": text, "applicationScope": "Default", "importOperName": "In", "index": 0});
    json!({"propertyBasedImport": import})
}

fn property(name: &str, kind: &str, value: &str) -> String {
    let namespace = "http://www.ibm.com/xmlns/prod/streams/application";
    format!(
        "<streamProperty xmlns=\"{namespace}\" name=\"{name}\" type=\"{kind}\"><value>{value}</value></streamProperty>"
    )
}

fn properties(of: &[(&str, &str)]) -> String {
    let each = |(name, value): &(&str, &str)| {
        format!("<a:property name=\"{name}\" type=\"rstring\"><a:value>\"{value}\"</a:value></a:property>")
    };
    let all: String = of.iter().map(each).collect();
    format!(
        "<a:streamProperties xmlns:a=\"http://www.ibm.com/xmlns/prod/streams/application\">{all}</a:streamProperties>"
    )
}

fn names(of: &[&str]) -> String {
    let scope = if of.is_empty() { "all" } else { "listed" };
    let all: String = of.iter().map(|name| format!("<name>{name}</name>")).collect();
    format!("<streamPropertyNames scope=\"{scope}\">{all}</streamPropertyNames>")
}

#[tokio::test]
async fn a_job_is_known_before_anything_of_it() {
    let paths = [
        "/api/state/job/by-id/1/name",
        "/api/state/job/srcjob/pe/1/connectivity",
        "/api/state/job/srcjob/pr/R/width",
        "/api/endpoints/job/srcjob/pe/1",
        "/api/endpoints/job/srcjob/endpoint/test",
        SUBSCRIPTIONS,
        "/api/subscriptions/job/srcjob/pe/1/export/10",
        "/api/subscriptions/job/srcjob/pe/1/export/10/property/prop0",
        "/api/subscriptions/job/srcjob/pe/1/import/10",
        "/api/subscriptions/job/srcjob/pe/1/import/10/filter",
        "/api/subscriptions/job/srcjob/pe/1/import/10/streams",
    ];
    let mut nothing = Cluster::with(|_| {});
    for path in paths {
        nothing.expect(get(path), 400, "there is no job").await;
    }
    let mut jobs_only = Cluster::with(|server| {
        server.create(&job("srcjob", 1));
    });
    jobs_only.expect(get(paths[0]), 200, "srcjob").await;
    for path in &paths[1..] {
        jobs_only.expect(get(path), 404, "").await;
    }
    for path in [
        "/api/state/job/by-id/x/name",
        "/api/subscriptions/job/srcjob/pe/x",
        "/api/subscriptions/job/srcjob/pe/1/export/x",
    ] {
        jobs_only.expect(get(path), 400, "").await;
    }
    jobs_only.expect(get("/api/endpoints/job/srcjob/pe/x"), 404, "").await;
}

#[tokio::test]
async fn pes_that_their_job_has_left_behind_find_each_other_and_tell_of_their_connections() {
    let mut cluster = Cluster::with(by_properties);
    let by_number = "/api/state/job/by-id/1/name";
    let connectivity = "/api/state/job/srcjob/pe/1/connectivity";
    let endpoint = "/api/endpoints/job/srcjob/endpoint/test";
    leave_behind(&cluster.server);
    cluster.mirrors.deliver_all();
    let (status, name) = cluster.answer(get(by_number)).await;
    assert_eq!((status.as_u16(), &*name), (200, "srcjob"));
    cluster.expect(Exchange { from: STRANGER, ..get(by_number) }, 200, "srcjob").await;
    cluster.expect(get("/api/state/job/by-id/2/name"), 200, "dstjob").await;
    cluster.expect(get("/api/state/job/by-id/3/name"), 400, "no job").await;
    cluster.expect(send(Method::PUT, connectivity, "\"Full\""), 204, "").await;
    cluster.expect(get(connectivity), 200, "Full").await;
    cluster.expect(get(endpoint), 404, "no endpoint test").await;
    cluster.expect(registration(1), 204, "").await;
    cluster.expect(get(endpoint), 200, "80").await;
    // Who hears 400 keeps its routes; nobody makes a job wider that is not there.
    cluster.expect(get(SUBSCRIPTIONS), 400, "no job").await;
    cluster.expect(get("/api/subscriptions/job/srcjob/pe/1/export/10"), 400, "no job").await;
    cluster.expect(get("/api/state/job/srcjob/pr/R/width"), 400, "no job").await;
    // PEs that go with their job are no reason to answer.
    cluster.server.remove::<Job>(&Key::new("n", "dstjob"));
    cluster.mirrors.deliver_all();
    cluster.expect(Exchange { from: STRANGER, ..get("/api/state/job/by-id/2/name") }, 400, "no job").await;
    cluster.expect(Exchange { from: STRANGER, ..get("/api/state/job/dstjob/pe/0/connectivity") }, 400, "no job").await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_answered_from_mirrors_that_are_not_filled() {
    let metrics = Metrics::new("test");
    let mirrors = Mirrors::new(&metrics);
    let (boards, callers) = (Boards::of(&mirrors), Callers::of(&mirrors));
    let regions = ConsistentRegions::of(&mirrors, Term::endless());
    let connection = Server::new().connect();
    let api = PeApi::new(connection.clone(), connection, boards, callers, regions, Arc::new(|| false), &metrics);
    // A report that was answered would not be told again: it is answered when the PE has given up on it.
    for (method, path, is_heard) in
        [(Method::GET, SUBSCRIPTIONS, true), (Method::PUT, "/api/state/job/srcjob/pe/1/connectivity", false)]
    {
        let request = Request::builder().method(method).uri(path).header("host", "streams-api.n");
        let mut request = request.body(Body::from("\"Full\"")).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 1))));
        let since = tokio::time::Instant::now();
        let answer = router(api.clone()).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(since.elapsed() < Duration::from_secs(1), is_heard, "{path}");
    }
}

#[tokio::test]
async fn connectivity_is_that_of_the_present_pod() {
    let path = "/api/state/job/srcjob/pe/1/connectivity";
    let mut cluster = Cluster::with(jobs);
    cluster.expect(get(path), 200, "\"None\"").await;
    for state in ["\"Full\"", "\"Partial\""] {
        cluster.expect(send(Method::PUT, path, state), 204, "").await;
        cluster.expect(get(path), 200, state).await;
    }
    let writes = cluster.connection.writes();
    cluster.expect(send(Method::PUT, path, "\"Partial\""), 204, "").await;
    assert_eq!(cluster.connection.writes(), writes, "nothing has changed");
    cluster.expect(send(Method::PUT, path, "\"Whole\""), 400, "Partial").await;
    // The next pod has told nothing yet, and the one before it is not heard any more.
    let key = Key::new("n", "srcjob-1");
    cluster.server.edit::<ProcessingElement>(&key, |pe| pe.status.as_mut().unwrap().launch_count = 3);
    cluster.mirrors.deliver_all();
    cluster.expect(get(path), 200, "\"None\"").await;
    cluster.expect(send(Method::PUT, path, "\"Full\""), 204, "").await;
    cluster.expect(get(path), 200, "\"None\"").await;
}

#[tokio::test]
async fn a_pod_that_is_faster_than_the_news_of_its_address_is_heard() {
    let path = "/api/state/job/srcjob/pe/1/connectivity";
    let mut cluster = Cluster::with(jobs);
    let key = Key::new("n", "srcjob-1-x");
    cluster.server.edit::<Pod>(&key, |pod| pod.status.as_mut().unwrap().pod_ip = Some("10.0.0.7".to_owned()));
    cluster.expect(Exchange { from: "10.0.0.7", ..send(Method::PUT, path, "\"Full\"") }, 204, "").await;
}

#[tokio::test(start_paused = true)]
async fn only_pods_of_the_job_change_it_and_only_a_pe_says_how_it_is_connected() {
    let streams = "<importedStreams/>";
    let one = property("n", "int64", "1");
    let listed = names(&["prop0"]);
    let with = properties(&[("b", "c")]);
    let exports = "/api/subscriptions/job/srcjob/pe/1/export/10";
    let writes: [(Method, String, &str); 10] = [
        (Method::PUT, "/api/state/job/srcjob/pr/R/width".to_owned(), "3"),
        (Method::PUT, "/api/endpoints/job/srcjob/pe/1/endpoint/test".to_owned(), "{\"port\": 80}"),
        (Method::DELETE, "/api/endpoints/job/srcjob/pe/1/endpoint/test".to_owned(), ""),
        (Method::PUT, format!("{exports}/properties"), &with),
        (Method::PATCH, format!("{exports}/properties"), &with),
        (Method::DELETE, format!("{exports}/properties"), &listed),
        (Method::PUT, format!("{exports}/property/n"), &one),
        (Method::DELETE, format!("{exports}/property/prop0"), ""),
        (Method::PUT, "/api/subscriptions/job/srcjob/pe/1/import/10/filter".to_owned(), "a == 1"),
        (Method::PUT, "/api/subscriptions/job/srcjob/pe/1/import/10/streams".to_owned(), streams),
    ];
    let connectivity = "/api/state/job/srcjob/pe/1/connectivity";
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("a == 1"));
        region(server);
        // A pod with all labels of a PE that no PE controls.
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "false", "namespace": "n", "labels": {
                "app": "streams", "svc": "pe", "streams.ibm.com/job": "srcjob", "streams.ibm.com/pe": "1",
                "streams.ibm.com/launch-count": "2",
            }},
            "spec": {"containers": [{"name": "pe"}]}, "status": {"phase": "Running", "podIP": "10.0.0.8"},
        }))
        .unwrap();
        server.create(&pod);
    });
    for from in [STRANGER, TOOL, "10.0.0.8"] {
        for (method, path, body) in &writes {
            let exchange = Exchange { from, method: method.clone(), path, body };
            cluster.expect(exchange, 403, "only PEs of job srcjob").await;
        }
        cluster.expect(Exchange { from, ..send(Method::PUT, connectivity, "\"Full\"") }, 403, "only PE 1").await;
    }
    cluster.expect(Exchange { from: NEIGHBOUR, ..send(Method::PUT, connectivity, "\"Full\"") }, 403, "only PE 1").await;
    assert_eq!(cluster.connection.writes(), 0);
    // A PE of the job may; whoever is in the namespace may read.
    let width = "/api/state/job/srcjob/pr/R/width";
    for wrong in ["0", "10001", "x", "-1", ""] {
        cluster.expect(send(Method::PUT, width, wrong), 400, "").await;
    }
    cluster.expect(Exchange { from: NEIGHBOUR, ..send(Method::PUT, width, "3") }, 204, "").await;
    cluster.expect(Exchange { from: TOOL, ..get(width) }, 200, "3").await;
    cluster.expect(Exchange { from: STRANGER, ..get(connectivity) }, 200, "None").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_of_a_body_that_nobody_may_send() {
    let cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("a == 1"));
    });
    let (export, import) = ("subscriptions/job/srcjob/pe/1/export", "subscriptions/job/srcjob/pe/1/import");
    // method, path, status that a PE of another job gets, and one of this job; 200: it is asked for the body
    let table: [(Method, &str, u16, u16); 14] = [
        (Method::PUT, "state/job/srcjob/pe/1/connectivity", 403, 403),
        (Method::PUT, "state/job/srcjob/pr/R/width", 404, 404),
        (Method::PUT, "endpoints/job/srcjob/pe/1/endpoint/test", 403, 200),
        (Method::PUT, "endpoints/job/srcjob/pe/7/endpoint/test", 404, 404),
        (Method::PUT, "consistentregion/region/0/drain", 404, 404),
        (Method::PUT, &format!("{export}/10/properties"), 403, 200),
        (Method::PATCH, &format!("{export}/10/properties"), 403, 200),
        (Method::DELETE, &format!("{export}/10/properties"), 403, 200),
        (Method::POST, &format!("{export}/11/properties"), 404, 404),
        (Method::PUT, &format!("{export}/10/property/n"), 403, 200),
        (Method::PATCH, &format!("{export}/10/property/n"), 403, 200),
        (Method::PUT, &format!("{import}/10/filter"), 403, 200),
        (Method::PUT, &format!("{import}/10/streams"), 403, 200),
        (Method::PUT, &format!("{import}/11/streams"), 404, 404),
    ];
    for (method, path, of_other_job, of_job) in table {
        for (from, expected) in [(STRANGER, of_other_job), (NEIGHBOUR, of_job)] {
            let is_read = Arc::new(AtomicBool::new(false));
            let reading = Arc::clone(&is_read);
            let parts = stream::poll_fn(move |_| {
                reading.store(true, Ordering::SeqCst);
                std::task::Poll::<Option<Result<Vec<u8>, std::io::Error>>>::Pending
            });
            let request = Request::builder().method(method.clone()).uri(format!("/api/{path}"));
            let request = request.header("host", "streams-api.n:10000").header("content-type", "application/xml");
            let mut request = request.body(Body::from_stream(parts)).unwrap();
            request.extensions_mut().insert(ConnectInfo::<SocketAddr>(format!("{from}:1").parse().unwrap()));
            // Whoever may send it is asked for it, and sends nothing.
            let answer = tokio::time::timeout(Duration::from_secs(5), cluster.router.clone().oneshot(request)).await;
            let status = answer.map_or(200, |answer| answer.unwrap().status().as_u16());
            let said = format!("{from} {method} {path}");
            assert_eq!((status, is_read.load(Ordering::SeqCst)), (expected, expected == 200), "{said}");
        }
    }
}

#[tokio::test]
async fn a_body_is_as_long_as_what_it_says_needs() {
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("a == 1"));
        region(server);
    });
    let (export, import) =
        ("/api/subscriptions/job/srcjob/pe/1/export/10", "/api/subscriptions/job/srcjob/pe/1/import/10");
    let (properties, filter, streams) =
        (format!("{export}/properties"), format!("{import}/filter"), format!("{import}/streams"));
    // path, the most that its body may have; what is longer by one is not read
    let table = [
        ("/api/state/job/srcjob/pe/1/connectivity", SHORT),
        ("/api/state/job/srcjob/pr/R/width", SHORT),
        ("/api/endpoints/job/srcjob/pe/1/endpoint/test", SHORT),
        (&*filter, FILTER),
        (&*properties, DOCUMENT),
        (&*streams, DOCUMENT),
    ];
    for (path, most) in table {
        for (length, status) in [(most, 400), (most + 1, 413)] {
            let body = format!("<{}", "x".repeat(length - 1));
            cluster.expect(send(Method::PUT, path, &body), status, "").await;
        }
    }
    let tags = "<a/>".repeat(TAGS_MAX + 1);
    cluster.expect(send(Method::PUT, &streams, &tags), 400, "has 16385 tags").await;
    assert_eq!(cluster.api.memory.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn bodies_of_a_namespace_leave_memory_to_others_and_what_pes_tell_is_told_again() {
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        region(server);
    });
    let (width, connectivity) = ("/api/state/job/srcjob/pr/R/width", "/api/state/job/srcjob/pe/1/connectivity");
    let taking = |address: &str| {
        let mut share = cluster.api.memory.share(Some(Arc::from("n")), address.parse().unwrap());
        while share.add(1 << 20).is_ok() {}
        share
    };
    let taken = [taking("10.0.9.1"), taking("10.0.9.2")];
    let since = tokio::time::Instant::now();
    cluster.expect(send(Method::PUT, width, "3"), 503, "take too much memory").await;
    assert!(since.elapsed() < Duration::from_secs(1));
    // The runtime tells again what it hears nothing of.
    cluster.expect(send(Method::PUT, connectivity, "\"Full\""), 503, "take too much memory").await;
    assert!(since.elapsed() >= Duration::from_millis(1_500));
    cluster.expect(get(connectivity), 200, "None").await;
    drop(taken);
    cluster.expect(send(Method::PUT, width, "3"), 204, "").await;
    cluster.expect(send(Method::PUT, connectivity, "\"Full\""), 204, "").await;
    assert_eq!(cluster.api.memory.taken(), 0);
}

#[tokio::test]
async fn a_request_is_about_the_namespace_of_the_caller() {
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "m", "labels": {"app": "streams"}},
            "spec": {"containers": [{"name": "pe"}]}, "status": {"phase": "Running", "podIP": "10.1.0.1"},
        }))
        .unwrap();
        server.create(&pod);
    });
    let path = "/api/state/job/by-id/1/name";
    cluster.expect(Exchange { from: "10.1.0.1", ..get(path) }, 403, "another namespace").await;
    for (from, host, status) in
        [(PE, None, 200), ("10.1.0.1", None, 400), (TOOL, None, 403), (TOOL, Some("streams-api.n"), 200)]
    {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        if let Some(host) = host {
            request.headers_mut().insert("host", host.parse().unwrap());
        }
        request.extensions_mut().insert(ConnectInfo::<SocketAddr>(format!("{from}:1").parse().unwrap()));
        let response = cluster.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{from} {host:?}");
    }
}

#[tokio::test]
async fn endpoints_are_registered_found_and_removed() {
    let of_pe = "/api/endpoints/job/srcjob/pe/1";
    let (test, of_job) = ("/api/endpoints/job/srcjob/pe/1/endpoint/test", "/api/endpoints/job/srcjob/endpoint/test");
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        let service: Service = serde_json::from_value(json!({
            "metadata": metadata(server, "Job", "srcjob-1", "srcjob"),
            "spec": {"clusterIP": "None", "ports": [{"name": "sys-0", "port": 10000, "protocol": "TCP"}]},
        }))
        .unwrap();
        server.create(&service);
    });
    cluster.expect(get(of_job), 404, "no endpoint test").await;
    cluster.expect(send(Method::DELETE, test, ""), 400, "no endpoint test").await;
    let http = r#"{"canonicalName": "ignored", "port": 80, "protocol": "TCP"}"#;
    cluster.expect(send(Method::PUT, test, http), 204, "").await;
    let found = r#"{"canonicalName":"srcjob-1.n","port":80,"protocol":"TCP"}"#;
    cluster.expect(get(of_job), 200, found).await;
    let (_, ports) = cluster.answer(get(of_pe)).await;
    let ports: Value = serde_json::from_str(&ports).unwrap();
    assert_eq!(
        ports,
        json!({
            "sys-0": {"name": "sys-0", "port": 10000, "protocol": "TCP"},
            "usr-test": {"name": "usr-test", "port": 80, "protocol": "TCP"},
        })
    );
    // After a restart of the PE, or after a lost answer.
    cluster.expect(send(Method::PUT, test, http), 204, "").await;
    cluster.expect(send(Method::PUT, test, r#"{"port": 81}"#), 204, "").await;
    cluster.expect(get(of_job), 200, "81").await;
    let with = |port: u32, protocol: &str| format!("{{\"port\": {port}, \"protocol\": \"{protocol}\"}}");
    // PE, name, body -> status, part of the answer
    let table = [
        (0, "test", with(80, "TCP"), 400, "PE 1 of job srcjob has endpoint test already"),
        (0, "tes", with(80, "TCP"), 204, ""),
        (1, "other", with(81, "TCP"), 400, "port 81 is that of endpoint test"),
        (1, "other", with(81, "UDP"), 204, ""),
        (1, "a", with(10_000, "TCP"), 400, "port of the runtime"),
        (1, "a", with(10_001, "TCP"), 204, ""),
        (1, "b", with(10_001, "UDP"), 400, "port of the runtime"),
        (1, "b", with(0, "TCP"), 400, "from 1 to 65535"),
        (1, "b", with(70_000, "TCP"), 400, "no endpoint"),
        (1, "b", with(1, "SCTP"), 400, "TCP or UDP"),
        (1, "B", with(1, "TCP"), 400, "lower-case"),
        (1, "b-", with(1, "TCP"), 400, "lower-case"),
        (1, "b", "{".to_owned(), 400, "no endpoint"),
        (2, "b", with(1, "TCP"), 404, "no PE 2"),
    ];
    for (pe, name, body, status, part) in table {
        let path = format!("/api/endpoints/job/srcjob/pe/{pe}/endpoint/{name}");
        cluster.expect(send(Method::PUT, &path, &body), status, part).await;
    }
    cluster.expect(send(Method::DELETE, test, ""), 204, "").await;
    cluster.expect(get(of_job), 404, "").await;
}

/// Registers endpoint `test` for the PE of the job.
fn registration(pe: u64) -> Exchange<'static> {
    let (from, path) = match pe {
        0 => (NEIGHBOUR, "/api/endpoints/job/srcjob/pe/0/endpoint/test"),
        _ => (PE, "/api/endpoints/job/srcjob/pe/1/endpoint/test"),
    };
    Exchange { from, ..send(Method::PUT, path, "{\"port\": 80}") }
}

/// PEs of the job that have an endpoint.
fn with_endpoints(server: &Server) -> Vec<u64> {
    let pes = server.list::<ProcessingElement>().into_iter();
    let pes = pes.filter(|pe| pe.status.as_ref().is_some_and(|status| !status.endpoints.is_empty()));
    pes.map(|pe| pe.spec.id).collect()
}

fn reservations(server: &Server) -> Vec<ConfigMap> {
    server.list::<ConfigMap>()
}

#[tokio::test]
async fn of_two_pes_that_register_a_name_at_the_same_moment_one_has_it() {
    for is_shown in [false, true] {
        let mut calls = 0;
        loop {
            let mut one = Cluster::with(jobs);
            let other = Arc::new(Mutex::new(one.another()));
            // Before that call of the one, the other replica answers the whole request of the neighbour.
            let (seen, said) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
            let (replica, counted, answered) = (Arc::clone(&other), Arc::clone(&seen), Arc::clone(&said));
            one.connection.meanwhile(move |_| {
                let (replica, answered) = (Arc::clone(&replica), Arc::clone(&answered));
                let is_due = counted.fetch_add(1, Ordering::SeqCst) == calls;
                Box::pin(async move {
                    if is_due {
                        let mut replica = replica.lock().await;
                        if is_shown {
                            replica.mirrors.deliver_all();
                        }
                        *answered.lock().await = Some(replica.answer(registration(0)).await);
                    }
                })
            });
            let (first, words) = one.answer(registration(1)).await;
            let Some((second, other_words)) = said.lock().await.take() else { break };
            let codes = [first.as_u16(), second.as_u16()];
            let winner = match codes {
                [204, 400] => 1,
                [400, 204] => 0,
                _ => panic!("before call {calls}: {codes:?} {words} {other_words}"),
            };
            let loser = 1 - winner;
            assert_eq!(with_endpoints(&one.server), [winner], "before call {calls}");
            one.connection.alone();
            one.mirrors.deliver_all();
            // The same again is nothing; another PE gets the name once it was given back.
            one.expect(registration(winner), 204, "").await;
            one.expect(registration(loser), 400, "has endpoint test already").await;
            let removal = Exchange { method: Method::DELETE, body: "", ..registration(winner) };
            one.expect(removal, 204, "").await;
            assert!(reservations(&one.server).is_empty(), "before call {calls}");
            one.expect(registration(loser), 204, "").await;
            assert_eq!((with_endpoints(&one.server), reservations(&one.server).len()), (vec![loser], 1));
            calls += 1;
        }
        assert!(calls >= 2, "a reservation and a status are written: {calls}");
    }
}

#[tokio::test]
async fn a_name_that_somebody_was_about_to_register_is_free_after_a_while_and_for_the_same_pe_at_once() {
    for after in 0..2 {
        for has_effect in [false, true] {
            let mut one = Cluster::with(jobs);
            one.connection.fail(Fault { after, of_writes: true, has_effect, is_last: true });
            one.expect(registration(1), 503, "").await;
            let (has_reservation, has_endpoint) = (after > 0 || has_effect, after > 0 && has_effect);
            assert_eq!(
                (reservations(&one.server).len() == 1, !with_endpoints(&one.server).is_empty()),
                (has_reservation, has_endpoint)
            );
            let mut next = one.another();
            let (before, free) = match (has_reservation, has_endpoint) {
                (false, _) => (204, 204),
                (true, false) => (400, 204),
                (true, true) => (400, 400),
            };
            next.expect(registration(0), before, "").await;
            one.server.advance(Duration::from_secs(119));
            next.expect(registration(0), before, "").await;
            let mut same = one.another();
            one.server.advance(Duration::from_secs(1));
            next.expect(registration(0), free, "").await;
            let has = if free == 204 { 0 } else { 1 };
            assert_eq!(with_endpoints(&one.server), [has], "{after} {has_effect}");
            same.mirrors.deliver_all();
            same.expect(registration(1), if has == 1 { 204 } else { 400 }, "").await;
            assert_eq!(with_endpoints(&one.server), [has], "{after} {has_effect}");
        }
    }
    // The PE tries again.
    let mut one = Cluster::with(jobs);
    one.connection.fail(Fault { after: 1, of_writes: true, has_effect: false, is_last: true });
    one.expect(registration(1), 503, "").await;
    one.another().expect(registration(1), 204, "").await;
    assert_eq!(with_endpoints(&one.server), [1]);
}

/// However many names it registers at once, and whether it waits or not.
#[tokio::test(start_paused = true)]
async fn a_pe_that_gives_up_leaves_no_reservations_behind() {
    let mut cluster = Cluster::with(jobs);
    cluster.connection.meanwhile(|call| {
        Box::pin(tokio::time::sleep(Duration::from_millis(if call.verb.is_write() { 600 } else { 0 })))
    });
    let requests = (0..20).map(|number| {
        let (path, body) =
            (format!("/api/endpoints/job/srcjob/pe/1/endpoint/e{number}"), format!("{{\"port\": {}}}", 80 + number));
        let mut request = Request::put(path).header("host", "streams-api.n:10000").body(Body::from(body)).unwrap();
        request.extensions_mut().insert(ConnectInfo::<SocketAddr>(format!("{PE}:40000").parse().unwrap()));
        cluster.router.clone().oneshot(request)
    });
    for answer in join_all(requests.collect::<Vec<_>>()).await {
        assert_eq!(answer.unwrap().status().as_u16(), 503);
    }
    let passes = async |cluster: &mut Cluster| {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cluster.mirrors.deliver_all();
        }
    };
    passes(&mut cluster).await;
    // One had its turn; what it has begun goes on.
    let names = |cluster: &Cluster| {
        let pe = cluster.server.get::<ProcessingElement>(&Key::new("n", "srcjob-1")).unwrap();
        let endpoints = pe.status.unwrap().endpoints.into_iter().map(|endpoint| endpoint.name).collect::<Vec<_>>();
        (endpoints, reservations(&cluster.server).len())
    };
    assert_eq!(names(&cluster), (vec!["e0".to_owned()], 1));
    let removal = send(Method::DELETE, "/api/endpoints/job/srcjob/pe/1/endpoint/e0", "");
    cluster.expect(removal, 503, "").await;
    passes(&mut cluster).await;
    assert_eq!(names(&cluster), (Vec::new(), 0));
}

#[tokio::test]
async fn a_pe_whose_registrations_come_to_no_end_gets_no_more_names_than_it_may_have() {
    let mut cluster = Cluster::with(jobs);
    // Nobody knows whether an endpoint was written.
    cluster.server.refuse(|call| {
        let is_lost = call.verb.is_write() && call.object::<ProcessingElement>().is_some();
        is_lost.then(|| kube::core::Status::failure("etcd does not answer", "InternalError").with_code(500))
    });
    for number in 0..110 {
        let path = format!("/api/endpoints/job/srcjob/pe/1/endpoint/e{number}");
        cluster.expect(send(Method::PUT, &path, "{\"port\": 80}"), 503, "").await;
    }
    assert_eq!(reservations(&cluster.server).len(), 100);
}

#[tokio::test]
async fn what_only_an_old_mirror_shows_is_no_reason_to_do_nothing_or_to_refuse() {
    let path = |pe: u64| format!("/api/endpoints/job/srcjob/pe/{pe}/endpoint/test");
    let (of_0, of_1) = (path(0), path(1));
    let one = "/api/subscriptions/job/srcjob/pe/1/export/10/property/prop0";
    let filter = "/api/subscriptions/job/srcjob/pe/1/import/10/filter";
    let (a, b) = (property("prop0", "rstring", "\"a\""), property("prop0", "rstring", "\"b\""));
    let neighbour = |exchange| Exchange { from: NEIGHBOUR, ..exchange };
    let http = "{\"port\": 80}";
    // before; what another replica does then, of which the mirror of this one knows nothing; what the PE asks this one
    let table: [(&[Exchange<'_>], Exchange<'_>, Exchange<'_>); 8] = [
        (&[send(Method::PATCH, one, &a)], send(Method::PATCH, one, &b), send(Method::PATCH, one, &a)),
        (&[], send(Method::DELETE, one, ""), send(Method::PUT, one, &a)),
        (&[send(Method::DELETE, one, "")], send(Method::PUT, one, &a), send(Method::DELETE, one, "")),
        (&[send(Method::PUT, filter, "c == 1")], send(Method::PUT, filter, ""), send(Method::PUT, filter, "c == 1")),
        (&[registration(1)], send(Method::DELETE, &of_1, ""), registration(1)),
        (&[registration(1)], send(Method::DELETE, &of_1, ""), neighbour(send(Method::PUT, &of_0, http))),
        (&[], registration(1), send(Method::DELETE, &of_1, "")),
        (
            &[registration(1)],
            send(Method::DELETE, &of_1, ""),
            send(Method::PUT, "/api/endpoints/job/srcjob/pe/1/endpoint/more", http),
        ),
    ];
    for (number, (before, elsewhere, here)) in table.into_iter().enumerate() {
        let mut cluster = Cluster::with(|server| {
            by_properties(server);
            importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("a == 1"));
        });
        let mut other = cluster.another();
        for exchange in before {
            let Exchange { from, path, body, .. } = *exchange;
            other.expect(Exchange { from, method: exchange.method.clone(), path, body }, 204, "").await;
        }
        cluster.mirrors.deliver_all();
        other.expect(elsewhere, 204, "").await;
        let before = cluster.server.version();
        cluster.expect(here, 204, "").await;
        assert!(cluster.server.version() > before, "row {number} is not written");
        assert!(reservations(&cluster.server).len() == with_endpoints(&cluster.server).len(), "row {number}");
    }
}

#[tokio::test]
async fn a_width_that_is_so_already_is_not_written_and_one_that_only_an_old_mirror_shows_is() {
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        region(server);
    });
    let (path, key) = ("/api/state/job/srcjob/pr/R/width", Key::new("n", "srcjob-0"));
    cluster.expect(send(Method::PUT, path, "2"), 204, "").await;
    assert_eq!(cluster.connection.writes(), 0);
    cluster.server.edit::<ParallelRegion>(&key, |region| region.spec.width = 3);
    cluster.expect(send(Method::PUT, path, "2"), 204, "").await;
    assert_eq!(cluster.server.get::<ParallelRegion>(&key).unwrap().spec.width, 2);
}

#[tokio::test]
async fn a_reservation_belongs_to_its_pe_and_to_nothing_else() {
    let mut cluster = Cluster::with(jobs);
    cluster.expect(registration(1), 204, "").await;
    let [reservation] = reservations(&cluster.server).try_into().unwrap();
    let pe = cluster.server.get::<ProcessingElement>(&Key::new("n", "srcjob-1")).unwrap();
    assert!(is_controlled_by(&reservation.metadata, &pe));
    assert_eq!(reservation.metadata.name.as_deref(), Some("srcjob.usr-test"));
    assert!(!reservation.metadata.labels.unwrap().contains_key("app"), "nobody watches it");
    // A port that the PE has already is refused before anything is written, and after.
    let taken = "{\"port\": 80}";
    let path = "/api/endpoints/job/srcjob/pe/1/endpoint/more";
    let writes = cluster.connection.writes();
    cluster.expect(send(Method::PUT, path, taken), 400, "port 80 is that of endpoint test").await;
    assert_eq!(cluster.connection.writes(), writes);
    // The PE was deleted and made again: what it had reserved is free, although the ConfigMap is still there.
    cluster.server.remove::<ProcessingElement>(&Key::new("n", "srcjob-1"));
    cluster.mirrors.deliver_all();
    cluster.expect(registration(0), 204, "").await;
    assert_eq!(with_endpoints(&cluster.server), [0]);
    // Somebody else has an object of the name.
    let foreign: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "srcjob.usr-mine", "namespace": "n"}})).unwrap();
    cluster.server.create(&foreign);
    let path = "/api/endpoints/job/srcjob/pe/0/endpoint/mine";
    let mine = Exchange { from: NEIGHBOUR, ..send(Method::PUT, path, "{\"port\": 90}") };
    cluster.expect(mine, 400, "in the way of endpoint mine").await;
}

#[tokio::test]
async fn routes_are_those_of_the_board_and_follow_a_change_before_it_is_answered() {
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "dstjob-0-0", "dstjob", 0, 0, &subscribed("\"a\" in prop0"));
    });
    let importer = "/api/subscriptions/job/dstjob/pe/0";
    let routes = r#"{"exports":{"srcjob-1-10":{"portId":10,"entries":{"dstjob-0-0":{"jobId":2,"peId":0,"portId":0,"portIndex":0,"filter":""}}}},"imports":{}}"#;
    let (status, body) = cluster.answer(get(SUBSCRIPTIONS)).await;
    assert_eq!((status.as_u16(), &*body), (200, routes));
    cluster.expect(get(importer), 200, r#""imports":{"dstjob-0-0":{"portId":0,"entries":{"srcjob-1-10""#).await;
    cluster.expect(get("/api/subscriptions/job/srcjob/pe/0"), 200, r#"{"exports":{},"imports":{}}"#).await;
    cluster.expect(get("/api/subscriptions/job/srcjob/pe/7"), 404, "no PE 7").await;
    let changed = properties(&[("prop0", "a")]);
    let path = format!("{SUBSCRIPTIONS}/export/10/properties");
    cluster.expect(send(Method::PATCH, &path, &changed), 204, "").await;
    // "a" in a text is an error, so nothing matches.
    cluster.expect(get(SUBSCRIPTIONS), 200, r#"{"exports":{},"imports":{}}"#).await;
    let streams = r#"<importedStreams><propertyBasedImport subscription="prop0 == &quot;a&quot;"/></importedStreams>"#;
    let path = format!("{importer}/import/0/streams");
    cluster.expect(Exchange { from: STRANGER, ..send(Method::PUT, &path, streams) }, 204, "").await;
    cluster.expect(get(SUBSCRIPTIONS), 200, routes).await;
    // The export forbids filters, and sends to the port.
    let path = format!("{importer}/import/0/filter");
    cluster.expect(Exchange { from: STRANGER, ..send(Method::PUT, &path, "a == 1") }, 400, "forbids filters").await;
}

#[tokio::test]
async fn a_filter_is_forbidden_by_what_sends_to_the_port_after_the_change() {
    let of_export = "\"a\" in prop0";
    // what is asked for before; with a filter at the same time -> status. The export forbids filters.
    let table = [
        ("prop0 == 1", of_export, 400),
        (of_export, "prop0 == 1", 204),
        (of_export, of_export, 400),
        ("prop0 == 1", "prop0 == 2", 204),
    ];
    for (before, after, status) in table {
        let mut cluster = Cluster::with(|server| {
            by_properties(server);
            importing(server, "dstjob-0-0", "dstjob", 0, 0, &subscribed(before));
        });
        let after = after.replace('"', "&quot;");
        let after = format!(r#"<propertyBasedImport subscription="{after}"/>"#);
        let streams = format!(r#"<importedStreams filter="b == 1">{after}</importedStreams>"#);
        let path = "/api/subscriptions/job/dstjob/pe/0/import/0/streams";
        let part = if status == 400 { "export srcjob-1-10, which sends to the port, forbids filters" } else { "" };
        cluster.expect(Exchange { from: STRANGER, ..send(Method::PUT, path, &streams) }, status, part).await;
        assert_eq!(cluster.connection.writes(), usize::from(status == 204), "{before}: {after}");
    }
}

#[tokio::test]
async fn properties_are_read_added_replaced_and_removed() {
    let exports = "/api/subscriptions/job/srcjob/pe/1/export/10";
    let (all, one) = (format!("{exports}/properties"), |name: &str| format!("{exports}/property/{name}"));
    let mut cluster = Cluster::with(by_properties);
    let everything = names(&[]);
    cluster.expect(get(exports), 200, r#""name":"prop0","type":"list<rstring>","values":["\"a\"","\"b\""]"#).await;
    cluster.expect(send(Method::POST, &all, &everything), 200, "name=\"prop0\"").await;
    cluster.expect(send(Method::PUT, &all, &properties(&[("prop0", "x")])), 400, "prop0 already").await;
    cluster.expect(send(Method::PUT, &all, &properties(&[("foo", "x"), ("prop0", "x")])), 400, "prop0 already").await;
    cluster.expect(send(Method::PUT, &all, &properties(&[])), 204, "").await;
    cluster.expect(send(Method::PUT, &all, &properties(&[("foo", "x"), ("bar", "y")])), 204, "").await;
    let (_, read) = cluster.answer(send(Method::POST, &all, &everything)).await;
    assert_eq!(read.matches("<property ").count(), 3, "{read}");
    let (_, read) = cluster.answer(send(Method::POST, &all, &names(&["foo", "unknown"]))).await;
    assert_eq!((read.matches("<property ").count(), read.contains("name=\"foo\"")), (1, true), "{read}");
    cluster.expect(get(&one("prop1")), 404, "").await;
    let hello = property("prop1", "rstring", "\"hello\"");
    cluster.expect(send(Method::PUT, &one("prop2"), &hello), 400, "the path names property prop2").await;
    cluster.expect(send(Method::PUT, &one("prop1"), &hello), 204, "").await;
    cluster.expect(get(&one("prop1")), 200, "<value>\"hello\"</value>").await;
    cluster
        .expect(send(Method::PATCH, &all, &properties(&[("foo", "z"), ("nope", "z")])), 400, "no property nope")
        .await;
    cluster.expect(send(Method::PATCH, &all, &properties(&[("foo", "z")])), 204, "").await;
    let writes = cluster.connection.writes();
    cluster.expect(send(Method::PATCH, &all, &properties(&[("foo", "z")])), 204, "").await;
    assert_eq!(cluster.connection.writes(), writes, "nothing has changed");
    cluster.expect(send(Method::PATCH, &one("bar"), &property("bar", "int64", "7")), 204, "").await;
    cluster.expect(send(Method::PATCH, &one("bar"), &property("bar", "int64", "seven")), 400, "no value of type").await;
    cluster.expect(send(Method::PATCH, &one("bar"), &property("bar", "int", "7")), 400, "no type").await;
    cluster.expect(send(Method::DELETE, &one("prop9"), ""), 400, "").await;
    cluster.expect(send(Method::DELETE, &one("prop0"), ""), 204, "").await;
    cluster.expect(get(&one("prop0")), 404, "").await;
    cluster.expect(send(Method::DELETE, &all, &names(&["foo", "prop0"])), 400, "no property prop0").await;
    cluster.expect(send(Method::DELETE, &all, &names(&["foo"])), 204, "").await;
    cluster.expect(send(Method::DELETE, &all, &everything), 204, "").await;
    let (_, read) = cluster.answer(send(Method::POST, &all, &everything)).await;
    assert_eq!(read.matches("<property ").count(), 0, "{read}");
    cluster.expect(send(Method::POST, &all, ""), 415, "application/xml").await;
    cluster.expect(send(Method::POST, &all, "<"), 400, "cannot be read").await;
    // What was changed stays although the job controller writes the spec again.
    let key = Key::new("n", "srcjob-1-10");
    let status = cluster.server.get::<Export>(&key).unwrap().status.unwrap();
    assert_eq!(status.run_time.unwrap().properties, []);
    let spec = cluster.server.get::<Export>(&key).unwrap().spec;
    assert_eq!(spec.stream.properties.len(), 1);
}

#[tokio::test]
async fn a_stream_that_is_exported_by_its_name_has_no_properties() {
    let exports = "/api/subscriptions/job/srcjob/pe/1/export/10";
    let (all, one) = (format!("{exports}/properties"), format!("{exports}/property/n"));
    let mut cluster = Cluster::with(by_name);
    cluster.expect(get(&one), 404, "").await;
    cluster.expect(send(Method::POST, &all, &names(&[])), 404, "").await;
    cluster.expect(send(Method::PUT, &one, &property("n", "int64", "1")), 400, "by its name").await;
    cluster.expect(send(Method::PUT, &all, &properties(&[("a", "b")])), 400, "by its name").await;
}

#[tokio::test]
async fn filters_and_subscriptions_are_read_and_changed() {
    let import = "/api/subscriptions/job/srcjob/pe/1/import/10";
    let (filter, streams) = (format!("{import}/filter"), format!("{import}/streams"));
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("some == 1 && subscription == 2"));
    });
    cluster.expect(get(import), 200, r#""peId":1,"portId":10"#).await;
    cluster.expect(get(&streams), 200, "subscription=\"some == 1 &amp;&amp; subscription == 2\"").await;
    cluster.expect(get(&filter), 404, "no filter").await;
    cluster.expect(send(Method::PUT, &filter, "some =="), 400, "filter: ").await;
    cluster.expect(send(Method::PUT, &filter, "some == 1"), 204, "").await;
    let (_, body) = cluster.answer(get(&filter)).await;
    assert_eq!(body, "some == 1");
    cluster.expect(get(&streams), 200, "filter=\"some == 1\"").await;
    cluster.expect(send(Method::PUT, &filter, ""), 204, "").await;
    cluster.expect(get(&filter), 404, "").await;
    let some = r#"<importedStreams filter="b"><propertyBasedImport subscription="some == 2"/></importedStreams>"#;
    cluster.expect(send(Method::PUT, &streams, some), 204, "").await;
    let writes = cluster.connection.writes();
    cluster.expect(send(Method::PUT, &streams, some), 204, "").await;
    assert_eq!(cluster.connection.writes(), writes, "nothing has changed");
    cluster.expect(get(&streams), 200, "subscription=\"some == 2\"").await;
    cluster.expect(get(&filter), 200, "b").await;
    let wrong = r#"<importedStreams><propertyBasedImport subscription="some = 2"/></importedStreams>"#;
    cluster.expect(send(Method::PUT, &streams, wrong), 400, "subscription: ").await;
    cluster.expect(get(&streams), 200, "subscription=\"some == 2\"").await;
}

/// The state, without the time of the request.
async fn state(cluster: &mut Cluster, accept: &str) -> (String, String) {
    let mut request = Request::get("/api/state").header("host", "streams-api.n").header("accept", accept);
    request = request.extension(ConnectInfo::<SocketAddr>(format!("{TOOL}:1").parse().unwrap()));
    let response = cluster.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let body = String::from_utf8(to_bytes(response.into_body(), 16 << 20).await.unwrap().to_vec()).unwrap();
    let (before, rest) = body.split_once("equestTime").unwrap();
    let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap();
    let end = digits + rest[digits..].find(|c: char| !c.is_ascii_digit()).unwrap();
    assert!(rest[digits..end].parse::<i64>().unwrap() > 1_700_000_000, "{rest}");
    (kind, format!("{before}equestTime{}T{}", &rest[..digits], &rest[end..]))
}

/// Of the job `srcjob` PE 1 exports, and PEs 0 of both jobs import; it runs and is connected.
fn an_instance(server: &Server) {
    jobs(server);
    let properties = json!([{"name": "prop0", "type": "list<rstring>", "values": ["\"a\""]}]);
    export(server, "ByProperties", &json!({"exportOperName": "Out", "properties": properties, "name": "Out<&>"}));
    importing(server, "dstjob-0-0", "dstjob", 0, 0, &subscribed("\"a\" in prop0"));
    importing(server, "srcjob-0-0", "srcjob", 0, 0, &subscribed("\"a\" in prop0"));
    server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), |pe| {
        pe.spec.exported_ports = vec![10];
        pe.spec.operators = vec!["A\"<&>'".to_owned(), "B".to_owned()];
        let status = pe.status.as_mut().unwrap();
        status.phase = Some(PePhase::Running);
        status.node_name = Some("node-1".to_owned());
        status.connectivity = Some(ReportedConnectivity { state: Connectivity::Full, launch_count: 2 });
        let endpoint = UserEndpoint { name: "web".to_owned(), port: 80, protocol: "TCP".to_owned() };
        status.endpoints = vec![endpoint];
    });
    server.edit::<ProcessingElement>(&Key::new("n", "srcjob-0"), |pe| {
        pe.spec.application_name = "demo::A<&>".to_owned();
        let status = pe.status.as_mut().unwrap();
        status.phase = Some(PePhase::BackOff);
        // Of an earlier pod.
        status.connectivity = Some(ReportedConnectivity { state: Connectivity::Full, launch_count: 1 });
        status.last_termination = Some(Termination { exit_code: Some(139), ..Termination::default() });
    });
    let region: ParallelRegion = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ParallelRegion",
        "metadata": metadata(server, "Job", "srcjob-0", "srcjob"),
        "spec": {"jobName": "srcjob", "index": 0, "name": "R", "width": 3}, "status": {"width": 2},
    }))
    .unwrap();
    server.create(&region);
    server.edit::<Job>(&Key::new("n", "srcjob"), |job| {
        job.metadata.creation_timestamp = None;
        job.status.as_mut().unwrap().phase = Some(JobPhase::Degraded);
    });
    server.edit::<Job>(&Key::new("n", "dstjob"), |job| job.metadata.creation_timestamp = None);
    // Nothing of these belongs to the answer: a job of another namespace, and one that has no number.
    let mut elsewhere = job("elsewhere", 7);
    elsewhere.metadata.namespace = Some("m".to_owned());
    server.create(&elsewhere);
    let mut unnumbered = job("unnumbered", 8);
    unnumbered.status = None;
    server.create(&unnumbered);
}

#[tokio::test]
async fn the_state_is_that_of_the_namespace_as_xml() {
    let mut cluster = Cluster::with(an_instance);
    let (kind, body) = state(&mut cluster, "*/*").await;
    let expected = concat!(
        r#"<instance xmlns="http://www.ibm.com/xmlns/prod/streams/api/state" id="n" requestTime="T">"#,
        r#"<job id="1" name="srcjob" applicationName="demo::A&lt;&amp;&gt;" state="running" "#,
        r#"healthSummary="unhealthy" user="streams" submitTime="0">"#,
        r#"<pe id="0" host="" processId="0" state="restarting" reasonCode="crash" healthSummary="partiallyUnhealthy" "#,
        r#"requiredConnections="disconnected" optionalConnections="disconnected">"#,
        r#"<operator name="o"/><inputPort index="0"/></pe>"#,
        r#"<pe id="1" host="node-1" processId="0" state="running" reasonCode="none" healthSummary="healthy" "#,
        r#"requiredConnections="connected" optionalConnections="connected">"#,
        r#"<operator name="A&quot;&lt;&amp;&gt;&apos;"/><operator name="B"/><inputPort index="0"/>"#,
        r#"<outputPort index="10" streamName="Out&lt;&amp;&gt;">"#,
        r#"<connection inputPeId="0" inputPortIndex="0" required="false"/></outputPort></pe></job>"#,
        r#"<job id="2" name="dstjob" applicationName="" state="constructed" healthSummary="unhealthy" "#,
        r#"user="streams" submitTime="0">"#,
        r#"<pe id="0" host="" processId="0" state="constructed" reasonCode="none" healthSummary="partiallyUnhealthy" "#,
        r#"requiredConnections="disconnected" optionalConnections="disconnected">"#,
        r#"<operator name="o"/><inputPort index="0"/></pe></job></instance>"#,
    );
    assert_eq!((&*kind, &*body), ("application/xml", expected));
    assert_eq!(state(&mut cluster, "*/*").await.1, body, "the same again");
}

#[tokio::test]
async fn the_state_as_json_says_what_the_schema_has_no_place_for() {
    let mut cluster = Cluster::with(an_instance);
    let (kind, body) = state(&mut cluster, "application/json").await;
    assert_eq!(kind, "application/json");
    let state: Value = serde_json::from_str(&body.replace(":T,", ":0,")).unwrap();
    assert_eq!((&state["id"], state["jobs"].as_array().unwrap().len()), (&json!("n"), 2));
    let job = &state["jobs"][0];
    assert_eq!(job["parallelRegions"], json!([{"name": "R", "width": 3, "appliedWidth": 2}]));
    assert_eq!(job["pes"].as_array().unwrap().len(), 2);
    let pe = &job["pes"][1];
    assert_eq!(pe["operators"], json!([{"name": "A\"<&>'"}, {"name": "B"}]));
    assert_eq!(pe["endpoints"], json!([{"name": "web", "port": 80, "protocol": "TCP"}]));
    assert_eq!((&pe["launchCount"], &pe["operatorCount"], &pe["host"]), (&json!(2), &json!(1), &json!("node-1")));
    let connection = |job: u64| json!({"inputJobId": job, "inputPeId": 0, "inputPortIndex": 0, "required": false});
    let port = json!({"index": 10, "streamName": "Out<&>", "connections": [connection(1), connection(2)]});
    assert_eq!(pe["outputPorts"], json!([port]));
}

#[tokio::test]
async fn the_state_of_many_pes_is_whole_and_in_order_and_that_of_none_is_a_document_too() {
    let mut cluster = Cluster::with(|server| {
        server.create(&job("srcjob", 1));
        for id in 0..200 {
            element(server, "srcjob", id, &format!("10.0.1.{id}"));
        }
    });
    let (_, body) = state(&mut cluster, "application/json").await;
    let read: Value = serde_json::from_str(&body.replace(":T,", ":0,")).unwrap();
    let ids: Vec<u64> =
        read["jobs"][0]["pes"].as_array().unwrap().iter().map(|pe| pe["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..200).collect::<Vec<_>>());
    let (_, body) = state(&mut cluster, "").await;
    assert_eq!((body.matches("<pe ").count(), body.matches("</pe>").count()), (200, 200));
    assert!(body.ends_with("</job></instance>"));
    let mut nothing = Cluster::with(|_| {});
    let (_, body) = state(&mut nothing, "").await;
    assert!(body.ends_with("requestTime=\"T\"></instance>"), "{body}");
    let (_, body) = state(&mut nothing, "application/json").await;
    assert_eq!(body, r#"{"id":"n","requestTime":T,"jobs":[]}"#);
}

#[tokio::test]
async fn the_paths_are_described() {
    let mut cluster = Cluster::with(|_| {});
    let (status, document) = cluster.answer(get("/openapi.json")).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(status.as_u16(), 200);
    let paths = document["paths"].as_object().unwrap();
    let methods: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!((paths.len(), methods), (28, 39), "{:?}", paths.keys());
    assert!(paths["/api/state/job/{job}/pe/{pe}/connectivity"]["put"]["responses"]["204"].is_object());
}
