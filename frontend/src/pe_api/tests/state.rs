//! Names of jobs, connectivity and widths; and the state of the whole instance.

use super::objects::{
    by_properties, element, export, exporting, importing, job, jobs, leave_behind, metadata, named, region, subscribed,
};
use super::{Cluster, Exchange, NEIGHBOUR, PE, STRANGER, SUBSCRIPTIONS, TOOL, get, registration, send};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use futures::{TryStreamExt as _, poll};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{
    Connectivity, Job, JobPhase, ParallelRegion, PePhase, ProcessingElement, ReportedConnectivity, Termination,
    UserEndpoint, names,
};
use streams_kubernetes::Key;
use streams_kubernetes_fake::Server;
use tower::ServiceExt as _;

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
        status.connectivity =
            Some(ReportedConnectivity { state: Connectivity::Full, launch_count: 2, interruptions: 0 });
        let endpoint = UserEndpoint { name: "web".to_owned(), port: 80, protocol: "TCP".to_owned() };
        status.endpoints = vec![endpoint];
    });
    server.edit::<ProcessingElement>(&Key::new("n", "srcjob-0"), |pe| {
        pe.spec.application_name = "demo::A<&>".to_owned();
        let status = pe.status.as_mut().unwrap();
        status.phase = Some(PePhase::BackOff);
        // Of an earlier pod.
        status.connectivity =
            Some(ReportedConnectivity { state: Connectivity::Full, launch_count: 1, interruptions: 0 });
        status.last_termination = Some(Termination { exit_code: Some(139), ..Termination::default() });
    });
    let region: ParallelRegion = serde_json::from_value(json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "ParallelRegion",
        "metadata": metadata(server, "Job", "srcjob-0", "srcjob"),
        "spec": {"jobName": "srcjob", "index": 0, "name": "R", "width": 3}, "status": {"width": 2},
    }))
    .unwrap();
    server.create(&region);
    let mut copy = region.clone();
    (copy.metadata.name, copy.spec.width) = (Some("srcjob-0b".to_owned()), 9);
    server.create(&copy);
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

/// The state as JSON, for whoever asks from this address; nothing of it was read.
async fn captured(cluster: &Cluster, from: &str) -> Response {
    let request = Request::get("/api/state").header("host", "streams-api.n").header("accept", "application/json");
    let request = request.extension(ConnectInfo::<SocketAddr>(format!("{from}:1").parse().unwrap()));
    cluster.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

async fn pieces(of: Response) -> Vec<Bytes> {
    of.into_body().into_data_stream().try_collect().await.unwrap()
}

#[tokio::test]
async fn a_piece_shows_what_there_is_when_it_is_made_and_no_object_is_kept_before() {
    // As many as are looked at for one piece, though not all of them are written into it; and more.
    for pes in [40, 80] {
        let mut cluster = Cluster::with(|server| {
            for (number, name) in (1..).zip(["srcjob", "dstjob", "third", "last"]) {
                server.create(&job(name, number));
            }
            for id in 0..pes {
                element(server, "srcjob", id, &format!("10.0.1.{id}"));
                let operators = vec!["o".repeat(1_000); 16];
                server.edit::<ProcessingElement>(&Key::new("n", &format!("srcjob-{id}")), |pe| {
                    pe.spec.operators.clone_from(&operators);
                });
            }
            element(server, "third", 0, STRANGER);
        });
        let mut body = captured(&cluster, PE).await.into_body().into_data_stream();
        let first = body.try_next().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).matches("\"operators").count() < 10);
        let seen = ["srcjob", "dstjob", "third", "last"].map(|name| {
            let seen = cluster.mirrors.mirrors.jobs.get(&Key::new("n", name)).unwrap();
            (name, Arc::downgrade(&seen))
        });
        let server = &cluster.server;
        for name in ["srcjob", "dstjob"] {
            server.edit::<Job>(&Key::new("n", name), |job| job.status.as_mut().unwrap().phase = Some(JobPhase::Failed));
        }
        let pe = |id: u64| Key::new("n", &format!("srcjob-{id}"));
        for id in [20, pes - 1] {
            server.edit::<ProcessingElement>(&pe(id), |pe| {
                pe.status.as_mut().unwrap().node_name = Some("node-7".to_owned());
            });
        }
        [21, pes - 2].into_iter().for_each(|id| server.remove::<ProcessingElement>(&pe(id)));
        // One is made again, with another number, and has none of the PEs of the one before; one goes.
        ["third", "last"].into_iter().for_each(|name| server.remove::<Job>(&Key::new("n", name)));
        server.create(&job("third", 5));
        cluster.mirrors.deliver_all();
        for (name, seen) in seen {
            assert!(seen.upgrade().is_none(), "{name}");
        }
        let rest: Vec<Bytes> = body.try_collect().await.unwrap();
        let state: Value = serde_json::from_slice(&[vec![first], rest].concat().concat()).unwrap();
        let jobs = state["jobs"].as_array().unwrap().iter();
        let jobs: Vec<_> = jobs.map(|job| (job["name"].as_str().unwrap(), job["state"].as_str().unwrap())).collect();
        assert_eq!(jobs, [("srcjob", "constructed"), ("dstjob", "failed")], "the first was begun before");
        let shown = state["jobs"][0]["pes"].as_array().unwrap();
        let moved = shown.iter().filter(|pe| pe["host"] == "node-7").map(|pe| pe["id"].as_u64().unwrap());
        assert_eq!((shown.len() as u64, moved.collect::<Vec<_>>()), (pes - 2, vec![20, pes - 1]));
    }
}

/// Whoever captures time and again would have them unpacked all the time.
#[tokio::test]
async fn jobs_that_rest_go_on_resting_while_the_state_is_captured() {
    let cluster = Cluster::with(an_instance);
    let mirror = &cluster.mirrors.mirrors.jobs;
    // The first one has the board look at what there is.
    for _ in 0..2 {
        mirror.rest();
        assert!(!pieces(captured(&cluster, TOOL).await).await.is_empty());
    }
    for name in ["srcjob", "dstjob"] {
        let kept = mirror.kept(&Key::new("n", name)).unwrap();
        let (one, other) = (kept.read_in_passing().unwrap(), kept.read_in_passing().unwrap());
        assert!(!Arc::ptr_eq(&one, &other), "{name} is at hand");
    }
}

#[tokio::test]
async fn a_piece_ends_when_it_is_long_however_many_connections_its_pes_have() {
    let cluster = Cluster::with(|server| {
        jobs(server);
        for pe in 2..10 {
            element(server, "srcjob", pe, &format!("10.0.1.{pe}"));
            exporting(server, pe, 0);
        }
        (0..300).for_each(|port| importing(server, &format!("dstjob-0-{port}"), "dstjob", 0, port, &named("s")));
    });
    let pieces = pieces(captured(&cluster, PE).await).await;
    let longest = pieces.iter().map(Bytes::len).max();
    assert!(longest.is_some_and(|longest| longest < (64 << 10) + 300 * 80), "{longest:?}");
    let state: Value = serde_json::from_slice(&pieces.concat()).unwrap();
    let pes = state["jobs"][0]["pes"].as_array().unwrap();
    let connections = pes.iter().map(|pe| {
        let ports = pe["outputPorts"].as_array().unwrap().iter();
        ports.map(|port| port["connections"].as_array().unwrap().len()).sum()
    });
    assert_eq!(connections.collect::<Vec<usize>>(), [vec![0; 2], vec![300; 8]].concat());
}

#[tokio::test]
async fn who_captures_all_the_time_takes_no_turn_of_another_namespace() {
    let cluster = Cluster::with(jobs);
    // Addresses that nobody knows are together like one namespace.
    let turn = cluster.api.captures.turns.acquire("").await;
    let mut waiting = pin!(pieces(captured(&cluster, TOOL).await));
    assert!(poll!(&mut waiting).is_pending());
    let own = tokio::time::timeout(Duration::from_secs(20), pieces(captured(&cluster, PE).await)).await;
    assert!(!own.unwrap().is_empty());
    assert!(poll!(&mut waiting).is_pending());
    drop(turn);
    assert!(!waiting.await.is_empty());
}

#[tokio::test]
async fn an_address_has_few_captures_until_all_of_them_were_sent() {
    let cluster = Cluster::with(jobs);
    let mut unread = Vec::new();
    for status in [200, 200, 200, 200, 200, 200, 200, 200, 503] {
        unread.push(captured(&cluster, PE).await);
        assert_eq!(unread.last().map(|answer| answer.status().as_u16()), Some(status), "{}", unread.len());
    }
    assert_eq!(captured(&cluster, NEIGHBOUR).await.status(), StatusCode::OK);
    let refused = to_bytes(unread.pop().unwrap().into_body(), 1 << 10).await.unwrap();
    assert_eq!(refused, "too many captures of this address go on now, try again");
    let sent = pieces(unread.pop().unwrap()).await;
    assert_eq!(captured(&cluster, PE).await.status(), StatusCode::SERVICE_UNAVAILABLE, "a piece was not sent");
    drop(sent);
    assert_eq!(captured(&cluster, PE).await.status(), StatusCode::OK);
    drop(unread);
    assert_eq!(cluster.api.captures.under_way(), 0);
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
async fn a_pod_whose_end_is_recorded_is_not_heard_any_more() {
    let path = "/api/state/job/srcjob/pe/1/connectivity";
    // launch whose end was recorded last -> what counts of what the pod of launch 2 tells
    for (ended, expected) in [(1, "\"Full\""), (2, "\"None\"")] {
        let mut cluster = Cluster::with(jobs);
        cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), |pe| {
            let last = Termination { launch_count: ended, ..Termination::default() };
            pe.status.as_mut().unwrap().last_termination = Some(last);
        });
        cluster.mirrors.deliver_all();
        cluster.expect(send(Method::PUT, path, "\"Full\""), 204, "").await;
        cluster.expect(get(path), 200, expected).await;
        assert_eq!(cluster.connection.writes(), usize::from(ended == 1), "{ended}");
    }
}

/// Whoever may make one could have PEs change that, and resize nothing.
#[tokio::test]
async fn a_region_that_only_says_that_it_is_of_a_job_is_not_that_of_the_job() {
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        region(server);
        // Two that were made by hand, and two copies, which have the reference of the region.
        let by_hand = |name: &str| json!({"name": name, "namespace": "n", "labels": names::job_labels("srcjob")});
        let copy = |name: &str| metadata(server, "Job", name, "srcjob");
        for metadata in [by_hand("a"), by_hand("z"), copy("a-copy"), copy("srcjob-0b")] {
            let made: ParallelRegion = serde_json::from_value(json!({
                "apiVersion": "streams.ibm.com/v1", "kind": "ParallelRegion", "metadata": metadata,
                "spec": {"jobName": "srcjob", "index": 0, "name": "R", "width": 9},
            }))
            .unwrap();
            server.create(&made);
        }
    });
    let path = "/api/state/job/srcjob/pr/R/width";
    cluster.expect(get(path), 200, "2").await;
    cluster.expect(send(Method::PUT, path, "3"), 204, "").await;
    let widths = ["srcjob-0", "a", "z", "a-copy", "srcjob-0b"]
        .map(|name| cluster.server.get::<ParallelRegion>(&Key::new("n", name)).unwrap().spec.width);
    assert_eq!(widths, [3, 9, 9, 9, 9]);
    cluster.expect(get("/api/state/job/srcjob/pr/S/width"), 404, "no parallel region S").await;
}
