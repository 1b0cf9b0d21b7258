//! How much text an expansion may write.
//!
//! Names, constants and subscriptions are written once per channel, so a small document can ask for a lot of memory. Each text that
//! the topology keeps is charged before it is made.

use crate::budget::Limits;
use crate::error::{Error, Problem, Stage};

/// What is left of the texts of one topology.
pub(super) struct Texts {
    left: u64,
    most: u64,
}

impl Texts {
    /// Every text of the topology is in some document, most of them several times; so an eighth of what all documents may have is
    /// never reached by an application that could be written out.
    const SHARE: u64 = 8;

    pub(super) fn new(limits: &Limits) -> Self {
        let most = limits.aadl_bytes / Self::SHARE;
        Self { left: most, most }
    }

    /// Asks for a text of so many bytes.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let message = format!("names and other texts of all operators have more than {} bytes", self.most);
                Err(Problem::new(Stage::Topology, message).into())
            }
        }
    }
}
