//! Logs and traces of a process that serves.
//!
//! Everything is said once, by `tracing`: events go to standard error as text or JSON, spans also to an OpenTelemetry
//! collector when the usual variable `OTEL_EXPORTER_OTLP_ENDPOINT` (or the one for traces only) names one. A caller's
//! W3C trace context (`traceparent`, `tracestate`) becomes the parent of the spans made here, so that one trace crosses
//! both services.
//!
//! Knows: tracing, OpenTelemetry. Must not know: what is served.
//!
//! Invariants: nothing here can fail a request. What was recorded before [`Telemetry::stop`] is sent, or given up after
//! a few seconds.

use anyhow::Context as _;
use clap::ValueEnum;
use http::HeaderMap;
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator},
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use std::{env, io, time::Duration};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{EnvFilter, Layer, filter::FilterFn, layer::SubscriberExt, util::SubscriberInitExt};

/// How long [`Telemetry::stop`] tries to send what is left.
const FLUSH: Duration = Duration::from_secs(5);

/// Options of logs and traces.
#[derive(clap::Args, Clone, Debug)]
pub struct TelemetryArgs {
    /// Which events to log: a level, or `target=level` pairs, comma separated.
    #[arg(long, env = "RUST_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// How to write them.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Logs and traces that have been set up. Ends with [`Telemetry::stop`].
#[derive(Debug)]
#[must_use = "spans that were not sent are lost unless this is stopped"]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts logging, and exporting traces of `service` if a collector is configured. Needs a tokio runtime. Fails if
    /// the filter cannot be read, the collector's address is malformed, or the process already has a subscriber.
    pub fn start(args: &TelemetryArgs, service: &'static str) -> anyhow::Result<Self> {
        let filter = EnvFilter::try_new(&args.log).with_context(|| format!("log filter '{}'", args.log))?;
        let log = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let log = match args.log_format {
            LogFormat::Text => log.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
            LogFormat::Json => log.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
        };
        let traces = collector_configured().then(|| exporter(service)).transpose()?;
        let spans = traces.as_ref().map(|provider| {
            // The exporter speaks gRPC itself: tracing that would make each export cause the next one.
            let own = FilterFn::new(|metadata| {
                const TRANSPORT: [&str; 6] = ["h2", "hyper", "hyper_util", "opentelemetry", "tonic", "tower"];
                let root = metadata.target().split("::").next().unwrap_or_default();
                !TRANSPORT.iter().any(|name| root == *name || root.starts_with("opentelemetry"))
            });
            tracing_opentelemetry::layer().with_tracer(provider.tracer(service)).with_filter(own)
        });
        tracing_subscriber::registry()
            .with(log.with_filter(filter))
            .with(spans)
            .try_init()
            .context("this process already logs in another way")?;
        Ok(Self { traces })
    }

    /// Sends what has not been sent yet.
    pub async fn stop(self) {
        let Some(provider) = self.traces else { return };
        // Blocks until the exporter's own tasks, which need this runtime, are done.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH)).await;
        if let Ok(Err(error)) = flushed {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Whether the environment names a collector.
fn collector_configured() -> bool {
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn exporter(service: &'static str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .build()
        .context("OTEL_EXPORTER_OTLP_ENDPOINT: no exporter of traces")?;
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before the name given here.
    let resource = if env::var_os("OTEL_SERVICE_NAME").is_some() {
        Resource::builder()
    } else {
        Resource::builder().with_service_name(service)
    };
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = resource.with_attribute(version).build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

/// Makes the caller's trace context, if `headers` carry one, the parent of `span`. A field `trace_id` of the span is
/// filled in, so that logs can be found by it even where no collector is configured.
pub fn continue_trace(span: &Span, headers: &HeaderMap) {
    let context = remote_context(headers);
    let remote = context.span().span_context().clone();
    if remote.is_valid() {
        span.record("trace_id", tracing::field::display(remote.trace_id()));
        // Fails only where no collector is configured.
        let _ = span.set_parent(context);
    }
}

fn remote_context(headers: &HeaderMap) -> Context {
    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(http::HeaderName::as_str).collect()
        }
    }

    TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_goes_on_from_the_callers_headers() {
        let mut headers = HeaderMap::new();
        assert!(!remote_context(&headers).span().span_context().is_valid());
        headers.insert(
            "traceparent",
            http::HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        );
        let context = remote_context(&headers);
        assert_eq!(context.span().span_context().trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(context.span().span_context().is_remote());
        headers.insert("traceparent", http::HeaderValue::from_static("00-nonsense-01"));
        assert!(!remote_context(&headers).span().span_context().is_valid());
    }
}
