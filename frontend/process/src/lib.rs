//! What the programs of streams-operator do alike.
//!
//! * [`background`]: threads for work that makes way for everything else.
//! * [`codes`]: names of the codes of gRPC.
//! * [`connections`]: connections over which gRPC is spoken, and the bounds on them.
//! * [`http2`]: HTTP/2 for gRPC: what callers do not send or read in time is given up.
//! * [`listener`]: a listener for HTTP/1 with bounds on who asks.
//! * [`telemetry`]: logs, and traces that cross processes.
//! * [`pages`]: `/metrics`, `/healthz` and `/readyz` over plain HTTP.
//! * [`tls`]: TLS with certificates that are replaced while a program runs.
//!
//! Knows: threads, sockets, tracing, OpenTelemetry, HTTP, TLS. Must not know: what a program does.

pub mod background;
pub mod codes;
pub mod connections;
pub mod http2;
pub mod listener;
pub mod pages;
pub mod telemetry;
pub mod tls;
