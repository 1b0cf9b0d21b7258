//! `fusion-service plan`: a submission and a chain of resizes, or one resize alone, as files (plan command).
//!
//! `request` reads what is asked for, `folder` writes a step, `context` and `failure` are its JSON files.

mod context;
mod failure;
mod folder;
mod request;

use crate::budget::{Budget, Limits};
use crate::error::{Error, Problem, Stage};
use crate::fuser::FusionType;
use crate::plan::{self, Compiled, InUse, Policy, Request, Source};
use folder::Folder;
use request::Job;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use streams_bundle::{Bundle, ReadOptions};

/// Compiles an application: a submission, then the resizes of the request one after the other.
///
/// Writes a folder per step: one AADL document per processing element and context.json, or error.json. Exit status 0: every step gave a
/// plan; 3: some step ended in error.json; 2: arguments, files, or the form of the JSON inputs.
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
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Where to write. Missing folders are made, files of the same name are replaced.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Which operators share a processing element after a resize.
    #[arg(long, value_enum, default_value_t = PolicyName::Sticky)]
    pub policy: PolicyName,
    /// What the channels of parallel regions mean for manual fusion.
    #[arg(long, value_name = "TYPE", default_value = "noChannelInfluence", value_parser = fusion_type)]
    pub fusion_type: FusionType,
    /// Bounds on sizes.
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Names of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PolicyName {
    /// Operators that exist stay where they are.
    Sticky,
    /// Fuse from scratch.
    Rebalance,
}

/// Bounds on sizes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArguments {
    /// Width of one parallel region.
    #[arg(long, value_name = "N", default_value_t = Limits::default().width)]
    pub max_width: u64,
    /// Physical operators.
    #[arg(long, value_name = "N", default_value_t = Limits::default().operators)]
    pub max_operators: u64,
    /// Connections between operator ports.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    pub max_connections: u64,
    /// Bytes of all AADL documents of a step.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().aadl_bytes)]
    pub max_aadl_bytes: u64,
}

impl LimitArguments {
    /// The limits.
    pub fn limits(&self) -> Limits {
        Limits {
            width: self.max_width,
            operators: self.max_operators,
            connections: self.max_connections,
            aadl_bytes: self.max_aadl_bytes,
            ..Limits::default()
        }
    }
}

fn fusion_type(name: &str) -> Result<FusionType, String> {
    FusionType::parse(name).ok_or_else(|| "noChannelInfluence, channelIsolation or channelExlocation".to_owned())
}

/// Why the command stops: one line for people. The application is not at fault.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    fn at(path: &Path, what: impl std::fmt::Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }
}

/// Runs the command; see [`Arguments`].
pub fn run(arguments: &Arguments) -> ExitCode {
    match steps(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(Failure(message)) => {
            let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

/// Whether every step gave a plan.
fn steps(arguments: &Arguments) -> Result<bool, Failure> {
    let job = Job::read(&arguments.request)?;
    let replay = arguments.replay.as_deref().map(request::replay).transpose()?;
    let budget = Budget::with_limits(arguments.limits.limits());
    let document = document(&arguments.adl, &budget)?;
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
    let policy = match arguments.policy {
        PolicyName::Sticky => Policy::Sticky,
        PolicyName::Rebalance => Policy::Rebalance,
    };
    for (number, step) in (1_u64..).zip(job.resizes) {
        let folder = Folder::open(&arguments.out.join(format!("step-{number}")))?;
        let resized = plan::resize(&current, &[step], policy, &InUse::default(), &budget);
        good &= write(&folder, resized.as_ref(), &budget)?;
        // A failed resize leaves everything as it was.
        if let Ok(resized) = resized {
            current = resized;
        }
    }
    Ok(good)
}

fn write(folder: &Folder, result: Result<&Compiled, &Error>, budget: &Budget) -> Result<bool, Failure> {
    match result {
        Ok(compiled) => folder.plan(compiled, budget).map(|()| true),
        Err(error) => folder.failure(error).map(|()| false),
    }
}

/// The ADL: of the file, or of the bundle that the file is. The outer error is about the file, the inner one about what is in it.
fn document(path: &Path, budget: &Budget) -> Result<Result<Vec<u8>, Error>, Failure> {
    let unreadable = |error: std::io::Error| Failure::at(path, error);
    let mut file = File::open(path).map_err(unreadable)?;
    let mut begin = Vec::new();
    file.by_ref().take(4).read_to_end(&mut begin).map_err(unreadable)?;
    if streams_bundle::is_bundle(&begin) {
        file.rewind().map_err(unreadable)?;
        let mut options = ReadOptions::default();
        options.limits.adl = budget.limits.adl_bytes;
        let adl = Bundle::read(BufReader::new(file), &options).and_then(|bundle| bundle.adl_for_submission());
        return match adl {
            Ok(adl) => Ok(Ok(adl.into_bytes())),
            Err(streams_bundle::Error::Io(error)) => Err(unreadable(error)),
            Err(error) => Ok(Err(Problem::new(Stage::LogicalModel, error.to_string()).into())),
        };
    }
    // One byte more than is allowed: the parser says so.
    let most = budget.limits.adl_bytes.saturating_add(1);
    let mut document = begin;
    let rest = most.saturating_sub(document.len() as u64);
    file.take(rest).read_to_end(&mut document).map_err(unreadable)?;
    Ok(Ok(document))
}
