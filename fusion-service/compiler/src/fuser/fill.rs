//! Manual fusion: one greedy pass that fills PEs along chains of connections (rules fusion-4 and fusion-19).
//!
//! Each step begins a chain or continues one. To begin one, the smallest PE takes the first unit that it accepts:
//! sources first, then sinks, then large units, then units with many connections. To continue one, the same PE takes
//! the unit with the most connections to it. The order of the work list at any step depends on all the sorts before. So
//! [`WorkList`] and [`Frontier`] keep the order and never compute it anew. The pass aims at the number of PEs but may
//! exceed it: units that the rules keep out of every PE get new PEs.
//!
//! Knows: units, their connections, whether a PE accepts one. Must not know: why it does not, operators.

use super::composition::Composition;
use super::frontier::{Frontier, Neighbour};
use super::hash_order::copied_set_order;
use super::host_bindings::HostBindings;
use super::rules::{Kind, PeProfile, Rules, is_source_or_sink};
use super::units::Unit;
use super::work_list::{Lane, UnitClass, WorkList};
use crate::budget::{Budget, Pace};
use crate::error::Error;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A PE that is being filled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Container(u32);
entity_impl!(Container, "container");

/// A PE that exists before the filling begins.
#[derive(Clone, Debug)]
pub(super) struct Seed {
    /// The units in it; not empty when the filling begins.
    pub(super) units: Vec<Unit>,
    /// What these units have in common.
    profile: PeProfile,
    /// The kind of the unit that was added last, if any number of units of this kind may share a PE.
    last: Option<Kind>,
    /// The PE restarts in any case, whether or not units join it.
    restarts: bool,
    /// The PE takes no further units (rule fusion-29).
    closed: bool,
}

impl Seed {
    pub(super) fn empty(restarts: bool, closed: bool) -> Self {
        Self { units: Vec::new(), profile: PeProfile::default(), last: None, restarts, closed }
    }

    /// Whether a unit may join, as far as equality and kinds go.
    pub(super) fn accepts(&self, unit: Unit, rules: &Rules) -> bool {
        self.last == Some(rules.kind_of[unit]) || self.profile.accepts(rules.unit_traits(unit))
    }

    pub(super) fn add(&mut self, unit: Unit, rules: &Rules) {
        self.units.push(unit);
        let kind = rules.kind_of[unit];
        if self.last != Some(kind) {
            let member = &rules.unit_traits[kind];
            self.profile.add(member);
            self.last = self.profile.accepts(member).then_some(kind);
        }
    }
}

/// Where each unit went. The first containers are the seeds, in their order.
pub(super) struct FilledContainers {
    pub(super) container_of: PrimaryMap<Unit, Container>,
    pub(super) containers: usize,
}

struct ContainerState {
    units: Vec<Unit>,
    operators: u32,
    /// Number of operators that it aims at, set when it was last the current container.
    target: Option<u32>,
    profile: PeProfile,
    /// A further unit costs no restart, because the PE restarts in any case.
    free: bool,
    /// Its saved frontier while it is not the current container. `None`: not known, and collected when needed.
    saved_frontier: Option<Vec<Neighbour>>,
    /// Lanes that it has not refused yet. `None`: no lane was tried yet, or they are not remembered.
    lanes: Option<Vec<Lane>>,
}

impl ContainerState {
    fn is_full(&self) -> bool {
        self.target.is_some_and(|target| self.operators >= target)
    }
}

struct Fill<'a> {
    composition: &'a Composition<'a>,
    host_bindings: HostBindings<'a>,
    containers: PrimaryMap<Container, ContainerState>,
    home: PrimaryMap<Unit, PackedOption<Container>>,
    waiting: WorkList,
    frontier: Frontier,
    /// The container whose whole frontier `frontier` holds.
    frontier_of: Option<Container>,
    /// Containers that may still take units.
    available: BTreeSet<(Priority, u32, Container)>,
    empty: usize,
    /// Available containers that are not full, and the operators in them.
    open: u64,
    open_operators: u64,
    /// Containers that are free come before others until they hold this many operators; 0 if no seed takes units.
    most_if_free: u32,
    /// Available containers whose priority is [`Priority::Free`], and the operators in them.
    free: u64,
    free_operators: u64,
    /// Capacity of the lists of lanes that containers remember, together.
    remembered: usize,
    most_remembered: usize,
    pace: Pace<'a>,
}

/// Lanes that containers may remember together: 64 MB. There may be as many lanes as units, and as many containers.
/// What is not remembered is found again, and is the same: a refusal is final, and no unit enters a lane.
const MOST_REMEMBERED: usize = 16_000_000;

/// Which containers begin a chain first; of containers with the same priority, the smallest does (rule fusion-25).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Empty,
    Free,
    Any,
}

/// Distributes all units: `count` PEs where the rules allow, of which `seeds` exist already.
pub(super) fn fill(
    composition: &Composition,
    host_bindings: HostBindings,
    count: u32,
    seeds: Vec<Seed>,
    budget: &Budget,
) -> Result<FilledContainers, Error> {
    fill_remembering(composition, host_bindings, count, (seeds, MOST_REMEMBERED), budget)
}

/// As [`fill`], for containers that remember at most so many lanes together.
pub(super) fn fill_remembering(
    composition: &Composition,
    host_bindings: HostBindings,
    count: u32,
    (seeds, most_remembered): (Vec<Seed>, usize),
    budget: &Budget,
) -> Result<FilledContainers, Error> {
    let (graph, units, rules) = (composition.graph, &composition.units, &composition.rules);
    let mut home: PrimaryMap<Unit, PackedOption<Container>> = units.keys().map(|_| None.into()).collect();
    for (number, seed) in seeds.iter().enumerate() {
        seed.units.iter().for_each(|&unit| home[unit] = Container::new(number).into());
    }

    let order: Vec<Unit> = units.keys().filter(|&unit| home[unit].is_none()).collect();
    let hashes: Vec<u32> = order.iter().map(|&unit| composition.hash(unit)).collect();
    let order: Vec<Unit> = copied_set_order(&hashes).into_iter().map(|position| order[position as usize]).collect();
    let (alone, order): (Vec<Unit>, Vec<Unit>) = order.into_iter().partition(|&unit| rules.alone[unit]);
    let class = |unit: Unit| {
        let (source, sink) = is_source_or_sink(graph, units.operators(unit));
        UnitClass { no_source: !source, no_sink: !sink, size: Reverse(units.size(unit)) }
    };

    let mut fill = Fill {
        composition,
        host_bindings,
        containers: PrimaryMap::new(),
        home,
        waiting: WorkList::new(&order, rules, class, budget)?,
        frontier: Frontier::new(units),
        frontier_of: None,
        available: BTreeSet::new(),
        empty: 0,
        open: 0,
        open_operators: 0,
        most_if_free: 0,
        free: 0,
        free_operators: 0,
        remembered: 0,
        most_remembered,
        pace: budget.pace(),
    };
    let seeded = seeds.iter().any(|seed| !seed.closed);
    for seed in seeds {
        fill.add_seed(seed)?;
    }
    for unit in alone {
        let container = fill.add(false);
        fill.put(unit, container)?;
    }
    let count = (count as usize).min(graph.operators().len());
    while fill.containers.len() < count {
        let container = fill.add(false);
        fill.offer(container);
    }
    if seeded {
        fill.prefer_free();
    }
    fill.run()?;
    debug_assert!(fill.remembered <= most_remembered);
    let containers = fill.containers.len();
    let unplaced = Container::new(containers);
    let container_of = fill.home.values().map(|home| home.expand().unwrap_or(unplaced)).collect();
    Ok(FilledContainers { container_of, containers })
}

impl Fill<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let mut current: Option<Container> = None;
        while self.waiting.len() > 0 {
            self.pace.step()?;
            // No more units than containers, and some still empty: a new chain, which begins in an empty one.
            if self.waiting.len() <= self.available.len() && self.empty > 0 {
                current = None;
            }
            let begins = current.is_none();
            let container = current.unwrap_or_else(|| self.smallest());
            self.retarget(container);
            let pick = if begins { self.first_for(container) } else { self.next_for(container) }?;
            current = match pick {
                Some(unit) => {
                    self.place(unit, container)?;
                    (!self.containers[container].is_full()).then_some(container)
                }
                None if begins => {
                    self.close(container);
                    None
                }
                None => None,
            };
        }
        Ok(())
    }

    /// Lets containers that are free grow to twice an even share before any other is touched: one more channel should
    /// not restart one PE per operator, nor should a hundred more channels end up in two PEs (rule fusion-25).
    fn prefer_free(&mut self) {
        let share = self.even_share();
        self.most_if_free = u32::try_from(share.saturating_mul(2)).unwrap_or(u32::MAX);
        self.empty = 0;
        for (_, _, container) in std::mem::take(&mut self.available) {
            self.enter(container);
        }
    }

    fn add(&mut self, free: bool) -> Container {
        self.containers.push(ContainerState {
            units: Vec::new(),
            operators: 0,
            target: None,
            profile: PeProfile::default(),
            free,
            saved_frontier: Some(Vec::new()),
            lanes: None,
        })
    }

    /// A container that exists from the beginning; it takes nothing more if it is closed or holds a unit that is alone.
    fn add_seed(&mut self, Seed { units, profile, restarts, closed, last: _ }: Seed) -> Result<(), Error> {
        let (mut operators, mut alone) = (0, false);
        for &unit in &units {
            self.host_bindings.bind(units[0], unit, &mut self.pace)?;
            operators += self.composition.units.size(unit);
            alone |= self.composition.rules.alone[unit];
        }
        let container = self.add(restarts);
        let state = &mut self.containers[container];
        (state.units, state.operators, state.profile, state.saved_frontier) = (units, operators, profile, None);
        if !alone && !closed {
            self.offer(container);
        }
        Ok(())
    }

    /// Makes a container available.
    fn offer(&mut self, container: Container) {
        self.enter(container);
        self.count_open(container, true);
    }

    /// Makes a container available with its priority, which must not change until [`Fill::leave`].
    fn enter(&mut self, container: Container) {
        let (priority, operators) = (self.priority(container), self.containers[container].operators);
        self.available.insert((priority, operators, container));
        self.empty += usize::from(priority == Priority::Empty);
        if priority == Priority::Free {
            self.free += 1;
            self.free_operators += u64::from(operators);
        }
    }

    fn leave(&mut self, container: Container) {
        let (priority, operators) = (self.priority(container), self.containers[container].operators);
        self.available.remove(&(priority, operators, container));
        self.empty -= usize::from(priority == Priority::Empty);
        if priority == Priority::Free {
            self.free -= 1;
            self.free_operators -= u64::from(operators);
        }
    }

    /// Puts a unit into a container without checking the rules.
    fn put(&mut self, unit: Unit, container: Container) -> Result<(), Error> {
        let state = &mut self.containers[container];
        if let Some(&first) = state.units.first() {
            self.host_bindings.bind(first, unit, &mut self.pace)?;
        }
        state.units.push(unit);
        state.operators += self.composition.units.size(unit);
        state.profile.add(self.composition.rules.unit_traits(unit));
        self.home[unit] = container.into();
        Ok(())
    }

    fn priority(&self, container: Container) -> Priority {
        match &self.containers[container] {
            ContainerState { operators: 0, .. } => Priority::Empty,
            ContainerState { free: true, operators, .. } if *operators < self.most_if_free => Priority::Free,
            _ => Priority::Any,
        }
    }

    /// The available container of the first priority with the fewest operators; a new one if there is none.
    fn smallest(&mut self) -> Container {
        match self.available.first() {
            Some(&(_, _, container)) => container,
            None => {
                let container = self.add(false);
                self.offer(container);
                container
            }
        }
    }

    /// Sets the number of operators that the container aims at: an even share of what is left and of what open
    /// containers hold.
    ///
    /// Containers that are free share what is left among themselves, once there is no empty one.
    fn retarget(&mut self, container: Container) {
        let share = if self.priority(container) == Priority::Free && self.empty == 0 {
            let share = (self.waiting.operators() + self.free_operators).div_ceil(self.free.max(1));
            share.min(self.most_if_free.into())
        } else {
            self.even_share()
        };
        self.count_open(container, false);
        self.containers[container].target = Some(u32::try_from(share.max(1)).unwrap_or(u32::MAX));
        self.count_open(container, true);
    }

    fn even_share(&self) -> u64 {
        (self.waiting.operators() + self.open_operators).div_ceil(self.open.max(1))
    }

    /// Adds an available container to the open ones, if it is open, or takes it away.
    fn count_open(&mut self, container: Container, add: bool) {
        let state = &self.containers[container];
        match (state.is_full(), add) {
            (true, _) => {}
            (false, true) => {
                self.open += 1;
                self.open_operators += u64::from(state.operators);
            }
            (false, false) => {
                self.open -= 1;
                self.open_operators -= u64::from(state.operators);
            }
        }
    }

    fn place(&mut self, unit: Unit, container: Container) -> Result<(), Error> {
        let size = self.composition.units.size(unit);
        self.leave(container);
        self.count_open(container, false);
        self.waiting.remove(unit, size);
        self.put(unit, container)?;
        self.containers[container].free = true;
        self.count_open(container, true);
        self.enter(container);
        if self.containers[container].is_full() {
            // The container is hardly ever current again, so its frontier is dropped and not completed.
            self.frontier_of = None;
            return Ok(());
        }
        self.pace.steps(self.composition.degree(unit))?;
        let home = &self.home;
        self.frontier.grow(unit, self.composition.graph, &self.composition.units, |unit| home[unit].is_none());
        Ok(())
    }

    /// Nothing that waits can ever join this container.
    fn close(&mut self, container: Container) {
        self.leave(container);
        self.count_open(container, false);
        self.frontier_of = None;
        self.containers[container].saved_frontier = None;
        self.take_lanes(container);
    }

    /// Takes the lanes that a container remembers away from it.
    fn take_lanes(&mut self, container: Container) -> Option<Vec<Lane>> {
        let lanes = self.containers[container].lanes.take()?;
        self.remembered -= lanes.capacity();
        Some(lanes)
    }

    /// Lets a container remember its lanes if there is room for them.
    fn remember_lanes(&mut self, container: Container, mut lanes: Vec<Lane>) {
        // Most lanes are refused when they are first looked at.
        if lanes.len() < lanes.capacity() / 4 {
            lanes.shrink_to_fit();
        }
        if lanes.capacity() <= self.most_remembered - self.remembered {
            self.remembered += lanes.capacity();
            self.containers[container].lanes = Some(lanes);
        }
    }

    /// The unit that begins a chain, after the sort of such a step.
    fn first_for(&mut self, container: Container) -> Result<Option<Unit>, Error> {
        self.load_frontier(container)?;
        let home = &self.home;
        self.frontier.bring_forward(&mut self.waiting, |unit| home[unit].is_none());
        if self.containers[container].units.is_empty() {
            return Ok(self.waiting.first());
        }
        let known = self.take_lanes(container);
        let (rules, waiting, host_bindings) = (&self.composition.rules, &self.waiting, &mut self.host_bindings);
        let (state, pace) = (&self.containers[container], &mut self.pace);
        let Some(&member) = state.units.first() else { return Ok(None) };
        let mut lanes = match known {
            Some(lanes) => lanes,
            None => waiting.lanes(&state.profile, pace)?,
        };
        let mut counted = Ok(());
        lanes.retain(|&lane| {
            let (_, kind) = waiting.lane(lane);
            let traits = &rules.unit_traits[kind];
            if counted.is_ok() {
                counted = pace.steps(traits.steps());
            }
            counted.is_ok() && waiting.units(lane).next().is_some() && state.profile.accepts(traits)
        });
        counted?;
        let mut pick = None;
        for of_class in lanes.chunk_by(|&a, &b| waiting.lane(a).0 == waiting.lane(b).0) {
            for &lane in of_class {
                for unit in waiting.units(lane) {
                    pace.step()?;
                    if pick.is_some_and(|best| waiting.position(best) < waiting.position(unit)) {
                        break;
                    }
                    if host_bindings.bindable(member, unit, pace)? {
                        pick = Some(unit);
                        break;
                    }
                }
            }
            if pick.is_some() {
                break;
            }
        }
        self.remember_lanes(container, lanes);
        Ok(pick)
    }

    /// The unit that continues the chain, after the sort of such a step.
    fn next_for(&mut self, container: Container) -> Result<Option<Unit>, Error> {
        let home = &self.home;
        self.frontier.sort(&self.waiting, |unit| home[unit].is_none());
        let (rules, host_bindings, pace) = (&self.composition.rules, &mut self.host_bindings, &mut self.pace);
        let state = &self.containers[container];
        let Some(&member) = state.units.first() else { return Ok(None) };
        self.frontier.take_first(|unit| {
            let traits = rules.unit_traits(unit);
            pace.steps(traits.steps())?;
            Ok(state.profile.accepts(traits) && host_bindings.bindable(member, unit, pace)?)
        })
    }

    /// Ends the chain of the container before and makes `frontier` that of this one.
    fn load_frontier(&mut self, container: Container) -> Result<(), Error> {
        let home = &self.home;
        let waits = |unit: Unit| home[unit].is_none();
        self.pace.steps(self.frontier.len())?;
        self.frontier.end_chain(&mut self.waiting, waits);
        if self.frontier_of == Some(container) {
            return Ok(());
        }
        let neighbours = self.frontier.save(waits);
        if let Some(previous) = self.frontier_of.replace(container) {
            self.containers[previous].saved_frontier = Some(neighbours);
        }
        match self.containers[container].saved_frontier.take() {
            Some(neighbours) => self.frontier.restore(neighbours, waits),
            None => {
                for &unit in &self.containers[container].units {
                    self.pace.steps(self.composition.degree(unit))?;
                    self.frontier.grow(unit, self.composition.graph, &self.composition.units, waits);
                }
            }
        }
        Ok(())
    }
}
