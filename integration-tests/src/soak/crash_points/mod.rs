//! Kills a frontend before and after every write of every operation, lets every call fail in every way, freezes
//! leaders, and kills the API server and etcd, on a real control plane. After each the job must come to the same end as
//! without: the same objects, the same texts, no PE launched more often, no generation more. Two edits that follow each
//! other are one generation or two, and restart what both change once or twice.
//!
//! The simulations beside the controllers do the same over a fake API server, one controller at a time. New here: the
//! real API server and its timing, the program with its watches, queues, retries and leadership, both controllers and
//! the fusion service at once, and calls that fail below the retries.
//!
//! ```text
//!   operations: what is done and what must come of it      referee: counts calls, says where to strike
//!             \------------> lane: one frontend, one job <------------/
//! ```
//!
//! Knows: what a job is like with and without a fault. Must not know: how the operator gets there, what a call is for.

mod lane;
mod operations;
mod referee;
pub mod report;

use self::lane::Lane;
pub use self::lane::{Passed, Point};
pub use self::operations::Operation;
pub use self::referee::{Blow, Referee, Watches};
use crate::system::Programs;
use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use streams_control_plane::ControlPlane;
use streams_control_plane::process::Supervisor;
use streams_control_plane::progress::Progress;
use tokio::sync::Mutex;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct CrashPointOptions {
    /// Jobs that are struck at the same time, each with frontends of its own.
    pub lanes: usize,
    /// Frontends of each, one of which leads.
    pub frontends: usize,
    /// Every so many points is tried: 1 for all.
    pub every: usize,
    /// Which of them is the first.
    pub offset: usize,
    /// What is done at the points.
    pub blows: Vec<Blow>,
    /// What watches are like meanwhile.
    pub watches: Watches,
    /// Only these operations are struck.
    pub operations: Vec<Operation>,
    /// No life is begun after this time, from when it is known what comes of an undisturbed one.
    pub within: Duration,
}

/// What a run has found.
#[derive(Debug, Default)]
pub struct CrashPointOutcome {
    /// Writes and calls of each operation without a disturbance.
    pub calls: BTreeMap<Operation, (usize, usize)>,
    /// Points of each operation and kind: tried, passed, not reached.
    pub points: BTreeMap<(Operation, Blow), [usize; 3]>,
    /// Points that there are, and that were not begun in time.
    pub planned: usize,
    /// What did not pass: the call that was struck, and what was wrong.
    pub failures: Vec<(Point, String, String)>,
    /// How long it took.
    pub took: Duration,
    /// The commit that was tried.
    pub commit: String,
}

/// Runs it on a control plane that has the custom resources.
///
/// # Errors
/// The run cannot begin, or something fails that was not struck.
pub async fn run(
    control_plane: &ControlPlane,
    supervisor: &Supervisor,
    programs: &Programs,
    options: &CrashPointOptions,
    stop: impl Future<Output = ()>,
) -> Result<CrashPointOutcome> {
    let start = Instant::now();
    let is_outage = |blow| Blow::OUTAGES.contains(blow);
    ensure!(options.lanes == 1 || !options.blows.iter().any(is_outage), "an outage would strike all lanes: use one");
    ensure!(options.frontends > 1 || !options.blows.contains(&Blow::Frozen), "a frozen leader needs another frontend");
    let progress = Progress::begin("frontends with faults");
    let lanes = (0..options.lanes).map(|_| Lane::start(control_plane, supervisor, programs, options.frontends));
    let lanes = try_join_all(lanes).await?;
    progress.done();
    let progress = Progress::begin("every operation, undisturbed");
    let first = lanes.first().context("a run without a lane")?;
    let undisturbed = first.undisturbed().await.with_context(|| first.last_lines())?;
    progress.done();
    if options.watches != Watches::Good {
        try_join_all(lanes.iter().map(|lane| lane.watches(options.watches))).await?;
    }

    let lives = lives(&points(options, &undisturbed.writes, &undisturbed.calls));
    let numbers = |operation| {
        let of = |numbers: &BTreeMap<Operation, usize>| numbers.get(&operation).copied().unwrap_or_default();
        (operation, (of(&undisturbed.writes), of(&undisturbed.calls)))
    };
    let planned = lives.iter().map(BTreeMap::len).sum();
    let outcome = Mutex::new(CrashPointOutcome {
        calls: Operation::ALL.map(numbers).into(),
        planned,
        commit: super::commit::commit(),
        ..CrashPointOutcome::default()
    });
    let progress = Progress::begin(format!("{planned} points"));
    let lives = Mutex::new(lives.into_iter());
    let deadline = Instant::now() + options.within;
    let live = async |lane: &Lane<'_>| -> Result<()> {
        while Instant::now() < deadline {
            let Some(points) = lives.lock().await.next() else { break };
            let told = async |point: Point, passed: Passed| {
                let mut outcome = outcome.lock().await;
                outcome.add(point, passed);
                let tried: usize = outcome.points.values().map(|[tried, ..]| tried).sum();
                progress.at(format!("{tried} tried, {} failed", outcome.failures.len()));
            };
            let lived = lane.live(&points, &undisturbed, told).await;
            lived.with_context(|| format!("in namespace {}: {}", lane.namespace(), lane.last_lines()))?;
        }
        Ok(())
    };
    tokio::select! {
        lived = try_join_all(lanes.iter().map(&live)) => drop(lived?),
        () = stop => {}
    }
    progress.done();
    let mut outcome = outcome.into_inner();
    outcome.took = start.elapsed();
    Ok(outcome)
}

impl CrashPointOutcome {
    fn add(&mut self, point: Point, passed: Passed) {
        let [tried, good, missed] = self.points.entry((point.operation, point.blow)).or_default();
        *tried += 1;
        match passed {
            Passed::Yes => *good += 1,
            Passed::NotReached => *missed += 1,
            Passed::No { struck, what } => {
                eprintln!("FAILED {}, {} at {} ({struck}): {what}", point.operation, point.blow, point.number);
                self.failures.push((point, struck, what));
            }
        }
    }
}

/// Every point, or every so many of them.
fn points(
    options: &CrashPointOptions,
    writes: &BTreeMap<Operation, usize>,
    calls: &BTreeMap<Operation, usize>,
) -> Vec<Point> {
    let blows: BTreeSet<_> = options.blows.iter().copied().collect();
    let mut points = Vec::new();
    for operation in options.operations.iter().copied() {
        for blow in blows.iter().copied() {
            let numbers = if blow.is_of_writes() { writes } else { calls };
            let count = numbers.get(&operation).copied().unwrap_or_default();
            points.extend((1..=count).map(|number| Point { operation, number, blow }));
        }
    }
    points.into_iter().skip(options.offset).step_by(options.every.max(1)).collect()
}

/// Points that one job can live through: one of each operation.
fn lives(points: &[Point]) -> Vec<BTreeMap<Operation, Point>> {
    let mut lives: Vec<BTreeMap<Operation, Point>> = Vec::new();
    let mut next: BTreeMap<Operation, usize> = BTreeMap::new();
    for point in points {
        let index = next.entry(point.operation).or_default();
        if lives.len() == *index {
            lives.push(BTreeMap::new());
        }
        if let Some(life) = lives.get_mut(*index) {
            life.insert(point.operation, *point);
        }
        *index += 1;
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_belongs_to_one_life_and_no_life_strikes_an_operation_twice() {
        let options = CrashPointOptions {
            lanes: 1,
            frontends: 1,
            every: 1,
            offset: 0,
            blows: Blow::KILLS.into_iter().chain([Blow::Reset]).collect(),
            watches: Watches::Good,
            operations: Operation::ALL.into(),
            within: Duration::ZERO,
        };
        let writes = BTreeMap::from([(Operation::Submit, 5), (Operation::Grow, 2)]);
        let calls = BTreeMap::from([(Operation::Submit, 7)]);
        let all = points(&options, &writes, &calls);
        assert_eq!(all.len(), 2 * 5 + 2 * 2 + 7);
        let lives = lives(&all);
        assert_eq!(lives.len(), 17);
        let lived: BTreeSet<_> = lives.iter().flat_map(BTreeMap::values).copied().collect();
        assert_eq!(lived, all.iter().copied().collect());
        let sampled = points(&CrashPointOptions { every: 4, offset: 1, ..options }, &writes, &calls);
        assert_eq!(sampled.len(), 5);
    }
}
