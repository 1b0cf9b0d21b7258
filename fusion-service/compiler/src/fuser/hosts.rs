//! The rules about hosts: which operators share a host, and which host specifications a PE may combine.
//!
//! A *host group* is a set of operators that must share a host (rule fusion-6): by an id that the application gives, or
//! because they name the same host or the same place of a pool. Operators of one group may be in different PEs, but
//! whatever shares a PE with one of them is bound to the same host; [`super::host_bindings`] follows these bindings.

use super::graph::Graph;
use super::host_sets::{HostSet, HostSets};
use super::operators::Traits;
use super::symbols::Symbol;
use crate::budget::{Budget, Limits, Pace};
use crate::error::{Error, Problem, Problems, Stage};
use crate::logical::PoolLocation;
use crate::topology::Node;
use indexmap::IndexSet;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Why operators share a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostGroup {
    /// Host co-location with this id.
    Named(Symbol),
    /// The same host, explicit or by its place in a pool with declared hosts.
    Host(Symbol),
    /// The same place of a pool: (pool, place).
    InPool(u64, u64),
}

/// The operators of each host group, ascending.
#[derive(Clone, Debug)]
pub struct HostGroups(BTreeMap<HostGroup, Vec<Node>>);

impl HostGroups {
    /// Finds the groups. Adds to the problems: operators that name a host pool that does not exist, or a place beyond
    /// the declared hosts of their pool. Such an operator is in no group of its pool.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn find(graph: &Graph, problems: &mut Problems, budget: &Budget) -> Result<Self, Error> {
        let mut groups: BTreeMap<HostGroup, Vec<Node>> = BTreeMap::new();
        // Channels of one operator have the same problem. It is reported once.
        let mut reported = BTreeSet::new();
        let bound = |traits: &Traits| {
            let nowhere = matches!(place(graph, traits), Ok(PoolPlace::Nowhere));
            !nowhere || traits.host.is_some() || !traits.host_co_locations.is_empty()
        };
        let mut pace = budget.pace();
        for (node, traits) in graph.having(bound) {
            pace.steps(steps(&[&traits.host_co_locations]))?;
            let mut join = |group| join(groups.entry(group).or_default(), node);
            traits.host_co_locations.iter().for_each(|&id| join(HostGroup::Named(id)));
            if let Some(host) = traits.host {
                join(HostGroup::Host(host));
            }
            match place(graph, traits) {
                Ok(PoolPlace::Nowhere) => {}
                Ok(PoolPlace::InPool(pool, index)) => join(HostGroup::InPool(pool, index)),
                Ok(PoolPlace::Declared(pool, index, host)) => {
                    join(HostGroup::InPool(pool, index));
                    join(HostGroup::Host(host));
                }
                Err(message) if traits.place.is_some_and(|place| !reported.insert((place, message.clone()))) => {}
                Err(message) => {
                    let operator = &graph.operators()[node];
                    let name = crate::error::excerpt(operator.name);
                    let message = format!("operator {} ({name}): {message}", operator.index);
                    let place = traits.place;
                    problems.push(Problem { place, ..Problem::new(Stage::Compose, message) });
                }
            }
        }
        Ok(Self(groups))
    }

    /// The groups, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (HostGroup, &[Node])> {
        self.0.iter().map(|(&group, members)| (group, members.as_slice()))
    }

    /// Groups of several operators one of which is host-isolated: they share a PE (rule fusion-7).
    pub(super) fn with_isolated_member(&self, graph: &Graph) -> impl Iterator<Item = (HostGroup, &[Node])> {
        self.iter()
            .filter(|(_, members)| members.len() > 1 && members.iter().any(|&node| graph.traits(node).host_isolated))
    }
}

enum PoolPlace {
    Nowhere,
    InPool(u64, u64),
    Declared(u64, u64, Symbol),
}

/// The place in a pool that an operator with these traits asks for.
fn place(graph: &Graph, traits: &Traits) -> Result<PoolPlace, String> {
    let Some(PoolLocation { pool: index, in_pool }) = traits.pool else { return Ok(PoolPlace::Nowhere) };
    let Some(pool) = graph.pool(index) else { return Err(format!("unknown host pool {index}")) };
    match in_pool {
        None => Ok(PoolPlace::Nowhere),
        Some(place) if pool.hosts.is_empty() => Ok(PoolPlace::InPool(index, place)),
        Some(place) => match usize::try_from(place).ok().and_then(|place| pool.hosts.get(place)) {
            Some(&host) => Ok(PoolPlace::Declared(index, place, host)),
            None => Err(format!("host {place} of host pool {index}, which declares {} hosts", pool.hosts.len())),
        },
    }
}

/// Host specification of a unit. Units with different specifications never share a PE (rule fusion-15).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostSpecification {
    /// Hosts that all operators accept; `None` = any.
    pub(super) declared: Option<HostSet>,
    /// Places in pools without declared hosts; `None` = no operator has one.
    indexed: Option<BTreeSet<(u64, u64)>>,
    /// Pools; they decide the tags as well.
    pools: BTreeSet<u64>,
}

impl HostSpecification {
    fn of(
        graph: &Graph,
        (host, location): Location,
        host_sets: &mut HostSets,
        pace: &mut Pace<'_>,
    ) -> Result<Self, Error> {
        let pool = location.and_then(|location| graph.pool(location.pool));
        let in_pool = location.and_then(|location| Some((location.pool, location.in_pool?)));
        let hosts = pool.map_or(&[][..], |pool| &pool.hosts);
        let declared = match (host, hosts, in_pool) {
            (Some(host), ..) => Some(vec![host]),
            (None, [], _) => None,
            (None, hosts, Some((_, place))) => {
                Some(usize::try_from(place).ok().and_then(|place| hosts.get(place)).copied().into_iter().collect())
            }
            (None, hosts, None) => Some(hosts.to_vec()),
        };
        let declared = declared.map(|hosts| host_sets.intern(hosts, pace)).transpose()?;
        Ok(Self {
            indexed: in_pool.filter(|_| declared.is_none()).map(|place| BTreeSet::from([place])),
            declared,
            pools: location.iter().map(|location| location.pool).collect(),
        })
    }

    fn merge(&mut self, other: &Self, host_sets: &mut HostSets, pace: &mut Pace<'_>) -> Result<(), Error> {
        self.declared = match (self.declared, other.declared) {
            (Some(mine), Some(theirs)) => Some(host_sets.intersection(mine, theirs, pace)?),
            (mine, theirs) => mine.or(theirs),
        };
        if let Some(places) = &other.indexed {
            self.indexed.get_or_insert_default().extend(places);
        }
        self.pools.extend(&other.pools);
        Ok(())
    }
}

/// Host and place in a pool of one operator.
type Location = (Option<Symbol>, Option<PoolLocation>);

/// Distinct host specifications, numbered.
pub(super) struct HostSpecifications {
    by_location: HashMap<Location, u32>,
    /// The location that was looked up last. Most operators have the same one.
    last: Option<(Location, u32)>,
    list: IndexSet<HostSpecification>,
    host_sets: HostSets,
}

impl HostSpecifications {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { by_location: HashMap::new(), last: None, list: IndexSet::new(), host_sets: HostSets::new(limits) }
    }

    /// The number of a unit's specification.
    ///
    /// # Errors
    ///
    /// Stage `compose`: the sets of hosts have too many. Or the budget ends.
    pub(super) fn number(&mut self, graph: &Graph, unit: &[Node], pace: &mut Pace<'_>) -> Result<u32, Error> {
        let mut locations = unit.iter().map(|&node| {
            let traits = graph.traits(node);
            (traits.host, traits.pool)
        });
        let first = self.single(graph, locations.next().unwrap_or_default(), pace)?;
        let mut others: BTreeSet<u32> = BTreeSet::new();
        for location in locations {
            let number = self.single(graph, location, pace)?;
            if number != first {
                others.insert(number);
            }
        }
        if others.is_empty() {
            return Ok(first);
        }
        let mut all = others.into_iter().filter_map(|number| self.list.get_index(number as usize));
        let Some(mut merged) = self.list.get_index(first as usize).cloned() else { return Ok(first) };
        all.try_for_each(|other| merged.merge(other, &mut self.host_sets, pace))?;
        Ok(self.intern(merged))
    }

    /// The specifications, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &HostSpecification> {
        self.list.iter()
    }

    /// The sets of hosts that the specifications name.
    pub(super) fn host_sets(&self) -> &HostSets {
        &self.host_sets
    }

    fn single(&mut self, graph: &Graph, location: Location, pace: &mut Pace<'_>) -> Result<u32, Error> {
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == location) {
            return Ok(number);
        }
        let number = match self.by_location.get(&location) {
            Some(&number) => number,
            None => {
                let specification = HostSpecification::of(graph, location, &mut self.host_sets, pace)?;
                self.intern(specification)
            }
        };
        self.by_location.insert(location, number);
        self.last = Some((location, number));
        Ok(number)
    }

    fn intern(&mut self, specification: HostSpecification) -> u32 {
        self.list.insert_full(specification).0 as u32
    }
}

/// Whether one operator of a unit is in an exclusive pool and another is not in that pool (rule fusion-15).
pub(super) fn leaves_exclusive_pool(graph: &Graph, unit: &[Node]) -> bool {
    let pool = |&node: &Node| graph.traits(node).pool.map(|location| location.pool);
    let exclusive = |index: u64| graph.pool(index).is_some_and(|pool| pool.exclusive);
    let [first, rest @ ..] = unit else { return false };
    let first = pool(first);
    rest.iter().map(pool).any(|other| other != first && [first, other].into_iter().flatten().any(exclusive))
}

/// How long it takes to go through ids of an operator, in steps of a [`crate::budget::Pace`].
pub(super) fn steps(ids: &[&[Symbol]]) -> u32 {
    u32::try_from(ids.iter().map(|ids| ids.len()).sum::<usize>()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Adds an operator to a group that is filled in order, once.
pub(super) fn join(members: &mut Vec<Node>, node: Node) {
    if members.last() != Some(&node) {
        members.push(node);
    }
}
