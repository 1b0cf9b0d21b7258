//! Callers over a fake reviewer, whose clock the tests turn.

mod certificates;
mod methods;

use super::guarded::{Guarded, of_all};
use super::layer::Authenticated;
use super::reviewer::{Reviewer, Right, Unreviewed};
use super::token::Token;
use super::{Access, KNOWN, LONGEST, REST, Reviews, STRANGERS};
use crate::grpc::arrival::Arrival;
use crate::grpc::subject::Subject;
use axum::body::{Body as AnyBody, to_bytes};
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::ParallelRegion;
use tokio::sync::watch;
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

const DOMAIN: &str = "test";

/// Tokens are names of users; those that begin with `bad` are nobody's.
#[derive(Debug)]
struct Fake {
    audiences: Vec<String>,
    /// `USER VERB RESOURCE NAMESPACE NAME`, without the name for all.
    rights: BTreeSet<String>,
    /// What was asked, in its order.
    asked: Mutex<Vec<String>>,
    how: watch::Sender<How>,
    /// Of the frontend.
    stopping: CancellationToken,
}

/// How reviews are answered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    AtOnce,
    NotAtAll,
    After(Duration),
    With(&'static str),
}

impl Fake {
    fn new(rights: &[&str]) -> Arc<Self> {
        let rights = rights.iter().map(|right| (*right).to_owned()).collect();
        let how = watch::Sender::new(How::AtOnce);
        let (audiences, stopping) = (vec!["us".to_owned()], CancellationToken::new());
        Arc::new(Self { audiences, rights, asked: Mutex::default(), how, stopping })
    }

    fn access(self: &Arc<Self>) -> Access {
        Access::reviewed(Arc::clone(self) as Arc<dyn Reviewer>, self.stopping.clone())
    }

    fn reviews(self: &Arc<Self>) -> Arc<Reviews> {
        match self.access() {
            Access::Reviewed(reviews) => reviews,
            Access::Open => unreachable!(),
        }
    }

    /// What was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }

    async fn answer<T: Send>(self: Arc<Self>, what: String, found: Option<T>) -> Result<Option<T>, Unreviewed> {
        self.asked.lock().push(what);
        let mut how = self.how.subscribe();
        let how = *how.wait_for(|how| *how != How::NotAtAll).await.unwrap();
        match how {
            How::With(problem) => return Err(Unreviewed(problem.to_owned())),
            How::After(time) => sleep(time).await,
            How::AtOnce | How::NotAtAll => {}
        }
        Ok(found)
    }
}

impl Reviewer for Fake {
    fn audiences(&self) -> &[String] {
        &self.audiences
    }

    fn whose(self: Arc<Self>, token: Token) -> BoxFuture<'static, Result<Option<Arc<Subject>>, Unreviewed>> {
        let user = (!token.text().starts_with("bad")).then(|| Arc::new(Subject::called(token.text())));
        self.answer(token.text().to_owned(), user).boxed()
    }

    fn may(self: Arc<Self>, subject: Arc<Subject>, right: Right) -> BoxFuture<'static, Result<Option<()>, Unreviewed>> {
        let what = format!("{} {} {} {} {}", subject.name.0, right.verb, right.of(), right.namespace, right.name);
        let what = what.trim_end().to_owned();
        let may = self.rights.contains(&what).then_some(());
        self.answer(what, may).boxed()
    }
}

fn of_caller(token: &str, address: u8) -> (HeaderMap, Extensions) {
    of_connection(token, address, 0)
}

fn of_connection(token: &str, address: u8, connection: u64) -> (HeaderMap, Extensions) {
    let (mut headers, mut extensions) = (HeaderMap::new(), Extensions::new());
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    extensions.insert(Arrival { at: Instant::now(), from: IpAddr::from([10, 0, 0, address]), connection });
    (headers, extensions)
}

/// The name of whoever calls from this address with this token, or the reason of the error.
async fn call(reviews: &Reviews, token: &str, address: u8) -> String {
    call_over(reviews, token, address, 0).await
}

/// The same over this connection.
async fn call_over(reviews: &Reviews, token: &str, address: u8, connection: u64) -> String {
    let (headers, extensions) = of_connection(token, address, connection);
    match reviews.subject(&headers, &extensions, DOMAIN).await {
        Ok(subject) => subject.name.0.to_string(),
        Err(status) => reason(&status),
    }
}

fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    // Whoever can come again hears when.
    let again = matches!(status.code(), Code::ResourceExhausted | Code::Unavailable);
    assert_eq!(details.retry_info().is_some(), again, "{status:?}");
    info.reason.clone()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_token_is_asked_about_once_for_as_long_as_the_answer_counts() {
    let fake = Fake::new(&[]);
    let reviews = fake.reviews();
    // after seconds, token -> who that is, whether it is asked about
    let table = [
        (0, "me", "me", true),
        (1, "me", "me", false),
        (0, "bad", "INVALID_TOKEN", true),
        (4, "bad", "INVALID_TOKEN", false),
        (2, "bad", "INVALID_TOKEN", true),
        (52, "me", "me", false),
        (2, "me", "me", true),
        (0, "you", "you", true),
    ];
    for (after, token, expected, is_asked) in table {
        advance(seconds(after)).await;
        assert_eq!(call(&reviews, token, 1).await, expected, "{token} after {after} s");
        assert_eq!(fake.asked().len(), usize::from(is_asked), "{token} after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn many_calls_with_one_token_ask_once_and_go_on_when_the_first_one_leaves() {
    let fake = Fake::new(&[]);
    let reviews = fake.reviews();
    fake.how.send_replace(How::NotAtAll);
    let mut first = Box::pin(call(&reviews, "me", 1));
    assert!(first.as_mut().now_or_never().is_none());
    let others: Vec<_> = (0..1_000).map(|number| call(&reviews, "me", number as u8)).collect();
    let mut others = Box::pin(join_all(others));
    assert!(timeout(seconds(1), others.as_mut()).await.is_err());
    drop(first);
    fake.how.send_replace(How::AtOnce);
    assert!(others.await.iter().all(|name| name == "me"));
    assert_eq!(fake.asked(), ["me"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_answered_is_not_kept() {
    let fake = Fake::new(&[]);
    let reviews = fake.reviews();
    fake.how.send_replace(How::With("no leader"));
    let (headers, extensions) = of_caller("me", 1);
    let status = reviews.subject(&headers, &extensions, DOMAIN).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "NOT_REVIEWED"));
    assert!(status.message().contains("no leader"), "{}", status.message());
    fake.how.send_replace(How::AtOnce);
    assert_eq!(call(&reviews, "me", 1).await, "me");
}

#[tokio::test(start_paused = true)]
async fn a_call_hears_what_is_missing_when_its_time_is_over() {
    // the time of the caller -> seconds after which it is answered, with what
    let table = [(Some("4S"), 3, "STILL_WAITING"), (None, 10, "NOT_REVIEWED"), (Some("1H"), 10, "NOT_REVIEWED")];
    for (time, expected, why) in table {
        let fake = Fake::new(&[]);
        fake.how.send_replace(How::NotAtAll);
        let (mut headers, extensions) = of_caller("me", 1);
        if let Some(time) = time {
            headers.insert("grpc-timeout", time.parse().unwrap());
        }
        let begun = Instant::now();
        let status = fake.reviews().subject(&headers, &extensions, DOMAIN).await.unwrap_err();
        assert_eq!((reason(&status).as_str(), begun.elapsed().as_secs()), (why, expected), "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_makes_up_tokens_holds_up_nobody_else_and_the_api_server_hears_of_few() {
    let fake = Fake::new(&[]);
    let reviews = fake.reviews();
    for user in ["known", "newer"] {
        assert_eq!(call(&reviews, user, 9).await, user);
    }
    // What was known counts no more, so that it is to be asked about again.
    advance(seconds(61)).await;
    fake.asked();
    let tokens: Vec<String> = (0..1_000).map(|number| format!("bad{number}")).collect();
    let mut flood: FuturesUnordered<_> = tokens.iter().map(|token| call(&reviews, token, 1)).collect();
    let mut refused = 0;
    while let Some(Some(answer)) = flood.next().now_or_never() {
        assert_eq!(answer, "TOO_MANY_REVIEWS");
        refused += 1;
    }
    assert_eq!(refused, tokens.len() - STRANGERS.waiting_of_part, "what may wait of a connection");
    let begun = Instant::now();
    // Others, meanwhile: the same address with a good token that was known, another one with a new token.
    assert_eq!(call(&reviews, "known", 1).await, "known");
    assert_eq!(call(&reviews, "stranger", 2).await, "stranger");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let others = fake.asked().iter().filter(|token| !token.starts_with("bad")).count();
    assert_eq!(others, 2);
    while let Some(answer) = flood.next().await {
        assert_eq!(answer, "INVALID_TOKEN");
    }
    let rests = u32::try_from(STRANGERS.waiting_of_part / STRANGERS.at_once_of_one - 1).unwrap();
    assert!(begun.elapsed() >= rests * REST, "each turn rests: {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn whoever_makes_up_tokens_leaves_turns_and_places_to_other_connections_of_its_address() {
    // connections over which tokens are made up -> how long a new good one over another waits at most
    for (connections, longest) in [(1, REST), (127, Duration::from_secs(7))] {
        let fake = Fake::new(&[]);
        let reviews = fake.reviews();
        let all = (1..=connections).flat_map(|connection| (0..100).map(move |number| (connection, number)));
        let tokens: Vec<_> =
            all.map(|(connection, number)| (connection, format!("bad{connection}-{number}"))).collect();
        let flood = tokens.iter().map(|(connection, token)| call_over(&reviews, token, 1, *connection));
        let mut flood: FuturesUnordered<_> = flood.collect();
        while let Some(Some(answer)) = flood.next().now_or_never() {
            assert_eq!(answer, "TOO_MANY_REVIEWS");
        }
        let begun = Instant::now();
        let mut neighbour = Box::pin(call_over(&reviews, "neighbour", 1, 0));
        let heard = loop {
            tokio::select! {
                heard = neighbour.as_mut() => break heard,
                Some(_) = flood.next() => {}
            }
        };
        assert_eq!(heard, "neighbour", "{connections}");
        assert!(begun.elapsed() <= longest, "{connections}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn few_tokens_are_asked_about_at_the_same_time_wherever_they_come_from_and_whoever_leaves() {
    let fake = Fake::new(&[]);
    let reviews = fake.reviews();
    fake.how.send_replace(How::NotAtAll);
    for round in 0..3 {
        let tokens: Vec<String> = (0..40).map(|number| format!("bad-{round}-{number}")).collect();
        let calls = tokens.iter().enumerate().map(|(number, token)| call(&reviews, token, number as u8));
        // They leave without an answer; what was asked is still being answered.
        assert!(timeout(seconds(1), join_all(calls)).await.is_err());
    }
    assert_eq!(fake.asked().len(), STRANGERS.at_once);
}

/// What somebody hears who asks to do this to all regions of a namespace.
async fn admitted(guarded: &Guarded<()>, user: &str, verb: &'static str, namespace: &str) -> String {
    let mut call = Request::new(());
    call.extensions_mut().insert(Arc::new(Subject::called(user)));
    let right = Right::to::<ParallelRegion>(verb, "", namespace);
    guarded.admit(&call, right, of_all).await.map_or_else(|status| reason(&status), |_: &()| "OK".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_right_is_asked_about_once_for_as_long_as_the_answer_counts() {
    let fake = Fake::new(&["me get streamsprs n", "you list streamsprs n"]);
    let guarded = Guarded::new((), fake.access(), DOMAIN);
    // after seconds, who, verb, namespace -> what is heard, whether the API server is asked
    let table = [
        (0, "me", "get", "n", "OK", true),
        (1, "me", "get", "n", "OK", false),
        (0, "me", "get", "m", "ACCESS_DENIED", true),
        (0, "me", "list", "n", "ACCESS_DENIED", true),
        (4, "me", "list", "n", "ACCESS_DENIED", false),
        (2, "me", "list", "n", "ACCESS_DENIED", true),
        (0, "you", "list", "n", "OK", true),
        (0, "you", "get", "n", "ACCESS_DENIED", true),
        (22, "me", "get", "n", "OK", false),
        (2, "me", "get", "n", "OK", true),
        (0, "me", "get", "", "INVALID_REQUEST", false),
    ];
    for (after, user, verb, namespace, expected, is_asked) in table {
        advance(seconds(after)).await;
        assert_eq!(admitted(&guarded, user, verb, namespace).await, expected, "{user} {verb} {namespace}");
        assert_eq!(fake.asked().len(), usize::from(is_asked), "{user} {verb} {namespace} after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_much_leaves_turns_and_places_to_others() {
    let fake = Fake::new(&["you get streamsprs n"]);
    let guarded = Guarded::new((), fake.access(), DOMAIN);
    fake.how.send_replace(How::NotAtAll);
    let namespaces: Vec<String> = (0..2 * KNOWN.waiting).map(|number| format!("n{number}")).collect();
    let flood = namespaces.iter().map(|namespace| admitted(&guarded, "me", "get", namespace));
    let mut flood: FuturesUnordered<_> = flood.collect();
    let mut refused = 0;
    while let Some(Some(heard)) = flood.next().now_or_never() {
        assert_eq!(heard, "TOO_MANY_REVIEWS");
        refused += 1;
    }
    assert_eq!(refused, namespaces.len() - KNOWN.waiting / 4, "a quarter of what may wait");
    let mut other = Box::pin(admitted(&guarded, "you", "get", "n"));
    assert!(timeout(seconds(1), other.as_mut()).await.is_err());
    let asked = fake.asked();
    assert_eq!(asked.iter().filter(|what| what.starts_with("me ")).count(), KNOWN.at_once_of_one);
    assert_eq!(asked.iter().filter(|what| what.starts_with("you ")).count(), 1);
    fake.how.send_replace(How::AtOnce);
    assert_eq!(other.await, "OK");
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_what_it_may_not_keeps_the_api_server_busy_with_little_of_it() {
    let fake = Fake::new(&["you get streamsprs n", "you get streamsprs m"]);
    let guarded = Guarded::new((), fake.access(), DOMAIN);
    let namespaces: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let flood = namespaces.iter().map(|namespace| admitted(&guarded, "me", "get", namespace));
    let (begun, mut flood) = (Instant::now(), Box::pin(join_all(flood)));
    assert!(timeout(Duration::from_millis(10), flood.as_mut()).await.is_err());
    assert_eq!(fake.asked().len(), KNOWN.at_once_of_one);
    // Others do not rest, nor does whoever may.
    assert_eq!(admitted(&guarded, "you", "get", "n").await, "OK");
    assert_eq!(admitted(&guarded, "you", "get", "m").await, "OK");
    assert!(begun.elapsed() < REST, "{:?}", begun.elapsed());
    assert_eq!(flood.await, ["ACCESS_DENIED"; 100]);
    let rests = u32::try_from(namespaces.len() / KNOWN.at_once_of_one - 1).unwrap();
    assert!(begun.elapsed() >= rests * REST, "{:?}", begun.elapsed());
}

/// The names of many objects; `me` has the right for each, and for all it has not.
fn rights_for_each(count: usize) -> (Vec<String>, Arc<Fake>) {
    let names: Vec<String> = (0..count).map(|number| format!("flow-{number}")).collect();
    let rights: Vec<String> = names.iter().map(|name| format!("me get streamsprs n {name}")).collect();
    (names, Fake::new(&rights.iter().map(String::as_str).collect::<Vec<_>>()))
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_all_of_its_rights_together() {
    // the time of the caller, how long each answer takes, whether the frontend stops -> seconds, what is heard
    let table = [
        (None, Duration::from_millis(10), false, 2, "OK"),
        (None, Duration::from_secs(3), false, 10, "NOT_REVIEWED"),
        (Some("4S"), Duration::from_secs(3), false, 3, "STILL_WAITING"),
        (None, Duration::from_secs(3), true, 5, "SHUTTING_DOWN"),
    ];
    for (time, answer, stops, expected, reason) in table {
        let (names, fake) = rights_for_each(200);
        fake.how.send_replace(How::After(answer));
        let guarded = Guarded::new((), fake.access(), DOMAIN);
        let mut call = Request::new(());
        call.extensions_mut().insert(Arc::new(Subject::called("me")));
        if let Some(time) = time {
            call.metadata_mut().insert("grpc-timeout", time.parse().unwrap());
        }
        let begun = Instant::now();
        let right = Right::to::<ParallelRegion>("get", "", "n");
        let mut admitted = Box::pin(guarded.admit(&call, right, |()| async { Ok(names) }));
        if stops {
            assert!(timeout(seconds(5), admitted.as_mut()).await.is_err());
            fake.stopping.cancel();
        }
        let heard = admitted.await.map_or_else(|status| self::reason(&status), |()| "OK".to_owned());
        assert_eq!((heard.as_str(), begun.elapsed().as_secs()), (reason, expected), "{time:?} {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_call_is_about_is_waited_for_as_long_as_is_left() {
    let fake = Fake::new(&[]);
    fake.how.send_replace(How::After(seconds(6)));
    let guarded = Guarded::new((), fake.access(), DOMAIN);
    let mut call = Request::new(());
    call.extensions_mut().insert(Arc::new(Subject::called("me")));
    let (begun, right) = (Instant::now(), Right::to::<ParallelRegion>("get", "", "n"));
    let status = guarded.admit(&call, right, |()| std::future::pending()).await.unwrap_err();
    assert_eq!((reason(&status).as_str(), begun.elapsed()), ("NOT_REVIEWED", LONGEST));
}

/// A call whose message comes in so many parts of 64 KiB, how many of them were taken, and why there are no more if
/// that is no end.
fn in_parts(parts: usize, broken: Option<Status>) -> (http::Request<Body>, Arc<AtomicUsize>) {
    let taken = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&taken);
    let part = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(Bytes::from(vec![7; PART]))
    };
    let parts = tokio_stream::iter((0..parts).map(part).chain(broken.map(Err)));
    let (headers, _) = of_caller("me", 1);
    let mut request = http::Request::new(Body::new(AnyBody::from_stream(parts)));
    *request.headers_mut() = headers;
    (request, taken)
}

const PART: usize = 64 << 10;

#[tokio::test(start_paused = true)]
async fn what_arrives_of_a_call_is_taken_while_it_is_not_known_whose_it_is() {
    let size = |request: http::Request<Body>| async {
        let bytes = to_bytes(AnyBody::new(request.into_body()), usize::MAX).await.unwrap();
        Ok::<_, Infallible>(bytes.len().to_string())
    };
    // parts -> those that are taken before it is known; of what is too long no more than shows that
    for (parts, before) in [(0, 0), (3, 3), (16, 16), (40, 17)] {
        let fake = Fake::new(&[]);
        fake.how.send_replace(How::NotAtAll);
        let (request, taken) = in_parts(parts, None);
        let mut call = Box::pin(Authenticated::new(tower::service_fn(size), fake.access(), DOMAIN).oneshot(request));
        assert!(timeout(seconds(1), call.as_mut()).await.is_err());
        assert_eq!(taken.load(Ordering::SeqCst), before, "{parts}");
        fake.how.send_replace(How::AtOnce);
        let answer = call.await.unwrap();
        if before < parts {
            assert_eq!(Status::from_header_map(answer.headers()).unwrap().code(), Code::OutOfRange, "{parts}");
            continue;
        }
        let answer = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        assert_eq!(answer, (parts * PART).to_string(), "the service gets all of it");
    }
    // There is no room for it, for example.
    let fake = Fake::new(&[]);
    fake.how.send_replace(How::NotAtAll);
    let (request, _) = in_parts(3, Some(Status::resource_exhausted("full")));
    let call = Authenticated::new(tower::service_fn(size), fake.access(), DOMAIN).oneshot(request);
    let status = Status::from_header_map(call.await.unwrap().headers()).unwrap();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "full"));
}

/// What is decoded of it would not be counted before the rest is there, and may take many times as much.
#[tokio::test(start_paused = true)]
async fn a_service_hears_of_a_call_when_all_of_it_is_there() {
    let fake = Fake::new(&[]);
    for access in [Access::Open, fake.access()] {
        let called = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&called);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>("heard") }
        });
        let (sender, parts) = tokio::sync::mpsc::channel(2);
        let parts = tokio_stream::wrappers::ReceiverStream::new(parts);
        let mut request = http::Request::new(Body::new(AnyBody::from_stream(parts)));
        *request.headers_mut() = of_caller("me", 1).0;
        let mut call = Box::pin(Authenticated::new(service, access, DOMAIN).oneshot(request));
        sender.send(Ok::<_, Status>(Bytes::from(vec![7; PART]))).await.unwrap();
        assert!(timeout(seconds(1), call.as_mut()).await.is_err());
        assert_eq!(called.load(Ordering::SeqCst), 0);
        drop(sender);
        assert_eq!(to_bytes(call.await.unwrap().into_body(), usize::MAX).await.unwrap(), "heard");
        assert_eq!(called.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_whose_a_token_is_when_this_frontend_stops() {
    let fake = Fake::new(&[]);
    let reviews = fake.reviews();
    assert_eq!(call(&reviews, "known", 1).await, "known");
    fake.how.send_replace(How::NotAtAll);
    fake.stopping.cancel();
    assert_eq!(call(&reviews, "me", 1).await, "SHUTTING_DOWN");
    assert_eq!(call(&reviews, "known", 1).await, "known");
}

#[test]
fn every_status_fits_into_eight_kibibytes_of_trailers() {
    let long = "\u{e9}".repeat(4_000);
    let subject = Subject::called(&long);
    // Longer ones are no names.
    let name = "n".repeat(253);
    let right = Right::to::<ParallelRegion>("update", "scale", &name).for_one(name.clone());
    let statuses = [
        super::errors::access_denied(DOMAIN, &subject, &right),
        super::errors::unauthenticated(DOMAIN, super::token::Unusable::Nobodys, &vec![long.clone(); 10]),
        super::errors::unanswered(DOMAIN, "it", &super::Unanswered::Failed(long)),
    ];
    for status in statuses {
        let size = crate::grpc::status::size_in_trailers(&status);
        assert!(size <= 7_800, "{size}: {}", &status.message()[..40]);
    }
}
