//! Routes, properties, filters and subscriptions.

use super::objects::{by_name, by_properties, exporting, importing, job, jobs, metadata, named, subscribed};
use super::{Cluster, Exchange, NEIGHBOUR, PE, STRANGER, SUBSCRIPTIONS, TOOL, get, names, properties, property, send};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use futures::{StreamExt as _, poll};
use k8s_openapi::api::core::v1::Pod;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use streams_api::{Export, Import, Job, ProcessingElement, names};
use streams_broker::Pe;
use streams_kubernetes::Key;
use streams_kubernetes_fake::Server;
use tower::ServiceExt as _;

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
async fn a_pe_is_answered_once_without_what_has_the_label_of_another_job_than_before() {
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "dstjob-0-0", "dstjob", 0, 0, &subscribed("\"a\" in prop0"));
    });
    cluster.expect(get(SUBSCRIPTIONS), 200, r#""dstjob-0-0":{"jobId":2,"#).await;
    made_again(&mut cluster, 7);
    let nothing = r#"{"exports":{},"imports":{}}"#;
    // who asks, how -> whether the new route is in the answer
    let table = [
        (NEIGHBOUR, Method::GET, nothing),
        (PE, Method::HEAD, ""),
        (PE, Method::GET, nothing),
        (PE, Method::GET, r#""dstjob-0-0":{"jobId":7,"#),
        (NEIGHBOUR, Method::GET, r#""dstjob-0-0":{"jobId":7,"#),
    ];
    for (from, method, expected) in table {
        cluster.expect(Exchange { from, ..send(method, SUBSCRIPTIONS, "") }, 200, expected).await;
    }
    // Another pod of the PE, which is younger than the job, knows no other.
    made_again(&mut cluster, 8);
    let pod = Key::new("n", "srcjob-1-x");
    let mut younger = cluster.server.get::<Pod>(&pod).unwrap();
    cluster.server.remove::<Pod>(&pod);
    (younger.metadata.name, younger.metadata.resource_version) = (Some("srcjob-1-y".to_owned()), None);
    cluster.server.create(&younger);
    cluster.mirrors.deliver_all();
    cluster.expect(get(SUBSCRIPTIONS), 200, r#""dstjob-0-0":{"jobId":8,"#).await;
}

#[tokio::test]
async fn the_answer_to_a_pod_that_was_waited_for_counts() {
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "dstjob-0-0", "dstjob", 0, 0, &subscribed("\"a\" in prop0"));
    });
    made_again(&mut cluster, 7);
    let address = "10.0.0.9";
    cluster.server.edit::<Pod>(&Key::new("n", "srcjob-1-x"), |pod| {
        pod.status.get_or_insert_default().pod_ip = Some(address.to_owned());
    });
    for expected in [r#"{"exports":{},"imports":{}}"#, r#""dstjob-0-0":{"jobId":7,"#] {
        cluster.expect(Exchange { from: address, ..get(SUBSCRIPTIONS) }, 200, expected).await;
    }
}

#[tokio::test]
async fn a_pod_hears_its_routes_when_it_is_known_which_text_it_runs() {
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "dstjob-0-0", "dstjob", 0, 0, &subscribed("\"a\" in prop0"));
    });
    cluster.expect(get(SUBSCRIPTIONS), 200, "dstjob-0-0").await;
    // It is made from a text that this replica does not know of yet, and at first not even of its address.
    let address = "10.0.0.9";
    cluster.server.edit::<Pod>(&Key::new("n", "srcjob-1-x"), |pod| {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_RUNTIME_ID.to_owned(), "newer".to_owned());
        pod.status.get_or_insert_default().pod_ip = Some(address.to_owned());
    });
    let its = || Exchange { from: address, ..get(SUBSCRIPTIONS) };
    cluster.expect(its(), 503, "which ports the pod has").await;
    cluster.expect(Exchange { from: STRANGER, ..get(SUBSCRIPTIONS) }, 200, "dstjob-0-0").await;
    cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), |pe| pe.spec.runtime_id = "newer".to_owned());
    cluster.mirrors.deliver_all();
    cluster.expect(its(), 200, "dstjob-0-0").await;
}

/// Job `dstjob`, which imports at PE 0, is made again with this number, a second later.
fn made_again(cluster: &mut Cluster, id: u64) {
    let (server, key) = (&cluster.server, Key::new("n", "dstjob-0-0"));
    let import = server.get::<Import>(&key).unwrap();
    server.remove::<Import>(&key);
    server.remove::<Job>(&Key::new("n", "dstjob"));
    server.advance(Duration::from_secs(1));
    server.create(&job("dstjob", id));
    let mut again = Import { metadata: import.metadata, spec: import.spec, status: None };
    again.metadata.owner_references =
        serde_json::from_value(metadata(server, "Job", "dstjob-0-0", "dstjob")["ownerReferences"].clone()).unwrap();
    (again.spec.job_id, again.metadata.resource_version) = (id, None);
    server.create(&again);
    cluster.mirrors.deliver_all();
}

/// Port 10 of PE 1 of `srcjob` exports a stream that so many ports import: more than a message may have.
fn many_routes(server: &Server) {
    by_name(server);
    (0..600).for_each(|port| importing(server, &format!("dstjob-0-{port}"), "dstjob", 0, port, &named("s")));
}

/// The routes of PE 1 of `srcjob`, for whoever asks from this address; nothing of them was read.
async fn many_routes_told(router: Router, from: &str) -> Response {
    let request = Request::get(SUBSCRIPTIONS).header("host", "streams-api.n");
    let request = request.extension(ConnectInfo::<SocketAddr>(format!("{from}:1").parse().unwrap()));
    router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn many_routes_are_put_together_in_turn_and_counted_until_they_were_sent() {
    let mut cluster = Cluster::with(many_routes);
    let documents = cluster.api.route_documents.clone();
    // Somebody of the namespace has its turn.
    let turn = documents.turns.acquire("n").await;
    let mut waiting = pin!(many_routes_told(cluster.router.clone(), PE));
    assert!(poll!(&mut waiting).is_pending());
    cluster.expect(get("/api/subscriptions/job/srcjob/pe/0"), 200, r#"{"exports":{},"imports":{}}"#).await;
    // Who is of another namespace has another turn, whatever namespace it asks about.
    assert_eq!(many_routes_told(cluster.router.clone(), TOOL).await.status(), StatusCode::OK);
    assert!(poll!(&mut waiting).is_pending());
    assert_eq!(documents.unread.taken(), 0);
    drop(turn);
    let mut told = waiting.await.into_body().into_data_stream();
    let routes = told.next().await.unwrap().unwrap();
    let pe = Pe { job: "srcjob".into(), id: 1 };
    assert_eq!(routes, cluster.api.boards.routes("n", &pe).unwrap().document());
    assert!(told.next().await.is_none());
    drop(told);
    assert!((routes.len()..routes.len() + (16 << 10)).contains(&documents.unread.taken()));
    drop(routes);
    assert_eq!(documents.unread.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_gets_no_turn_or_no_memory_for_many_routes_is_told_so_and_others_are_answered() {
    let mut cluster = Cluster::with(many_routes);
    let documents = cluster.api.route_documents.clone();
    let turn = documents.turns.acquire("n").await;
    cluster.expect(get(SUBSCRIPTIONS), 503, "other routes are put together first").await;
    drop(turn);
    let mut unread = documents.unread.share(cluster.api.callers.asker(PE.parse().unwrap()));
    while unread.add(1 << 20).is_ok() {}
    cluster.expect(get(SUBSCRIPTIONS), 503, "the routes of this address take too much memory").await;
    cluster.expect(get("/api/subscriptions/job/srcjob/pe/0"), 200, "").await;
    cluster.expect(Exchange { from: NEIGHBOUR, ..get(SUBSCRIPTIONS) }, 200, "dstjob-0-599").await;
    drop(unread);
    cluster.expect(get(SUBSCRIPTIONS), 200, "dstjob-0-599").await;
    assert_eq!(documents.unread.taken(), 0);
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
    // An operator removes those of an empty list.
    let writes = cluster.connection.writes();
    for nothing in ["<streamPropertyNames scope=\"listed\"/>", "<streamPropertyNames/>"] {
        cluster.expect(send(Method::DELETE, &all, nothing), 204, "").await;
    }
    assert_eq!(cluster.connection.writes(), writes, "nothing has changed");
    cluster.expect(get(&one("bar")), 200, "<value>7</value>").await;
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
    cluster.expect(send(Method::PUT, &filter, "true"), 400, "filter: ").await;
    // PEs would take them for something else.
    for meant_otherwise in ["(some + -1e-05) > 2", "some % 0 == 1", "!(some == 1 && other == 2)", "some[-1] == 1"] {
        cluster.expect(send(Method::PUT, &filter, meant_otherwise), 400, "filter: ").await;
    }
    for written_by_pes in ["some < -1.5", "(some + -1) > 2", "-1.5 in some", "hash == 5"] {
        cluster.expect(send(Method::PUT, &filter, written_by_pes), 204, "").await;
        let (_, body) = cluster.answer(get(&filter)).await;
        assert_eq!(body, written_by_pes);
    }
    cluster.expect(send(Method::PUT, &filter, "some == 1"), 204, "").await;
    let (_, body) = cluster.answer(get(&filter)).await;
    assert_eq!(body, "some == 1");
    cluster.expect(get(&streams), 200, "filter=\"some == 1\"").await;
    cluster.expect(send(Method::PUT, &filter, ""), 204, "").await;
    cluster.expect(get(&filter), 404, "").await;
    let blanks = r#"<importedStreams filter=" "><propertyBasedImport subscription="some == 3"/></importedStreams>"#;
    cluster.expect(send(Method::PUT, &streams, blanks), 204, "").await;
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

#[tokio::test(start_paused = true)]
async fn long_exports_and_imports_are_answered_and_changed_in_turn() {
    let mut cluster = Cluster::with(|server| {
        by_long_properties(server);
        exporting(server, 1, 11);
        importing(server, "dstjob-0-0", "dstjob", 0, 0, &named("s"));
        server.edit::<Import>(&Key::new("n", "dstjob-0-0"), |import| {
            import.spec.application_name = "x".repeat(80_000);
        });
    });
    let import = "/api/subscriptions/job/dstjob/pe/0/import/0";
    let (export, short) = (format!("{SUBSCRIPTIONS}/export/10"), format!("{SUBSCRIPTIONS}/export/11"));
    let (properties_of, property_of) = (format!("{export}/properties"), format!("{export}/property/prop0"));
    let (all, other) = (names(&[]), properties(&[("prop0", "a")]));
    let (streams, filter) = (format!("{import}/streams"), format!("{import}/filter"));
    // of which there is one -> its status and words
    let calls = [
        (get(&export), 200, "xxx"),
        (get(&property_of), 200, "xxx"),
        (send(Method::POST, &properties_of, &all), 200, "xxx"),
        (get(import), 200, "xxx"),
        (get(&streams), 200, "nameBasedImport"),
        (get(&filter), 404, "no filter"),
        (send(Method::PATCH, &properties_of, &other), 204, ""),
    ];
    let turn = cluster.api.long_objects.hold("n").await;
    let turn_of_changes = cluster.api.long_changes.hold("n").await;
    cluster.expect(get(&short), 200, "srcjob").await;
    for (call, ..) in &calls {
        cluster.expect(Exchange { method: call.method.clone(), ..*call }, 503, "it takes too long").await;
    }
    assert_eq!(cluster.connection.writes(), 0);
    drop(turn);
    let [answers @ .., (change, changed, _)] = calls;
    for (call, status, words) in answers {
        cluster.expect(call, status, words).await;
    }
    // However many answers others ask for, a change waits for none of them.
    let _turn = cluster.api.long_objects.hold("n").await;
    drop(turn_of_changes);
    cluster.expect(change, changed, "").await;
    assert_eq!(cluster.connection.writes(), 1);
}

/// The export of [`by_properties`], which is long.
fn by_long_properties(server: &Server) {
    by_properties(server);
    server.edit::<Export>(&Key::new("n", "srcjob-1-10"), |export| {
        let long = format!("\"{}\"", "x".repeat(40_000));
        export.spec.stream.properties[0].values = vec![long.clone(), long];
    });
}

/// To be unpacked as well.
#[tokio::test(start_paused = true)]
async fn a_long_export_is_changed_in_one_turn() {
    let mut cluster = Cluster::with(by_long_properties);
    let changes = cluster.api.long_changes.clone();
    let turn = changes.hold("n").await;
    let others = async {
        let mut next = pin!(changes.hold("n"));
        // The change waits already.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(poll!(&mut next).is_pending());
        drop(turn);
        let _next = next.await;
        std::future::pending::<()>().await;
    };
    let (path, body) = (format!("{SUBSCRIPTIONS}/export/10/properties"), properties(&[("prop0", "a")]));
    tokio::select! {
        () = cluster.expect(send(Method::PATCH, &path, &body), 204, "") => {}
        () = others => {}
    }
    assert_eq!(cluster.connection.writes(), 1);
}

/// It is written by then.
#[tokio::test(start_paused = true)]
async fn a_change_at_which_the_board_cannot_look_is_answered_before_the_runtime_gives_up() {
    let mut cluster = Cluster::with(|server| {
        by_long_properties(server);
        importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("some == 1"));
        server.edit::<Import>(&Key::new("n", "srcjob-1-10"), |import| {
            import.spec.application_name = "x".repeat(80_000);
        });
    });
    let export = (format!("{SUBSCRIPTIONS}/export/10/properties"), properties(&[("prop0", "a")]));
    let streams = r#"<importedStreams><propertyBasedImport subscription="some == 2"/></importedStreams>"#;
    let import = (format!("{SUBSCRIPTIONS}/import/10/streams"), streams.to_owned());
    let changes = [(Method::PATCH, &export), (Method::PUT, &import)];
    // Somebody looks at another long one of the namespace.
    let place = cluster.api.boards.hold_aside("n").await;
    for (method, (path, body)) in changes.clone() {
        let call = cluster.expect(send(method, path, body), 503, "it takes too long");
        assert_eq!(tokio::time::timeout(Duration::from_secs(1), call).await, Ok(()), "{path}");
    }
    assert_eq!(cluster.connection.writes(), 2);
    drop(place);
    for (method, (path, body)) in changes {
        cluster.expect(send(method, path, body), 204, "").await;
    }
    assert_eq!(cluster.connection.writes(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_long_export_is_answered_as_it_is_when_its_turn_has_come() {
    let mut cluster = Cluster::with(by_long_properties);
    let (server, turn) = (cluster.server.clone(), cluster.api.long_objects.hold("n").await);
    let others = async {
        // The PE waits already, and hears of it nevertheless.
        tokio::time::sleep(Duration::from_millis(10)).await;
        server.edit::<Export>(&Key::new("n", "srcjob-1-10"), |export| {
            export.spec.application_name = "Another".to_owned();
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(turn);
        std::future::pending::<()>().await;
    };
    let path = format!("{SUBSCRIPTIONS}/export/10");
    tokio::select! {
        () = cluster.expect(get(&path), 200, r#""applicationName":"Another""#) => {}
        () = others => {}
    }
}
