//! What is fuzzed: functions from bytes that panic when something does not hold.
//!
//! `fuzz/` runs them with libFuzzer; the tests of this crate run them with seeds and with every input that ever found
//! something. Each module says what its input is and what it checks. [`compilation`] and [`people`] are what several of
//! them check of a compiled job.
//!
//! Knows: the public surfaces of the compiler, the graphs, bundles, expressions and the server's calls. Must not know:
//! where an input comes from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is what is looked for")]

pub mod adl;
mod compilation;
pub mod expression;
pub mod filter;
pub mod grpc_request;
pub mod layout;
mod people;
pub mod sab;
pub mod submission_values;
#[cfg(test)]
mod tests;

/// All targets, by name.
pub const TARGETS: [(&str, fn(&[u8])); 7] = [
    ("adl", adl::run),
    ("sab", sab::run),
    ("expression", expression::run),
    ("filter", filter::run),
    ("submission_values", submission_values::run),
    ("layout", layout::run),
    ("grpc_request", grpc_request::run),
];
