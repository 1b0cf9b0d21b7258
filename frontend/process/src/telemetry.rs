//! Logs and traces of the process, and trace contexts that are carried by objects.
//!
//! Events of `tracing` go to standard error, as lines for people or as JSON. Spans also go to an OpenTelemetry
//! collector, if one of the standard variables `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`
//! names it.
//!
//! Knows: tracing, OpenTelemetry. Must not know: what is traced.
//!
//! Invariants: nothing here can fail the work that is traced; without a collector nothing is sent anywhere.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::collections::HashMap;
use std::env;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tracing::{Level, Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// How long the end of the process waits for the collector.
const LAST_SPANS: Duration = Duration::from_secs(5);
/// The field of a W3C trace context, in HTTP and in gRPC.
pub const TRACE_PARENT: &str = "traceparent";
/// Crates whose spans are about the export itself: exporting them would never end.
const TRANSPORT: [&str; 6] = ["h2", "hyper", "hyper_util", "opentelemetry", "tonic", "tower"];

/// What telemetry has to know of a program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name in traces, unless the environment says another one.
    pub name: &'static str,
    /// Its version in traces.
    pub version: &'static str,
    /// What it logs unless it is asked for something else: a level, or `target=level` pairs.
    pub log: &'static str,
    /// Crates whose spans are exported down to the level of debugging; of other crates, what is worth a line in a log.
    pub detailed: &'static [&'static str],
}

/// Options of logs.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What is logged: a level, or `target=level` pairs, comma separated
    #[arg(long, env = "RUST_LOG", value_name = "FILTER")]
    pub log: Option<String>,

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
    /// Starts writing logs, and sending traces in the name of `program` if the environment names a collector. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// The filter cannot be read, or the address of the collector; the process has a subscriber already.
    pub fn start(options: &Options, program: Program) -> anyhow::Result<Self> {
        let filter = options.log.as_deref().unwrap_or(program.log);
        let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter}"))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let lines = match options.log_format {
            Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            Format::Json => lines.json().flatten_event(true).with_span_list(true).boxed(),
        };
        let collector = if has_collector() { Some(collector(program)?) } else { None };
        let spans = collector.as_ref().map(|collector| {
            tracing_opentelemetry::layer()
                .with_tracer(collector.tracer(program.name))
                .with_filter(FilterFn::new(move |metadata| is_exported(metadata, program.detailed)))
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

fn collector(program: Program) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().build();
    let exporter = exporter.context("traces cannot be sent: OTEL_EXPORTER_OTLP_ENDPOINT")?;
    let resource = Resource::builder();
    // The standard variable goes before the name of the program.
    let resource =
        if env::var_os("OTEL_SERVICE_NAME").is_some() { resource } else { resource.with_service_name(program.name) };
    let resource = resource.with_attribute(KeyValue::new("service.version", program.version)).build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

fn is_exported(metadata: &Metadata<'_>, detailed: &[&str]) -> bool {
    let root = metadata.target().split("::").next().unwrap_or_default();
    let most = if detailed.contains(&root) { Level::DEBUG } else { Level::INFO };
    *metadata.level() <= most && !TRANSPORT.contains(&root) && !root.starts_with("opentelemetry")
}

/// The trace context of the current span in the form of W3C (`traceparent`), to be kept in an annotation. Nothing
/// without a collector.
pub fn trace_parent() -> Option<String> {
    let mut fields = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut fields);
    fields.remove(TRACE_PARENT)
}

/// Makes the span a part of the trace that an object carries.
pub fn continue_trace(span: &Span, trace_parent: &str) {
    continue_from(span, remote(&HashMap::from([(TRACE_PARENT.to_owned(), trace_parent.to_owned())])));
}

/// Makes the span a part of the trace that a request carries in its headers (`traceparent`, `tracestate`).
pub fn continue_request(span: &Span, headers: &HeaderMap) {
    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(http::HeaderName::as_str).collect()
        }
    }

    continue_from(span, remote(&Headers(headers)));
}

fn remote(carrier: &dyn Extractor) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), carrier)
}

/// A field `trace_id` of the span, if it has one, is filled in: logs can be found by it even where there is no
/// collector.
fn continue_from(span: &Span, context: Context) {
    let remote = context.span().span_context().clone();
    if remote.is_valid() {
        span.record("trace_id", tracing::field::display(remote.trace_id()));
        // Fails only without a collector.
        let _ = span.set_parent(context);
    }
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
            let headers = [("traceparent", text)]
                .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
            let by_object = tracing::info_span!("continued");
            continue_trace(&by_object, text);
            let by_request = tracing::info_span!("continued");
            continue_request(&by_request, &HeaderMap::from_iter(headers));
            for span in [by_object, by_request] {
                let kept = span.in_scope(trace_parent).unwrap();
                assert_eq!(kept.split('-').nth(1), text.split('-').nth(1), "{kept}");
            }
        });
    }

    #[test]
    fn what_is_no_trace_context_is_ignored() {
        for text in ["", "nonsense", "00-nonsense-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            let carrier = HashMap::from([(TRACE_PARENT.to_owned(), text.to_owned())]);
            assert!(!remote(&carrier).span().span_context().is_valid(), "{text}");
        }
        assert_eq!(trace_parent(), None);
    }
}
