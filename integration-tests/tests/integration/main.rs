//! Tests that need a real control plane: one test binary, so one control plane for all of them, and a namespace for
//! each.
//!
//! `cargo test --workspace --test integration`. The first run builds the programs of the control plane and says so.

mod building;
mod chart;
mod conformance;
mod demo;
mod operator;
mod prometheus;
mod silence;
mod support;
