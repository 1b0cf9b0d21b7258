//! The PEs that a resize must interrupt, wherever a policy puts operators: a lower bound.
//!
//! A PE must be interrupted if it has an operator that goes on, and either has one that does not, or one that goes on
//! and can observe something else of itself: its name, channels, numbers of channels, constants, imports, exports,
//! connections, and splitters that lead somewhere. Whether a connection stays inside of a PE, ids of PEs and of ports,
//! and threads do not count, because a policy decides them.
//!
//! Knows: the topologies before and after, and where operators were. Must not know: the PEs after, documents.

use std::collections::{BTreeMap, BTreeSet};
use streams_compiler::plan::Compiled;
use streams_compiler::topology::{
    EvaluatedExport, EvaluatedImports, Identity, IgnoredCounts, Node, PhysicalOperator, Splitter, Topology, Via,
};

/// The operators of each PE, by what does not change with widths (rule expansion-7).
pub(super) type Partition = BTreeMap<u64, BTreeSet<Identity>>;

/// The PEs of a job.
pub(super) fn partition(job: &Compiled) -> Partition {
    let (elements, topology) = (job.elements(), job.topology());
    let identity = |&node: &Node| topology.operators[node].identity(&topology.application);
    let members = |pe| elements.members(pe).iter().map(identity).collect();
    elements.pes().iter().map(|&pe| (elements.id(pe), members(pe))).collect()
}

/// What a resize does to operators, as far as they can observe it themselves.
#[derive(Debug)]
pub(super) struct OwnChanges {
    gone: BTreeSet<Identity>,
    altered: BTreeSet<Identity>,
}

impl OwnChanges {
    /// Compares two topologies of one job. `ignored` are the numbers of channels that nobody asks for.
    pub(super) fn between(before: &Topology, now: &Topology, ignored: &IgnoredCounts) -> Self {
        let (mut were, are) = (descriptions(before, ignored), descriptions(now, ignored));
        let altered = are.iter().filter(|(identity, is)| were.remove(*identity).is_some_and(|was| was != **is));
        let altered = altered.map(|(identity, _)| identity.clone()).collect();
        Self { gone: were.into_keys().collect(), altered }
    }

    /// Number of PEs that must be interrupted.
    pub(super) fn must_interrupt(&self, partition: &Partition) -> usize {
        let is_hit = |own: &&BTreeSet<Identity>| {
            let gone = own.iter().filter(|identity| self.gone.contains(*identity)).count();
            gone < own.len() && (gone > 0 || own.iter().any(|identity| self.altered.contains(identity)))
        };
        partition.values().filter(is_hit).count()
    }

    /// Takes the operators away that do not go on.
    pub(super) fn remove_from(&self, partition: &mut Partition) {
        partition.values_mut().for_each(|own| own.retain(|identity| !self.gone.contains(identity)));
    }
}

/// What an operator can observe of itself in any PE.
#[derive(PartialEq)]
struct Description<'t> {
    name: &'t str,
    /// Region, local and global channel, and the numbers of channels that it may ask for.
    channels: Vec<(u64, [u32; 2], [Option<u32>; 2])>,
    constants: &'t [(String, Option<String>)],
    imports: Vec<Option<&'t EvaluatedImports>>,
    exports: Vec<Option<&'t EvaluatedExport>>,
    /// Output port, index and width of splitters that lead somewhere.
    splitters: Vec<(usize, u32, u32)>,
    connections: BTreeSet<OwnEnd>,
}

/// An end of a connection, as the operator there sees it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OwnEnd {
    is_input: bool,
    port: usize,
    via: Option<Via>,
    /// Index and port of the operator at the other end.
    other: (u32, u32),
}

fn descriptions<'t>(topology: &'t Topology, ignored: &IgnoredCounts) -> BTreeMap<Identity, Description<'t>> {
    let mut ends: BTreeMap<Node, BTreeSet<OwnEnd>> = BTreeMap::new();
    for connection in &topology.connections {
        let (source, target) =
            ((connection.source, connection.source_port), (connection.target, connection.target_port));
        for (is_input, own, other) in [(false, source, target), (true, target, source)] {
            let other = (topology.operators[other.0].index, other.1);
            let end = OwnEnd { is_input, port: own.1 as usize, via: connection.via(), other };
            ends.entry(own.0).or_default().insert(end);
        }
    }
    let described = topology.operators.iter().map(|(node, operator)| {
        let connections = ends.remove(&node).unwrap_or_default();
        (operator.identity(&topology.application), describe(operator, connections, ignored))
    });
    described.collect()
}

fn describe<'t>(
    operator: &'t PhysicalOperator,
    connections: BTreeSet<OwnEnd>,
    ignored: &IgnoredCounts,
) -> Description<'t> {
    let used = connections.iter().filter(|end| !end.is_input);
    let used: BTreeSet<(usize, u32)> = used.filter_map(|end| Some((end.port, end.via?.splitter))).collect();
    let mut splitters = Vec::new();
    for (port, output) in operator.outputs.iter().enumerate() {
        for splitter in &output.splitters {
            leads_somewhere(port, splitter, &used, &mut splitters);
        }
    }
    let channels = operator.channels.iter().enumerate().map(|(position, channel)| {
        let around = operator.channels.iter().skip(position + 1).map(|outer| outer.region);
        let observed = ignored.observed(channel.region, around);
        let counts = [observed.local.then_some(channel.local_max), observed.global.then_some(channel.global_max)];
        (channel.region, [channel.local, channel.global], counts)
    });
    Description {
        name: &operator.name,
        channels: channels.collect(),
        constants: &operator.runtime_constants,
        imports: operator.inputs.iter().map(|input| input.imports.as_deref()).collect(),
        exports: operator.outputs.iter().map(|output| output.export.as_deref()).collect(),
        splitters,
        connections,
    }
}

/// Whether a splitter leads somewhere (rule aadl-12). Adds it, and those under it, to the list if they do. `used` are
/// output ports and splitters that connections name.
fn leads_somewhere(
    port: usize,
    splitter: &Splitter,
    used: &BTreeSet<(usize, u32)>,
    list: &mut Vec<(usize, u32, u32)>,
) -> bool {
    let mut leads = used.contains(&(port, splitter.index));
    for (_, inner) in &splitter.nested {
        leads |= leads_somewhere(port, inner, used, list);
    }
    if leads {
        list.push((port, splitter.index, splitter.width));
    }
    leads
}
