//! The PE controller: one pod per ProcessingElement, under its restart policies.
//!
//! ```text
//! PE, its job, pods, ConfigMap, host pool --observe--> Observed --decide--> Decision --act--> status, pods
//!        ^                                                                                      |
//!        +---------------------------------- answers of the API server <-----------------------+
//! ```
//!
//! | Module | What it is for |
//! |---|---|
//! | `observed` | plain values: what is looked at |
//! | `pod_status` | pods, read into them |
//! | `facts` | pure: what follows from them |
//! | `decide` | pure: what to do next |
//! | `describe` | pure: phase and conditions |
//! | `pod` | pure: the pod of a PE |
//! | `observe`, `act` | the same with mirrors and calls |
//! | `reconciler` | observe, decide and act put together |
//! | `answers` | what the API server has answered during one reconcile |
//! | `memory` | what may be forgotten at any time |
//! | `controller` | what wakes it, and the workers |
//! | `counters` | what is counted |
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
pub(crate) mod memory;
mod observe;
pub(crate) mod observed;
pub(crate) mod pod;
pub(crate) mod pod_status;
pub(crate) mod reconciler;
#[cfg(test)]
mod tests;
