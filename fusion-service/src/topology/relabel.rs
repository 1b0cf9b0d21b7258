//! Numbers carried over from the running generation (topology 6.3, equivalent formulation).
//!
//! A fresh expansion numbers operators, splitters and copies of host pools from the beginning. [`relabel`] gives whatever existed before the
//! number it had, as a [`Numbering`] remembers it, and new things numbers that nothing else has. The structure is that of the fresh topology;
//! only numbers change, so what is not renumbered is equal to before, text and all.

use super::{Connection, Identity, Node, Splitter, Topology, Via};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The numbers of a generation: plain data, so that it can be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// Operator indexes, sorted by identity.
    pub operators: Vec<(Identity, u32)>,
    /// Splitters that carry connections, sorted.
    pub splitters: Vec<NumberedSplitter>,
    /// Host pools by name, sorted.
    pub host_pools: Vec<(String, u64)>,
}

/// The number of a splitter. A splitter is recognised by where a connection through it ends: of all ends the one with the least channels,
/// because that one exists as long as the splitter does, whatever the widths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumberedSplitter {
    /// Operator that the splitter is on.
    pub source: Identity,
    /// Its output port.
    pub source_port: u32,
    /// Operator that the connection ends at.
    pub target: Identity,
    /// Its input port.
    pub target_port: u32,
    /// Number of the splitter on its port.
    pub index: u32,
}

/// What a resize does to operators (topology 6.3 steps 1 and 2). Names, sorted: removed ones as they were, others as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Operators of channels that are new.
    pub added: Vec<String>,
    /// Operators that are inside the region, or see other neighbours.
    pub changed: Vec<String>,
    /// Operators of channels that are gone.
    pub removed: Vec<String>,
}

impl Numbering {
    /// The numbers of a topology.
    pub fn of(topology: &Topology) -> Self {
        let application = &topology.application;
        let identities: PrimaryMap<Node, Identity> =
            topology.operators.values().map(|operator| operator.identity(application)).collect();
        let mut operators: Vec<_> =
            topology.operators.iter().map(|(node, operator)| (identities[node].clone(), operator.index)).collect();
        operators.sort_unstable();

        let mut splitters = Vec::new();
        let key = |(node, port): (Node, u32)| (&identities[node].channels, identities[node].logical_index, port);
        for run in topology.connections.chunk_by(|a, b| (a.source, a.source_port) == (b.source, b.source_port)) {
            // Per splitter of the port: its end with the least channels.
            let mut ends: BTreeMap<u32, (Node, u32)> = BTreeMap::new();
            for connection in run {
                let Some(via) = connection.via() else { continue };
                let end = (connection.target, connection.target_port);
                let least = ends.entry(via.splitter).or_insert(end);
                if key(end) < key(*least) {
                    *least = end;
                }
            }
            if let Some(first) = run.first() {
                splitters.extend(ends.into_iter().map(|(index, (target, target_port))| NumberedSplitter {
                    source: identities[first.source].clone(),
                    source_port: first.source_port,
                    target: identities[target].clone(),
                    target_port,
                    index,
                }));
            }
        }
        splitters.sort_unstable();
        let mut host_pools: Vec<_> = topology.host_pools.iter().map(|p| (p.name.clone(), p.index)).collect();
        host_pools.sort_unstable();
        Self { operators, splitters, host_pools }
    }

    fn operator(&self, identity: &Identity) -> Option<u32> {
        let position = self.operators.binary_search_by(|(other, _)| other.cmp(identity)).ok()?;
        self.operators.get(position).map(|(_, index)| *index)
    }
}

/// The fresh topology with the numbers of `prior` where things are the same.
pub fn relabel(mut fresh: Topology, prior: &Numbering) -> Topology {
    let application = Arc::clone(&fresh.application);
    renumber_splitters(&mut fresh, prior);
    renumber_host_pools(&mut fresh, prior);

    // Step 3. New operators come in ascending fresh index: the order of the arena.
    let taken: BTreeSet<u32> = prior.operators.iter().map(|(_, index)| *index).collect();
    let largest = fresh.operators.values().map(|o| o.index).chain(taken.last().copied()).max();
    let mut next = largest.map_or(0, |largest| largest.saturating_add(1));
    for operator in fresh.operators.values_mut() {
        operator.index = match prior.operator(&operator.identity(&application)) {
            Some(index) => index,
            None if !taken.contains(&operator.index) => operator.index,
            None => {
                next = next.saturating_add(1);
                next - 1
            }
        };
    }
    sort_by_index(fresh)
}

/// Puts the arena in order of operator index again.
fn sort_by_index(topology: Topology) -> Topology {
    let Topology { operators, mut connections, mut consistent_regions, .. } = topology;
    let mut order: Vec<Node> = operators.keys().collect();
    order.sort_unstable_by_key(|node| operators[*node].index);
    let moved = order.iter().enumerate().any(|(position, node)| node.index() != position);
    if !moved {
        return Topology { operators, connections, consistent_regions, ..topology };
    }
    let mut position_of: SecondaryMap<Node, Node> = SecondaryMap::with_default(Node::new(0));
    for (position, node) in order.iter().enumerate() {
        position_of[*node] = Node::new(position);
    }
    let mut by_old: Vec<Option<super::Operator>> = operators.into_iter().map(|(_, operator)| Some(operator)).collect();
    let operators: PrimaryMap<Node, super::Operator> =
        order.iter().filter_map(|node| by_old.get_mut(node.index()).and_then(Option::take)).collect();
    for connection in &mut connections {
        connection.source = position_of[connection.source];
        connection.target = position_of[connection.target];
    }
    connections.sort_unstable();
    for region in &mut consistent_regions {
        for (node, _, _) in &mut region.members {
            *node = position_of[*node];
        }
        region.members.sort_unstable();
    }
    Topology { operators, connections, consistent_regions, ..topology }
}

/// Step 5: a splitter that carries connections keeps its number; one in the way moves behind all others.
fn renumber_splitters(fresh: &mut Topology, prior: &Numbering) {
    if prior.splitters.is_empty() {
        return;
    }
    let application = Arc::clone(&fresh.application);
    let node_of: HashMap<Identity, Node> =
        fresh.operators.keys().map(|node| (fresh.operators[node].identity(&application), node)).collect();
    for known in prior.splitters.chunk_by(|a, b| (&a.source, a.source_port) == (&b.source, b.source_port)) {
        let Some(first) = known.first() else { continue };
        let Some(&source) = node_of.get(&first.source) else { continue };
        let port = first.source_port;
        let mut map: BTreeMap<u32, u32> = BTreeMap::new();
        for splitter in known {
            let Some(&target) = node_of.get(&splitter.target) else { continue };
            let via = via_of(&fresh.connections, (source, port), (target, splitter.target_port));
            if let Some(via) = via.filter(|via| via.splitter != splitter.index) {
                map.insert(via.splitter, splitter.index);
            }
        }
        let output = fresh.operators.get_mut(source).and_then(|operator| operator.outputs.get_mut(port as usize));
        let Some(output) = output.filter(|_| !map.is_empty()) else { continue };
        let mut present = BTreeSet::new();
        visit(&mut output.splitters, &mut |index| {
            present.insert(*index);
        });
        let mut next = present.iter().chain(map.values()).max().map_or(0, |largest| largest.saturating_add(1));
        for wanted in map.values().copied().collect::<Vec<_>>() {
            if present.contains(&wanted) && !map.contains_key(&wanted) {
                map.insert(wanted, next);
                next = next.saturating_add(1);
            }
        }
        visit(&mut output.splitters, &mut |index| {
            if let Some(new) = map.get(index) {
                *index = *new;
            }
        });
        let start = fresh.connections.partition_point(|c| (c.source, c.source_port) < (source, port));
        for connection in fresh.connections.iter_mut().skip(start) {
            if (connection.source, connection.source_port) != (source, port) {
                break;
            }
            if let Some(Via { splitter, channel }) = connection.via() {
                let splitter = map.get(&splitter).copied().unwrap_or(splitter);
                let target = (connection.target, connection.target_port);
                *connection = Connection::new((source, port), target, Some(Via { splitter, channel }));
            }
        }
    }
}

/// The splitter and channel of the connection between two ports.
fn via_of(connections: &[Connection], source: (Node, u32), target: (Node, u32)) -> Option<Via> {
    let ends = |c: &Connection| ((c.source, c.source_port), (c.target, c.target_port));
    let position = connections.binary_search_by(|c| ends(c).cmp(&(source, target))).ok()?;
    connections.get(position)?.via()
}

/// Calls `f` with the index of every splitter of a tree.
fn visit(splitters: &mut [Splitter], f: &mut impl FnMut(&mut u32)) {
    // Depth is bounded by the nesting of regions in the ADL.
    let mut open: Vec<&mut Splitter> = splitters.iter_mut().collect();
    while let Some(splitter) = open.pop() {
        f(&mut splitter.index);
        open.extend(splitter.nested.iter_mut().map(|(_, nested)| nested));
    }
}

/// Step 6, with exactly the fresh pools as the result (10.6): a pool keeps the number that its name had.
fn renumber_host_pools(fresh: &mut Topology, prior: &Numbering) {
    let mut map: BTreeMap<u64, u64> = BTreeMap::new();
    let largest =
        prior.host_pools.iter().map(|(_, index)| *index).chain(fresh.host_pools.iter().map(|p| p.index)).max();
    let mut next = largest.map_or(0, |largest| largest.saturating_add(1));
    // By name the least and the greatest index, and by index the name: names of pools are unique unless the ADL repeats one.
    let mut by_name: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut by_index: BTreeMap<u64, &str> = BTreeMap::new();
    for (name, index) in &prior.host_pools {
        let (least, greatest) = by_name.entry(name).or_insert((*index, *index));
        (*least, *greatest) = ((*least).min(*index), (*greatest).max(*index));
        by_index.insert(*index, name);
    }
    for pool in &fresh.host_pools {
        let known = by_name.get(pool.name.as_str());
        let in_the_way = by_index.get(&pool.index).is_some_and(|name| *name != pool.name);
        // A number is used up even if the name then turns out to have one, as in the reference's order of steps.
        if in_the_way && known.is_none_or(|(least, _)| *least > pool.index) {
            map.insert(pool.index, next);
            next = next.saturating_add(1);
        }
        if let Some((_, index)) = known.filter(|(_, index)| *index != pool.index) {
            map.insert(pool.index, *index);
        }
    }
    if map.is_empty() {
        return;
    }
    for pool in &mut fresh.host_pools {
        pool.index = map.get(&pool.index).copied().unwrap_or(pool.index);
    }
    fresh.host_pools.sort_unstable_by_key(|pool| pool.index);
    for operator in fresh.operators.values_mut() {
        let Some(location) = operator.resources.pool else { continue };
        if let Some(&pool) = map.get(&location.pool) {
            let mut resources = (*operator.resources).clone();
            resources.pool = Some(crate::logical::PoolLocation { pool, ..location });
            operator.resources = Arc::new(resources);
        }
    }
}

/// What becomes of operators when a topology is replaced by one with another width of `region` (topology 6.3 steps 1 and 2). Empty when the
/// width is the same.
pub fn difference(prior: &Topology, fresh: &Topology, region: u64) -> Difference {
    let width = |topology: &Topology| topology.regions.iter().find(|r| r.index == region).map(|r| r.width);
    if width(prior) == width(fresh) {
        return Difference::default();
    }
    let names = |topology: &Topology| -> BTreeMap<Identity, String> {
        let inside = topology.operators.values().filter(|o| !o.channels.is_empty());
        inside.map(|o| (o.identity(&topology.application), o.name.clone())).collect()
    };
    let (before, after) = (names(prior), names(fresh));
    let in_region = |node: Node| fresh.operators[node].channels.iter().any(|channel| channel.region == region);
    let mut changed = BTreeSet::new();
    for (node, operator) in &fresh.operators {
        let Some(name) = before.get(&operator.identity(&fresh.application)) else { continue };
        if !operator.channels.is_empty() && (in_region(node) || *name != operator.name) {
            changed.insert(operator.name.clone());
        }
    }
    for connection in &fresh.connections {
        let (source, target) = (connection.source, connection.target);
        for (one, other) in [(source, target), (target, source)] {
            if in_region(one) && !in_region(other) {
                changed.insert(fresh.operators[other].name.clone());
            }
        }
    }
    let mut added: Vec<_> =
        after.iter().filter(|(i, _)| !before.contains_key(*i)).map(|(_, name)| name.clone()).collect();
    let mut removed: Vec<_> =
        before.into_iter().filter(|(i, _)| !after.contains_key(i)).map(|(_, name)| name).collect();
    added.sort_unstable();
    removed.sort_unstable();
    for name in &added {
        changed.remove(name);
    }
    Difference { added, changed: changed.into_iter().collect(), removed }
}
