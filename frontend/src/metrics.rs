//! Figures about the process for Prometheus, and the HTTP endpoints `/metrics`, `/healthz` and `/readyz`.
//!
//! Knows: what is counted, and how it is named. Must not know: who counts.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, http::header, response::IntoResponse, routing::get};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
};
use tokio::net::TcpListener;

/// Prefix of every name.
const PREFIX: &str = "streams_frontend";

/// Labels of calls to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub(crate) verb: &'static str,
    /// Plural name of the resource, with its sub-resource.
    pub(crate) resource: String,
}

/// Labels of answers of the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Answer {
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
    /// HTTP status, or `timeout`, or `transport`.
    pub(crate) code: String,
}

/// Label of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QueueName {
    pub(crate) queue: &'static str,
}

/// Labels of the end of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WorkEnd {
    pub(crate) queue: &'static str,
    /// `done`, `again`, `failed`, `panicked`.
    pub(crate) outcome: &'static str,
}

/// Label of a shared watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WatchedKind {
    pub(crate) kind: String,
}

/// Every figure of the process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    pub(crate) calls: Family<Answer, Counter>,
    pub(crate) call_seconds: Family<Call, Histogram>,
    pub(crate) retries: Family<Answer, Counter>,
    pub(crate) queue_depth: Family<QueueName, Gauge>,
    pub(crate) queue_additions: Family<QueueName, Counter>,
    pub(crate) queue_wait_seconds: Family<QueueName, Histogram>,
    pub(crate) work: Family<WorkEnd, Counter>,
    pub(crate) work_seconds: Family<QueueName, Histogram>,
    pub(crate) watched_objects: Family<WatchedKind, Gauge>,
    pub(crate) watch_errors: Family<WatchedKind, Counter>,
    pub(crate) unreadable_objects: Family<WatchedKind, Counter>,
    pub(crate) events_dropped: Counter,
    pub(crate) leader: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// 1 ms to 65 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Metrics {
    /// All figures, at zero.
    pub fn new() -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix(PREFIX))),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(seconds),
            retries: Family::default(),
            queue_depth: Family::default(),
            queue_additions: Family::default(),
            queue_wait_seconds: Family::new_with_constructor(seconds),
            work: Family::default(),
            work_seconds: Family::new_with_constructor(seconds),
            watched_objects: Family::default(),
            watch_errors: Family::default(),
            unreadable_objects: Family::default(),
            events_dropped: Counter::default(),
            leader: Gauge::default(),
        };
        metrics.register("kubernetes_calls", "Attempts to call the API server, by their end", metrics.calls.clone());
        metrics.register(
            "kubernetes_call_duration_seconds",
            "Duration of attempts to call the API server",
            metrics.call_seconds.clone(),
        );
        metrics.register(
            "kubernetes_retries",
            "Calls that were tried again, by what was wrong",
            metrics.retries.clone(),
        );
        metrics.register("queue_depth", "Keys that wait in a queue", metrics.queue_depth.clone());
        metrics.register("queue_additions", "Keys put into a queue", metrics.queue_additions.clone());
        metrics.register("queue_wait_seconds", "How long keys waited in a queue", metrics.queue_wait_seconds.clone());
        metrics.register("work", "Pieces of work of a queue, by their end", metrics.work.clone());
        metrics.register(
            "work_duration_seconds",
            "Duration of pieces of work of a queue",
            metrics.work_seconds.clone(),
        );
        metrics.register("watched_objects", "Objects in the mirror of a shared watch", metrics.watched_objects.clone());
        metrics.register("watch_errors", "Failures of a shared watch", metrics.watch_errors.clone());
        metrics.register(
            "unreadable_objects",
            "Objects that a shared watch delivered and that could not be read",
            metrics.unreadable_objects.clone(),
        );
        metrics.register("events_dropped", "Kubernetes Events that were not published", metrics.events_dropped.clone());
        metrics.register("leader", "Whether this replica leads", metrics.leader.clone());
        metrics
    }

    /// Adds a figure; its name gets the prefix of the process.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).register(name, help, metric);
    }

    /// All figures as text.
    ///
    /// # Errors
    /// A figure that cannot be written.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

/// Whether the process can do its work: one answer for each thing that must be so.
pub type Readiness = Arc<dyn Fn() -> Vec<(&'static str, bool)> + Send + Sync>;

#[derive(Clone)]
struct Endpoints {
    metrics: Metrics,
    readiness: Readiness,
}

/// Serves `/metrics`, `/healthz` and `/readyz` until `stop` ends.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    tracing::info!(address = %listener.local_addr()?, "serving metrics and probes");
    axum::serve(listener, router(metrics, readiness)).with_graceful_shutdown(stop).await
}

fn router(metrics: Metrics, readiness: Readiness) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(show_readiness))
        .with_state(Endpoints { metrics, readiness })
}

async fn show_metrics(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    match endpoints.metrics.text() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn show_readiness(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    let conditions = (endpoints.readiness)();
    let ready = conditions.iter().all(|(_, holds)| *holds);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let lines: String =
        conditions.iter().map(|(name, holds)| format!("[{}] {name}\n", if *holds { '+' } else { '-' })).collect();
    (status, lines)
}

/// A duration as seconds for a histogram.
pub(crate) fn as_seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(router: Router, path: &str) -> (StatusCode, String) {
        use tower::ServiceExt;
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_endpoints_answer() {
        let metrics = Metrics::new();
        metrics.queue_depth.get_or_create(&QueueName { queue: "job" }).set(3);
        // path, everything is ready -> status, part of the text
        let table = [
            ("/healthz", false, StatusCode::OK, "ok"),
            ("/readyz", true, StatusCode::OK, "[+] watches"),
            ("/readyz", false, StatusCode::SERVICE_UNAVAILABLE, "[-] watches"),
            ("/metrics", false, StatusCode::OK, "streams_frontend_queue_depth{queue=\"job\"} 3"),
            ("/metrics", false, StatusCode::OK, "# EOF"),
        ];
        for (path, ready, status, part) in table {
            let readiness: Readiness = Arc::new(move || vec![("watches", ready)]);
            let (actual, text) = get(router(metrics.clone(), readiness), path).await;
            assert_eq!(actual, status, "{path}");
            assert!(text.contains(part), "{path}: {text}");
        }
    }
}
