//! What the PEs of an application must satisfy, as data: must be together, must be apart, alone.
//!
//! [`constraints`] is the whole list for a fusion type: what the application asks for, and what the type adds (see
//! [`FusionType::separation`]). The fuser compiles the list into rules, and `explain` prints it. The rules about hosts
//! that compare whole PEs with each other are in [`super::hosts`].

use super::FusionType;
use super::graph::{Graph, Label, Operator, Symbol};
use super::hosts::{HostGroup, HostGroups};
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

/// Where a constraint comes from (fuser 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Partition co-location with this id.
    CoLocation(Symbol),
    /// Host isolation of an operator in this host group (fuser 2.2).
    HostIsolation(HostGroup),
    /// Partition ex-location with this id.
    ExLocation(Symbol),
    /// Partition isolation.
    Isolation,
    /// Operators that may not be restarted (rule R1).
    NotRestartable,
    /// Operators that may not be moved (rule R2).
    NotRelocatable,
    /// A provisional label with this key: JVM arguments (rule P).
    Provisional(Symbol),
    /// A soft segregation with this key: consistent region (rule S).
    SoftSegregation(Symbol),
    /// Channels of the parallel region with this ADL index: added by the fusion type.
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
    /// What about operators without a value?
    pub others: Others,
    /// What about a unit whose operators must share a PE but do not agree?
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
    /// It is an error: CDISR3200E.
    Refused,
    /// The unit has a PE of its own, which counts before all others.
    Alone,
    /// The unit stays as it is, and nothing joins it.
    Closed,
    /// The reference's rule (fuser 2.3, `special`): alone unless it has as many different values as operators; then closed.
    AloneByCount,
}

impl FusionType {
    /// What the type demands of the channels of every parallel region, if anything (fuser 5, with its two adjustments).
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
pub fn constraints(graph: &Graph, hosts: &HostGroups, kind: FusionType) -> Vec<Constraint> {
    let mut list = Vec::new();
    let groups = |ids: for<'o> fn(&'o Operator<'_>) -> &'o [Symbol]| {
        let mut groups: BTreeMap<Symbol, Vec<Node>> = BTreeMap::new();
        for (node, operator) in graph.operators() {
            for &id in ids(operator) {
                let members = groups.entry(id).or_default();
                if members.last() != Some(&node) {
                    members.push(node);
                }
            }
        }
        groups.into_iter().filter(|(_, members)| members.len() > 1)
    };
    list.extend(
        groups(|operator| &operator.co_locations)
            .map(|(id, members)| Constraint { origin: Origin::CoLocation(id), demand: Demand::Together(members) }),
    );
    list.extend(hosts.with_isolated_member(graph).map(|(group, members)| Constraint {
        origin: Origin::HostIsolation(group),
        demand: Demand::Together(members.to_vec()),
    }));
    list.extend(
        groups(|operator| &operator.ex_locations)
            .map(|(id, members)| Constraint { origin: Origin::ExLocation(id), demand: Demand::Apart(members) }),
    );
    let isolated: Vec<Node> = graph.operators().iter().filter(|(_, o)| o.isolated).map(|(node, _)| node).collect();
    if !isolated.is_empty() {
        list.push(Constraint { origin: Origin::Isolation, demand: Demand::Alone(isolated) });
    }

    let mut separate = |origin, values: Vec<(Node, u32)>, others, mixed| {
        if !values.is_empty() {
            list.push(Constraint { origin, demand: Demand::SameValue(SameValue { values, others, mixed }) });
        }
    };
    let without = |permission: fn(&Operator) -> bool| {
        graph.operators().iter().filter(|(_, o)| !permission(o)).map(|(node, _)| (node, 0)).collect()
    };
    separate(Origin::NotRestartable, without(|o| o.restartable), Others::Apart, Mixed::Closed);
    separate(Origin::NotRelocatable, without(|o| o.relocatable), Others::Apart, Mixed::Closed);
    for (key, values) in labels(graph, |operator| &operator.provisional) {
        separate(Origin::Provisional(key), values, Others::Anywhere, Mixed::Refused);
    }
    for (key, values) in labels(graph, |operator| &operator.soft_segregated) {
        separate(Origin::SoftSegregation(key), values, Others::Apart, Mixed::AloneByCount);
    }
    if let Some((others, mixed)) = kind.separation() {
        for (region, values) in channels(graph) {
            separate(Origin::Channels(region), values, others, mixed);
        }
    }
    list
}

fn labels(graph: &Graph, of: for<'o> fn(&'o Operator<'_>) -> &'o [Label]) -> BTreeMap<Symbol, Vec<(Node, u32)>> {
    let mut keys: BTreeMap<Symbol, Vec<(Node, u32)>> = BTreeMap::new();
    for (node, operator) in graph.operators() {
        for label in of(operator) {
            keys.entry(label.key).or_default().push((node, label.value.as_u32()));
        }
    }
    keys
}

/// Per parallel region, the global channel of each operator in it.
fn channels(graph: &Graph) -> BTreeMap<u64, Vec<(Node, u32)>> {
    let mut regions: BTreeMap<u64, Vec<(Node, u32)>> = BTreeMap::new();
    for (node, operator) in graph.operators() {
        for channel in operator.channels {
            regions.entry(channel.region).or_default().push((node, channel.global));
        }
    }
    regions
}
