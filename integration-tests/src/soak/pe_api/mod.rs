//! A thousand PEs that ask and report: what each of them costs at rest and while regions are resized, what its reports
//! make the frontend write, and what else is delayed.
//!
//! Pods only seem to run (kwok), with loopback addresses of their own; this process plays the PE of each from its
//! address, which is how the frontend knows it (rule pe-api-1). The same windows of time are measured without PEs and
//! with them. In the end, the status of each PE must say what it told last.
//!
//! ```text
//!   phases:   what happens in which window         window, usage: what is measured of it
//!   crowd:    pods that run, a PE for each         pe, line: what a PE asks and reports, and how
//!   links, topology: which PEs are connected       tally: how they are answered
//!   beside:   what others ask of the frontend      hostile: a PE that does its worst
//! ```
//!
//! Knows: the contract with PEs, the elasticity API, the objects of a job. Must not know: how the frontend works.

mod beside;
mod crowd;
mod hostile;
mod line;
mod links;
mod pe;
mod phases;
pub mod report;
mod tally;
mod topology;
mod usage;
mod window;

use self::crowd::some;
use self::phases::{Region, Restart, Stage};
use self::window::Window;
use super::deployed::{More, as_deployed_with, room_with};
use crate::system::Programs;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use streams_control_plane::Component;
use streams_control_plane::process::Supervisor;

/// Addresses of pods. All of them are this machine.
const ADDRESSES: &str = "--cidr=127.64.0.1/10";
/// EndpointSlices must not have loopback addresses: who makes them for the Services of PEs would try in vain.
const NO_ENDPOINTS: &str = "--controllers=*,-endpoints-controller,-endpointslice-controller";

/// Options of a run.
#[derive(Debug, Clone)]
pub struct PeApiOptions {
    /// PEs of the large job.
    pub pes: usize,
    /// PEs of a job with a consistent region; 0: this is left out.
    pub region_pes: usize,
    /// How long each window is.
    pub window: Duration,
    /// Whether the wide region is resized, too, which replaces nearly all PEs.
    pub is_wide: bool,
    /// Seed of everything that PEs do at random.
    pub seed: u64,
    /// Longest time for each thing that is waited for.
    pub within: Duration,
    /// What else the machine did.
    pub beside: String,
}

/// What a run has measured.
#[derive(Debug, Default)]
pub struct PeApiOutcome {
    windows: Vec<Window>,
    restarts: Vec<Restart>,
    region: Option<Region>,
    /// What went wrong.
    pub failures: Vec<String>,
    took: Duration,
    commit: String,
}

/// Names of the windows.
mod names {
    pub(super) const REST: &str = "rest, no PE asks";
    pub(super) const OTHERS: &str = "others, no PE asks";
    pub(super) const RESIZES: &str = "resizes, no PE asks";
    pub(super) const WIDE: &str = "all PEs are replaced, none asks";
    pub(super) const START: &str = "all PEs start";
    pub(super) const REST_WITH: &str = "rest";
    pub(super) const OTHERS_WITH: &str = "others";
    pub(super) const RESIZES_WITH: &str = "resizes";
    pub(super) const HOSTILE: &str = "resizes, a hostile PE";
    pub(super) const WIDE_WITH: &str = "all PEs are replaced";
    pub(super) const RESTART: &str = "a restart";
    pub(super) const STORM: &str = "a restart, and all PEs report";
    pub(super) const REGION: &str = "a consistent region";
}

/// Runs it.
///
/// # Errors
/// The run cannot begin. Later failures are in the result.
pub async fn run(
    supervisor: &Supervisor,
    options: &PeApiOptions,
    stop: impl Future<Output = ()>,
) -> Result<PeApiOutcome> {
    let commit = super::commit::commit();
    let programs = Programs::build(supervisor).await?;
    let start = Instant::now();
    let arguments = BTreeMap::from([
        (Component::Kwok, vec![ADDRESSES.to_owned()]),
        (Component::KubeControllerManager, vec![NO_ENDPOINTS.to_owned()]),
    ]);
    let control_plane = room_with(supervisor, 2 * options.pes + options.region_pes, arguments).await?;
    let mut outcome = PeApiOutcome { commit, ..PeApiOutcome::default() };
    let everything = async {
        let more = More { arguments: &["--checkpoint-path", "/checkpoints"], ..More::default() };
        let system = as_deployed_with(supervisor, &programs, &control_plane, more).await?;
        let mut stage = Stage::start(&control_plane, &system, options).await?;
        let measured = measure(&mut stage, options, &mut outcome).await;
        let wrong = stage.wrong();
        if !wrong.is_empty() {
            outcome.failures.push(format!("wrong answers: {}", some(&wrong)));
        }
        measured.with_context(|| system.last_lines(5))
    };
    let ended = tokio::select! {
        ended = everything => ended,
        () = stop => Err(anyhow::anyhow!("it was stopped")),
    };
    outcome.failures.extend(ended.err().map(|error| format!("{error:#}")));
    outcome.took = start.elapsed();
    control_plane.stop().await?;
    Ok(outcome)
}

async fn measure(stage: &mut Stage<'_>, options: &PeApiOptions, outcome: &mut PeApiOutcome) -> Result<()> {
    let PeApiOutcome { windows, restarts, region, failures, .. } = outcome;
    windows.push(stage.rest(names::REST).await?);
    windows.push(stage.others(names::OTHERS).await?);
    windows.push(stage.resizes(names::RESIZES).await?);
    if options.is_wide {
        windows.push(stage.wide_resize(names::WIDE, true).await?);
    }
    windows.push(stage.wake(names::START).await?);
    lost(failures, names::START, &stage.lost().await?);
    windows.push(stage.rest(names::REST_WITH).await?);
    windows.push(stage.others(names::OTHERS_WITH).await?);
    windows.push(stage.resizes(names::RESIZES_WITH).await?);
    lost(failures, names::RESIZES_WITH, &stage.lost().await?);
    windows.push(stage.hostile(names::HOSTILE).await?);
    lost(failures, names::HOSTILE, &stage.lost().await?);
    if options.is_wide {
        windows.push(stage.wide_resize(names::WIDE_WITH, false).await?);
        lost(failures, names::WIDE_WITH, &stage.lost().await?);
    }
    for (name, is_storm) in [(names::RESTART, false), (names::STORM, true)] {
        let (restart, reports) = stage.restart(name, is_storm).await?;
        restarts.push(restart);
        lost(failures, name, &reports);
    }
    if options.region_pes > 0 {
        let (measured, problems) = stage.region(names::REGION, options.region_pes).await?;
        *region = Some(measured);
        failures.extend(problems.iter().map(|problem| format!("{}: {problem}", names::REGION)));
    }
    Ok(())
}

fn lost(failures: &mut Vec<String>, name: &str, reports: &[String]) {
    if !reports.is_empty() {
        failures.push(format!("{name}: reports were lost: {}", some(reports)));
    }
}
