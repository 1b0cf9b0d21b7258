//! The PE controller: one pod per ProcessingElement, under its restart policies.
//!
//! ```text
//! PE, its job, pods, ConfigMap, host pool --observe--> Observed --decide--> Decision --act--> status, pods
//!        ^                                                                                      |
//!        +---------------------------------- answers of the API server <-----------------------+
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | `observed` | plain values: the observation of a PE |
//! | `metadata` | pure: the metadata of a pod that the controller relies on |
//! | `pod_status` | pure: reads pods into these values |
//! | `facts` | pure: facts that deciding and describing share |
//! | `decide` | pure: what to do next |
//! | `describe` | pure: phase and conditions |
//! | `pod` | pure: the pod of a PE |
//! | `observe`, `act` | observing by mirrors, acting by calls |
//! | `restoration` | restoring what others have changed of the metadata of a pod |
//! | `reconciler` | observe, decide and act put together |
//! | `answers` | what the API server has answered during one reconcile |
//! | `last_seen` | how pods were seen last, kept by every replica; safe to lose |
//! | `memory` | what the controller remembers of its own calls; safe to lose |
//! | `unclaimed` | how pods ended whose PEs are not known; bounded for each namespace |
//! | `controller` | wakes the reconciler and runs the workers |
//! | `counters` | metrics |
//!
//! Knows: ProcessingElements, their pods, the committed generation of their job. Must not know: plans, widths, the
//! fusion service.

mod act;
mod answers;
pub(crate) mod controller;
pub(crate) mod counters;
pub(crate) mod decide;
mod describe;
mod facts;
pub(crate) mod last_seen;
mod memory;
mod metadata;
mod observe;
pub(crate) mod observed;
pub(crate) mod pod;
pub(crate) mod pod_status;
pub(crate) mod reconciler;
mod restoration;
#[cfg(test)]
mod tests;
mod unclaimed;
