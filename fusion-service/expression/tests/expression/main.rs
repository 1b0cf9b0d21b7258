//! Expressions as their users see them: evaluated, printed, and made of any text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod evaluation;
mod filters;
mod printing;
mod robustness;
