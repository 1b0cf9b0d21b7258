//! The whole system on one machine: the services of the project as processes, against a control plane that
//! `streams-control-plane` starts.
//!
//! ```text
//!   demo:     all of it, doing the main job once
//!   soak:     all of it, for long, while parts of it die
//!     |
//!     v
//!   system:   replicas of the fusion service and a frontend, as processes; what they have brought about
//!   running:  jobs whose PEs run, as doubles; what becomes of their tuples
//!   sample:   the project's own application
//!   balancer: a sample of a load balancer
//!   faults:   calls of a frontend of the tests that fail as they are told to
//!   traces:   a collector of the spans that services send
//!   cargo:    this workspace's own programs, built by the running cargo
//! ```
//!
//! What the services promise is checked by the tests of this package, which use the same modules.
//!
//! Knows: how the services are run, what a job consists of as its users see it. Must not know: how the services work
//! inside.

pub mod balancer;
pub mod cargo;
pub mod demo;
pub mod faults;
pub mod running;
pub mod sample;
pub mod soak;
pub mod system;
pub mod traces;
