//! The constraints on the PEs of an application, as data: which operators are together, which apart, which alone.
//!
//! [`constraints`] is the whole list for a fusion type: what the application asks for, and what the type adds (see
//! [`FusionType::separation`]). The fuser compiles the list into rules, and `explain` prints it. The rules about hosts
//! that compare whole PEs with each other are in [`super::hosts`].

use super::FusionType;
use super::graph::Graph;
use super::hosts::{HostGroup, HostGroups, join, steps};
use super::operators::Traits;
use super::symbols::Symbol;
use crate::budget::Budget;
use crate::error::Error;
use crate::topology::Node;
use std::collections::BTreeMap;

/// One demand on the partition, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Where it comes from.
    pub origin: Origin,
    /// What it demands.
    pub demand: Demand,
}

impl Constraint {
    /// How long it takes to go through its operators, in steps of a [`crate::budget::Pace`].
    pub(super) fn steps(&self) -> u32 {
        let operators = match &self.demand {
            Demand::Together(nodes) | Demand::Apart(nodes) | Demand::Alone(nodes) => nodes.len(),
            Demand::SameValue(separation) => separation.values.len(),
        };
        u32::try_from(operators).unwrap_or(u32::MAX).saturating_add(1)
    }
}

/// Where a constraint comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Partition co-location with this id (rule fusion-5).
    CoLocation(Symbol),
    /// Host isolation of an operator in this host group (rule fusion-7).
    HostIsolation(HostGroup),
    /// Partition ex-location with this id (rule fusion-11).
    ExLocation(Symbol),
    /// Partition isolation (rule fusion-8).
    Isolation,
    /// Operators that may not be restarted (rule fusion-10).
    NotRestartable,
    /// Operators that may not be moved (rule fusion-10).
    NotRelocatable,
    /// A provisional label with this key: JVM arguments (rule fusion-12).
    Provisional(Symbol),
    /// A soft segregation with this key: consistent region (rule fusion-13).
    SoftSegregation(Symbol),
    /// Channels of the parallel region with this ADL index: added by the fusion type (rule fusion-17).
    Channels(u64),
}

/// What a constraint demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// These operators are in one PE. Groups that overlap merge; operators that are together are a *unit*.
    Together(Vec<Node>),
    /// No two of these operators are in one PE, unless they are in one unit.
    Apart(Vec<Node>),
    /// The unit of each of these operators is a PE.
    Alone(Vec<Node>),
    /// Operators with different values are in different PEs.
    SameValue(SameValue),
}

/// Separation of operators by a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameValue {
    /// Operators that have a value, ascending.
    pub values: Vec<(Node, u32)>,
    /// How operators without a value are treated.
    pub others: Others,
    /// How a unit is treated whose operators do not have the same value.
    pub mixed: Mixed,
}

/// How a separation by value treats operators that have no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They are kept apart from those that have one.
    Apart,
    /// They may share a PE with any of those that have one.
    Anywhere,
}

/// How a separation by value treats a unit that disagrees with itself: its operators have different values or, with
/// [`Others::Apart`], some have one and some have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixed {
    /// It is an error: CDISR3200E (rule fusion-9).
    Refused,
    /// The unit has a PE of its own.
    Alone,
    /// The unit stays as it is, and nothing joins it.
    Closed,
    /// The unit is alone unless it has as many different values as operators; then nothing joins it (rule fusion-13).
    AloneByCount,
}

impl FusionType {
    /// What the type demands of the channels of every parallel region, if anything (rule fusion-17).
    pub fn separation(self) -> Option<(Others, Mixed)> {
        match self {
            Self::NoChannelInfluence => None,
            // Only operators of the same channel share a PE.
            Self::ChannelIsolation => Some((Others::Apart, Mixed::Alone)),
            // Operators of different channels never share a PE; operators outside the region may join any.
            Self::ChannelExlocation => Some((Others::Anywhere, Mixed::Alone)),
        }
    }
}

/// Every constraint on the partition of `graph`, in a fixed order.
///
/// # Errors
///
/// The budget ends.
pub fn constraints(
    graph: &Graph,
    hosts: &HostGroups,
    kind: FusionType,
    budget: &Budget,
) -> Result<Vec<Constraint>, Error> {
    let mut co_locations: BTreeMap<Symbol, Vec<Node>> = BTreeMap::new();
    let mut ex_locations: BTreeMap<Symbol, Vec<Node>> = BTreeMap::new();
    let mut isolated = Vec::new();
    let mut values: BTreeMap<Origin, Vec<(Node, u32)>> = BTreeMap::new();
    let channels = kind.separation();
    let mut pace = budget.pace();
    for (node, traits) in graph.having(Traits::constrain) {
        pace.steps(steps(&[&traits.co_locations, &traits.ex_locations]))?;
        traits.co_locations.iter().for_each(|&id| join(co_locations.entry(id).or_default(), node));
        traits.ex_locations.iter().for_each(|&id| join(ex_locations.entry(id).or_default(), node));
        if traits.isolated {
            isolated.push(node);
        }
        let mut carries = |origin, value| values.entry(origin).or_default().push((node, value));
        if !traits.restartable {
            carries(Origin::NotRestartable, 0);
        }
        if !traits.relocatable {
            carries(Origin::NotRelocatable, 0);
        }
        for label in &traits.provisional {
            carries(Origin::Provisional(label.key), label.value.as_u32());
        }
        for label in &traits.soft_segregated {
            carries(Origin::SoftSegregation(label.key), label.value.as_u32());
        }
    }
    if channels.is_some() {
        for (node, operator) in graph.operators() {
            pace.step()?;
            for channel in operator.channels {
                values.entry(Origin::Channels(channel.region)).or_default().push((node, channel.global));
            }
        }
    }

    let several = |(_, members): &(Symbol, Vec<Node>)| members.len() > 1;
    let together = co_locations.into_iter().filter(several).map(|(id, members)| (Origin::CoLocation(id), members));
    let isolation =
        hosts.with_isolated_member(graph).map(|(group, members)| (Origin::HostIsolation(group), members.to_vec()));
    let apart = ex_locations.into_iter().filter(several).map(|(id, members)| (Origin::ExLocation(id), members));
    let alone = Some(isolated).filter(|operators| !operators.is_empty());
    let separated = values.into_iter().filter_map(|(origin, values)| {
        let (others, mixed) = match origin {
            Origin::Provisional(_) => (Others::Anywhere, Mixed::Refused),
            Origin::SoftSegregation(_) => (Others::Apart, Mixed::AloneByCount),
            Origin::Channels(_) => channels?,
            _ => (Others::Apart, Mixed::Closed),
        };
        Some((origin, Demand::SameValue(SameValue { values, others, mixed })))
    });
    let constraints = (together.chain(isolation).map(|(origin, members)| (origin, Demand::Together(members))))
        .chain(apart.map(|(origin, members)| (origin, Demand::Apart(members))))
        .chain(alone.map(|operators| (Origin::Isolation, Demand::Alone(operators))))
        .chain(separated)
        .map(|(origin, demand)| Constraint { origin, demand })
        .collect();
    Ok(constraints)
}
