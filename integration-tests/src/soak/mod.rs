//! Long runs under load and disturbance, whose reports are kept under `docs/measurements/`.
//!
//! * [`resizes`] — resizes regions all the time while processes and pods die, and checks the jobs in between;
//! * [`consistent_regions`] — kills PEs and frontends at every phase of checkpoints and resets;
//! * [`crash_points`] — kills a frontend at every write, and lets every call fail in every way;
//! * [`declarations`] — writes every field of a spec, good and bad, in sequences, and judges what comes of it;
//! * `deployed` — the services as they are deployed, for runs in many namespaces, and room for many pods;
//! * [`elasticity`] — requests to the elasticity API: how long they take, and what becomes of many of them;
//! * [`faults`] — the faults that `resizes` injects;
//! * [`figures`] — durations and percentiles;
//! * [`large_resizes`] — the largest resizes from many callers, and the memory that the service takes for them;
//! * [`load`] — many jobs and large ones at once beside a bare client, and tenants beside each other;
//! * [`memory`] — the memory that the services take;
//! * `metrics` — what a frontend counts: calls, and how long keys waited in queues;
//! * [`pe_api`] — a thousand PEs that ask and report: what each costs, and what they delay;
//! * `commit` — which commit a report is about;
//! * [`report`] — the page that is kept.
//!
//! Knows: what a job must consist of once it has settled. Must not know: how the operator gets there.

mod commit;
pub mod consistent_regions;
pub mod crash_points;
pub mod declarations;
mod deployed;
pub mod elasticity;
pub mod faults;
pub mod figures;
pub mod large_resizes;
pub mod load;
pub mod memory;
mod metrics;
pub mod pe_api;
pub mod report;
pub mod resizes;
