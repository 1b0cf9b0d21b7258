//! Checks a partition against what its application demands, for tests and fuzzing.
//!
//! This module follows the rules operator by operator and uses no data structure of the fuser. So it only misses a
//! defect if it has the same defect itself.

use super::graph::Graph;
use super::operators::{FusionOperator, Label, Traits};
use super::partition::{Partition, Pe};
use super::symbols::Symbol;
use super::{Fusion, FusionType};
use crate::topology::Node;
use cranelift_entity::EntityRef;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is wrong with a partition, in words; empty if nothing is.
///
/// If co-locations of an application contradict a constraint, the unit itself need not satisfy it, but nothing may
/// share its PE. Rules that compare the hosts of several PEs are not checked, because their result depends on the order
/// of filling.
pub fn violations(graph: &Graph, fusion: &Fusion, partition: &Partition) -> Vec<String> {
    let mut wrong = Vec::new();
    let units = units(graph);
    for pe in partition.pes() {
        for (position, &node) in partition.operators(pe).iter().enumerate() {
            if partition.pe(node) != pe || partition.position(node) != position {
                wrong.push(format!("{node:?} is listed in {pe:?}, but said to be in {:?}", partition.pe(node)));
            }
        }
    }
    let listed: usize = partition.pes().map(|pe| partition.operators(pe).len()).sum();
    if listed != graph.operators().len() {
        wrong.push(format!("{listed} operators are listed, there are {}", graph.operators().len()));
    }
    for (node, &lowest) in graph.operators().keys().zip(&units) {
        if partition.pe(node) != partition.pe(lowest) {
            wrong.push(format!("{node:?} and {lowest:?} must share a PE"));
        }
    }
    if let Fusion::Manual { kind, .. } = fusion {
        for pe in partition.pes() {
            let members = PeMembers { graph, nodes: partition.operators(pe), units: &units };
            if members.nodes.iter().any(|&node| units[node.index()] != units[members.nodes[0].index()]) {
                members.check(pe, *kind, &mut wrong);
            }
        }
    }
    wrong
}

/// The lowest operator that each operator must share a PE with, itself included.
pub(super) fn units(graph: &Graph) -> Vec<Node> {
    let mut links: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    for node in graph.operators().keys() {
        for id in &graph.traits(node).co_locations {
            links.entry(format!("co-location {id}")).or_default().push(node);
        }
    }
    for node in graph.operators().keys() {
        if graph.traits(node).host_isolated {
            let mine = host_groups(graph, node);
            let partners = graph.operators().keys().filter(|&other| !mine.is_disjoint(&host_groups(graph, other)));
            links.insert(format!("isolation {node:?}"), partners.chain([node]).collect());
        }
    }
    let mut groups_of: BTreeMap<Node, Vec<&Vec<Node>>> = BTreeMap::new();
    for group in links.values() {
        group.iter().for_each(|&node| groups_of.entry(node).or_default().push(group));
    }
    let mut lowest: Vec<Option<Node>> = vec![None; graph.operators().len()];
    for start in graph.operators().keys() {
        let mut pending = vec![start];
        while let Some(node) = pending.pop() {
            if lowest[node.index()].is_none() {
                lowest[node.index()] = Some(start);
                pending.extend(groups_of.get(&node).into_iter().flatten().copied().flatten());
            }
        }
    }
    lowest.into_iter().flatten().collect()
}

/// Names of the groups that must share a host with an operator (rule fusion-6).
fn host_groups(graph: &Graph, operator: Node) -> BTreeSet<String> {
    let traits = graph.traits(operator);
    let mut groups: BTreeSet<String> = traits.host_co_locations.iter().map(|id| format!("named {id}")).collect();
    groups.extend(traits.host.iter().map(|host| format!("host {host}")));
    if let Some((location, place)) = traits.pool.and_then(|location| Some((location, location.in_pool?))) {
        groups.insert(format!("pool {} place {place}", location.pool));
        let hosts = graph.pool(location.pool).map(|pool| &pool.hosts[..]).unwrap_or_default();
        groups.extend(hosts.get(place as usize).map(|host| format!("host {host}")));
    }
    groups
}

/// Hosts that suit all operators of a unit, places in pools without hosts, pools (rule fusion-15).
type HostDemands = (Option<BTreeSet<Symbol>>, BTreeSet<(u64, u64)>, BTreeSet<u64>);

/// Operators of a PE with more than one unit.
struct PeMembers<'a> {
    graph: &'a Graph<'a>,
    nodes: &'a [Node],
    units: &'a [Node],
}

impl PeMembers<'_> {
    fn check(&self, pe: Pe, kind: FusionType, wrong: &mut Vec<String>) {
        let mut demand = |holds: bool, rule: &str| {
            if !holds {
                wrong.push(format!("{pe:?} {:?}: {rule}", self.nodes));
            }
        };
        demand(distinct(self.traits().map(|t| t.restartable)) == 1, "R1: restartable and not");
        demand(distinct(self.traits().map(|t| t.relocatable)) == 1, "R2: relocatable and not");
        demand(self.traits().all(|t| !t.isolated), "isolated, but not alone");
        let ex_locations = self.traits().flat_map(|t| t.ex_locations.iter().copied().collect::<BTreeSet<_>>());
        demand(no_two(ex_locations), "E: two of an ex-location group");
        demand(self.values(|t| &t.provisional).values().all(|(_, values)| values.len() == 1), "P: different labels");
        let alike = |(carriers, values): &(usize, BTreeSet<Symbol>)| *carriers == self.nodes.len() && values.len() == 1;
        demand(self.values(|t| &t.soft_segregated).values().all(alike), "S: different or missing labels");
        demand(self.unit_nodes().values().all(|nodes| !self.is_special(nodes)), "special, but not alone");
        demand(self.host_isolation(), "I: host-isolated, and in a host group");
        demand(self.exclusive_pools(), "X: an exclusive pool and something else");
        let specifications: BTreeSet<_> = self.unit_nodes().values().map(|nodes| self.specification(nodes)).collect();
        demand(specifications.len() == 1, "H3: different host specifications");
        demand(
            specifications.iter().all(|(hosts, ..)| hosts.as_ref().is_none_or(|h| !h.is_empty())),
            "H2: no host suits all",
        );
        let names = (self.operators().zip(self.traits()))
            .flat_map(|(o, t)| t.host_ex_locations.iter().map(|&id| (id, o.name.to_owned())));
        demand(one_value_per_key(names), "H1: two of a host ex-location group");
        let places = self.traits().filter_map(|t| t.pool.and_then(|l| Some((l.pool, l.in_pool?))));
        demand(one_value_per_key(places), "H4: two places in a pool");
        let channels = |o: &FusionOperator| o.channels.iter().map(|c| (c.region, c.global)).collect::<BTreeSet<_>>();
        match kind {
            FusionType::NoChannelInfluence => {}
            FusionType::ChannelIsolation => demand(distinct(self.operators().map(channels)) == 1, "different channels"),
            FusionType::ChannelExlocation => {
                demand(one_value_per_key(self.operators().flat_map(channels)), "two channels of a region");
            }
        }
    }

    fn operators(&self) -> impl Iterator<Item = &FusionOperator<'_>> {
        self.nodes.iter().map(|&node| &self.graph.operators()[node])
    }

    fn traits(&self) -> impl Iterator<Item = &Traits> {
        self.nodes.iter().map(|&node| self.graph.traits(node))
    }

    /// Whether a unit in consistent regions has another number of different regions than of operators: then it is alone
    /// (rule fusion-13).
    fn is_special(&self, unit: &[Node]) -> bool {
        let keys = self.values_of(unit, |traits| &traits.soft_segregated);
        keys.values().any(|(_, values)| values.len() != unit.len())
    }

    /// Per key: how many operators carry it, and the values.
    fn values(&self, labels: fn(&Traits) -> &[Label]) -> BTreeMap<Symbol, (usize, BTreeSet<Symbol>)> {
        self.values_of(self.nodes, labels)
    }

    fn values_of(
        &self,
        nodes: &[Node],
        labels: fn(&Traits) -> &[Label],
    ) -> BTreeMap<Symbol, (usize, BTreeSet<Symbol>)> {
        let mut keys: BTreeMap<Symbol, (usize, BTreeSet<Symbol>)> = BTreeMap::new();
        for &node in nodes {
            for label in labels(self.graph.traits(node)) {
                let (carriers, values) = keys.entry(label.key).or_default();
                *carriers += 1;
                values.insert(label.value);
            }
        }
        keys
    }

    fn unit_nodes(&self) -> BTreeMap<Node, Vec<Node>> {
        let mut units: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
        self.nodes.iter().for_each(|&node| units.entry(self.units[node.index()]).or_default().push(node));
        units
    }

    fn host_isolation(&self) -> bool {
        let isolated = |node: &Node| self.graph.traits(*node).host_isolated;
        let grouped = |node: &Node| !host_groups(self.graph, *node).is_empty();
        let units = self.unit_nodes();
        units
            .iter()
            .filter(|(_, nodes)| nodes.iter().any(isolated))
            .all(|(unit, _)| units.iter().all(|(other, nodes)| other == unit || !nodes.iter().any(grouped)))
    }

    fn exclusive_pools(&self) -> bool {
        let used: BTreeSet<u64> = self.traits().filter_map(|t| t.pool).map(|location| location.pool).collect();
        let mut exclusive = used.iter().filter(|&&index| self.graph.pool(index).is_some_and(|pool| pool.exclusive));
        exclusive.all(|&index| self.traits().all(|t| t.pool.is_some_and(|location| location.pool == index)))
    }

    fn specification(&self, nodes: &[Node]) -> HostDemands {
        let (mut hosts, mut places, mut pools): (Option<BTreeSet<Symbol>>, _, _) =
            (None, BTreeSet::new(), BTreeSet::new());
        for &node in nodes {
            let traits = self.graph.traits(node);
            let declared =
                traits.pool.and_then(|l| self.graph.pool(l.pool)).map(|pool| &pool.hosts[..]).unwrap_or_default();
            let place = traits.pool.and_then(|location| location.in_pool);
            let accepted: Option<BTreeSet<Symbol>> = match (traits.host, place) {
                (Some(host), _) => Some([host].into()),
                (None, _) if declared.is_empty() => None,
                (None, Some(place)) => Some(declared.get(place as usize).copied().into_iter().collect()),
                (None, None) => Some(declared.iter().copied().collect()),
            };
            if accepted.is_none() {
                places.extend(traits.pool.and_then(|location| Some((location.pool, location.in_pool?))));
            }
            pools.extend(traits.pool.map(|location| location.pool));
            if let Some(accepted) = accepted {
                hosts = Some(hosts.map_or(accepted.clone(), |hosts| hosts.intersection(&accepted).copied().collect()));
            }
        }
        (hosts, places, pools)
    }
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> usize {
    values.collect::<BTreeSet<T>>().len()
}

fn no_two<T: Ord>(mut values: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    values.all(|value| seen.insert(value))
}

fn one_value_per_key<K: Ord, V: Ord>(pairs: impl Iterator<Item = (K, V)>) -> bool {
    let mut values: BTreeMap<K, BTreeSet<V>> = BTreeMap::new();
    pairs.for_each(|(key, value)| {
        values.entry(key).or_default().insert(value);
    });
    values.values().all(|values| values.len() == 1)
}
