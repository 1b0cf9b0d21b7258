//! How much of something may go on at the same time, so that nobody takes all of it (rule elasticity-27).
//!
//! There are so many places in all. Whoever has some belongs to a *group*, such as a namespace, and is *one* of it,
//! such as a job or an address. One has so many at most. A group gets another place only while it has fewer than a
//! third of those that are free. So a group has a quarter of all places at most, and less when others have some, too;
//! and one that has none gets one as long as there is any.
//!
//! Knows: numbers. Must not know: what has a place, what groups are.
//!
//! Invariants: a [`Place`] is counted as long as it lives. A group that has none takes no memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For each place that a group has, so many are free when it gets another one.
const FREE_FOR_EACH: usize = 3;

/// Counts what goes on. Cheap to clone; all clones are the same.
pub struct Places<G, O> {
    most: usize,
    most_of_one: usize,
    taken: Arc<Mutex<Taken<G, O>>>,
}

/// The place of something that goes on.
#[must_use = "a place that is dropped is free again"]
pub struct Place<G: Eq + Hash, O: Eq + Hash> {
    group: G,
    one: O,
    taken: Arc<Mutex<Taken<G, O>>>,
}

/// Why there is no place: so many are taken already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// In all.
    InAll(usize),
    /// By the group, which leaves the rest to others.
    OfGroup(usize),
    /// By the one that asks.
    OfOne(usize),
}

struct Taken<G, O> {
    in_all: usize,
    groups: HashMap<G, Group<O>>,
}

struct Group<O> {
    in_all: usize,
    each: HashMap<O, usize>,
}

impl<G, O> Clone for Places<G, O> {
    fn clone(&self) -> Self {
        Self { most: self.most, most_of_one: self.most_of_one, taken: Arc::clone(&self.taken) }
    }
}

impl<G: Clone + Eq + Hash, O: Clone + Eq + Hash> Places<G, O> {
    /// So many places in all, and so many for one.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        let taken = Taken { in_all: 0, groups: HashMap::new() };
        Self { most, most_of_one, taken: Arc::new(Mutex::new(taken)) }
    }

    /// A place for one of this group.
    ///
    /// # Errors
    /// There is none for it.
    pub fn take(&self, group: &G, one: &O) -> Result<Place<G, O>, Full> {
        let mut taken = lock(&self.taken);
        let free = self.most.saturating_sub(taken.in_all);
        if free == 0 {
            return Err(Full::InAll(taken.in_all));
        }
        let of_group = taken.groups.get(group);
        let of_one = of_group.and_then(|group| group.each.get(one)).copied().unwrap_or_default();
        if of_one >= self.most_of_one {
            return Err(Full::OfOne(of_one));
        }
        let of_group = of_group.map_or(0, |group| group.in_all);
        if of_group.saturating_mul(FREE_FOR_EACH) >= free {
            return Err(Full::OfGroup(of_group));
        }
        taken.in_all += 1;
        let none = || Group { in_all: 0, each: HashMap::new() };
        let of_group = taken.groups.entry(group.clone()).or_insert_with(none);
        of_group.in_all += 1;
        *of_group.each.entry(one.clone()).or_default() += 1;
        Ok(Place { group: group.clone(), one: one.clone(), taken: Arc::clone(&self.taken) })
    }

    /// How many places are taken.
    pub fn taken(&self) -> usize {
        lock(&self.taken).in_all
    }
}

impl<G: Eq + Hash, O: Eq + Hash> Drop for Place<G, O> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        let Some(group) = taken.groups.get_mut(&self.group) else { return };
        if let Some(of_one) = group.each.get_mut(&self.one) {
            *of_one -= 1;
            if *of_one == 0 {
                group.each.remove(&self.one);
            }
        }
        group.in_all -= 1;
        if group.in_all == 0 {
            taken.groups.remove(&self.group);
        }
        taken.in_all -= 1;
    }
}

fn lock<G, O>(taken: &Mutex<Taken<G, O>>) -> MutexGuard<'_, Taken<G, O>> {
    // Nothing that panics runs under the lock.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    type Taking = Vec<Place<&'static str, u32>>;

    /// As many places as there are for this group, each for another one; and why there are no more.
    fn fill(places: &Places<&'static str, u32>, group: &'static str) -> (Taking, Full) {
        let mut all = Vec::new();
        for one in 0.. {
            match places.take(&group, &one) {
                Ok(place) => all.push(place),
                Err(full) => return (all, full),
            }
        }
        unreachable!()
    }

    #[test]
    fn a_group_that_takes_all_it_gets_leaves_three_quarters_to_others() {
        // places -> how many each of the groups a, b, c and d gets, one after the other
        let table: [(usize, [usize; 4]); 7] = [
            (0, [0, 0, 0, 0]),
            (1, [1, 0, 0, 0]),
            (3, [1, 1, 1, 0]),
            (4, [1, 1, 1, 1]),
            (8, [2, 2, 1, 1]),
            (64, [16, 12, 9, 7]),
            (1_024, [256, 192, 144, 108]),
        ];
        for (most, expected) in table {
            let places = Places::new(most, usize::MAX);
            let taken = ["a", "b", "c", "d"].map(|group| fill(&places, group).0);
            assert_eq!(taken.each_ref().map(Vec::len), expected, "{most}");
            assert_eq!(places.taken(), expected.iter().sum::<usize>());
        }
    }

    #[test]
    fn one_has_so_many_and_its_group_has_more() {
        let places = Places::new(16, 2);
        let of_one: Vec<_> = (0..2).map(|_| places.take(&"a", &7).unwrap()).collect();
        assert_eq!(places.take(&"a", &7).err(), Some(Full::OfOne(2)));
        assert!(places.take(&"b", &7).is_ok(), "the same one of another group is another one");
        let (others, full) = fill(&places, "a");
        assert_eq!((others.len(), full), (2, Full::OfGroup(4)));
        drop(of_one);
        assert_eq!(fill(&places, "a").0.len(), 2);
    }

    #[test]
    fn whoever_leaves_makes_room_and_nothing_is_kept_of_it() {
        let places = Places::new(1, 1);
        let first = places.take(&"a", &1).unwrap();
        assert_eq!(places.clone().take(&"b", &1).err(), Some(Full::InAll(1)));
        drop(first);
        drop(places.take(&"b", &1).unwrap());
        assert!(lock(&places.taken).groups.is_empty() && places.taken() == 0);
    }
}
