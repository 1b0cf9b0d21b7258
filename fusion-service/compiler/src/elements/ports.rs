//! Ids of PE ports.
//!
//! A PE port keeps its id as long as its operator, the operator's port and the channel stay in the PE. It is recognised
//! by operator index, port, splitter and channel, which are stable themselves (rule element-7). New ports get the
//! smallest free ids, in order, because a PE listens on 10000 plus the id (rule element-8). At a submission, the id is
//! the position of the port (rule element-6).

use super::{Elements, NONE};
use crate::budget::Pace;
use crate::error::{Error, Problem, Stage};
use crate::fuser::{self, Graph, Pe, PeId, PeInput, PeOutput, PePorts};
use crate::topology::{Generations, Node};
use std::collections::{BTreeMap, BTreeSet};

/// Ids of ports of one PE that no new port may get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortsInUse {
    /// Of input ports.
    pub inputs: BTreeSet<u32>,
    /// Of output ports.
    pub outputs: BTreeSet<u32>,
}

/// Ids that are in use although the layout does not have them: objects of an earlier or of an unfinished generation
/// have them (rule layout-9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Ids of PEs.
    pub elements: BTreeSet<u64>,
    /// Ids of ports, by PE.
    pub ports: BTreeMap<u64, PortsInUse>,
}

/// Looks up the ids that ports had before. Several threads may do so at once.
pub(crate) trait PriorPorts: Sync {
    /// The id of an input port of the PE with this id.
    fn input(&self, pe: PeId, port: PeInput) -> Option<u32>;

    /// The id of an output port of the PE with this id.
    fn output(&self, pe: PeId, port: PeOutput) -> Option<u32>;
}

/// The ports of a generation before.
pub(crate) struct KeptPorts<'a> {
    pub(crate) before: &'a Elements,
    pub(crate) generations: &'a Generations<'a>,
}

impl KeptPorts<'_> {
    /// The operator in the generation before, if it was in the PE with this id.
    fn earlier(&self, pe: PeId, operator: Node) -> Option<Node> {
        self.generations.earlier(operator).filter(|&earlier| self.before.id(self.before.pe(earlier)) == pe)
    }
}

impl PriorPorts for KeptPorts<'_> {
    fn input(&self, pe: PeId, port: PeInput) -> Option<u32> {
        let id = self.before.input_id(self.earlier(pe, port.operator)?, port.port);
        (id != NONE).then_some(id)
    }

    fn output(&self, pe: PeId, port: PeOutput) -> Option<u32> {
        let slot = self.before.existing_slot(self.earlier(pe, port.operator)?, port.port, port.via)?;
        self.before.slots.get(slot.0 as usize).copied().filter(|id| *id != NONE)
    }
}

/// The largest id. TCP ports end at 65535, but the compiler leaves it to the runtime to report that.
const MOST: u32 = u32::MAX - 1;

/// The ports of a PE with their ids.
pub(super) struct PortIds {
    ports: PePorts,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
}

impl PortIds {
    /// Finds the id of every port of a PE: that of `prior` where it has one, else a free one.
    pub(super) fn of(
        elements: &Elements,
        pe: Pe,
        graph: &Graph<'_>,
        prior: Option<&dyn PriorPorts>,
        in_use: &InUse,
        pace: &mut Pace<'_>,
    ) -> Result<Self, Error> {
        let nobody = PortsInUse::default();
        let id = elements.id(pe);
        let ports = fuser::ports(graph, elements.partition(), pe, pace)?;
        pace.steps(u32::try_from(ports.inputs.len() + ports.outputs.len()).unwrap_or(u32::MAX))?;
        let taken = in_use.ports.get(&id).unwrap_or(&nobody);
        let kept = |port: &PeInput| prior.and_then(|prior| prior.input(id, *port));
        let kept: Vec<Option<u32>> = ports.inputs.iter().map(kept).collect();
        let inputs = fill(&kept, &taken.inputs)?;
        let kept = |port: &PeOutput| prior.and_then(|prior| prior.output(id, *port));
        let kept: Vec<Option<u32>> = ports.outputs.iter().map(kept).collect();
        let outputs = fill(&kept, &taken.outputs)?;
        Ok(Self { ports, inputs, outputs })
    }

    pub(super) fn len(&self) -> usize {
        self.inputs.len() + self.outputs.len()
    }

    /// Gives the ports these ids.
    pub(super) fn set(self, elements: &mut Elements) {
        for (port, id) in self.ports.inputs.iter().zip(self.inputs) {
            elements.set_input_id(*port, id);
        }
        for (port, id) in self.ports.outputs.iter().zip(self.outputs) {
            elements.set_output_id(*port, id);
        }
    }
}

/// Completes the ids with the smallest free ones, in order.
fn fill(kept: &[Option<u32>], taken: &BTreeSet<u32>) -> Result<Vec<u32>, Problem> {
    if taken.is_empty() && kept.iter().all(Option::is_none) {
        return Ok((0..).take(kept.len()).collect());
    }
    let mut used: Vec<u32> = kept.iter().flatten().chain(taken).copied().collect();
    used.sort_unstable();
    let mut used = used.into_iter().peekable();
    let mut next = 0_u32;
    let free = |next: &mut u32, used: &mut std::iter::Peekable<std::vec::IntoIter<u32>>| {
        while let Some(id) = used.next_if(|id| *id <= *next) {
            if id == *next {
                *next += 1;
            }
        }
        let id = *next;
        *next += 1;
        id
    };
    kept.iter()
        .map(|id| {
            let id = id.unwrap_or_else(|| free(&mut next, &mut used));
            if id > MOST {
                return Err(Problem::new(Stage::Aadl, "a PE has no port id left"));
            }
            Ok(id)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ports_fill_the_gaps() {
        for (kept, taken, ids) in [
            (vec![None, None, None], vec![], vec![0, 1, 2]),
            (vec![None, Some(0), None], vec![], vec![1, 0, 2]),
            (vec![Some(3), None, None, None], vec![1], vec![3, 0, 2, 4]),
            (vec![None, None], vec![0, 1, 2], vec![3, 4]),
            (vec![Some(5), Some(2)], vec![2, 5], vec![5, 2]),
        ] {
            assert_eq!(fill(&kept, &taken.into_iter().collect()).unwrap(), ids);
        }
    }
}
