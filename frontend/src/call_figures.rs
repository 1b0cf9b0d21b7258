//! Figures of calls by what was called and how it ended: of those that this process answers, and of those that it makes
//! to the fusion service; and of connections of which no call comes because they do not become secure. Names of calls
//! are those of OpenTelemetry's conventions, as Prometheus has them (rule call-29).
//!
//! Knows: methods of the contract, routes. Must not know: what a call does.
//!
//! Invariants: a call is counted once, also if nobody waits for its end. Callers make no series: whatever they ask for
//! that there is not is one and the same.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::Method;
use http_body::{Frame, SizeHint};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use streams_kubernetes::metrics::Metrics;
use streams_process::codes::code_name;
use streams_proto::DESCRIPTOR_SET;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};

/// The service that this process calls.
const FUSION_SERVICE: &str = "streams.fusion.v1.FusionService";
/// What there is not, as OpenTelemetry calls it.
const OTHER: &str = "_OTHER";
/// Seconds. Those that OpenTelemetry advises, and longer ones: callers wait for widths, and watch.
const BUCKETS: [f64; 18] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 180.0, 600.0];

fn seconds() -> Histogram {
    Histogram::new(BUCKETS)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabels {
    /// With its service.
    rpc_method: Arc<str>,
    rpc_response_status_code: &'static str,
}

type RpcSeconds = Family<RpcLabels, Histogram>;

/// Calls that are answered by gRPC. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct ServedCalls {
    methods: Arc<BTreeSet<Arc<str>>>,
    seconds: RpcSeconds,
    failed_handshakes: Counter,
}

impl Default for ServedCalls {
    /// Nobody reads them.
    fn default() -> Self {
        let sets =
            [DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET, tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET];
        let methods = sets.into_iter().flat_map(methods).collect();
        Self {
            methods: Arc::new(methods),
            seconds: Family::new_with_constructor(seconds),
            failed_handshakes: Counter::default(),
        }
    }
}

/// The methods of these files, each with its service.
fn methods(files: &[u8]) -> Vec<Arc<str>> {
    // They are part of this program.
    let files = FileDescriptorSet::decode(files).unwrap_or_default();
    let mut methods = Vec::new();
    for file in files.file {
        for service in &file.service {
            let names = service.method.iter().map(|method| method.name());
            methods.extend(names.map(|name| format!("{}.{}/{name}", file.package(), service.name()).into()));
        }
    }
    methods
}

impl ServedCalls {
    /// Calls of this process.
    pub(crate) fn among(metrics: &Metrics) -> Self {
        let calls = Self::default();
        let help = "Duration of calls that were answered by gRPC, by their end";
        metrics.register("rpc_server_call_duration_seconds", help, calls.seconds.clone());
        let help = "Connections of callers that did not become secure";
        metrics.register("tls_handshakes_failed", help, calls.failed_handshakes.clone());
        calls
    }

    /// A connection has not become secure, so that no call comes of it.
    pub(crate) fn handshake_has_failed(&self) {
        self.failed_handshakes.inc();
    }

    /// A call of this path has arrived.
    pub(crate) fn begin(&self, path: &str) -> RpcCall {
        let method = path.strip_prefix('/').and_then(|method| self.methods.get(method));
        RpcCall::new(&self.seconds, method.map_or_else(|| OTHER.into(), Arc::clone))
    }
}

/// Calls to the fusion service. Cheap to clone; all clones are the same. The default is that nobody reads them.
#[derive(Clone, Debug)]
pub struct MadeCalls {
    seconds: RpcSeconds,
}

impl Default for MadeCalls {
    fn default() -> Self {
        Self { seconds: Family::new_with_constructor(seconds) }
    }
}

impl MadeCalls {
    /// Calls of this process.
    pub(crate) fn among(metrics: &Metrics) -> Self {
        let calls = Self::default();
        calls.register(metrics);
        calls
    }

    /// From now on they are read here.
    pub(crate) fn register(&self, metrics: &Metrics) {
        let help = "Duration of calls to the fusion service, each try for itself, by their end";
        metrics.register("rpc_client_call_duration_seconds", help, self.seconds.clone());
    }

    /// This method is called.
    pub(crate) fn begin(&self, method: &'static str) -> RpcCall {
        RpcCall::new(&self.seconds, format!("{FUSION_SERVICE}/{method}").into())
    }
}

/// A call that is under way until this is dropped.
pub(crate) struct RpcCall {
    seconds: RpcSeconds,
    method: Arc<str>,
    begun: Instant,
    code: Code,
}

impl RpcCall {
    fn new(seconds: &RpcSeconds, method: Arc<str>) -> Self {
        // Unless anything else is said, nobody waits for its end any more.
        Self { seconds: seconds.clone(), method, begun: Instant::now(), code: Code::Cancelled }
    }

    /// It ends like this.
    pub(crate) fn ends(mut self, code: Code) {
        self.code = code;
    }

    /// This is its answer: it ends with the end of that.
    pub(crate) fn ends_with(self, answer: http::Response<Body>) -> http::Response<Body> {
        if let Some(status) = Status::from_header_map(answer.headers()) {
            self.ends(status.code());
            return answer;
        }
        answer.map(|body| Body::new(Answer { body, call: Some(self) }))
    }
}

impl Drop for RpcCall {
    fn drop(&mut self) {
        let labels = RpcLabels { rpc_method: Arc::clone(&self.method), rpc_response_status_code: code_name(self.code) };
        self.seconds.get_or_create(&labels).observe(self.begun.elapsed().as_secs_f64());
    }
}

/// The body of an answer, at whose end is said how the call ended.
struct Answer {
    body: Body,
    call: Option<RpcCall>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let code = match &frame {
            Some(Ok(frame)) => frame
                .trailers_ref()
                .map(|trailers| Status::from_header_map(trailers).map_or(Code::Unknown, |status| status.code())),
            Some(Err(status)) => Some(status.code()),
            None => Some(Code::Unknown),
        };
        if let Some(code) = code
            && let Some(call) = self.call.take()
        {
            call.ends(code);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    http_request_method: &'static str,
    /// With names of its parts instead of their values; empty if there is none.
    http_route: String,
    /// Empty if nobody waited for the answer.
    http_response_status_code: String,
}

/// Requests by HTTP. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct HttpRequests {
    seconds: Family<HttpLabels, Histogram>,
}

impl HttpRequests {
    /// Requests to this process.
    pub(crate) fn among(metrics: &Metrics) -> Self {
        let seconds = Family::new_with_constructor(seconds as fn() -> Histogram);
        let help = "Duration of requests of PEs, until the answer begins";
        metrics.register("http_server_request_duration_seconds", help, seconds.clone());
        Self { seconds }
    }

    /// Counts a request around a router.
    pub(crate) async fn count(State(requests): State<Self>, request: Request, next: Next) -> Response {
        let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
        let labels = HttpLabels {
            http_request_method: method(request.method()),
            http_route: route,
            http_response_status_code: String::new(),
        };
        let mut counted = HttpRequest { requests, labels, begun: Instant::now() };
        let answer = next.run(request).await;
        counted.labels.http_response_status_code = answer.status().as_u16().to_string();
        answer
    }
}

/// A request that is under way until this is dropped.
struct HttpRequest {
    requests: HttpRequests,
    labels: HttpLabels,
    begun: Instant,
}

impl Drop for HttpRequest {
    fn drop(&mut self) {
        self.requests.seconds.get_or_create(&self.labels).observe(self.begun.elapsed().as_secs_f64());
    }
}

/// The name of a method that there is.
fn method(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    known.into_iter().find(|known| method == *known).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use http::{HeaderMap, StatusCode};
    use std::collections::VecDeque;
    use std::future::{pending, poll_fn};
    use std::time::Duration;
    use tokio::time::timeout;
    use tower::ServiceExt as _;

    /// Parts of an answer.
    struct Parts(VecDeque<Result<Frame<Bytes>, Status>>);

    impl http_body::Body for Parts {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn data() -> Result<Frame<Bytes>, Status> {
        Ok(Frame::data(Bytes::from_static(b"part")))
    }

    fn trailers(code: Code) -> Result<Frame<Bytes>, Status> {
        let mut trailers = HeaderMap::new();
        Status::new(code, "why").add_header(&mut trailers).unwrap();
        Ok(Frame::trailers(trailers))
    }

    /// The lines of a figure that count, without the prefix of the process.
    fn counts(metrics: &Metrics, figure: &str) -> Vec<String> {
        let text = metrics.text().unwrap();
        let prefix = format!("test_{figure}_count");
        let mut lines: Vec<_> = text.lines().filter_map(|line| Some(line.strip_prefix(&prefix)?.to_owned())).collect();
        lines.sort();
        lines
    }

    #[tokio::test]
    async fn calls_are_counted_by_method_and_by_how_they_really_end() {
        let resize = "streams.elasticity.v1.ElasticityService/Resize";
        type Parted = Vec<Result<Frame<Bytes>, Status>>;
        // path, parts of the answer, how many of them are read -> method, code
        let table: [(&str, Parted, usize, &str, &str); 7] = [
            (resize, vec![data(), trailers(Code::Ok)], 2, resize, "OK"),
            (resize, vec![data(), data(), trailers(Code::DeadlineExceeded)], 3, resize, "DEADLINE_EXCEEDED"),
            (resize, vec![data(), Err(Status::unavailable("no"))], 2, resize, "UNAVAILABLE"),
            (resize, vec![data(), data(), trailers(Code::Ok)], 1, resize, "CANCELLED"),
            (resize, vec![data()], 2, resize, "UNKNOWN"),
            ("grpc.health.v1.Health/Check", vec![trailers(Code::Ok)], 1, "grpc.health.v1.Health/Check", "OK"),
            ("streams.elasticity.v1.ElasticityService/Guess", vec![trailers(Code::Ok)], 1, OTHER, "OK"),
        ];
        for (path, parts, read, method, code) in table {
            let metrics = Metrics::new("test");
            let call = ServedCalls::among(&metrics).begin(&format!("/{path}"));
            let mut answer = call.ends_with(http::Response::new(Body::new(Parts(parts.into()))));
            for _ in 0..read {
                let mut body = Pin::new(answer.body_mut());
                let _ = poll_fn(|context| http_body::Body::poll_frame(body.as_mut(), context)).await;
            }
            drop(answer);
            let expected = format!(r#"{{rpc_method="{method}",rpc_response_status_code="{code}"}} 1"#);
            assert_eq!(counts(&metrics, "rpc_server_call_duration_seconds"), [expected], "{path} {read}");
        }
    }

    #[tokio::test]
    async fn calls_that_are_refused_or_left_are_counted() {
        let metrics = Metrics::new("test");
        let calls = ServedCalls::among(&metrics);
        let begin = || calls.begin("/streams.elasticity.v1.ElasticityService/ListRegions");
        let answer = begin().ends_with(Status::unauthenticated("who").into_http());
        assert_eq!(Status::from_header_map(answer.headers()).unwrap().code(), Code::Unauthenticated);
        drop(begin());
        let made = MadeCalls::among(&metrics);
        made.begin("Resize").ends(Code::Ok);
        drop(made.begin("Resize"));
        let of = |method: &str, code: &str| format!(r#"{{rpc_method="{method}",rpc_response_status_code="{code}"}} 1"#);
        let list = "streams.elasticity.v1.ElasticityService/ListRegions";
        let expected = [of(list, "CANCELLED"), of(list, "UNAUTHENTICATED")];
        assert_eq!(counts(&metrics, "rpc_server_call_duration_seconds"), expected);
        let resize = "streams.fusion.v1.FusionService/Resize";
        let expected = [of(resize, "CANCELLED"), of(resize, "OK")];
        assert_eq!(counts(&metrics, "rpc_client_call_duration_seconds"), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_route_and_not_by_what_callers_make_up() {
        let metrics = Metrics::new("test");
        let router = Router::new()
            .route("/job/{number}", get(async || StatusCode::NO_CONTENT))
            .route("/wait", get(pending::<StatusCode>))
            .layer(from_fn_with_state(HttpRequests::among(&metrics), HttpRequests::count));
        let ask = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).body(axum::body::Body::empty()).unwrap();
            timeout(Duration::from_secs(1), router.clone().oneshot(request))
        };
        for (method, path) in [("GET", "/job/1"), ("GET", "/job/2"), ("BREW", "/job/3"), ("GET", "/job/4/5")] {
            ask(method, path).await.unwrap().unwrap();
        }
        assert!(ask("GET", "/wait").await.is_err());
        let of = |method: &str, route: &str, code: &str, count: u8| {
            format!(
                r#"{{http_request_method="{method}",http_route="{route}",http_response_status_code="{code}"}} {count}"#
            )
        };
        let expected = [
            of("GET", "", "404", 1),
            of("GET", "/job/{number}", "204", 2),
            of("GET", "/wait", "", 1),
            of(OTHER, "/job/{number}", "405", 1),
        ];
        assert_eq!(counts(&metrics, "http_server_request_duration_seconds"), expected);
    }
}
