//! Which units are bound to one host while PEs are being filled, and whether any host suits them all (rule fusion-16).
//!
//! Units are bound to each other when they share a host group or a PE. A binding is never undone. So this module keeps
//! the bound units as sets in a union-find, and for each set what its units demand of their host.

use super::graph::Graph;
use super::host_sets::{HostSet, HostSets};
use super::hosts::{HostGroups, steps};
use super::operators::Traits;
use super::rules::Rules;
use super::symbols::Symbol;
use super::units::{Unit, Units};
use crate::budget::{Budget, Pace};
use crate::error::Error;
use cranelift_entity::PrimaryMap;
use cranelift_entity::packed_option::PackedOption;
use std::collections::BTreeMap;

/// The sets of units that are bound to one host. If no operator demands anything of its host, all maps are empty, and
/// any two units may be bound.
pub(super) struct HostBindings<'a> {
    parents: PrimaryMap<Unit, Unit>,
    /// Number of units, for union by size; like the demands, valid for the representatives.
    sizes: PrimaryMap<Unit, u32>,
    /// `None` if the units demand nothing, which is the usual case.
    demands: PrimaryMap<Unit, Option<Box<Demands<'a>>>>,
    /// By representative: that of the set that last refused it. A refusal is final, because what a set demands only
    /// grows. Any number of units may be in one set, and they are tried one after the other.
    refused_by: PrimaryMap<Unit, PackedOption<Unit>>,
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
    declared: Option<HostSet>,
    /// Pool -> place in it.
    places: BTreeMap<u64, u64>,
}

impl Demands<'_> {
    /// How long it takes to compare ids and places with those of others, or to add the fewer ones to the others, in
    /// steps of a [`Pace`].
    fn steps(&self, others: &Self) -> u32 {
        let ids = self.ex_locations.len().min(others.ex_locations.len());
        let places = self.places.len().min(others.places.len());
        u32::try_from(ids + places).unwrap_or(u32::MAX).saturating_add(1)
    }
}

impl<'a> HostBindings<'a> {
    /// The sets that these host groups bind. Any other unit is a set by itself.
    ///
    /// # Errors
    ///
    /// As for [`HostBindings::bind`].
    pub(super) fn new(
        graph: &Graph<'a>,
        units: &Units,
        groups: Option<&HostGroups>,
        rules: &Rules,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let Rules { specifications, specification_of, .. } = rules;
        let set_of: Vec<Option<HostSet>> = specifications.iter().map(|specification| specification.declared).collect();
        let place = |traits: &Traits| traits.pool.and_then(|location| Some((location.pool, location.in_pool?)));
        let asks = |traits: &Traits| !traits.host_ex_locations.is_empty() || place(traits).is_some();
        if set_of.iter().all(Option::is_none) && !graph.all_traits().values().any(asks) {
            let (parents, sizes, sets) = (PrimaryMap::new(), PrimaryMap::new(), HostSets::new(&budget.limits));
            return Ok(Self { parents, sizes, demands: PrimaryMap::new(), refused_by: PrimaryMap::new(), sets });
        }
        let sets = specifications.host_sets().clone();
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
        let refused_by: PrimaryMap<Unit, PackedOption<Unit>> = units.keys().map(|_| None.into()).collect();
        let mut host_bindings = Self { parents: units.keys().collect(), sizes, demands, refused_by, sets };
        for (_, members) in groups.iter().flat_map(|groups| groups.iter()) {
            if let Some((&first, rest)) = members.split_first() {
                for &node in rest {
                    pace.step()?;
                    host_bindings.bind(units.of(first), units.of(node), &mut pace)?;
                }
            }
        }
        Ok(host_bindings)
    }

    /// Whether the demands of `a` and `b` on their hosts let them share a PE (rule fusion-16).
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn bindable(&mut self, a: Unit, b: Unit, pace: &mut Pace<'_>) -> Result<bool, Error> {
        if self.demands.is_empty() {
            return Ok(true);
        }
        let (a, b) = (self.find(a), self.find(b));
        let (mine, theirs) = (&self.demands[a], &self.demands[b]);
        if [mine, theirs].into_iter().flatten().any(|demands| demands.conflict) {
            return Ok(false);
        }
        let (Some(mine), Some(theirs)) = (mine, theirs) else { return Ok(true) };
        if a == b {
            return Ok(true);
        }
        if self.refused_by[b].expand() == Some(a) {
            return Ok(false);
        }
        pace.steps(mine.steps(theirs))?;
        let bindable = agree(&mine.ex_locations, &theirs.ex_locations)
            && agree(&mine.places, &theirs.places)
            && match (mine.declared, theirs.declared) {
                (Some(mine), Some(theirs)) => self.sets.have_common(mine, theirs, pace)?,
                _ => true,
            };
        if !bindable {
            self.refused_by[b] = a.into();
        }
        Ok(bindable)
    }

    /// Records that `a` and `b` share a host.
    ///
    /// # Errors
    ///
    /// Stage `compose`: the hosts that suit units are too many. Or the budget ends.
    pub(super) fn bind(&mut self, a: Unit, b: Unit, pace: &mut Pace<'_>) -> Result<(), Error> {
        if self.demands.is_empty() {
            return Ok(());
        }
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return Ok(());
        }
        let (large, small) = if self.sizes[a] >= self.sizes[b] { (a, b) } else { (b, a) };
        self.parents[small] = large;
        self.sizes[large] += self.sizes[small];
        let Some(other) = self.demands[small].take() else { return Ok(()) };
        let Some(merged) = &mut self.demands[large] else {
            self.demands[large] = Some(other);
            return Ok(());
        };
        pace.steps(merged.steps(&other))?;
        merged.conflict |= other.conflict;
        merged.declared = match (merged.declared, other.declared) {
            (Some(mine), Some(theirs)) => Some(self.sets.intersection(mine, theirs, pace)?),
            (mine, theirs) => mine.or(theirs),
        };
        merged.conflict |= merged.declared.is_some_and(|set| self.sets.is_empty(set));
        merged.conflict |= absorb(&mut merged.ex_locations, other.ex_locations);
        merged.conflict |= absorb(&mut merged.places, other.places);
        Ok(())
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
