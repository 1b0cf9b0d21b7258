//! Imports meet exports: the boards of all namespaces, kept as the mirrors are (the rules of `docs/rules/import.md`).
//!
//! ```text
//! mirrors of exports, imports, jobs ── facts ──► boards, one a namespace ──┬─► who asks for the routes of a PE
//!                                                                          └─► who tells PEs of new routes
//! ```
//!
//! | Module | What it does |
//! |---|---|
//! | [`facts`] | makes of an object what a board knows of it, or says why it cannot |
//! | [`arrivals`] | reads an object, before anybody waits for the board |
//! | [`namespace`] | what is known of one namespace, and which objects count |
//! | [`predecessors`] | ports of jobs that were made again, and who must not be told of them yet |
//! | [`boards`] | says what is known |
//! | [`shared_namespace`] | who looks at a namespace, and who reads a long object of it |
//! | [`one_look`] | looks at one object: reads it, puts it on the board, tells who has to hear of it |
//! | [`awaited_looks`] | which looks callers wait to make themselves, and whether they need not |
//! | [`looks`] | follows the mirrors: what is looked at because of an event, and how much of it |
//! | [`settling`] | finds out what matches, a little at a time |
//! | [`allowance`] | how much is done because of an event |
//! | [`texts`] | which ports the pod of a PE has |
//! | [`line`] | whose turn it is |
//! | [`until_settled`] | who looks again when that is found out |
//! | [`answers`] | what boards answer |
//! | `testing` | objects for tests of boards, and of whoever asks them |
//!
//! What matches what is the business of the crate `streams_broker`.
//!
//! Knows: the objects, which of them count. Must not know: how PEs are told, who asks, what conditions say.

mod allowance;
pub(crate) mod answers;
mod arrivals;
mod awaited_looks;
mod boards;
pub(crate) mod facts;
mod line;
mod looks;
mod namespace;
mod one_look;
pub(crate) mod predecessors;
mod settling;
mod shared_namespace;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod texts;
mod until_settled;

pub(crate) use self::boards::Boards;
pub(crate) use self::until_settled::UntilSettled;
