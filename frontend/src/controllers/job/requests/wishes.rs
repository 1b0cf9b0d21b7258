//! What is wanted of regions, by whom, and in which order. Pure.

use super::super::generation::Target;
use std::collections::{BTreeMap, BTreeSet};

/// Who wants something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// Whoever edited the spec of the region with this name.
    Edit(String),
    /// The request with this number and name.
    Request(u64, String),
}

/// What somebody wants: all of it, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Who.
    pub(crate) author: Author,
    /// Widths by region.
    pub(crate) widths: BTreeMap<String, u32>,
    /// Operators are distributed anew.
    pub(crate) rebalances: bool,
}

/// Widths of all regions, to be compiled together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WidthSet {
    /// Widths by region.
    pub(crate) widths: BTreeMap<String, u32>,
    /// Operators are distributed anew.
    pub(crate) rebalances: bool,
}

impl WidthSet {
    /// What is compiled for this target, if it is no submission.
    pub(crate) fn of(target: &Target) -> Option<Self> {
        match target {
            Target::Submission { .. } => None,
            Target::Resize { widths, rebalances } => Some(Self { widths: widths.clone(), rebalances: *rebalances }),
        }
    }
}

/// Those of the wishes at these positions, in their order, oldest first, that count together: of several that name one
/// region only the newest counts, and one that does not count in one region counts in none. No two of them name the
/// same region.
pub(crate) fn counting(wishes: &[Wish], positions: impl DoubleEndedIterator<Item = usize>) -> Vec<usize> {
    let mut taken: BTreeSet<&String> = BTreeSet::new();
    let mut counting = Vec::new();
    for (position, wish) in positions.rev().filter_map(|position| Some((position, wishes.get(position)?))) {
        if wish.widths.keys().any(|region| taken.contains(region)) {
            continue;
        }
        taken.extend(wish.widths.keys());
        counting.push(position);
    }
    counting.reverse();
    counting
}

/// What wishes come to together of which no two name the same region.
pub(crate) fn union<'a>(applied: &BTreeMap<String, u32>, wishes: impl Iterator<Item = &'a Wish>) -> WidthSet {
    let mut set = WidthSet { widths: applied.clone(), rebalances: false };
    for wish in wishes {
        set.rebalances |= wish.rebalances;
        set.widths.extend(wish.widths.iter().map(|(region, width)| (region.clone(), *width)));
    }
    if set.widths == *applied {
        // Nothing is to be done.
        set.rebalances = false;
    }
    set
}

/// What these wishes, oldest first, come to together: the union of those that count.
pub(crate) fn combine(applied: &BTreeMap<String, u32>, wishes: &[Wish]) -> WidthSet {
    let counting = counting(wishes, 0..wishes.len());
    union(applied, counting.into_iter().filter_map(|position| wishes.get(position)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn widths(widths: &[(&str, u32)]) -> BTreeMap<String, u32> {
        widths.iter().map(|(region, width)| ((*region).to_owned(), *width)).collect()
    }

    pub(in super::super) fn request(number: u64, wanted: &[(&str, u32)]) -> Wish {
        Wish { author: Author::Request(number, format!("r{number}")), widths: widths(wanted), rebalances: false }
    }

    pub(in super::super) fn edit(region: &str, width: u32) -> Wish {
        Wish { author: Author::Edit(region.to_owned()), widths: widths(&[(region, width)]), rebalances: false }
    }

    #[test]
    fn the_newest_wish_for_a_region_counts_and_none_counts_by_halves() {
        let applied = widths(&[("A", 1), ("B", 1), ("C", 1)]);
        // wishes, oldest first -> widths of A, B and C
        let table: [(&[Wish], [u32; 3]); 6] = [
            (&[], [1, 1, 1]),
            (&[edit("A", 3), request(1, &[("A", 4)])], [4, 1, 1]),
            (&[request(1, &[("A", 4), ("B", 4)]), request(2, &[("C", 5)])], [4, 4, 5]),
            // The first is not whole any more.
            (&[request(1, &[("A", 4), ("B", 4)]), request(2, &[("B", 5)])], [1, 5, 1]),
            (&[edit("A", 3), request(1, &[("A", 4), ("B", 4)]), request(2, &[("B", 5)])], [3, 5, 1]),
            (&[request(1, &[("A", 4)]), request(2, &[("A", 5), ("B", 5)]), request(3, &[("B", 6)])], [4, 6, 1]),
        ];
        for (wishes, [a, b, c]) in table {
            assert_eq!(combine(&applied, wishes).widths, widths(&[("A", a), ("B", b), ("C", c)]), "{wishes:?}");
        }
    }

    #[test]
    fn operators_are_distributed_anew_if_a_wish_that_counts_says_so() {
        let applied = widths(&[("A", 1), ("B", 1)]);
        let anew = |number, wanted| Wish { rebalances: true, ..request(number, wanted) };
        // wishes -> whether
        let table = [
            (vec![anew(1, &[("A", 2)])], true),
            (vec![anew(1, &[("A", 2)]), request(2, &[("A", 3)])], false),
            (vec![anew(1, &[("A", 2)]), request(2, &[("B", 3)])], true),
            // Nothing changes.
            (vec![anew(1, &[("A", 1)])], false),
        ];
        for (wishes, expected) in table {
            assert_eq!(combine(&applied, &wishes).rebalances, expected, "{wishes:?}");
        }
    }
}
