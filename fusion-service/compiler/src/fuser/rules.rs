//! The constraints in the form that filling PEs needs: the properties of each unit, and whether a unit may join a PE.
//!
//! Most rules demand equality (rules fusion-10, fusion-13 and fusion-15), so a unit's properties fold into an
//! [`EqualityClass`] number that all units of a PE share. The other rules that compare one unit with another see its
//! [`Kind`]. Rules about hosts are in [`super::host_bindings`].
//!
//! A refusal is final: units never leave a PE, so a PE that refuses a kind once refuses it always.
//!
//! Knows: constraints, units. Must not know: in which order PEs are filled.

use super::constraints::{Constraint, Demand, Mixed, Origin, Others, SameValue};
use super::graph::Graph;
use super::hosts::{HostGroups, HostSpecifications, leaves_exclusive_pool};
use super::operators::TraitsId;
use super::units::{Unit, Units};
use crate::budget::Budget;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::topology::Node;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use indexmap::IndexSet;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

/// A class of units that the rules of [`UnitTraits`] cannot tell apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Kind(u32);
entity_impl!(Kind, "kind");

/// A class of units that satisfy every rule of equality among each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EqualityClass(u32);
entity_impl!(EqualityClass, "alike");

/// The traits of a unit that the rules compare.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UnitTraits {
    /// Equal throughout a PE. `None`: nothing ever shares a PE with this unit.
    pub(super) alike: Option<EqualityClass>,
    /// (constraint, value): where two units have the same constraint, the values are equal.
    pub(super) agreed: Box<[(u32, u32)]>,
    /// Constraints [`Demand::Apart`] that it is part of.
    apart: SmallVec<[u32; 4]>,
    /// Has a host-isolated operator (rule fusion-14).
    host_isolated: bool,
    /// Has an operator in a host group (rule fusion-14).
    host_grouped: bool,
}

impl UnitTraits {
    /// How long it takes to find out whether a PE accepts such a unit, in steps of a [`crate::budget::Pace`].
    pub(super) fn steps(&self) -> u32 {
        u32::try_from(self.agreed.len() + self.apart.len()).unwrap_or(u32::MAX).saturating_add(1)
    }
}

/// The properties of all units of an application. They do not change while PEs are filled.
pub(super) struct Rules {
    pub(super) unit_traits: PrimaryMap<Kind, UnitTraits>,
    pub(super) kind_of: PrimaryMap<Unit, Kind>,
    /// Units that are a PE (rule fusion-8).
    pub(super) alone: PrimaryMap<Unit, bool>,
    /// Number of [`EqualityClass`] classes.
    pub(super) alike: usize,
    pub(super) specifications: HostSpecifications,
    pub(super) specification_of: PrimaryMap<Unit, u32>,
}

/// The properties that the constraints give a unit, before they are interned.
#[derive(Clone, Default)]
struct Properties {
    equal: Vec<(u32, u32)>,
    agreed: Vec<(u32, u32)>,
    apart: SmallVec<[u32; 4]>,
    alone: bool,
    closed: bool,
}

impl Rules {
    /// Compiles the constraints.
    ///
    /// # Errors
    ///
    /// Stage `compose`: no PE can hold a unit (rule fusion-9), or operators may choose from too many hosts.
    pub(super) fn new(
        graph: &Graph,
        units: &Units,
        hosts: &HostGroups,
        constraints: &[Constraint],
        budget: &Budget,
    ) -> Result<Self, Error> {
        let mut collected = CollectedProperties::new(units);
        let mut problems = Problems::default();
        let mut pace = budget.pace();
        for (number, constraint) in (0_u32..).zip(constraints) {
            pace.steps(constraint.steps())?;
            match &constraint.demand {
                Demand::Together(_) => {}
                Demand::Alone(nodes) => nodes.iter().for_each(|&node| collected.of(units.of(node)).alone = true),
                Demand::Apart(nodes) => {
                    for &node in nodes {
                        let unit = collected.of(units.of(node));
                        // Two of its operators: the unit contradicts itself (rule fusion-11).
                        unit.closed |= unit.apart.last() == Some(&number);
                        unit.apart.push(number);
                    }
                }
                Demand::SameValue(separation) => {
                    separate(units, number, separation, &mut collected, |unit| {
                        problems.push(disagreement(graph, units, constraint.origin, unit));
                    });
                }
            }
        }
        problems.into_result()?;

        let mut grouped: PrimaryMap<Unit, bool> = units.keys().map(|_| false).collect();
        hosts.iter().flat_map(|(_, nodes)| nodes).for_each(|&node| grouped[units.of(node)] = true);
        let mut specifications = HostSpecifications::new(&budget.limits);
        let mut specification_of = PrimaryMap::with_capacity(units.len());
        let mut alone = PrimaryMap::with_capacity(units.len());
        let mut kind_of = PrimaryMap::with_capacity(units.len());
        let (mut alikes, mut kinds) = (Interned::<_, EqualityClass>::default(), Interned::<_, Kind>::default());
        // Operators that are a unit each and have no properties are of the same kind if they have the same traits.
        // Their host groups, if any, follow from the traits, too.
        let mut known_kinds: SecondaryMap<TraitsId, Option<(u32, Kind)>> = SecondaryMap::new();
        for unit in units.keys() {
            pace.steps(units.size(unit))?;
            let nodes = units.operators(unit);
            let properties = collected.take(unit);
            let traits = match (nodes, &properties) {
                ([node], None) => Some(graph.traits_id(*node)),
                _ => None,
            };
            if let Some((specification, kind)) = traits.and_then(|traits| known_kinds[traits]) {
                specification_of.push(specification);
                alone.push(false);
                kind_of.push(kind);
                continue;
            }
            let mut properties = properties.unwrap_or_default();
            let specification = specifications.number(graph, nodes, &mut pace)?;
            specification_of.push(specification);
            alone.push(properties.alone);
            properties.apart.dedup();
            let closed = properties.closed || leaves_exclusive_pool(graph, nodes);
            let member = UnitTraits {
                alike: (!closed).then(|| alikes.key((specification, properties.equal))),
                agreed: properties.agreed.into(),
                apart: properties.apart,
                host_isolated: nodes.iter().any(|&node| graph.traits(node).host_isolated),
                host_grouped: grouped[unit],
            };
            let kind = kinds.key(member);
            kind_of.push(kind);
            if let Some(traits) = traits {
                known_kinds[traits] = Some((specification, kind));
            }
        }
        let alike = alikes.values.len();
        Ok(Self { unit_traits: kinds.into_list(), kind_of, alone, alike, specifications, specification_of })
    }

    pub(super) fn unit_traits(&self, unit: Unit) -> &UnitTraits {
        &self.unit_traits[self.kind_of[unit]]
    }
}

/// The properties of units; many have none.
struct CollectedProperties {
    entry_of: PrimaryMap<Unit, PackedOption<PropertiesId>>,
    properties: PrimaryMap<PropertiesId, Properties>,
}

/// A unit that has properties, in order of appearance.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PropertiesId(u32);
entity_impl!(PropertiesId);

impl CollectedProperties {
    fn new(units: &Units) -> Self {
        Self { entry_of: units.keys().map(|_| None.into()).collect(), properties: PrimaryMap::new() }
    }

    /// The properties of a unit, to be changed.
    fn of(&mut self, unit: Unit) -> &mut Properties {
        let entry = self.entry_of[unit].expand().unwrap_or_else(|| self.properties.push(Properties::default()));
        self.entry_of[unit] = entry.into();
        &mut self.properties[entry]
    }

    /// Takes the properties of a unit out of the map.
    fn take(&mut self, unit: Unit) -> Option<Properties> {
        self.entry_of[unit].take().map(|entry| std::mem::take(&mut self.properties[entry]))
    }
}

/// Adds the property that one separation by value gives to each unit with a value.
fn separate(
    units: &Units,
    number: u32,
    separation: &SameValue,
    collected: &mut CollectedProperties,
    mut refuse: impl FnMut(Unit),
) {
    let mut values: Vec<(Unit, u32)> = separation.values.iter().map(|&(node, v)| (units.of(node), v)).collect();
    values.sort_unstable();
    for of_unit in values.chunk_by(|a, b| a.0 == b.0) {
        let (unit, value) = of_unit[0];
        let size = units.size(unit) as usize;
        let different = of_unit.chunk_by(|a, b| a.1 == b.1).count();
        let mixed = different > 1 || (separation.others == Others::Apart && of_unit.len() < size);
        let properties = collected.of(unit);
        match separation.mixed {
            Mixed::AloneByCount if different != size => properties.alone = true,
            Mixed::AloneByCount | Mixed::Closed => properties.closed |= mixed,
            Mixed::Alone => properties.alone |= mixed,
            Mixed::Refused if mixed => refuse(unit),
            Mixed::Refused => {}
        }
        match separation.others {
            Others::Apart => properties.equal.push((number, value)),
            Others::Anywhere => properties.agreed.push((number, value)),
        }
    }
}

/// The problem CDISR3200E for one unit.
fn disagreement(graph: &Graph, units: &Units, origin: Origin, unit: Unit) -> Problem {
    const MOST: usize = 5;
    const LONGEST: usize = 80;
    let what = match origin {
        Origin::Provisional(key) => excerpt(graph.text(key)),
        other => format!("{other:?}"),
    };
    let nodes = units.operators(unit);
    let mut values = BTreeSet::new();
    let mut text = String::from("no PE can hold the co-located operators ");
    for (i, &node) in nodes.iter().enumerate() {
        let operator = &graph.operators()[node];
        let labels = graph.traits(node).provisional.iter().filter(|label| origin == Origin::Provisional(label.key));
        // Already printable: see `Symbols::intern_set`.
        values.extend(labels.map(|label| graph.text(label.value).chars().take(LONGEST).collect::<String>()));
        if i < MOST {
            text += if i > 0 { ", " } else { "" };
            text += &excerpt(operator.name);
        }
    }
    if nodes.len() > MOST {
        text += &format!(" and {} more", nodes.len() - MOST);
    }
    let values: Vec<String> = values.into_iter().take(MOST).collect();
    text += &format!(": {what} differs ({})", values.join(" / "));
    let place = nodes.first().and_then(|&node| graph.traits(node).place);
    Problem { place, ..Problem::new(Stage::Compose, text).code(code::CONSTRAINTS) }
}

/// Values numbered in order of appearance.
struct Interned<V, K: EntityRef> {
    values: IndexSet<V>,
    /// The key that was returned last. Most units have the same one.
    last: Option<K>,
}

impl<V, K: EntityRef> Default for Interned<V, K> {
    fn default() -> Self {
        Self { values: IndexSet::new(), last: None }
    }
}

impl<V: Hash + Eq, K: EntityRef> Interned<V, K> {
    fn key(&mut self, value: V) -> K {
        if let Some(last) = self.last
            && self.values.get_index(last.index()) == Some(&value)
        {
            return last;
        }
        let key = K::new(self.values.insert_full(value).0);
        self.last = Some(key);
        key
    }

    fn into_list(self) -> PrimaryMap<K, V> {
        self.values.into_iter().collect()
    }
}

/// What the units of one PE have in common, and which values no further unit may have.
#[derive(Clone, Debug, Default)]
pub(super) struct PeProfile {
    /// `None` while nothing is known, that is, before the first unit.
    alike: Option<Option<EqualityClass>>,
    agreed: HashMap<u32, u32>,
    apart: HashSet<u32>,
    host_isolated: bool,
    host_grouped: bool,
}

impl PeProfile {
    /// The class of all units that may still join; `None` if none may.
    pub(super) fn alike(&self) -> Option<EqualityClass> {
        self.alike.flatten()
    }

    /// The value of a constraint of [`UnitTraits::agreed`] that the PE has, if it has one.
    pub(super) fn agreed(&self, constraint: u32) -> Option<u32> {
        self.agreed.get(&constraint).copied()
    }

    /// Whether a unit may join, as far as equality and kinds go.
    pub(super) fn accepts(&self, member: &UnitTraits) -> bool {
        let Some(alike) = self.alike else { return true };
        alike.is_some()
            && alike == member.alike
            && member.agreed.iter().all(|(constraint, value)| self.agreed.get(constraint).is_none_or(|v| v == value))
            && !member.apart.iter().any(|constraint| self.apart.contains(constraint))
            && !(member.host_isolated && self.host_grouped)
            && !(self.host_isolated && member.host_grouped)
    }

    /// Records a unit that has joined.
    pub(super) fn add(&mut self, member: &UnitTraits) {
        self.alike.get_or_insert(member.alike);
        self.agreed.extend(member.agreed.iter().copied());
        self.apart.extend(member.apart.iter().copied());
        self.host_isolated |= member.host_isolated;
        self.host_grouped |= member.host_grouped;
    }
}

/// Whether a unit has an operator without input ports, and one without output ports (rule fusion-20).
pub(super) fn is_source_or_sink(graph: &Graph, nodes: &[Node]) -> (bool, bool) {
    let mut ends = (false, false);
    for &node in nodes {
        ends.0 |= graph.traits(node).inputs.is_empty();
        ends.1 |= graph.traits(node).outputs.is_empty();
    }
    ends
}
