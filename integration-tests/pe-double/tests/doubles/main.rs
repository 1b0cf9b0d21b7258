//! Doubles on local addresses, beside a peer that answers as the contract of the operator says.
//!
//! `cargo test --workspace --test doubles`. The documents of the PEs are written by the compiler, so the double reads
//! what real PEs read. The addresses are of the loopback network, of which any can be used without asking; whoever
//! tells PEs apart by their address needs others.

mod pipelines;
mod regions;
mod routes;
mod world;
