//! Which wishes were refused while the next generation is looked for (rule elasticity-3). Pure.
//!
//! Of a thousand wishes that are all refused, each costs a search of its own. So the more were refused, the fewer are
//! tried together first, down to one alone; and whoever wants something of other regions does not wait for those that
//! want something of the same ones.
//!
//! Knows: wishes, numbers. Must not know: which sets of wishes are compiled.

use super::wishes::Wish;
use std::collections::BTreeSet;

/// From so many refused wishes on others do not wait until all that are at fault are found.
const MANY: u32 = 2;

/// Wishes that were refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Faults {
    count: u32,
    /// What they wanted something of.
    regions: BTreeSet<String>,
}

impl Faults {
    /// One that names these regions is refused.
    pub(super) fn note<'a>(&mut self, regions: impl Iterator<Item = &'a String>) {
        self.count = self.count.saturating_add(1);
        self.regions.extend(regions.cloned());
    }

    /// Whether the wish names a region that one which was refused has named.
    pub(super) fn is_shared_by(&self, wish: &Wish) -> bool {
        wish.widths.keys().any(|region| self.regions.contains(region))
    }

    /// Whether those that compile are to go on before all that are at fault are known.
    pub(super) fn are_many(&self) -> bool {
        self.count >= MANY
    }

    /// Of so many wishes, how many are tried together first, at most: half of them, and after many faults half as many
    /// with each.
    pub(super) fn most_at_first(&self, wishes: usize) -> usize {
        let halvings = self.count.saturating_sub(MANY).saturating_add(1);
        wishes.next_power_of_two().checked_shr(halvings).unwrap_or_default().max(1)
    }
}
