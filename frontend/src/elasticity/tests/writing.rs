//! Who has requests stored: a few at a time, and whoever hears no answer hears whether anything was sent.

use super::{called_by, go_on, key, server, service_with, wanted, why, with_retries};
use crate::controllers::tests::LateMirrors;
use crate::elasticity::Elasticity;
use crate::elasticity::writes::{STORED_AT_ONCE, STORED_AT_ONCE_OF_ONE, WITHDRAWN_AT_ONCE};
use crate::mirrors::Mirrors;
use futures::StreamExt as _;
use futures::future::{join, join_all, pending};
use futures::stream::FuturesUnordered;
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;
use std::iter;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{Job, Resize};
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService as _;
use streams_proto::elasticity::v1::{CancelRequest, ResizeName, ResizeRequest};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tonic::Request;
use tonic_types::StatusExt as _;

/// Namespaces beside `n`.
const OTHERS: [&str; 20] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "o", "p", "q", "r", "s", "t", "u"];

/// An API server that is asked to store requests, and answers as many calls as it is to, with this code.
struct Storing {
    asked: Mutex<Vec<Resize>>,
    answers: Semaphore,
    code: u16,
}

impl Storing {
    fn client(self: &Arc<Self>) -> Client {
        let it = Arc::clone(self);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let it = Arc::clone(&it);
            async move {
                if request.method() == http::Method::GET {
                    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                    let stored = it.asked.lock().iter().find(|asked| asked.name_any() == name).cloned();
                    let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                    let (code, answer) = match stored.filter(|_| it.code == 201) {
                        Some(stored) => (200, json!(stored)),
                        None => (404, missing),
                    };
                    let answer = Body::from(answer.to_string().into_bytes());
                    return Ok(http::Response::builder().status(code).body(answer).unwrap());
                }
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut made: Resize = serde_json::from_slice(&body).unwrap();
                made.metadata.uid = Some("made".to_owned());
                it.asked.lock().push(made.clone());
                it.answers.acquire().await.unwrap().forget();
                let refused = json!({"kind": "Status", "status": "Failure", "message": "no", "code": it.code});
                let answer = if it.code == 201 { json!(made) } else { refused };
                let answer = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, std::io::Error>(http::Response::builder().status(it.code).body(answer).unwrap())
            }
        });
        Client::new(server, "default")
    }

    /// The widths that it was asked to store.
    fn widths(&self) -> Vec<u32> {
        self.asked.lock().iter().map(|request| request.spec.regions[0].width).collect()
    }
}

/// A service over an API server that answers so many calls with this code.
fn over(answers: usize, code: u16) -> (Arc<Storing>, Elasticity<Mirrors>) {
    let storing = Arc::new(Storing { asked: Mutex::default(), answers: Semaphore::new(answers), code });
    let service = service_with(storing.client(), beside(&[]));
    (storing, service)
}

/// The job of the namespace `n` with its request, and the same in each of these.
fn beside(namespaces: &[&str]) -> Mirrors {
    let server = server(1);
    let (job, request) = (server.get::<Job>(&key("flow")).unwrap(), server.get::<Resize>(&key("flow-x")).unwrap());
    for namespace in namespaces {
        let (mut job, mut request) = (job.clone(), request.clone());
        for metadata in [&mut job.metadata, &mut request.metadata] {
            (metadata.namespace, metadata.uid, metadata.resource_version) = (Some((*namespace).to_owned()), None, None);
        }
        server.create(&job);
        server.create(&request);
    }
    LateMirrors::of(&server).mirrors.clone()
}

/// An API server that answers nothing but what is asked of the namespace `n`, and how often it was asked to store that.
fn silent_but_for_one() -> (Arc<AtomicUsize>, Client) {
    let stored = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&stored);
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let count = Arc::clone(&count);
        async move {
            if !request.uri().path().contains("/namespaces/n/") {
                return pending().await;
            }
            count.fetch_add(1, Ordering::Relaxed);
            let made = Body::from(request.into_body().collect_bytes().await.unwrap().to_vec());
            Ok::<_, tower::BoxError>(http::Response::builder().status(201).body(made).unwrap())
        }
    });
    (stored, with_retries(server))
}

/// A call for a width of the job of this namespace.
fn call_in(namespace: &str) -> Request<ResizeRequest> {
    Request::new(ResizeRequest { namespace: namespace.to_owned(), ..wanted("R0", 3) })
}

/// A call of this caller for a width, which it waits for so long.
fn call(caller: Option<&str>, width: u32, time: Option<&str>) -> Request<ResizeRequest> {
    let mut call = called_by(caller, wanted("R0", width));
    if let Some(time) = time {
        call.metadata_mut().insert("grpc-timeout", time.parse().unwrap());
    }
    call
}

/// Each would be a connection of its own to the API server, in front of what the controllers have to do there.
#[tokio::test(start_paused = true)]
async fn requests_are_stored_a_few_at_a_time_however_many_callers_ask_at_once() {
    let (storing, service) = over(0, 201);
    let mut crowd: FuturesUnordered<_> = (0..20).map(|_| service.resize(call(None, 3, None))).collect();
    go_on(crowd.next()).await;
    assert_eq!(storing.widths().len(), STORED_AT_ONCE_OF_ONE);
    // Who leaves makes room for those that wait, and not for those that are being stored.
    drop(crowd);
    let mut crowd: FuturesUnordered<_> = (0..10).map(|_| service.resize(call(None, 3, None))).collect();
    go_on(crowd.next()).await;
    assert_eq!(storing.widths().len(), STORED_AT_ONCE_OF_ONE);
    for answered in 1..=10 {
        storing.answers.add_permits(1);
        go_on(crowd.next()).await;
        assert_eq!(storing.widths().len(), STORED_AT_ONCE_OF_ONE + answered);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_known_is_not_behind_all_that_another_one_has_stored() {
    let (storing, service) = over(0, 201);
    let mut mine: FuturesUnordered<_> = (0..20).map(|_| service.resize(call(Some("me"), 3, None))).collect();
    go_on(mine.next()).await;
    let mut yours = Box::pin(service.resize(call(Some("you"), 4, None)));
    go_on(&mut yours).await;
    storing.answers.add_permits(2);
    go_on(join(mine.next(), &mut yours)).await;
    assert_eq!(storing.widths()[STORED_AT_ONCE_OF_ONE..].iter().filter(|width| **width == 4).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_hears_no_answer_of_the_api_server_hears_whether_anything_was_sent_and_what_to_look_for() {
    // others that are being stored, the code of an answer, whether this frontend stops
    // -> reason, whether the request may be there, a part of the message
    let table = [
        (0, None, false, "STILL_WAITING", true, "it may be stored"),
        (STORED_AT_ONCE_OF_ONE, None, false, "STILL_WAITING", false, "nothing was written"),
        (STORED_AT_ONCE_OF_ONE, None, true, "SHUTTING_DOWN", false, "nothing was written"),
        (0, Some(503), false, "NOT_TAKEN", true, "not known whether"),
        (0, Some(422), false, "INVALID_REQUEST", false, "no"),
    ];
    for (others, answer, stops, reason, is_there_perhaps, message) in table {
        let (storing, service) = over(usize::from(answer.is_some()), answer.unwrap_or(201));
        let mut others: FuturesUnordered<_> = (0..others).map(|_| service.resize(call(None, 3, None))).collect();
        if !others.is_empty() {
            go_on(others.next()).await;
        }
        let mut asks = Box::pin(service.resize(call(None, 4, Some("4S"))));
        if stops {
            go_on(&mut asks).await;
            service.stopping.cancel();
        }
        let status = asks.await.unwrap_err();
        assert_eq!((&*why(&status), status.message().contains(message)), (reason, true), "{status:?}");
        let sent = storing.asked.lock().iter().find(|request| request.spec.regions[0].width == 4).cloned();
        let details = status.get_error_details();
        let named = details.error_info().unwrap().metadata.get("request").cloned();
        assert_eq!(named, sent.filter(|_| is_there_perhaps).map(|sent| sent.name_any()), "{status:?}");
        assert_eq!(named.is_some(), is_there_perhaps, "{status:?}");
    }
}

/// An admission webhook of theirs may be silent, which is not known yet.
#[tokio::test(start_paused = true)]
async fn two_namespaces_whose_requests_are_not_answered_leave_turns_to_a_third() {
    let storing = Arc::new(Storing { asked: Mutex::default(), answers: Semaphore::new(0), code: 201 });
    let service = service_with(storing.client(), beside(&["a", "b"]));
    let calls = ["a", "b"].into_iter().flat_map(|namespace| (0..5).map(move |_| call_in(namespace)));
    let mut hang: FuturesUnordered<_> = calls.map(|call| service.resize(call)).collect();
    go_on(hang.next()).await;
    let mut other = Box::pin(service.resize(call(None, 4, None)));
    go_on(&mut other).await;
    assert_eq!(storing.widths().last(), Some(&4), "{:?}", storing.widths());
}

#[tokio::test(start_paused = true)]
async fn however_many_namespaces_are_in_trouble_others_have_their_turns_at_once() {
    let (stored, client) = silent_but_for_one();
    let service = service_with(client, beside(&OTHERS));
    let asks_for_ever = |namespace| {
        let service = &service;
        async move {
            loop {
                let _ = service.resize(call_in(namespace)).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    let callers = OTHERS.into_iter().flat_map(|namespace| iter::repeat_n(namespace, 5));
    let mut callers = pin!(join_all(callers.map(asks_for_ever)));
    // Until it is known of all of them.
    let begun = timeout(Duration::from_secs(60), &mut callers).await;
    assert!(begun.is_err());
    for number in 1..=20 {
        // It waits for what the controllers make of it.
        let call = timeout(Duration::from_millis(20), service.resize(call(None, 3, None)));
        let heard = timeout(Duration::from_secs(1), join(call, &mut callers)).await;
        assert!(heard.is_err());
        assert_eq!(stored.load(Ordering::Relaxed), number);
    }
}

/// Until it is known of them they may have all places.
#[tokio::test(start_paused = true)]
async fn namespaces_that_fall_silent_delay_others_by_a_try_and_by_one_more_for_each_eight_of_them() {
    // namespaces that are silent -> seconds in which another one has its turn, at least and at most
    for (silent, least, most) in [(2, 0.0, 0.5), (3, 4.5, 5.5), (8, 4.5, 10.5), (20, 4.5, 15.5)] {
        let (stored, client) = silent_but_for_one();
        let service = service_with(client, beside(&OTHERS[..silent]));
        let callers = OTHERS.into_iter().take(silent).flat_map(|namespace| iter::repeat_n(namespace, 5));
        let mut callers = pin!(join_all(callers.map(|namespace| service.resize(call_in(namespace)))));
        let begun = Instant::now();
        assert!(timeout(Duration::from_millis(100), &mut callers).await.is_err());
        let mut mine = pin!(join(service.resize(call(None, 3, None)), callers));
        while stored.load(Ordering::Relaxed) == 0 {
            // It waits for what the controllers make of it.
            assert!(timeout(Duration::from_millis(100), &mut mine).await.is_err());
        }
        let took = begun.elapsed().as_secs_f64();
        assert!((least..most).contains(&took), "{silent}: {took} s");
    }
}

/// Something may be there nevertheless. Refusals may come at once, and reads not, because of what is asked of all.
#[tokio::test(start_paused = true)]
async fn what_is_read_after_refusals_is_read_a_few_at_a_time_however_many_namespaces_ask() {
    // the code of refusals, whether requests are withdrawn -> reads that are under way
    for (code, withdraws, expected) in [(403_u16, false, STORED_AT_ONCE), (409, true, WITHDRAWN_AT_ONCE)] {
        let reads = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&reads);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let count = Arc::clone(&count);
            async move {
                if request.method() == http::Method::GET {
                    count.fetch_add(1, Ordering::Relaxed);
                    return pending().await;
                }
                let refused = json!({"kind": "Status", "status": "Failure", "message": "no", "code": code});
                let refused = Body::from(refused.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(refused).unwrap())
            }
        });
        let service = service_with(Client::new(server, "default"), beside(&OTHERS));
        let asks = |namespace: &'static str| {
            let service = &service;
            async move {
                if withdraws {
                    let (namespace, request) = (namespace.to_owned(), "flow-x".to_owned());
                    let name = Some(ResizeName { namespace, request, ..ResizeName::default() });
                    service.cancel(Request::new(CancelRequest { name })).await.map(drop)
                } else {
                    service.resize(call_in(namespace)).await.map(drop)
                }
            }
        };
        let callers = OTHERS.into_iter().flat_map(|namespace| iter::repeat_n(namespace, 4));
        go_on(join_all(callers.map(asks))).await;
        assert_eq!(reads.load(Ordering::Relaxed), expected, "{code}");
    }
}
