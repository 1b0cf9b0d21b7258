//! Which units are bound to one host while PEs are being filled, and whether any host suits them all (rule fusion-16).
//!
//! Units are bound to each other when they share a host group or a PE. A binding is never undone. So this module keeps
//! the bound units as sets in a union-find, and for each set what its units demand of their host.

use super::graph::Graph;
use super::hosts::{HostGroups, steps};
use super::operators::Traits;
use super::rules::Rules;
use super::symbols::Symbol;
use super::units::{Unit, Units};
use crate::budget::Budget;
use crate::error::Error;
use cranelift_entity::PrimaryMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The sets of units that are bound to one host. If no operator demands anything of its host, all maps are empty, and
/// any two units may be bound.
pub(super) struct HostBindings<'a> {
    parents: PrimaryMap<Unit, Unit>,
    /// Number of units, for union by size; like the demands, valid for the representatives.
    sizes: PrimaryMap<Unit, u32>,
    /// `None` if the units demand nothing, which is the usual case.
    demands: PrimaryMap<Unit, Option<Box<Demands<'a>>>>,
    sets: HostSets,
}

/// What the units of one set demand of their host.
#[derive(Clone, Default)]
struct Demands<'a> {
    /// They contradict each other.
    conflict: bool,
    /// Host ex-location id -> name of the operator that has it.
    ex_locations: BTreeMap<Symbol, &'a str>,
    /// Hosts that suit all.
    declared: Option<u32>,
    /// Pool -> place in it.
    places: BTreeMap<u64, u64>,
}

impl<'a> HostBindings<'a> {
    pub(super) fn new(
        graph: &Graph<'a>,
        units: &Units,
        groups: Option<&HostGroups>,
        rules: &Rules,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let Rules { specifications, specification_of, .. } = rules;
        let mut sets = HostSets::default();
        let set_of: Vec<Option<u32>> = specifications
            .iter()
            .map(|specification| specification.declared.as_ref().map(|hosts| sets.intern(hosts.clone())))
            .collect();
        let place = |traits: &Traits| traits.pool.and_then(|location| Some((location.pool, location.in_pool?)));
        let asks = |traits: &Traits| !traits.host_ex_locations.is_empty() || place(traits).is_some();
        if set_of.iter().all(Option::is_none) && !graph.all_traits().values().any(asks) {
            return Ok(Self { parents: PrimaryMap::new(), sizes: PrimaryMap::new(), demands: PrimaryMap::new(), sets });
        }
        let mut pace = budget.pace();
        let declared = units.keys().map(|unit| {
            let declared = set_of[specification_of[unit] as usize]?;
            let conflict = sets.is_empty(declared);
            Some(Box::new(Demands { declared: Some(declared), conflict, ..Demands::default() }))
        });
        let mut demands: PrimaryMap<Unit, Option<Box<Demands<'a>>>> = declared.collect();
        for (node, traits) in graph.having(asks) {
            pace.steps(steps(&[&traits.host_ex_locations]))?;
            let name = graph.operators()[node].name;
            let demands = demands[units.of(node)].get_or_insert_default();
            for &id in &traits.host_ex_locations {
                demands.conflict |= differs(demands.ex_locations.insert(id, name), name);
            }
            if let Some((pool, place)) = place(traits) {
                demands.conflict |= differs(demands.places.insert(pool, place), place);
            }
        }
        let sizes = units.keys().map(|_| 1).collect();
        let mut host_bindings = Self { parents: units.keys().collect(), sizes, demands, sets };
        for (_, members) in groups.iter().flat_map(|groups| groups.iter()) {
            if let Some((&first, rest)) = members.split_first() {
                for &node in rest {
                    pace.step()?;
                    host_bindings.bind(units.of(first), units.of(node));
                }
            }
        }
        Ok(host_bindings)
    }

    /// Whether the demands of `a` and `b` on their hosts let them share a PE (rule fusion-16).
    pub(super) fn bindable(&mut self, a: Unit, b: Unit) -> bool {
        if self.demands.is_empty() {
            return true;
        }
        let (a, b) = (self.find(a), self.find(b));
        let (mine, theirs) = (&self.demands[a], &self.demands[b]);
        if [mine, theirs].into_iter().flatten().any(|demands| demands.conflict) {
            return false;
        }
        let (Some(mine), Some(theirs)) = (mine, theirs) else { return true };
        if a == b {
            return true;
        }
        let declared = match (mine.declared, theirs.declared) {
            (Some(mine), Some(theirs)) => {
                let common = self.sets.intersection(mine, theirs);
                !self.sets.is_empty(common)
            }
            _ => true,
        };
        declared && agree(&mine.ex_locations, &theirs.ex_locations) && agree(&mine.places, &theirs.places)
    }

    /// Records that `a` and `b` share a host.
    pub(super) fn bind(&mut self, a: Unit, b: Unit) {
        if self.demands.is_empty() {
            return;
        }
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return;
        }
        let (large, small) = if self.sizes[a] >= self.sizes[b] { (a, b) } else { (b, a) };
        self.parents[small] = large;
        self.sizes[large] += self.sizes[small];
        let Some(other) = self.demands[small].take() else { return };
        let Some(merged) = &mut self.demands[large] else {
            self.demands[large] = Some(other);
            return;
        };
        merged.conflict |= other.conflict;
        merged.declared = match (merged.declared, other.declared) {
            (Some(mine), Some(theirs)) => Some(self.sets.intersection(mine, theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        merged.conflict |= merged.declared.is_some_and(|set| self.sets.is_empty(set));
        merged.conflict |= absorb(&mut merged.ex_locations, other.ex_locations);
        merged.conflict |= absorb(&mut merged.places, other.places);
    }

    fn find(&mut self, mut unit: Unit) -> Unit {
        while self.parents[unit] != unit {
            let above = self.parents[self.parents[unit]];
            self.parents[unit] = above;
            unit = above;
        }
        unit
    }
}

fn differs<V: PartialEq>(previous: Option<V>, value: V) -> bool {
    previous.is_some_and(|previous| previous != value)
}

fn agree<K: Ord, V: PartialEq>(a: &BTreeMap<K, V>, b: &BTreeMap<K, V>) -> bool {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    few.iter().all(|(key, value)| many.get(key).is_none_or(|other| other == value))
}

/// Adds `theirs` to `mine`; says whether they disagree about a key.
fn absorb<K: Ord, V: PartialEq + Copy>(mine: &mut BTreeMap<K, V>, mut theirs: BTreeMap<K, V>) -> bool {
    if mine.len() < theirs.len() {
        std::mem::swap(mine, &mut theirs);
    }
    let mut disagree = false;
    for (key, value) in theirs {
        disagree |= differs(mine.insert(key, value), value);
    }
    disagree
}

/// Sets of hosts, numbered, with their intersections remembered.
#[derive(Default)]
struct HostSets {
    numbers: HashMap<BTreeSet<Symbol>, u32>,
    list: Vec<BTreeSet<Symbol>>,
    intersections: HashMap<(u32, u32), u32>,
}

impl HostSets {
    fn intern(&mut self, set: BTreeSet<Symbol>) -> u32 {
        if let Some(&number) = self.numbers.get(&set) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(set.clone());
        self.numbers.insert(set, number);
        number
    }

    fn is_empty(&self, set: u32) -> bool {
        self.list[set as usize].is_empty()
    }

    fn intersection(&mut self, a: u32, b: u32) -> u32 {
        let (a, b) = (a.min(b), a.max(b));
        if a == b {
            return a;
        }
        if let Some(&known) = self.intersections.get(&(a, b)) {
            return known;
        }
        let common = self.list[a as usize].intersection(&self.list[b as usize]).copied().collect();
        let number = self.intern(common);
        self.intersections.insert((a, b), number);
        number
    }
}
