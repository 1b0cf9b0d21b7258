//! Logs and traces of the process, and trace contexts that are carried by objects.
//!
//! Events of `tracing` go to standard error, as lines for people or as JSON. Spans also go to an OpenTelemetry
//! collector, if one of the standard variables `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`
//! names it.
//!
//! Knows: tracing, OpenTelemetry. Must not know: what is traced.
//!
//! Invariants: nothing here can fail the work that is traced; without a collector nothing is sent anywhere.

use std::{
    collections::HashMap,
    env,
    io::{self, IsTerminal},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator,
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Level, Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{EnvFilter, Layer, filter::FilterFn, layer::SubscriberExt, util::SubscriberInitExt};

/// How long the end of the process waits for the collector.
const LAST_SPANS: Duration = Duration::from_secs(5);
/// The field of a W3C trace context, in HTTP and in gRPC.
pub const TRACE_PARENT: &str = "traceparent";
/// Crates whose spans are about the export itself: exporting them would never end.
const TRANSPORT: [&str; 6] = ["h2", "hyper", "hyper_util", "opentelemetry", "tonic", "tower"];

/// Crates whose spans are exported down to the level of debugging.
const DETAILED: [&str; 2] = ["streams_frontend", "kube_client"];

/// kube says of every failed call what is said here as well, or is retried and worth nothing.
const DEFAULT_FILTER: &str = "info,kube_client=off";

/// Options of logs.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What is logged: a level, or `target=level` pairs, comma separated
    #[arg(long, env = "RUST_LOG", default_value = DEFAULT_FILTER, value_name = "FILTER")]
    pub log: String,

    /// Form of a line of the log
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
}

/// Form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// A JSON object
    Json,
}

/// Logs and traces that are being written.
#[derive(Debug)]
#[must_use = "the last spans are sent when this is stopped"]
pub struct Telemetry {
    collector: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts writing logs, and sending traces in the name of `service` if the environment names a collector. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// The filter cannot be read, or the address of the collector; the process has a subscriber already.
    pub fn start(options: &Options, service: &'static str) -> anyhow::Result<Self> {
        let filter = EnvFilter::try_new(&options.log).with_context(|| format!("--log {}", options.log))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let lines = match options.log_format {
            Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            Format::Json => lines.json().flatten_event(true).with_span_list(true).boxed(),
        };
        let collector = if has_collector() { Some(collector(service)?) } else { None };
        let spans = collector.as_ref().map(|collector| {
            tracing_opentelemetry::layer()
                .with_tracer(collector.tracer(service))
                .with_filter(FilterFn::new(is_exported))
        });
        tracing_subscriber::registry()
            .with(spans)
            .with(lines.with_filter(filter))
            .try_init()
            .context("logs cannot be written")?;
        Ok(Self { collector })
    }

    /// Sends the last spans, or gives up after a few seconds.
    pub async fn stop(self) {
        let Some(collector) = self.collector else { return };
        // It blocks, and the tasks that send need this thread.
        let sent = tokio::task::spawn_blocking(move || collector.shutdown_with_timeout(LAST_SPANS)).await;
        if let Ok(Err(error)) = sent {
            tracing::warn!(error = %error, "the last spans were not sent");
        }
    }
}

fn has_collector() -> bool {
    let names = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
    names.into_iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn collector(service: &'static str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().build();
    let exporter = exporter.context("traces cannot be sent: OTEL_EXPORTER_OTLP_ENDPOINT")?;
    let resource = Resource::builder();
    // The standard variable goes before the name of the program.
    let resource =
        if env::var_os("OTEL_SERVICE_NAME").is_some() { resource } else { resource.with_service_name(service) };
    let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

/// Ours in detail, and calls to the API server; of other crates what is worth a line in a log.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let root = metadata.target().split("::").next().unwrap_or_default();
    let most = if DETAILED.contains(&root) { Level::DEBUG } else { Level::INFO };
    *metadata.level() <= most && !TRANSPORT.contains(&root) && !root.starts_with("opentelemetry")
}

/// The trace context of the current span in the form of W3C (`traceparent`), to be kept in an annotation. Nothing
/// without a collector.
pub fn trace_parent() -> Option<String> {
    let mut fields = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut fields);
    fields.remove(TRACE_PARENT)
}

/// Makes the span a part of the trace that an object or a request carries.
pub fn continue_trace(span: &Span, trace_parent: &str) {
    let context = remote(trace_parent);
    if context.span().span_context().is_valid() {
        // Fails only without a collector.
        let _ = span.set_parent(context);
    }
}

fn remote(trace_parent: &str) -> Context {
    let fields = HashMap::from([(TRACE_PARENT.to_owned(), trace_parent.to_owned())]);
    TraceContextPropagator::new().extract_with_context(&Context::new(), &fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_context_survives_being_kept_as_text() {
        let provider = SdkTracerProvider::builder().build();
        let subscriber =
            tracing_subscriber::registry().with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")));
        tracing::subscriber::with_default(subscriber, || {
            let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            let span = tracing::info_span!("continued");
            continue_trace(&span, text);
            let kept = span.in_scope(trace_parent).unwrap();
            assert_eq!(kept.split('-').nth(1), text.split('-').nth(1), "{kept}");
        });
    }

    #[test]
    fn what_is_no_trace_context_is_ignored() {
        for text in ["", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert!(!remote(text).span().span_context().is_valid(), "{text}");
        }
        assert_eq!(trace_parent(), None);
    }
}
