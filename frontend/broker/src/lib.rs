//! The broker: which exported streams the importing ports of PEs receive (the rules of `docs/rules/import.md`).
//!
//! An export is an output port of a PE whose tuples others may have; an import is an input port that asks for such
//! ports, by name or by their properties. The [`Board`] knows all exports and imports of one namespace, and says after
//! each change whose [`Routes`] have become others. Once it is settled, it is a pure function of the exports and
//! imports that it was given last, whatever came before.
//!
//! | Module | What it does |
//! |---|---|
//! | [`port`] | PEs and their ports, and how they are named |
//! | [`fact`] | exports and imports: what is known of them, and what matches what |
//! | [`trial`] | exports and imports that are tried with each other, apart from the board |
//! | `ids` | sets of places of one side |
//! | `side` | one side of the board: all exports, or all imports, found by what a match needs |
//! | [`asked`] | what imports and exports ask for, which they share, and for which there is so much room |
//! | [`board`] | both sides, and the matches between them |
//! | [`matched`] | what a PE matches, apart from the board |
//! | [`routes`] | what a PE is told, and the bytes that tell it |
//!
//! Knows: the language of subscriptions. Must not know: Kubernetes, jobs that come and go, who asks, and how PEs are
//! told.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

pub mod asked;
pub mod board;
pub mod fact;
mod ids;
pub mod matched;
pub mod port;
pub mod routes;
mod side;
pub mod trial;

pub use asked::NoRoom;
pub use board::{Board, Changes, TooCostly, TooManySteps};
pub use fact::{Application, Export, Import, NamedStream, Subscription};
pub use matched::{Matched, Receivers};
pub use port::{Pe, Port};
pub use routes::{Routes, TooManyRoutes};
pub use trial::{Trial, Tried};
