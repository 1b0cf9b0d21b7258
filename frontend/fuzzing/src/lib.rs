//! What is fuzzed of the frontend: functions from bytes that panic when something does not hold.
//!
//! `fuzz/` runs them with libFuzzer; the tests of this crate run them with seeds and with every input that ever found
//! something (`regressions/TARGET`). Each module says what its input is and what it checks.
//!
//! Knows: the public surface of the bundle repository. Must not know: the compiler, where an input comes from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is what is looked for")]

pub mod redis;
#[cfg(test)]
mod tests;

/// All targets, by name.
pub const TARGETS: [(&str, fn(&[u8])); 1] = [("redis", redis::run)];
