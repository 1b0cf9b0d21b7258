//! One side of the board: all exports, or all imports, found by port, by PE, and by what a match needs.

use crate::fact::{Fact, Key};
use crate::port::{Pe, Port};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};

/// A place on a side of the board. That of the other side is another one.
pub(crate) type Id = usize;

/// A fact, and what of the other side it matches.
#[derive(Debug)]
pub(crate) struct Placed<F> {
    pub(crate) fact: F,
    /// The keys under which it is found now.
    keys: Vec<Key>,
    pub(crate) matched: BTreeSet<Id>,
}

#[derive(Debug)]
pub(crate) struct Side<F> {
    placed: Slab<Placed<F>>,
    by_port: BTreeMap<Port, Id>,
    by_pe: BTreeMap<Pe, BTreeSet<Id>>,
    by_key: BTreeMap<Key, BTreeSet<Id>>,
}

impl<F> Default for Side<F> {
    fn default() -> Self {
        Self { placed: Slab::new(), by_port: BTreeMap::new(), by_pe: BTreeMap::new(), by_key: BTreeMap::new() }
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

    /// What of a PE is on this side.
    pub(crate) fn of(&self, pe: &Pe) -> impl Iterator<Item = &Placed<F>> {
        self.by_pe.get(pe).into_iter().flatten().filter_map(|id| self.placed.get(*id))
    }

    /// What has one of these keys.
    pub(crate) fn having(&self, keys: &[Key]) -> BTreeSet<Id> {
        keys.iter().filter_map(|key| self.by_key.get(key)).flatten().copied().collect()
    }

    /// The fact, found under these keys from now on, in the place of what its port had before; what it matches stays.
    pub(crate) fn put(&mut self, fact: F, keys: Vec<Key>) -> Id {
        let Some(id) = self.id(fact.port()) else {
            let port = fact.port().clone();
            let placed = Placed { fact, keys: keys.clone(), matched: BTreeSet::new() };
            let id = self.placed.insert(placed);
            self.by_pe.entry(port.pe.clone()).or_default().insert(id);
            self.by_port.insert(port, id);
            self.enter(keys, id);
            return id;
        };
        if let Some(placed) = self.placed.get_mut(id) {
            placed.fact = fact;
            let before = std::mem::replace(&mut placed.keys, keys.clone());
            self.leave(&before, id);
        }
        self.enter(keys, id);
        id
    }

    pub(crate) fn remove(&mut self, port: &Port) -> Option<(Id, Placed<F>)> {
        let id = self.by_port.remove(port)?;
        let placed = self.placed.try_remove(id)?;
        forget(&mut self.by_pe, &port.pe, id);
        self.leave(&placed.keys, id);
        Some((id, placed))
    }

    /// Replaces what the fact matches; returns what it matched before.
    pub(crate) fn replace_matched(&mut self, id: Id, matched: BTreeSet<Id>) -> BTreeSet<Id> {
        self.placed.get_mut(id).map(|placed| std::mem::replace(&mut placed.matched, matched)).unwrap_or_default()
    }

    /// The other side's `other` matches, or does not.
    pub(crate) fn note(&mut self, id: Id, other: Id, is_matched: bool) {
        if let Some(placed) = self.placed.get_mut(id) {
            if is_matched {
                placed.matched.insert(other);
            } else {
                placed.matched.remove(&other);
            }
        }
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
fn forget<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<Id>>, key: &K, id: Id) {
    if let Some(ids) = sets.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
impl<F> Side<F> {
    /// Whether nothing at all is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.placed.is_empty() && self.by_port.is_empty() && self.by_pe.is_empty() && self.by_key.is_empty()
    }
}
