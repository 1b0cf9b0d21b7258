//! What becomes of the tuples of the job in each step, where its PEs run.
//!
//! Knows: what PEs say of themselves. Must not know: what the step is. Invariant: looking changes nothing.

use crate::running::connections::{Statuses, Stayed};
use crate::running::ledger::{Ledger, Tuples};
use crate::running::pes::Pes;
use crate::system::job::ObservedJob;
use anyhow::Result;
use std::future::Future;
use std::time::{Duration, Instant};
use streams_control_plane::progress::Progress;
use tokio::time::{MissedTickBehavior, interval};

/// How long rates are measured before and after a step.
const MEASURED_FOR: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Seconds on an idle machine.
const AGAIN_WITHIN: Duration = Duration::from_secs(120);

/// Tuples a second, of all sources and of all sinks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Made by sources.
    pub made: f64,
    /// Arrived at sinks.
    pub arrived: f64,
}

impl Rate {
    fn of(tuples: Tuples, within: Duration) -> Self {
        let a_second = |count: u64| count as f64 / within.as_secs_f64().max(f64::EPSILON);
        Self { made: a_second(tuples.made), arrived: a_second(tuples.arrived) }
    }
}

/// What became of tuples and connections in a step.
#[derive(Clone, Debug)]
pub struct Flow {
    /// In the two seconds before it, if the job was there.
    pub before: Option<Rate>,
    /// From the request until every PE had tuples again, if the job was there.
    pub during: Option<Rate>,
    /// In the two seconds after it.
    pub after: Rate,
    /// From the request until every PE had all its connections.
    pub connected: Duration,
    /// From the request until every PE made or took tuples.
    pub moving: Duration,
    /// Connections between PEs that stayed.
    pub stayed: Stayed,
    /// From the request to the end of the measurement.
    pub tuples: Tuples,
}

/// Looks at the PEs of one job.
#[derive(Debug)]
pub struct Watcher {
    pes: Pes,
    job: ObservedJob,
    ledger: Ledger,
    /// What the last measurement gave, with the tuples until then.
    measured: Option<(Rate, Tuples)>,
}

/// How it was when a step began.
#[derive(Debug)]
pub struct Begun {
    at: Instant,
    statuses: Statuses,
    tuples: Tuples,
}

impl Watcher {
    /// Looks at nothing yet.
    pub fn new(pes: Pes, job: ObservedJob) -> Self {
        Self { pes, job, ledger: Ledger::default(), measured: None }
    }

    /// A step begins now.
    ///
    /// # Errors
    /// When the pods cannot be listed.
    pub async fn begin(&mut self) -> Result<Begun> {
        let statuses = self.pes.answering(self.job.name()).await?;
        let now = self.look().await?;
        // What seems to be lost at a moment may be late only: the last measurement knows better.
        let lost = self.measured.map_or(now.lost, |(_, tuples)| tuples.lost);
        Ok(Begun { at: Instant::now(), statuses, tuples: Tuples { lost, ..now } })
    }

    /// Shows what moves until `change` is through.
    ///
    /// # Errors
    /// What `change` fails with, or when the pods cannot be listed.
    pub async fn follow<T>(&mut self, change: impl Future<Output = Result<T>>, progress: &Progress) -> Result<T> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(change);
        loop {
            tokio::select! {
                through = &mut change => return through,
                _ = looks.tick() => {
                    let tuples = self.look().await?;
                    progress.at(format!("{} tuples made, {} arrived", tuples.made, tuples.arrived));
                }
            }
        }
    }

    /// Waits until every PE has its connections and tuples, and measures what moves then.
    ///
    /// # Errors
    /// When a PE does not come to it in time.
    pub async fn end(&mut self, begun: &Begun, progress: &Progress) -> Result<Flow> {
        let (pes, job) = (self.pes.clone(), self.job.clone());
        progress.at("until every PE has its connections");
        let connected = self.follow(pes.until_connected(&job, AGAIN_WITHIN), progress).await?;
        let connected_after = begun.at.elapsed();
        progress.at("until every PE has tuples");
        let statuses = self.follow(pes.until_moving(job.name(), &connected, AGAIN_WITHIN), progress).await?;
        let moving_after = begun.at.elapsed();
        let until_then = self.look().await? - begun.tuples;
        let before = self.measured.map(|(rate, _)| rate);
        let (after, tuples) = self.measure(progress).await?;
        self.measured = Some((after, tuples));
        Ok(Flow {
            before,
            during: before.map(|_| Rate::of(until_then, moving_after)),
            after,
            connected: connected_after,
            moving: moving_after,
            stayed: Stayed::between(&begun.statuses, &statuses),
            tuples: tuples - begun.tuples,
        })
    }

    /// Measures what moves. What is lost is the least that was seen: a tuple that comes late seems to be lost before.
    async fn measure(&mut self, progress: &Progress) -> Result<(Rate, Tuples)> {
        progress.at("measuring");
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.tick().await;
        let (from, first) = (Instant::now(), self.look().await?);
        let (mut last, mut lost) = (first, first.lost);
        while from.elapsed() < MEASURED_FOR {
            looks.tick().await;
            last = self.look().await?;
            lost = lost.min(last.lost);
        }
        Ok((Rate::of(last - first, from.elapsed()), Tuples { lost, ..last }))
    }

    async fn look(&mut self) -> Result<Tuples> {
        self.ledger.running(self.pes.answering(self.job.name()).await?.into_values());
        self.ledger.ended(self.pes.ended(self.job.name()));
        Ok(self.ledger.tuples())
    }
}
