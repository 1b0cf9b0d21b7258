//! The elasticity API as load balancers use it: how long a request takes, alone and beside submissions, compared with a
//! client that only writes the same objects; and many requests for many jobs, some of whose callers leave, while
//! replicas of the fusion service die.
//!
//! ```text
//!   latency:  one request after the other      figures of it, and what a bare client needs for the objects
//!   course:   one after the other, traced      what is done for a request, from when to when
//!   flood:    requests at a fixed rate         each answer with its reason; afterwards nothing may be forgotten
//! ```
//!
//! Knows: what a caller sees, and the objects of a job. Must not know: how the operator gets there.

mod background;
mod bare;
mod course;
mod flood;
mod latency;
pub mod report;

use self::course::Course;
use self::flood::Flooded;
use self::latency::Latency;
use super::deployed::{More, as_deployed, as_deployed_with, room_for};
use super::load::Shape;
use crate::system::Programs;
use crate::traces::Collector;
use anyhow::Result;
use std::time::{Duration, Instant};
use streams_control_plane::ControlPlane;
use streams_control_plane::process::Supervisor;

/// Room for pods of the jobs that are resized one after the other.
const PODS_OF_SMALL_JOBS: usize = 150;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct ElasticityOptions {
    /// Requests to the sample job, alone and beside submissions; 0: this is left out.
    pub requests: usize,
    /// PEs of a large job, and requests to it; 0: this is left out.
    pub large: (usize, usize),
    /// Submissions at a time beside which the sample job is resized, and operators of each; 0: this is left out.
    pub background: (usize, usize),
    /// Jobs of the flood; 0: this is left out.
    pub jobs: usize,
    /// Requests in a second.
    pub per_second: f64,
    /// How long requests are made.
    pub duration: Duration,
    /// Mean time between two deaths of a replica of the fusion service.
    pub kill_every: Duration,
    /// Seed of widths, callers and deaths.
    pub seed: u64,
    /// Longest time for each thing that is waited for.
    pub within: Duration,
    /// What else the machine did.
    pub beside: String,
}

/// What a run has measured.
#[derive(Debug, Default)]
pub struct ElasticityOutcome {
    latencies: Vec<Latency>,
    courses: Vec<Course>,
    flooded: Option<Flooded>,
    /// What went wrong.
    pub failures: Vec<String>,
    took: Duration,
    commit: String,
}

/// Runs it.
///
/// # Errors
/// The run cannot begin. Later failures are in the result.
pub async fn run(
    supervisor: &Supervisor,
    options: &ElasticityOptions,
    stop: impl Future<Output = ()>,
) -> Result<ElasticityOutcome> {
    let commit = super::commit::commit();
    let programs = Programs::build(supervisor).await?;
    let start = Instant::now();
    // The large job, its channels while they are replaced, and another one that is traced; jobs stay to the end.
    let pods = options.jobs * flood::MOST_PODS + options.large.0 * 4 + PODS_OF_SMALL_JOBS;
    let control_plane = room_for(supervisor, pods).await?;
    let mut outcome = ElasticityOutcome { commit, ..ElasticityOutcome::default() };
    let everything = async {
        let run = Run { supervisor, programs: &programs, control_plane: &control_plane, options };
        for lane in options.latencies() {
            run.one_after_the_other(lane, &mut outcome).await;
        }
        if options.jobs > 0 {
            match run.flood().await {
                Ok(flooded) => {
                    outcome.failures.extend(flooded.failures());
                    outcome.flooded = Some(flooded);
                }
                Err(error) => outcome.failures.push(format!("many jobs: {error:#}")),
            }
        }
        // Last: it leaves much behind.
        if let Some(large) = options.large() {
            run.one_after_the_other(large, &mut outcome).await;
        }
    };
    tokio::select! {
        () = everything => {}
        () = stop => {}
    }
    outcome.took = start.elapsed();
    control_plane.stop().await?;
    Ok(outcome)
}

impl ElasticityOptions {
    /// How the sample job is resized.
    fn latencies(&self) -> Vec<Lane> {
        let (shape, times) = (Shape::many(1, 1), self.requests);
        let lane = |pace, background| Lane { shape, times, pace, background };
        let alone = [Pace::AtRest, Pace::AtOnce].map(|pace| lane(pace, (0, 0)));
        let beside = (self.background.0 > 0).then(|| lane(Pace::AtOnce, self.background));
        alone.into_iter().chain(beside).filter(|lane| lane.times > 0).collect()
    }

    /// How the large job is.
    fn large(&self) -> Option<Lane> {
        let (pes, times) = self.large;
        let (shape, pace) = (Shape::large(pes.max(6)), Pace::AtRest);
        (pes > 0 && times > 0).then_some(Lane { shape, times, pace, background: (0, 0) })
    }
}

/// When the next request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// When nothing is left to do for the one before: what it replaced is gone, too.
    AtRest,
    /// When the one before is rolled out.
    AtOnce,
}

impl Lane {
    /// What is special about it, for reports.
    fn circumstances(&self) -> &'static str {
        match (self.pace, self.background.0) {
            (Pace::AtRest, 0) => "",
            (Pace::AtOnce, 0) => ", at once",
            (Pace::AtRest, _) => ", beside submissions",
            (Pace::AtOnce, _) => ", at once, beside submissions",
        }
    }
}

/// Requests to one job, one after the other.
#[derive(Debug, Clone, Copy)]
struct Lane {
    shape: Shape,
    times: usize,
    pace: Pace,
    /// Submissions at a time beside it, and operators of each.
    background: (usize, usize),
}

struct Run<'a> {
    supervisor: &'a Supervisor,
    programs: &'a Programs,
    control_plane: &'a ControlPlane,
    options: &'a ElasticityOptions,
}

impl Run<'_> {
    async fn one_after_the_other(&self, lane: Lane, outcome: &mut ElasticityOutcome) {
        match self.latency(lane).await {
            Ok(latency) => outcome.latencies.push(latency),
            Err(error) => outcome.failures.push(format!("requests to a job of width {}: {error:#}", lane.shape.clean)),
        }
        match self.course(lane).await {
            Ok(course) => outcome.courses.push(course),
            Err(error) => {
                let width = lane.shape.clean;
                outcome.failures.push(format!("requests that are traced, to a job of width {width}: {error:#}"));
            }
        }
    }

    async fn latency(&self, lane: Lane) -> Result<Latency> {
        let system = as_deployed(self.supervisor, self.programs, self.control_plane).await?;
        latency::measure(self.control_plane, system, self.options, lane).await
    }

    /// With a system that sends its traces, which costs something.
    async fn course(&self, lane: Lane) -> Result<Course> {
        let collector = Collector::default();
        let environment = collector.serve().await?;
        let more = More { environment: &environment, ..More::default() };
        let system = as_deployed_with(self.supervisor, self.programs, self.control_plane, more).await?;
        course::measure(self.control_plane, &system, &collector, self.options, lane).await
    }

    async fn flood(&self) -> Result<Flooded> {
        let system = as_deployed(self.supervisor, self.programs, self.control_plane).await?;
        flood::measure(self.control_plane, &system, self.options).await
    }
}
