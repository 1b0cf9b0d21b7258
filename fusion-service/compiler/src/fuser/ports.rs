//! Which ports a PE has (rule element-5).
//!
//! Connections within a PE need no PE port. Ports ascend by operator, port and channel. At a submission, the position
//! of a port is its id. At a resize, new ports get their ids in this order.

use super::graph::Graph;
use super::partition::{Partition, Pe};
use crate::budget::Pace;
use crate::error::Error;
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

/// An output port of a PE: it sends what an operator's output port sends directly, or through one channel of a
/// splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeOutput {
    /// Operator.
    pub operator: Node,
    /// Position of its output port.
    pub port: u32,
    /// Channel of a splitter; `None` for direct connections to other PEs, and for exports.
    pub via: Option<Via>,
}

/// Computes the ports of one PE. Apart from sorting, takes time linear in the connections of its operators.
///
/// # Errors
///
/// The budget ends.
pub fn ports(graph: &Graph, partition: &Partition, pe: Pe, pace: &mut Pace<'_>) -> Result<PePorts, Error> {
    let mut ports = PePorts::default();
    for &operator in partition.operators(pe) {
        pace.steps(graph.degree(operator).saturating_add(1))?;
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
    Ok(ports)
}

/// Appends items in order, each once. All of them must be greater than the items in the list.
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
