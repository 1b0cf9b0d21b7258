//! Shows tests the spans that a collector would get.

use super::detail::Exported;
use super::past::Past;
use super::sent;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::layer::SubscriberExt;

/// The spans of this thread, as long as it exists.
#[derive(Debug)]
pub struct Collected {
    exporter: InMemorySpanExporter,
    // The spans that are there at the end need it.
    _provider: SdkTracerProvider,
    _subscriber: DefaultGuard,
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Name of the span around it; none, if that has not ended or is of another process.
    pub parent: Option<String>,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// How long it took.
    pub took: Duration,
    /// What the log says within it.
    pub lines: Vec<String>,
}

impl Seen {
    /// The value of an attribute.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }
}

/// Collects the spans of this thread from now on, with the details of these crates.
pub fn collect(detailed: &'static [&'static str]) -> Collected {
    collect_with(Exported::new(detailed, &[]))
}

/// The same of what is chosen like this.
pub(super) fn collect_with(exported: Exported) -> Collected {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(Past(exporter.clone())).build();
    let subscriber = tracing_subscriber::registry().with(sent(provider.tracer("test"), exported));
    Collected { exporter, _provider: provider, _subscriber: subscribe(subscriber) }
}

/// Shows this subscriber what this thread does, until the guard is dropped, whatever other threads do.
///
/// `tracing` remembers for every place in the code whether anybody wants to know of it. While a process has one
/// subscriber, it asks that of the thread which comes by first. A test of another thread, which has none, would answer
/// for all (tokio-rs/tracing, `Dispatchers::has_just_one`). So there are always more: then all are asked.
pub(super) fn subscribe(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::default())));
    LazyLock::force(&OTHERS);
    tracing::subscriber::set_default(subscriber)
}

impl Collected {
    /// The spans that have ended, in the order of their ends.
    pub fn spans(&self) -> Vec<Seen> {
        let ended = self.ended();
        let seen = ended.iter().map(|span| {
            let parent = ended.iter().find(|other| other.span_context.span_id() == span.parent_span_id);
            let attributes = span.attributes.iter().map(|it| (it.key.to_string(), it.value.to_string()));
            Seen {
                name: span.name.to_string(),
                kind: format!("{:?}", span.span_kind),
                parent: parent.map(|parent| parent.name.to_string()),
                attributes: attributes.collect(),
                took: span.end_time.duration_since(span.start_time).unwrap_or_default(),
                lines: span.events.iter().map(|line| line.name.to_string()).collect(),
            }
        });
        seen.collect()
    }

    /// The same, in the words of OpenTelemetry.
    pub(super) fn ended(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap_or_default()
    }
}
