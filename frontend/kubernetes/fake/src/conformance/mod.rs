//! What is assumed of an API server, as one table of cases that a fake and a real one have to pass.
//!
//! A [`Case`] is a list of exchanges: calls of the port, each with the answer that it must get. Objects are written as
//! JSON. In it, `<uid a>`, `<version a>` and `<first version a>` stand for what the server answered about the object
//! `a`, so that preconditions can be stated without knowing the numbers.
//!
//! | Module | About |
//! |---|---|
//! | [`objects`] | names, versions, generation, the status, immutable ConfigMaps and Secrets |
//! | [`ownership`] | server-side apply: conflicts, owners of fields, fields that are removed |
//! | [`deletion`] | preconditions, finalizers, pods, garbage |
//! | [`exchange`] | the parts of a case |
//! | `sample` | a custom resource for the cases |
//! | `run` | carrying a case out |
//!
//! Knows: the port, answers. Must not know: which server answers.

pub mod deletion;
pub mod exchange;
pub mod objects;
pub mod ownership;
mod run;
mod sample;

pub use self::exchange::{Answer, Case, Exchange, SampleKind};
pub use self::run::{Patience, run};
pub use self::sample::{Sample, SampleSpec, SampleStatus, crd};

/// All cases.
pub fn cases() -> Vec<Case> {
    [objects::cases(), ownership::cases(), deletion::cases()].concat()
}
