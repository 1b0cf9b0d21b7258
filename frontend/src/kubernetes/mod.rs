//! How the process talks to Kubernetes; the same for every controller.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`client`] | the stack that every call goes through: deadline, bounded retries, metrics |
//! | [`apply`] | writing desired state: server-side apply, create-or-match, compare-and-swap of a status, deletion |
//! | [`watch`] | one watch per kind and process: a mirror of the objects, and wake-ups |
//! | [`mirrors`] | all shared watches of the process |
//! | [`queue`] | keyed queues with bounded workers: nothing lost, never two workers on a key |
//! | [`events`] | Kubernetes Events, in the background |
//! | [`leadership`] | one replica leads, by a Lease |
//!
//! Knows: the API machinery. Must not know: what a job is; the labels that the mirrors are indexed by are the only exception.

pub mod apply;
pub mod client;
pub mod error;
pub mod events;
mod key;
pub mod leadership;
pub mod mirrors;
pub mod queue;
pub mod watch;

pub use error::Error;
pub use key::Key;
