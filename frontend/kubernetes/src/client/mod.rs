//! The stack that every call to the API server goes through (rules call-1 and call-2).
//!
//! From the outside in, each layer with one duty:
//! 1. *answer*: what is neither a success nor a failure to kube, such as a redirection, is a failure to whoever calls;
//! 2. *deadline*: refuses a call that asks for something else than it was made for ([`url`], rule call-31), and notes
//!    when the caller stops waiting; of writes, asks for no warnings, which nobody would read;
//! 3. *retry* (tower): 429, 500, 502, 503, 504, time-outs and broken connections, with jittered exponential back-off,
//!    honouring `Retry-After`, never past the deadline. Everything else, 409 above all, goes to the caller, who must
//!    read again. Who has others behind it asks for one try ([`tried_once`]); who must know which try was answered
//!    makes each by itself ([`single_try`]);
//! 4. *attempt*: one try with a time-out that includes reading the answer; counts it, and shows it in the trace that it
//!    is made for. A failure that says nothing in the form of the API server says it from there on ([`failure`]);
//! 5. kube's client with its own retry switched off, because it would multiply ours and knows no deadline.
//!
//! Watches pass through all of it: they have no deadline and are made again by who watches, which gives up those that
//! do not begin or fall silent (rule call-18).
//!
//! A write that is tried again may find that its first try had succeeded (rule call-3). Therefore writes are apply (the
//! same however often), create-or-match, compare-and-swap (409) or deletion with a uid: see [`writer`](super::writer).
//!
//! Knows: HTTP, what an answer says of trying again. Must not know: any kind of objects, what a call is for, who leads.
//!
//! Invariants: no try begins after the deadline of its call; of answers other than those above none is tried again.

mod attempt;
pub mod configuration;
mod ends;
mod failure;
mod retries;
mod url;

use self::attempt::AttemptLayer;
use self::retries::Retries;
pub(crate) use self::retries::{retry_after, single_try, tried_once};
pub(crate) use self::url::is_watch;
use crate::metrics::Metrics;
use axum::body::{Body as AnyBody, HttpBody};
use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::{Client, Config};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower::buffer::BufferLayer;
use tower::filter::FilterLayer;
use tower::layer::util::Identity;
use tower::retry::RetryLayer;
use tower::util::{BoxService, MapResponseLayer};
use tower::{BoxError, Layer, Service};

/// Objects of a page of a list. An object has up to 1.5 MiB, and its author may make as many as etcd takes: a page of
/// the largest is read within the time and the bytes that one call has (rule call-1).
pub(crate) const PAGE: u32 = 100;

/// Calls that wait for the connection pool.
const BUFFERED_CALLS: usize = 1024;

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// How long a call may take in all, retries included.
    pub deadline: Duration,
    /// How long one try may take.
    pub attempt: Duration,
    /// Tries after the first.
    pub retries: usize,
    /// Delay before the first retry; doubled for each further one.
    pub first_delay: Duration,
    /// Greatest delay before a retry.
    pub max_delay: Duration,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            attempt: Duration::from_secs(5),
            retries: 5,
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(3),
        }
    }
}

/// What kube makes of a configuration: it sends a request and gives the answer.
pub type Transport = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// A client whose calls have deadlines and are retried.
///
/// # Errors
/// The configuration cannot be used, e.g. its certificates cannot be read.
pub fn new(config: Config, options: CallOptions, metrics: &Metrics) -> kube::Result<Client> {
    with_layer(config, options, metrics, &Identity::new())
}

/// [`new`], with a layer around kube's client: every try of a call goes through it.
///
/// # Errors
/// As [`new`].
pub fn with_layer<L, B>(mut config: Config, options: CallOptions, metrics: &Metrics, layer: &L) -> kube::Result<Client>
where
    L: Layer<Transport>,
    L::Service: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    <L::Service as Service<Request<Body>>>::Error: Into<BoxError> + Send + Sync,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config)?.with_layer(layer);
    Ok(stack(builder, options, metrics))
}

/// When the caller stops waiting; travels with the request.
#[derive(Clone, Copy, Debug)]
struct Deadline(Instant);

impl Deadline {
    fn of(request: &Request<Body>) -> Option<Instant> {
        request.extensions().get::<Self>().map(|deadline| deadline.0)
    }
}

/// Which retry of a call this is, from 1; travels with the request.
#[derive(Clone, Copy, Debug)]
struct Retry(u64);

/// How the try before ended; travels with the request. That is the answer if there is no time for another try.
#[derive(Clone)]
struct Before(Arc<Mutex<Option<Result<Response<AnyBody>, BoxError>>>>);

impl Before {
    fn new(result: Result<Response<AnyBody>, BoxError>) -> Self {
        Self(Arc::new(Mutex::new(Some(result))))
    }

    fn take(request: &Request<Body>) -> Option<Result<Response<AnyBody>, BoxError>> {
        request.extensions().get::<Self>()?.0.lock().take()
    }
}

/// Another try would be answered in the same way; travels with the answer.
#[derive(Clone, Copy, Debug)]
struct Final;

/// Puts the layers around a service, which may be kube's or a test's.
pub(crate) fn stack<S, B>(builder: ClientBuilder<S>, options: CallOptions, metrics: &Metrics) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + Sync,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let deadline = FilterLayer::new(move |mut request: Request<Body>| {
        url::check(&request)?;
        if !is_watch(&request) {
            request.extensions_mut().insert(Deadline(Instant::now() + options.deadline));
        }
        Ok::<_, url::Misnamed>(without_warnings(request))
    });
    builder
        .with_layer(&BufferLayer::new(BUFFERED_CALLS))
        .with_layer(&AttemptLayer::new(options, metrics))
        .with_layer(&RetryLayer::new(Retries::new(options, metrics)))
        .with_layer(&deadline)
        .with_layer(&MapResponseLayer::new(failure::as_read))
        .build()
}

/// A call that creates or replaces an object would have the API server look for fields that it does not know, only to
/// warn of them in a header. What it has dropped, its answer says (rule call-30).
fn without_warnings(mut request: Request<Body>) -> Request<Body> {
    if !matches!(*request.method(), Method::POST | Method::PUT) {
        return request;
    }
    let uri = request.uri();
    let query = uri.query().map(|query| format!("{query}&")).unwrap_or_default();
    let Ok(asked) = format!("{}?{query}fieldValidation=Ignore", uri.path()).parse() else { return request };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(asked);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Gate, Limits};
    use crate::stopwatch;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{PostParams, WatchParams};
    use std::collections::VecDeque;
    use streams_process::telemetry::testing;
    use tokio::time::timeout;
    use tracing::Instrument;

    /// How the server behaves at one try.
    #[derive(Clone, Copy, Debug)]
    enum Try {
        Answer(u16),
        NotDeclared,
        Takes(u64),
        RetryAfter(u16, u64),
        Hang,
        BreakOff,
    }

    /// Behaviour of the server -> status at the end, tries, at least and at most seconds.
    type Row = (&'static [Try], Option<u16>, usize, f32, f32);

    /// Calls a server that behaves like this, and shows the status of the end, the number of tries and the time it
    /// took.
    async fn call(tries: &[Try]) -> (Option<u16>, usize, Duration) {
        let script = Arc::new(Mutex::new(tries.iter().copied().collect::<VecDeque<_>>()));
        let server_script = Arc::clone(&script);
        let server = tower::service_fn(move |_: Request<Body>| {
            let next = server_script.lock().pop_front();
            async move {
                let answer = |code: u16, retry_after: Option<u64>| {
                    let text = if code < 300 {
                        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}"#.to_owned()
                    } else {
                        format!(r#"{{"kind":"Status","status":"Failure","reason":"R","message":"m","code":{code}}}"#)
                    };
                    let mut response = Response::builder().status(code);
                    if let Some(seconds) = retry_after {
                        response = response.header("retry-after", seconds);
                    }
                    response.body(axum::body::Body::from(text)).unwrap()
                };
                match next {
                    Some(Try::NotDeclared) => {
                        let message = "failed to create typed patch object: .spec.a: field not declared in schema";
                        let text = format!(
                            r#"{{"kind":"Status","status":"Failure","reason":"R","message":"{message}","code":500}}"#
                        );
                        Ok(Response::builder().status(500).body(axum::body::Body::from(text)).unwrap())
                    }
                    Some(Try::Answer(code)) => Ok(answer(code, None)),
                    Some(Try::Takes(seconds)) => {
                        tokio::time::sleep(Duration::from_secs(seconds)).await;
                        Ok(answer(201, None))
                    }
                    Some(Try::RetryAfter(code, seconds)) => Ok(answer(code, Some(seconds))),
                    Some(Try::BreakOff) => Err(BoxError::from("connection reset")),
                    Some(Try::Hang) | None => std::future::pending().await,
                }
            }
        });
        let client = stack(ClientBuilder::new(server, "n"), CallOptions::default(), &Metrics::new("test"));
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let start = Instant::now();
        let result = api.create(&PostParams::default(), &ConfigMap::default()).await;
        let code = match result {
            Ok(_) => Some(200),
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(_) => None,
        };
        (code, tries.len() - script.lock().len(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_again_and_the_rest_goes_to_the_caller() {
        use Try::*;
        let table: [Row; 15] = [
            (&[Answer(201)], Some(200), 1, 0.0, 0.0),
            (&[Answer(429), Answer(201)], Some(200), 2, 0.1, 0.3),
            (&[Answer(500), Answer(502), Answer(503), Answer(504), Answer(201)], Some(200), 5, 1.5, 4.0),
            (&[BreakOff, Answer(201)], Some(200), 2, 0.1, 0.3),
            (&[Hang, Answer(201)], Some(200), 2, 5.1, 5.3),
            (&[Answer(409), Answer(201)], Some(409), 1, 0.0, 0.0),
            (&[Answer(404), Answer(201)], Some(404), 1, 0.0, 0.0),
            (&[Answer(422), Answer(201)], Some(422), 1, 0.0, 0.0),
            (&[Answer(403), Answer(201)], Some(403), 1, 0.0, 0.0),
            // It is called an internal error, and is always the same.
            (&[NotDeclared, Answer(201)], Some(500), 1, 0.0, 0.0),
            // The server's wish is honoured, unless it is longer than the caller waits.
            (&[RetryAfter(429, 4), Answer(201)], Some(200), 2, 4.0, 4.3),
            (&[RetryAfter(429, 60), Answer(201)], Some(429), 1, 0.0, 0.0),
            (&[RetryAfter(503, u64::MAX), Answer(201)], Some(503), 1, 0.0, 0.0),
            // After the last try the caller gets the last answer; a silent server costs the deadline, no more.
            (&[Answer(503); 20], Some(503), 6, 3.1, 10.0),
            (&[Hang; 20], None, 2, 9.9, 10.1),
        ];
        for (tries, status, count, least, most) in table {
            let (actual_status, actual_count, took) = call(tries).await;
            assert_eq!((actual_status, actual_count), (status, count), "{tries:?}");
            let took = took.as_secs_f32();
            assert!(took >= least - 0.01 && took <= most + 0.01, "{tries:?} took {took} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_others_behind_it_tries_again_only_if_all_fail() {
        use Try::*;
        // behaviour of the server -> status at the end, tries
        let table: [(&[Try], Option<u16>, usize); 6] = [
            (&[Answer(500), Answer(201)], Some(500), 1),
            (&[Answer(504), Answer(201)], Some(504), 1),
            (&[Hang, Answer(201)], None, 1),
            (&[Answer(503), Answer(201)], Some(200), 2),
            // Perhaps there are too many of its namespace only.
            (&[Answer(429), Answer(201)], Some(429), 1),
            (&[BreakOff, Answer(201)], Some(200), 2),
        ];
        for (tries, status, count) in table {
            let (actual_status, actual_count, _) = tried_once(call(tries)).await;
            assert_eq!((actual_status, actual_count), (status, count), "{tries:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_try_is_never_made_again() {
        use Try::*;
        for first in [Answer(429), Answer(500), Answer(503), Answer(504), RetryAfter(429, 1), Hang, BreakOff] {
            let (_, tries_made, _) = single_try(call(&[first, Answer(201)])).await;
            assert_eq!(tries_made, 1, "{first:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_call_is_let_in_before_the_next_try_unless_all_fail() {
        use Try::*;
        // behaviour of the server -> another call is let in before this one has ended
        let table: [(&[Try], bool); 8] = [
            (&[Answer(201)], false),
            (&[Answer(500), Answer(201)], true),
            (&[Answer(504), Answer(201)], true),
            (&[Hang, Answer(201)], true),
            (&[NotDeclared, Answer(201)], false),
            (&[Answer(503), Answer(201)], false),
            (&[RetryAfter(429, 4), Answer(201)], false),
            (&[BreakOff, Answer(201)], false),
        ];
        for (tries, expected) in table {
            let gate = Gate::new(Limits::of(1), &Metrics::new("test"));
            let order = Mutex::new(Vec::new());
            let first = async {
                gate.call("a", call(tries)).await;
                order.lock().push("first");
            };
            let other = gate.call("b", async { order.lock().push("other") });
            tokio::join!(first, other);
            let is_let_in = *order.lock() == ["other", "first"];
            assert_eq!(is_let_in, expected, "{tries:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_no_place_for_the_next_try_in_time_has_the_answer_to_the_last() {
        let gate = Gate::new(Limits::of(1), &Metrics::new("test"));
        let first = gate.call("a", call(&[Try::Answer(500), Try::Answer(201)]));
        let other = gate.call("b", tokio::time::sleep(Duration::from_secs(60)));
        let ((status, tries, took), ()) = tokio::join!(first, other);
        assert_eq!((status, tries, took.as_secs()), (Some(500), 1, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_would_be_cut_off_at_once_is_not_begun_and_hides_no_answer() {
        use Try::*;
        // milliseconds after which it gets a place again, behaviour of the server -> status at the end, tries
        let table: [(u64, &[Try], Option<u16>, usize); 4] = [
            (9_950, &[Answer(500), Hang], Some(500), 1),
            (9_899, &[Answer(500), Answer(201)], Some(200), 2),
            // It keeps its place.
            (0, &[RetryAfter(503, 9), Answer(201)], Some(200), 2),
            (0, &[RetryAfter(503, 10), Answer(201)], Some(503), 1),
        ];
        for (milliseconds, tries, status, count) in table {
            let gate = Gate::new(Limits::of(1), &Metrics::new("test"));
            let first = gate.call("a", call(tries));
            let other = gate.call("b", tokio::time::sleep(Duration::from_millis(milliseconds)));
            let ((actual_status, actual_count, _), ()) = tokio::join!(first, other);
            assert_eq!((actual_status, actual_count), (status, count), "{milliseconds} {tries:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_try_that_is_answered_is_work() {
        use Try::*;
        // behaviour of the server -> seconds of work
        let table: [(&[Try], f32); 5] = [
            (&[Takes(2)], 2.0),
            (&[Hang, Takes(2)], 2.0),
            (&[RetryAfter(429, 4), BreakOff, Takes(2)], 2.0),
            (&[Answer(409)], 0.0),
            (&[Hang; 20], 0.0),
        ];
        for (tries, expected) in table {
            let begun = Instant::now();
            let (_, worked) = stopwatch::measure(move || begun.elapsed(), call(tries)).await;
            assert!((worked.as_secs_f32() - expected).abs() < 0.01, "{tries:?}: {worked:?}");
        }
    }

    /// An API server that has nothing, what it was asked for, and a client of it.
    fn empty_server() -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let server = tower::service_fn(move |request: Request<Body>| {
            log.lock().push(request.uri().to_string());
            let text = r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"m","code":404}"#;
            let answer = Response::builder().status(404).body(AnyBody::from(text)).unwrap();
            async { Ok::<_, BoxError>(answer) }
        });
        (stack(ClientBuilder::new(server, "n"), CallOptions::default(), &Metrics::new("test")), asked)
    }

    #[tokio::test]
    async fn what_is_no_name_asks_the_api_server_for_nothing() {
        let (client, asked) = empty_server();
        // namespace, name -> whether it is asked for
        let table = [
            ("n", "a", true),
            ("n", "a.b-1", true),
            ("n", "?watch=true&x", false),
            ("n", "?limit=500", false),
            ("n", "a/status", false),
            ("n", "a/x17", false),
            ("n", "a/", false),
            ("n", "..", false),
            ("n", "%2e%2e", false),
            ("n", "a b", false),
            ("a/b", "c", false),
            ("a/pods?", "c", false),
            ("..", "c", false),
        ];
        let mut expected = Vec::new();
        for (namespace, name, is_asked_for) in table {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let found = api.get_opt(name).await;
            assert_eq!(found.is_ok(), is_asked_for, "{namespace} {name}");
            if is_asked_for {
                expected.push(format!("/api/v1/namespaces/{namespace}/configmaps/{name}"));
            }
        }
        assert_eq!(*asked.lock(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_but_a_watch_has_no_end() {
        let server =
            tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<AnyBody>, BoxError>>());
        let client = stack(ClientBuilder::new(server, "n"), CallOptions::default(), &Metrics::new("test"));
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let (minute, begun) = (Duration::from_secs(60), Instant::now());
        assert!(timeout(minute, api.get("a?watch=true")).await.is_ok_and(|found| found.is_err()));
        assert!(begun.elapsed() < Duration::from_secs(11));
        assert!(timeout(minute, api.watch(&WatchParams::default(), "0")).await.is_err());
        assert!(timeout(minute, api.watch_metadata(&WatchParams::default(), "0")).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn each_try_of_a_call_is_a_span_of_the_trace_that_it_is_made_for_and_of_no_other() {
        use Try::*;
        let collected = testing::collect(&["streams_kubernetes"]);
        call(&[Answer(201)]).await;
        assert!(collected.spans().is_empty(), "nothing is traced");
        call(&[Answer(503), BreakOff, Answer(201)]).instrument(tracing::info_span!("act")).await;
        let spans = collected.spans();
        let seen = spans.iter().map(|span| {
            let attributes =
                ["http.request.resend_count", "http.response.status_code", "error.type"].map(|key| span.attribute(key));
            (span.name.as_str(), span.kind.as_str(), span.parent.as_deref(), attributes)
        });
        let (name, act) = ("POST /api/v1/namespaces/{namespace}/configmaps", Some("act"));
        let expected = [
            (name, "Client", act, [None, Some("503"), Some("503")]),
            (name, "Client", act, [Some("1"), None, Some("transport")]),
            (name, "Client", act, [Some("2"), Some("201"), None]),
            ("act", "Internal", None, [None; 3]),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_created_or_replaced_is_not_searched_for_unknown_fields() {
        let table = [
            ("POST", "/api/v1/pods", "/api/v1/pods?fieldValidation=Ignore"),
            ("POST", "/api/v1/pods?", "/api/v1/pods?&fieldValidation=Ignore"),
            (
                "PUT",
                "/api/v1/pods/p/status?&fieldManager=m",
                "/api/v1/pods/p/status?&fieldManager=m&fieldValidation=Ignore",
            ),
            ("PUT", "http://h:1/api/v1/pods/p", "http://h:1/api/v1/pods/p?fieldValidation=Ignore"),
            ("PATCH", "/api/v1/pods/p?fieldManager=m", "/api/v1/pods/p?fieldManager=m"),
            ("GET", "/api/v1/pods?limit=5", "/api/v1/pods?limit=5"),
            ("DELETE", "/api/v1/pods/p", "/api/v1/pods/p"),
        ];
        for (method, uri, expected) in table {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            assert_eq!(without_warnings(request).uri().to_string(), expected, "{method} {uri}");
        }
    }
}
