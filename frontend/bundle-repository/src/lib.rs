//! Serves bundles to pods, by the part of the Redis protocol that the bootstrap of a PE speaks (the rules of
//! `docs/rules/repository.md`).
//!
//! The bootstrap is there already and asks a Redis server for the field of a hash. This is a server that answers it,
//! and the clients with which people look, and nothing else: it stores nothing, and what it serves is up to a
//! [`Repository`].
//!
//! | Module | What it does |
//! |---|---|
//! | [`settings`] | how much of everything there may be |
//! | [`repository`] | what is served, and to whom: a trait |
//! | [`request`] | from bytes to the arguments of a request |
//! | `inline` | a request that a person typed |
//! | `command` | what each command means |
//! | [`reply`] | from a reply to bytes |
//! | `connection` | one client, from its first byte to its last |
//! | `seats` | who has how many connections |
//! | `turns` | whose turn it is to be sent a bundle |
//! | `transfer` | sending a bundle piece by piece |
//! | `told` | what of clients is in the log |
//! | [`counters`] | figures |
//! | [`server`] | all clients, and the end |
//!
//! Knows: the protocol, sockets, bounds. Must not know: Kubernetes, jobs, where bundles come from.
//!
//! Invariants: no byte of a client is believed before memory is spent on it. A connection has one request and one piece
//! of a bundle in memory, however fast or slow its client is. Nothing that a client sends changes anything. Who asks
//! for a bundle gets that bundle, or the end of the connection: a bootstrap takes whatever it is sent for the bundle.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod command;
mod connection;
pub mod counters;
mod inline;
pub mod reply;
pub mod repository;
pub mod request;
mod seats;
pub mod server;
pub mod settings;
#[cfg(test)]
mod tests;
mod told;
mod transfer;
mod turns;

pub use counters::Counters;
pub use repository::{Found, Refusal, Repository, Tenant};
pub use server::Server;
pub use settings::Settings;
