//! Which spans are sent to the collector, and how many of one trace (rule name-11).
//!
//! A span of the level INFO, or of a more important one, is a step of the work and is always sent. A span of the level
//! DEBUG is a detail: one call, one wait. There may be thousands of them in a trace, and they must not push the steps
//! out of it. What libraries say that do not know what is secret is not sent, also if the log is asked for it.
//!
//! Knows: OpenTelemetry, levels, crates. Must not know: what any span shows.
//!
//! Invariants: a detail is sent only within a trace that is recorded, so it never begins a trace of its own; this
//! process sends at most [`MOST_DETAILS`] details of one trace. What is remembered of traces is bounded.

use super::lines::is_of;
use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, TraceId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::mem;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata};
use tracing_subscriber::layer::{Context as LayerContext, Filter};

/// Crates whose spans are about the export itself: exporting them would never end.
const TRANSPORT: [&str; 6] = ["h2", "hyper", "hyper_util", "opentelemetry", "tonic", "tower"];
/// Details of one trace that this process sends. The rest is counted.
pub(super) const MOST_DETAILS: u32 = 4096;
/// Traces whose details are counted. A trace without a detail for so many others may be forgotten; its details are
/// counted anew then.
const TRACES: usize = 8192;

/// Chooses what is sent.
pub(super) struct Exported {
    /// Crates whose details are sent.
    detailed: &'static [&'static str],
    /// Libraries of which nothing is sent: a collector is another place than the log, with other readers.
    talkative: &'static [&'static str],
    details: Mutex<Details>,
}

impl Exported {
    pub(super) fn new(detailed: &'static [&'static str], talkative: &'static [&'static str]) -> Self {
        Self { detailed, talkative, details: Mutex::default() }
    }

    /// Whether spans and events of this kind are sent, as long as there is room for details.
    fn sends(&self, metadata: &Metadata<'_>) -> bool {
        is_exported(metadata, self.detailed) && !is_of(self.talkative, metadata.target())
    }

    /// Details of this trace that were not sent.
    pub(super) fn left_out(&self, trace: TraceId) -> u64 {
        self.details.lock().of(trace).left_out
    }

    /// Whether one more detail may be sent of the trace that this thread works for.
    fn has_room(&self) -> bool {
        let trace = Context::map_current(|context| {
            let span = context.span();
            let here = span.span_context();
            (here.is_valid() && here.is_sampled()).then(|| here.trace_id())
        });
        trace.is_some_and(|trace| self.details.lock().of(trace).take())
    }
}

impl<S> Filter<S> for Exported {
    fn enabled(&self, metadata: &Metadata<'_>, _: &LayerContext<'_, S>) -> bool {
        self.sends(metadata) && (!is_detail(metadata) || self.has_room())
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match (self.sends(metadata), is_detail(metadata)) {
            (false, _) => Interest::never(),
            (true, false) => Interest::always(),
            (true, true) => Interest::sometimes(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }
}

/// Whether spans and events of this kind are sent at all; `detailed` are the crates whose details are.
pub(super) fn is_exported(metadata: &Metadata<'_>, detailed: &[&str]) -> bool {
    let root = metadata.target().split("::").next().unwrap_or_default();
    // Events are not counted: those that may be many are for logs.
    let most = if metadata.is_span() && detailed.contains(&root) { Level::DEBUG } else { Level::INFO };
    *metadata.level() <= most && !TRANSPORT.contains(&root) && !root.starts_with("opentelemetry")
}

fn is_detail(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && *metadata.level() > Level::INFO
}

/// How many details traces have: those of recent ones, and of those that were recent before.
#[derive(Default)]
struct Details {
    recent: HashMap<TraceId, Count>,
    earlier: HashMap<TraceId, Count>,
}

/// The details of one trace.
#[derive(Clone, Copy, Default)]
struct Count {
    sent: u32,
    left_out: u64,
}

impl Details {
    fn of(&mut self, trace: TraceId) -> &mut Count {
        if !self.recent.contains_key(&trace) {
            let before = self.earlier.remove(&trace).unwrap_or_default();
            if self.recent.len() >= TRACES {
                self.earlier = mem::take(&mut self.recent);
            }
            self.recent.insert(trace, before);
        }
        self.recent.entry(trace).or_default()
    }
}

impl Count {
    /// Counts one more; whether it may be sent.
    fn take(&mut self) -> bool {
        let has_room = self.sent < MOST_DETAILS;
        if has_room {
            self.sent += 1;
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_traces_is_bounded_and_one_that_goes_on_is_not_forgotten() {
        let mut details = Details::default();
        let goes_on = TraceId::from(u128::MAX);
        for other in 1..=5 * TRACES as u128 {
            details.of(TraceId::from(other)).take();
            if other % 1000 == 0 {
                details.of(goes_on).take();
            }
        }
        assert!(details.recent.len() + details.earlier.len() <= 2 * TRACES);
        assert_eq!(u128::from(details.of(goes_on).sent), 5 * TRACES as u128 / 1000);
        assert_eq!(details.of(TraceId::from(1)).sent, 0, "the oldest is forgotten");
    }

    #[test]
    fn details_beyond_the_most_are_counted_and_not_sent() {
        let mut count = Count::default();
        let sent = (0..MOST_DETAILS + 3).filter(|_| count.take()).count();
        assert_eq!((sent, count.left_out), (MOST_DETAILS as usize, 3));
    }
}
