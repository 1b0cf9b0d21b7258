//! Which constraints decided what shares a PE, and what does not (rule fusion-28).
//!
//! The input is a finished partition, whether fusion made it from scratch, around operators that run already, or a
//! layout recorded it. A constraint decided a PE if it holds operators of the PE together, keeps other operators out of
//! it, or both. A constraint that holds without any effect on the PE decided nothing.
//!
//! Knows: constraints, units, rules. Must not know: what a constraint is called in an ADL.

use super::composition::Composition;
use super::constraints::{Demand, Mixed, Origin, Others, SameValue};
use super::graph::Graph;
use super::hosts::steps;
use super::partition::{Partition, Pe};
use super::symbols::Symbol;
use super::{Fusion, constraints};
use crate::budget::{Budget, Pace};
use crate::error::Error;
use crate::topology::Node;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What decided the PEs of a partition.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// What decided each PE: what holds it together first, in a fixed order.
    pub of: PrimaryMap<Pe, Vec<Decision>>,
    /// Number of units. A single operator may be a unit.
    pub units: usize,
    /// Number of units that the constraints make a PE each.
    pub alone: usize,
}

/// One thing that decided a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decision {
    /// What it does.
    pub effect: Effect,
    /// Where it comes from.
    pub cause: Cause,
    /// Number of operators of the PE that have it.
    pub members: u32,
}

/// What a constraint does to a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Holds operators of the PE together.
    Together,
    /// Lets nothing share the PE.
    Alone,
    /// Keeps operators of other PEs out.
    Apart,
}

/// Where a decision comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A constraint on PEs.
    Constraint(Origin),
    /// Operators that must not share a host, with this id (rule fusion-16).
    HostExLocation(Symbol),
    /// An operator that shares its host with no other PE (rule fusion-14).
    HostIsolation,
    /// A host or pool that operators of other PEs do not ask for (rule fusion-15).
    Placement,
}

/// Finds what decided each PE.
///
/// # Errors
///
/// As for [`super::fuse`].
pub fn decisions(graph: &Graph, fusion: &Fusion, partition: &Partition, budget: &Budget) -> Result<Decisions, Error> {
    let composition = Composition::new(graph, fusion.kind(), budget)?;
    let all = constraints(graph, &composition.hosts, fusion.kind(), budget)?;
    let units = &composition.units;
    let mut pace = budget.pace();
    let mut found = DecisionBuilder { partition, of: partition.pes().map(|_| Vec::new()).collect() };
    for constraint in &all {
        pace.steps(constraint.steps())?;
        match (&constraint.demand, fusion) {
            (Demand::Together(nodes), _) => found.together(constraint.origin, nodes),
            // Legacy fusion only puts together what must be together, so no other constraint keeps anything apart.
            (_, Fusion::Legacy) => {}
            (Demand::Alone(nodes), _) => {
                for (pe, members) in found.count(nodes.iter().copied()) {
                    found.note(pe, Effect::Alone, Cause::Constraint(constraint.origin), members);
                }
            }
            (Demand::Apart(nodes), _) => found.apart(Cause::Constraint(constraint.origin), nodes),
            (Demand::SameValue(separation), _) => {
                let alone = |pe: Pe| {
                    let first = partition.operators(pe).first();
                    first.is_some_and(|&node| composition.rules.alone[units.of(node)])
                };
                found.same_value(constraint.origin, separation, alone);
            }
        }
    }
    if *fusion != Fusion::Legacy {
        found.hosts(graph, &composition, &mut pace)?;
    }
    let DecisionBuilder { mut of, .. } = found;
    of.values_mut().for_each(|decisions| decisions.sort_unstable());
    let alone = units.keys().filter(|&unit| composition.rules.alone[unit]).count();
    Ok(Decisions { of, units: units.len(), alone })
}

struct DecisionBuilder<'p> {
    partition: &'p Partition,
    of: PrimaryMap<Pe, Vec<Decision>>,
}

impl DecisionBuilder<'_> {
    fn note(&mut self, pe: Pe, effect: Effect, cause: Cause, members: u32) {
        self.of[pe].push(Decision { effect, cause, members });
    }

    /// Operators per PE.
    fn count(&self, nodes: impl Iterator<Item = Node>) -> BTreeMap<Pe, u32> {
        let mut counts = BTreeMap::new();
        nodes.for_each(|node| *counts.entry(self.partition.pe(node)).or_default() += 1);
        counts
    }

    fn together(&mut self, origin: Origin, nodes: &[Node]) {
        for (pe, members) in self.count(nodes.iter().copied()) {
            if members > 1 {
                self.note(pe, Effect::Together, Cause::Constraint(origin), members);
            }
        }
    }

    fn apart(&mut self, cause: Cause, nodes: &[Node]) {
        let counts = self.count(nodes.iter().copied());
        if counts.len() > 1 {
            counts.into_iter().for_each(|(pe, members)| self.note(pe, Effect::Apart, cause, members));
        }
    }

    fn same_value(&mut self, origin: Origin, separation: &SameValue, alone: impl Fn(Pe) -> bool) {
        let mut values: BTreeMap<Pe, (u32, BTreeSet<u32>)> = BTreeMap::new();
        for &(node, value) in &separation.values {
            let (members, values) = values.entry(self.partition.pe(node)).or_default();
            *members += 1;
            values.insert(value);
        }
        let distinct: BTreeSet<u32> = values.values().flat_map(|(_, values)| values.iter().copied()).collect();
        let covers_all = values.len() == self.partition.len();
        for (pe, (members, values)) in values {
            let size = self.partition.operators(pe).len();
            let mixed = values.len() > 1 || (members as usize) < size;
            let by_itself = match separation.mixed {
                Mixed::Alone => mixed && alone(pe),
                // By the number of values, odd as it is (rule fusion-13).
                Mixed::AloneByCount => values.len() != size && alone(pe),
                Mixed::Closed => mixed,
                Mixed::Refused => false,
            };
            let keeps_out = distinct.len() > 1 || (separation.others == Others::Apart && !covers_all);
            if by_itself {
                self.note(pe, Effect::Alone, Cause::Constraint(origin), members);
            } else if keeps_out {
                self.note(pe, Effect::Apart, Cause::Constraint(origin), members);
            }
        }
    }

    fn hosts(&mut self, graph: &Graph, composition: &Composition, pace: &mut Pace<'_>) -> Result<(), Error> {
        let mut ex_locations: BTreeMap<Symbol, Vec<Node>> = BTreeMap::new();
        let mut isolated = Vec::new();
        for (node, traits) in graph.having(|traits| traits.host_isolated || !traits.host_ex_locations.is_empty()) {
            pace.steps(steps(&[&traits.host_ex_locations]))?;
            traits.host_ex_locations.iter().for_each(|&id| ex_locations.entry(id).or_default().push(node));
            if traits.host_isolated {
                isolated.push(node);
            }
        }
        for (id, nodes) in ex_locations {
            pace.steps(u32::try_from(nodes.len()).unwrap_or(u32::MAX))?;
            self.apart(Cause::HostExLocation(id), &nodes);
        }
        let grouped: BTreeMap<Pe, u32> =
            self.count(composition.hosts.iter().flat_map(|(_, nodes)| nodes.iter().copied()));
        for (pe, members) in self.count(isolated.into_iter()) {
            // The PE keeps out operators that are bound to a host, and another PE holds such operators.
            if grouped.keys().any(|&other| other != pe) {
                self.note(pe, Effect::Apart, Cause::HostIsolation, members);
            }
        }
        self.placement(composition);
        Ok(())
    }

    /// PEs that ask for other hosts than most.
    fn placement(&mut self, composition: &Composition) {
        let specification = |pe: Pe| {
            let first = self.partition.operators(pe).first()?;
            Some(composition.rules.specification_of[composition.units.of(*first)])
        };
        let of: Vec<Option<u32>> = self.partition.pes().map(specification).collect();
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        for (position, number) in of.iter().enumerate() {
            if let Some(number) = number {
                counts.entry(*number).or_insert((0, usize::MAX - position)).0 += 1;
            }
        }
        // The most common; of equals the first.
        let Some((_, usual)) = counts.into_iter().map(|(number, count)| (count, number)).max() else { return };
        for (position, number) in of.into_iter().enumerate() {
            let pe = Pe::new(position);
            if number.is_some_and(|number| number != usual) {
                let members = u32::try_from(self.partition.operators(pe).len()).unwrap_or(u32::MAX);
                self.note(pe, Effect::Apart, Cause::Placement, members);
            }
        }
    }
}
