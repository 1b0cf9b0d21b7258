//! Pods become processes: against a control plane in which nobody else plays kubelet.
//!
//! `cargo test --workspace --test node_agent`, as root on Linux: the first agent adds a route to this machine.

mod ends;
mod names;
mod starts;
mod support;
