//! The listener, mirrors that are not filled, and the description of the paths.

use super::objects::jobs;
use super::{Cluster, SUBSCRIPTIONS, get};
use crate::broker::Boards;
use crate::call_figures::HttpRequests;
use crate::consistent_regions::ConsistentRegions;
use crate::mirrors::Mirrors;
use crate::pe_api::{Callers, PeApi, router, server};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

#[tokio::test(start_paused = true)]
async fn nobody_is_answered_from_mirrors_that_are_not_filled() {
    let metrics = Metrics::new("test");
    let mirrors = Mirrors::new(&metrics);
    let (boards, callers) = (Boards::of(&mirrors), Callers::of(&mirrors));
    let regions = ConsistentRegions::of(&mirrors, Term::endless());
    let connection = Server::new().connect();
    let (of_a_kind, shared) = (|| connection.clone(), connection.clone());
    let api = PeApi::new(of_a_kind, shared, boards, callers, regions, Arc::new(|| false), &metrics);
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
