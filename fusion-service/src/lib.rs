//! The fusion service: the compiler for those who call it.
//!
//! * [`command`] is for people and scripts without a cluster.
//! * [`server`] is for the frontend: gRPC, any number of equal replicas. [`serve`] is the subcommand that starts it.
//!
//! Both translate between their callers and the crate `streams_compiler`; neither uses the other. What both need stands
//! beside them: [`options`].
//!
//! Knows: the compiler, files, gRPC. Must not know: Kubernetes, how an application is compiled.

pub mod command;
pub mod options;
pub mod serve;
pub mod server;
