//! `fusion-service plan`: a submission and a chain of resizes, or one resize alone, as files (rule service-21).
//!
//! `folder` writes the files of a step; `context` and `failure` are the forms of its JSON files.
//!
//! Knows: requests, folders. Must not know: how a plan is made.

mod context;
mod failure;
mod folder;

use super::options::{ClosedArguments, PolicyName, fusion_type};
use super::request::{self, RequestFile};
use super::{CommandFailure, document, exit};
use crate::options::LimitArguments;
use folder::Folder;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_compiler::fuser::FusionType;
use streams_compiler::plan::{self, Compiled, Request, Source};

/// Compiles an application: a submission, then the resizes of the request one after the other.
///
/// Writes a folder per step: one AADL document per processing element and context.json, or error.json. Exit status 0:
/// every step gave a plan; 3: some step ended in error.json; 2: arguments, files, or the form of the JSON inputs.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  fusion-service plan --adl app.adl --request request.json --out plans
  fusion-service plan --adl app.sab --request request.json --out plans --policy rebalance
  fusion-service plan --adl app.adl --request request.json --replay input.json --out plan

A request:
  {\"jobName\": \"demo\", \"jobId\": 1, \"fusion\": {\"manual\": 4}, \"parallelRegions\": {\"Work\": 3},
   \"resizes\": [{\"region\": \"Work\", \"width\": 10}]}")]
pub struct Arguments {
    /// The application: an ADL document or a bundle (.sab).
    #[arg(long, value_name = "FILE")]
    pub adl: PathBuf,
    /// What a job adds to it (JSON).
    #[arg(long, value_name = "FILE")]
    pub request: PathBuf,
    /// Replays one resize alone, from the state that this file describes (JSON), straight into the folder.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "closed_pes"])]
    pub replay: Option<PathBuf>,
    /// Where to write. Missing folders are made, files of the same name are replaced.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Which operators share a processing element after a resize.
    #[arg(long, value_enum, default_value_t = PolicyName::Sticky)]
    pub policy: PolicyName,
    /// Which of them take nothing new.
    #[command(flatten)]
    pub closed: ClosedArguments,
    /// What the channels of parallel regions mean for manual and automatic fusion.
    #[arg(long, value_name = "TYPE", default_value = "noChannelInfluence", value_parser = fusion_type)]
    pub fusion_type: FusionType,
    /// Bounds on sizes.
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Runs the command; see [`Arguments`].
pub fn run(arguments: &Arguments) -> ExitCode {
    exit(steps(arguments))
}

/// Whether every step gave a plan.
fn steps(arguments: &Arguments) -> Result<bool, CommandFailure> {
    let job = RequestFile::read(&arguments.request)?;
    let replay = arguments.replay.as_deref().map(request::replay).transpose()?;
    let budget = Budget::with_limits(arguments.limits.limits());
    let document = document::read(&arguments.adl, &budget)?.adl;
    let request = job.request.map(|request| Arc::new(Request { fusion_type: arguments.fusion_type, ..request }));
    let begin = || -> Result<(Source, Arc<Request>), Error> {
        let request = request?;
        request.check()?;
        let source = Source::parse(&document?, &budget)?;
        Ok((source, request))
    };
    let begun = begin();

    if let Some(replay) = replay {
        let folder = Folder::open(&arguments.out)?;
        let result = begun.and_then(|(source, request)| plan::replay(&source, &request, &replay, &budget));
        return write(&folder, result.as_ref(), &budget);
    }
    let folder = Folder::open(&arguments.out.join("step-0"))?;
    let submitted = begun.and_then(|(source, request)| plan::submit(&source, &request, &budget));
    let mut good = write(&folder, submitted.as_ref(), &budget)?;
    let Ok(mut current) = submitted else { return Ok(false) };
    let state = arguments.closed.state();
    for (number, step) in (1_u64..).zip(job.resizes) {
        let folder = Folder::open(&arguments.out.join(format!("step-{number}")))?;
        let resized = plan::resize(&current, &[step], arguments.policy.into(), &state, &budget);
        good &= write(&folder, resized.as_ref(), &budget)?;
        // A failed resize leaves everything as it was.
        if let Ok(resized) = resized {
            current = resized;
        }
    }
    Ok(good)
}

fn write(folder: &Folder, result: Result<&Compiled, &Error>, budget: &Budget) -> Result<bool, CommandFailure> {
    match result {
        Ok(compiled) => folder.plan(compiled, budget).map(|()| true),
        Err(error) => folder.failure(error).map(|()| false),
    }
}
