//! What an expansion for other widths takes over from the topology before (rule expansion-35).
//!
//! A resize changes one region or a few. An operator that is in none of them and reaches none of them is the same
//! operator with the same connections, so the new topology shares it instead of filling templates and following ports
//! again. Numbers are those of the topology before from the beginning, as [`super::relabel()`] would give them: nothing
//! has to be sorted afterwards.
//!
//! Knows: the shape for the new widths, the topology before. Must not know: what the operators are.
//!
//! Invariants (tested over generated applications): the result equals `relabel(expand(...), &Numbering::of(before))`,
//! but for the numbers of splitters that carry nothing, which a [`super::Numbering`] does not know; a width that grows
//! and shrinks back gives the topology before.

use super::connect::Ports;
use super::copies::Copies;
use super::imports::Imported;
use super::links::{End, Links, Reach};
use super::operators::Resolved;
use super::order::Numbered;
use super::relabel::{NewIndexes, host_pools, renumber_host_pools};
use super::shape::{ScopeId, Shape};
use super::splitter_numbers::{SplitterEnd, by_place, carrying, ends_of, give_numbers};
use super::{Connection, Node, Operator, Topology};
use crate::logical::OperatorId;
use crate::shared::Shared;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use std::collections::BTreeMap;

/// The topology before, seen from the one that is being made.
pub(super) struct Previous<'b> {
    topology: &'b Topology,
    /// What each operator was, if it was there.
    earlier: PrimaryMap<Node, PackedOption<Node>>,
    /// What has become of each operator, if it is still there.
    now: PrimaryMap<Node, PackedOption<Node>>,
    /// By scope, where channels are not what they were: the channel before of each channel, if it was there.
    channels: SecondaryMap<ScopeId, Option<Vec<Option<u32>>>>,
    /// The connections of `topology` before this one were looked at.
    passed: usize,
}

impl<'b> Previous<'b> {
    /// Gives the operators of `numbered` the indexes that they had; new ones get one that no operator had
    /// (rule expansion-10).
    ///
    /// Nothing if other regions were in force: then nothing can be taken over.
    pub(super) fn new(shape: &Shape<'_>, topology: &'b Topology, numbered: &mut Numbered) -> Option<Self> {
        let channels = channels_before(shape, topology)?;
        let before = &topology.numbered;
        let copies = Copies::new(before);
        let indexes: Vec<u32> = before.iter().map(|(index, _, _)| *index).collect();
        let mut now: PrimaryMap<Node, PackedOption<Node>> = indexes.iter().map(|_| PackedOption::default()).collect();
        let mut new = NewIndexes::new(indexes, numbered.last().map(|(index, _, _)| *index));
        let mut entries: Vec<((u32, OperatorId, u32), PackedOption<Node>)> = Vec::with_capacity(numbered.len());
        for &(fresh, id, channel) in numbered.iter() {
            let channel_before = channels[shape.scope_of[id]]
                .as_ref()
                .map_or(Some(channel), |channels| channels.get(channel as usize).copied().flatten());
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
        Some(Self { topology, earlier, now, channels, passed: 0 })
    }

    /// Which operators as written are the same in all their channels, as far as they are not in a consistent region.
    pub(super) fn unchanged(
        &self,
        shape: &Shape<'_>,
        links: &Links<'_, '_>,
        ports: &Ports,
        resolved: &Resolved,
        (numbered, imported): (&Numbered, &Imported),
    ) -> SecondaryMap<OperatorId, bool> {
        let reached = Reached::new(shape, links, &self.changed_regions(shape));
        let mut unchanged: SecondaryMap<OperatorId, bool> = SecondaryMap::new();
        for (id, written) in resolved.iter() {
            let same = |reach: &Reach| !reach.exports && !reach.ends.iter().any(|end| reached.touches(*end));
            unchanged[id] = self.channels[shape.scope_of[id]].is_none()
                && !written.varies(shape, id)
                && ports.outputs[id].iter().flatten().all(same);
        }
        for ((node, _), _) in imported {
            if let Some((_, id, _)) = numbered.get(node.index()) {
                unchanged[*id] = false;
            }
        }
        unchanged
    }

    /// By position, the regions whose channels are not what they were.
    fn changed_regions(&self, shape: &Shape<'_>) -> Vec<bool> {
        let changed = |scope: &Option<ScopeId>| scope.is_none_or(|scope| self.channels[scope].is_some());
        shape.scope_of_region.iter().map(changed).collect()
    }

    /// Takes over an operator that is `unchanged`, with its connections, which are appended. Operators are asked for in
    /// order.
    ///
    /// Nothing if it has to be made.
    pub(super) fn take(&mut self, node: Node, connections: &mut Vec<Connection>) -> Option<Shared<Operator>> {
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

    /// Operators that were there and have been made again, with what they were.
    fn made_again(&self, topology: &Topology) -> impl Iterator<Item = (Node, Node)> {
        self.earlier.iter().filter_map(|(node, earlier)| {
            let earlier = earlier.expand()?;
            (!topology.operators[node].is(&self.topology.operators[earlier])).then_some((earlier, node))
        })
    }

    /// What has become of an operator.
    fn now(&self, earlier: Node) -> Option<Node> {
        self.now.get(earlier)?.expand()
    }

    /// Gives splitters and host pools of what was made the numbers that they had.
    pub(super) fn renumber(&self, mut topology: Topology) -> Topology {
        let before = self.topology;
        // What was taken over has its numbers.
        let made_again: Vec<(Node, Node)> = self.made_again(&topology).collect();
        for (earlier, node) in made_again {
            let start = before.connections.partition_point(|connection| connection.source < earlier);
            let own = before.connections.get(start..).unwrap_or_default();
            let own = own.iter().take_while(|connection| connection.source == earlier).count();
            let mut own = before.connections.get(start..start + own).unwrap_or_default();
            for (port, was) in (0_u32..).zip(&before.operators[earlier].outputs) {
                let (run, rest) = own.split_at(own.partition_point(|connection| connection.source_port <= port));
                own = rest;
                if was.splitters.is_empty() {
                    continue;
                }
                let ends = ends_of(before, run).filter_map(|end| {
                    Some(SplitterEnd { source: self.now(end.source)?, target: self.now(end.target)?, ..end })
                });
                let mut known = carrying(&topology, ends);
                if let Some(is) = topology.operators[node].outputs.get(port as usize) {
                    by_place(&was.splitters, &is.splitters, &mut known);
                }
                give_numbers(&mut topology, (node, port), known);
            }
        }
        renumber_host_pools(&mut topology, &host_pools(before));
        topology
    }
}

/// By scope, where they are not all the same: what each global channel was, if it was there.
fn channels_before(shape: &Shape<'_>, topology: &Topology) -> Option<SecondaryMap<ScopeId, Option<Vec<Option<u32>>>>> {
    let widths: BTreeMap<u64, u32> = topology.regions.iter().map(|region| (region.index, region.width)).collect();
    if shape.scopes.values().filter(|scope| scope.region.is_some()).count() != widths.len() {
        return None;
    }
    let mut channels: SecondaryMap<ScopeId, Option<Vec<Option<u32>>>> = SecondaryMap::new();
    // A scope comes after the one around it.
    for (id, scope) in &shape.scopes {
        let Some(region) = scope.region else { continue };
        let before = *widths.get(&shape.application.regions.get(region)?.index)?;
        let outer = channels[scope.parent].clone();
        if outer.is_none() && before == scope.width {
            continue;
        }
        let of = |global: u32| {
            let (around, local) = (global / scope.width, global % scope.width);
            let around = outer.as_ref().map_or(Some(around), |outer| outer.get(around as usize).copied().flatten())?;
            (local < before).then(|| around * before + local)
        };
        channels[id] = Some((0..scope.channels).map(of).collect());
    }
    Some(channels)
}

/// Points on the way between ports, of which it is known whether a changed region begins or ends at or behind them.
struct Reached {
    splitters: usize,
    /// Splitters, then mergers.
    touches: Vec<bool>,
}

impl Reached {
    fn new(shape: &Shape<'_>, links: &Links<'_, '_>, changed: &[bool]) -> Self {
        let is_changed = |region: usize| changed.get(region).copied().unwrap_or(true);
        let regions = shape.splitters.values().map(|s| s.region).chain(shape.mergers.values().map(|m| m.region));
        let touches: Vec<bool> = regions.map(is_changed).collect();
        let mut reached = Self { splitters: shape.splitters.len(), touches };
        // Against the direction of the links.
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); reached.touches.len()];
        let splitters = shape.splitters.keys().map(|id| links.splitter(id));
        for (point, reach) in splitters.chain(shape.mergers.keys().map(|id| links.merger(id))).enumerate() {
            for next in reach.ends.iter().filter_map(|end| reached.point(*end)) {
                before[next].push(point);
            }
        }
        let mut open: Vec<usize> = (0..before.len()).filter(|point| reached.touches[*point]).collect();
        while let Some(point) = open.pop() {
            for &next in &before[point] {
                if !std::mem::replace(&mut reached.touches[next], true) {
                    open.push(next);
                }
            }
        }
        reached
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
