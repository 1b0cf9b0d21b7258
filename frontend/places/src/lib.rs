//! How much of something may go on at the same time, so that nobody takes all of it (rule elasticity-27).
//!
//! There are so many places in all. Whoever has some belongs to a *group*, such as a namespace, and is *one* of it,
//! such as a job or an address. One has so many at most. A group gets another place only while it has fewer than a
//! third of those that are free. So a group has a quarter of all places at most, and less when others have some, too;
//! and one that has none gets one as long as there is any.
//!
//! Several may use one, as callers use a job. Such a *user* of it, if it is said who it is, gets another place only
//! while it has fewer than are left: of those of the one, and of those that the group may still get. So alone it has
//! half of them, and whoever else uses the one, or another one of the group, gets some.
//!
//! Knows: numbers. Must not know: what has a place, what groups and users are.
//!
//! Invariants: a [`Place`] is counted as long as it lives. A group that has none takes no memory.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// For each place that a group has, so many are free when it gets another one.
const FREE_FOR_EACH: usize = 3;

/// Counts what goes on. Cheap to clone; all clones are the same.
pub struct Places<G, O, U = ()> {
    most: usize,
    most_of_one: usize,
    taken: Arc<Mutex<Taken<G, O, U>>>,
}

/// The place of something that goes on.
#[must_use = "a place that is dropped is free again"]
pub struct Place<G: Eq + Hash, O: Eq + Hash, U: Eq + Hash = ()> {
    group: G,
    one: O,
    user: Option<U>,
    taken: Arc<Mutex<Taken<G, O, U>>>,
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
    /// By the user, of this one or of its group, which leaves the rest to others.
    OfUser(usize),
}

struct Taken<G, O, U> {
    in_all: usize,
    groups: HashMap<G, Group<O, U>>,
}

struct Group<O, U> {
    all: Count<U>,
    each: HashMap<O, Count<U>>,
}

/// How many places there are of something, and how many of them each user has.
struct Count<U> {
    in_all: usize,
    of_users: HashMap<U, usize>,
}

impl<G, O, U> Clone for Places<G, O, U> {
    fn clone(&self) -> Self {
        Self { most: self.most, most_of_one: self.most_of_one, taken: Arc::clone(&self.taken) }
    }
}

impl<G: Clone + Eq + Hash, O: Clone + Eq + Hash> Places<G, O> {
    /// A place for one of this group.
    ///
    /// # Errors
    /// There is none for it.
    pub fn take(&self, group: &G, one: &O) -> Result<Place<G, O>, Full> {
        self.take_for(group, one, None)
    }
}

impl<G: Clone + Eq + Hash, O: Clone + Eq + Hash, U: Clone + Eq + Hash> Places<G, O, U> {
    /// So many places in all, and so many for one.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        let taken = Taken { in_all: 0, groups: HashMap::new() };
        Self { most, most_of_one, taken: Arc::new(Mutex::new(taken)) }
    }

    /// A place for one of this group, for this user of it, if that is known.
    ///
    /// # Errors
    /// There is none for it.
    pub fn take_for(&self, group: &G, one: &O, user: Option<&U>) -> Result<Place<G, O, U>, Full> {
        let mut taken = self.taken.lock();
        let free = self.most.saturating_sub(taken.in_all);
        if free == 0 {
            return Err(Full::InAll(taken.in_all));
        }
        let none = Count::default();
        let (of_group, of_one) = match taken.groups.get(group) {
            Some(group) => (&group.all, group.each.get(one).unwrap_or(&none)),
            None => (&none, &none),
        };
        let left_of_one = self.most_of_one.saturating_sub(of_one.in_all);
        if left_of_one == 0 {
            return Err(Full::OfOne(of_one.in_all));
        }
        let left_of_group = left_of_group(of_group.in_all, free);
        if left_of_group == 0 {
            return Err(Full::OfGroup(of_group.in_all));
        }
        if let Some(user) = user {
            for (count, left) in [(of_one, left_of_one), (of_group, left_of_group)] {
                let of_user = count.of_users.get(user).copied().unwrap_or_default();
                if of_user >= left {
                    return Err(Full::OfUser(of_user));
                }
            }
        }
        taken.in_all += 1;
        let of_group = taken.groups.entry(group.clone()).or_insert_with(Group::new);
        of_group.all.add(user);
        of_group.each.entry(one.clone()).or_default().add(user);
        Ok(Place { group: group.clone(), one: one.clone(), user: user.cloned(), taken: Arc::clone(&self.taken) })
    }

    /// How many places are taken.
    pub fn taken(&self) -> usize {
        self.taken.lock().in_all
    }
}

/// How many places a group with so many may still get, one after the other, of those that are free.
fn left_of_group(of_group: usize, free: usize) -> usize {
    free.saturating_sub(of_group.saturating_mul(FREE_FOR_EACH)).div_ceil(FREE_FOR_EACH + 1)
}

impl<O, U> Group<O, U> {
    fn new() -> Self {
        Self { all: Count::default(), each: HashMap::new() }
    }
}

impl<U> Default for Count<U> {
    fn default() -> Self {
        Self { in_all: 0, of_users: HashMap::new() }
    }
}

impl<U: Clone + Eq + Hash> Count<U> {
    fn add(&mut self, user: Option<&U>) {
        self.in_all += 1;
        if let Some(user) = user {
            *self.of_users.entry(user.clone()).or_default() += 1;
        }
    }
}

impl<U: Eq + Hash> Count<U> {
    /// One less; whether none is left.
    fn remove(&mut self, user: Option<&U>) -> bool {
        self.in_all -= 1;
        if let Some(user) = user
            && let Some(of_user) = self.of_users.get_mut(user)
        {
            *of_user -= 1;
            if *of_user == 0 {
                self.of_users.remove(user);
            }
        }
        self.in_all == 0
    }
}

impl<G: Eq + Hash, O: Eq + Hash, U: Eq + Hash> Drop for Place<G, O, U> {
    fn drop(&mut self) {
        let (mut taken, user) = (self.taken.lock(), self.user.as_ref());
        let Some(group) = taken.groups.get_mut(&self.group) else { return };
        if group.each.get_mut(&self.one).is_some_and(|of_one| of_one.remove(user)) {
            group.each.remove(&self.one);
        }
        if group.all.remove(user) {
            taken.groups.remove(&self.group);
        }
        taken.in_all -= 1;
    }
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

    /// As many places as there are for this user of one of the group; and why there are no more.
    fn use_up(
        places: &Places<&'static str, u32, &'static str>,
        (group, one): (&'static str, u32),
        user: Option<&'static str>,
    ) -> (Vec<Place<&'static str, u32, &'static str>>, Full) {
        let mut all = Vec::new();
        loop {
            match places.take_for(&group, &one, user.as_ref()) {
                Ok(place) => all.push(place),
                Err(full) => return (all, full),
            }
        }
    }

    #[test]
    fn a_user_that_takes_all_it_gets_leaves_some_to_other_users_of_the_same_and_of_others() {
        let (a, b) = (("n", 1), ("n", 2));
        // in all, of one; who takes what there is of what, one after the other -> how many each gets
        let table: [(usize, usize, &[(_, Option<&'static str>, usize)]); 6] = [
            // Of one.
            (4_096, 100, &[(a, Some("x"), 50), (a, Some("y"), 25), (a, Some("z"), 13), (a, Some("x"), 0)]),
            // One that nobody knows has what it had without users, and so has one that comes after a user.
            (4_096, 100, &[(a, None, 100), (a, Some("x"), 0)]),
            (4_096, 100, &[(a, Some("x"), 50), (a, None, 50)]),
            // Of the group, which has a quarter of all.
            (400, 60, &[(a, Some("x"), 30), (b, Some("x"), 20), (b, Some("y"), 20), (a, Some("y"), 5)]),
            // Where there is one only, whoever comes first has it.
            (4_096, 1, &[(a, Some("x"), 1), (a, Some("y"), 0)]),
            (1, 1, &[(a, Some("x"), 1), (b, Some("y"), 0)]),
        ];
        for (most, of_one, steps) in table {
            let places = Places::new(most, of_one);
            let mut kept = Vec::new();
            for (of, user, expected) in steps {
                let (got, full) = use_up(&places, *of, *user);
                assert_eq!(got.len(), *expected, "{most} {of_one}: {user:?} of {of:?}, then {full:?}");
                kept.push(got);
            }
            drop(kept);
            assert!(places.taken.lock().groups.is_empty() && places.taken() == 0);
        }
        let places = Places::new(4_096, 100);
        let (_kept, full) = use_up(&places, a, Some("x"));
        assert_eq!(full, Full::OfUser(50));
        assert!(places.take_for(&"n", &1, Some(&"y")).is_ok());
    }

    #[test]
    fn whoever_leaves_makes_room_and_nothing_is_kept_of_it() {
        let places = Places::new(1, 1);
        let first = places.take(&"a", &1).unwrap();
        assert_eq!(places.clone().take(&"b", &1).err(), Some(Full::InAll(1)));
        drop(first);
        drop(places.take(&"b", &1).unwrap());
        assert!(places.taken.lock().groups.is_empty() && places.taken() == 0);
    }
}
