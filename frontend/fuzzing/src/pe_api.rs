//! What anybody may send to the API of PEs (the rules of `docs/rules/pe-api.md`).
//!
//! Input: requests, each with the address of its sender, most of them as the runtime makes them, with a method, a path,
//! headers or a body of any form. What it checks: the status is one that the rules know; what is refused changes
//! nothing; only objects of the job of which the sender is a PE are changed; answers have the form that they say.
//!
//! The API server is the fake one; nobody drives the consistent regions here.
//!
//! Knows: paths, forms and statuses of the API. Must not know: how the API does anything.

use crate::cluster::{fill, following, settle};
use arbitrary::{Result, Unstructured};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, Method, Request, header};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use streams_api::{ConsistentRegion, Export, Import, ParallelRegion, ProcessingElement};
use streams_frontend::mirrors::Mirrors;
use streams_frontend::pe_api;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Object;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::Server;
use tower::ServiceExt as _;

/// Most requests of an input.
const REQUESTS: usize = 6;
/// Longest answer: the state of such a small instance, or the description of the API.
const ANSWER: usize = 1 << 20;
/// Longer than any answer takes.
const WITHIN: Duration = Duration::from_secs(60);

/// Addresses of PE 0 and 1 of job `a`, of PE 0 of job `b`, and of nobody; with the job.
const SENDERS: [(&str, Option<&str>); 4] =
    [("10.0.0.1", Some("a")), ("10.0.0.2", Some("a")), ("10.0.0.3", Some("b")), ("10.0.0.9", None)];
const HOSTS: [&str; 5] =
    ["streams-api.n:10000", "streams-a-consistentregion-api.n:10000", "streams-api.other", "10.0.0.7:10000", ""];
const METHODS: [Method; 5] = [Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::PATCH];
const KINDS: [&str; 4] = ["application/json", "application/xml", "text/plain", ""];
/// Requests as the runtime makes them. What is in braces is one of [`NAMES`].
const EXCHANGES: [(Method, &str, &str); 38] = [
    (Method::GET, "/api/state", ""),
    (Method::GET, "/openapi.json", ""),
    (Method::GET, "/api/state/job/by-id/{pe}/name", ""),
    (Method::GET, "/api/state/job/{job}/pe/{pe}/connectivity", ""),
    (Method::PUT, "/api/state/job/{job}/pe/{pe}/connectivity", "\"Full\""),
    (Method::GET, "/api/state/job/{job}/pr/{name}/width", ""),
    (Method::PUT, "/api/state/job/{job}/pr/{name}/width", "3"),
    (Method::GET, "/api/endpoints/job/{job}/pe/{pe}", ""),
    (Method::GET, "/api/endpoints/job/{job}/endpoint/{name}", ""),
    (Method::PUT, "/api/endpoints/job/{job}/pe/{pe}/endpoint/{name}", r#"{"port":2000,"protocol":"TCP"}"#),
    (Method::DELETE, "/api/endpoints/job/{job}/pe/{pe}/endpoint/{name}", ""),
    (Method::GET, "/api/subscriptions/job/{job}/pe/{pe}", ""),
    (Method::GET, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}", ""),
    (Method::GET, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties", ""),
    (Method::POST, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties", PROPERTIES),
    (Method::PUT, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties", PROPERTIES),
    (Method::DELETE, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/properties", LISTED),
    (Method::GET, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}", ""),
    (Method::POST, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}", PROPERTY),
    (Method::PUT, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}", PROPERTY),
    (Method::DELETE, "/api/subscriptions/job/{job}/pe/{pe}/export/{port}/property/{name}", ""),
    (Method::GET, "/api/subscriptions/job/{job}/pe/{pe}/import/{port}", ""),
    (Method::GET, "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/filter", ""),
    (Method::PUT, "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/filter", "x > 1"),
    (Method::GET, "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/streams", ""),
    (Method::PUT, "/api/subscriptions/job/{job}/pe/{pe}/import/{port}/streams", STREAMS),
    (Method::GET, "/api/consistentregion/pe/{pe}", ""),
    (Method::GET, "/api/consistentregion/pe/{pe}/region/{region}", ""),
    (Method::GET, "/api/consistentregion/region/{region}/state", ""),
    (Method::GET, "/api/consistentregion/region/{region}/lastcompletedseqid", ""),
    (Method::GET, "/api/consistentregion/region/{region}/period", ""),
    (Method::GET, "/api/consistentregion/region/{region}/maxconsecutiveresetattempts", ""),
    (Method::GET, "/api/consistentregion/region/{region}/trigger", ""),
    (Method::PUT, "/api/consistentregion/region/{region}/pe/{pe}/checkpoint", "4"),
    (Method::PUT, "/api/consistentregion/region/{region}/pe/{pe}/blockingcheckpoint", "4"),
    (
        Method::PUT,
        "/api/consistentregion/region/{region}/pe/{pe}/reset",
        r#"{"progress":{"seqId":"3","resetAttempt":"1"}}"#,
    ),
    (Method::PUT, "/api/consistentregion/region/{region}/drain", r#"{"request":{"seqId":"4","operator":"o"}}"#),
    (Method::PUT, "/api/consistentregion/region/{region}/reset", r#"{"request":{"operator":"o","force":"true"}}"#),
];
const PROPERTY: &str = r#"<streamProperty name="prop" type="rstring"><value>"v"</value></streamProperty>"#;
const PROPERTIES: &str = concat!(
    r#"<a:streamProperties xmlns:a="u"><a:property name="prop" type="int64"><a:value>1</a:value></a:property>"#,
    "</a:streamProperties>"
);
const LISTED: &str = r#"<streamPropertyNames scope="listed"><name>prop</name></streamPropertyNames>"#;
const STREAMS: &str =
    r#"<importedStreams filter="x"><propertyBasedImport subscription="prop == 1"/></importedStreams>"#;
/// What stands in braces, and what it may be, so that most of them are there.
const NAMES: [(&str, &[&str]); 5] = [
    ("{job}", &["a", "a", "b", "c"]),
    ("{pe}", &["0", "1", "2", "18446744073709551615"]),
    ("{port}", &["0", "1", "4294967295"]),
    ("{name}", &["prop", "R", "end"]),
    ("{region}", &["0", "1"]),
];

/// A request as it is sent.
struct Sent {
    sender: usize,
    request: Request<Body>,
    said: String,
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let requests: Vec<Sent> = std::iter::from_fn(|| (!input.is_empty()).then(|| sent(&mut input).ok().flatten()))
        .take(REQUESTS)
        .flatten()
        .collect();
    if requests.is_empty() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let server = Server::new();
        fill(&server, [SENDERS[0].0, SENDERS[1].0, SENDERS[2].0]);
        let metrics = Metrics::new("fuzzing");
        let mirrors = Mirrors::new(&metrics);
        let (router, turn) = pe_api::of_mirrors(server.connect(), &mirrors, &metrics);
        let mut follow = following(&server, &mirrors);
        settle(&turn);
        for request in requests {
            let before = specs_and_statuses(&server);
            let (sender, said, is_read) = (request.sender, request.said, request.request.method() == Method::GET);
            let status = answered(&router, request.request, (&mut follow, &turn), &said).await;
            let known = [200, 204, 400, 403, 404, 405, 408, 411, 413, 415, 503];
            assert!(known.contains(&status), "{said}: {status}");
            let after = specs_and_statuses(&server);
            let changed = after.iter().filter(|(name, object)| before.get(*name) != Some(object));
            for (name, (job, _)) in changed {
                assert!(!is_read && status == 204, "{said}: {status}, and {name} is another one");
                assert_eq!(SENDERS[sender].1, Some(job.as_str()), "{said}: {name} is of another job");
            }
            assert!(before.keys().all(|name| after.contains_key(name)), "{said}: something is gone");
        }
    });
}

/// Sends a request; while it waits the mirrors show what it has written, and boards have turns. Gives the status.
async fn answered(
    router: &Router,
    request: Request<Body>,
    (follow, turn): (&mut [Box<dyn FnMut()>], &dyn Fn() -> bool),
    said: &str,
) -> u16 {
    let mut response = Box::pin(router.clone().oneshot(request));
    let until = tokio::time::Instant::now() + WITHIN;
    let response = loop {
        tokio::select! {
            biased;
            response = &mut response => break response.expect("infallible"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {
                turn();
                follow.iter_mut().for_each(|follow| follow());
            }
        }
        assert!(tokio::time::Instant::now() < until, "{said}: no answer");
    };
    let status = response.status().as_u16();
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    let body = to_bytes(response.into_body(), ANSWER).await.expect("a bounded answer");
    let text = std::str::from_utf8(&body).expect("text");
    if status == 200 {
        match kind.as_ref().and_then(|kind| kind.to_str().ok()) {
            Some(kind) if kind.contains("json") => {
                serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{said}: {error}: {text}"));
            }
            Some(kind) if kind.contains("xml") => {
                roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{said}: {error}: {text}"));
            }
            _ => {}
        }
    }
    assert!(status != 204 || text.is_empty(), "{said}: {text}");
    // What was written late is written before the next request.
    follow.iter_mut().for_each(|follow| follow());
    settle(turn);
    status
}

/// The next request: one that the runtime makes, with parts of any form in place of some of its own. None, if it
/// cannot be sent.
fn sent(input: &mut Unstructured<'_>) -> Result<Option<Sent>> {
    let sender = input.choose_index(SENDERS.len())?;
    let (method, pattern, body) = input.choose(&EXCHANGES)?;
    let method = if is_usual(input)? { method } else { input.choose(&METHODS)? };
    let mut path = if is_usual(input)? { (*pattern).to_owned() } else { format!("/{}", input.arbitrary::<&str>()?) };
    for (place, names) in NAMES {
        if path.contains(place) {
            path = path.replace(place, any(input, names)?);
        }
    }
    let body = if is_usual(input)? {
        (*body).to_owned()
    } else if input.arbitrary()? {
        // Another text at some place of it.
        let at = input.choose_index(body.len() + 1)?;
        format!("{}{}{}", &body[..at], input.arbitrary::<&str>()?, &body[at..])
    } else {
        input.arbitrary()?
    };
    let usual = if body.starts_with('<') { KINDS[1] } else { KINDS[0] };
    let kind = HeaderValue::from_bytes(if is_usual(input)? { usual } else { any(input, &KINDS)? }.as_bytes());
    let host = HeaderValue::from_bytes(if is_usual(input)? { HOSTS[0] } else { any(input, &HOSTS)? }.as_bytes());
    let (Ok(kind), Ok(host)) = (kind, host) else { return Ok(None) };
    let said = format!("{} {method} {path} {host:?} {kind:?} {body:?}", SENDERS[sender].0);
    let request = Request::builder().method(method).uri(path).header(header::HOST, host);
    let request = if kind.is_empty() { request } else { request.header(header::CONTENT_TYPE, kind) };
    let Ok(mut request) = request.body(Body::from(body)) else { return Ok(None) };
    let address: SocketAddr = format!("{}:40000", SENDERS[sender].0).parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(address));
    Ok(Some(Sent { sender, request, said }))
}

/// Whether the next part is as the runtime makes it.
fn is_usual(input: &mut Unstructured<'_>) -> Result<bool> {
    input.ratio(7_u8, 8_u8)
}

/// One of these texts, or, seldom, any.
fn any<'a>(input: &mut Unstructured<'a>, known: &[&'a str]) -> Result<&'a str> {
    if is_usual(input)? { input.choose(known).copied() } else { input.arbitrary() }
}

/// Spec and status of everything that belongs to a job, with the name of the job.
fn specs_and_statuses(server: &Server) -> BTreeMap<String, (String, Value)> {
    fn of<K: Object>(server: &Server, all: &mut BTreeMap<String, (String, Value)>) {
        for object in server.list::<K>() {
            let name = format!("{} {}", K::kind(&()), Key::of(&object).name);
            let object = serde_json::to_value(&object).unwrap();
            let job = object["spec"]["jobName"].as_str().unwrap_or_default().to_owned();
            all.insert(name, (job, json!([object["spec"], object["status"]])));
        }
    }
    let mut all = BTreeMap::new();
    of::<ProcessingElement>(server, &mut all);
    of::<Export>(server, &mut all);
    of::<Import>(server, &mut all);
    of::<ParallelRegion>(server, &mut all);
    of::<ConsistentRegion>(server, &mut all);
    all
}
