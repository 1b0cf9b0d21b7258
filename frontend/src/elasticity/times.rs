//! Times as gRPC has them. Pure.

use k8s_openapi::jiff::Timestamp;

/// A point in time.
pub(super) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    // What is before the epoch has negative nanoseconds in one, and positive ones in the other; there is none.
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond().max(0) }
}

/// The time from one point to a later one; none if it is earlier.
pub(super) fn between(from: Timestamp, to: Timestamp) -> prost_types::Duration {
    let time = to.duration_since(from).max(k8s_openapi::jiff::SignedDuration::ZERO);
    prost_types::Duration { seconds: time.as_secs(), nanos: time.subsec_nanos() }
}
