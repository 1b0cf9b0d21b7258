//! The API server that the gRPC APIs call: the fake one, also by HTTP, where they store and withdraw requests to resize
//! and ask who calls. And who decides about these requests.
//!
//! Knows: paths of the API server, statuses of requests. Must not know: what callers are answered.

use crate::cluster;
use axum::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde_json::{Value, json};
use std::convert::Infallible;
use streams_api::{DesiredWidth, Job, RegionWidth, Resize, ResizePhase, ResizeSpec, ResizeStatus};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster as _, Manager};
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::{Connection, Server};
use tower::service_fn;

/// Tokens, which are names as well: of who may do everything, of who may do it to objects that it names, of nobody.
pub(super) const ALL: &str = "all";
pub(super) const SOME: &str = "some";
pub(super) const NOBODY: &str = "nobody";

/// What may become of a request to resize.
pub(super) const FATES: u8 = 9;
/// Characters of a message of an object, at most, each of which has two bytes.
const MESSAGE: usize = 4_096;

const MANAGER: Manager = Manager("fuzzing");

/// A client of this API server.
pub(super) fn client(connection: &Connection) -> Client {
    let connection = connection.clone();
    let service = service_fn(move |request: Request<Body>| {
        let connection = connection.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.expect("a body that is there");
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = match answer(&connection, head.method.as_str(), head.uri.path(), body).await {
                Ok(answer) => (200, answer),
                Err(kube::Error::Api(status)) => (status.code, json!(status)),
                Err(error) => panic!("{error}"),
            };
            let answer = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    Client::new(service, "default")
}

async fn answer(connection: &Connection, method: &str, path: &str, body: Value) -> kube::Result<Value> {
    let path: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method, path.as_slice()) {
        ("POST", ["apis", "authentication.k8s.io" | "authorization.k8s.io", ..]) => Ok(reviewed(body)),
        ("POST", [.., "namespaces", namespace, "streamsresizes"]) => {
            let wanted: Resize = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
            connection.create(namespace, MANAGER, &wanted).await.map(|made| json!(made))
        }
        ("GET", [.., "namespaces", namespace, "streamsresizes", name]) => {
            let found = connection.get::<Resize>(&Key::new(namespace, name)).await?;
            let none = || kube::Error::Api(Status::failure("there is none", "NotFound").with_code(404).boxed());
            found.map(|found| json!(found)).ok_or_else(none)
        }
        ("PATCH", [.., "namespaces", namespace, "streamsresizes", name]) => {
            let patched = connection.merge::<Resize>(MANAGER, &Key::new(namespace, name), &body).await;
            patched.map(|patched| json!(patched))
        }
        (method, path) => panic!("{method} {path:?}"),
    }
}

/// A TokenReview or SubjectAccessReview with its status.
fn reviewed(mut review: Value) -> Value {
    let spec = &review["spec"];
    let status = match spec["token"].as_str() {
        Some(token) => {
            json!({"authenticated": token != NOBODY, "user": {"username": token}, "audiences": spec["audiences"]})
        }
        None => json!({"allowed": spec["user"] == ALL || spec["resourceAttributes"]["name"].is_string()}),
    };
    review["status"] = status;
    review
}

/// The objects that all targets have; of job `a` a committed generation, two regions, of one of which there is no
/// object, and a request `a-request-N` of each fate. Job `b` is not submitted.
pub(super) fn fill(server: &Server) {
    cluster::fill(server, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    server.edit::<Job>(&Key::new("n", "a"), |job| {
        let status = job.status.get_or_insert_default();
        status.generation = Some(4);
        let applied = [("R", 2), ("S", 1)].map(|(region, width)| RegionWidth { region: region.to_owned(), width });
        status.applied_widths = applied.into();
    });
    server.edit::<Job>(&Key::new("n", "b"), |job| job.status.get_or_insert_default().generation = None);
    let job = server.get::<Job>(&Key::new("n", "a")).expect("job a");
    for fate in 0..FATES {
        let wanted = DesiredWidth { name: "R".to_owned(), width: 3, expected_width: None };
        let spec = ResizeSpec { job_name: "a".to_owned(), regions: vec![wanted], ..ResizeSpec::default() };
        let mut request = Resize::new(&format!("a-request-{fate}"), spec);
        request.metadata.namespace = Some("n".to_owned());
        request.metadata.owner_references = Some(vec![controlled_by(&job)]);
        request.status = Some(status(fate, u64::from(fate) + 1));
        server.create(&request);
    }
}

/// Does what the job controller does with requests: each new one has this fate, and one that is withdrawn in time is
/// cancelled.
pub(super) fn decide(server: &Server, fate: u8) {
    let requests = server.list::<Resize>();
    let numbers = requests.iter().filter_map(|request| request.status.as_ref()?.number);
    let mut number = numbers.max().unwrap_or_default();
    for request in requests {
        let known = request.status.clone().unwrap_or_default();
        let is_open = matches!(request.phase(), ResizePhase::Pending | ResizePhase::Planned);
        let decided = if known.number.is_none() {
            number += 1;
            status(fate, number)
        } else if is_open && request.is_withdrawn() {
            ResizeStatus { phase: Some(ResizePhase::Cancelled), generation: None, ..known }
        } else {
            continue;
        };
        server.edit::<Resize>(&Key::of(&request), |request| request.status = Some(decided));
    }
}

/// The status of the request of this number. What is said of it is as long as an object may have it.
fn status(fate: u8, number: u64) -> ResizeStatus {
    let (phase, generation, reason) = match fate % FATES {
        0 => (ResizePhase::Pending, None, None),
        1 => (ResizePhase::Planned, Some(5), None),
        2 => (ResizePhase::Written, Some(4), None),
        3 => (ResizePhase::RolledOut, Some(4), None),
        4 => (ResizePhase::Refused, None, Some("OutOfBounds")),
        5 => (ResizePhase::Refused, None, Some("WidthMismatch")),
        6 => (ResizePhase::Refused, None, Some("RegionNotFound")),
        7 => (ResizePhase::Superseded, None, Some("NewerRequest")),
        _ => (ResizePhase::Cancelled, None, Some("Withdrawn")),
    };
    ResizeStatus {
        phase: Some(phase),
        number: Some(number),
        generation,
        reason: reason.map(str::to_owned),
        message: reason.map(|_| "\u{e9}".repeat(MESSAGE)),
        ..ResizeStatus::default()
    }
}
