//! What the programs of streams-operator do alike.
//!
//! * [`telemetry`]: logs, and traces that cross processes.
//! * [`pages`]: `/metrics`, `/healthz` and `/readyz` over plain HTTP.
//! * [`tls`]: TLS with certificates that are replaced while a program runs.
//!
//! Knows: tracing, OpenTelemetry, HTTP, TLS. Must not know: what a program does.

pub mod pages;
pub mod telemetry;
pub mod tls;
