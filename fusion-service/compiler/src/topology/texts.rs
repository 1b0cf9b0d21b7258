//! How much text an expansion may write (rule expansion-33).
//!
//! Constants, subscriptions, locations and views are written once per channel, so a small document can ask for a lot of
//! memory. Each such text is charged when it is made. (Names are counted before any is made.)

use crate::budget::Limits;
use crate::error::{Error, Problem, Stage};

/// What is left of the texts of one topology.
pub(super) struct Texts {
    left: u64,
    most: u64,
}

impl Texts {
    /// What these texts may be of all documents: far more than programs have, far less than a process.
    const SHARE: u64 = 8;

    pub(super) fn new(limits: &Limits) -> Self {
        let most = limits.aadl_bytes / Self::SHARE;
        Self { left: most, most }
    }

    /// What a text costs besides its bytes.
    pub(super) const PER_TEXT: usize = 64;

    /// Asks for texts of so many bytes.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let message = format!("texts that differ between channels have more than {} bytes", self.most);
                Err(Problem::new(Stage::Topology, message).into())
            }
        }
    }

    /// Bytes that were asked for so far.
    pub(super) fn charged(&self) -> usize {
        usize::try_from(self.most - self.left).unwrap_or(usize::MAX)
    }
}
