//! Whole applications through the whole compiler.
//!
//! * [`reference`]: the conformance corpus, compared with the reference implementation.
//! * [`blast_radius`]: how many PEs resizes restart, beside the reference.
//! * [`accounts`], [`pictures`]: what `explain` and `graph` make of everything in the corpus.
//! * [`prints`]: topologies as recorded.
//! * [`properties`]: what holds for every application, over generated ones.
//!
//! The corpus is found by `STREAMS_CORPUS`, or beside the checkout; without it, what needs it says so and passes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod accounts;
mod blast_radius;
mod pictures;
mod prints;
mod properties;
mod reference;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fusion-service");
