//! How a controller talks to Kubernetes, whatever it controls.
//!
//! | Module | What it is for | Specified in |
//! |---|---|---|
//! | [`client`] | the stack that every call goes through: deadline, bounded retries, metrics | rules call-1 to call-3 |
//! | [`client::configuration`] | which API server a program outside of a cluster talks to, and through which proxy | |
//! | [`cluster`] | the interface (a trait) to the cluster: the verbs of the API server, the time, Events | |
//! | [`delivered`] | an object as the API server delivers it, which perhaps cannot be read | rule call-6 |
//! | [`error`] | errors of calls, one for each way to react | rule call-4 |
//! | [`writer`] | writes: apply, create or match, compare-and-swap of a status, deletion | rules call-8 to call-11 |
//! | [`ownership`] | before a write: which object controls the object, and whether it may be written to | rule call-8 |
//! | [`drift`] | what others changed of the fields that a controller sets | rule call-19 |
//! | [`watch`] | one watch per kind and process: a mirror of the objects, and wake-ups | rules call-5 and call-6 |
//! | [`queue`] | keyed queues with bounded workers: nothing lost, never two workers on a key | rule call-7 |
//! | [`gate`] | how many calls there are at the same time, and which go first | rules call-22 and call-23 |
//! | `making_way` | work that has failed again and again: none of its calls goes first | rule call-22 |
//! | [`wait`] | waits that are worth a span | rule name-11 |
//! | [`stopwatch`] | how long work was worked on, without its waits | rule job-18 |
//! | [`leadership`] | one replica leads, by a Lease | rules call-12 and call-13 |
//! | [`events`] | Kubernetes Events, in the background | rule call-14 |
//! | [`metrics`] | counters of all of these | |
//! | [`few_lines`] | how often the log tells of what others can bring about at will | rules call-6 and call-14 |
//! | [`spare_room`] | room that maps give back | rule call-20 |
//! | `key` | namespace and name of an object | |
//! | [`object_names`] | what can be the name of an object | rule call-31 |
//!
//! Knows: the API machinery, and Kubernetes' own kinds. Must not know: any custom resource. Names, indexes and
//! annotations are passed in.

pub mod client;
pub mod cluster;
pub mod delivered;
pub mod drift;
pub mod error;
pub mod events;
pub mod few_lines;
pub mod gate;
mod key;
pub mod leadership;
mod making_way;
pub mod metrics;
pub mod object_names;
pub mod ownership;
pub mod queue;
pub mod spare_room;
pub mod stopwatch;
pub mod wait;
pub mod watch;
pub mod writer;

pub use error::Error;
pub use key::Key;
