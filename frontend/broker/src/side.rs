//! One side of the board: all exports, or all imports, found by port, by PE, and by what a match needs; and what of the
//! other side each of them is still to be tried with.
//!
//! Invariant: a fact is found under its keys. They are made of it again when it goes, and not kept with each: imports
//! that share the tree of a subscription would still have hundreds each.
//!
//! Knows: facts by their places. Must not know: what matches what, the other side but for its places.

use crate::fact::{Fact, Key, Outcome};
use crate::ids::{Id, Ids};
use crate::port::{Pe, Port};
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A fact, and what is known of it and the other side.
#[derive(Debug)]
pub(crate) struct Placed<F> {
    pub(crate) fact: Arc<F>,
    /// What an entry for it weighs in the routes of others.
    pub(crate) weight: usize,
    /// What of the other side it matches.
    pub(crate) matched: Ids,
    /// With what of the other side it costs too much to be tried.
    pub(crate) costly: Ids,
    /// What all that it matches weighs.
    pub(crate) load: usize,
}

#[derive(Debug)]
pub(crate) struct Side<F> {
    placed: Slab<Placed<F>>,
    by_port: BTreeMap<Port, Id>,
    by_pe: BTreeMap<Pe, OfPe>,
    by_key: BTreeMap<Key, Ids>,
    /// What each is still to be tried with. No set is empty.
    untried: BTreeMap<Id, Ids>,
}

/// What of a PE is on this side.
#[derive(Debug, Default)]
struct OfPe {
    ids: Ids,
    /// What all that these match weighs.
    load: usize,
}

/// What is otherwise than it was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    /// Whether they match.
    pub(crate) matched: bool,
    /// Whether they cost too much to be tried.
    pub(crate) costly: bool,
}

impl<F> Default for Side<F> {
    fn default() -> Self {
        Self {
            placed: Slab::new(),
            by_port: BTreeMap::new(),
            by_pe: BTreeMap::new(),
            by_key: BTreeMap::new(),
            untried: BTreeMap::new(),
        }
    }
}

impl<F: Fact> Side<F> {
    pub(crate) fn len(&self) -> usize {
        self.placed.len()
    }

    pub(crate) fn id(&self, port: &Port) -> Option<Id> {
        self.by_port.get(port).copied()
    }

    pub(crate) fn get(&self, id: Id) -> Option<&Placed<F>> {
        self.placed.get(id)
    }

    /// What a port has on this side.
    pub(crate) fn at(&self, port: &Port) -> Option<&Placed<F>> {
        self.get(self.id(port)?)
    }

    /// What of a PE is on this side.
    pub(crate) fn of(&self, pe: &Pe) -> impl Iterator<Item = &Placed<F>> {
        self.by_pe.get(pe).into_iter().flat_map(|of_pe| of_pe.ids.iter()).filter_map(|id| self.placed.get(id))
    }

    /// How many of a PE are on this side.
    pub(crate) fn count_of(&self, pe: &Pe) -> usize {
        self.by_pe.get(pe).map_or(0, |of_pe| of_pe.ids.len())
    }

    /// What all weighs that is matched by what of a PE is on this side.
    pub(crate) fn load_of(&self, pe: &Pe) -> usize {
        self.by_pe.get(pe).map_or(0, |of_pe| of_pe.load)
    }

    /// What has one of these keys.
    pub(crate) fn having(&self, keys: &[Key]) -> Ids {
        let mut having = Ids::default();
        keys.iter().filter_map(|key| self.by_key.get(key)).for_each(|ids| having.extend(ids));
        having
    }

    /// The fact, found under these keys from now on, in the place of what its port had before; what is known of it and
    /// the other side stays.
    pub(crate) fn put(&mut self, fact: F, keys: Vec<Key>) -> Id {
        let Some(id) = self.id(fact.port()) else {
            let port = fact.port().clone();
            let (matched, costly) = (Ids::default(), Ids::default());
            let weight = fact.weight();
            let fact = Arc::new(fact);
            let id = self.placed.insert(Placed { fact, weight, matched, costly, load: 0 });
            self.by_pe.entry(port.pe.clone()).or_default().ids.insert(id);
            self.by_port.insert(port, id);
            self.enter(keys, id);
            return id;
        };
        if let Some(before) = self.placed.get(id).map(|placed| placed.fact.keys()) {
            self.leave(&before, id);
        }
        self.replace(id, fact);
        self.enter(keys, id);
        id
    }

    /// The fact, found under the same keys as the one before.
    pub(crate) fn replace(&mut self, id: Id, fact: F) {
        if let Some(placed) = self.placed.get_mut(id) {
            placed.weight = fact.weight();
            placed.fact = Arc::new(fact);
        }
    }

    pub(crate) fn remove(&mut self, id: Id) {
        let Some(placed) = self.placed.try_remove(id) else { return };
        let port = placed.fact.port();
        self.by_port.remove(port);
        self.untried.remove(&id);
        if let Some(of_pe) = self.by_pe.get_mut(&port.pe) {
            of_pe.ids.remove(id);
            of_pe.load -= placed.load;
            if of_pe.ids.is_empty() {
                self.by_pe.remove(&port.pe);
            }
        }
        self.leave(&placed.fact.keys(), id);
    }

    /// The other side's `other`, which weighs so much, matches or does not.
    pub(crate) fn note(&mut self, id: Id, other: Id, outcome: Outcome, weight: usize) -> Noted {
        let Some(placed) = self.placed.get_mut(id) else { return Noted::default() };
        let set = |ids: &mut Ids, is_in| if is_in { ids.insert(other) } else { ids.remove(other) };
        let matched = set(&mut placed.matched, outcome == Outcome::Matches);
        let costly = set(&mut placed.costly, outcome == Outcome::TooCostly);
        match (matched, outcome) {
            (true, Outcome::Matches) => self.weigh(id, 0, weight),
            (true, _) => self.weigh(id, weight, 0),
            (false, _) => {}
        }
        Noted { matched, costly }
    }

    /// What it matches of the other side weighs something else.
    pub(crate) fn weigh(&mut self, id: Id, before: usize, now: usize) {
        let Some(placed) = self.placed.get_mut(id) else { return };
        placed.load = placed.load - before + now;
        if let Some(of_pe) = self.by_pe.get_mut(&placed.fact.port().pe) {
            of_pe.load = of_pe.load - before + now;
        }
    }

    /// It is to be tried with these, and with nothing else.
    pub(crate) fn try_with(&mut self, id: Id, others: Ids) {
        if others.is_empty() {
            self.untried.remove(&id);
        } else {
            self.untried.insert(id, others);
        }
    }

    /// What is to be tried, and with what of the other side.
    pub(crate) fn untried(&self) -> impl Iterator<Item = (Id, Id)> {
        self.untried.iter().flat_map(|(id, others)| others.iter().map(|other| (*id, other)))
    }

    /// Whether it is to be tried with this.
    pub(crate) fn is_untried(&self, id: Id, other: Id) -> bool {
        self.untried.get(&id).is_some_and(|others| others.contains(other))
    }

    /// It has been tried with this.
    pub(crate) fn tried(&mut self, id: Id, other: Id) {
        forget(&mut self.untried, &id, other);
    }

    /// Nothing is to be tried with this any more.
    pub(crate) fn forget_other(&mut self, other: Id) {
        self.untried.retain(|_, others| {
            others.remove(other);
            !others.is_empty()
        });
    }

    /// How many are to be tried with something.
    pub(crate) fn untried_len(&self) -> usize {
        self.untried.len()
    }

    /// Whether nothing is to be tried.
    pub(crate) fn is_tried(&self) -> bool {
        self.untried.is_empty()
    }

    fn enter(&mut self, keys: Vec<Key>, id: Id) {
        for key in keys {
            self.by_key.entry(key).or_default().insert(id);
        }
    }

    fn leave(&mut self, keys: &[Key], id: Id) {
        for key in keys {
            forget(&mut self.by_key, key, id);
        }
    }
}

/// Takes the id from the set of this key; a set with nothing in it goes.
fn forget<K: Ord>(sets: &mut BTreeMap<K, Ids>, key: &K, id: Id) {
    if let Some(ids) = sets.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
impl<F> Side<F> {
    /// Whether nothing at all is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.placed.is_empty()
            && self.by_port.is_empty()
            && self.by_pe.is_empty()
            && self.by_key.is_empty()
            && self.untried.is_empty()
    }
}
