//! What the programs of streams-operator do alike.
//!
//! * [`telemetry`]: logs, and traces that cross processes.
//! * [`pages`]: `/metrics`, `/healthz` and `/readyz` over plain HTTP.
//!
//! Knows: tracing, OpenTelemetry, HTTP. Must not know: what a program does.

pub mod pages;
pub mod telemetry;
