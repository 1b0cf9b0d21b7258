//! Manual fusion exactly as the rules say it (rules fusion-18, fusion-19, fusion-20 and fusion-21): it sorts the list
//! at every step and searches for bound units by trying. It is slow. The fast implementation must give the same result.

use crate::fuser::constraints::{Mixed, Others};
use crate::fuser::hash_order::copied_set_order;
use crate::fuser::verify::units;
use crate::fuser::{FusionType, Graph};
use crate::topology::Node;
use cranelift_entity::EntityRef;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

type Set = BTreeSet<Node>;
/// Hosts that suit all, places in pools without hosts, pools.
type Specification = (Option<BTreeSet<String>>, BTreeSet<(u64, u64)>, BTreeSet<u64>);
type Labels = BTreeMap<String, BTreeSet<String>>;

struct Unit {
    nodes: Set,
    hash: u32,
    source: bool,
    sink: bool,
    alone: bool,
    /// Labels that must agree where present; labels that all or none have.
    agreed: Labels,
    alike: Labels,
    specification: Specification,
}

#[derive(Clone, Default)]
struct Container {
    units: Vec<usize>,
    operators: usize,
    target: Option<usize>,
}

impl Container {
    fn full(&self) -> bool {
        self.target.is_some_and(|target| self.operators >= target)
    }
}

struct Reference<'a> {
    graph: &'a Graph<'a>,
    units: Vec<Unit>,
    containers: Vec<Container>,
    host_groups: Vec<Set>,
}

/// The partition, as sets of operator positions in order; `None` if it is refused.
pub(super) fn manual(graph: &Graph, count: usize, kind: FusionType) -> Option<Vec<Vec<usize>>> {
    let mut reference = Reference::new(graph, kind)?;
    reference.fill(count.min(graph.operators().len()));
    let nodes = |container: &Container| -> Vec<usize> {
        let mut nodes: Vec<usize> =
            container.units.iter().flat_map(|&u| reference.units[u].nodes.iter().map(|n| n.index())).collect();
        nodes.sort_unstable();
        nodes
    };
    let mut partition: Vec<Vec<usize>> =
        reference.containers.iter().filter(|c| !c.units.is_empty()).map(nodes).collect();
    partition.sort();
    Some(partition)
}

impl<'a> Reference<'a> {
    fn new(graph: &'a Graph<'a>, kind: FusionType) -> Option<Self> {
        let operator = |node: &Node| &graph.operators()[*node];
        let traits = |node: &Node| graph.traits(*node);
        let mut groups: BTreeMap<String, Set> = BTreeMap::new();
        for node in graph.operators().keys() {
            for name in host_group_names(graph, node) {
                groups.entry(name).or_default().insert(node);
            }
        }
        let lowest = units(graph);
        let mut members: BTreeMap<Node, Set> = BTreeMap::new();
        for node in graph.operators().keys() {
            members.entry(lowest[node.index()]).or_default().insert(node);
        }
        let mut list = Vec::new();
        for nodes in members.into_values() {
            let mut agreed: Labels = Labels::new();
            let mut alike: Labels = Labels::new();
            let mut alone = nodes.iter().any(|n| traits(n).isolated);
            for label in nodes.iter().flat_map(|n| &traits(n).provisional) {
                agreed.entry(label.key.to_string()).or_default().insert(label.value.to_string());
            }
            if agreed.values().any(|values| values.len() > 1) {
                return None;
            }
            for label in nodes.iter().flat_map(|n| &traits(n).soft_segregated) {
                alike.entry(label.key.to_string()).or_default().insert(label.value.to_string());
            }
            alone |= alike.values().any(|values| values.len() != nodes.len());
            if let Some((others, Mixed::Alone)) = kind.separation() {
                let mut regions: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
                for channel in nodes.iter().flat_map(|n| operator(n).channels) {
                    regions.entry(channel.region).or_default().push(channel.global);
                }
                for (region, channels) in regions {
                    let different: BTreeSet<String> = channels.iter().map(u32::to_string).collect();
                    let lacking = others == Others::Apart && channels.len() != nodes.len();
                    alone |= different.len() > 1 || lacking;
                    let labels = if others == Others::Apart { &mut alike } else { &mut agreed };
                    labels.insert(format!("region {region}"), different);
                }
            }
            list.push(Unit {
                hash: nodes.iter().fold(31_u32, |hash, n| hash.wrapping_add(31 + operator(n).index)),
                source: nodes.iter().any(|n| traits(n).inputs.is_empty()),
                sink: nodes.iter().any(|n| traits(n).outputs.is_empty()),
                alone,
                agreed,
                alike,
                specification: specification(graph, &nodes),
                nodes,
            });
        }
        Some(Self { graph, units: list, containers: Vec::new(), host_groups: groups.into_values().collect() })
    }

    fn fill(&mut self, count: usize) {
        let hashes: Vec<u32> = self.units.iter().map(|unit| unit.hash).collect();
        let order: Vec<usize> = copied_set_order(&hashes).into_iter().map(|unit| unit as usize).collect();
        let mut rest: Vec<usize> = Vec::new();
        for unit in order {
            if self.units[unit].alone {
                self.containers.push(Container::default());
                self.add(unit, self.containers.len() - 1);
            } else {
                rest.push(unit);
            }
        }
        let mut available: Vec<usize> = Vec::new();
        while self.containers.len() < count {
            available.push(self.containers.len());
            self.containers.push(Container::default());
        }
        let mut current = None;
        let mut chaining = false;
        while !rest.is_empty() {
            if rest.len() <= available.len() && available.iter().any(|&c| self.containers[c].units.is_empty()) {
                current = None;
            }
            let primary = current.is_none();
            let container = current.unwrap_or_else(|| {
                if available.is_empty() {
                    available.push(self.containers.len());
                    self.containers.push(Container::default());
                }
                *available.iter().min_by_key(|&&c| (self.containers[c].operators, c)).unwrap()
            });
            chaining |= !primary;
            let open: Vec<&Container> = available.iter().map(|&c| &self.containers[c]).filter(|c| !c.full()).collect();
            let total = rest.iter().map(|&unit| self.units[unit].nodes.len()).sum::<usize>()
                + open.iter().map(|container| container.operators).sum::<usize>();
            let target = total.div_ceil(open.len().max(1)).max(1);
            self.containers[container].target = Some(target);

            let connections = |unit: usize| self.connections(container, unit);
            if primary {
                rest.sort_by_cached_key(|&unit| {
                    let (down, up) = connections(unit);
                    let it = &self.units[unit];
                    (!it.source, !it.sink, Reverse(it.nodes.len()), Reverse(down + up))
                });
            } else {
                rest.sort_by_cached_key(|&unit| {
                    let (down, up) = connections(unit);
                    (Reverse(down), Reverse(up))
                });
            }
            let pick = rest
                .iter()
                .position(|&unit| (primary || connections(unit) != (0, 0)) && self.compatible(unit, container));
            if let Some(position) = pick {
                let unit = rest.remove(position);
                self.add(unit, container);
                let full = self.containers[container].full();
                current = (!full).then_some(container);
                chaining &= !full;
            } else {
                if !chaining {
                    available.retain(|&c| c != container);
                }
                current = None;
                chaining = false;
            }
        }
    }

    fn add(&mut self, unit: usize, container: usize) {
        self.containers[container].operators += self.units[unit].nodes.len();
        self.containers[container].units.push(unit);
    }

    /// Connections from the container to the unit, and back.
    fn connections(&self, container: usize, unit: usize) -> (usize, usize) {
        let to = &self.units[unit].nodes;
        let held = self.containers[container].units.iter().flat_map(|&unit| &self.units[unit].nodes);
        let (mut down, mut up) = (0, 0);
        for &node in held {
            down += self.graph.outgoing(node).iter().filter(|c| to.contains(&c.target)).count();
            up += self.graph.incoming(node).filter(|c| to.contains(&c.source)).count();
        }
        (down, up)
    }

    fn compatible(&self, unit: usize, container: usize) -> bool {
        let held = &self.containers[container].units;
        if held.is_empty() {
            return true;
        }
        let all: Vec<&Unit> = held.iter().chain([&unit]).map(|&u| &self.units[u]).collect();
        let nodes: Set = all.iter().flat_map(|u| u.nodes.iter().copied()).collect();
        let traits = || nodes.iter().map(|&n| self.graph.traits(n));
        let first = traits().next().unwrap();
        let grouped = |u: &Unit| u.nodes.iter().any(|n| self.host_groups.iter().any(|g| g.contains(n)));
        let host_isolated = |u: &Unit| u.nodes.iter().any(|&n| self.graph.traits(n).host_isolated);
        let mut agreed = Labels::new();
        let mut alike: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for it in &all {
            for (key, values) in &it.agreed {
                agreed.entry(key.clone()).or_default().extend(values.iter().cloned());
            }
            for (key, values) in &it.alike {
                values.iter().for_each(|value| *alike.entry(key).or_default().entry(value).or_default() += 1);
            }
        }
        let rule_p = agreed.values().all(|values| values.len() == 1);
        let rule_r = traits().all(|t| (t.restartable, t.relocatable) == (first.restartable, first.relocatable));
        let mut used = BTreeSet::new();
        let rule_e = traits().flat_map(|t| t.ex_locations.iter().collect::<BTreeSet<_>>()).all(|id| used.insert(id));
        let rule_i = !held.iter().any(|&h| {
            let (h, u) = (&self.units[h], &self.units[unit]);
            (host_isolated(u) && grouped(h)) || (host_isolated(h) && grouped(u))
        });
        let rule_x = traits().filter_map(|t| t.pool).all(|location| {
            let exclusive = self.graph.pool(location.pool).unwrap().exclusive;
            !exclusive || traits().all(|t| t.pool.is_some_and(|other| other.pool == location.pool))
        });
        let rule_s = alike.values().all(|values| values.len() == 1 && values.values().all(|&count| count == all.len()));
        rule_p && rule_r && rule_e && rule_i && rule_x && rule_s && self.hosts_suit(&all, nodes)
    }

    fn hosts_suit(&self, all: &[&Unit], nodes: Set) -> bool {
        let mut links: Vec<Set> = self.host_groups.clone();
        for (number, unit) in self.units.iter().enumerate() {
            if unit.nodes.iter().any(|n| self.host_groups.iter().any(|g| g.contains(n))) {
                let container = self.containers.iter().find(|c| c.units.contains(&number));
                let together = container.map_or(vec![number], |c| c.units.clone());
                links.push(together.iter().flat_map(|&u| self.units[u].nodes.iter().copied()).collect());
            }
        }
        let mut closure = nodes;
        while let Some(at) = links.iter().position(|link| !link.is_disjoint(&closure)) {
            closure.extend(links.swap_remove(at));
        }
        let mut names: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        let mut places: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut hosts: Option<BTreeSet<String>> = None;
        for node in closure {
            let (operator, traits) = (&self.graph.operators()[node], self.graph.traits(node));
            traits.host_ex_locations.iter().for_each(|id| {
                names.entry(id).or_default().insert(operator.name);
            });
            if let Some((pool, place)) = traits.pool.and_then(|l| Some((l.pool, l.in_pool?))) {
                places.entry(pool).or_default().insert(place);
            }
            if let (Some(declared), ..) = specification(self.graph, &Set::from([node])) {
                hosts = Some(hosts.map_or(declared.clone(), |hosts| hosts.intersection(&declared).cloned().collect()));
            }
        }
        names.values().all(|names| names.len() == 1)
            && places.values().all(|places| places.len() == 1)
            && hosts.is_none_or(|hosts| !hosts.is_empty())
            && all.iter().all(|unit| unit.specification == all[0].specification)
    }
}

fn host_group_names(graph: &Graph, node: Node) -> BTreeSet<String> {
    let traits = graph.traits(node);
    let mut names: BTreeSet<String> = traits.host_co_locations.iter().map(|id| format!("id {id}")).collect();
    names.extend(traits.host.map(|host| format!("host {host}")));
    if let Some((pool, place)) = traits.pool.and_then(|l| Some((graph.pool(l.pool)?, l.in_pool?))) {
        names.insert(format!("place {} {place}", pool.index));
        names.extend(pool.hosts.get(place as usize).map(|host| format!("host {host}")));
    }
    names
}

fn specification(graph: &Graph, nodes: &Set) -> Specification {
    let mut all = (None::<BTreeSet<String>>, BTreeSet::new(), BTreeSet::new());
    for &node in nodes {
        let traits = graph.traits(node);
        let pool = traits.pool.and_then(|location| graph.pool(location.pool));
        let place = traits.pool.and_then(|location| location.in_pool);
        let hosts = pool.map(|pool| pool.hosts.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap_or_default();
        let declared: Option<BTreeSet<String>> = match (traits.host, hosts.is_empty(), place) {
            (Some(host), ..) => Some([host.to_string()].into()),
            (None, true, _) => None,
            (None, false, Some(place)) => Some([hosts[place as usize].clone()].into()),
            (None, false, None) => Some(hosts.into_iter().collect()),
        };
        all.2.extend(pool.map(|pool| pool.index));
        if declared.is_none() {
            all.1.extend(pool.and_then(|pool| Some((pool.index, place?))));
        }
        all.0 = match (all.0.take(), declared) {
            (Some(a), Some(b)) => Some(a.intersection(&b).cloned().collect()),
            (a, b) => a.or(b),
        };
    }
    all
}
