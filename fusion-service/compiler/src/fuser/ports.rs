//! Which ports a PE has (rule element-5).
//!
//! Connections within a PE need none. Ports are in ascending order of operator, port and channel. Their positions are
//! the ids of a job that is submitted, and the order in which new ports get ids on a resize.

use super::graph::Graph;
use super::partition::{Partition, Pe};
use crate::topology::{Node, Via};

/// The ports of a PE, both in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PePorts {
    /// Input ports.
    pub inputs: Vec<PeInput>,
    /// Output ports.
    pub outputs: Vec<PeOutput>,
}

/// An input port of a PE: an operator's input port that is fed from another PE or by an Import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeInput {
    /// Operator.
    pub operator: Node,
    /// Position of its input port.
    pub port: u32,
}

/// An output port of a PE: what leaves an operator's output port directly, or through one channel of a splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeOutput {
    /// Operator.
    pub operator: Node,
    /// Position of its output port.
    pub port: u32,
    /// Channel of a splitter; `None` for direct connections to other PEs, and for exports.
    pub via: Option<Via>,
}

/// The ports of one PE. Linear in the connections of its operators, but for sorting.
pub fn ports(graph: &Graph, partition: &Partition, pe: Pe) -> PePorts {
    let mut ports = PePorts::default();
    for &operator in partition.operators(pe) {
        let traits = graph.traits(operator);
        let imported = traits.inputs.iter().zip(0..).filter(|(input, _)| input.imported).map(|(_, port)| port);
        let fed = graph.incoming(operator).filter(|c| partition.pe(c.source) != pe).map(|c| c.target_port);
        extend_sorted(&mut ports.inputs, imported.chain(fed).map(|port| PeInput { operator, port }));
        let exported =
            traits.outputs.iter().zip(0..).filter(|(output, _)| output.exported).map(|(_, port)| (port, None));
        let left =
            graph.outgoing(operator).iter().filter(|c| partition.pe(c.target) != pe).map(|c| (c.source_port, c.via()));
        extend_sorted(&mut ports.outputs, exported.chain(left).map(|(port, via)| PeOutput { operator, port, via }));
    }
    ports
}

/// Appends items in order and once each; they are all greater than what is in the list.
fn extend_sorted<T: Ord + Copy>(list: &mut Vec<T>, items: impl Iterator<Item = T>) {
    let start = list.len();
    list.extend(items);
    list[start..].sort_unstable();
    let mut end = start;
    for next in start..list.len() {
        if end == start || list[end - 1] != list[next] {
            list[end] = list[next];
            end += 1;
        }
    }
    list.truncate(end);
}
