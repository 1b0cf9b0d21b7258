//! What users of this crate rely on. One test binary, so one control plane for all tests but those that would disturb
//! the others, and a namespace for each.
//!
//! `cargo test --workspace --test control_plane`. The first run builds the programs of the control plane and says so.

mod access;
mod garbage;
mod nothing_stays;
mod pods;
mod processes;
mod restarts;
mod support;
