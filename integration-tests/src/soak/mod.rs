//! Long runs under load and disturbance, whose reports are kept under `docs/measurements/`.
//!
//! * [`resizes`] — widths change all the time while processes and pods die; in between, everything must be in its
//!   place;
//! * [`faults`] — what dies;
//! * [`figures`] — how often, how long;
//! * [`memory`] — how much memory the services take;
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
