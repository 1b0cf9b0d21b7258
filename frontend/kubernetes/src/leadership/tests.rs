//! Who leads, how long, and what one leader says to the next, with API servers that are slow or refuse.

use super::*;
use crate::client::{CallOptions, stack};
use axum::body::Body;
use http::{Method, Request, Response};
use kube::client::{Body as Sent, ClientBuilder};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tower::service_fn;

fn options() -> LeaseOptions {
    LeaseOptions {
        namespace: "n".to_owned(),
        name: "l".to_owned(),
        identity: "me".to_owned(),
        duration: Duration::from_secs(15),
        renew_interval: Duration::from_secs(2),
        renew_deadline: Duration::from_secs(10),
    }
}

const CONFLICT: (u16, &str) =
    (409, r#"{"kind":"Status","status":"Failure","reason":"Conflict","message":"m","code":409}"#);
const NOT_FOUND: (u16, &str) =
    (404, r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"m","code":404}"#);

/// How long a Lease is held, and with how many calls, by a leader whose first writes, so many, are answered with
/// this; for half a minute at most. Reads are as well, if there is no Lease.
async fn held_with(answer: (u16, &'static str), writes: usize, is_gone: bool) -> (Duration, usize) {
    let calls = Arc::new(Mutex::new((0, writes)));
    let counted = Arc::clone(&calls);
    let server = service_fn(move |request: Request<Sent>| {
        let fails = {
            let (count, left) = &mut *counted.lock();
            *count += 1;
            let fails = request.method() == Method::PUT && *left > 0;
            *left -= usize::from(fails);
            fails || is_gone
        };
        async move {
            sleep(Duration::from_millis(1)).await;
            let there = (200, r#"{"metadata":{"name":"l","namespace":"n"},"spec":{"holderIdentity":"me"}}"#);
            let (code, text) = if fails { answer } else { there };
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(text)).unwrap())
        }
    });
    let (renewed_at, stop) = (Instant::now(), CancellationToken::new());
    let api = Api::namespaced(Client::new(server, "n"), "n");
    let (lease, term, metrics) = (Lease::default(), Term::default(), Metrics::new("test"));
    let leader = Leader { api, options: options(), lease, term, renewed_at, metrics };
    let _ = tokio::time::timeout(Duration::from_secs(30), leader.hold(&stop)).await;
    let count = calls.lock().0;
    (renewed_at.elapsed(), count)
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_read_again_at_once_and_more_of_them_after_a_pause() {
    // writes that conflict -> seconds until the Lease is lost or the test ends, calls
    let table = [(0, 30, 14), (1, 30, 16), (2, 30, 18), (usize::MAX, 10, 33)];
    for (conflicts, seconds, calls) in table {
        let (held, count) = held_with(CONFLICT, conflicts, false).await;
        assert_eq!(held.as_secs(), seconds, "{conflicts}");
        assert!((calls - 1..=calls + 1).contains(&count), "{conflicts}: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_is_lost_at_once_and_one_that_is_there_after_all_is_not() {
    // whether it is gone -> seconds until the Lease is lost or the test ends
    for (is_gone, seconds) in [(true, 2), (false, 30)] {
        let (held, _) = held_with(NOT_FOUND, 1, is_gone).await;
        assert_eq!(held.as_secs(), seconds, "{is_gone}");
    }
}

/// A Lease, which somebody holds who is not there any more.
fn held_by_other() -> Lease {
    let spec = LeaseSpec { holder_identity: Some("other".to_owned()), ..LeaseSpec::default() };
    let metadata = ObjectMeta { name: Some("l".to_owned()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

/// An API server with this Lease. It answers after so many milliseconds: the first write, and everything else. The
/// answer to the first write may be lost.
fn slow_server(lease: Lease, first_write: u64, others: u64, is_lost: bool) -> Client {
    let stored = Arc::new(Mutex::new(lease));
    let was_written = Arc::new(AtomicBool::new(false));
    let server = service_fn(move |request: Request<Sent>| {
        let stored = Arc::clone(&stored);
        let is_write = request.method() == Method::PUT;
        let is_first = is_write && !was_written.swap(true, Ordering::SeqCst);
        let milliseconds = if is_first { first_write } else { others };
        async move {
            let sent = request.into_body().collect_bytes().await.unwrap();
            sleep(Duration::from_millis(milliseconds)).await;
            let mut stored = stored.lock();
            if is_write {
                *stored = serde_json::from_slice(&sent).unwrap();
            }
            if is_first && is_lost {
                return Err(tower::BoxError::from("the connection has ended"));
            }
            Ok(Response::new(Body::from(serde_json::to_vec(&*stored).unwrap())))
        }
    });
    Client::new(server, "n")
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_lets_a_candidate_lead_as_long_as_it_lets_a_leader_go_on() {
    // milliseconds that the answer to the first write takes, and all others -> the Lease is held for a minute
    let table = [
        (1, 1, true),
        (2_000, 2_000, true),
        (3_000, 3_000, true),
        (4_900, 4_900, true),
        // It is renewed first: there was little time left for that.
        (9_500, 1_000, true),
        (1, 10_100, false),
    ];
    for (first_write, others, expected) in table {
        let (term, stop, metrics) = (Term::default(), CancellationToken::new(), Metrics::new("test"));
        let server = slow_server(held_by_other(), first_write, others, false);
        let leader = acquire(server, options(), term.clone(), &metrics, &stop).await.unwrap();
        let held = tokio::time::timeout(Duration::from_secs(60), leader.hold(&stop)).await;
        assert_eq!((held.is_err(), term.lasts()), (expected, expected), "{first_write} {others}: {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_the_lease_in_several_tries_is_one_leader_and_waits_for_the_words_of_the_one_before() {
    // milliseconds that the answer to the first write takes, whether it is lost
    for (first_write, is_lost) in [(1, false), (4_900, false), (9_500, false), (1, true)] {
        let (term, stop, metrics) = (Term::default(), CancellationToken::new(), Metrics::new("test"));
        let mut released = held_by_other();
        let spec = released.spec.as_mut().unwrap();
        (spec.holder_identity, spec.lease_transitions) = (None, Some(4));
        last_words::write(&mut released, 4, None);
        let server = slow_server(released, first_write, 1_000, is_lost);
        let leader = acquire(server, options(), term.clone(), &metrics, &stop).await.unwrap();
        assert_eq!(last_words::term(&leader.lease), 5, "{first_write} {is_lost}");
        assert!(matches!(term.last_words(), LastWords::Awaited { .. }), "{first_write} {is_lost}");
    }
}

/// An API server with one Lease, if anybody has made it, of which only the newest version is replaced.
fn server() -> Client {
    let stored = Arc::new(Mutex::new(None::<Lease>));
    let server = service_fn(move |request: Request<Sent>| {
        let stored = Arc::clone(&stored);
        async move {
            let is_read = request.method() == Method::GET;
            let sent = request.into_body().collect_bytes().await.unwrap();
            let mut stored = stored.lock();
            let version = |lease: &Lease| lease.metadata.resource_version.clone().unwrap_or_default();
            let now = stored.as_ref().map(version);
            let (code, text) = if is_read {
                stored.as_ref().map_or((404, NOT_FOUND.1.to_owned()), |it| (200, serde_json::to_string(it).unwrap()))
            } else {
                let mut lease: Lease = serde_json::from_slice(&sent).unwrap();
                if now.as_ref().is_some_and(|now| *now != version(&lease)) {
                    (409, CONFLICT.1.to_owned())
                } else {
                    let next = now.map_or(1, |now| now.parse::<u64>().unwrap() + 1);
                    lease.metadata.resource_version = Some(next.to_string());
                    let text = serde_json::to_string(&lease).unwrap();
                    *stored = Some(lease);
                    (200, text)
                }
            };
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(text)).unwrap())
        }
    });
    Client::new(server, "n")
}

/// A leader that begins, and its term.
async fn leader(client: &Client, identity: &str) -> (Leader, Term) {
    let (term, options) = (Term::default(), LeaseOptions { identity: identity.to_owned(), ..options() });
    let (stop, metrics) = (CancellationToken::new(), Metrics::new("test"));
    (acquire(client.clone(), options, term.clone(), &metrics, &stop).await.unwrap(), term)
}

/// Ends in order.
async fn end(leader: Leader) -> Released {
    let stop = CancellationToken::new();
    stop.cancel();
    leader.hold(&stop).await.unwrap().unwrap()
}

/// What comes of a call.
#[derive(Clone, Copy)]
enum Fate {
    Answered,
    /// It does not reach the API server.
    Reset,
    /// It has its effect, and the connection ends after so many milliseconds.
    AnswerLost(u64),
    Silent,
}

/// What comes of a call that is made after so many milliseconds, and that is a write or not.
type Fates = fn(u128, bool) -> Fate;

fn no_answer_to_a_write(_: u128, is_write: bool) -> Fate {
    if is_write { Fate::AnswerLost(0) } else { Fate::Answered }
}

/// This API server, with calls that are tried again unless they are told not to be, and end like this from now on.
fn unsteady(client: &Client, fates: Fates) -> Client {
    let (passed_on, start) = (client.clone(), Instant::now());
    let server = service_fn(move |request: Request<Sent>| {
        let client = passed_on.clone();
        let fate = fates(start.elapsed().as_millis(), request.method() != Method::GET);
        async move {
            match fate {
                Fate::Answered => Ok::<_, tower::BoxError>(client.send(request).await.unwrap()),
                Fate::Reset => Err("the connection has ended".into()),
                Fate::AnswerLost(milliseconds) => {
                    client.send(request).await.unwrap();
                    sleep(Duration::from_millis(milliseconds)).await;
                    Err("the connection has ended".into())
                }
                Fate::Silent => std::future::pending().await,
            }
        }
    });
    stack(ClientBuilder::new(server, "n"), CallOptions::default(), &Metrics::new("test"))
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_when_the_try_was_sent_that_is_stored() {
    // what comes of calls -> seconds until the Lease is lost, or the test ends; it is renewed 2 s after it was taken
    let table: [(&str, Fates, u64); 6] = [
        ("no answer to a write arrives", no_answer_to_a_write, 60),
        (
            "none, and that takes long",
            |_, is_write| if is_write { Fate::AnswerLost(3_000) } else { Fate::Answered },
            60,
        ),
        (
            "that of the first does not, the second is stored and nobody hears of it",
            |at, is_write| match (at, is_write) {
                (5_900.., _) => Fate::Silent,
                (_, true) => Fate::AnswerLost(3_000),
                (_, false) => Fate::Answered,
            },
            12,
        ),
        (
            "the seventh try succeeds, and nothing after it",
            |at, _| match at {
                0..4_900 => Fate::Reset,
                4_900..6_000 => Fate::Answered,
                _ => Fate::Silent,
            },
            15,
        ),
        ("nothing arrives for 3 s of 6", |at, _| if at % 6_000 < 3_000 { Fate::Reset } else { Fate::Answered }, 60),
        ("nothing arrives", |_, _| Fate::Reset, 10),
    ];
    for (what, fates, seconds) in table {
        let client = server();
        let (mut leader, term) = leader(&client, "a").await;
        leader.api = Api::namespaced(unsteady(&client, fates), "n");
        let (start, stop) = (Instant::now(), CancellationToken::new());
        let held = tokio::time::timeout(Duration::from_secs(60), leader.hold(&stop)).await;
        assert_eq!(start.elapsed().as_secs(), seconds, "{what}");
        assert_eq!((held.is_err(), term.lasts()), (seconds == 60, seconds == 60), "{what}: {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_stored_is_not_one_once_somebody_else_has_the_lease() {
    let client = server();
    let (mut first, term) = leader(&client, "a").await;
    let passed_on = client.clone();
    // Somebody else takes the Lease after the write, whose answer is lost.
    let taken_after = service_fn(move |request: Request<Sent>| {
        let client = passed_on.clone();
        async move {
            let is_write = request.method() == Method::PUT;
            let answer = client.send(request).await.unwrap();
            if !is_write {
                return Ok(answer);
            }
            let api = Api::<Lease>::namespaced(client, "n");
            let mut lease = api.get("l").await.unwrap();
            lease.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
            api.replace("l", &PostParams::default(), &lease).await.unwrap();
            Err(tower::BoxError::from("the connection has ended"))
        }
    });
    first.api = Api::namespaced(Client::new(taken_after, "n"), "n");
    let lost = first.hold(&CancellationToken::new()).await.unwrap_err();
    assert_eq!((lost, term.lasts()), (Lost::To("b".to_owned()), false));
}

/// The leader that has ended says something, and the next one hears it within its `term`: what, and by how much at most
/// it takes the words for older than they are.
async fn assert_last_words(released: Released, term: &Term, older_by: Duration) {
    sleep(LINGER).await;
    let said_at = Instant::now();
    released.say(|| Some("n/a".to_owned())).await.unwrap();
    sleep(options().renew_interval * 2).await;
    let LastWords::Said { words, not_before } = term.last_words() else { panic!("{:?}", term.last_words()) };
    assert_eq!(&*words, "n/a");
    assert!(not_before <= said_at && said_at - not_before <= older_by, "{not_before:?} {said_at:?}");
}

#[tokio::test(start_paused = true)]
async fn last_words_are_heard_although_no_answer_to_a_renewal_arrives() {
    let client = server();
    let released = end(leader(&client, "a").await.0).await;
    let (mut second, term) = leader(&client, "b").await;
    second.api = Api::namespaced(unsteady(&client, no_answer_to_a_write), "n");
    let holding = tokio::spawn(async move { second.hold(&CancellationToken::new()).await });
    assert_last_words(released, &term, options().renew_interval * 2).await;
    assert!(!holding.is_finished());
    holding.abort();
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_hears_what_the_one_before_says_and_that_it_was_not_said_earlier() {
    let client = server();
    let (first, term) = leader(&client, "a").await;
    assert_eq!(term.last_words(), LastWords::None, "there was none before");
    let released = end(first).await;
    let (second, term) = leader(&client, "b").await;
    assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
    let holding = tokio::spawn(async move { second.hold(&CancellationToken::new()).await });
    assert_last_words(released, &term, options().renew_interval).await;
    assert!(!holding.is_finished(), "a Lease that both write is not lost");
    holding.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever_for_the_words_of_a_leader_that_has_ended() {
    let client = server();
    drop(end(leader(&client, "a").await.0).await);
    let (second, term) = leader(&client, "b").await;
    sleep(LINGER).await;
    assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
    sleep(LINGER).await;
    assert_eq!(term.last_words(), LastWords::None);
    // This one is killed.
    drop(second);
    let (_, term) = leader(&client, "c").await;
    assert_eq!(term.last_words(), LastWords::None);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_is_found_out_after_the_look_at_the_version_that_it_replaces() {
    let client = server();
    let released = end(leader(&client, "a").await.0).await;
    let (second, term) = leader(&client, "b").await;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (counted, passed_on) = (Arc::clone(&calls), client.clone());
    // The next leader has always renewed the Lease just before the first write.
    let between = service_fn(move |request: Request<Sent>| {
        let is_first = {
            let mut calls = counted.lock();
            calls.push(request.method().to_string());
            calls.iter().filter(|call| *call == "PUT").count() == 1
        };
        let client = passed_on.clone();
        async move {
            if request.method() == Method::PUT && is_first {
                let api = Api::<Lease>::namespaced(client.clone(), "n");
                let renewed = api.get("l").await.unwrap();
                api.replace("l", &PostParams::default(), &renewed).await.unwrap();
            }
            Ok::<_, tower::BoxError>(client.send(request).await.unwrap())
        }
    });
    let released = Released { api: Api::namespaced(Client::new(between, "n"), "n"), ..released };
    let found = || {
        let mut calls = calls.lock();
        calls.push("words".to_owned());
        Some(format!("after {}", calls.len()))
    };
    released.say(found).await.unwrap();
    assert_eq!(*calls.lock(), ["GET", "words", "PUT", "GET", "words", "PUT"]);
    let holding = tokio::spawn(async move { second.hold(&CancellationToken::new()).await });
    sleep(options().renew_interval * 2).await;
    assert!(matches!(term.last_words(), LastWords::Said { words, .. } if &*words == "after 5"));
    holding.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_words_that_are_taken_back() {
    let client = server();
    let released = end(leader(&client, "a").await.0).await;
    let (second, term) = leader(&client, "b").await;
    let holding = tokio::spawn(async move { second.hold(&CancellationToken::new()).await });
    sleep(options().renew_interval * 2).await;
    assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
    released.say(|| None).await.unwrap();
    sleep(options().renew_interval * 2).await;
    assert_eq!(term.last_words(), LastWords::None);
    assert!(!holding.is_finished());
    holding.abort();
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_hear_is_not_said() {
    let client = server();
    let released = end(leader(&client, "a").await.0).await;
    drop(end(leader(&client, "b").await.0).await);
    let (_, term) = leader(&client, "c").await;
    let api = Api::<Lease>::namespaced(client.clone(), "n");
    let before = api.get("l").await.unwrap();
    released.say(|| Some("n/a".to_owned())).await.unwrap();
    assert_eq!(api.get("l").await.unwrap(), before);
    assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_call_is_done_once_the_term_has_ended() {
    // seconds that the term lasts, if it ends; seconds after which a call goes on -> it does
    let table = [(None, 20, true), (Some(10), 9, true), (Some(10), 11, false), (Some(0), 0, false)];
    for (lasts, goes_on_after, expected) in table {
        let term = Term::endless();
        if let Some(seconds) = lasts {
            term.renewed(Instant::now() + Duration::from_secs(seconds));
        }
        let mut goes_on = false;
        let call = async {
            sleep(Duration::from_secs(goes_on_after)).await;
            goes_on = true;
        };
        let made = term.bound(call).await.is_some();
        assert_eq!((made, goes_on), (expected, expected), "{lasts:?} {goes_on_after}");
    }
    assert_eq!(Term::default().bound(async {}).await, None);
}

#[test]
fn timings_must_fit_together() {
    // duration, renewal interval, renewal deadline, call deadline in ms -> part of the error
    let table = [
        (15_000, 2_000, 10_000, 10_000, None),
        (3_000, 500, 2_000, 2_000, None),
        (15_000, 2_000, 15_000, 10_000, Some("given up before it ends")),
        (15_000, 10_000, 10_000, 1_000, Some("given up before it ends")),
        (15_000, 2_000, 10_000, 13_000, Some("deposed leader")),
        (15_000, 0, 10_000, 1_000, Some("greater than zero")),
        (500, 100, 200, 100, Some("at least a second")),
    ];
    for (duration, renew_interval, renew_deadline, call, expected) in table {
        let options = LeaseOptions {
            namespace: "n".to_owned(),
            name: "l".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_millis(duration),
            renew_interval: Duration::from_millis(renew_interval),
            renew_deadline: Duration::from_millis(renew_deadline),
        };
        let error = options.check(Duration::from_millis(call)).err();
        assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
        if let (Some(error), Some(part)) = (error, expected) {
            assert!(error.contains(part), "{error}");
        }
    }
}
