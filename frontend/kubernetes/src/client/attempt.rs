//! One try of a call: a time-out that includes reading the answer, its metrics, and its span. Whoever measures the work
//! that it is made for hears of it, and the gate that the call has passed is told how it ended.

use super::ends::{TimedOut, end, is_in_vain};
use super::failure::{as_status, is_failure};
use super::url::{is_watch, named, template};
use super::{Before, CallOptions, Deadline, Final, Retry};
use crate::error::NOT_DECLARED;
use crate::gate;
use crate::metrics::{AnswerLabels, CallLabels, Metrics, as_seconds};
use crate::stopwatch;
use axum::body::{Body as AnyBody, HttpBody, to_bytes};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Layer, Service};
use tracing::{Span, field};

/// Largest answer that is read: more than a page ([`PAGE`](super::PAGE)) of objects has that are as large as can be.
const ANSWER_MAX: usize = 512 << 20;

/// Makes [`Attempt`]s.
#[derive(Clone)]
pub(super) struct AttemptLayer {
    time_out: Duration,
    /// With less time than this no try is begun whose call has an answer already.
    least: Duration,
    metrics: Metrics,
}

impl AttemptLayer {
    pub(super) fn new(options: CallOptions, metrics: &Metrics) -> Self {
        Self { time_out: options.attempt, least: options.first_delay, metrics: metrics.clone() }
    }
}

impl<S> Layer<S> for AttemptLayer {
    type Service = Attempt<S>;

    fn layer(&self, inner: S) -> Attempt<S> {
        Attempt { inner, layer: self.clone() }
    }
}

/// Makes one try.
#[derive(Clone)]
pub(super) struct Attempt<S> {
    inner: S,
    layer: AttemptLayer,
}

impl<S, B> Service<Request<Body>> for Attempt<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnyBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (verb, resource) = named(&request);
        let path = request.uri().path().to_owned();
        let watch = is_watch(&request);
        let start = Instant::now();
        let attempt_ends = start + self.layer.time_out;
        let ends = Deadline::of(&request).map_or(attempt_ends, |deadline| deadline.min(attempt_ends));
        let (metrics, time_out) = (self.layer.metrics.clone(), self.layer.time_out);
        let is_late = !watch && ends.saturating_duration_since(start) < self.layer.least;
        if is_late && let Some(before) = Before::take(&request) {
            // It waited for its turn for too long. Cut off at once, the try would only hide why the one before failed.
            return Box::pin(async { before });
        }
        if !watch && ends <= start {
            return Box::pin(async { Err(TimedOut(Duration::ZERO).into()) });
        }
        let (method, retry) = (request.method().clone(), request.extensions().get::<Retry>().copied());
        let is_write = !method.is_safe();
        let answer = self.inner.call(request);
        Box::pin(async move {
            // Here, because the call itself is made by a task that works for everybody.
            let span = if watch { Span::none() } else { span_of(&method, &path, retry) };
            let result = if watch {
                begun(answer, time_out).await
            } else {
                let under_way = stopwatch::under_way();
                let result = match timeout_at(ends, whole(answer)).await {
                    Ok(result) => result,
                    Err(_) => Err(TimedOut(start.elapsed()).into()),
                };
                gate::tried(end(&result), is_write);
                if is_in_vain(&result) {
                    under_way.in_vain();
                }
                result
            };
            let code = match &result {
                Ok(response) => response.status().as_u16().to_string(),
                Err(error) if error.is::<TimedOut>() => "timeout".to_owned(),
                Err(_) => "transport".to_owned(),
            };
            note(&span, &result, &code);
            tracing::debug!(verb, path, code, took = ?start.elapsed(), "called");
            let call = CallLabels { verb, resource };
            metrics.call_seconds.get_or_create(&call).observe(as_seconds(start.elapsed()));
            metrics.calls.get_or_create(&AnswerLabels { verb, resource: call.resource, code }).inc();
            result
        })
    }
}

/// The span of a try, by OpenTelemetry's conventions for clients of HTTP (rule name-11).
fn span_of(method: &Method, path: &str, retry: Option<Retry>) -> Span {
    tracing::debug_span!(
        "call",
        otel.name = format!("{method} {}", template(path)),
        otel.kind = "client",
        otel.status_code = field::Empty,
        http.request.method = method.as_str(),
        http.request.resend_count = retry.map(|Retry(number)| number),
        http.response.status_code = field::Empty,
        url.template = template(path),
        url.path = path,
        "error.type" = field::Empty,
    )
}

/// Notes in the span what came of the try.
fn note<B>(span: &Span, result: &Result<Response<B>, BoxError>, code: &str) {
    let status = result.as_ref().ok().map(Response::status);
    if let Some(status) = status {
        span.record("http.response.status_code", status.as_u16());
    }
    if status.is_none_or(is_failure) {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", code);
    }
}

/// The answer with its whole body.
async fn whole<B, E>(answer: impl Future<Output = Result<Response<B>, E>>) -> Result<Response<AnyBody>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    read(answer.await.map_err(Into::into)?).await
}

/// The answer to a call for a watch. Nothing follows on a failure: it is read like any other.
async fn begun<B, E>(
    answer: impl Future<Output = Result<Response<B>, E>>,
    time_out: Duration,
) -> Result<Response<AnyBody>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    let answer = answer.await.map_err(Into::into)?;
    if !is_failure(answer.status()) {
        return Ok(answer.map(AnyBody::new));
    }
    match timeout(time_out, read(answer)).await {
        Ok(result) => result,
        Err(_) => Err(TimedOut(time_out).into()),
    }
}

/// An answer that has begun, with its whole body. A failure has a status.
async fn read<B>(answer: Response<B>) -> Result<Response<AnyBody>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = answer.into_parts();
    let mut bytes = to_bytes(AnyBody::new(body), ANSWER_MAX).await?;
    if parts.status == StatusCode::INTERNAL_SERVER_ERROR && says_not_declared(&bytes) {
        parts.extensions.insert(Final);
    }
    if is_failure(parts.status)
        && let Some(status) = as_status(parts.status, &bytes)
    {
        parts.headers.remove(CONTENT_LENGTH);
        bytes = status;
    }
    Ok(Response::from_parts(parts, AnyBody::from(bytes)))
}

/// It is about a field that a definition does not declare (rule call-30), which the API server calls an internal error.
fn says_not_declared(answer: &[u8]) -> bool {
    let words = NOT_DECLARED.as_bytes();
    answer.windows(words.len()).any(|window| window == words)
}
