//! Who asks, what it may do, and what is looked at while the news of who asks are waited for.

use super::objects::{by_properties, element, importing, job, jobs, leave_behind, region, subscribed};
use super::{
    Cluster, Exchange, NEIGHBOUR, PE, STRANGER, SUBSCRIPTIONS, TOOL, get, names, properties, property, registration,
    send,
};
use crate::pe_api::PeApi;
use crate::pe_api::caller::Caller;
use crate::pe_api::refusal::Refusal;
use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts as _};
use axum::http::{Method, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{Export, Job, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::Server;
use tokio::time::sleep;
use tower::ServiceExt as _;

/// Who asks from this address, in namespace `n`.
async fn caller(api: &PeApi, from: &str) -> Caller {
    let request = Request::put("/").header("host", "streams-api.n:10000");
    let request = request.extension(ConnectInfo::<SocketAddr>(format!("{from}:1").parse().unwrap()));
    Caller::from_request_parts(&mut request.body(()).unwrap().into_parts().0, api).await.unwrap()
}

/// Somebody has written an object.
fn is_written(server: &Server, kind: &str, name: &str, number: u32) {
    let (key, number) = (Key::new("n", name), number.to_string());
    match kind {
        "PE" => server.edit::<ProcessingElement>(&key, |pe| pe.status.as_mut().unwrap().node_name = Some(number)),
        "job" => server.edit::<Job>(&key, |job| job.metadata.labels = Some([("number".to_owned(), number)].into())),
        _ => server.edit::<Pod>(&key, |pod| pod.status.as_mut().unwrap().pod_ip = Some(format!("10.0.3.{number}"))),
    };
}

/// It is long, so it is read on a thread of its own, and changed likewise.
#[tokio::test]
async fn an_object_of_which_no_answer_can_be_made_is_not_said_to_take_too_long() {
    let cluster = Cluster::with(|server| {
        by_properties(server);
        server.edit::<Export>(&Key::new("n", "srcjob-1-10"), |export| {
            export.spec.application_name = "x".repeat(80_000);
        });
    });
    let caller = caller(&cluster.api, PE).await;
    let export = cluster.api.export(&caller, "srcjob", 1, 10).unwrap();
    let read = export.read(&cluster.api, &caller, |_| -> Result<(), Refusal> { panic!("of this test") }).await;
    assert_eq!(read.unwrap_err().to_string(), "what the port has could not be read");
    let export = cluster.api.export(&caller, "srcjob", 1, 10).unwrap().changeable_by(&caller).unwrap();
    let (key, _) = export.key();
    let changed = cluster.api.changes.export(&key, export.change(0, |_| panic!("of this test"))).await;
    assert_eq!(changed.unwrap_err().to_string(), "what becomes of it could not be decided");
}

/// What the mirrors have of it may be less than there is, or nothing.
#[tokio::test(start_paused = true)]
async fn of_a_namespace_that_may_not_be_read_nothing_is_said_or_written() {
    let mut cluster = Cluster::with(by_properties);
    cluster.expect(get(SUBSCRIPTIONS), 200, "").await;
    let calls = cluster.connection.calls();
    // Whatever kind it is.
    cluster.mirrors.mirrors.host_pools.refuse("n");
    let refused = "does not let this frontend read namespace n: HostPool";
    cluster.expect(get(SUBSCRIPTIONS), 503, refused).await;
    // Nobody knows whose address it is.
    cluster.expect(Exchange { from: TOOL, ..get(SUBSCRIPTIONS) }, 503, refused).await;
    let since = tokio::time::Instant::now();
    cluster.expect(registration(1), 503, refused).await;
    assert!(since.elapsed() >= Duration::from_millis(1_500), "the PE asks again");
    assert_eq!(cluster.connection.calls(), calls);
    cluster.mirrors.mirrors.host_pools.permit("n");
    cluster.expect(get(SUBSCRIPTIONS), 200, "").await;
    // Others hear nothing of it, but who names no namespace may be of that one.
    cluster.mirrors.mirrors.host_pools.refuse("m");
    cluster.expect(get(SUBSCRIPTIONS), 200, "").await;
    let request = Request::get(SUBSCRIPTIONS).extension(ConnectInfo::<SocketAddr>("10.0.9.9:1".parse().unwrap()));
    let response = cluster.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 503);
}

/// Also by a replica that has never read it.
#[tokio::test(start_paused = true)]
async fn every_path_is_answered_while_the_namespace_may_not_be_read() {
    let cluster = Cluster::with(|_| {});
    let (_, document) = cluster.answer_as_shown(get("/openapi.json")).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    cluster.mirrors.mirrors.pods.refuse("n");
    let mut paths = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path: Vec<_> = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect();
        let path = path.join("/");
        for method in methods.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            let since = tokio::time::Instant::now();
            let (status, words) = cluster.answer_as_shown(send(method.clone(), &path, "")).await;
            assert_eq!(status.as_u16(), 503, "{method} {path}: {words}");
            // Who only asks hears it at once, and who tells something when the runtime has given up.
            let expected = if matches!(method, Method::GET | Method::POST) { 0..10 } else { 1_500..1_510 };
            assert!(expected.contains(&since.elapsed().as_millis()), "{method} {path}: {:?}", since.elapsed());
            paths += 1;
        }
    }
    assert!(paths > 30, "{paths}");
}

#[tokio::test(start_paused = true)]
async fn nobody_makes_a_pe_be_read_again_while_only_others_change() {
    // who asks for PE 1 of `srcjob`, what changes 10 times meanwhile -> how often somebody looks
    let table = [
        (STRANGER, None, 1),
        (STRANGER, Some(("PE", "dstjob-0")), 1),
        (STRANGER, Some(("PE", "srcjob-0")), 1),
        (STRANGER, Some(("job", "dstjob")), 1),
        (STRANGER, Some(("pod", "srcjob-0-x")), 1),
        (TOOL, Some(("PE", "srcjob-0")), 1),
        (STRANGER, Some(("PE", "srcjob-1")), 11),
        (STRANGER, Some(("job", "srcjob")), 11),
        // The caller has another address from the first time on.
        (STRANGER, Some(("pod", "dstjob-0-x")), 2),
    ];
    for (from, changes, expected) in table {
        let mut cluster = Cluster::with(jobs);
        let (api, looks) = (cluster.api.clone(), AtomicUsize::new(0));
        let caller = caller(&api, from).await;
        let look = || {
            looks.fetch_add(1, Ordering::SeqCst);
            Err::<(), _>(Refusal::Later("not yet".to_owned()))
        };
        let changing = async {
            for number in 0..10 {
                sleep(Duration::from_millis(40)).await;
                changes.iter().for_each(|(kind, name)| is_written(&cluster.server, kind, name, number));
                cluster.mirrors.deliver_all();
            }
        };
        let since = tokio::time::Instant::now();
        let (found, ()) = tokio::join!(api.found_soon(&caller, ("srcjob", 1), look), changing);
        let said = format!("{from} {changes:?}");
        assert!(found.is_err(), "{said}");
        assert_eq!(looks.load(Ordering::SeqCst), expected, "{said}");
        assert!((500..510).contains(&since.elapsed().as_millis()), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_at_the_last_moment_is_found() {
    let mut cluster = Cluster::with(jobs);
    let api = cluster.api.clone();
    let caller = caller(&api, STRANGER).await;
    let pe = Key::new("n", "srcjob-1");
    let look = || {
        let pe = api.mirrors.processing_elements.get(&pe).and_then(|pe| pe.status.as_ref()?.node_name.clone());
        pe.ok_or_else(|| Refusal::Later("not yet".to_owned()))
    };
    let changing = async {
        // Others have changed a moment before.
        for (after, name) in [(490, "srcjob-0"), (5, "srcjob-1")] {
            sleep(Duration::from_millis(after)).await;
            is_written(&cluster.server, "PE", name, 7);
            cluster.mirrors.deliver_all();
        }
    };
    let (found, ()) = tokio::join!(api.found_soon(&caller, ("srcjob", 1), look), changing);
    assert_eq!(found.unwrap(), "7");
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

/// Somebody has made a copy of PE 1, which has the references and labels of that, and it has got a pod.
#[tokio::test(start_paused = true)]
async fn the_pod_of_a_copy_of_a_pe_says_nothing_for_it() {
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        let original = server.get::<ProcessingElement>(&Key::new("n", "srcjob-1")).unwrap();
        let named = |meta: &ObjectMeta, name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: None,
            uid: None,
            ..meta.clone()
        };
        let metadata = named(&original.metadata, "srcjob-1b");
        let copy = server.create(&ProcessingElement { metadata, ..original });
        let pod = server.get::<Pod>(&Key::new("n", "srcjob-1-x")).unwrap();
        let metadata =
            ObjectMeta { owner_references: Some(vec![controlled_by(&copy)]), ..named(&pod.metadata, "srcjob-1b-x") };
        let mut pod = Pod { metadata, ..pod };
        pod.status.as_mut().unwrap().pod_ip = Some("10.0.0.8".to_owned());
        server.create(&pod);
    });
    let connectivity = "/api/state/job/srcjob/pe/1/connectivity";
    let property = "/api/subscriptions/job/srcjob/pe/1/export/10/property/prop0";
    let of_copy = |exchange: Exchange<'static>| Exchange { from: "10.0.0.8", ..exchange };
    cluster.expect(of_copy(send(Method::PUT, connectivity, "\"Full\"")), 403, "only PE 1").await;
    cluster.expect(of_copy(send(Method::DELETE, property, "")), 403, "only PEs of job srcjob").await;
    cluster.expect(send(Method::PUT, connectivity, "\"Full\""), 204, "").await;
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
