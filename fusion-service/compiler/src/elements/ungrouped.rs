//! The tables of [`Elements`] before it is known which operators share a PE.
//!
//! They depend on the topology alone, so a resize makes them while fusion groups the operators.
//!
//! Knows: the topology, the tables, two generations. Must not know: PEs.

use super::Elements;
use super::rows::Rows;
use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::{Partition, Pe, PeId};
use crate::topology::{Generations, Topology};
use cranelift_entity::PrimaryMap;
use std::sync::Arc;

/// [`Elements`] whose operators are in no PE yet.
pub(crate) struct UngroupedElements(Elements);

impl UngroupedElements {
    /// Makes the tables of a topology, without port ids and threads.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn new(topology: Arc<Topology>, budget: &Budget) -> Result<Self, Error> {
        Self::make(topology, None, budget)
    }

    /// Makes the tables of the next generation. `generations` compares the topology of `before` with the new one. Port
    /// ids and threads of unchanged operators are copied; [`Elements::number`] makes those of changed PEs anew.
    pub(crate) fn after(
        before: &Elements,
        generations: &Generations<'_>,
        topology: Arc<Topology>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        Self::make(topology, Some((before, generations)), budget)
    }

    fn make(
        topology: Arc<Topology>,
        before: Option<(&Elements, &Generations<'_>)>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let mut rows = Rows::with_capacity(topology.operators.len());
        let mut pace = budget.pace();
        for (node, operator) in &topology.operators {
            let slots = rows.slots.len();
            match before.and_then(|(before, generations)| Some((before, generations.same(node)?))) {
                Some((before, earlier)) => rows.copy(before, earlier)?,
                None => rows.add(operator, &topology.application)?,
            }
            pace.steps(u32::try_from((rows.slots.len() - slots) / 16 + 1).unwrap_or(u32::MAX))?;
        }
        let Rows { flags, mut first_input, inputs, mut first_output, outputs, splitters, slots } = rows;
        first_input.push(inputs.len() as u32);
        first_output.push(outputs.len() as u32);

        let mut elements = Elements {
            partition: Partition::group(0, 0, |_| 0),
            ids: PrimaryMap::new(),
            by_id: Vec::new(),
            flags,
            first_input,
            inputs,
            incoming_start: Vec::new(),
            incoming: Vec::new(),
            first_output,
            outputs,
            splitters,
            slots,
            outgoing_start: Vec::new(),
            outgoing: Vec::new(),
            topology,
        };
        index_connections(&mut elements, budget)?;
        Ok(Self(elements))
    }

    /// Puts the operators into the PEs of a partition of theirs. All ids must differ.
    pub(crate) fn group(self, partition: Partition, ids: PrimaryMap<Pe, PeId>) -> Elements {
        let mut by_id: Vec<Pe> = partition.pes().collect();
        by_id.sort_unstable_by_key(|&pe| ids[pe]);
        Elements { partition, ids, by_id, ..self.0 }
    }
}

/// Counting sort of the connections by input port and by slot; both keep their order.
fn index_connections(elements: &mut Elements, budget: &Budget) -> Result<(), Error> {
    let mut pace = budget.pace();
    let connections = &elements.topology.connections;
    let mut into = vec![0_u32; elements.inputs.len() + 1];
    let mut out_of = vec![0_u32; elements.slots.len() + 1];
    for connection in connections {
        pace.step()?;
        into[elements.input(connection.target, connection.target_port) + 1] += 1;
        out_of[elements.slot_of(connection).0 as usize + 1] += 1;
    }
    for starts in [&mut into, &mut out_of] {
        let mut sum = 0;
        for start in starts.iter_mut() {
            sum += *start;
            *start = sum;
        }
    }
    let (mut next_into, mut next_out_of) = (into.clone(), out_of.clone());
    let mut incoming = vec![0_u32; connections.len()];
    let mut outgoing = vec![0_u32; connections.len()];
    for (number, connection) in (0_u32..).zip(connections) {
        pace.step()?;
        let next = &mut next_into[elements.input(connection.target, connection.target_port)];
        incoming[*next as usize] = number;
        *next += 1;
        let next = &mut next_out_of[elements.slot_of(connection).0 as usize];
        outgoing[*next as usize] = number;
        *next += 1;
    }
    (elements.incoming_start, elements.incoming) = (into, incoming);
    (elements.outgoing_start, elements.outgoing) = (out_of, outgoing);
    Ok(())
}
