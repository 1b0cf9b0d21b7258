//! Numbers carried over from the running generation (topology 6.3, equivalent formulation).
//!
//! A fresh expansion numbers operators, splitters and copies of host pools from the beginning. [`relabel`] gives whatever existed before the
//! number it had, as a [`Numbering`] remembers it, and new things numbers that nothing else has. The structure is that of the fresh topology;
//! only numbers change, so what is not renumbered is equal to before, text and all.

use super::regrow::Before;
use super::{Connection, Identity, Node, Operator, Splitter, Topology, Via};
use crate::logical::OperatorId;
use crate::shared::Shared;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
        // Copies by channel are nearly in order already, which makes sorting them cheap.
        let mut operators = Vec::with_capacity(identities.len());
        for copies in Copies::of(topology).0.values() {
            let copies = copies.nodes.iter().filter_map(|node| node.expand());
            operators.extend(copies.map(|node| (identities[node].clone(), topology.operators[node].index)));
        }
        operators.sort_unstable();

        let mut splitters = Vec::new();
        for run in topology.connections.chunk_by(|a, b| (a.source, a.source_port) == (b.source, b.source_port)) {
            splitters.extend(ends_of(topology, run).map(|end| NumberedSplitter {
                source: identities[end.source].clone(),
                source_port: end.source_port,
                target: identities[end.target].clone(),
                target_port: end.target_port,
                index: end.index,
            }));
        }
        splitters.sort_unstable();
        Self { operators, splitters, host_pools: host_pools(topology) }
    }
}

/// Host pools by name, sorted.
fn host_pools(topology: &Topology) -> Vec<(String, u64)> {
    let mut host_pools: Vec<_> = topology.host_pools.iter().map(|p| (p.name.clone(), p.index)).collect();
    host_pools.sort_unstable();
    host_pools
}

/// A splitter that carries connections: the connection by which it is recognised, and its number.
#[derive(Clone, Copy)]
struct SplitterEnd {
    source: Node,
    source_port: u32,
    target: Node,
    target_port: u32,
    index: u32,
}

/// The splitters of a port, whose connections are `run`.
fn ends_of(topology: &Topology, run: &[Connection]) -> impl Iterator<Item = SplitterEnd> + use<> {
    let written = &topology.application.operators;
    let compare = |a: &Connection, b: &Connection| {
        let [one, other] = [a, b].map(|connection| &topology.operators[connection.target]);
        let channels = one.channels.iter().map(|c| c.local).cmp(other.channels.iter().map(|c| c.local));
        let rest =
            |operator: &Operator, connection: &Connection| (written[operator.logical].index, connection.target_port);
        channels.then_with(|| rest(one, a).cmp(&rest(other, b)))
    };
    // Per splitter of the port: its end with the least channels.
    let mut ends: BTreeMap<u32, Connection> = BTreeMap::new();
    for connection in run {
        let Some(via) = connection.via() else { continue };
        let least = ends.entry(via.splitter).or_insert(*connection);
        if compare(connection, least).is_lt() {
            *least = *connection;
        }
    }
    ends.into_iter().map(|(index, connection)| SplitterEnd {
        source: connection.source,
        source_port: connection.source_port,
        target: connection.target,
        target_port: connection.target_port,
        index,
    })
}

/// The copies of every operator of the ADL, by its index.
struct Copies(BTreeMap<u64, CopiesOf>);

/// The copies of one operator.
#[derive(Clone, Default)]
struct CopiesOf {
    /// Widths of the regions around it, innermost first.
    widths: SmallVec<[u32; 4]>,
    /// By global channel.
    nodes: Vec<PackedOption<Node>>,
}

impl Copies {
    fn of(topology: &Topology) -> Self {
        let mut copies: SecondaryMap<OperatorId, CopiesOf> = SecondaryMap::new();
        for (node, operator) in &topology.operators {
            let CopiesOf { widths, nodes } = &mut copies[operator.logical];
            let (channel, channels) = operator.channels.first().map_or((0, 1), |c| (c.global, c.global_max));
            if nodes.is_empty() {
                widths.extend(operator.channels.iter().map(|channel| channel.local_max));
                nodes.resize(channels as usize, PackedOption::default());
            }
            if let Some(copy) = nodes.get_mut(channel as usize) {
                *copy = node.into();
            }
        }
        let written = &topology.application.operators;
        let present = copies.iter_mut().filter(|(_, copies)| !copies.nodes.is_empty());
        Self(present.map(|(id, copies)| (written[id].index, std::mem::take(copies))).collect())
    }

    fn node(&self, identity: &Identity) -> Option<Node> {
        self.0.get(&identity.logical_index)?.node(&identity.channels)
    }
}

impl CopiesOf {
    /// The copy in these local channels, innermost first, if there is one.
    fn node(&self, channels: &[u32]) -> Option<Node> {
        if channels.len() != self.widths.len() {
            return None;
        }
        let mut global = 0;
        for (&channel, &width) in channels.iter().zip(&self.widths).rev() {
            if channel >= width {
                return None;
            }
            global = global * width as usize + channel as usize;
        }
        self.nodes.get(global)?.expand()
    }
}

/// The fresh topology with the numbers of `prior` where things are the same. The index of a new operator is one that no operator had.
pub fn relabel(mut fresh: Topology, prior: &Numbering) -> Topology {
    let copies = Copies::of(&fresh);
    let known = prior.splitters.iter().filter_map(|known| {
        Some(SplitterEnd {
            source: copies.node(&known.source)?,
            source_port: known.source_port,
            target: copies.node(&known.target)?,
            target_port: known.target_port,
            index: known.index,
        })
    });
    renumber_splitters(&mut fresh, &known.collect::<Vec<_>>());
    renumber_host_pools(&mut fresh, &prior.host_pools);

    // Step 3. New operators come in ascending fresh index: the order of the arena.
    let mut known: SecondaryMap<Node, Option<u32>> = SecondaryMap::with_capacity(fresh.operators.len());
    for same in prior.operators.chunk_by(|(a, _), (b, _)| a.logical_index == b.logical_index) {
        let copies = same.first().and_then(|(identity, _)| copies.0.get(&identity.logical_index));
        let Some(copies) = copies else { continue };
        for (identity, index) in same {
            if let Some(node) = copies.node(&identity.channels) {
                known[node] = Some(*index);
            }
        }
    }
    let mut taken: Vec<u32> = prior.operators.iter().map(|(_, index)| *index).collect();
    taken.sort_unstable();
    let largest = fresh.operators.values().map(|o| o.index).chain(taken.last().copied()).max();
    let mut next = largest.map_or(0, |largest| largest.saturating_add(1));
    for (node, operator) in fresh.operators.iter_mut() {
        let index = match known[node] {
            Some(index) => index,
            None if taken.binary_search(&operator.index).is_err() => operator.index,
            None => {
                next = next.saturating_add(1);
                next - 1
            }
        };
        if index != operator.index {
            operator.to_mut().index = index;
        }
    }
    sort_by_index(fresh)
}

/// The same for a topology whose operators have their indexes already, with splitters and host pools to be numbered as they were `before`.
pub(super) fn renumber(mut topology: Topology, before: &Topology, running: &Before<'_>) -> Topology {
    // What was taken over has its numbers.
    let made_again: Vec<(Node, Node)> = running.made_again(&topology).collect();
    for (earlier, node) in made_again {
        let start = before.connections.partition_point(|connection| connection.source < earlier);
        let own = before.connections.get(start..).unwrap_or_default();
        let own = own.iter().take_while(|connection| connection.source == earlier).count();
        let mut own = before.connections.get(start..start + own).unwrap_or_default();
        for (port, was) in (0_u32..).zip(&before.operators[earlier].outputs) {
            let (run, rest) = own.split_at(own.partition_point(|connection| connection.source_port <= port));
            own = rest;
            if was.splitters.is_empty() {
                continue;
            }
            let ends = ends_of(before, run).filter_map(|end| {
                Some(SplitterEnd { source: running.now(end.source)?, target: running.now(end.target)?, ..end })
            });
            let mut known = carrying(&topology, ends);
            if let Some(is) = topology.operators[node].outputs.get(port as usize) {
                by_place(&was.splitters, &is.splitters, &mut known);
            }
            give_numbers(&mut topology, (node, port), known);
        }
    }
    renumber_host_pools(&mut topology, &host_pools(before));
    topology
}

/// Adds splitters that are not known by what they carry, but by where they are: the number of each, and that of the one that was in its place.
/// Most carry connections. Those that do not would get other numbers than before when a width grows and shrinks back.
fn by_place(was: &[Splitter], is: &[Splitter], known: &mut BTreeMap<u32, u32>) {
    let is = places(is);
    if is.len() == known.len() {
        return;
    }
    let was: BTreeMap<Place, u32> = places(was).into_iter().collect();
    let mut taken: BTreeSet<u32> = known.values().copied().collect();
    for (place, index) in is {
        if let Some(earlier) = was.get(&place).filter(|_| !known.contains_key(&index))
            && taken.insert(*earlier)
        {
            known.insert(index, *earlier);
        }
    }
}

/// Where a splitter is: the way to it from its port. Each step has the channel that it hangs under, its region, the input port that it
/// feeds, and how many of that kind hang there before it, as behind a broadcast.
type Place = SmallVec<[(u32, u64, u64, u32); 2]>;

/// The places of all splitters of a port, with their numbers.
fn places(splitters: &[Splitter]) -> Vec<(Place, u32)> {
    let mut places = Vec::new();
    let mut siblings: BTreeMap<Place, u32> = BTreeMap::new();
    // Depth is bounded by the nesting of regions in the ADL.
    let mut open: Vec<(Place, u32, &Splitter)> = splitters.iter().rev().map(|one| (Place::new(), 0, one)).collect();
    while let Some((mut place, channel, splitter)) = open.pop() {
        place.push((channel, splitter.region, splitter.input_port, 0));
        let before = siblings.entry(place.clone()).or_default();
        if let Some((.., nth)) = place.last_mut() {
            *nth = *before;
        }
        *before += 1;
        let nested = splitter.nested.iter().rev();
        open.extend(nested.map(|(channel, nested)| (place.clone(), *channel, nested)));
        places.push((place, splitter.index));
    }
    places
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
    let mut by_old: Vec<Option<Shared<Operator>>> = operators.into_iter().map(|(_, operator)| Some(operator)).collect();
    let operators: PrimaryMap<Node, Shared<Operator>> =
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

/// Step 5: a splitter that carries connections keeps its number.
fn renumber_splitters(fresh: &mut Topology, known: &[SplitterEnd]) {
    for known in known.chunk_by(|a, b| (a.source, a.source_port) == (b.source, b.source_port)) {
        let Some(first) = known.first() else { continue };
        let numbers = carrying(fresh, known.iter().copied());
        give_numbers(fresh, (first.source, first.source_port), numbers);
    }
}

/// The numbers of splitters by which connections go, and the numbers that they had.
fn carrying(fresh: &Topology, known: impl Iterator<Item = SplitterEnd>) -> BTreeMap<u32, u32> {
    let number = |known: SplitterEnd| {
        let (source, target) = ((known.source, known.source_port), (known.target, known.target_port));
        via_of(&fresh.connections, source, target).map(|via| (via.splitter, known.index))
    };
    known.filter_map(number).collect()
}

/// Gives splitters of a port their numbers; one in the way moves behind all others.
fn give_numbers(fresh: &mut Topology, (source, port): (Node, u32), numbers: BTreeMap<u32, u32>) {
    let mut map: BTreeMap<u32, u32> = numbers.into_iter().filter(|(is, was)| is != was).collect();
    if map.is_empty() {
        return;
    }
    let operator = fresh.operators.get_mut(source).map(Shared::to_mut);
    let Some(output) = operator.and_then(|operator| operator.outputs.get_mut(port as usize)) else { return };
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
fn renumber_host_pools(fresh: &mut Topology, prior: &[(String, u64)]) {
    let mut map: BTreeMap<u64, u64> = BTreeMap::new();
    let largest = prior.iter().map(|(_, index)| *index).chain(fresh.host_pools.iter().map(|p| p.index)).max();
    let mut next = largest.map_or(0, |largest| largest.saturating_add(1));
    // Names of pools are unique unless the ADL repeats one; of those of one name, the first keeps the first number, and so on.
    let mut by_name: BTreeMap<&str, VecDeque<u64>> = BTreeMap::new();
    let mut by_index: BTreeMap<u64, &str> = BTreeMap::new();
    for (name, index) in prior {
        by_name.entry(name).or_default().push_back(*index);
        by_index.insert(*index, name);
    }
    for pool in &fresh.host_pools {
        let known = by_name.get_mut(pool.name.as_str()).and_then(VecDeque::pop_front);
        let in_the_way = by_index.get(&pool.index).is_some_and(|name| *name != pool.name);
        // A number is used up even if the name then turns out to have one, as in the reference's order of steps.
        if in_the_way && known.is_none_or(|index| index > pool.index) {
            map.insert(pool.index, next);
            next = next.saturating_add(1);
        }
        if let Some(index) = known.filter(|index| *index != pool.index) {
            map.insert(pool.index, index);
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
            operator.to_mut().resources = Arc::new(resources);
        }
    }
}

/// What every operator was before, if it was there. `after` has the numbers of `before`, as [`relabel`] gives them.
pub fn earlier(before: &Topology, after: &Topology) -> PrimaryMap<Node, Option<Node>> {
    // Both arenas ascend by index, and an index that existed belongs to the same operator.
    let mut known = before.operators.iter().map(|(node, operator)| (operator.index, node)).peekable();
    let earlier = after.operators.values().map(|operator| {
        while known.next_if(|(index, _)| *index < operator.index).is_some() {}
        known.next_if(|(index, _)| *index == operator.index).map(|(_, node)| node)
    });
    earlier.collect()
}

/// What becomes of operators when a topology is replaced by one with other widths and the same numbers, as [`relabel`] gives them
/// (topology 6.3 steps 1 and 2). Nothing when the widths are the same. `earlier` is what [`earlier`] says of the two.
pub fn changes(before: &Topology, after: &Topology, earlier: &PrimaryMap<Node, Option<Node>>) -> Changes {
    let resized = before.regions.iter().zip(&after.regions).filter(|(old, new)| old.width != new.width);
    let mut stays: PrimaryMap<Node, bool> = before.operators.keys().map(|_| false).collect();
    let mut changed: PrimaryMap<Node, bool> = after.operators.keys().map(|_| false).collect();
    let mut is_resized = false;
    for (region, _) in resized {
        is_resized = true;
        let inside =
            |operator: &Shared<Operator>| operator.channels.iter().any(|channel| channel.region == region.index);
        let inside: PrimaryMap<Node, bool> = after.operators.values().map(inside).collect();
        for (node, inside) in &inside {
            changed[node] |= *inside;
        }
        for connection in &after.connections {
            let (source, target) = (connection.source, connection.target);
            if inside[source] != inside[target] {
                changed[if inside[source] { target } else { source }] = true;
            }
        }
    }
    let mut changes = Changes::default();
    if !is_resized {
        return changes;
    }
    for (node, earlier) in earlier {
        let Some(earlier) = *earlier else {
            changes.added.push(node);
            continue;
        };
        stays[earlier] = true;
        let (was, is) = (&before.operators[earlier], &after.operators[node]);
        if changed[node] || (!is.is(was) && is.name != was.name) {
            changes.changed.push(node);
        }
    }
    changes.removed = stays.iter().filter(|(_, stays)| !**stays).map(|(node, _)| node).collect();
    changes
}

/// What a resize does to operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Operators of channels that are new; of the topology after.
    pub added: Vec<Node>,
    /// Operators that are inside a region that is resized, or see other neighbours; of the topology after.
    pub changed: Vec<Node>,
    /// Operators of channels that are gone; of the topology before.
    pub removed: Vec<Node>,
}

impl Changes {
    /// The same by name.
    pub fn names(&self, before: &Topology, after: &Topology) -> Difference {
        let names = |nodes: &[Node], topology: &Topology| {
            let mut names: Vec<String> = nodes.iter().map(|&node| topology.operators[node].name.clone()).collect();
            names.sort_unstable();
            names
        };
        Difference {
            added: names(&self.added, after),
            changed: names(&self.changed, after),
            removed: names(&self.removed, before),
        }
    }
}

/// [`changes`] by name.
pub fn difference(before: &Topology, after: &Topology) -> Difference {
    changes(before, after, &earlier(before, after)).names(before, after)
}
