//! How a controller talks to Kubernetes, whatever it controls.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`client`] | the stack that every call goes through: deadline, bounded retries, metrics |
//! | [`cluster`] | the port to the cluster: the verbs of the API server, the time, Events |
//! | [`writer`] | what controllers write through it: apply, create-or-match, compare-and-swap of a status, deletion |
//! | [`apply`] | whose an object is, and whether it may be written to |
//! | [`watch`] | one watch per kind and process: a mirror of the objects, and wake-ups |
//! | [`queue`] | keyed queues with bounded workers: nothing lost, never two workers on a key |
//! | [`events`] | Kubernetes Events, in the background |
//! | [`leadership`] | one replica leads, by a Lease |
//!
//! Knows: the API machinery, and Kubernetes' own kinds. Must not know: any custom resource. Names, indexes and
//! annotations are passed in.

pub mod apply;
pub mod client;
pub mod cluster;
pub mod error;
pub mod events;
mod key;
pub mod leadership;
pub mod metrics;
pub mod queue;
pub mod watch;
pub mod writer;

pub use error::Error;
pub use key::Key;
