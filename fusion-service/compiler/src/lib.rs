//! The compiler of streams-operator.
//!
//! Data flows one way, down this list of modules. Each stage is a type and a pure function that takes the previous
//! stage's type:
//!
//! ```text
//! bytes --adl::parse--> logical::Application --topology::expand--> Topology
//!       --fuser::fuse--> Partition --> Elements --aadl--> text
//!       \______________ plan: submit, resize, layout _______________/
//! ```
//!
//! * [`adl`] knows XML and both dialects, nothing of what the elements mean together.
//! * [`logical`] is the application as written.
//! * [`topology`] is the application as it runs: one operator per channel, splitters, connections.
//! * [`fuser`] groups operators into PEs; it knows nothing of XML.
//! * [`elements`] gives PEs their ports and threads, and finds the PEs that a resize leaves as they are.
//! * [`aadl`] writes one document per PE.
//! * [`plan`] runs the stages for a submission and for a resize, and keeps numbers stable between them.
//! * [`explain`] explains to people why a job is compiled as it is.
//!
//! All stages use [`budget`] (what a compilation may cost; `sharing` divides work among the cores that it lends),
//! [`error`] (why a stage refuses its input), [`shared`] (what generations of a job have in common), [`heap`] (how many
//! bytes a value has) and [`phrase`] (counts and lists in sentences).
//!
//! Knows: ADL, operators, PEs, AADL. Must not know: files, arguments, gRPC, threads, Kubernetes. The dependencies of
//! the crate keep this border.

pub mod aadl;
pub mod adl;
pub mod budget;
pub mod elements;
pub mod error;
pub mod explain;
pub mod fuser;
mod heap;
pub mod logical;
pub mod phrase;
pub mod plan;
pub mod shared;
mod sharing;
pub mod topology;
