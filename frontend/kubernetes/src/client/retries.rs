//! Which calls are tried again, and when (rule call-2). One that failed by itself keeps no place at the gate meanwhile
//! (rule call-23).

use super::ends::{TimedOut, end, is_in_vain, is_too_many};
use super::url::named;
use super::{Before, CallOptions, Deadline, Retry};
use crate::gate::{self, End};
use crate::metrics::{AnswerLabels, Metrics};
use crate::stopwatch;
use axum::body::Body as AnyBody;
use backon::{BackoffBuilder, ExponentialBuilder};
use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response};
use kube::client::Body;
use std::future::Future;
use std::time::Duration;
use tokio::task_local;
use tokio::time::{Instant, sleep};
use tower::BoxError;
use tower::retry::Policy;

task_local! {
    static TRIED_ONCE: ();
    static SINGLE_TRY: ();
}

/// Makes calls that are not tried again if they fail by themselves ([`End`]), or if there are too many.
pub(crate) async fn tried_once<F: Future>(calls: F) -> F::Output {
    TRIED_ONCE.scope((), calls).await
}

/// Whether the call that is being made is such a one.
fn is_tried_once() -> bool {
    TRIED_ONCE.try_with(|()| ()).is_ok()
}

/// Makes calls of which none is tried again: what an answer says holds for the try that was made just now, and who
/// waits for it decides when to try again.
pub(crate) async fn single_try<F: Future>(calls: F) -> F::Output {
    SINGLE_TRY.scope((), calls).await
}

/// Whether the call that is being made is such a one.
fn is_single_try() -> bool {
    SINGLE_TRY.try_with(|()| ()).is_ok()
}

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
    type Future = BoxFuture<'static, ()>;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<AnyBody>, BoxError>,
    ) -> Option<Self::Future> {
        // Only watches have none.
        let deadline = Deadline::of(request)?;
        if !is_in_vain(result) || is_single_try() {
            return None;
        }
        let is_by_itself = end(result) == End::FailedByItself;
        if is_tried_once() && (is_by_itself || is_too_many(result)) {
            return None;
        }
        let (code, wished) = match result {
            Ok(response) => (response.status().as_u16().to_string(), retry_after(response.headers())),
            Err(error) if error.is::<TimedOut>() => ("timeout".to_owned(), None),
            Err(_) => ("transport".to_owned(), None),
        };
        let delay = self.next_delay()?.max(wished.unwrap_or_default());
        // Cut off at once, the next try would only hide how this one ended. A wish may be longer than any clock goes.
        let begun_by = Instant::now().checked_add(delay.saturating_add(self.options.first_delay));
        if begun_by.is_none_or(|begun_by| begun_by > deadline) {
            return None;
        }
        request.extensions_mut().insert(Retry(self.made as u64));
        let (verb, resource) = named(request);
        tracing::debug!(verb, resource, code, ?delay, "call will be tried again");
        self.metrics.retries.get_or_create(&AnswerLabels { verb, resource, code }).inc();
        let pause = stopwatch::aside(sleep(delay));
        if !is_by_itself {
            // More calls are not what the API server needs.
            return Some(Box::pin(pause));
        }
        request.extensions_mut().insert(Before::new(std::mem::replace(result, Err("it is tried again".into()))));
        Some(Box::pin(gate::set_aside(pause, deadline)))
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

/// How long not to call again. The API server says it in seconds; whatever is between may say any number.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
