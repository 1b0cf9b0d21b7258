//! The files of one step as the command `plan` writes them: a document per PE and `context.json`.
//!
//! [`step`] reads them, with every reference to a PE port resolved; [`tree`] and [`context`] say how two results
//! differ; [`sound`] says what is wrong with one, whatever the expected result is.
//!
//! Knows: the form of the files. Must not know: how they are made.

pub mod context;
pub mod sound;
pub mod step;
pub mod tree;
