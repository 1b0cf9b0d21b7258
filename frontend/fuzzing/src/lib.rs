//! What is fuzzed of the frontend: functions from bytes that panic when something does not hold.
//!
//! `fuzz/` runs them with libFuzzer; the tests of this crate run them with seeds and with every input that ever found
//! something (`regressions/TARGET`). Each module says what its input is and what it checks.
//!
//! Knows: the public surfaces of the bundle repository, the broker, the API of PEs and the gRPC APIs. Must not know:
//! the compiler, where an input comes from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is what is looked for")]

mod cluster;
pub mod grpc_apis;
pub mod pe_api;
pub mod redis;
pub mod routes;
#[cfg(test)]
mod tests;

/// All targets, by name.
pub const TARGETS: [(&str, fn(&[u8])); 4] =
    [("redis", redis::run), ("pe_api", pe_api::run), ("routes", routes::run), ("grpc_apis", grpc_apis::run)];
