//! Each try of a call as a span (rule name-11), by OpenTelemetry's conventions for clients of gRPC.
//!
//! Knows: verdicts, tracing. Must not know: when something is tried.
//!
//! Invariant: a try that is given up before its end, because another one was faster or nobody waits any more, says so.

use super::error::Verdict;
use std::net::SocketAddr;
use streams_kubernetes::stopwatch::{self, Pause};
use streams_kubernetes::wait;
use tokio::time::Instant;
use tracing::{Span, field};

/// The service as it is called in traces.
const SERVICE: &str = "streams.fusion.v1.FusionService";

/// Why a replica is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// It is its turn.
    Plainly,
    /// It lacks contents: they are sent.
    WithContent,
    /// Another one works on it already.
    AsWell,
}

/// Time in which no replica works on a call, because none is known, or all of them have enough to do. It is a span when
/// it is over, also if the call ends meanwhile. Whoever measures the work hears that it waits.
pub(super) struct IdleTime {
    begun: Instant,
    _pause: Pause,
}

impl IdleTime {
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), _pause: stopwatch::pause() }
    }
}

impl Drop for IdleTime {
    fn drop(&mut self) {
        if let Some(took_ns) = wait::nanoseconds(self.begun.elapsed()) {
            drop(tracing::debug_span!("wait for replica", took_ns));
        }
    }
}

/// A try that is under way.
pub(super) struct Asked {
    span: Span,
    is_over: bool,
}

impl Asked {
    /// The try with this number, from 1.
    pub(super) fn new(method: &'static str, replica: SocketAddr, number: u32, ask: Ask) -> Self {
        let span = tracing::debug_span!(
            "try",
            otel.name = format!("{SERVICE}/{method}"),
            otel.kind = "client",
            otel.status_code = field::Empty,
            rpc.system = "grpc",
            rpc.service = SERVICE,
            rpc.method = method,
            server.address = %replica.ip(),
            server.port = replica.port(),
            number,
            hedge = ask == Ask::AsWell,
            with_content = ask == Ask::WithContent,
            outcome = field::Empty,
        );
        Self { span, is_over: false }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// It is over, and failed like this, if it did.
    pub(super) fn ended(mut self, failure: Option<&Verdict>) {
        self.note(failure.map_or("answered", Verdict::name), failure.is_some_and(Verdict::is_failure));
    }

    fn note(&mut self, outcome: &'static str, is_failure: bool) {
        self.is_over = true;
        self.span.record("outcome", outcome);
        if is_failure {
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_over {
            self.note("given up", false);
        }
    }
}
