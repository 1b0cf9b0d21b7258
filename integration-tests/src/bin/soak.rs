//! `cargo soak NAME`: runs that take longer than tests may, with a report that is kept.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use integration_tests::soak::{report, resizes};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use streams_control_plane::process::{Supervisor, supervise_if_asked};
use streams_control_plane::stop;

/// Long runs under load and disturbance. Each writes a report.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  cargo soak resizes                               ten minutes, report in docs/measurements/soak-resizes.md
  cargo soak resizes --minutes 60 --seed 4         longer, other widths and faults
  cargo soak resizes --minutes 2 --no-blows --report /tmp/quiet.md
                                                   only load: how long resizes take when nothing dies")]
struct Arguments {
    #[command(subcommand)]
    name: Name,
}

#[derive(Subcommand, Debug)]
enum Name {
    /// Random widths, several regions at once, while processes and pods die; everything must be in its place in between
    /// and at the end
    Resizes(Resizes),
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
    let Arguments { name: Name::Resizes(arguments) } = Arguments::parse();
    match soak(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn soak(arguments: &Resizes) -> Result<()> {
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
