//! The Kubernetes side of streams-operator: controllers, the gRPC APIs, and what running PEs ask.
//!
//! | Module | What it is |
//! |---|---|
//! | [`program`], `options`, `option_values` | the program; its command line, and the forms of what is given there |
//! | `run` | everything that the process runs: how it begins and ends |
//! | [`settings`] | settings that apply to all jobs |
//! | [`mirrors`] | the shared watches |
//! | [`controllers`] | what should be, what is, what to do next, for each kind |
//! | [`fusion`] | the client of the fusion service |
//! | [`bundles`] | fetching bundles, and giving them to PEs |
//! | [`elasticity`], `subscription` | the gRPC APIs: widths; exports and imports |
//! | `grpc` | what both have in common: the listener, who calls, pages |
//! | [`grpc_apis`] | both over any cluster, for whoever tries what callers may send |
//! | [`pe_api`] | what running PEs ask and tell over HTTP |
//! | `broker`, `run_time` | which exports and imports match; what of them may be changed while jobs run |
//! | `consistent_regions` | who is in them, what is stored of them, what PEs are told and report |
//! | `service_endpoints` | the replicas behind a Service |
//! | `status_changes` | changes of a status that the next read shows |
//! | `pods_of_pe` | names of the pods of a PE, and which of those that look like them are read |
//! | `of_job`, `owner` | which job an object is of; whom a key belongs to |
//! | `made_by_job` | whether a job has made a region or a PE |
//! | `uid` | uids as they are kept of thousands of objects |
//! | `start_hash` | how a change by somebody else shows, of what pods are replaced for, or regions reset |
//! | `fair_semaphore` | permits that namespaces share |
//! | `long_objects` | what takes long because an object is long, beside the threads that serve everybody |
//! | `call_figures` | figures of calls |
//!
//! The custom resources are the crate `streams_api`; how any controller talks to Kubernetes is the crate
//! `streams_kubernetes`.
//!
//! Knows: Kubernetes, plans. Must not know: ADL. What an application is made of is the business of the fusion service,
//! which it asks over gRPC.

mod broker;
pub mod bundles;
mod call_figures;
mod consistent_regions;
pub mod controllers;
pub mod elasticity;
mod fair_semaphore;
pub mod fusion;
mod grpc;
pub mod grpc_apis;
mod long_objects;
mod made_by_job;
pub mod mirrors;
mod of_job;
mod option_values;
mod options;
mod owner;
pub mod pe_api;
mod pods_of_pe;
pub mod program;
mod run;
mod run_time;
mod service_endpoints;
pub mod settings;
mod start_hash;
mod status_changes;
mod subscription;
mod uid;
