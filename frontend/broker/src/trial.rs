//! Exports and imports that are tried with each other apart from the board, by whoever has the time.
//!
//! A trial may cost what a subscription may cost. Whoever makes many of them takes them from the board, and gives back
//! what comes of them, so that the board is there for others meanwhile.
//!
//! Knows: two facts, where they were found. Must not know: the board, which may be another one by then.
//!
//! Invariant: a trial ends, whatever is tried: a panic counts as what does not match.

use crate::fact::{Export, Import, Outcome, PAIR_STEPS, tried};
use crate::ids::Id;
use crate::port::Port;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// An export and an import that are to be tried with each other.
#[derive(Debug)]
pub struct Trial {
    pub(crate) export: (Id, Arc<Export>),
    pub(crate) import: (Id, Arc<Import>),
}

/// What came of a trial.
#[derive(Debug)]
pub struct Tried {
    pub(crate) trial: Trial,
    pub(crate) outcome: Outcome,
    steps: usize,
    has_panicked: bool,
}

impl Trial {
    /// Tries the two.
    #[must_use]
    pub fn run(self) -> Tried {
        self.run_by(tried)
    }

    /// Tries the two in this way.
    pub(crate) fn run_by(self, tried: impl FnOnce(&Export, &Import) -> (Outcome, usize)) -> Tried {
        let (export, import) = (&self.export.1, &self.import.1);
        // Both stay as they are, so nothing is left half done.
        let done = catch_unwind(AssertUnwindSafe(|| tried(export, import)));
        let has_panicked = done.is_err();
        let (outcome, steps) = done.unwrap_or((Outcome::Differs, PAIR_STEPS));
        Tried { trial: self, outcome, steps, has_panicked }
    }
}

impl Tried {
    /// What it has taken, in steps of evaluations.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The ports that were tried, if that panicked.
    pub(crate) fn panicked(&self) -> Option<(Port, Port)> {
        let Trial { export, import } = &self.trial;
        self.has_panicked.then(|| (export.1.port.clone(), import.1.port.clone()))
    }
}
