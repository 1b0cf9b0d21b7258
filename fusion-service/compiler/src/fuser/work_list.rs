//! The work list of manual fusion: units that have no PE yet, in order (rules fusion-18 and fusion-20).
//!
//! By the rules, every step sorts the whole list, stably and in place, by a key that starts with the unit's
//! [`UnitClass`]. This module has one list per class instead, in which units only ever move to the front. That gives
//! the same order. Each class is divided into lanes, one per [`Kind`], so that a PE need not look at units that it
//! refuses.

use super::rules::{EqualityClass, Kind, PeProfile, Rules};
use super::units::Unit;
use crate::budget::{Budget, Pace};
use crate::error::Error;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The first part of the sort key, the same for every PE: sources, then sinks, then the largest units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct UnitClass {
    pub(super) no_source: bool,
    pub(super) no_sink: bool,
    pub(super) size: Reverse<u32>,
}

/// Units of one class and kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane(u32);
entity_impl!(Lane, "lane");

/// Lanes whose kinds have a value for the same constraints, by these values. A PE that has a value for all of the
/// constraints need not look at lanes of other values. There may be one such lane per channel.
struct LaneGroup {
    constraints: Box<[u32]>,
    lanes: HashMap<Box<[u32]>, Vec<Lane>>,
}

pub(super) struct WorkList {
    class_of: PrimaryMap<Unit, u32>,
    lane_of: PrimaryMap<Unit, Lane>,
    lanes: PrimaryMap<Lane, (u32, Kind)>,
    /// Lanes that a PE of this [`EqualityClass`] may draw from.
    lanes_alike: PrimaryMap<EqualityClass, Vec<LaneGroup>>,
    /// Order within a class, ascending.
    stamps: PrimaryMap<Unit, i64>,
    front: i64,
    by_class: Lists,
    by_lane: Lists,
    first_class: usize,
    units: usize,
    operators: u64,
}

impl WorkList {
    /// A work list of `units`, in this order.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn new(
        units: &[Unit],
        rules: &Rules,
        class: impl Fn(Unit) -> UnitClass,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let class_of_unit: Vec<UnitClass> = units.iter().map(|&unit| class(unit)).collect();
        let mut classes: Vec<UnitClass> = class_of_unit.clone();
        classes.sort_unstable();
        classes.dedup();
        let keys: Vec<(u32, Kind)> = (units.iter().zip(&class_of_unit))
            .map(|(&unit, class)| (classes.partition_point(|before| before < class) as u32, rules.kind_of[unit]))
            .collect();
        let mut lanes = keys.clone();
        lanes.sort_unstable();
        lanes.dedup();
        let lanes: PrimaryMap<Lane, (u32, Kind)> = lanes.into_iter().collect();
        // Units that do not wait get class and lane 0, which is never asked for.
        let mut class_of: PrimaryMap<Unit, u32> = rules.kind_of.keys().map(|_| 0).collect();
        let mut lane_of: PrimaryMap<Unit, Lane> = rules.kind_of.keys().map(|_| Lane(0)).collect();
        for (&unit, key) in units.iter().zip(keys) {
            class_of[unit] = key.0;
            lane_of[unit] = lanes.binary_search_values_by_key(&key, |&lane| lane).unwrap_or_else(|lane| lane);
        }
        let mut lanes_alike: PrimaryMap<EqualityClass, Vec<LaneGroup>> = (0..rules.alike).map(|_| Vec::new()).collect();
        // Where the lanes of these constraints are: there may be as many groups as units.
        let mut positions: HashMap<(EqualityClass, Box<[u32]>), usize> = HashMap::new();
        let mut pace = budget.pace();
        for (lane, (_, kind)) in &lanes {
            let member = &rules.unit_traits[*kind];
            pace.steps(1 + u32::try_from(member.agreed.len()).unwrap_or(u32::MAX / 2))?;
            let Some(alike) = member.alike else { continue };
            let constraints: Box<[u32]> = member.agreed.iter().map(|(constraint, _)| *constraint).collect();
            let groups = &mut lanes_alike[alike];
            let key = (alike, constraints);
            let position = match positions.get(&key) {
                Some(position) => *position,
                None => {
                    groups.push(LaneGroup { constraints: key.1.clone(), lanes: HashMap::new() });
                    positions.insert(key, groups.len() - 1);
                    groups.len() - 1
                }
            };
            let values = member.agreed.iter().map(|(_, value)| *value).collect();
            groups[position].lanes.entry(values).or_default().push(lane);
        }
        let total = rules.kind_of.len();
        let mut waiting = Self {
            class_of,
            lane_of,
            lanes_alike,
            stamps: rules.kind_of.keys().map(|_| 0).collect(),
            front: 0,
            by_class: Lists::new(classes.len(), total),
            by_lane: Lists::new(lanes.len(), total),
            lanes,
            first_class: 0,
            units: units.len(),
            operators: class_of_unit.iter().map(|class| u64::from(class.size.0)).sum(),
        };
        for &unit in units.iter().rev() {
            waiting.push_front(unit);
        }
        Ok(waiting)
    }

    /// Number of waiting units.
    pub(super) fn len(&self) -> usize {
        self.units
    }

    /// Number of their operators.
    pub(super) fn operators(&self) -> u64 {
        self.operators
    }

    /// Position of a unit among all waiting units. Only comparing positions is meaningful.
    pub(super) fn position(&self, unit: Unit) -> (u32, i64) {
        (self.class_of[unit], self.stamps[unit])
    }

    /// Moves a unit to the front of its class.
    pub(super) fn move_to_front(&mut self, unit: Unit) {
        self.unlink(unit);
        self.push_front(unit);
    }

    /// Takes a unit, of so many operators, off the list.
    pub(super) fn remove(&mut self, unit: Unit, operators: u32) {
        self.unlink(unit);
        self.units -= 1;
        self.operators -= u64::from(operators);
    }

    /// The first unit of all.
    pub(super) fn first(&mut self) -> Option<Unit> {
        while self.first_class < self.by_class.heads.len() {
            if let Some(unit) = self.by_class.head(self.first_class) {
                return Some(unit);
            }
            self.first_class += 1;
        }
        None
    }

    /// Lanes that a PE with this profile may take units from, by class. They include all lanes that it accepts.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn lanes(&self, profile: &PeProfile, pace: &mut Pace<'_>) -> Result<Vec<Lane>, Error> {
        let mut lanes = Vec::new();
        for shape in profile.alike().iter().flat_map(|&alike| &self.lanes_alike[alike]) {
            pace.steps(u32::try_from(shape.constraints.len()).unwrap_or(u32::MAX).saturating_add(1))?;
            let values: Option<Box<[u32]>> = shape.constraints.iter().map(|&c| profile.agreed(c)).collect();
            match values {
                Some(values) => lanes.extend(shape.lanes.get(&values).into_iter().flatten()),
                None => lanes.extend(shape.lanes.values().flatten()),
            }
        }
        pace.steps(u32::try_from(lanes.len()).unwrap_or(u32::MAX))?;
        lanes.sort_unstable();
        Ok(lanes)
    }

    /// Class, by rank, and kind of a lane's units.
    pub(super) fn lane(&self, lane: Lane) -> (u32, Kind) {
        self.lanes[lane]
    }

    /// Units of a lane, in order.
    pub(super) fn units(&self, lane: Lane) -> impl Iterator<Item = Unit> {
        std::iter::successors(self.by_lane.head(lane.index()), |&unit| self.by_lane.next(unit))
    }

    fn push_front(&mut self, unit: Unit) {
        self.front -= 1;
        self.stamps[unit] = self.front;
        self.by_class.push_front(self.class_of[unit] as usize, unit);
        self.by_lane.push_front(self.lane_of[unit].index(), unit);
    }

    fn unlink(&mut self, unit: Unit) {
        self.by_class.unlink(self.class_of[unit] as usize, unit);
        self.by_lane.unlink(self.lane_of[unit].index(), unit);
    }
}

/// Doubly linked lists of units; a unit is in at most one.
struct Lists {
    heads: Vec<u32>,
    links: PrimaryMap<Unit, ListLink>,
}

#[derive(Clone, Copy)]
struct ListLink {
    previous: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

impl Lists {
    fn new(lists: usize, units: usize) -> Self {
        let none = ListLink { previous: NONE, next: NONE };
        Self { heads: vec![NONE; lists], links: (0..units).map(|_| none).collect() }
    }

    fn head(&self, list: usize) -> Option<Unit> {
        Some(self.heads[list]).filter(|&unit| unit != NONE).map(Unit::from_u32)
    }

    fn next(&self, unit: Unit) -> Option<Unit> {
        Some(self.links[unit].next).filter(|&unit| unit != NONE).map(Unit::from_u32)
    }

    fn push_front(&mut self, list: usize, unit: Unit) {
        let head = std::mem::replace(&mut self.heads[list], unit.as_u32());
        self.links[unit] = ListLink { previous: NONE, next: head };
        if head != NONE {
            self.links[Unit::from_u32(head)].previous = unit.as_u32();
        }
    }

    fn unlink(&mut self, list: usize, unit: Unit) {
        let ListLink { previous, next } = self.links[unit];
        match previous {
            NONE => self.heads[list] = next,
            previous => self.links[Unit::from_u32(previous)].next = next,
        }
        if next != NONE {
            self.links[Unit::from_u32(next)].previous = previous;
        }
    }
}
