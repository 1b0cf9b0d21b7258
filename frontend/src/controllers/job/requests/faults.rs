//! Which wishes were refused while the next generation is looked for (rule elasticity-3). Pure.
//!
//! Of a thousand wishes that are all refused, each costs a search of its own. So the more were refused, the fewer are
//! tried together first, down to one alone; and whoever wants something of other regions does not wait for those that
//! want something of the same ones. Nor does anybody wait for a region whose width is another one after each try: what
//! was found out about a set is of no use then, so nobody would ever be found to be at fault.
//!
//! Knows: wishes, sets that were refused. Must not know: which set is compiled next.

use super::wishes::{WidthSet, Wish};
use std::collections::BTreeSet;
use std::sync::Arc;

/// From so many refused wishes on others do not wait until all that are at fault are found.
const MANY: u32 = 2;
/// From so many refused sets on it is not waited for that a region keeps its width.
const IN_A_ROW: u32 = 2;

/// Wishes that were refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Faults {
    count: u32,
    /// What they wanted something of.
    regions: BTreeSet<String>,
    /// Sets that were refused since.
    sets: u32,
    /// The last one of them.
    last: Option<Arc<WidthSet>>,
}

impl Faults {
    /// A wish that names these regions is refused.
    pub(super) fn note<'a>(&mut self, regions: impl Iterator<Item = &'a String>) {
        self.count = self.count.saturating_add(1);
        self.regions.extend(regions.cloned());
        (self.sets, self.last) = (0, None);
    }

    /// A set is refused, or its compilation comes to no end.
    pub(super) fn note_set(&mut self, set: &Arc<WidthSet>) {
        (self.sets, self.last) = (self.sets.saturating_add(1), Some(Arc::clone(set)));
    }

    /// Whether the wish names a region that one which was refused has named.
    pub(super) fn is_shared_by(&self, wish: &Wish) -> bool {
        wish.widths.keys().any(|region| self.regions.contains(region))
    }

    /// Regions to which something else is wanted to happen than what was refused last, if nobody at fault is found for
    /// long. `all` is what is wanted now.
    pub(super) fn unsteady<'a>(&self, all: &'a WidthSet) -> BTreeSet<&'a str> {
        let Some(last) = self.last.as_ref().filter(|_| self.sets >= IN_A_ROW) else { return BTreeSet::new() };
        let differs = |(region, width): &(&String, &u32)| last.widths.get(*region) != Some(*width);
        all.widths.iter().filter(differs).map(|(region, _)| region.as_str()).collect()
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
