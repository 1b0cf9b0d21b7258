//! The elasticity API: how load balancers and people with grpcurl change widths.
//!
//! Served by every replica of the frontend, leader or not: a request only edits `spec.width` of ParallelRegions, as `kubectl scale` does,
//! and then watches the job's status until what the caller waits for has happened. The widths stay desired if the caller goes away.
//!
//! * [`outcome`] — pure: what to answer, given what is observed.
//! * [`observed`] — where observations come from: the shared mirrors of jobs and regions.
//! * [`service`] — the gRPC service: checks, patches, waits.
//! * [`errors`] — statuses with `google.rpc` details, as `proto/streams/elasticity/v1` documents them.
//! * [`server`] — listener, health, reflection, shutdown.
//!
//! Knows: Jobs and ParallelRegions. Must not know: how a resize is carried out.
//!
//! Callers are not authenticated: put the API behind a NetworkPolicy or bind it to loopback. [`server::serve`] takes the service as a tower
//! service, so that a layer which authenticates goes around it.
//!
//! Several regions of one request are written one after another: a job may commit a generation with only some of the new widths in
//! between, and the answer waits until all are in force.

pub mod errors;
pub mod observed;
pub mod outcome;
pub mod server;
pub mod service;
