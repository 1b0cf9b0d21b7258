//! Resizes regions all the time, several at once, while processes and pods die. Now and then no faults are injected
//! until the jobs have settled. Then every PE of the newest widths must run in exactly one pod, no other object of the
//! job may exist, and the applied widths must be the desired ones. Each request that changes a width must lead to
//! exactly one generation. At the end the run deletes the jobs, and none of their objects may stay.
//!
//! Knows: widths, what a job consists of. Must not know: how a fault is injected.

use super::faults::{self, Fault};
use super::figures::Durations;
use super::memory::Memory;
use crate::sample::{self, CLEAN, MODEL, SCORE, Widths};
use crate::system::job::ObservedJob;
use crate::system::rights::FrontendRights;
use crate::system::snapshot::Snapshot;
use crate::system::{self, Frontend, Programs, SHORT_LEASE, System};
use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::api::DeleteParams;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use streams_api::{Job, PeOptions, crds};
use streams_control_plane::ControlPlane;
use streams_control_plane::process::Supervisor;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::ResizeResponse;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::sync::{Mutex, RwLock, watch};
use tonic::Code;

/// Greatest widths: of `Clean`, `Score` and `Score.Model`.
const WIDEST: Widths = Widths { clean: 6, score: 3, model: 3 };
/// A resize that has not come to its end by then is stuck. Pods that fail again and again wait for some minutes.
const THROUGH_WITHIN: Duration = Duration::from_secs(300);
/// How long a job may take to come to rest once nothing disturbs it.
const SETTLED_WITHIN: Duration = Duration::from_secs(600);
/// A single call; it is repeated until the resize is through.
const CALL_WITHIN: Duration = Duration::from_secs(60);
const BETWEEN_CALLS: Duration = Duration::from_millis(200);
/// Time between two looks at the memory of the services.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks for services that have ended.
const REVIVE_EVERY: Duration = Duration::from_secs(1);
/// Resizes of a job between two checks.
const CHECK_EVERY: u32 = 10;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// How long new resizes are begun.
    pub duration: Duration,
    /// Seed of the random widths and faults.
    pub seed: u64,
    /// Number of jobs.
    pub jobs: usize,
    /// Replicas of the frontend.
    pub frontends: usize,
    /// Mean time between two faults; `None`: none is injected.
    pub fault_every: Option<Duration>,
}

/// What a run has done, and how long it took.
#[derive(Debug, Default)]
pub struct SoakOutcome {
    /// Resizes that were rolled out.
    pub resizes: usize,
    /// Of those, how many asked for more than one region.
    pub of_several_regions: usize,
    /// Calls that had to be repeated.
    pub repeated_calls: usize,
    /// Pods that were kept, replaced, added and removed by the resizes.
    pub pods: [usize; 4],
    /// Services that ended by themselves and were started again, as a kubelet would: a frontend ends when it cannot
    /// renew its lease in time.
    pub ended_by_themselves: usize,
    /// Faults by kind.
    pub faults: BTreeMap<Fault, usize>,
    /// Number of checks that found every object as it must be.
    pub checks: usize,
    /// From the request to the answer that the generation is committed, if no fault was injected meanwhile.
    pub committed: Durations,
    /// From the request to the answer that it is rolled out, if no fault was injected meanwhile.
    pub rolled_out: Durations,
    /// The same, if faults were injected meanwhile.
    pub committed_under_faults: Durations,
    /// The same, if faults were injected meanwhile.
    pub rolled_out_under_faults: Durations,
    /// From the end of the faults until everything was in its place.
    pub settled: Durations,
    /// Memory of the services, from the time at which all jobs ran for the first time to the time at which they had
    /// come to rest for the last time.
    pub memory: Memory,
    /// Objects of each kind that the jobs consisted of at the end.
    pub objects: BTreeMap<String, usize>,
    /// Objects that were there after the jobs had been deleted; `None` when it did not come to that.
    pub left_over: Option<usize>,
    /// How long it took altogether.
    pub took: Duration,
    /// The commit that was measured, as it was when the run began.
    pub commit: String,
}

/// A run that has ended: what was done, and why it ended early if it did.
#[derive(Debug)]
pub struct EndedRun {
    /// What was done.
    pub outcome: SoakOutcome,
    /// What went wrong.
    pub failure: Option<anyhow::Error>,
    /// Where the logs are, if something did.
    pub logs: Option<PathBuf>,
}

/// What the tasks of a run share.
struct SoakRun {
    system: System,
    jobs: Vec<ObservedJob>,
    outcome: Mutex<SoakOutcome>,
    /// Held for reading while a fault is injected, for writing while a check needs a system without faults.
    calm: RwLock<()>,
    /// Held while processes are killed or started.
    processes: Mutex<()>,
    /// Faults injected so far.
    faults: watch::Sender<u64>,
    /// No more resizes are begun.
    over: watch::Sender<bool>,
}

/// Runs it.
///
/// # Errors
/// The run cannot begin. Later failures are in the result.
pub async fn run(supervisor: &Supervisor, options: &SoakOptions, stop: impl Future<Output = ()>) -> Result<EndedRun> {
    let commit = super::commit::commit();
    let programs = Programs::build(supervisor).await?;
    let progress = Progress::begin("control plane and services");
    let control_plane = ControlPlane::start(
        supervisor,
        &streams_control_plane::Options { crds: crds::crds()?, ..streams_control_plane::Options::default() },
    )
    .await?;
    let client = control_plane.client().await?;
    let namespace = control_plane.namespace("soak").await?;
    let rights = FrontendRights::give(&control_plane).await?;
    rights.lease_in(&client, &namespace).await?;
    let system_options = system::SystemOptions {
        kubeconfig: rights.kubeconfig().to_owned(),
        namespace: Some(namespace.clone()),
        fusion_replicas: 2,
        frontend_replicas: options.frontends,
        frontend_arguments: SHORT_LEASE.map(str::to_owned).into(),
        pe_api: Vec::new(),
        environment: Vec::new(),
    };
    let system = System::start(supervisor, &programs, &system_options).await?;
    sample::write_bundle(system.bundles())?;
    progress.done();

    let progress = Progress::begin(format!("{} jobs", options.jobs));
    let jobs = (0..options.jobs).map(|number| job(&namespace, number)).collect::<Vec<_>>();
    let jobs = try_join_all(jobs.iter().map(|job| ObservedJob::create(&client, job))).await?;
    try_join_all(jobs.iter().map(|job| job.settled(Widths::default(), SETTLED_WITHIN))).await?;
    progress.done();

    let run = SoakRun {
        system,
        jobs,
        outcome: Mutex::new(SoakOutcome { commit, ..SoakOutcome::default() }),
        calm: RwLock::new(()),
        processes: Mutex::new(()),
        faults: watch::Sender::new(0),
        over: watch::Sender::new(false),
    };
    let start = Instant::now();
    let mut failure = run.everything(options, stop).await.err();
    run.outcome.lock().await.took = start.elapsed();
    if failure.is_none() {
        failure = run.leave_nothing().await.err();
    }
    let outcome = run.outcome.into_inner();
    let logs = failure.as_ref().map(|_| {
        run.system.state().leave();
        run.system.state().path().to_owned()
    });
    drop(run.system);
    control_plane.stop().await?;
    Ok(EndedRun { outcome, failure, logs })
}

fn job(namespace: &str, number: usize) -> Job {
    let mut job =
        sample::job(namespace, &format!("sensors-{}", char::from(b'a' + u8::try_from(number % 26).unwrap_or(0))));
    job.spec.processing_element = Some(PeOptions { restart_deleted_pod: true, ..PeOptions::default() });
    job
}

impl SoakRun {
    async fn everything(&self, options: &SoakOptions, stop: impl Future<Output = ()>) -> Result<()> {
        let progress = Progress::begin(format!("resizes for {} s", options.duration.as_secs()));
        let balancing = try_join_all(self.jobs.iter().enumerate().map(|(number, job)| {
            self.balance(job, fastrand::Rng::with_seed(options.seed.wrapping_add(number as u64 + 1)), &progress)
        }));
        let work = async { tokio::try_join!(balancing, self.inject(options)).map(drop) };
        self.look().await;
        let time = async {
            tokio::select! {
                () = tokio::time::sleep(options.duration) => {}
                () = stop => {}
            }
            self.over.send_replace(true);
            std::future::pending().await
        };
        let looking = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                self.look().await;
            }
        };
        tokio::select! {
            done = work => done?,
            () = time => {}
            () = looking => {}
            ended = self.revive() => ended?,
        }
        self.look().await;
        progress.done();
        Ok(())
    }

    /// Starts services again that have ended by themselves.
    async fn revive(&self) -> Result<()> {
        loop {
            tokio::time::sleep(REVIVE_EVERY).await;
            let _processes = self.processes.lock().await;
            self.revive_once().await?;
        }
    }

    /// The caller holds the lock of the processes.
    async fn revive_once(&self) -> Result<()> {
        for frontend in self.system.frontends().iter().filter(|frontend| frontend.process().id().is_none()) {
            frontend.start_again().await?;
            self.outcome.lock().await.ended_by_themselves += 1;
        }
        for (number, replica) in self.system.fusion().enumerate().filter(|(_, replica)| replica.id().is_none()) {
            replica.start_again().await?;
            self.system.fusion_ready(number).await?;
            self.outcome.lock().await.ended_by_themselves += 1;
        }
        Ok(())
    }

    /// Looks at the memory of the services.
    async fn look(&self) {
        let mut outcome = self.outcome.lock().await;
        for process in self.system.frontends().iter().map(Frontend::process).chain(self.system.fusion()) {
            outcome.memory.look(process);
        }
    }

    /// Deletes the jobs: nothing of them may stay.
    async fn leave_nothing(&self) -> Result<()> {
        for job in &self.jobs {
            for name in job.inventory().await?.names() {
                let kind = name.split(' ').next().unwrap_or_default().to_owned();
                *self.outcome.lock().await.objects.entry(kind).or_default() += 1;
            }
            job.api::<Job>().delete(job.name(), &DeleteParams::foreground()).await?;
        }
        for job in &self.jobs {
            let what = format!("nothing is left of {}", job.name());
            eventually(&what, SETTLED_WITHIN, || async {
                let left = job.inventory().await?.names();
                ensure!(left.is_empty(), "{} objects are: {}", left.len(), left.join(", "));
                ensure!(job.api::<Job>().get_opt(job.name()).await?.is_none(), "the job itself is");
                Ok(())
            })
            .await?;
        }
        let mut left = 0;
        for job in &self.jobs {
            left += job.inventory().await?.names().len();
        }
        self.outcome.lock().await.left_over = Some(left);
        Ok(())
    }

    /// Resizes one job, time and again, until it is over.
    async fn balance(&self, job: &ObservedJob, mut random: fastrand::Rng, progress: &Progress) -> Result<()> {
        let mut widths = Widths::default();
        let (mut since_check, mut generation) = (0, 0);
        while !*self.over.borrow() {
            let before = widths;
            let wanted = choose(&mut widths, &mut random);
            generation += u64::from(widths != before);
            let resized = self.resize(job, &wanted, generation).await;
            resized.with_context(|| format!("job {}: {before:?}, {wanted:?}", job.name()))?;
            since_check += 1;
            if since_check == CHECK_EVERY {
                self.check(job, &widths).await?;
                since_check = 0;
            }
            let outcome = self.outcome.lock().await;
            let faults: usize = outcome.faults.values().sum();
            progress.at(format!("{} resizes, {faults} faults, {} checks", outcome.resizes, outcome.checks));
        }
        self.check(job, &widths).await
    }

    /// Resizes a job, which must lead to this generation.
    async fn resize(&self, job: &ObservedJob, wanted: &[(&'static str, u32)], generation: u64) -> Result<()> {
        let faults = *self.faults.borrow();
        let before = job.snapshot().await.unwrap_or_default();
        let start = Instant::now();
        let answer = self.ask(job, wanted, WaitFor::Committed).await?;
        let committed = start.elapsed();
        ensure!(answer.generation == Some(generation), "generation {:?} instead of {generation}", answer.generation);
        let quiet = *self.faults.borrow() == faults;
        self.ask(job, wanted, WaitFor::RolledOut).await?;
        let rolled_out = start.elapsed();
        let after = job.snapshot().await.unwrap_or_default();
        let mut outcome = self.outcome.lock().await;
        outcome.resizes += 1;
        outcome.of_several_regions += usize::from(wanted.len() > 1);
        outcome.count(&before, &after);
        if quiet { &mut outcome.committed } else { &mut outcome.committed_under_faults }.add(committed);
        let quiet = *self.faults.borrow() == faults;
        if quiet { &mut outcome.rolled_out } else { &mut outcome.rolled_out_under_faults }.add(rolled_out);
        Ok(())
    }

    /// Asks until the answer comes: whoever was asked may be dead by now. The same widths can be asked for any number
    /// of times.
    async fn ask(
        &self,
        job: &ObservedJob,
        wanted: &[(&'static str, u32)],
        wait_for: WaitFor,
    ) -> Result<ResizeResponse> {
        let deadline = Instant::now() + THROUGH_WITHIN;
        let frontends = self.system.frontends().iter().cycle();
        let mut last = None;
        for frontend in frontends {
            ensure!(Instant::now() < deadline, "not through within {THROUGH_WITHIN:?}; last answer: {last:?}");
            let mut request = tonic::Request::new(job.resize_request(wanted, wait_for));
            request.set_timeout(CALL_WITHIN);
            let answer = match frontend.balancer().await {
                Ok(mut balancer) => balancer.resize(request).await,
                Err(error) => Err(tonic::Status::unavailable(format!("{error:#}"))),
            };
            match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) if may_pass(&status) => last = Some(status),
                Err(status) => return Err(status.into()),
            }
            self.outcome.lock().await.repeated_calls += 1;
            tokio::time::sleep(BETWEEN_CALLS).await;
        }
        anyhow::bail!("there is no frontend")
    }

    /// No faults: everything must come to rest in its place.
    async fn check(&self, job: &ObservedJob, widths: &Widths) -> Result<()> {
        let _calm = self.calm.write().await;
        let start = Instant::now();
        job.settled(*widths, SETTLED_WITHIN).await?;
        let mut outcome = self.outcome.lock().await;
        outcome.checks += 1;
        outcome.settled.add(start.elapsed());
        Ok(())
    }

    async fn inject(&self, options: &SoakOptions) -> Result<()> {
        let Some(every) = options.fault_every else { return Ok(()) };
        let mut random = fastrand::Rng::with_seed(options.seed);
        let mut over = self.over.subscribe();
        loop {
            // Exponential intervals: as likely at one moment as at any other.
            let pause = every.mul_f64(-(1.0 - random.f64()).ln());
            if tokio::time::timeout(pause, over.wait_for(|over| *over)).await.is_ok() {
                return Ok(());
            }
            let Some(fault) = random.choice(Fault::ALL) else { continue };
            let _injecting = self.calm.read().await;
            let _processes = self.processes.lock().await;
            self.revive_once().await?;
            self.faults.send_modify(|faults| *faults += 1);
            let hit = faults::inject(fault, &self.system, &self.jobs, &mut random).await;
            if hit.with_context(|| fault.to_string())? {
                *self.outcome.lock().await.faults.entry(fault).or_default() += 1;
            }
            self.faults.send_modify(|faults| *faults += 1);
        }
    }
}

impl SoakOutcome {
    fn count(&mut self, before: &Snapshot, after: &Snapshot) {
        let difference = after.since(before);
        let counts = [&difference.kept, &difference.restarted, &difference.added, &difference.removed];
        for (sum, list) in self.pods.iter_mut().zip(counts) {
            *sum += list.len();
        }
    }
}

/// What may pass by itself: nobody answers, it takes long, it does not know the job yet because it has just been
/// started.
fn may_pass(status: &tonic::Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted | Code::NotFound
    )
}

/// One to three regions and other widths for them.
fn choose(widths: &mut Widths, random: &mut fastrand::Rng) -> Vec<(&'static str, u32)> {
    let mut regions = [(CLEAN, WIDEST.clean), (SCORE, WIDEST.score), (MODEL, WIDEST.model)];
    random.shuffle(&mut regions);
    let count = random.usize(1..=regions.len());
    let chosen = regions.into_iter().take(count);
    let chosen: Vec<_> = chosen.map(|(region, widest)| (region, random.u32(1..=widest))).collect();
    for (region, width) in &chosen {
        widths.set(region, *width);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::{WIDEST, choose};
    use crate::sample::Widths;

    #[test]
    fn the_same_seed_asks_for_the_same_widths_within_bounds() {
        let run = || {
            let (mut widths, mut random) = (Widths::default(), fastrand::Rng::with_seed(7));
            let chosen = (0..50).map(|_| (choose(&mut widths, &mut random), widths));
            chosen.collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
        for (chosen, widths) in run() {
            assert!((1..=3).contains(&chosen.len()), "{chosen:?}");
            for (region, width) in chosen {
                assert!(width >= 1 && widths.by_region().get(region) == Some(&width), "{region} {width}");
            }
            let [most, have] = [WIDEST, widths].map(|w| w.by_region());
            assert!(have.iter().all(|(region, width)| most.get(region) >= Some(width)), "{widths:?}");
        }
    }
}
