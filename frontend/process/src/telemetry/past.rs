//! Spans of what is over when they are made.
//!
//! How long something waited is known at its end, and only then, whether the wait is worth a span, and which trace it
//! belongs to. `tracing` has no spans that begin in the past. So such a span says in the field `took_ns` how many
//! nanoseconds it would have taken by the time it is made, and the last step before the collector moves its beginning.
//!
//! Knows: OpenTelemetry. Must not know: what any span shows.
//!
//! Invariant: a span without the field is sent as it is.

use opentelemetry::Value;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::time::Duration;

/// The field.
const TOOK: &str = "took_ns";

/// Moves the beginnings of such spans, and hands all spans on.
#[derive(Debug)]
pub(super) struct Past<E>(pub(super) E);

impl<E: SpanExporter> SpanExporter for Past<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        batch.iter_mut().for_each(move_beginning);
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn move_beginning(span: &mut SpanData) {
    let Some(at) = span.attributes.iter().position(|attribute| attribute.key.as_str() == TOOK) else { return };
    if let Value::I64(nanoseconds) = span.attributes.swap_remove(at).value {
        let took = Duration::from_nanos(nanoseconds.try_into().unwrap_or_default());
        span.start_time = span.start_time.checked_sub(took).unwrap_or(span.start_time);
    }
}
