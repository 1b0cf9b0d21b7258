//! The surroundings of the PE that is being filled: waiting units with a connection to it, the *frontier*.
//!
//! While a PE grows along a chain, every step sorts the whole work list by the number of connections with the PE
//! (rule fusion-21). Only units of the frontier have connections with it. So this module keeps only the frontier in
//! order, and moves only units whose number of connections has changed.

use super::graph::Graph;
use super::units::{Unit, Units};
use super::waiting::Waiting;
use cranelift_entity::PrimaryMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Place in the order of the frontier: most connections from the PE, then most connections to it, then as before.
pub(super) type Rank = (Reverse<u32>, Reverse<u32>, u64);

/// A unit of the frontier of a PE that is put aside: connections from the PE to the unit, and back.
pub(super) type Neighbour = (Unit, u32, u32);

pub(super) struct Chain {
    /// Connections from the PE to each unit, and from each unit to the PE; 0 outside the frontier.
    down: PrimaryMap<Unit, u32>,
    up: PrimaryMap<Unit, u32>,
    /// Units of the frontier; those that found a PE meanwhile are skipped.
    frontier: Vec<Unit>,
    /// Place at the last sort of this chain; none before.
    ranks: PrimaryMap<Unit, Option<Rank>>,
    /// Units in order. An entry whose rank is not the unit's rank any more is skipped.
    candidates: BinaryHeap<Reverse<(Rank, Unit)>>,
    /// Refused in this chain.
    is_refused: PrimaryMap<Unit, bool>,
    /// Units whose numbers have changed since the last sort.
    changed: Vec<Unit>,
    is_changed: PrimaryMap<Unit, bool>,
    sorted: bool,
    next: u64,
}

impl Chain {
    pub(super) fn new(units: &Units) -> Self {
        Self {
            down: units.keys().map(|_| 0).collect(),
            up: units.keys().map(|_| 0).collect(),
            frontier: Vec::new(),
            ranks: units.keys().map(|_| None).collect(),
            candidates: BinaryHeap::new(),
            is_refused: units.keys().map(|_| false).collect(),
            changed: Vec::new(),
            is_changed: units.keys().map(|_| false).collect(),
            sorted: false,
            next: 0,
        }
    }

    /// Size of the frontier.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.frontier.len()).unwrap_or(u32::MAX)
    }

    /// Takes a unit into the PE: what is connected with it joins the frontier.
    pub(super) fn grow(&mut self, unit: Unit, graph: &Graph, units: &Units, waits: impl Fn(Unit) -> bool) {
        for &node in units.operators(unit) {
            for connection in graph.outgoing(node) {
                let other = units.of(connection.target);
                if other != unit && waits(other) {
                    self.meet(other);
                    self.down[other] += 1;
                }
            }
            for connection in graph.incoming(node) {
                let other = units.of(connection.source);
                if other != unit && waits(other) {
                    self.meet(other);
                    self.up[other] += 1;
                }
            }
        }
    }

    /// Notes that the numbers of a unit are about to change.
    fn meet(&mut self, unit: Unit) {
        if self.down[unit] == 0 && self.up[unit] == 0 {
            self.frontier.push(unit);
        }
        if self.sorted && !self.is_changed[unit] {
            self.is_changed[unit] = true;
            self.changed.push(unit);
        }
    }

    /// The sort of a step that continues the chain (rule fusion-21).
    pub(super) fn sort(&mut self, waiting: &Waiting, waits: impl Fn(Unit) -> bool) {
        if self.sorted {
            // What has not changed keeps its place. What has changed comes after its new equals, which all came before
            // it; among each other the changed keep their order. The rest of the list is behind the frontier.
            let mut changed = std::mem::take(&mut self.changed);
            changed.sort_by_cached_key(|&unit| {
                let rank = self.ranks[unit];
                (rank.is_none(), rank, waiting.position(unit))
            });
            for unit in changed.drain(..) {
                self.is_changed[unit] = false;
                let rank = self.rank(unit);
                self.ranks[unit] = Some(rank);
                if !self.is_refused[unit] {
                    self.candidates.push(Reverse((rank, unit)));
                }
            }
            self.changed = changed;
            if self.candidates.len() > 4 * self.frontier.len() {
                let ranks = &self.ranks;
                self.candidates.retain(|&Reverse((rank, unit))| ranks[unit] == Some(rank));
            }
        } else {
            self.sorted = true;
            self.frontier.retain(|&unit| waits(unit));
            let mut order = self.frontier.clone();
            order
                .sort_by_cached_key(|&unit| (Reverse(self.down[unit]), Reverse(self.up[unit]), waiting.position(unit)));
            for unit in order {
                let rank = self.rank(unit);
                self.ranks[unit] = Some(rank);
                self.candidates.push(Reverse((rank, unit)));
            }
        }
    }

    fn rank(&mut self, unit: Unit) -> Rank {
        self.next += 1;
        (Reverse(self.down[unit]), Reverse(self.up[unit]), self.next)
    }

    /// The first unit that joins; those that are refused are not asked again in this chain.
    pub(super) fn take_first(&mut self, mut joins: impl FnMut(Unit) -> bool) -> Option<Unit> {
        while let Some(Reverse((rank, unit))) = self.candidates.pop() {
            if self.ranks[unit] != Some(rank) {
                continue;
            }
            if joins(unit) {
                return Some(unit);
            }
            self.is_refused[unit] = true;
        }
        None
    }

    /// Ends the chain and carries its order over to the work list.
    pub(super) fn end(&mut self, waiting: &mut Waiting, waits: impl Fn(Unit) -> bool) {
        if !self.sorted {
            return;
        }
        self.sorted = false;
        self.candidates.clear();
        for unit in self.changed.drain(..) {
            self.is_changed[unit] = false;
        }
        let mut moved: Vec<(Rank, Unit)> = Vec::new();
        for &unit in &self.frontier {
            self.is_refused[unit] = false;
            if let Some(rank) = self.ranks[unit].take()
                && waits(unit)
            {
                moved.push((rank, unit));
            }
        }
        moved.sort_unstable();
        moved.into_iter().rev().for_each(|(_, unit)| waiting.move_to_front(unit));
    }

    /// The sort of a step that begins a chain (rule fusion-20).
    pub(super) fn bring_forward(&mut self, waiting: &mut Waiting, waits: impl Fn(Unit) -> bool) {
        self.frontier.retain(|&unit| waits(unit));
        let mut order = self.frontier.clone();
        order.sort_by_cached_key(|&unit| {
            let (class, stamp) = waiting.position(unit);
            (class, Reverse(self.down[unit] + self.up[unit]), stamp)
        });
        order.into_iter().rev().for_each(|unit| waiting.move_to_front(unit));
    }

    /// Puts the frontier aside; [`Chain::end`] must have been called.
    pub(super) fn put_aside(&mut self, waits: impl Fn(Unit) -> bool) -> Vec<Neighbour> {
        let mut neighbours = Vec::new();
        for unit in self.frontier.drain(..) {
            let (down, up) = (std::mem::take(&mut self.down[unit]), std::mem::take(&mut self.up[unit]));
            if waits(unit) {
                neighbours.push((unit, down, up));
            }
        }
        neighbours
    }

    /// Takes up a frontier that was put aside; the present one must be empty.
    pub(super) fn take_up(&mut self, neighbours: Vec<Neighbour>, waits: impl Fn(Unit) -> bool) {
        for (unit, down, up) in neighbours {
            if waits(unit) {
                self.down[unit] = down;
                self.up[unit] = up;
                self.frontier.push(unit);
            }
        }
    }
}
