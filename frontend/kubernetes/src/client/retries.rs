//! Which calls are tried again, and when (rule call-2).

use super::attempt::TimedOut;
use super::{CallOptions, Deadline, Final, Retry, named};
use crate::metrics::{AnswerLabels, Metrics};
use axum::body::Body as AnyBody;
use backon::{BackoffBuilder, ExponentialBuilder};
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use kube::client::Body;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;

/// The policy of one call. Cloned for each.
#[derive(Clone)]
pub(super) struct Retries {
    options: CallOptions,
    metrics: Metrics,
    /// Retries that were made.
    made: usize,
}

impl Retries {
    pub(super) fn new(options: CallOptions, metrics: &Metrics) -> Self {
        Self { options, metrics: metrics.clone(), made: 0 }
    }

    fn next_delay(&mut self) -> Option<Duration> {
        let delays = ExponentialBuilder::default()
            .with_min_delay(self.options.first_delay)
            .with_max_delay(self.options.max_delay)
            .with_max_times(self.options.retries)
            .with_jitter();
        let delay = delays.build().nth(self.made);
        self.made += 1;
        delay
    }
}

impl Policy<Request<Body>, Response<AnyBody>, BoxError> for Retries {
    type Future = Pin<Box<Sleep>>;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<AnyBody>, BoxError>,
    ) -> Option<Self::Future> {
        // Only watches have none.
        let deadline = Deadline::of(request)?;
        let (code, wished) = match result {
            Ok(response) if may_pass(response.status()) && response.extensions().get::<Final>().is_none() => {
                (response.status().as_u16().to_string(), retry_after(response.headers()))
            }
            Ok(_) => return None,
            Err(error) if error.is::<TimedOut>() => ("timeout".to_owned(), None),
            Err(_) => ("transport".to_owned(), None),
        };
        let delay = self.next_delay()?.max(wished.unwrap_or_default());
        if Instant::now() + delay >= deadline {
            return None;
        }
        request.extensions_mut().insert(Retry(self.made as u64));
        let (verb, resource) = named(request);
        tracing::debug!(verb, resource, code, ?delay, "call will be tried again");
        self.metrics.retries.get_or_create(&AnswerLabels { verb, resource, code }).inc();
        Some(Box::pin(sleep(delay)))
    }

    /// Nothing if the body is a stream, which no call of this process has.
    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut clone = Request::new(request.body().try_clone()?);
        *clone.method_mut() = request.method().clone();
        *clone.uri_mut() = request.uri().clone();
        *clone.version_mut() = request.version();
        *clone.headers_mut() = request.headers().clone();
        *clone.extensions_mut() = request.extensions().clone();
        Some(clone)
    }
}

/// What is wrong may pass.
fn may_pass(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// The API server says it in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
