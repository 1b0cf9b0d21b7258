//! `cargo soak NAME`: runs that take longer than tests may, with a report that is kept.
//!
//! Knows: names, arguments, reports. Must not know: what a run does.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use integration_tests::soak::crash_points::{self, Blow, Operation, Watches};
use integration_tests::soak::large_resizes::{self, Round};
use integration_tests::soak::load::{self, Shape};
use integration_tests::soak::{consistent_regions, declarations, elasticity, pe_api, report, resizes};
use integration_tests::system::Programs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use streams_api::crds;
use streams_control_plane::ControlPlane;
use streams_control_plane::process::{Supervisor, supervise_if_asked};
use streams_control_plane::stop;

/// Long runs under load and disturbance. Each writes a report.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  cargo soak resizes                               ten minutes, report in docs/measurements/soak-resizes.md
  cargo soak resizes --minutes 60 --seed 4         longer, other widths and faults
  cargo soak resizes --minutes 2 --no-blows --report /tmp/quiet.md
                                                   only load: how long resizes take when nothing dies
  cargo soak declarations                          each field alone, then random sequences, for 15 minutes
  cargo soak declarations --seed 4 --sequence random/17
                                                   one random sequence of seed 4 again
  cargo soak declarations --sequence processingElement.image
                                                   every sequence whose name begins like this
  cargo soak crash-points                          every write and every call of every operation; takes most of an hour
  cargo soak crash-points --every 20 --faults kills
                                                   a sample: the process is killed at every twentieth point
  cargo soak crash-points --operation grow --late 2000
                                                   one operation, while all that watches tell comes two seconds late
  cargo soak consistent-regions                    five minutes; PEs are processes with addresses, which takes root
  cargo soak load                                  300 jobs in 12 namespaces, a job of 1,000 PEs, a hostile tenant
  cargo soak load --jobs 0 --pes 10000 --resizes 0 one job of 10,000 PEs only
  cargo soak elasticity                            latencies, then 10 requests a second for 100 jobs, for 10 minutes
  cargo soak elasticity --jobs 0 --large-requests 0
                                                   only the latencies of the sample job
  cargo soak large-resizes                         64 resizes of 192 MiB at once, plain, broken and compressed
  cargo soak large-resizes --callers 8 --mib 24 --report /tmp/small.md
                                                   a small one
  cargo soak large-resizes --round gzip            one kind of message only
  cargo soak pe-api                                1,000 PEs that ask and report, and a consistent region of 100
  cargo soak pe-api --pes 60 --region-pes 6 --minutes 0.3 --report /tmp/small.md
                                                   a small one")]
struct Arguments {
    #[command(subcommand)]
    name: Name,
}

#[derive(Subcommand, Debug)]
enum Name {
    /// Random widths, several regions at once, while processes and pods die; everything must be in its place in between
    /// and at the end
    Resizes(Resizes),
    /// Every field of a job set, changed, made invalid, corrected and removed, alone and at random; each job must come
    /// to rest like a fresh one, or say why not
    Declarations(Declarations),
    /// The frontend is killed before and after every write, and every call fails in every way; each time the job must
    /// come to the same end
    CrashPoints(CrashPoints),
    /// PEs of consistent regions and frontends are killed at every phase of checkpoints and resets; each time no tuple
    /// may be lost or counted twice
    ConsistentRegions(ConsistentRegions),
    /// Many jobs at once and large ones, beside a bare client that writes the same objects; a tenant beside a hostile
    /// one
    Load(Load),
    /// Requests to the elasticity API: alone, beside submissions, to a large job; then many for many jobs, while
    /// callers leave and replicas die
    Elasticity(Elasticity),
    /// Many of the largest resizes at once to one replica of the fusion service, which must stay within the memory of
    /// its pod and answer all of them
    LargeResizes(LargeResizes),
    /// Many PEs that ask and report: what each of them costs at rest and while regions are resized, and what else is
    /// delayed; no report may be lost
    PeApi(PeApi),
}

#[derive(clap::Args, Debug)]
struct Resizes {
    /// How long new resizes are begun.
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// Number from which widths and faults follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Jobs that are resized at the same time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=26))]
    jobs: u8,
    /// Replicas of the frontend.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    frontends: u8,
    /// Mean time between two faults.
    #[arg(long = "blow-every", default_value_t = 6.0, value_name = "SECONDS", value_parser = positive)]
    fault_every: f64,
    /// Nothing dies.
    #[arg(long = "no-blows", conflicts_with = "fault_every")]
    no_faults: bool,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/soak-resizes.md", value_name = "PATH")]
    report: PathBuf,
}

#[derive(clap::Args, Debug)]
struct Declarations {
    /// How long new sequences are begun.
    #[arg(long, default_value_t = 15.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// Number from which the random sequences follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sequences that are run at the same time, each in a namespace of its own.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    at_once: u8,
    /// Only sequences whose name begins like this (`random`: all random ones, `effects`: the effect of each field), or
    /// one in JSON as a report has it.
    #[arg(long, value_name = "NAME")]
    sequence: Option<String>,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/declarations.md", value_name = "PATH")]
    report: PathBuf,
}

#[derive(clap::Args, Debug)]
struct CrashPoints {
    /// Jobs that are struck at the same time, each with frontends of its own.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    lanes: u8,
    /// Frontends of each job, one of which leads: another one takes over what a killed or frozen one has begun.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    frontends: u8,
    /// Only every so many points.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// How many points are left out at first.
    #[arg(long, default_value_t = 0)]
    offset: u32,
    /// What happens at the points.
    #[arg(long, value_enum, default_value_t = Kind::All)]
    faults: Kind,
    /// Only this operation; can be given several times.
    #[arg(long = "operation", value_name = "NAME", value_parser = operation)]
    operations: Vec<Operation>,
    /// Watches tell everything so much later: mirrors are stale.
    #[arg(long, value_name = "MILLISECONDS", conflicts_with = "break_off")]
    late: Option<u64>,
    /// Watches break off after so many pieces.
    #[arg(long, value_name = "PIECES")]
    break_off: Option<usize>,
    /// No new points after this time.
    #[arg(long, default_value_t = 120.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/crash-points.md", value_name = "PATH")]
    report: PathBuf,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Kind {
    /// The process is killed.
    Kills,
    /// Calls fail.
    Calls,
    /// Both.
    All,
    /// The process freezes, until another one leads; with --frontends 2 or more.
    Freezes,
    /// The API server and etcd are killed; with --lanes 1.
    Outages,
}

fn operation(text: &str) -> Result<Operation, String> {
    let known = Operation::ALL.map(|operation| operation.to_string());
    let found = Operation::ALL.into_iter().find(|operation| operation.to_string() == text);
    found.ok_or_else(|| format!("there are: {}", known.join(", ")))
}

#[derive(clap::Args, Debug)]
struct Load {
    /// Jobs of 12 PEs that are created at once; 0 for none.
    #[arg(long, default_value_t = 300)]
    jobs: u16,
    /// Namespaces that they are in.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..))]
    namespaces: u8,
    /// PEs of one large job; can be given several times, 0 for none.
    #[arg(long, default_values_t = [1_000], value_parser = clap::value_parser!(u16).range(..=10_000))]
    pes: Vec<u16>,
    /// Calls that the bare client makes at the same time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    at_once: u8,
    /// Resizes of a tenant, alone and beside a hostile one; 0 to leave this out.
    #[arg(long, default_value_t = 15)]
    resizes: u16,
    /// PEs of the hostile tenant that restart.
    #[arg(long, default_value_t = 800, value_parser = clap::value_parser!(u16).range(6..=10_000))]
    hostile_pes: u16,
    /// Longest time for each thing that is waited for.
    #[arg(long, default_value_t = 30.0, value_name = "MINUTES", value_parser = positive)]
    within: f64,
    /// What else the machine does, for the report.
    #[arg(long, default_value = "nothing", value_name = "TEXT")]
    beside: String,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/load.md", value_name = "PATH")]
    report: PathBuf,
}

#[derive(clap::Args, Debug)]
struct Elasticity {
    /// Requests to the sample job, one after the other, alone and beside submissions, and up to 40 more each that are
    /// traced; 0 for none.
    #[arg(long, default_value_t = 200)]
    requests: u16,
    /// Requests to a large job, and as many more to another one that are traced; 0 for none.
    #[arg(long, default_value_t = 4)]
    large_requests: u16,
    /// PEs of that job.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(6..=10_000))]
    pes: u16,
    /// Submissions at a time beside which the sample job is resized; 0 to leave this out.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(..=16))]
    submissions: u8,
    /// Operators of each of them.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(50..=5_000))]
    operators: u16,
    /// Jobs of the flood; 0 for none.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(..=1_000))]
    jobs: u16,
    /// Requests in a second.
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    per_second: f64,
    /// How long requests are made.
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// Mean time between two deaths of a replica of the fusion service.
    #[arg(long, default_value_t = 15.0, value_name = "SECONDS", value_parser = positive)]
    kill_every: f64,
    /// Number from which widths, callers and deaths follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest time for each thing that is waited for.
    #[arg(long, default_value_t = 30.0, value_name = "MINUTES", value_parser = positive)]
    within: f64,
    /// What else the machine does, for the report.
    #[arg(long, default_value = "nothing", value_name = "TEXT")]
    beside: String,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/elasticity.md", value_name = "PATH")]
    report: PathBuf,
}

#[derive(clap::Args, Debug)]
struct LargeResizes {
    /// Callers at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    callers: u16,
    /// Size of each message, expanded.
    #[arg(long, default_value_t = 192, value_name = "MIB", value_parser = clap::value_parser!(u16).range(1..=192))]
    mib: u16,
    /// Only this round; can be given several times.
    #[arg(long = "round", value_enum, value_name = "NAME")]
    rounds: Vec<Round>,
    /// Longest time until all callers of a round are answered.
    #[arg(long, default_value_t = 5.0, value_name = "MINUTES", value_parser = positive)]
    within: f64,
    /// What else the machine does, for the report.
    #[arg(long, default_value = "nothing", value_name = "TEXT")]
    beside: String,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/large-resizes.md", value_name = "PATH")]
    report: PathBuf,
}

#[derive(clap::Args, Debug)]
struct ConsistentRegions {
    /// How long PEs and frontends are killed; it goes on until each was killed in each phase.
    #[arg(long, default_value_t = 5.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// Number from which everything random follows.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/consistent-regions.md", value_name = "PATH")]
    report: PathBuf,
}

#[derive(clap::Args, Debug)]
struct PeApi {
    /// PEs of one job.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(6..=10_000))]
    pes: u16,
    /// PEs of a job with a consistent region; 0 to leave this out.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(..=1_000))]
    region_pes: u16,
    /// How long each of the windows is in which something is measured.
    #[arg(long, default_value_t = 1.5, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// The wide region is not resized, which takes minutes because it replaces nearly all PEs.
    #[arg(long)]
    narrow: bool,
    /// Number from which everything follows that PEs do at random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest time for each thing that is waited for.
    #[arg(long, default_value_t = 15.0, value_name = "MINUTES", value_parser = positive)]
    within: f64,
    /// What else the machine does, for the report.
    #[arg(long, default_value = "nothing", value_name = "TEXT")]
    beside: String,
    /// Where the report is written.
    #[arg(long, default_value = "docs/measurements/pe-api.md", value_name = "PATH")]
    report: PathBuf,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number < 1e6 => Ok(number),
        _ => Err(format!("'{text}' is not a number greater than 0")),
    }
}

fn main() -> ExitCode {
    if let Some(code) = supervise_if_asked() {
        return code;
    }
    let result = match Arguments::parse().name {
        Name::Resizes(arguments) => soak_resizes(&arguments),
        Name::Declarations(arguments) => soak_declarations(&arguments),
        Name::CrashPoints(arguments) => soak_crash_points(&arguments),
        Name::Load(arguments) => soak_load(&arguments),
        Name::Elasticity(arguments) => soak_elasticity(&arguments),
        Name::ConsistentRegions(arguments) => soak_consistent_regions(&arguments),
        Name::LargeResizes(arguments) => soak_large_resizes(&arguments),
        Name::PeApi(arguments) => soak_pe_api(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn soak_resizes(arguments: &Resizes) -> Result<()> {
    // It comes to an end in good order: the resizes that have begun, the last check, the report.
    let stop = stop::asked()?;
    let options = resizes::SoakOptions {
        duration: Duration::from_secs_f64(arguments.minutes * 60.0),
        seed: arguments.seed,
        jobs: arguments.jobs.into(),
        frontends: arguments.frontends.into(),
        fault_every: (!arguments.no_faults).then(|| Duration::from_secs_f64(arguments.fault_every)),
    };
    let ended = resizes::run(&Supervisor::this_program()?, &options, stop).await?;
    let page = report::resizes(&options, &ended)?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    match ended.failure {
        None => Ok(()),
        Some(failure) => {
            let logs = ended.logs.map_or_else(String::new, |logs| format!("; logs: {}", logs.display()));
            bail!("{failure:#}{logs}")
        }
    }
}

#[tokio::main]
async fn soak_declarations(arguments: &Declarations) -> Result<()> {
    let options = declarations::DeclarationOptions {
        duration: Duration::from_secs_f64(arguments.minutes * 60.0),
        seed: arguments.seed,
        at_once: arguments.at_once.into(),
        only: arguments.sequence.clone(),
    };
    let outcome = declarations::run(&Supervisor::this_program()?, &options, stop::asked()?).await?;
    let page = declarations::report::page(&options, &outcome)?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    if outcome.failures.is_empty() && outcome.broken.is_empty() {
        return Ok(());
    }
    let logs = outcome.logs.map_or_else(String::new, |logs| format!("; logs: {}", logs.display()));
    bail!("{} sequences failed, {} could not be run{logs}", outcome.failures.len(), outcome.broken.len())
}

#[tokio::main]
async fn soak_crash_points(arguments: &CrashPoints) -> Result<()> {
    let blows = match arguments.faults {
        Kind::Kills => Blow::KILLS.into(),
        Kind::Calls => Blow::FAULTS.into(),
        Kind::All => Blow::KILLS.into_iter().chain(Blow::FAULTS).collect(),
        Kind::Freezes => vec![Blow::Frozen],
        Kind::Outages => Blow::OUTAGES.into(),
    };
    let watches = match (arguments.late, arguments.break_off) {
        (Some(milliseconds), _) => Watches::Late(milliseconds),
        (None, Some(after)) => Watches::BreakOff(after),
        (None, None) => Watches::Good,
    };
    let options = crash_points::CrashPointOptions {
        lanes: arguments.lanes.into(),
        frontends: arguments.frontends.into(),
        every: arguments.every as usize,
        offset: arguments.offset as usize,
        blows,
        watches,
        operations: if arguments.operations.is_empty() { Operation::ALL.into() } else { arguments.operations.clone() },
        within: Duration::from_secs_f64(arguments.minutes * 60.0),
    };
    let supervisor = Supervisor::this_program()?;
    let stop = stop::asked()?;
    let programs = Programs::build_with_faults(&supervisor).await?;
    let cluster = streams_control_plane::Options { crds: crds::crds()?, ..streams_control_plane::Options::default() };
    let control_plane = ControlPlane::start(&supervisor, &cluster).await?;
    let outcome = crash_points::run(&control_plane, &supervisor, &programs, &options, stop).await?;
    let page = crash_points::report::page(&given(), &options, &outcome)?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    control_plane.stop().await?;
    match outcome.failures.len() {
        0 => Ok(()),
        failed => bail!("{failed} points failed"),
    }
}

#[tokio::main]
async fn soak_load(arguments: &Load) -> Result<()> {
    let many = (arguments.jobs > 0).then(|| Shape::many(arguments.jobs.into(), arguments.namespaces.into()));
    let large = arguments.pes.iter().filter(|pes| **pes > 0).map(|pes| Shape::large(usize::from(*pes)));
    let options = load::LoadOptions {
        shapes: many.into_iter().chain(large).collect(),
        at_once: arguments.at_once.into(),
        within: Duration::from_secs_f64(arguments.within * 60.0),
        resizes: arguments.resizes.into(),
        hostile_pes: arguments.hostile_pes.into(),
        beside: arguments.beside.clone(),
    };
    let outcome = load::run(&Supervisor::this_program()?, &options, stop::asked()?).await?;
    let page = load::report::page(&given(), &options, &outcome)?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    match outcome.failures.as_slice() {
        [] => Ok(()),
        failures => bail!("{}", failures.join("; ")),
    }
}

#[tokio::main]
async fn soak_elasticity(arguments: &Elasticity) -> Result<()> {
    let options = elasticity::ElasticityOptions {
        requests: arguments.requests.into(),
        large: (arguments.pes.into(), arguments.large_requests.into()),
        background: (arguments.submissions.into(), arguments.operators.into()),
        jobs: arguments.jobs.into(),
        per_second: arguments.per_second,
        duration: Duration::from_secs_f64(arguments.minutes * 60.0),
        kill_every: Duration::from_secs_f64(arguments.kill_every),
        seed: arguments.seed,
        within: Duration::from_secs_f64(arguments.within * 60.0),
        beside: arguments.beside.clone(),
    };
    let outcome = elasticity::run(&Supervisor::this_program()?, &options, stop::asked()?).await?;
    let page = elasticity::report::page(&given(), &options, &outcome)?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    match outcome.failures.as_slice() {
        [] => Ok(()),
        failures => bail!("{}", failures.join("; ")),
    }
}

#[tokio::main]
async fn soak_consistent_regions(arguments: &ConsistentRegions) -> Result<()> {
    let duration = Duration::from_secs_f64(arguments.minutes * 60.0);
    let options = consistent_regions::RegionOptions { duration, seed: arguments.seed };
    let (page, result) = consistent_regions::run(&Supervisor::this_program()?, &options).await?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    result
}

#[tokio::main]
async fn soak_large_resizes(arguments: &LargeResizes) -> Result<()> {
    let options = large_resizes::LargeResizeOptions {
        callers: arguments.callers.into(),
        bytes: usize::from(arguments.mib) << 20,
        rounds: if arguments.rounds.is_empty() { Round::ALL.into() } else { arguments.rounds.clone() },
        within: Duration::from_secs_f64(arguments.within * 60.0),
        beside: arguments.beside.clone(),
    };
    let outcome = large_resizes::run(&Supervisor::this_program()?, &options, stop::asked()?).await?;
    let page = large_resizes::report::page(&given(), &options, &outcome)?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    match outcome.failures.as_slice() {
        [] => Ok(()),
        failures => bail!("{}", failures.join("; ")),
    }
}

#[tokio::main]
async fn soak_pe_api(arguments: &PeApi) -> Result<()> {
    let options = pe_api::PeApiOptions {
        pes: arguments.pes.into(),
        region_pes: arguments.region_pes.into(),
        window: Duration::from_secs_f64(arguments.minutes * 60.0),
        is_wide: !arguments.narrow,
        seed: arguments.seed,
        within: Duration::from_secs_f64(arguments.within * 60.0),
        beside: arguments.beside.clone(),
    };
    let outcome = pe_api::run(&Supervisor::this_program()?, &options, stop::asked()?).await?;
    let page = pe_api::report::page(&given(), &options, &outcome)?;
    report::write(&page, &arguments.report)?;
    println!("{page}\nWritten to {}.", arguments.report.display());
    match outcome.failures.as_slice() {
        [] => Ok(()),
        failures => bail!("{}", failures.join("; ")),
    }
}

/// The command as it was given.
fn given() -> String {
    format!("cargo soak {}", std::env::args().skip(1).collect::<Vec<_>>().join(" "))
}
