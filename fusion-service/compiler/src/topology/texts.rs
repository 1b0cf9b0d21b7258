//! Bounds the texts that an expansion makes (rule expansion-33).
//!
//! Constants, subscriptions, locations and views exist once per channel, and many operators may refer to one
//! submission-time value or definition. So a small document can need a lot of memory. The expansion charges for each
//! such text before it makes it. (Names are counted before any is made.)

use crate::budget::Limits;
use crate::error::{Error, Problem, Stage};

/// The bytes that one topology may still use for texts.
pub(super) struct TextBudget {
    left: u64,
    most: u64,
}

impl TextBudget {
    /// The texts of a topology may have one in this many of the bytes that all documents may have. Applications need
    /// far less.
    const SHARE: u64 = 8;

    pub(super) fn new(limits: &Limits) -> Self {
        let most = limits.aadl_bytes / Self::SHARE;
        Self { left: most, most }
    }

    /// Bytes that are charged for a text besides its own.
    pub(super) const PER_TEXT: usize = 64;

    /// Charges for texts of this many bytes.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.exceeded()),
        }
    }

    /// The error for texts that have more bytes than there are.
    pub(super) fn exceeded(&self) -> Error {
        let message = format!("texts of channels, and expressions of imports, have more than {} bytes", self.most);
        Problem::new(Stage::Topology, message).into()
    }

    /// Bytes that may still be charged.
    pub(super) fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// Bytes that were charged so far.
    pub(super) fn charged(&self) -> usize {
        usize::try_from(self.most - self.left).unwrap_or(usize::MAX)
    }
}
