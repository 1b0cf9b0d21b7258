//! Consistent regions: when their PEs take checkpoints, and when they go back to one (the rules of
//! `docs/rules/consistent-region.md`).
//!
//! The operators of a region checkpoint together and go back together, so that every tuple counts as processed once.
//! [`step`] is all that decides about it: a pure function from what is known of a region and what happened to what is
//! known then. Who calls it stores the new [`State`], and only then sends the message and arms the timer of the
//! [`Step`]. Both follow from the state alone ([`State::message`], [`State::deadline`]), so that who takes over after a
//! crash finds everything in what was stored.
//!
//! | Module | What it does |
//! |---|---|
//! | [`time`] | moments, as they are stored |
//! | [`settings`] | what the application says about a region |
//! | [`health`] | whether the PEs of a region run and are connected, and which launch of each |
//! | [`metrics`] | how long drains and resets took, and the figures that are published |
//! | [`state`] | what is known of a region |
//! | [`message`] | what PEs are told, and the bytes that tell it |
//! | [`event`] | what can happen to a region, and why nothing comes of it |
//! | [`transition`] | the step from one state to the next |
//!
//! Knows: the protocol that PEs follow. Must not know: Kubernetes, how PEs are reached, clocks, who calls.
//!
//! Invariants: sequence ids only grow; the last completed checkpoint is older than the sequence id in use; a checkpoint
//! is given up only after a newer one has been completed and stored. A model checker looks for violations among all
//! short histories with faults (`tests/model.rs`).

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

pub mod event;
pub mod health;
pub mod message;
pub mod metrics;
pub mod settings;
pub mod state;
#[cfg(test)]
mod tests;
pub mod time;
pub mod transition;

pub use event::{Event, Ignored, Member, Progress};
pub use health::{Health, Launches, PeFacts, health};
pub use message::{Document, Message};
pub use metrics::Figures;
pub use settings::{Settings, Trigger};
pub use state::{State, ToBeTold};
pub use time::Time;
pub use transition::{Step, step};
