//! What the expansion finds wrong, collected.

use crate::error::{Error, Problem};

/// Problems in the order in which they were found; a bounded number of them.
#[derive(Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    const MOST: usize = 100;

    pub(super) fn push(&mut self, problem: Problem) {
        if self.0.len() < Self::MOST {
            self.0.push(problem);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends a step: an error if there is any problem.
    pub(super) fn into_result(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Rejected(self.0)) }
    }
}
