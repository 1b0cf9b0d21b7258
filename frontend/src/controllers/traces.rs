//! What work shows in the trace of the request that it is done for (rule name-11).
//!
//! Knows: traces that objects carry. Must not know: what the work is, OpenTelemetry.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;
use streams_api::names;
use streams_kubernetes::wait::Wait;
use streams_process::telemetry::{self, TraceContext};
use tracing::Span;

/// Makes the span of some work a part of the trace that an object carries, and the wait before the work as well.
pub(crate) fn continue_trace(span: &Span, trace_parent: &str) {
    telemetry::continue_trace(span, trace_parent);
    if let Some(wait) = Wait::take() {
        telemetry::add_to_trace(trace_parent, || wait.span());
    }
}

/// The same, for an object that carries all of the context.
pub(crate) fn continue_context(span: &Span, context: &TraceContext) {
    telemetry::continue_context(span, context);
    if let Some(wait) = Wait::take() {
        telemetry::add_to_trace(&context.parent, || wait.span());
    }
}

/// The context of the request that this object was made or changed for. Anybody may have written it, and it goes into
/// other objects: what has another form is none.
pub(crate) fn carried_by(object: &impl ResourceExt) -> Option<TraceContext> {
    let annotations = object.annotations();
    let state = annotations.get(names::ANNOTATION_TRACE_STATE).cloned();
    let parent = annotations.get(names::ANNOTATION_TRACE_PARENT).filter(|parent| is_trace_parent(parent))?;
    Some(TraceContext { parent: parent.clone(), state })
}

/// Whether this is a `traceparent` of W3C's Trace Context: a version, a trace, a span and flags, in hexadecimal digits.
fn is_trace_parent(text: &str) -> bool {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(part.len());
    text.split('-').map(digits).eq([2, 32, 16, 2].map(Some))
}

/// What began at this time and is over now took so long, in the form of the field `took_ns`.
pub(crate) fn took_ns(since: Timestamp, now: Timestamp) -> i64 {
    let took = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    i64::try_from(took.as_nanos()).unwrap_or(i64::MAX)
}
