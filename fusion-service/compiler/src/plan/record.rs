//! Makes the layout of a compiled job.
//!
//! The layout is made when a caller asks for it. A replica that has the job itself starts from the job and needs no
//! layout.

use super::Compiled;
use super::layout::{Layout, LayoutElement, LayoutInputPort, LayoutOutputPort, SplitterTree};
use crate::budget::Budget;
use crate::elements::Elements;
use crate::error::Error;
use crate::fuser::Pe;
use crate::topology::{Node, Numbering, Splitter, Topology};
use std::collections::BTreeSet;
use std::convert::Infallible;

impl Compiled {
    /// The layout that belongs to the plan.
    pub fn layout(&self) -> Layout {
        let Ok(layout) = self.make_layout(&mut |_| Ok::<(), Infallible>(()));
        layout
    }

    /// The layout that belongs to the plan, for somebody who may not wait for it any more.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub fn layout_within(&self, budget: &Budget) -> Result<Layout, Error> {
        let mut pace = budget.pace();
        self.make_layout(&mut |steps| pace.steps(u32::try_from(steps).unwrap_or(u32::MAX)))
    }

    /// Makes the layout, and says how many steps that takes.
    fn make_layout<E>(&self, steps: &mut impl FnMut(usize) -> Result<(), E>) -> Result<Layout, E> {
        let elements = &self.elements;
        let topology = elements.topology();
        let numbering = Numbering::of(topology);
        steps(topology.operators.len() + topology.connections.len())?;
        let splitter_trees = splitter_trees(topology, steps)?;
        let mut list = Vec::with_capacity(self.plan.elements.len());
        for (&pe, planned) in elements.pes().iter().zip(&self.plan.elements) {
            let (inputs, outputs) = (inputs(elements, pe), outputs(elements, pe));
            steps(1 + planned.operator_indexes.len() + inputs.len() + outputs.len())?;
            list.push(LayoutElement {
                id: planned.id,
                content_id: planned.content_id,
                runtime_id: planned.runtime_id,
                bytes: planned.bytes,
                operators: planned.operator_indexes.clone(),
                inputs,
                outputs,
            });
        }
        Ok(Layout {
            adl: self.plan.adl,
            request: self.request.digest(),
            compiler: self.plan.compiler.clone(),
            automatic_count: self.automatic_count,
            widths: topology.regions.iter().map(|region| (region.index, region.width)).collect(),
            numbering,
            splitter_trees,
            elements: list,
        })
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
fn splitter_trees<E>(
    topology: &Topology,
    steps: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<SplitterTree>, E> {
    let mut trees = Vec::new();
    for (node, operator) in &topology.operators {
        steps(1)?;
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
                    let mut followed = several.len();
                    let carrying: BTreeSet<u32> = own.inspect(|_| followed += 1).map(|via| via.splitter).collect();
                    steps(followed)?;
                    several.iter().all(|index| carrying.contains(index))
                }
            };
            if !all_carry {
                trees.push(SplitterTree { operator: operator.index, port, indexes });
            }
        }
    }
    Ok(trees)
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
