//! Jobs whose PEs run: a node agent plays the kubelet, doubles play the runtime of PEs.
//!
//! ```text
//!   agent:       nodes whose pods are doubles
//!   pes:         what the PEs of a job say of themselves, and waiting until they say something else
//!   connections: which connections stayed while PEs came and went
//!   ledger:      tuples made, arrived, lost, on the way, over all launches of the PEs of a job
//! ```
//!
//! The machine must be able to give pods addresses ([`possible`]).
//!
//! Knows: what doubles show of themselves, what the objects of a job say of its PEs. Must not know: who looks, and what
//! for. Invariants: whoever looks changes nothing; every look has a deadline.

pub mod agent;
pub mod connections;
pub mod ledger;
pub mod pes;

pub use streams_node_agent::can_have_addresses as possible;
