//! The Kubernetes side of streams-operator: custom resources, controllers and the elasticity API.
//!
//! It knows Kubernetes and nothing of ADL: what an application is made of is the business of the fusion service, which it asks over gRPC.

pub mod api;
pub mod bundles;
pub mod controllers;
pub mod elasticity;
pub mod fusion;
pub mod kubernetes;
pub mod metrics;
pub mod settings;
pub mod telemetry;
