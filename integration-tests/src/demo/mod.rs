//! The demo: the whole system on one machine, from nothing, doing its main job.
//!
//! * [`run`] — the steps, one after another, each with its time;
//! * [`cluster`] — the cluster it happens in: one of its own, or one that exists;
//! * [`tuples`] — what becomes of tuples in each step, where the PEs run;
//! * [`report`] — the tables of the steps and of their tuples, and the lines to go on with.
//!
//! Knows: what users do and see. Must not know: how the services work inside.

pub mod cluster;
pub mod report;
pub mod run;
pub mod tuples;
