//! Figures for Prometheus about calls, queues, watches, Events and leadership; a registry that takes those of others as
//! well.
//!
//! Knows: what is counted, and how it is named. Must not know: how figures are asked for.

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Labels of calls to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabels {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub(crate) verb: &'static str,
    /// Plural name of the resource, with its sub-resource.
    pub(crate) resource: String,
}

/// Labels of answers of the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AnswerLabels {
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
    /// HTTP status, or `timeout`, or `transport`.
    pub(crate) code: String,
}

/// Label of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QueueLabels {
    pub(crate) queue: &'static str,
}

/// Label of calls by what they are for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PriorityLabels {
    /// `awaited`, `urgent`, `freeing`, `launching`, `normal`, `preparing`, `telling`.
    pub(crate) priority: &'static str,
}

/// Labels of the end of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WorkLabels {
    pub(crate) queue: &'static str,
    /// `done`, `again`, `later`, `conflict`, `failed`, `panicked`.
    pub(crate) outcome: &'static str,
}

/// Label of a shared watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WatchLabels {
    pub(crate) kind: String,
}

/// Label of what is said of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct NamespaceLabels {
    pub(crate) namespace: String,
}

/// Every figure of the process (rule call-29). Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    pub(crate) calls: Family<AnswerLabels, Counter>,
    pub(crate) call_seconds: Family<CallLabels, Histogram>,
    pub(crate) call_wait_seconds: Family<PriorityLabels, Histogram>,
    pub(crate) retries: Family<AnswerLabels, Counter>,
    pub(crate) queue_depth: Family<QueueLabels, Gauge>,
    pub(crate) queue_additions: Family<QueueLabels, Counter>,
    pub(crate) queue_wait_seconds: Family<QueueLabels, Histogram>,
    pub(crate) work: Family<WorkLabels, Counter>,
    pub(crate) work_seconds: Family<QueueLabels, Histogram>,
    pub(crate) watched_objects: Family<WatchLabels, Gauge>,
    pub(crate) watch_errors: Family<WatchLabels, Counter>,
    pub(crate) unreadable_objects: Family<WatchLabels, Counter>,
    pub(crate) refused_kinds: Family<NamespaceLabels, Gauge>,
    pub(crate) events_dropped: Counter,
    leader: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// 1 ms to 65 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Metrics {
    /// All figures, at zero. Their names begin with `prefix`.
    pub fn new(prefix: &str) -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix(prefix))),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(seconds),
            call_wait_seconds: Family::new_with_constructor(seconds),
            retries: Family::default(),
            queue_depth: Family::default(),
            queue_additions: Family::default(),
            queue_wait_seconds: Family::new_with_constructor(seconds),
            work: Family::default(),
            work_seconds: Family::new_with_constructor(seconds),
            watched_objects: Family::default(),
            watch_errors: Family::default(),
            unreadable_objects: Family::default(),
            refused_kinds: Family::default(),
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
            "kubernetes_call_wait_seconds",
            "How long calls of controllers waited for others, by what they are for",
            metrics.call_wait_seconds.clone(),
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
        metrics.register(
            "refused_kinds",
            "Kinds of which the API server refuses to tell in a namespace",
            metrics.refused_kinds.clone(),
        );
        metrics.register("events_dropped", "Kubernetes Events that were not published", metrics.events_dropped.clone());
        metrics.register("leader", "Whether this replica leads", metrics.leader.clone());
        metrics
    }

    /// Whether this replica leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Adds a figure; its name gets the prefix of the process.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().register(name, help, metric);
    }

    /// All figures as text.
    ///
    /// # Errors
    /// A figure that cannot be written.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}

/// A duration as seconds for a histogram.
pub(crate) fn as_seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
