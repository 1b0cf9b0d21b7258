//! Bodies of requests: how long they may be, what they take of the memory, and when they are read at all.

use super::objects::{by_properties, importing, jobs, region, subscribed};
use super::{Cluster, NEIGHBOUR, STRANGER, get, send};
use crate::pe_api::arriving::{DOCUMENT, FILTER, SHORT, TAGS_MAX};
use crate::pe_api::callers::Asker;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use futures::stream;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tower::ServiceExt as _;

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
