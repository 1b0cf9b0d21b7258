//! Waits as spans (rule name-11): of keys in queues, of calls at the gate, and of whatever else waits.
//!
//! How long something waited is known at its end, so its span is made then; the field `took_ns` says that it began
//! earlier (`streams_process::telemetry`). Such spans are details: without a collector they are not made.
//!
//! The wait of a key is over before anybody knows which trace the work on it belongs to. So its [`worker`] keeps it
//! until the trace is known ([`Wait::take`]); work that belongs to no other trace has it in its own.
//!
//! Knows: time, tracing. Must not know: what waits, OpenTelemetry.
//!
//! Invariant: a wait becomes at most one span.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;
use tokio::task_local;
use tracing::Span;

/// A shorter wait is no span: nearly everything waits for a moment, and nothing follows from it.
pub const WORTH_A_SPAN: Duration = Duration::from_millis(1);

task_local! {
    static BEFORE_WORK: Cell<Option<Wait>>;
}

/// A wait that is over, and is worth a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    took_ns: i64,
    for_what: &'static str,
}

impl Wait {
    /// A wait for the turn in the queue of this name.
    pub(crate) fn in_queue(queue: &'static str, took: Duration) -> Option<Self> {
        Some(Self { took_ns: nanoseconds(took)?, for_what: queue })
    }

    /// The wait before the work that is going on, if nobody has taken it.
    pub fn take() -> Option<Self> {
        Self::replace(None)
    }

    /// What begins now has waited like this.
    pub(crate) fn before(wait: Option<Self>) {
        Self::replace(wait);
    }

    fn replace(wait: Option<Self>) -> Option<Self> {
        BEFORE_WORK.try_with(|before| before.replace(wait)).ok().flatten()
    }

    /// The span of a wait in a queue, within the current one.
    pub fn span(self) -> Span {
        let Self { took_ns, for_what } = self;
        tracing::debug_span!("wait in queue", took_ns, queue = for_what)
    }
}

/// A worker that does one work after the other, with the wait before it. The work itself is large: it is not moved for
/// this.
pub(crate) fn worker<F: Future>(works: F) -> impl Future<Output = F::Output> {
    BEFORE_WORK.scope(Cell::new(None), works)
}

/// How long a wait took, in the form of the field `took_ns`. Nothing if it is not worth a span.
pub fn nanoseconds(took: Duration) -> Option<i64> {
    (took >= WORTH_A_SPAN).then(|| i64::try_from(took.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_less_than_a_moment_is_no_span() {
        for (microseconds, expected) in [(0, None), (999, None), (1000, Some(1_000_000)), (2500, Some(2_500_000))] {
            assert_eq!(nanoseconds(Duration::from_micros(microseconds)), expected, "{microseconds} µs");
        }
        assert_eq!(nanoseconds(Duration::MAX), Some(i64::MAX));
    }

    #[tokio::test]
    async fn the_wait_before_some_work_is_taken_once() {
        let wait = Wait::in_queue("jobs", WORTH_A_SPAN);
        assert!(wait.is_some());
        worker(async {
            Wait::before(wait);
            assert_eq!((Wait::take(), Wait::take()), (wait, None));
            Wait::before(wait);
            Wait::before(None);
            assert_eq!(Wait::take(), None, "the next work did not wait");
        })
        .await;
        assert_eq!(Wait::take(), None, "outside of all work");
    }
}
