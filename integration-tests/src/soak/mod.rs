//! Long runs under load and disturbance, whose reports are kept under `docs/measurements/`.
//!
//! * [`resizes`] — resizes regions all the time while processes and pods die, and checks the jobs in between;
//! * [`faults`] — the faults that it injects;
//! * [`figures`] — durations and percentiles;
//! * [`memory`] — the memory that the services take;
//! * `commit` — which commit a report is about;
//! * [`report`] — the page that is kept.
//!
//! Knows: what a job must consist of once it has settled. Must not know: how the operator gets there.

mod commit;
pub mod faults;
pub mod figures;
pub mod memory;
pub mod report;
pub mod resizes;
