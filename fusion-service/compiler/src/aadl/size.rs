//! The limits on the documents of a job together, and on what they have in common (rules aadl-21 and service-13).

use crate::budget::{Budget, Limits};
use crate::error::{Problem, Stage};

/// The limit on all documents of a job (rule aadl-21).
pub(super) fn too_much_text() -> Problem {
    Problem::new(
        Stage::Topology,
        "the AADL documents of the job are too large: widths are too large, or there are too many PEs",
    )
}

/// The limit on what documents have in common (rule service-13), in which there is no room for this any more. It may be
/// small itself: others have taken the room.
pub(super) fn too_much_in_common(what: &str) -> Problem {
    let message = format!("what the AADL documents of the job have in common is too large: no room is left for {what}");
    Problem::new(Stage::Topology, message)
}

/// What a fragment may have and take.
#[derive(Clone, Copy)]
pub(super) struct Room<'b> {
    /// Bytes of text.
    pub(super) bytes: usize,
    /// Asked while its parts are written. Without one, they are.
    pub(super) budget: Option<&'b Budget>,
}

impl Room<'_> {
    /// For a handful of texts, or for what is counted already.
    pub(super) const ENOUGH: Self = Self { bytes: usize::MAX, budget: None };
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

    /// What further fragments may have, so many times.
    pub(super) fn room<'b>(&self, times: u64, budget: &'b Budget) -> Room<'b> {
        Room { bytes: usize::try_from(self.left / times).unwrap_or(usize::MAX), budget: Some(budget) }
    }

    /// Adds fragments of this many bytes together, which are of this.
    ///
    /// # Errors
    ///
    /// All fragments so far are too large.
    pub(super) fn add(&mut self, bytes: u64, what: impl FnOnce() -> String) -> Result<(), Problem> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| too_much_in_common(&what()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_one_too_many_is_said_to_have_no_room_and_not_to_be_too_large() {
        let mut size = FragmentSize::new(&Limits { aadl_bytes: 64 << 20, ..Limits::default() });
        size.add(8 << 20, || "operator A".to_owned()).unwrap();
        let problem = size.add(10, || "tuple type 3".to_owned()).unwrap_err();
        let said = "what the AADL documents of the job have in common is too large: no room is left for tuple type 3";
        assert!(problem.to_string().contains(said), "{problem}");
    }

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
            assert_eq!(
                sizes.iter().all(|bytes| size.add(*bytes, String::new).is_ok()),
                fits,
                "{sizes:?} of {aadl_bytes}"
            );
        }
    }
}
