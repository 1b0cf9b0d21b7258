//! What tests of several crates share.
//!
//! * [`application`] — applications in few words, written as ADL; [`generated`] — such ones for property tests.
//! * [`corpus`] — the conformance corpus: where it is, its cases.
//! * [`documents`] — the files that the command `plan` writes for a step: read, compared, checked for soundness.
//! * [`fused`] — answers of the command `fuse` against what its cases expect.
//! * [`table`] — what was compared, and how much of it agrees.
//!
//! It depends on no crate of this workspace, so unit tests of the compiler can use it, and what it says of documents is
//! a second opinion.
//!
//! Knows: file formats, which are ADL as the compiler reads it, AADL and `context.json` as it writes them. Must not
//! know: how an application is compiled.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests call it, and they fail by panicking"
)]

pub mod application;
pub mod corpus;
pub mod documents;
pub mod fused;
pub mod generated;
pub mod table;

/// How many cases a property is tried on: a few, or as many as `PROPTEST_CASES` says.
pub fn property_cases(few: u32) -> proptest::test_runner::Config {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = wanted.unwrap_or(few);
    proptest::test_runner::Config { cases, failure_persistence: None, ..proptest::test_runner::Config::default() }
}
