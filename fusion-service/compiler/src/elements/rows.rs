//! Fills the tables of [`Elements`] operator by operator. The rows of an operator are made from the topology or copied
//! from another generation.

use super::{Elements, Input, NONE, OperatorFlags, Output, SplitterSlots};
use crate::error::{Problem, Stage};
use crate::logical::Application;
use crate::topology::{Node, PhysicalOperator, Splitter};
use cranelift_entity::PrimaryMap;

/// The tables of [`Elements`] while they are filled.
pub(super) struct Rows {
    pub(super) flags: PrimaryMap<Node, OperatorFlags>,
    pub(super) first_input: Vec<u32>,
    pub(super) inputs: Vec<Input>,
    pub(super) first_output: Vec<u32>,
    pub(super) outputs: Vec<Output>,
    pub(super) splitters: Vec<SplitterSlots>,
    pub(super) slots: Vec<u32>,
}

impl Rows {
    /// Empty tables with room for this many operators. Most operators have one port of each kind.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            flags: PrimaryMap::with_capacity(count),
            first_input: Vec::with_capacity(count + 1),
            inputs: Vec::with_capacity(count),
            first_output: Vec::with_capacity(count + 1),
            outputs: Vec::with_capacity(count),
            splitters: Vec::new(),
            slots: Vec::with_capacity(count),
        }
    }

    /// Adds the rows of an operator without port ids and threads.
    ///
    /// # Errors
    ///
    /// There are more slots than positions have bits for. The expansion refuses that long before.
    pub(super) fn add(&mut self, operator: &PhysicalOperator, application: &Application) -> Result<(), Problem> {
        self.flags.push(OperatorFlags::default());
        self.first_input.push(self.inputs.len() as u32);
        self.first_output.push(self.outputs.len() as u32);
        // An operator has the ports that the ADL says. Should it not, the position of a port stands for its index.
        let written = operator.primitive(application);
        self.inputs.extend((0_u32..).zip(&operator.inputs).map(|(port, _)| {
            let index = written.and_then(|w| w.inputs.get(port as usize)).map_or(u64::from(port), |w| w.port.index);
            Input { index, pe_port: NONE, threaded: None }
        }));
        for (port, output) in (0_u32..).zip(&operator.outputs) {
            let first_splitter = self.splitters.len();
            for splitter in &output.splitters {
                collect_splitters(splitter, &mut self.splitters);
            }
            let own = self.splitters.get_mut(first_splitter..).unwrap_or_default();
            own.sort_unstable_by_key(|s: &SplitterSlots| s.index);
            let first_slot = position(self.slots.len())?;
            let mut next = first_slot.checked_add(1).ok_or_else(too_many_slots)?;
            for splitter in own.iter_mut() {
                splitter.first_slot = next;
                next = next.checked_add(splitter.width).ok_or_else(too_many_slots)?;
            }
            let splitters = own.len() as u32;
            self.slots.resize(next as usize, NONE);
            let index = written.and_then(|w| w.outputs.get(port as usize)).map_or(u64::from(port), |w| w.port.index);
            self.outputs.push(Output { index, first_slot, first_splitter: first_splitter as u32, splitters });
        }
        Ok(())
    }

    /// Adds the rows that the same operator had in another generation.
    ///
    /// # Errors
    ///
    /// As for [`Rows::add`].
    pub(super) fn copy(&mut self, from: &Elements, operator: Node) -> Result<(), Problem> {
        self.flags.push(from.flags[operator]);
        self.first_input.push(self.inputs.len() as u32);
        self.inputs.extend_from_slice(&from.inputs[from.input_range(operator)]);
        self.first_output.push(self.outputs.len() as u32);
        let slots = from.slot_range(operator);
        let (was, is) = (position(slots.start)?, position(self.slots.len())?);
        position(self.slots.len() + slots.len())?;
        for output in &from.outputs[from.output_range(operator)] {
            let first_splitter = self.splitters.len() as u32;
            let moved =
                |splitter: &SplitterSlots| SplitterSlots { first_slot: splitter.first_slot - was + is, ..*splitter };
            self.splitters.extend(from.splitters_of(output).iter().map(moved));
            self.outputs.push(Output { first_slot: output.first_slot - was + is, first_splitter, ..*output });
        }
        self.slots.extend_from_slice(&from.slots[slots]);
        Ok(())
    }
}

/// A position among the slots.
fn position(slot: usize) -> Result<u32, Problem> {
    u32::try_from(slot).map_err(|_| too_many_slots())
}

fn too_many_slots() -> Problem {
    Problem::new(Stage::Topology, "the output ports and splitters of the application have too many channels")
}

/// A splitter and those under its channels. The nesting is that of parallel regions, which the depth of the ADL bounds.
fn collect_splitters(splitter: &Splitter, into: &mut Vec<SplitterSlots>) {
    into.push(SplitterSlots { index: splitter.index, first_slot: 0, width: splitter.width });
    for (_, nested) in &splitter.nested {
        collect_splitters(nested, into);
    }
}
