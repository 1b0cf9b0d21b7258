//! Sets of places of one side of the board.
//!
//! Two thousand exports that all go to two thousand imports are four million matches, so a match must cost little. The
//! places are numbered without gaps, so where many of them are in a set, they are neighbours: 64 that follow each other
//! are kept as the bits of one word, about a third of an octet each.
//!
//! Knows: numbers. Must not know: what has a place.

use std::collections::BTreeMap;

/// A place on a side of the board. That of the other side is another one.
pub(crate) type Id = usize;

/// Places that a word has room for.
const WORD: usize = u64::BITS as usize;

/// A set of places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    /// By the number of the word; none is zero.
    words: BTreeMap<usize, u64>,
    len: usize,
}

impl Ids {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        self.words.get(&(id / WORD)).is_some_and(|word| word & bit(id) != 0)
    }

    /// Adds a place. Whether it was not there.
    pub(crate) fn insert(&mut self, id: Id) -> bool {
        let word = self.words.entry(id / WORD).or_default();
        let is_new = *word & bit(id) == 0;
        *word |= bit(id);
        self.len += usize::from(is_new);
        is_new
    }

    /// Takes a place out. Whether it was there.
    pub(crate) fn remove(&mut self, id: Id) -> bool {
        let Some(word) = self.words.get_mut(&(id / WORD)).filter(|word| **word & bit(id) != 0) else { return false };
        *word &= !bit(id);
        if *word == 0 {
            self.words.remove(&(id / WORD));
        }
        self.len -= 1;
        true
    }

    /// Adds all of another set.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (number, added) in &other.words {
            let word = self.words.entry(*number).or_default();
            self.len += (added & !*word).count_ones() as usize;
            *word |= added;
        }
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Id> {
        self.words.iter().flat_map(|(number, word)| {
            let first = number * WORD;
            // Each step takes the last bit that is set.
            let rests = std::iter::successors(Some(*word), |rest| Some(rest & rest.wrapping_sub(1)));
            rests.take_while(|rest| *rest != 0).map(move |rest| first + rest.trailing_zeros() as usize)
        })
    }
}

/// The bit of a place in its word.
fn bit(id: Id) -> u64 {
    1 << (id % WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_is_a_set(changes in prop::collection::vec((0usize..200, 0u8..4), 0..300)) {
            let (mut ids, mut expected) = (Ids::default(), BTreeSet::new());
            for (id, change) in changes {
                match change {
                    0 | 1 => prop_assert_eq!(ids.insert(id), expected.insert(id)),
                    _ => prop_assert_eq!(ids.remove(id), expected.remove(&id)),
                }
                prop_assert_eq!(ids.iter().collect::<Vec<_>>(), expected.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!((ids.len(), ids.is_empty()), (expected.len(), expected.is_empty()));
                prop_assert_eq!(ids.contains(id), expected.contains(&id));
            }
        }

        #[test]
        fn a_union_has_what_is_in_either(one in any::<[u64; 4]>(), other in any::<[u64; 4]>()) {
            let set = |words: &[u64]| {
                let mut ids = Ids::default();
                (0..words.len() * WORD).filter(|id| words[id / WORD] & bit(*id) != 0).for_each(|id| _ = ids.insert(id));
                ids
            };
            let mut union = set(&one);
            union.extend(&set(&other));
            let expected: Vec<u64> = one.iter().zip(&other).map(|(one, other)| one | other).collect();
            prop_assert_eq!(union, set(&expected));
        }
    }
}
