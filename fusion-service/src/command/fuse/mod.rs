//! `fusion-service fuse`: fuses graphs that are given directly, without an application (rule service-25).
//!
//! The command reads one case per line and answers each with one line, in order: the PEs with their ports and threads,
//! or an error. At a line that is no case it ends, after it has answered everything before.
//!
//! Knows: lines, the form of a case. Must not know: applications, topologies.

mod answer;
mod case;

pub use answer::{Answer, FusedOutput, OperatorFlags, PeAnswer, PeOutput, Refusal};

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use streams_compiler::budget::Budget;
use streams_compiler::error::{Error, excerpt};
use streams_compiler::fuser;

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
pub struct MalformedCase {
    /// Column, where it is known.
    column: Option<usize>,
    message: String,
}

impl fmt::Display for MalformedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = self.column {
            write!(f, "{column}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// Answers one case.
pub fn answer(line: &[u8], budget: &Budget) -> Result<Answer, MalformedCase> {
    let case = case::Case::parse(line)?;
    if let Some(problem) = case.over_limit(&budget.limits) {
        return Ok(Answer::refused(&problem));
    }
    let graph = case.graph()?;
    let partition = case.fusion().map_err(Error::from).and_then(|fusion| fuser::fuse(&graph, &fusion, budget));
    Ok(match partition.and_then(|partition| Answer::fused(&graph, &partition, budget)) {
        Ok(answer) => answer,
        Err(Error::Rejected(problems)) if !problems.is_empty() => Answer::refused(&problems[0]),
        Err(error) => Answer::Refused { error: Refusal { code: None, stage: None, message: error.to_string() } },
    })
}
