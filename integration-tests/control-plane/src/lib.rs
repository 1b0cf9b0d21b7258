//! A Kubernetes control plane of its own on this machine, and the means to run other programs beside it: for
//! development, demos, soak runs and tests.
//!
//! ```text
//!   whoever uses this crate
//!        |  starts, through one supervisor each
//!        v
//!   process:  Supervisor > Program > Process      nothing outlives the process that started it
//!        |
//!        +-- ControlPlane: etcd <- kube-apiserver <- kube-controller-manager, kube-scheduler, kwok
//!                binaries: KUBEBUILDER_ASSETS, else the cache directory, else built with Go
//!
//!   wait:     conditions with a deadline
//!   stop:     a request to stop (Ctrl-C, SIGTERM)
//!   progress: what a long step is doing, on stderr
//! ```
//!
//! The program `control-plane` (`src/main.rs`) is the same for work by hand; `README.md` beside it says how to use it.
//!
//! Knows: how programs are run, Kubernetes as a client and an administrator know it. Must not know: jobs, PEs or any
//! other kind of this project; custom resource definitions come from the caller.
//!
//! Invariants:
//! * Every program is started by a supervisor. However the process that uses this crate ends (return, panic, Ctrl-C,
//!   SIGKILL), the programs end with it and their state directory is removed.
//! * Nothing waits without a deadline, and whoever gives up says what was seen last.
//! * Nothing is tied to the asynchronous runtime in which it was started, so that tests with a runtime each can share
//!   one control plane.

pub mod binaries;
mod control_plane;
pub mod process;
pub mod progress;
pub mod stop;
pub mod wait;

pub use control_plane::{CONTEXT, Component, ControlPlane, Options, User, client};
