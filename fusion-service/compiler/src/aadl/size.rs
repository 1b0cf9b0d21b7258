//! The limits on the documents of a job together, and on what they have in common (rules aadl-21 and service-13).

use crate::budget::Limits;
use crate::error::{Problem, Stage};

/// The limit on all documents of a job (rule aadl-21).
pub(super) fn too_much_text() -> Problem {
    Problem::new(
        Stage::Topology,
        "the AADL documents of the job are too large: widths are too large, or there are too many PEs",
    )
}

/// The fragments of a job so far: of operators, of channels, of tables. Operators may share a text that each of their
/// fragments has, and escaping makes texts longer, so fragments may be far larger than the ADL.
pub(super) struct FragmentSize {
    most: u64,
    left: u64,
}

impl FragmentSize {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { most: limits.fragment_bytes(), left: limits.fragment_bytes() }
    }

    /// Bytes of all fragments so far.
    pub(super) fn bytes(&self) -> u64 {
        self.most - self.left
    }

    /// Bytes that further fragments may have.
    pub(super) fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// Adds fragments of this many bytes together.
    ///
    /// # Errors
    ///
    /// All fragments so far are too large.
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), Problem> {
        self.left = self.left.checked_sub(bytes).ok_or_else(too_much_text)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_a_part_of_what_documents_have() {
        for (aadl_bytes, sizes, fits) in [
            (64 << 20, vec![4 << 20, 4 << 20], true),
            (64 << 20, vec![4 << 20, 4 << 20, 1], false),
            (64 << 20, vec![9 << 20], false),
            // Where the limit is small, all of it.
            (100, vec![50, 50], true),
            (100, vec![50, 51], false),
        ] {
            let mut size = FragmentSize::new(&Limits { aadl_bytes, ..Limits::default() });
            assert_eq!(sizes.iter().all(|bytes| size.add(*bytes).is_ok()), fits, "{sizes:?} of {aadl_bytes}");
        }
    }
}
