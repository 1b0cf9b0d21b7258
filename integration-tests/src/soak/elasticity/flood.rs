//! Many requests for many jobs at a fixed rate. Some callers leave before the answer; now and then a replica of the
//! fusion service dies. Then all of it must come to rest: each request has an outcome, and each job runs the widths
//! that its regions say.

use super::ElasticityOptions;
use crate::sample::{self, CLEAN, MODEL, SCORE, Widths};
use crate::soak::faults::{self, Fault};
use crate::soak::figures::Durations;
use crate::soak::memory::Memory;
use crate::system::job::ObservedJob;
use crate::system::{Frontend, System};
use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_api::{ParallelRegion, PeOptions, Resize, ResizePhase};
use streams_control_plane::ControlPlane;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

/// Greatest widths.
const WIDEST: [(&str, u32); 3] = [(CLEAN, 4), (SCORE, 3), (MODEL, 3)];
/// Pods of a job of the greatest widths.
pub(super) const MOST_PODS: usize = 21;
/// No call should take longer.
const GOAL: Duration = Duration::from_secs(5);
/// What callers that stay allow for.
const PATIENCE: Duration = Duration::from_secs(15);
/// Calls at the same time; what would be more is not made, and counted.
const AT_ONCE: usize = 512;
/// Requests that the report of a failure names.
const NAMED: usize = 10;
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What became of the calls, and of the jobs.
#[derive(Debug, Default)]
pub(super) struct Flooded {
    /// How often each answer came: `committed` and the like, or code and reason.
    pub(super) answers: BTreeMap<String, usize>,
    /// Errors that do not say why, as text.
    pub(super) without_reason: Vec<String>,
    pub(super) committed: Durations,
    pub(super) accepted: Durations,
    /// Calls that took longer than the goal.
    pub(super) too_long: Vec<TooLong>,
    /// Calls that were not made: too many were under way.
    pub(super) not_made: usize,
    pub(super) deaths: usize,
    /// From the last call to the last job at rest.
    pub(super) rest: Duration,
    /// Outcomes of the requests that are still kept.
    pub(super) outcomes: BTreeMap<String, usize>,
    /// Generations that were committed.
    pub(super) generations: u64,
    pub(super) memory: Memory,
}

/// A call that took too long.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TooLong {
    /// From the first call to this one.
    pub(super) begins: Duration,
    pub(super) took: Duration,
    pub(super) answer: String,
}

impl Flooded {
    /// What must not be.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if let Some(first) = self.without_reason.first() {
            failures.push(format!("{} errors without a reason, the first: {first}", self.without_reason.len()));
        }
        if !self.too_long.is_empty() {
            failures.push(format!("{} calls took longer than {} s", self.too_long.len(), GOAL.as_secs()));
        }
        failures
    }
}

/// Measures it.
pub(super) async fn measure(
    control_plane: &ControlPlane,
    system: &System,
    options: &ElasticityOptions,
) -> Result<Flooded> {
    let mut memory = Memory::default();
    let client = control_plane.client().await?;
    let namespace = control_plane.namespace("flood").await?;
    let progress = Progress::begin(format!("{} jobs", options.jobs));
    let jobs = (0..options.jobs).map(|number| {
        let mut job = sample::job(&namespace, &format!("flood-{number}"));
        job.spec.processing_element = Some(PeOptions { restart_deleted_pod: true, ..PeOptions::default() });
        job
    });
    let jobs: Vec<_> = jobs.collect();
    let jobs: Vec<ObservedJob> =
        stream::iter(&jobs).map(|job| ObservedJob::create(&client, job)).buffered(16).try_collect().await?;
    for job in &jobs {
        job.settled(Widths::default(), options.within).await?;
    }
    progress.done();

    let flooded = Arc::new(Mutex::new(Flooded::default()));
    let progress = Progress::begin(format!("{} requests a second", options.per_second));
    let killing = kill(system, options, &flooded);
    let looking = async {
        loop {
            let processes = system.frontends().iter().map(Frontend::process).chain(system.fusion());
            processes.for_each(|process| memory.look(process));
            progress.at(format!("{:?}", flooded.lock().await.answers));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        done = ask_all(system, options, &jobs, &flooded) => done?,
        error = killing => return Err(error.context("a replica of the fusion service")),
        () = looking => {}
    }
    progress.done();

    let progress = Progress::begin("everything comes to rest");
    let start = Instant::now();
    let requests: Api<Resize> = Api::namespaced(client.clone(), &namespace);
    let mut outcomes = BTreeMap::new();
    eventually("each request has an outcome", options.within, || async {
        let all = requests.list(&ListParams::default()).await?;
        let open: Vec<_> = all.iter().filter(|request| !has_ended(request)).map(|r| r.name_any()).collect();
        let some: Vec<_> = open.iter().take(NAMED).collect();
        ensure!(open.is_empty(), "{} of {} have none, among them {some:?}", open.len(), all.items.len());
        Ok(())
    })
    .await?;
    for request in requests.list(&ListParams::default()).await? {
        let status = request.status.unwrap_or_default();
        let name = format!("{:?} {}", status.phase.unwrap_or_default(), status.reason.unwrap_or_default());
        *outcomes.entry(name.trim_end().to_owned()).or_default() += 1;
    }
    let mut generations = 0;
    for job in &jobs {
        let mut widths = Widths::default();
        job.list::<ParallelRegion>().await?.iter().for_each(|region| widths.set(&region.spec.name, region.spec.width));
        job.settled(widths, options.within).await?;
        generations += job.status().await?.generation.unwrap_or_default();
    }
    system.frontends().iter().map(Frontend::process).chain(system.fusion()).for_each(|process| memory.look(process));
    progress.done();
    let mut flooded = std::mem::take(&mut *flooded.lock().await);
    flooded.rest = start.elapsed();
    flooded.outcomes = outcomes;
    flooded.generations = generations;
    flooded.memory = memory;
    Ok(flooded)
}

fn has_ended(request: &Resize) -> bool {
    let phase = request.status.as_ref().and_then(|status| status.phase).unwrap_or_default();
    !matches!(phase, ResizePhase::Pending | ResizePhase::Planned | ResizePhase::Written)
}

/// Kills a replica of the fusion service now and then; ends only if it does not come back.
async fn kill(system: &System, options: &ElasticityOptions, flooded: &Mutex<Flooded>) -> anyhow::Error {
    let mut random = fastrand::Rng::with_seed(options.seed);
    loop {
        tokio::time::sleep(options.kill_every.mul_f64(-(1.0 - random.f64()).ln())).await;
        match faults::inject(Fault::Fusion, system, &[], &mut random).await {
            Ok(_) => flooded.lock().await.deaths += 1,
            Err(error) => return error,
        }
    }
}

/// What a caller does.
#[derive(Debug, Clone, Copy)]
enum Caller {
    Waits(WaitFor),
    LeavesAfter(Duration),
}

async fn ask_all(
    system: &System,
    options: &ElasticityOptions,
    jobs: &[ObservedJob],
    flooded: &Arc<Mutex<Flooded>>,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(options.seed.wrapping_add(1));
    let balancer = system.frontend()?.balancer().await?;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / options.per_second));
    let first = Instant::now();
    let end = first + options.duration;
    let mut calls = JoinSet::new();
    while Instant::now() < end {
        ticks.tick().await;
        let (Some(job), Some((region, widest))) = (random.choice(jobs), random.choice(WIDEST)) else {
            bail!("there is nothing to resize");
        };
        let caller = match random.u32(0..10) {
            0 => Caller::LeavesAfter(Duration::from_millis(random.u64(1..500))),
            1 => Caller::Waits(WaitFor::Accepted),
            _ => Caller::Waits(WaitFor::Committed),
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            flooded.lock().await.not_made += 1;
            continue;
        };
        let (job, width, balancer) = (job.clone(), random.u32(1..=widest), balancer.clone());
        let flooded = Arc::clone(flooded);
        calls.spawn(async move {
            call(balancer, &job, (region, width), caller, first, &flooded).await;
            drop(place);
        });
        while calls.try_join_next().is_some() {}
    }
    while let Some(ended) = calls.join_next().await {
        ended.context("a caller")?;
    }
    Ok(())
}

async fn call(
    mut balancer: ElasticityServiceClient<Channel>,
    job: &ObservedJob,
    width: (&str, u32),
    caller: Caller,
    first: Instant,
    flooded: &Mutex<Flooded>,
) {
    let (wait_for, leaves) = match caller {
        Caller::Waits(wait_for) => (wait_for, PATIENCE + PATIENCE),
        Caller::LeavesAfter(time) => (WaitFor::Committed, time),
    };
    let mut request = tonic::Request::new(job.resize_request(&[width], wait_for));
    if matches!(caller, Caller::Waits(_)) {
        request.set_timeout(PATIENCE);
    }
    let start = Instant::now();
    let answer = tokio::time::timeout(leaves, balancer.resize(request)).await;
    let took = start.elapsed();
    let mut flooded = flooded.lock().await;
    let name = match answer {
        Err(_) => "the caller left".to_owned(),
        Ok(Ok(_)) if wait_for == WaitFor::Accepted => {
            flooded.accepted.add(took);
            "accepted".to_owned()
        }
        Ok(Ok(_)) => {
            flooded.committed.add(took);
            "committed".to_owned()
        }
        Ok(Err(status)) => match status.get_error_details().error_info() {
            Some(info) => format!("{:?} {}", status.code(), info.reason),
            None => {
                flooded.without_reason.push(format!("{:?}: {}", status.code(), status.message()));
                format!("{:?} without a reason", status.code())
            }
        },
    };
    if took > GOAL {
        flooded.too_long.push(TooLong { begins: start.duration_since(first), took, answer: name.clone() });
    }
    *flooded.answers.entry(name).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::{MOST_PODS, WIDEST};
    use crate::sample::Widths;

    #[test]
    fn the_nodes_have_room_for_the_greatest_widths() {
        let mut widths = Widths::default();
        WIDEST.iter().for_each(|(region, width)| widths.set(region, *width));
        assert_eq!(widths.processing_elements(), MOST_PODS);
    }
}
