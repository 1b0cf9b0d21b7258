//! Makes the layout of a compiled job.
//!
//! The layout is made when a caller asks for it. A replica that has the job itself starts from the job and needs no
//! layout.

use super::Compiled;
use super::layout::{Layout, LayoutElement, LayoutInputPort, LayoutOutputPort, SplitterTree};
use crate::elements::Elements;
use crate::fuser::Pe;
use crate::topology::{Node, Numbering, Splitter, Topology};
use std::collections::BTreeSet;

impl Compiled {
    /// The layout that belongs to the plan.
    pub fn layout(&self) -> Layout {
        let elements = &self.elements;
        let topology = elements.topology();
        let list = elements.pes().iter().zip(&self.plan.elements).map(|(&pe, planned)| LayoutElement {
            id: planned.id,
            content_id: planned.content_id,
            runtime_id: planned.runtime_id,
            bytes: planned.bytes,
            operators: planned.operator_indexes.clone(),
            inputs: inputs(elements, pe),
            outputs: outputs(elements, pe),
        });
        Layout {
            adl: self.plan.adl,
            request: self.request.digest(),
            compiler: self.plan.compiler.clone(),
            automatic_count: self.automatic_count,
            widths: topology.regions.iter().map(|region| (region.index, region.width)).collect(),
            numbering: Numbering::of(topology),
            splitter_trees: splitter_trees(topology),
            elements: list.collect(),
        }
    }
}

fn index(elements: &Elements, node: Node) -> u32 {
    elements.topology().operators[node].index
}

/// Input ports of a PE.
pub(super) fn inputs(elements: &Elements, pe: Pe) -> Vec<LayoutInputPort> {
    let port = |(id, port): (u32, crate::fuser::PeInput)| LayoutInputPort {
        operator: index(elements, port.operator),
        port: port.port,
        id,
    };
    elements.input_ports(pe).map(port).collect()
}

/// Output ports of a PE.
pub(super) fn outputs(elements: &Elements, pe: Pe) -> Vec<LayoutOutputPort> {
    let port = |(id, port): (u32, crate::fuser::PeOutput)| LayoutOutputPort {
        operator: index(elements, port.operator),
        port: port.port,
        via: port.via,
        id,
    };
    elements.output_ports(pe).map(port).collect()
}

/// Trees with a splitter that carries no connection itself. [`Numbering`] does not have such splitters.
fn splitter_trees(topology: &Topology) -> Vec<SplitterTree> {
    let mut trees = Vec::new();
    for (node, operator) in &topology.operators {
        for (port, output) in (0_u32..).zip(&operator.outputs) {
            if output.splitters.is_empty() {
                continue;
            }
            let indexes = pre_order(&output.splitters);
            let start = topology.connections.partition_point(|c| (c.source, c.source_port) < (node, port));
            let own = topology.connections[start..].iter();
            let mut own = own.take_while(|c| (c.source, c.source_port) == (node, port)).filter_map(|c| c.via());
            let all_carry = match indexes.as_slice() {
                [only] => own.any(|via| via.splitter == *only),
                several => {
                    let carrying: BTreeSet<u32> = own.map(|via| via.splitter).collect();
                    several.iter().all(|index| carrying.contains(index))
                }
            };
            if !all_carry {
                trees.push(SplitterTree { operator: operator.index, port, indexes });
            }
        }
    }
    trees
}

/// Numbers of the splitters of a port, each before those under its channels.
pub(super) fn pre_order(splitters: &[Splitter]) -> Vec<u32> {
    let mut indexes = Vec::new();
    // Depth is bounded by the nesting of regions in the ADL.
    let mut open: Vec<&Splitter> = splitters.iter().rev().collect();
    while let Some(splitter) = open.pop() {
        indexes.push(splitter.index);
        open.extend(splitter.nested.iter().rev().map(|(_, nested)| nested));
    }
    indexes
}
