//! The exchanges with PEs, over a fake API server.

mod bundle_waits;
mod caller;
mod endpoints;
mod regions;
mod reports;
mod state;
mod subscriptions;

use super::arriving::{DOCUMENT, FILTER, SHORT, TAGS_MAX};
use super::callers::Asker;
use super::reports::Reports;
use super::{Callers, PeApi, router, server};
use crate::broker::Boards;
use crate::call_figures::HttpRequests;
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
    Termination, UserEndpoint, names,
};
use streams_kubernetes::Key;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::ownership::{controlled_by, is_controlled_by};
use streams_kubernetes_fake::{Connection, Fault, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
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
        "spec": {"bundle": {"file": "a.sab"}}, "status": {"jobId": id, "generation": 0},
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

/// The text of a PE has a port of this number at which it exports, or imports.
fn has_port(server: &Server, pe: &str, port: u32, exports: bool) {
    server.edit::<ProcessingElement>(&Key::new("n", pe), |pe| {
        let ports = if exports { &mut pe.spec.exported_ports } else { &mut pe.spec.input_ports };
        if !ports.contains(&port) {
            ports.push(port);
        }
    });
}

fn export(server: &Server, by: &str, stream: &Value) {
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
fn exporting(server: &Server, pe: u64, port: u32) {
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

fn subscribed(text: &str) -> Value {
    let import = json!({"subscription": text, "applicationScope": "Default", "importOperName": "In", "index": 0});
    json!({"propertyBasedImport": import})
}

/// A stream of this name.
fn named(stream: &str) -> Value {
    let import = json!({
        "applicationName": "A", "applicationScope": "Default", "streamName": stream, "importOperName": "In",
    });
    json!({"nameBasedImports": {"0": import}})
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

#[tokio::test]
async fn a_pe_that_was_left_behind_changes_nothing_of_a_later_job_of_the_name() {
    let mut cluster = Cluster::with(by_properties);
    leave_behind(&cluster.server);
    let later = cluster.server.create(&job("srcjob", 3));
    region(&cluster.server);
    cluster.mirrors.deliver_all();
    let width = "/api/state/job/srcjob/pr/R/width";
    let property = "/api/subscriptions/job/srcjob/pe/1/export/10/property/prop0";
    for (method, path, body) in [(Method::PUT, width, "3"), (Method::DELETE, property, "")] {
        cluster.expect(send(method, path, body), 403, "only PEs of job srcjob").await;
    }
    // What it says of itself is heard.
    cluster.expect(send(Method::PUT, "/api/state/job/srcjob/pe/1/connectivity", "\"Full\""), 204, "").await;
    cluster.expect(registration(1), 204, "").await;
    cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-0"), |pe| {
        (pe.metadata.owner_references, pe.spec.job_id) = (Some(vec![controlled_by(&later)]), 3);
    });
    cluster.mirrors.deliver_all();
    cluster.expect(Exchange { from: NEIGHBOUR, ..send(Method::PUT, width, "3") }, 204, "").await;
    let endpoint = "/api/endpoints/job/srcjob/pe/1/endpoint/test";
    cluster.expect(Exchange { from: NEIGHBOUR, ..send(Method::DELETE, endpoint, "") }, 403, "only PEs of job").await;
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

/// The runtime would keep those over which it asks for routes and of regions, and each is counted.
#[tokio::test]
async fn a_connection_over_which_a_pe_has_asked_is_not_kept() {
    let cluster = Cluster::with(jobs);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (figures, stop) = (HttpRequests::among(&Metrics::new("test")), CancellationToken::new());
    let served = tokio::spawn(server::serve(listener, cluster.api.clone(), figures, stop.clone(), Duration::ZERO));
    let question = "GET /api/state/job/by-id/1/name HTTP/1.1\r\nhost: streams-api.n:10000\r\n\r\n";
    stream.write_all(question.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("srcjob"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    stop.cancel();
    served.await.unwrap();
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

/// Anybody can change labels; what the PE has recorded of its pod nobody can.
#[tokio::test]
async fn a_pod_is_heard_as_that_of_its_launch_whatever_its_label_says_by_then() {
    let path = "/api/state/job/srcjob/pe/1/connectivity";
    for label in [None, Some("0"), Some("99")] {
        let mut cluster = Cluster::with(jobs);
        let pod = Key::new("n", "srcjob-1-x");
        let uid = cluster.server.get::<Pod>(&pod).unwrap().metadata.uid;
        cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), |pe| {
            let status = pe.status.as_mut().unwrap();
            (status.pod_uid, status.created_launch_count) = (uid, 2);
        });
        cluster.server.edit::<Pod>(&pod, |pod| {
            let labels = pod.metadata.labels.as_mut().unwrap();
            labels.remove("streams.ibm.com/launch-count");
            labels.extend(label.map(|label| ("streams.ibm.com/launch-count".to_owned(), label.to_owned())));
        });
        cluster.mirrors.deliver_all();
        cluster.expect(send(Method::PUT, path, "\"Full\""), 204, "").await;
        cluster.expect(get(path), 200, "\"Full\"").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_that_can_be_no_count_of_launches_says_nothing() {
    let path = "/api/state/job/srcjob/pe/1/connectivity";
    // label -> answer to a pod that no PE has recorded
    for (label, expected) in [("2", 204), ("4294967296", 403), ("18446744073709551615", 403)] {
        let mut cluster = Cluster::with(jobs);
        cluster.server.edit::<Pod>(&Key::new("n", "srcjob-1-x"), |pod| {
            let labels = pod.metadata.labels.as_mut().unwrap();
            labels.insert("streams.ibm.com/launch-count".to_owned(), label.to_owned());
        });
        cluster.mirrors.deliver_all();
        cluster.expect(send(Method::PUT, path, "\"Full\""), expected, "").await;
    }
}

#[tokio::test]
async fn a_pod_that_is_faster_than_the_news_of_its_address_is_heard() {
    let path = "/api/state/job/srcjob/pe/1/connectivity";
    let mut cluster = Cluster::with(jobs);
    let key = Key::new("n", "srcjob-1-x");
    cluster.server.edit::<Pod>(&key, |pod| pod.status.as_mut().unwrap().pod_ip = Some("10.0.0.7".to_owned()));
    cluster.expect(Exchange { from: "10.0.0.7", ..send(Method::PUT, path, "\"Full\"") }, 204, "").await;
}

/// An address may be given away before the mirrors show that the pod that had it has ended.
#[tokio::test(start_paused = true)]
async fn a_pod_at_the_address_of_one_of_another_namespace_is_heard_when_it_is_known_or_not_at_all() {
    let (path, address) = ("/api/state/job/srcjob/pe/1/connectivity", "10.0.0.7");
    // whether the mirrors come to show the pod of the PE there -> the answer, and when it comes
    for (is_shown, status, within) in [(true, 204, 0..500), (false, 403, 1_500..2_500)] {
        let mut cluster = Cluster::with(|server| {
            jobs(server);
            let before: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "m", "labels": {"app": "streams"}},
                "spec": {"containers": [{"name": "pe"}]}, "status": {"phase": "Running", "podIP": address},
            }))
            .unwrap();
            server.create(&before);
        });
        if is_shown {
            let key = Key::new("n", "srcjob-1-x");
            cluster.server.edit::<Pod>(&key, |pod| pod.status.as_mut().unwrap().pod_ip = Some(address.to_owned()));
        }
        let since = tokio::time::Instant::now();
        cluster.expect(Exchange { from: address, ..send(Method::PUT, path, "\"Full\"") }, status, "").await;
        let took = since.elapsed().as_millis();
        assert!(within.contains(&took), "{status}: {took} ms");
    }
}

/// A report that was answered would not be told again.
#[tokio::test(start_paused = true)]
async fn a_report_of_a_pe_that_the_mirrors_do_not_show_is_heard_when_they_do_or_not_at_all() {
    let path = "/api/state/job/srcjob/pe/1/connectivity";
    type Objects = fn(&Server);
    let nothing: Objects = |_| {};
    let all: Objects = jobs;
    let job_only: Objects = |server| {
        server.create(&job("srcjob", 1));
    };
    let pe_only: Objects = |server| element(server, "srcjob", 1, PE);
    // what the mirrors show, what there is besides, of which they show the pods only -> the answer, and when it comes
    let table = [
        (nothing, all, 204, 0..500),
        (job_only, pe_only, 204, 0..500),
        (nothing, nothing, 400, 1_500..2_500),
        (job_only, nothing, 404, 1_500..2_500),
    ];
    for (shown, besides, status, within) in table {
        let mut cluster = Cluster::with(shown);
        besides(&cluster.server);
        cluster.mirrors.pods.deliver(usize::MAX);
        let since = tokio::time::Instant::now();
        cluster.expect(send(Method::PUT, path, "\"Full\""), status, "").await;
        let took = since.elapsed().as_millis();
        assert!(within.contains(&took), "{status}: {took} ms");
        if status == 204 {
            cluster.expect(get(path), 200, "Full").await;
        }
    }
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
        let asker = Asker { namespace: Some(Arc::from("n")), address: address.parse().unwrap() };
        let mut share = cluster.api.memory.share(asker);
        while share.add(1 << 20).is_ok() {}
        share
    };
    let taken = [taking("10.0.9.1"), taking("10.0.9.2")];
    // Spaces beside what is said.
    let long = |says: &str| format!("{says}{}", " ".repeat(4 << 10));
    let (wide, full) = (long("3"), long("\"Full\""));
    let since = tokio::time::Instant::now();
    cluster.expect(send(Method::PUT, width, &wide), 503, "take too much memory").await;
    assert!(since.elapsed() < Duration::from_secs(1));
    // The runtime tells again what it hears nothing of.
    cluster.expect(send(Method::PUT, connectivity, &full), 503, "take too much memory").await;
    assert!(since.elapsed() >= Duration::from_millis(1_500));
    cluster.expect(get(connectivity), 200, "None").await;
    // Nobody can take the memory of what is short, which is what PEs say.
    cluster.expect(send(Method::PUT, width, "3"), 204, "").await;
    cluster.expect(send(Method::PUT, connectivity, "\"Partial\""), 204, "").await;
    drop(taken);
    cluster.expect(send(Method::PUT, width, &wide), 204, "").await;
    cluster.expect(send(Method::PUT, connectivity, &full), 204, "").await;
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

/// Whoever may make one could have PEs change that, and resize nothing.
#[tokio::test]
async fn a_region_that_only_says_that_it_is_of_a_job_is_not_that_of_the_job() {
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        region(server);
        let made: ParallelRegion = serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "ParallelRegion",
            "metadata": {"name": "a", "namespace": "n", "labels": names::job_labels("srcjob")},
            "spec": {"jobName": "srcjob", "index": 0, "name": "R", "width": 9},
        }))
        .unwrap();
        server.create(&made);
    });
    let path = "/api/state/job/srcjob/pr/R/width";
    cluster.expect(get(path), 200, "2").await;
    cluster.expect(send(Method::PUT, path, "3"), 204, "").await;
    let widths =
        ["srcjob-0", "a"].map(|name| cluster.server.get::<ParallelRegion>(&Key::new("n", name)).unwrap().spec.width);
    assert_eq!(widths, [3, 9]);
    cluster.expect(get("/api/state/job/srcjob/pr/S/width"), 404, "no parallel region S").await;
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
