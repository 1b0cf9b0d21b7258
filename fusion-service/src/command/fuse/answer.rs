//! The JSON form of an answer: what the fuser makes of a case (rule service-25).

use cranelift_entity::EntityRef;
use serde::Serialize;
use streams_compiler::budget::{Budget, Pace};
use streams_compiler::error::{Error, Problem, Stage};
use streams_compiler::fuser::{self, Graph, Partition, Pe};

/// The answer to one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// The partition, with what follows from it.
    Fused {
        /// PEs, in order.
        pes: Vec<PeAnswer>,
    },
    /// The case is refused.
    Refused {
        /// Why.
        error: Refusal,
    },
}

/// Why a case is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Code of the product, where the condition has one.
    pub code: Option<&'static str>,
    /// Stage that refused it.
    pub stage: Option<Stage>,
    /// What is wrong.
    pub message: String,
}

/// A PE of an answer; operators are named by their index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeAnswer {
    /// Id.
    pub id: usize,
    /// Position among the PEs.
    pub index: usize,
    /// Operators.
    pub ops: Vec<u32>,
    /// Input ports by fused index: operator, port.
    pub fused_in: Vec<(u32, u32)>,
    /// Output ports by fused index.
    pub fused_out: Vec<FusedOutput>,
    /// What threads do in the operators.
    pub op_flags: Vec<OperatorFlags>,
    /// Input ports by id: id, operator, port.
    pub pe_in: Vec<(usize, u32, u32)>,
    /// Output ports by id.
    pub pe_out: Vec<PeOutput>,
}

/// Operator, port, splitter, channel, single-threaded.
pub type FusedOutput = (u32, u32, Option<u32>, Option<u32>, bool);

/// Operator, single-threaded on inputs, on outputs; per input port: single-threaded, injected.
pub type OperatorFlags = (u32, bool, bool, Vec<Option<(bool, bool)>>);

/// Id, operator, port, splitter, channel.
pub type PeOutput = (usize, u32, u32, Option<u32>, Option<u32>);

impl Answer {
    /// The answer to a case that is fused.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn fused(graph: &Graph, partition: &Partition, budget: &Budget) -> Result<Self, Error> {
        let mut pace = budget.pace();
        let pes = partition.pes().map(|pe| describe(graph, partition, pe, &mut pace));
        Ok(Self::Fused { pes: pes.collect::<Result<_, Error>>()? })
    }

    /// The answer to a case with a problem.
    pub(super) fn refused(problem: &Problem) -> Self {
        let Problem { code, stage, message, .. } = problem;
        Self::Refused { error: Refusal { code: *code, stage: Some(*stage), message: message.clone() } }
    }
}

fn describe(graph: &Graph, partition: &Partition, pe: Pe, pace: &mut Pace<'_>) -> Result<PeAnswer, Error> {
    let ports = fuser::ports(graph, partition, pe, pace)?;
    let threads = fuser::threads(graph, partition, pe, pace)?;
    let index = |node| graph.operators()[node].index;
    let splitter = |output: &fuser::PeOutput| output.via.map(|via| via.splitter);
    let channel = |output: &fuser::PeOutput| output.via.map(|via| via.channel);
    Ok(PeAnswer {
        id: pe.index(),
        index: pe.index(),
        ops: partition.operators(pe).iter().map(|&node| index(node)).collect(),
        fused_in: ports.inputs.iter().map(|input| (index(input.operator), input.port)).collect(),
        fused_out: (ports.outputs.iter())
            .map(|output| {
                let single = threads[partition.position(output.operator)].single_threaded_to_others;
                (index(output.operator), output.port, splitter(output), channel(output), single)
            })
            .collect(),
        op_flags: (partition.operators(pe).iter().zip(&threads))
            .map(|(&node, flags)| {
                let ports = flags.threaded_ports.iter();
                let ports = ports.map(|port| port.map(|port| (port.single_threaded_on_input, port.injected)));
                (index(node), flags.single_threaded_on_inputs, flags.single_threaded_on_outputs, ports.collect())
            })
            .collect(),
        pe_in: ports.inputs.iter().enumerate().map(|(id, input)| (id, index(input.operator), input.port)).collect(),
        pe_out: (ports.outputs.iter().enumerate())
            .map(|(id, output)| (id, index(output.operator), output.port, splitter(output), channel(output)))
            .collect(),
    })
}
