//! Endpoints under a name, and what reserves the name.

use super::objects::{jobs, metadata, reservations, with_endpoints};
use super::{Cluster, Exchange, NEIGHBOUR, PE, get, registration, request, send};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::ProcessingElement;
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes_fake::Fault;
use tokio::sync::Mutex;
use tower::ServiceExt as _;

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

/// The runtime waits for a second.
#[tokio::test(start_paused = true)]
async fn all_that_a_request_asks_of_the_api_server_has_the_time_of_one_write() {
    let removal = || send(Method::DELETE, "/api/endpoints/job/srcjob/pe/1/endpoint/test", "");
    // whether the endpoint is removed or registered again, milliseconds of each call -> the answer
    let table = [(false, 200, 204), (false, 500, 503), (true, 100, 204), (true, 500, 503)];
    for (is_removed, takes, status) in table {
        let mut cluster = Cluster::with(jobs);
        cluster.another().expect(registration(1), 204, "").await;
        if !is_removed {
            cluster.mirrors.deliver_all();
        }
        cluster.connection.meanwhile(move |_| Box::pin(tokio::time::sleep(Duration::from_millis(takes))));
        let since = tokio::time::Instant::now();
        cluster.expect(if is_removed { removal() } else { registration(1) }, status, "").await;
        let took = since.elapsed();
        assert!(took < Duration::from_secs(1), "{is_removed} {takes}: {took:?}");
    }
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

/// Also what is only read before it is refused.
#[tokio::test(start_paused = true)]
async fn a_pe_that_asks_all_the_time_makes_two_calls_at_a_time_and_holds_up_no_other_one() {
    let mut cluster = Cluster::with(jobs);
    cluster.expect(registration(0), 204, "").await;
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, highest) = (Arc::clone(&under_way), Arc::clone(&most));
    cluster.connection.meanwhile(move |_| {
        let (now, highest) = (Arc::clone(&now), Arc::clone(&highest));
        Box::pin(async move {
            highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            now.fetch_sub(1, Ordering::SeqCst);
        })
    });
    let ask = |pe| {
        let exchange = registration(pe);
        let request = request(&exchange, Body::from(exchange.body));
        cluster.router.clone().oneshot(request)
    };
    // PE 0 has the name that PE 1 asks for.
    let crowd = join_all((0..64).map(|_| ask(1)));
    let neighbour = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        ask(0).await.unwrap().status().as_u16()
    };
    let (answers, of_neighbour) = tokio::join!(crowd, neighbour);
    assert_eq!((of_neighbour, most.load(Ordering::SeqCst)), (204, 3));
    let refused = answers.into_iter().filter(|answer| answer.as_ref().unwrap().status().as_u16() == 400).count();
    assert!((10..=18).contains(&refused), "{refused} have had their turns");
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
