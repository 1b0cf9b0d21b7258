//! Carries numbers over from the running generation (rules expansion-10, expansion-17 and expansion-25).
//!
//! A fresh expansion numbers operators, splitters and copies of host pools from the beginning. [`relabel`] gives those
//! that existed before the number that a [`Numbering`] recorded, and gives new ones a number that no other has. It
//! changes nothing but numbers.
//!
//! Knows: identities, numbers. Must not know: how a layout stores them.

use super::copies::Copies;
use super::order::Numbered;
use super::splitter_numbers::{SplitterEnd, ends_of, renumber_splitters};
use super::{Channel, Identity, Node, PhysicalOperator, Topology};
use crate::logical::{self, OperatorId, PoolLocation, Resources};
use crate::shared::Shared;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The numbers of a generation, as plain data that a layout can store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// Operator indexes, sorted by identity.
    pub operators: Vec<(Identity, u32)>,
    /// Splitters that carry connections, sorted.
    pub splitters: Vec<NumberedSplitter>,
    /// Host pools by name, sorted.
    pub host_pools: Vec<(String, u64)>,
}

/// The number of a splitter. A splitter is recognised by the end of a connection through it. Of all ends, the one with
/// the lowest channels is recorded, because it exists as long as the splitter does, whatever the widths.
///
/// Operators are positions in [`Numbering::operators`], which is sorted by identity: there may be very many splitters,
/// and an identity may be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumberedSplitter {
    /// Operator that the splitter is on.
    pub source: u32,
    /// Its output port.
    pub source_port: u32,
    /// Operator that the connection ends at.
    pub target: u32,
    /// Its input port.
    pub target_port: u32,
    /// Number of the splitter on its port.
    pub index: u32,
}

impl Numbering {
    /// The numbers of a topology.
    pub fn of(topology: &Topology) -> Self {
        let application = &topology.application;
        // Copies by channel are nearly sorted, which makes sorting them cheap.
        let mut operators: Vec<(Identity, u32, Node)> = Vec::with_capacity(topology.operators.len());
        let copies = Copies::new(&topology.numbered);
        for (_, id) in by_adl_index(application) {
            let copy =
                |node: Node| (topology.operators[node].identity(application), topology.operators[node].index, node);
            operators.extend(copies.all(id).map(copy));
        }
        operators.sort_unstable();
        let mut position_of: SecondaryMap<Node, u32> = SecondaryMap::with_capacity(operators.len());
        for (position, (_, _, node)) in (0..).zip(&operators) {
            position_of[*node] = position;
        }

        let mut splitters = Vec::new();
        for run in topology.connections.chunk_by(|a, b| (a.source, a.source_port) == (b.source, b.source_port)) {
            splitters.extend(ends_of(topology, run).map(|end| NumberedSplitter {
                source: position_of[end.source],
                source_port: end.source_port,
                target: position_of[end.target],
                target_port: end.target_port,
                index: end.index,
            }));
        }
        splitters.sort_unstable();
        let operators = operators.into_iter().map(|(identity, index, _)| (identity, index)).collect();
        Self { operators, splitters, host_pools: host_pools(topology) }
    }
}

/// Host pools by name, sorted.
pub(super) fn host_pools(topology: &Topology) -> Vec<(String, u64)> {
    let mut host_pools: Vec<_> = topology.host_pools.iter().map(|p| (p.name.clone(), p.index)).collect();
    host_pools.sort_unstable();
    host_pools
}

/// Operators as written, ascending ADL index.
fn by_adl_index(application: &logical::Application) -> Vec<(u64, OperatorId)> {
    let mut operators: Vec<_> = application.operators.iter().map(|(id, operator)| (operator.index, id)).collect();
    operators.sort_unstable();
    operators
}

/// The operators of a topology by what identifies them.
struct ByIdentity<'t> {
    topology: &'t Topology,
    by_adl_index: Vec<(u64, OperatorId)>,
    copies: Copies,
}

impl<'t> ByIdentity<'t> {
    fn new(topology: &'t Topology) -> Self {
        Self { topology, by_adl_index: by_adl_index(&topology.application), copies: Copies::new(&topology.numbered) }
    }

    /// All copies of the operator as written, if there are any.
    fn copies(&self, identity: &Identity) -> Option<CopiesOf<'_>> {
        let at = self.by_adl_index.binary_search_by_key(&identity.logical_index, |(index, _)| *index).ok()?;
        let (_, id) = *self.by_adl_index.get(at)?;
        // All copies are in the same regions.
        let one = &self.topology.operators[self.copies.all(id).next()?];
        Some(CopiesOf { copies: &self.copies, id, channels: &one.channels })
    }
}

/// The copies of one operator as written.
struct CopiesOf<'t> {
    copies: &'t Copies,
    id: OperatorId,
    /// The channels of one of them.
    channels: &'t [Channel],
}

impl CopiesOf<'_> {
    fn node(&self, identity: &Identity) -> Option<Node> {
        if identity.channels.len() != self.channels.len() {
            return None;
        }
        let mut global = 0_u32;
        for (&local, channel) in identity.channels.iter().zip(self.channels).rev() {
            if local >= channel.local_max {
                return None;
            }
            global = global.checked_mul(channel.local_max)?.checked_add(local)?;
        }
        self.copies.node(self.id, global)
    }
}

/// Gives indexes to new operators: the index of a fresh expansion, or one above all others if an operator had that
/// index before.
pub(super) struct NewIndexes {
    /// Ascending.
    taken: Vec<u32>,
    next: u32,
}

impl NewIndexes {
    /// `taken` are the indexes that operators had, ascending; `largest` is the largest of a fresh expansion.
    pub(super) fn new(taken: Vec<u32>, largest: Option<u32>) -> Self {
        let largest = largest.max(taken.last().copied());
        Self { taken, next: largest.map_or(0, |largest| largest.saturating_add(1)) }
    }

    /// The index of the next new operator, in order of the indexes of a fresh expansion.
    pub(super) fn index(&mut self, fresh: u32) -> u32 {
        if self.taken.binary_search(&fresh).is_err() {
            return fresh;
        }
        self.next = self.next.saturating_add(1);
        self.next - 1
    }
}

/// Gives operators, splitters and host pools of the fresh topology that existed before the numbers of `prior`. A new
/// operator gets an index that no operator had.
pub fn relabel(mut fresh: Topology, prior: &Numbering) -> Topology {
    let known = ByIdentity::new(&fresh);
    // The operators of `prior`, in its order.
    let mut nodes: Vec<PackedOption<Node>> = Vec::with_capacity(prior.operators.len());
    for same in prior.operators.chunk_by(|(a, _), (b, _)| a.logical_index == b.logical_index) {
        let copies = same.first().and_then(|(identity, _)| known.copies(identity));
        let node = |identity: &Identity| copies.as_ref().and_then(|copies| copies.node(identity));
        nodes.extend(same.iter().map(|(identity, _)| PackedOption::from(node(identity))));
    }
    // Operators that were there keep their index (rule expansion-10).
    let mut index_of: SecondaryMap<Node, Option<u32>> = SecondaryMap::with_capacity(fresh.operators.len());
    for (node, (_, index)) in nodes.iter().zip(&prior.operators) {
        if let Some(node) = node.expand() {
            index_of[node] = Some(*index);
        }
    }
    let node = |position: u32| nodes.get(position as usize)?.expand();
    let splitters = prior.splitters.iter().filter_map(|splitter| {
        Some(SplitterEnd {
            source: node(splitter.source)?,
            source_port: splitter.source_port,
            target: node(splitter.target)?,
            target_port: splitter.target_port,
            index: splitter.index,
        })
    });
    let splitters: Vec<SplitterEnd> = splitters.collect();
    renumber_splitters(&mut fresh, &splitters);
    renumber_host_pools(&mut fresh, &prior.host_pools);
    let mut taken: Vec<u32> = prior.operators.iter().map(|(_, index)| *index).collect();
    taken.sort_unstable();
    let mut new = NewIndexes::new(taken, fresh.operators.values().map(|operator| operator.index).max());
    for (node, operator) in fresh.operators.iter_mut() {
        let index = index_of[node].unwrap_or_else(|| new.index(operator.index));
        if index != operator.index {
            operator.to_mut().index = index;
        }
    }
    let mut relabelled = sort_by_index(fresh);
    relabelled.numbered = numbered(&relabelled.operators);
    relabelled
}

/// What is in [`Topology::numbered`], from operators in order.
fn numbered(operators: &PrimaryMap<Node, Shared<PhysicalOperator>>) -> Numbered {
    let numbered = |operator: &Shared<PhysicalOperator>| (operator.index, operator.logical, operator.global_channel());
    operators.values().map(numbered).collect()
}

/// Sorts the arena by operator index again.
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
    let mut by_old: Vec<Option<Shared<PhysicalOperator>>> =
        operators.into_iter().map(|(_, operator)| Some(operator)).collect();
    let operators: PrimaryMap<Node, Shared<PhysicalOperator>> =
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

/// A pool of the document keeps its number, and a copy the one that a copy of its name had. No pool is added or removed
/// (rule expansion-25).
pub(super) fn renumber_host_pools(fresh: &mut Topology, prior: &[(String, u64)]) {
    let mut map: BTreeMap<u64, u64> = BTreeMap::new();
    let used: BTreeSet<u64> =
        prior.iter().map(|(_, index)| *index).chain(fresh.host_pools.iter().map(|pool| pool.index)).collect();
    // Above all. A document may have the largest number that there is, and then only those that it leaves out are left.
    let above = used.last().map_or(Some(0), |last| last.checked_add(1));
    let below = (0..u64::MAX).filter(|index| !used.contains(index));
    let mut new_indexes = above.into_iter().flat_map(|first| first..=u64::MAX).chain(below);
    // Operators that were taken over from the generation before are in pools of the document only. So their numbers are
    // right already, as long as no such number is given to a copy.
    let declared = &fresh.application.host_pools;
    let is_declared = |index: u64| declared.binary_search_by_key(&index, |pool| pool.index).is_ok();
    // Names of copies are unique, unless one is called like another.
    let mut by_name: BTreeMap<&str, VecDeque<u64>> = BTreeMap::new();
    let mut by_index: BTreeMap<u64, &str> = BTreeMap::new();
    for (name, index) in prior {
        if !is_declared(*index) {
            by_name.entry(name).or_default().push_back(*index);
            by_index.insert(*index, name);
        }
    }
    let copies = fresh.host_pools.iter().filter(|pool| !is_declared(pool.index));
    let copies: Vec<(&str, u64)> = copies.map(|pool| (pool.name.as_str(), pool.index)).collect();
    for &(name, is) in &copies {
        let known = by_name.get_mut(name).and_then(VecDeque::pop_front);
        // Another name had the number, or another copy of this name has it again.
        let in_the_way = by_index.get(&is).is_some_and(|other| *other != name || known.is_none());
        // The new number stays used even if the name turns out to have had one, as in the reference implementation.
        if in_the_way
            && known.is_none_or(|was| was > is)
            && let Some(new) = new_indexes.next()
        {
            map.insert(is, new);
        }
        if let Some(was) = known.filter(|was| *was != is) {
            map.insert(is, was);
        }
    }
    sort_numbers_of_one_name(copies, &mut map);
    if map.is_empty() {
        return;
    }
    for pool in &mut fresh.host_pools {
        pool.index = map.get(&pool.index).copied().unwrap_or(pool.index);
    }
    fresh.host_pools.sort_unstable_by_key(|pool| pool.index);
    // By address of what operators had: what they have now. So operators share afterwards what they shared before. An
    // address cannot come to mean something else: what is made here is at no operator that is still to come.
    let mut renumbered: HashMap<*const Resources, Arc<Resources>> = HashMap::new();
    for operator in fresh.operators.values_mut() {
        let Some(location) = operator.resources.pool else { continue };
        if let Some(&pool) = map.get(&location.pool) {
            let resources = &mut operator.to_mut().resources;
            let known = renumbered.entry(Arc::as_ptr(resources)).or_insert_with(|| {
                Arc::new(Resources { pool: Some(PoolLocation { pool, ..location }), ..(**resources).clone() })
            });
            *resources = Arc::clone(known);
        }
    }
}

/// Of copies with one name, gives the first in the fresh order the lowest of their numbers, and so on. A layout has
/// names and numbers, and not which copy has which. So whoever restores the job from it finds the same, but copies may
/// exchange their numbers (rule expansion-25). `copies` have their fresh numbers; `map` has those that differ from
/// them.
fn sort_numbers_of_one_name(mut copies: Vec<(&str, u64)>, map: &mut BTreeMap<u64, u64>) {
    copies.sort_unstable();
    for same in copies.chunk_by(|(a, _), (b, _)| a == b).filter(|same| same.len() > 1) {
        let mut numbers: Vec<u64> = same.iter().map(|(_, index)| map.get(index).copied().unwrap_or(*index)).collect();
        numbers.sort_unstable();
        map.extend(same.iter().map(|(_, index)| *index).zip(numbers));
    }
    map.retain(|fresh, number| *fresh != *number);
}
