//! Takes over operators from the topology before, in an expansion for other widths (rule expansion-35).
//!
//! A resize changes one region or a few. An operator that is in none of them and reaches none of them is the same
//! operator with the same connections. So the new topology shares it, and the expansion need not fill templates and
//! follow ports again. New operators get their numbers at once, as [`super::relabel()`] would give them, so nothing has
//! to be sorted afterwards.
//!
//! Knows: the shape for the new widths, the topology before. Must not know: what the operators are.
//!
//! Invariants (tested over generated applications): the result equals `relabel(expand(...), &Numbering::of(before))`,
//! except for the numbers of splitters that carry no connection, which a [`super::Numbering`] does not have. A width
//! that grows and shrinks back gives the topology before.

use super::connect::ReachedPorts;
use super::copies::Copies;
use super::links::{End, Links, Reach};
use super::operators::ResolvedPrimitives;
use super::order::Numbered;
use super::relabel::{NewIndexes, host_pools, renumber_host_pools};
use super::shape::{Scope, ScopeId, Shape};
use super::splitter_numbers::{SplitterEnd, add_by_path, ends_of, numbers_by_connection, set_numbers};
use super::{Connection, EvaluatedImports, Merger, Node, PhysicalOperator, ResolvedAnnotation, Topology};
use crate::budget::Budget;
use crate::error::Error;
use crate::logical::OperatorId;
use crate::shared::Shared;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The topology before, compared with the one that is being made.
pub(super) struct Previous<'b> {
    topology: &'b Topology,
    /// By new operator: the same operator before, if it existed.
    earlier: PrimaryMap<Node, PackedOption<Node>>,
    /// By operator before: the same operator now, if it still exists.
    now: PrimaryMap<Node, PackedOption<Node>>,
    /// By scope whose channels have changed, because its width has or that of a region around it: its width before.
    widths: SecondaryMap<ScopeId, Option<u32>>,
    /// The connections of `topology` before this position were passed.
    passed: usize,
}

impl<'b> Previous<'b> {
    /// Gives the operators of `numbered` the indexes that they had; new ones get one that no operator had
    /// (rule expansion-10).
    ///
    /// Returns nothing if other regions were in force. Then nothing can be taken over.
    pub(super) fn new(
        shape: &Shape<'_>,
        topology: &'b Topology,
        numbered: &mut Numbered,
        budget: &Budget,
    ) -> Result<Option<Self>, Error> {
        let Some(widths) = widths_before(shape, topology) else { return Ok(None) };
        let mut pace = budget.pace();
        let before = &topology.numbered;
        let copies = Copies::new(before);
        let indexes: Vec<u32> = before.iter().map(|(index, _, _)| *index).collect();
        let mut now: PrimaryMap<Node, PackedOption<Node>> = indexes.iter().map(|_| PackedOption::default()).collect();
        let mut new = NewIndexes::new(indexes, numbered.last().map(|(index, _, _)| *index));
        let mut entries: Vec<((u32, OperatorId, u32), PackedOption<Node>)> = Vec::with_capacity(numbered.len());
        for &(fresh, id, channel) in numbered.iter() {
            pace.step()?;
            let channel_before = channel_before(shape, &widths, shape.scope_of[id], channel);
            let earlier = channel_before.and_then(|channel| copies.node(id, channel));
            let number = earlier.and_then(|earlier| before.get(earlier.index()));
            let index = number.map_or_else(|| new.index(fresh), |(index, _, _)| *index);
            entries.push(((index, id, channel), earlier.into()));
        }
        // Made of few runs that ascend.
        entries.sort_by_key(|((index, _, _), _)| *index);
        for (position, (_, earlier)) in entries.iter().enumerate() {
            if let Some(earlier) = earlier.expand() {
                now[earlier] = Node::new(position).into();
            }
        }
        numbered.clear();
        numbered.extend(entries.iter().map(|(numbered, _)| *numbered));
        let earlier = entries.into_iter().map(|(_, earlier)| earlier).collect();
        Ok(Some(Self { topology, earlier, now, widths, passed: 0 }))
    }

    /// Finds the logical operators that are the same in all their channels, apart from their consistent regions.
    pub(super) fn unchanged(
        &self,
        shape: &Shape<'_>,
        links: &Links<'_, '_>,
        ports: &ReachedPorts,
        resolved: &ResolvedPrimitives,
        budget: &Budget,
    ) -> Result<SecondaryMap<OperatorId, bool>, Error> {
        let reached = ReachedRegions::new(shape, links, &self.changed_regions(shape), budget)?;
        let mut unchanged: SecondaryMap<OperatorId, bool> = SecondaryMap::new();
        let mut pace = budget.pace();
        for (id, written) in resolved.iter() {
            pace.step()?;
            for reach in ports.outputs[id].iter().flatten() {
                pace.steps(u32::try_from(reach.ends.len()).unwrap_or(u32::MAX))?;
            }
            let same = |reach: &Reach| !reach.exports && !reach.ends.iter().any(|end| reached.touches(*end));
            unchanged[id] = self.widths[shape.scope_of[id]].is_none()
                && !written.varies(shape, id)
                && ports.outputs[id].iter().flatten().all(same);
        }
        Ok(unchanged)
    }

    /// The topology that was there before.
    pub(super) fn topology(&self) -> &'b Topology {
        self.topology
    }

    /// Whether the channels of a scope are as they were.
    pub(super) fn keeps(&self, scope: ScopeId) -> bool {
        self.widths[scope].is_none()
    }

    /// What an input port of an operator had imported.
    pub(super) fn imports(&self, node: Node, port: u32) -> Option<Box<EvaluatedImports>> {
        let earlier = self.earlier.get(node)?.expand()?;
        self.topology.operators[earlier].inputs.get(port as usize)?.imports.clone()
    }

    /// The annotations that an operator had, if it existed.
    pub(super) fn annotations(&self, node: Node) -> Option<Arc<[ResolvedAnnotation]>> {
        let earlier = self.earlier.get(node)?.expand()?;
        Some(Arc::clone(&self.topology.operators[earlier].annotations))
    }

    /// The mergers before the ports of an operator: the lists in memory that it had, where they are equal to `now`.
    pub(super) fn mergers(&self, node: Node, now: &[Arc<[Merger]>]) -> Vec<Arc<[Merger]>> {
        let earlier = self.earlier.get(node).and_then(|earlier| earlier.expand());
        let had = |port: usize| Some(&self.topology.operators[earlier?].inputs.get(port)?.mergers);
        let list = |(port, now): (usize, &Arc<[Merger]>)| had(port).filter(|had| *had == now).unwrap_or(now).clone();
        now.iter().enumerate().map(list).collect()
    }

    /// By position of the region: whether its channels have changed.
    fn changed_regions(&self, shape: &Shape<'_>) -> Vec<bool> {
        let changed = |scope: &Option<ScopeId>| scope.is_none_or(|scope| self.widths[scope].is_some());
        shape.scope_of_region.iter().map(changed).collect()
    }

    /// Takes over an operator that is `unchanged`, and appends its connections. Callers must ask for operators in
    /// order.
    ///
    /// Returns nothing if the operator has to be made.
    pub(super) fn take(&mut self, node: Node, connections: &mut Vec<Connection>) -> Option<Shared<PhysicalOperator>> {
        let earlier = self.earlier.get(node)?.expand()?;
        let operator = &self.topology.operators[earlier];
        let all = &self.topology.connections;
        while all.get(self.passed).is_some_and(|connection| connection.source < earlier) {
            self.passed += 1;
        }
        let start = connections.len();
        for connection in all.get(self.passed..)?.iter().take_while(|connection| connection.source == earlier) {
            let Some(target) = self.now.get(connection.target).and_then(|now| now.expand()) else {
                connections.truncate(start);
                return None;
            };
            connections.push(Connection { source: node, target, ..*connection });
        }
        Some(operator.clone())
    }

    /// Operators that existed before and have been made again, each with the operator before.
    fn remade(&self, topology: &Topology) -> impl Iterator<Item = (Node, Node)> {
        self.earlier.iter().filter_map(|(node, earlier)| {
            let earlier = earlier.expand()?;
            (!topology.operators[node].is(&self.topology.operators[earlier])).then_some((earlier, node))
        })
    }

    /// The operator now that an operator before has become.
    fn now(&self, earlier: Node) -> Option<Node> {
        self.now.get(earlier)?.expand()
    }

    /// Gives splitters and host pools of operators that were made again the numbers that they had.
    pub(super) fn renumber(&self, mut topology: Topology, budget: &Budget) -> Result<Topology, Error> {
        let before = self.topology;
        let mut pace = budget.pace();
        // Operators that were taken over have their numbers already. Most of the others have no splitters.
        let splits = |earlier: Node| before.operators[earlier].outputs.iter().any(|port| !port.splitters.is_empty());
        let remade: Vec<(Node, Node)> = self.remade(&topology).filter(|(earlier, _)| splits(*earlier)).collect();
        for (earlier, node) in remade {
            let start = before.connections.partition_point(|connection| connection.source < earlier);
            let own = before.connections.get(start..).unwrap_or_default();
            let own = own.iter().take_while(|connection| connection.source == earlier).count();
            pace.steps(u32::try_from(own).unwrap_or(u32::MAX))?;
            let mut own = before.connections.get(start..start + own).unwrap_or_default();
            for (port, was) in (0_u32..).zip(&before.operators[earlier].outputs) {
                let (run, rest) = own.split_at(own.partition_point(|connection| connection.source_port <= port));
                own = rest;
                pace.step()?;
                if was.splitters.is_empty() {
                    continue;
                }
                let ends = ends_of(before, run).filter_map(|end| {
                    Some(SplitterEnd { source: self.now(end.source)?, target: self.now(end.target)?, ..end })
                });
                let mut known = numbers_by_connection(&topology, ends);
                if let Some(is) = topology.operators[node].outputs.get(port as usize) {
                    add_by_path(&was.splitters, &is.splitters, &mut known);
                }
                set_numbers(&mut topology, (node, port), known);
            }
        }
        renumber_host_pools(&mut topology, &host_pools(before));
        Ok(topology)
    }
}

/// By scope whose channels have changed: its width before. Returns nothing if other regions were in force.
fn widths_before(shape: &Shape<'_>, topology: &Topology) -> Option<SecondaryMap<ScopeId, Option<u32>>> {
    let regions: BTreeMap<u64, u32> = topology.regions.iter().map(|region| (region.index, region.width)).collect();
    if shape.scopes.values().filter(|scope| scope.region.is_some()).count() != regions.len() {
        return None;
    }
    let mut widths: SecondaryMap<ScopeId, Option<u32>> = SecondaryMap::new();
    // A scope comes after the one around it.
    for (id, scope) in &shape.scopes {
        let Some(region) = scope.region else { continue };
        let before = *regions.get(&shape.application.regions.get(region)?.index)?;
        let is_changed = widths[scope.parent].is_some() || before != scope.width;
        widths[id] = is_changed.then_some(before);
    }
    Some(widths)
}

/// The global channel before of what is in a global channel of a scope now, if it existed. It is computed for operators
/// only: regions may have very many channels without any.
fn channel_before(
    shape: &Shape<'_>,
    widths: &SecondaryMap<ScopeId, Option<u32>>,
    mut scope: ScopeId,
    channel: u32,
) -> Option<u32> {
    // Digit by digit, innermost first (rule expansion-5). A scope that has not changed is in none that has.
    let (mut rest, mut global, mut place) = (channel, 0_u64, 1_u64);
    while let Some(before) = widths[scope] {
        let Scope { width, parent, .. } = shape.scopes[scope];
        let local = rest % width;
        if local >= before {
            return None;
        }
        global += u64::from(local) * place;
        place *= u64::from(before);
        (rest, scope) = (rest / width, parent);
    }
    u32::try_from(global + u64::from(rest) * place).ok()
}

/// Splitters and mergers, and for each whether a changed region begins or ends at it or behind it.
struct ReachedRegions {
    splitters: usize,
    /// Splitters, then mergers.
    touches: Vec<bool>,
}

impl ReachedRegions {
    fn new(shape: &Shape<'_>, links: &Links<'_, '_>, changed: &[bool], budget: &Budget) -> Result<Self, Error> {
        let is_changed = |region: usize| changed.get(region).copied().unwrap_or(true);
        let regions = shape.splitters.values().map(|s| s.region).chain(shape.mergers.values().map(|m| m.region));
        let touches: Vec<bool> = regions.map(is_changed).collect();
        let mut reached = Self { splitters: shape.splitters.len(), touches };
        // The points before each point.
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); reached.touches.len()];
        let mut pace = budget.pace();
        let splitters = shape.splitters.keys().map(|id| links.splitter(id));
        for (point, reach) in splitters.chain(shape.mergers.keys().map(|id| links.merger(id))).enumerate() {
            for end in &reach.ends {
                pace.step()?;
                if let Some(next) = reached.point(*end) {
                    before[next].push(point);
                }
            }
        }
        let mut open: Vec<usize> = (0..before.len()).filter(|point| reached.touches[*point]).collect();
        while let Some(point) = open.pop() {
            for &next in &before[point] {
                pace.step()?;
                if !std::mem::replace(&mut reached.touches[next], true) {
                    open.push(next);
                }
            }
        }
        Ok(reached)
    }

    fn point(&self, end: End) -> Option<usize> {
        match end {
            End::Port(..) | End::Export(_) => None,
            End::Splitter(id) => Some(id.index()),
            End::Merger(id) => Some(self.splitters + id.index()),
        }
    }

    fn touches(&self, end: End) -> bool {
        self.point(end).is_some_and(|point| self.touches[point])
    }
}
