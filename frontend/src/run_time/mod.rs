//! What can be changed of exports and imports while jobs run, and what comes of it (rules pe-api-6 and import-8).
//!
//! The change is kept in `status.runTime` of the object (rule import-5). PEs ask for changes by REST, programs by gRPC;
//! what may be asked for is the same, and is said here.
//!
//! | Module | What it does |
//! |---|---|
//! | [`exports`] | makes other properties |
//! | [`imports`] | makes other subscriptions and filters |
//! | [`problem`] | why a change is refused |
//!
//! Knows: the fields of both kinds, which texts are well-formed, who forbids filters. Must not know: who asks, HTTP,
//! gRPC, how something is written.
//!
//! Invariants: nothing is made of a change that is refused; what is so already is no change; what a change takes grows
//! with what there is and with what is asked for, not with one times the other.

pub(crate) mod exports;
pub(crate) mod imports;
mod problem;

pub(crate) use self::problem::Problem;

/// Properties of an export, values of a property, streams by name of an import: the custom resources have no more.
pub(crate) const ENTRIES_MAX: usize = 1_024;
