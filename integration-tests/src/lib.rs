//! A real control plane for tests and demo, and what is needed to run programs against it.
//!
//! ```text
//!   test binary, demo, soak
//!        |  starts, by way of a supervisor each
//!        v
//!   process:  Supervisor > Program > Process      nothing outlives the process that started it
//!        |
//!        +-- control_plane: etcd <- kube-apiserver <- kube-controller-manager, kube-scheduler, kwok
//!        |       binaries: KUBEBUILDER_ASSETS, else the cache directory, else built with Go
//!        +-- cargo: this workspace's own programs, built by the running cargo
//!
//!   sample:   the project's own application
//!   system:   replicas of the fusion service and a frontend, as processes
//!   demo:     all of it, doing the main job once
//!   soak:     all of it, for long, while parts of it die
//!   stop:     being asked to stop
//!   wait:     conditions with a deadline
//!   progress: what a long step is doing, on stderr
//! ```
//!
//! The crate knows how to run things, and Kubernetes as a client knows it. It does not know what the operator does: that belongs to the tests.
//!
//! Invariants:
//! * Every program is started by a supervisor. However the process that uses this crate ends (return, panic, Ctrl-C, SIGKILL), the programs
//!   end with it and their state directory is removed.
//! * Nothing waits without a deadline, and whoever gives up says what was seen last.
//! * Nothing is tied to the asynchronous runtime in which it was started, so that tests with a runtime each share one control plane.

pub mod cargo;
pub mod control_plane;
pub mod demo;
pub mod process;
pub mod progress;
pub mod sample;
pub mod soak;
pub mod stop;
pub mod system;
pub mod wait;
