//! `fusion-service fuse`: fusion of graphs that are given directly, without an application (plan command, `fuse`).
//!
//! Reads one case per line and answers each with one line, in order: the PEs with their ports and threads, or an error. A line
//! that is no case ends the command, after everything before it has been answered.

mod case;

use crate::budget::Budget;
use crate::error::{Error, Problem, Stage, excerpt};
use crate::fuser::{self, Graph, Partition, Pe};
use cranelift_entity::EntityRef;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of one line.
const LINE: u64 = 64 << 20;

/// Fuses graphs that are given directly: one JSON case per line in, one JSON answer per line out.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  fusion-service fuse --cases fuser.jsonl > answers.jsonl")]
pub struct Arguments {
    /// File with one case per line: {"mode": "legacy" or "manual:N", "topology": {"nodes": [...], "pools": [...]}}.
    #[arg(long, value_name = "FILE")]
    pub cases: PathBuf,
}

/// Answers every line of the file on standard output. Exit status 0, or 2 with one line on standard error.
pub fn run(arguments: &Arguments) -> ExitCode {
    let output = BufWriter::new(io::stdout().lock());
    match answer_file(&arguments.cases, output, &Budget::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}

fn answer_file(path: &Path, mut output: impl Write, budget: &Budget) -> Result<(), String> {
    let name = excerpt(&path.to_string_lossy());
    let unreadable = |e: io::Error| format!("{name}: {e}");
    let mut input = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if input.by_ref().take(LINE + 1).read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
            break;
        }
        if line.len() as u64 > LINE {
            return Err(format!("{name}:{number}: longer than {LINE} bytes"));
        }
        let answer = answer(&line, budget).map_err(|malformed| format!("{name}:{number}:{malformed}"))?;
        serde_json::to_writer(&mut output, &answer)
            .map_err(io::Error::from)
            .map_err(|e| format!("standard output: {e}"))?;
        output.write_all(b"\n").map_err(|e| format!("standard output: {e}"))?;
    }
    output.flush().map_err(|e| format!("standard output: {e}"))
}

/// Why a line is no case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Column, where it is known.
    column: Option<usize>,
    message: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = self.column {
            write!(f, "{column}:")?;
        }
        write!(f, " {}", self.message)
    }
}

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

/// A PE of an answer; operators are named by their index (fuser, appendix A).
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
    /// Output ports by fused index: operator, port, splitter, channel, single-threaded.
    pub fused_out: Vec<(u32, u32, Option<u32>, Option<u32>, bool)>,
    /// Operator, single-threaded on inputs, on outputs; per input port: single-threaded, injected.
    pub op_flags: Vec<(u32, bool, bool, Vec<Option<(bool, bool)>>)>,
    /// Input ports by id: id, operator, port.
    pub pe_in: Vec<(usize, u32, u32)>,
    /// Output ports by id: id, operator, port, splitter, channel.
    pub pe_out: Vec<(usize, u32, u32, Option<u32>, Option<u32>)>,
}

/// Answers one case.
pub fn answer(line: &[u8], budget: &Budget) -> Result<Answer, Malformed> {
    let case = case::Case::parse(line)?;
    let refused = |problem: &Problem| Answer::Refused {
        error: Refusal { code: problem.code, stage: Some(problem.stage), message: problem.message.clone() },
    };
    if let Some(problem) = case.over_limit(&budget.limits) {
        return Ok(refused(&problem));
    }
    let graph = case.graph()?;
    let partition = case.fusion().map_err(Error::from).and_then(|fusion| fuser::fuse(&graph, &fusion, budget));
    Ok(match partition {
        Ok(partition) => Answer::Fused { pes: partition.pes().map(|pe| describe(&graph, &partition, pe)).collect() },
        Err(Error::Rejected(problems)) if !problems.is_empty() => refused(&problems[0]),
        Err(error) => Answer::Refused { error: Refusal { code: None, stage: None, message: error.to_string() } },
    })
}

fn describe(graph: &Graph, partition: &Partition, pe: Pe) -> PeAnswer {
    let ports = fuser::ports(graph, partition, pe);
    let threads = fuser::threads(graph, partition, pe);
    let index = |node| graph.operators()[node].index;
    let splitter = |output: &fuser::PeOutput| output.via.map(|via| via.splitter);
    let channel = |output: &fuser::PeOutput| output.via.map(|via| via.channel);
    PeAnswer {
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
    }
}
