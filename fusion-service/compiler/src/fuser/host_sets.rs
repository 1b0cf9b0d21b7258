//! Sets of hosts: those that pools declare, and what several of them have in common.
//!
//! Operators that share a host or a PE run where all their pools allow it, and there may be a different set for each
//! pair of pools. So the hosts of all sets are counted (rule service-13), each set is kept once, and going through
//! hosts asks the budget.

use super::symbols::Symbol;
use crate::budget::{Limits, Pace};
use crate::error::{Error, Problem, Stage};
use indexmap::IndexSet;
use std::collections::HashMap;
use std::sync::Arc;

/// A set of hosts. Equal sets have equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostSet(u32);

/// Distinct sets of hosts, numbered, with what is known of pairs of them.
#[derive(Clone)]
pub(super) struct HostSets {
    /// Each ascending.
    sets: IndexSet<Arc<[Symbol]>>,
    /// Room for further hosts.
    left: u64,
    most: u64,
    intersections: HashMap<(HostSet, HostSet), HostSet>,
    /// Whether two sets have a host in common. Whoever tries many pairs needs no more, and makes no set of each.
    meet: HashMap<(HostSet, HostSet), bool>,
}

/// Pairs of sets of which something is remembered: 30 MB. Two sets are asked for whenever a PE tries a unit, and the
/// answer is the same if it is found again.
const MOST_REMEMBERED: usize = 1_000_000;

impl HostSets {
    pub(super) fn new(limits: &Limits) -> Self {
        let most = limits.hosts_in_sets();
        Self { sets: IndexSet::new(), left: most, most, intersections: HashMap::new(), meet: HashMap::new() }
    }

    /// The number of the set of these hosts.
    ///
    /// # Errors
    ///
    /// Stage `compose`: the sets have too many hosts. Or the budget ends.
    pub(super) fn intern(&mut self, mut hosts: Vec<Symbol>, pace: &mut Pace<'_>) -> Result<HostSet, Error> {
        pace.steps(steps(hosts.len()))?;
        hosts.sort_unstable();
        hosts.dedup();
        if let Some(known) = self.sets.get_index_of(hosts.as_slice()) {
            return Ok(HostSet(known as u32));
        }
        self.left = self.left.checked_sub(hosts.len() as u64).ok_or_else(|| {
            let message = format!(
                "host pools, and what those of operators that share a host have in common, have more than {} hosts",
                self.most
            );
            Problem::new(Stage::Compose, message)
        })?;
        // No more sets than hosts, and an empty one.
        Ok(HostSet(self.sets.insert_full(hosts.into()).0 as u32))
    }

    pub(super) fn is_empty(&self, set: HostSet) -> bool {
        self.hosts(set).is_empty()
    }

    /// The hosts that are in both sets.
    ///
    /// # Errors
    ///
    /// As for [`HostSets::intern`].
    pub(super) fn intersection(&mut self, a: HostSet, b: HostSet, pace: &mut Pace<'_>) -> Result<HostSet, Error> {
        let key = (a.min(b), a.max(b));
        if a == b {
            return Ok(a);
        }
        if let Some(&known) = self.intersections.get(&key) {
            return Ok(known);
        }
        let (few, many) = self.by_size(a, b);
        pace.steps(steps(few.len()))?;
        let common = few.iter().copied().filter(|host| many.binary_search(host).is_ok()).collect();
        let common = self.intern(common, pace)?;
        if self.has_room() {
            self.intersections.insert(key, common);
        }
        Ok(common)
    }

    /// Whether some host is in both sets. No set is made of such hosts, so they do not count (rule
    /// service-13).
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn have_common(&mut self, a: HostSet, b: HostSet, pace: &mut Pace<'_>) -> Result<bool, Error> {
        let key = (a.min(b), a.max(b));
        if a == b {
            return Ok(!self.is_empty(a));
        }
        if let Some(&known) = self.meet.get(&key) {
            return Ok(known);
        }
        let (few, many) = self.by_size(a, b);
        pace.steps(steps(few.len()))?;
        let meet = few.iter().any(|host| many.binary_search(host).is_ok());
        if self.has_room() {
            self.meet.insert(key, meet);
        }
        Ok(meet)
    }

    fn has_room(&self) -> bool {
        self.intersections.len() + self.meet.len() < MOST_REMEMBERED
    }

    /// The hosts of two sets, those of the smaller one first.
    fn by_size(&self, a: HostSet, b: HostSet) -> (&[Symbol], &[Symbol]) {
        let (a, b) = (self.hosts(a), self.hosts(b));
        if a.len() <= b.len() { (a, b) } else { (b, a) }
    }

    fn hosts(&self, set: HostSet) -> &[Symbol] {
        self.sets.get_index(set.0 as usize).map_or(&[][..], |hosts| &**hosts)
    }
}

/// How long it takes to go through hosts, in steps of a [`Pace`].
fn steps(hosts: usize) -> u32 {
    u32::try_from(hosts).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use cranelift_entity::EntityRef;

    fn hosts(numbers: std::ops::Range<usize>) -> Vec<Symbol> {
        numbers.map(Symbol::new).collect()
    }

    /// Sets that have room for so many hosts.
    fn sets(most: u64) -> HostSets {
        HostSets { left: most, most, ..HostSets::new(&Limits::default()) }
    }

    #[test]
    fn hosts_of_all_sets_are_counted_once_for_each_set() {
        let (budget, mut sets) = (Budget::default(), sets(25));
        let mut pace = budget.pace();
        let a = sets.intern(hosts(0..10), &mut pace).unwrap();
        let b = sets.intern(hosts(5..15).into_iter().rev().chain(hosts(5..15)).collect(), &mut pace).unwrap();
        let common = sets.intersection(a, b, &mut pace).unwrap();
        // What is known counts no more, whichever way it is asked for.
        assert_eq!(sets.intersection(b, a, &mut pace), Ok(common));
        assert_eq!(sets.intern(hosts(5..10), &mut pace), Ok(common));
        let nothing = sets.intern(Vec::new(), &mut pace).unwrap();
        assert!(sets.is_empty(nothing) && !sets.is_empty(common));
        let error = sets.intern(hosts(6..7), &mut pace).unwrap_err();
        assert_eq!((error.problems()[0].stage, sets.left), (Stage::Compose, 0), "{error}");
    }

    #[test]
    fn whether_sets_have_a_host_in_common_is_found_out_without_a_set() {
        let (budget, mut sets) = (Budget::default(), sets(30));
        let mut pace = budget.pace();
        let [a, b, c] = [0..10, 5..15, 15..25].map(|numbers| sets.intern(hosts(numbers), &mut pace).unwrap());
        let nothing = sets.intern(Vec::new(), &mut pace).unwrap();
        for (one, other, expected) in
            [(a, b, true), (b, a, true), (a, c, false), (c, a, false), (a, a, true), (a, nothing, false)]
        {
            assert_eq!(sets.have_common(one, other, &mut pace), Ok(expected), "{one:?}, {other:?}");
        }
        assert!(!sets.have_common(nothing, nothing, &mut pace).unwrap());
        // There was no room for a further host.
        assert!(sets.intersection(a, b, &mut pace).is_err());
    }

    #[test]
    fn hosts_are_gone_through_within_the_budget() {
        let (endless, cancelled) = (Budget::default(), Budget::cancelled());
        let mut sets = sets(100_000);
        let mut set = |numbers| sets.intern(hosts(numbers), &mut endless.pace()).unwrap();
        let (a, b) = (set(0..10_000), set(1..10_000));
        assert_eq!(sets.intersection(a, b, &mut cancelled.pace()), Err(Error::Cancelled));
        assert_eq!(sets.have_common(a, b, &mut cancelled.pace()), Err(Error::Cancelled));
        assert_eq!(sets.intern(hosts(0..10_000), &mut cancelled.pace()), Err(Error::Cancelled));
    }
}
