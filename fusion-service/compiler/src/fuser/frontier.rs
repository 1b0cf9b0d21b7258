//! The *frontier* of the PE that is being filled: the waiting units that are connected with it.
//!
//! While a PE grows along a chain, every step sorts the whole work list by the number of connections with the PE
//! (rule fusion-21). Only units of the frontier have connections with it. So this module keeps only the frontier in
//! order, and moves only units whose number of connections has changed.

use super::graph::Graph;
use super::units::{Unit, Units};
use super::work_list::WorkList;
use cranelift_entity::PrimaryMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Sorts the frontier: units with the most connections from the PE first, then those with the most connections to it,
/// then in the order of the sort before.
pub(super) type Rank = (Reverse<u32>, Reverse<u32>, u64);

/// A unit in the saved frontier of a PE, with the number of connections from the PE to the unit and back.
pub(super) type Neighbour = (Unit, u32, u32);

pub(super) struct Frontier {
    /// Connections from the PE to each unit, and from each unit to the PE; 0 outside the frontier.
    down: PrimaryMap<Unit, u32>,
    up: PrimaryMap<Unit, u32>,
    /// Its units. Readers skip those that have joined a PE since.
    units: Vec<Unit>,
    /// Rank at the last sort of this chain; none before the first sort.
    ranks: PrimaryMap<Unit, Option<Rank>>,
    /// Units by rank. Readers skip an entry whose rank is not the unit's rank any more.
    candidates: BinaryHeap<Reverse<(Rank, Unit)>>,
    /// Whether the PE has refused the unit in this chain.
    is_refused: PrimaryMap<Unit, bool>,
    /// Units whose numbers have changed since the last sort.
    changed: Vec<Unit>,
    is_changed: PrimaryMap<Unit, bool>,
    sorted: bool,
    next: u64,
}

impl Frontier {
    pub(super) fn new(units: &Units) -> Self {
        Self {
            down: units.keys().map(|_| 0).collect(),
            up: units.keys().map(|_| 0).collect(),
            units: Vec::new(),
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
        u32::try_from(self.units.len()).unwrap_or(u32::MAX)
    }

    /// Records that a unit has joined the PE. Waiting units that are connected with it join the frontier.
    pub(super) fn grow(&mut self, unit: Unit, graph: &Graph, units: &Units, waits: impl Fn(Unit) -> bool) {
        for &node in units.operators(unit) {
            for connection in graph.outgoing(node) {
                let other = units.of(connection.target);
                if other != unit && waits(other) {
                    self.before_change(other);
                    self.down[other] += 1;
                }
            }
            for connection in graph.incoming(node) {
                let other = units.of(connection.source);
                if other != unit && waits(other) {
                    self.before_change(other);
                    self.up[other] += 1;
                }
            }
        }
    }

    /// Records that the connection counts of a unit are about to change.
    fn before_change(&mut self, unit: Unit) {
        if self.down[unit] == 0 && self.up[unit] == 0 {
            self.units.push(unit);
        }
        if self.sorted && !self.is_changed[unit] {
            self.is_changed[unit] = true;
            self.changed.push(unit);
        }
    }

    /// The sort of a step that continues the chain (rule fusion-21).
    pub(super) fn sort(&mut self, waiting: &WorkList, waits: impl Fn(Unit) -> bool) {
        if self.sorted {
            // The sort is stable, so a unit that has not changed keeps its place. A unit that has changed goes behind
            // all units with its new counts. Changed units keep their order among each other. The rest of the work list
            // is behind the frontier.
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
            if self.candidates.len() > 4 * self.units.len() {
                let ranks = &self.ranks;
                self.candidates.retain(|&Reverse((rank, unit))| ranks[unit] == Some(rank));
            }
        } else {
            self.sorted = true;
            self.units.retain(|&unit| waits(unit));
            let mut order = self.units.clone();
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

    /// Takes the first unit that joins the PE. Units that do not join are not tried again in this chain.
    ///
    /// # Errors
    ///
    /// `joins` has failed.
    pub(super) fn take_first<E>(&mut self, mut joins: impl FnMut(Unit) -> Result<bool, E>) -> Result<Option<Unit>, E> {
        while let Some(Reverse((rank, unit))) = self.candidates.pop() {
            if self.ranks[unit] != Some(rank) {
                continue;
            }
            if joins(unit)? {
                return Ok(Some(unit));
            }
            self.is_refused[unit] = true;
        }
        Ok(None)
    }

    /// Ends the chain and moves its units to the front of the work list, in its order.
    pub(super) fn end_chain(&mut self, waiting: &mut WorkList, waits: impl Fn(Unit) -> bool) {
        if !self.sorted {
            return;
        }
        self.sorted = false;
        self.candidates.clear();
        for unit in self.changed.drain(..) {
            self.is_changed[unit] = false;
        }
        let mut moved: Vec<(Rank, Unit)> = Vec::new();
        for &unit in &self.units {
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
    pub(super) fn bring_forward(&mut self, waiting: &mut WorkList, waits: impl Fn(Unit) -> bool) {
        self.units.retain(|&unit| waits(unit));
        let mut order = self.units.clone();
        order.sort_by_cached_key(|&unit| {
            let (class, stamp) = waiting.position(unit);
            (class, Reverse(self.down[unit] + self.up[unit]), stamp)
        });
        order.into_iter().rev().for_each(|unit| waiting.move_to_front(unit));
    }

    /// Gives the frontier away and empties it. The caller must have called [`Frontier::end_chain`].
    pub(super) fn save(&mut self, waits: impl Fn(Unit) -> bool) -> Vec<Neighbour> {
        let mut neighbours = Vec::new();
        for unit in self.units.drain(..) {
            let (down, up) = (std::mem::take(&mut self.down[unit]), std::mem::take(&mut self.up[unit]));
            if waits(unit) {
                neighbours.push((unit, down, up));
            }
        }
        neighbours
    }

    /// Takes a saved frontier. The current one must be empty.
    pub(super) fn restore(&mut self, neighbours: Vec<Neighbour>, waits: impl Fn(Unit) -> bool) {
        for (unit, down, up) in neighbours {
            if waits(unit) {
                self.down[unit] = down;
                self.up[unit] = up;
                self.units.push(unit);
            }
        }
    }
}
