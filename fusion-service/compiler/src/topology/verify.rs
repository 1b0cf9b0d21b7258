//! Checks the invariants of a [`Topology`], for tests and fuzzing. Later stages rely on them, so a violation is a
//! defect of this crate.

use super::{Node, PhysicalOutputPort, Splitter, Topology, Via};
use cranelift_entity::EntityRef;
use std::collections::{BTreeMap, BTreeSet};

/// Says which invariant does not hold, and where.
///
/// # Errors
/// One sentence about the first violation.
pub fn verify(topology: &Topology) -> Result<(), String> {
    operators(topology)?;
    connections(topology)?;
    tables(topology)
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn operators(topology: &Topology) -> Result<(), String> {
    let indexes: Vec<u32> = topology.operators.values().map(|o| o.index).collect();
    ensure(indexes.is_sorted_by(|a, b| a < b), || "operator indexes do not ascend".to_owned())?;
    let numbers = topology.operators.values().map(|o| (o.index, o.logical, o.global_channel()));
    ensure(numbers.eq(topology.numbered.iter().copied()), || "operators have other numbers than is noted".to_owned())?;
    let mut identities = BTreeSet::new();
    let mut names = BTreeSet::new();
    for operator in topology.operators.values() {
        let name = &operator.name;
        let written = operator.primitive(&topology.application);
        let written = written.ok_or_else(|| format!("{name} is no primitive"))?;
        ensure(identities.insert(operator.identity(&topology.application)), || format!("{name} exists twice"))?;
        ensure(names.insert(name.as_str()), || format!("the name {name} is not unique"))?;
        ensure(operator.inputs.len() == written.inputs.len(), || format!("{name} has other input ports than written"))?;
        ensure(operator.outputs.len() == written.outputs.len(), || {
            format!("{name} has other output ports than written")
        })?;
        for channel in &operator.channels {
            ensure(channel.local < channel.local_max && channel.global < channel.global_max, || {
                format!("{name} is in a channel beyond the width of region {}", channel.region)
            })?;
            let region = topology.regions.iter().find(|r| r.index == channel.region);
            ensure(region.is_some_and(|r| r.width == channel.local_max), || {
                format!("{name} disagrees about the width of region {}", channel.region)
            })?;
        }
    }
    Ok(())
}

fn connections(topology: &Topology) -> Result<(), String> {
    let ends = |c: &super::Connection| (c.source, c.source_port, c.target, c.target_port);
    let ascending = topology.connections.is_sorted_by(|a, b| ends(a) < ends(b));
    ensure(ascending, || "connections are not sorted, or two ports are connected twice".to_owned())?;
    let name = |node: Node| topology.operators[node].name.as_str();
    for run in topology.connections.chunk_by(|a, b| (a.source, a.source_port) == (b.source, b.source_port)) {
        let Some(first) = run.first() else { continue };
        let known = |node: Node| node.index() < topology.operators.len();
        ensure(run.iter().all(|c| known(c.source) && known(c.target)), || "a connection dangles".to_owned())?;
        let port = topology.operators[first.source].outputs.get(first.source_port as usize);
        let port = port.ok_or_else(|| format!("{} has no output port {}", name(first.source), first.source_port))?;
        let widths = splitters(port).map_err(|message| format!("{}: {message}", name(first.source)))?;
        for connection in run {
            let target = &topology.operators[connection.target];
            ensure((connection.target_port as usize) < target.inputs.len(), || {
                format!("{} has no input port {}", target.name, connection.target_port)
            })?;
            if let Some(Via { splitter, channel }) = connection.via() {
                ensure(widths.get(&splitter).is_some_and(|width| channel < *width), || {
                    format!("{} has no channel {channel} of splitter {splitter}", name(connection.source))
                })?;
            }
        }
    }
    Ok(())
}

/// The splitters of a port by index, with their widths.
fn splitters(port: &PhysicalOutputPort) -> Result<BTreeMap<u32, u32>, String> {
    let mut widths = BTreeMap::new();
    let mut open: Vec<&Splitter> = port.splitters.iter().collect();
    while let Some(splitter) = open.pop() {
        ensure(widths.insert(splitter.index, splitter.width).is_none(), || {
            format!("splitter {} exists twice on a port", splitter.index)
        })?;
        for (channel, nested) in &splitter.nested {
            ensure(*channel < splitter.width, || format!("splitter {} hangs under no channel", nested.index))?;
            open.push(nested);
        }
    }
    Ok(widths)
}

fn tables(topology: &Topology) -> Result<(), String> {
    ensure(topology.host_pools.is_sorted_by(|a, b| a.index < b.index), || "host pools do not ascend".to_owned())?;
    ensure(topology.regions.is_sorted_by(|a, b| a.index < b.index), || "regions do not ascend".to_owned())?;
    ensure(topology.consistent_regions.is_sorted_by(|a, b| a.index < b.index), || {
        "consistent regions do not ascend".to_owned()
    })?;
    for region in &topology.consistent_regions {
        for (node, _, _) in &region.members {
            let member = topology.operators.get(*node).and_then(|o| o.consistent_region);
            ensure(member == Some(region.index), || {
                format!("consistent region {} has a foreign member", region.index)
            })?;
        }
    }
    Ok(())
}
