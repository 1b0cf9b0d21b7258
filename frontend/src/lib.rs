//! The Kubernetes side of streams-operator: controllers, the gRPC APIs, and what running PEs ask.
//!
//! It knows Kubernetes and nothing of ADL: what an application is made of is the business of the fusion service, which
//! it asks over gRPC.
//!
//! The custom resources are the crate `streams_api`; how any controller talks to Kubernetes is the crate
//! `streams_kubernetes`.

mod broker;
pub mod bundles;
mod call_figures;
mod consistent_regions;
pub mod controllers;
pub mod elasticity;
mod fair_semaphore;
pub mod fusion;
mod grpc;
pub mod mirrors;
mod of_job;
mod options;
mod owner;
pub mod pe_api;
pub mod program;
mod run;
mod run_time;
mod service_endpoints;
pub mod settings;
mod status_changes;
mod subscription;
