//! The PE controller: one pod per ProcessingElement, under its restart policies.
//!
//! ```text
//! PE, its job, pods, ConfigMap, host pool --> observed --> decide --> present --> status
//!                                                |            |
//!                                     pod: what to create     +--> pods created and deleted
//! ```
//!
//! | Module | What it is for |
//! |---|---|
//! | `observed` | plain values: what is looked at |
//! | `seen` | pods, read into them |
//! | `memory` | what may be forgotten at any time |
//! | `decide` | pure: what to do next |
//! | `present` | pure: phase and conditions |
//! | `pod` | pure: the pod of a PE |
//! | `reconcile` | observes, decides and acts until nothing is left to do |
//! | `controller` | what wakes it, workers, calls |
//! | `figures` | what is counted |
//!
//! Knows: ProcessingElements, their pods, the committed generation of their job. Must not know: plans, widths, the fusion service.

pub mod controller;
pub(crate) mod decide;
pub(crate) mod figures;
pub(crate) mod memory;
pub(crate) mod observed;
pub(crate) mod pod;
mod present;
pub(crate) mod reconcile;
pub(crate) mod seen;
#[cfg(test)]
mod tests;

pub use controller::Controller;
