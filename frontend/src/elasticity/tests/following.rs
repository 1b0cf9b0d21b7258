//! Who makes a request, waits for it, follows it or withdraws it.

use super::{
    committed, deadline, go_on, is_silent, key, next, propose, server, service, service_with, wait, wanted, why,
};
use crate::controllers::tests::LateMirrors;
use crate::elasticity::Elasticity;
use crate::elasticity::followed::FollowedRequest;
use crate::elasticity::outcome::tests::ASSESSED;
use crate::elasticity::requests::object;
use crate::mirrors::Mirrors;
use futures::FutureExt as _;
use futures::future::join3;
use kube::Client;
use kube::api::DeleteParams;
use kube::client::Body;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use streams_api::names::ANNOTATION_CANCEL_REQUESTED;
use streams_api::{Job, ParallelRegion, Resize, ResizeStatus};
use streams_kubernetes::Key;
use streams_kubernetes_fake::Server;
use streams_process::telemetry::testing;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService as _;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{CancelRequest, ResizeName, ResizePhase, ResizeRequest, WatchResizeResponse};
use tokio::time::Instant;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// An API server that answers all calls with this.
fn answering(status: u16, answer: &Value) -> Client {
    let answer = answer.to_string();
    let api_server = tower::service_fn(move |_: http::Request<Body>| {
        let body = Body::from(answer.clone().into_bytes());
        let answer = http::Response::builder().status(status).body(body).unwrap();
        async move { Ok::<_, std::io::Error>(answer) }
    });
    Client::new(api_server, "default")
}

/// That an API server, or whoever answers for it, refuses something.
fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code})
}

/// The mirrors of this server, a service over them, and the request that it finds there.
fn shown(server: &Server) -> (LateMirrors, Elasticity<Mirrors>, Arc<Resize>) {
    let mirrors = LateMirrors::of(server);
    let service = service(&mirrors);
    let request = mirrors.mirrors.resizes.get(&key("flow-x")).unwrap();
    (mirrors, service, request)
}

fn step(message: &WatchResizeResponse) -> (ResizePhase, Option<u64>, Option<u32>, Option<(u32, u32, u32)>) {
    let resize = message.resize.as_ref().unwrap();
    let progress = message.progress.as_ref().map(|progress| (progress.pending, progress.ready, progress.total));
    (resize.phase(), resize.generation, resize.changes.map(|changes| changes.restarted), progress)
}

/// The name of the request that an error has.
fn of_request(status: &Status) -> Option<String> {
    status.get_error_details().error_info().unwrap().metadata.get("request").cloned()
}

#[tokio::test(start_paused = true)]
async fn a_request_is_followed_to_its_end_and_a_slow_reader_hears_the_newest_state() {
    let server = server(1);
    let (mut mirrors, service, request) = shown(&server);
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::Pending, None, None, None));
    is_silent(&mut stream).await;
    propose(&server);
    mirrors.deliver_all();
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::Planned, Some(5), Some(4), None));
    // Nobody reads meanwhile.
    for pending in [7, 5, 4] {
        committed(&server, pending, false);
        mirrors.deliver_all();
    }
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::Committed, Some(5), Some(4), Some((4, 8, 12))));
    is_silent(&mut stream).await;
    committed(&server, 0, true);
    mirrors.deliver_all();
    let told = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(step(&told), (ResizePhase::RolledOut, Some(5), Some(4), Some((0, 12, 12))));
    assert!(next(&mut stream).await.is_none(), "the end is told last");
    // Whoever comes late hears the end, once.
    let mut late = pin!(service.follow_resize(request, None, deadline()).unwrap());
    assert_eq!(step(&next(&mut late).await.unwrap().unwrap()).0, ResizePhase::RolledOut);
    assert!(next(&mut late).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_time_of_its_reader_with_this_frontend_and_with_what_it_follows() {
    let start = || {
        let server = server(1);
        let (mirrors, service, request) = shown(&server);
        (server, mirrors, service, request)
    };
    // The time is over.
    let (_server, _mirrors, service, request) = start();
    let begun = Instant::now();
    let mut resize = pin!(service.follow_resize(request, None, deadline()).unwrap());
    let mut regions = pin!(service.follow_regions("n".to_owned(), None, None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok() && next(&mut regions).await.unwrap().is_ok());
    let ends = [next(&mut resize).await.unwrap().err().unwrap(), next(&mut regions).await.unwrap().err().unwrap()];
    assert_eq!(ends.each_ref().map(of_request), [Some("flow-x".to_owned()), None]);
    for end in ends {
        assert_eq!((end.code(), why(&end).as_str()), (Code::DeadlineExceeded, "STILL_WAITING"));
    }
    assert_eq!(begun.elapsed().as_secs(), 600);
    assert!(next(&mut resize).await.is_none() && next(&mut regions).await.is_none());
    // This frontend is to stop.
    let (_server, _mirrors, service, request) = start();
    let mut resize = pin!(service.follow_resize(request, None, deadline()).unwrap());
    let mut regions = pin!(service.follow_regions("n".to_owned(), None, None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok() && next(&mut regions).await.unwrap().is_ok());
    service.stopping.cancel();
    let ends = [next(&mut resize).await.unwrap().err().unwrap(), next(&mut regions).await.unwrap().err().unwrap()];
    assert_eq!(ends.each_ref().map(of_request), [Some("flow-x".to_owned()), None]);
    for end in ends {
        assert_eq!((end.code(), why(&end).as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
        assert!(end.get_error_details().retry_info().is_some());
    }
    // Somebody deletes the request.
    let (server, mut mirrors, service, request) = start();
    let mut resize = pin!(service.follow_resize(request, None, deadline()).unwrap());
    assert!(next(&mut resize).await.unwrap().is_ok());
    server.remove::<Resize>(&key("flow-x"));
    mirrors.deliver_all();
    let end = next(&mut resize).await.unwrap().err().unwrap();
    assert_eq!((end.code(), why(&end).as_str()), (Code::Aborted, "CANCELLED"));
}

/// Whoever has no key finds it by nothing else.
#[tokio::test(start_paused = true)]
async fn whatever_keeps_a_caller_from_hearing_more_of_its_request_has_the_name_of_it() {
    for (is_stopped, is_without_job, expected) in
        [(false, false, "STILL_WAITING"), (true, false, "SHUTTING_DOWN"), (false, true, "JOB_NOT_FOUND")]
    {
        let server = server(1);
        server.edit::<Resize>(&key("flow-x"), |request| {
            let cancel = (ANNOTATION_CANCEL_REQUESTED.to_owned(), "somebody".to_owned());
            request.metadata.annotations = Some([cancel].into());
        });
        let (mut mirrors, service, request) = shown(&server);
        if is_stopped {
            service.stopping.cancel();
        }
        if is_without_job {
            server.remove::<Job>(&key("flow"));
            mirrors.deliver_all();
        }
        let waits = wait(&service, &request, WaitFor::Committed).await;
        let withdrawn = service.withdraw(Arc::clone(&request), None, deadline()).await;
        for status in [waits.unwrap_err(), withdrawn.unwrap_err()] {
            assert_eq!((why(&status).as_str(), of_request(&status).as_deref()), (expected, Some("flow-x")));
        }
    }
}

/// It may be deleted alone, and nobody looks at its requests then.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_a_job_that_is_gone_and_not_because_it_is_not_there_yet() {
    let server = server(1);
    let (mut mirrors, service, request) = shown(&server);
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    assert!(next(&mut stream).await.unwrap().is_ok());
    server.remove::<Job>(&key("flow"));
    mirrors.deliver_all();
    let end = next(&mut stream).await.unwrap().unwrap_err();
    assert_eq!((why(&end).as_str(), of_request(&end).as_deref()), ("JOB_NOT_FOUND", Some("flow-x")));
    let mut later = pin!(service.follow_resize(request, None, deadline()).unwrap());
    assert!(next(&mut later).await.unwrap().is_ok());
    is_silent(&mut later).await;
}

/// A request is not kept for ever, and what it has come to does not end with it.
#[tokio::test(start_paused = true)]
async fn who_follows_a_committed_request_hears_its_end_though_its_object_is_gone() {
    let server = server(1);
    let (mut mirrors, service, request) = shown(&server);
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    let mut waits = pin!(wait(&service, &request, WaitFor::RolledOut));
    assert!(next(&mut stream).await.unwrap().is_ok() && (&mut waits).now_or_never().is_none());
    committed(&server, 4, false);
    mirrors.deliver_all();
    assert_eq!(step(&next(&mut stream).await.unwrap().unwrap()).0, ResizePhase::Committed);
    server.remove::<Resize>(&key("flow-x"));
    mirrors.deliver_all();
    is_silent(&mut stream).await;
    assert!((&mut waits).now_or_never().is_none(), "it is still rolled out");
    let late = service.withdraw(Arc::clone(&request), None, deadline()).await.unwrap_err();
    assert_eq!(why(&late), "ALREADY_COMMITTED");
    committed(&server, 0, true);
    mirrors.deliver_all();
    assert_eq!(step(&next(&mut stream).await.unwrap().unwrap()).0, ResizePhase::RolledOut);
    assert!(next(&mut stream).await.is_none());
    assert_eq!(waits.await.unwrap().generation, Some(5));
}

/// The controller makes nothing of it any more, unless it is committed, and finalizers may hold it for long.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_deleted_is_gone_though_its_object_is_still_there() {
    for is_committed in [false, true] {
        let server = server(1);
        let hold = |request: &mut Resize| request.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
        server.edit::<Resize>(&key("flow-x"), hold);
        let (mut mirrors, service, request) = shown(&server);
        let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
        let mut waits = pin!(wait(&service, &request, WaitFor::Committed));
        assert!(next(&mut stream).await.unwrap().is_ok() && (&mut waits).now_or_never().is_none());
        if is_committed {
            committed(&server, 0, true);
        }
        server.delete::<Resize>(&key("flow-x"), &DeleteParams::default());
        mirrors.deliver_all();
        assert!(mirrors.mirrors.resizes.get(&key("flow-x")).is_some(), "it is held");
        let (told, answer) = (next(&mut stream).await.unwrap(), waits.await);
        let cancelled = service.withdraw(Arc::clone(&request), None, deadline()).await.unwrap_err();
        if is_committed {
            assert_eq!(step(&told.unwrap()).0, ResizePhase::RolledOut);
            assert_eq!((answer.unwrap().generation, why(&cancelled).as_str()), (Some(5), "ALREADY_COMMITTED"));
        } else {
            assert_eq!([told.unwrap_err(), answer.unwrap_err()].map(|end| why(&end)), ["CANCELLED"; 2]);
            assert_eq!(why(&cancelled), "RESIZE_NOT_FOUND");
        }
    }
}

/// It may be deleted before any mirror shows it, or between two looks at a mirror.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_never_seen_is_gone_if_the_api_server_says_so_and_not_because_a_mirror_is_behind() {
    let cluster = server(1);
    let mut made = cluster.get::<Resize>(&key("flow-x")).unwrap();
    let cancel = (ANNOTATION_CANCEL_REQUESTED.to_owned(), "somebody".to_owned());
    made.metadata.annotations = Some([cancel].into());
    cluster.remove::<Resize>(&key("flow-x"));
    let mut another = made.clone();
    another.metadata.uid = Some("another".to_owned());
    // what the API server answers -> whether the request is gone
    let table = [
        (404, failure(404, "NotFound"), true),
        (200, json!(another), true),
        (200, json!(made), false),
        // That of a gateway, and what is no answer.
        (404, failure(404, ""), false),
        (403, failure(403, "Forbidden"), false),
        (503, failure(503, "ServiceUnavailable"), false),
    ];
    for (code, answer, is_gone) in table {
        let service = service_with(answering(code, &answer), LateMirrors::of(&cluster).mirrors.clone());
        let request = Arc::new(made.clone());
        let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
        assert!(next(&mut stream).await.unwrap().is_ok());
        let begun = Instant::now();
        let waits = wait(&service, &request, WaitFor::Committed);
        let withdraws = service.withdraw(Arc::clone(&request), None, deadline());
        let (waits, withdraws, told) = join3(waits, withdraws, next(&mut stream)).await;
        let heard = [waits.unwrap_err(), withdraws.unwrap_err(), told.unwrap().unwrap_err()].map(|end| why(&end));
        let (expected, seconds) =
            if is_gone { (["CANCELLED", "RESIZE_NOT_FOUND", "CANCELLED"], 2) } else { (["STILL_WAITING"; 3], 600) };
        assert_eq!((heard.each_ref().map(String::as_str), begun.elapsed().as_secs()), (expected, seconds), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_request_of_a_job_that_is_being_deleted() {
    let server = server(1);
    let (mut mirrors, service, request) = shown(&server);
    let mut stream = pin!(service.follow_resize(Arc::clone(&request), None, deadline()).unwrap());
    assert!(next(&mut stream).await.unwrap().is_ok());
    server.delete::<Job>(&key("flow"), &DeleteParams::foreground());
    mirrors.deliver_all();
    assert_eq!(why(&next(&mut stream).await.unwrap().unwrap_err()), "JOB_NOT_FOUND");
    let withdrawn = service.withdraw(request, None, deadline()).await.unwrap_err();
    assert_eq!(why(&withdrawn), "JOB_NOT_FOUND");
}

/// Requests of both have the same numbers.
#[tokio::test(start_paused = true)]
async fn a_job_made_again_says_nothing_of_the_requests_of_the_one_before() {
    let server = server(1);
    committed(&server, 0, true);
    let request = server.get::<Resize>(&key("flow-x")).unwrap();
    let mut other = request.clone();
    other.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = "another".to_owned());
    let service = service(&LateMirrors::of(&server));
    let phases = [&request, &other].map(|request| service.state_of(request).phase());
    assert_eq!(phases, [ResizePhase::RolledOut, ResizePhase::Pending]);
}

/// Whoever may write a request may set that.
#[tokio::test(start_paused = true)]
async fn a_request_can_be_cancelled_whatever_others_have_set_of_its_managers() {
    let server = server(1);
    let mut cancelled = serde_json::to_value(server.get::<Resize>(&key("flow-x")).unwrap()).unwrap();
    cancelled["metadata"]["resourceVersion"] = json!("1000000");
    let writer = json!({"manager": "m", "operation": "Update", "time": "9999-12-31T23:59:59Z"});
    cancelled["metadata"]["managedFields"] = json!([writer]);
    cancelled["status"]["phase"] = json!("Cancelled");
    let service = service_with(answering(200, &cancelled), LateMirrors::of(&server).mirrors.clone());
    let name = ResizeName { namespace: "n".to_owned(), request: "flow-x".to_owned(), ..ResizeName::default() };
    let answer = service.cancel(Request::new(CancelRequest { name: Some(name) })).await.unwrap();
    assert_eq!(answer.into_inner().resize.unwrap().phase(), ResizePhase::Cancelled);
}

/// It may have been carried out: whoever asked has to know of what.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_is_not_answered_names_its_request() {
    let server = server(1);
    // A 404 without a reason is that of a gateway.
    for code in [404, 429, 500, 503] {
        let status = json!({"kind": "Status", "status": "Failure", "message": "no", "code": code});
        let service = service_with(answering(code, &status), LateMirrors::of(&server).mirrors.clone());
        let name = ResizeName { namespace: "n".to_owned(), request: "flow-x".to_owned(), ..ResizeName::default() };
        let heard = service.cancel(Request::new(CancelRequest { name: Some(name) })).await.unwrap_err();
        assert_eq!((&*why(&heard), of_request(&heard).as_deref()), ("NOT_TAKEN", Some("flow-x")), "{code}");
    }
}

/// Each change of a job, of its regions and of its requests wakes all who follow one of these.
#[tokio::test(start_paused = true)]
async fn a_request_is_read_once_for_all_who_follow_it_and_only_if_it_is_another_one() {
    let server = server(1);
    let (mut mirrors, service, request) = shown(&server);
    let (one, other) = (service.followed.request(&Key::of(&*request)), service.followed.request(&Key::of(&*request)));
    let look = |followed: &FollowedRequest| followed.now(&*service.view).map(|shown| shown.request);
    let before = look(&one).unwrap();
    propose(&server);
    mirrors.deliver_all();
    for followed in [&one, &other] {
        assert!(Arc::ptr_eq(&before, &look(followed).unwrap()), "it is as it was");
    }
    assert!(before.spec.regions.is_empty() && !request.spec.regions.is_empty());
    server.edit::<Resize>(&key("flow-x"), |request| request.status.get_or_insert_default().reason = Some("R".into()));
    mirrors.deliver_all();
    let after = look(&one).unwrap();
    assert_eq!(after.status.as_ref().unwrap().reason.as_deref(), Some("R"));
    assert!(Arc::ptr_eq(&after, &look(&other).unwrap()));
    server.remove::<Resize>(&key("flow-x"));
    mirrors.deliver_all();
    assert!(look(&one).is_none());
    drop((one, other));
    drop(service.followed.request(&key("another")));
    assert_eq!(service.followed.len(), 1, "of those that nobody follows nothing is kept");
}

/// Whatever is kept of it between messages.
#[tokio::test(start_paused = true)]
async fn each_message_about_a_request_has_its_regions() {
    let server = server(1);
    let (mut mirrors, service, request) = shown(&server);
    let mut stream = pin!(service.follow_resize(request, None, deadline()).unwrap());
    let regions = |told: WatchResizeResponse| {
        let regions = told.resize.unwrap().regions.into_iter();
        regions.map(|region| (region.region, region.width)).collect::<Vec<_>>()
    };
    let expected = vec![("R0".to_owned(), 5)];
    assert_eq!(regions(next(&mut stream).await.unwrap().unwrap()), expected);
    committed(&server, 4, false);
    mirrors.deliver_all();
    assert_eq!(regions(next(&mut stream).await.unwrap().unwrap()), expected);
    // It is forgotten before it is rolled out.
    server.remove::<Resize>(&key("flow-x"));
    committed(&server, 0, true);
    mirrors.deliver_all();
    assert_eq!(regions(next(&mut stream).await.unwrap().unwrap()), expected);
}

/// A job may be large, and change often, while many wait for their requests.
#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_job_whose_request_is_waited_for() {
    let server = server(1);
    let made = serde_json::to_value(server.get::<Resize>(&key("flow-x")).unwrap()).unwrap();
    let mut mirrors = LateMirrors::of(&server);
    let service = service_with(answering(201, &made), mirrors.mirrors.clone());
    let mut waiting = pin!(service.resize(Request::new(wanted("R0", 5))));
    go_on(&mut waiting).await;
    let before = Arc::downgrade(&mirrors.mirrors.jobs.get(&key("flow")).unwrap());
    propose(&server);
    mirrors.deliver_all();
    assert!(before.upgrade().is_none());
    committed(&server, 0, true);
    mirrors.deliver_all();
    assert_eq!(waiting.await.unwrap().get_ref().generation, Some(5));
}

/// A span is kept for as long as the collector is slow.
#[tokio::test(start_paused = true)]
async fn a_span_has_no_text_that_is_no_name() {
    let collected = testing::collect(&[]);
    let service = service(&LateMirrors::of(&server(1)));
    for (namespace, job) in [("n", "flow"), ("n", &*"a".repeat(100_000)), ("a b", "flow")] {
        let request = ResizeRequest { namespace: namespace.into(), job: job.into(), ..ResizeRequest::default() };
        assert_eq!(why(&service.resize(Request::new(request)).await.unwrap_err()), "INVALID_REQUEST");
    }
    let spans = collected.spans();
    let said: Vec<_> =
        spans.iter().map(|span| ["namespace", "job"].map(|name| span.attribute(name).unwrap_or_default())).collect();
    assert_eq!(said, [["n", "flow"], ["n", ""], ["", "flow"]]);
}

/// Whoever asks again with a key costs next to nothing, and could fill the log.
#[tokio::test(start_paused = true)]
async fn the_log_says_of_a_request_that_it_was_stored_and_nothing_when_somebody_asks_again() {
    let wait_for = WaitFor::Accepted.into();
    let asked = ResizeRequest { idempotency_key: "k".to_owned(), wait_for, ..wanted("R0", 5) };
    // whether it is there already, how often somebody asks -> how often it is said
    for (is_there, calls, expected) in [(false, 1, 1), (true, 10, 0)] {
        let server = server(1);
        let mut made = object(&server.get::<Job>(&key("flow")).unwrap(), &asked);
        (made.metadata.namespace, made.metadata.uid) = (Some("n".to_owned()), Some("made".to_owned()));
        made.status = Some(ResizeStatus { number: Some(7), ..ResizeStatus::default() });
        let mirrors = LateMirrors::of(&server).mirrors.clone();
        if is_there {
            mirrors.resizes.insert(made.clone());
        }
        let service = service_with(answering(201, &json!(made)), mirrors);
        let collected = testing::collect(&[]);
        for _ in 0..calls {
            assert!(service.resize(Request::new(asked.clone())).await.is_ok());
        }
        let spans = collected.spans();
        let lines = spans.iter().flat_map(|span| &span.lines).filter(|line| *line == "widths desired");
        assert_eq!(lines.count(), expected, "{is_there}");
    }
}

/// A thousand may wait for requests of one job, and anybody may change its labels.
#[tokio::test(start_paused = true)]
async fn who_waits_looks_again_if_what_has_changed_may_decide_something_and_not_otherwise() {
    let label = |metadata: &mut ObjectMeta| {
        metadata.labels.get_or_insert_default().insert("some".to_owned(), "label".to_owned());
    };
    let cluster = server(1);
    let label_job = || {
        cluster.edit::<Job>(&key("flow"), |job| label(&mut job.metadata));
    };
    let count = || {
        cluster.edit::<Job>(&key("flow"), |job| job.status.get_or_insert_default().statistics = None);
    };
    let label_region = || {
        cluster.edit::<ParallelRegion>(&key("flow-0"), |region| label(&mut region.metadata));
    };
    let label_request = || {
        cluster.edit::<Resize>(&key("flow-x"), |request| label(&mut request.metadata));
    };
    let ask_again = || {
        let mut another = cluster.get::<Resize>(&key("flow-x")).unwrap();
        let meta = &mut another.metadata;
        (meta.name, meta.uid, meta.resource_version) = (Some("flow-y".to_owned()), None, None);
        cluster.create(&another);
    };
    // what changes -> whether it is looked at
    let table: [(&str, &dyn Fn(), bool); 9] = [
        ("a label of the job", &label_job, false),
        ("its counters", &count, false),
        ("a region", &label_region, false),
        ("another request", &ask_again, false),
        ("the request", &label_request, true),
        ("a proposal", &|| propose(&cluster), true),
        ("a commit", &|| committed(&cluster, 7, false), true),
        ("the roll-out", &|| committed(&cluster, 5, false), true),
        ("nothing", &|| {}, false),
    ];
    let (mut mirrors, service, request) = shown(&cluster);
    let mut waits = pin!(wait(&service, &request, WaitFor::RolledOut));
    assert!((&mut waits).now_or_never().is_none());
    for (what, change, expected) in table {
        let before = ASSESSED.get();
        change();
        mirrors.deliver_all();
        assert!((&mut waits).now_or_never().is_none());
        assert_eq!(ASSESSED.get() > before, expected, "{what}");
    }
    committed(&cluster, 0, true);
    mirrors.deliver_all();
    assert_eq!(waits.await.unwrap().generation, Some(5));
}
