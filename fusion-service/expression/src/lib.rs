//! The SPL expression language of subscriptions and filters (the rules of
//! `docs/rules/expression.md`).
//!
//! An import selects streams by an expression over the properties of exports: `kind == "bargains" && price > 10.5`. The
//! compiler puts in the channel numbers, folds what is constant and prints the rest canonically; the frontend's broker
//! evaluates what was printed against the properties of every export.
//!
//! ```
//! use spl_expression::{Expression, Intrinsics, Limits, Properties, Value};
//!
//! let written = Expression::parse("n  ==  getChannel() + 1 && b", &Limits::default())?;
//! let inside = Intrinsics { channel: 4, max_channels: 8, local_channel: 0, local_max_channels: 2 };
//! let folded = written.substitute_and_fold(&inside)?;
//! assert_eq!(folded.to_string(), "n == 5 && b");
//!
//! let properties: Properties = [("n", Value::Int64(5.into())), ("b", Value::Boolean(true))].into_iter().collect();
//! assert!(folded.matches(&properties));
//! # Ok::<(), spl_expression::Error>(())
//! ```
//!
//! A text becomes tokens (`token`), then a tree in an arena (`parser`, `expression`); `folding` makes a smaller tree of
//! it (`prepared`: one for each of many channels), `evaluation` a value; both ask `operation` what an operator does.
//! `necessity` says which properties an expression cannot be true without, so that not each has to be tried; `filter`
//! which texts PEs can read as filters. Beside them stand the textual substitutions for texts that are no expressions
//! (`substitution`) and numbers as Java writes them (`java`).
//!
//! Knows nothing of ADL, jobs, exports or Kubernetes. Invariants: printing and reading again as the same (expression or
//! filter) gives the same text; no input makes it recurse or spend more than a bound; the same input gives the same
//! result.

mod evaluation;
mod expression;
mod fault;
mod filter;
mod folding;
mod integer;
mod java;
mod necessity;
mod operation;
mod parser;
mod prepared;
mod substitution;
mod token;
mod value;

pub use evaluation::{Evaluation, Selected, Selection};
pub use expression::Expression;
pub use filter::is_no_filter;
pub use folding::Folded;
pub use integer::Integer;
pub use java::{java_double, java_float};
pub use necessity::{Need, Needs, Scalar};
pub use prepared::Prepared;
pub use substitution::{Intrinsics, LocationError, RegionChannel, substitute_intrinsics, substitute_location};
pub use value::{List, Properties, PropertyType, ScalarType, Value, ValueError};

/// Bounds on an expression (rule expression-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of the text.
    pub length: usize,
    /// Parentheses, subscripts, calls and casts within each other.
    pub depth: usize,
    /// Operands and operators.
    pub nodes: usize,
}

impl Limits {
    /// For an expression that is kept to be evaluated. Where properties are not uncommonly large, one of more operands
    /// and operators than that could never be evaluated to its end.
    #[must_use]
    pub fn of_evaluation() -> Self {
        Self { nodes: evaluation::MOST_NODES, ..Self::default() }
    }
}

impl Default for Limits {
    /// 1 MiB, the limit of an attribute of the ADL, and 256 levels; as many operands and operators as fit.
    fn default() -> Self {
        Self { length: 1 << 20, depth: 256, nodes: usize::MAX }
    }
}

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset}: {message}")]
pub struct Error {
    /// One sentence without a full stop.
    pub message: String,
    /// Octets before the place in the expression.
    pub offset: usize,
}
