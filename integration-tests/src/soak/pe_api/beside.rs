//! What else the frontend does meanwhile, for others than PEs: regions are asked for and resized, jobs are submitted.
//!
//! Knows: the elasticity API, small jobs. Must not know: PEs.

use crate::sample::{self, CLEAN};
use crate::soak::figures::Durations;
use crate::system::System;
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Result, bail};
use futures::future::join3;
use kube::Client;
use kube::api::DeleteParams;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use streams_api::{FusionOptions, Job, JobPhase};
use streams_proto::elasticity::v1::GetRegionRequest;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::transport::Channel;

/// Longest time for one of them.
const WITHIN: Duration = Duration::from_secs(120);
/// How often each is done, unless the one before takes longer: in each window as often, however long it takes.
const EVERY: [Duration; 3] = [Duration::from_millis(250), Duration::from_secs(4), Duration::from_secs(6)];
/// Time between two looks at a job.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whoever asks for something else.
pub(super) struct Others {
    client: Client,
    balancer: ElasticityServiceClient<Channel>,
    /// A job that is small.
    job: ObservedJob,
    /// How often it was resized.
    resizes: AtomicU32,
}

/// How long it took.
#[derive(Debug, Clone, Default)]
pub(super) struct Beside {
    /// A region was asked for.
    pub(super) region: Durations,
    /// A resize of the small job was committed.
    pub(super) committed: Durations,
    /// A new job of one PE ran.
    pub(super) submitted: Durations,
    /// What failed, in words.
    pub(super) failures: Vec<String>,
}

/// Asks for a width and waits.
pub(super) async fn resize(
    balancer: &ElasticityServiceClient<Channel>,
    job: &ObservedJob,
    width: (&str, u32),
    wait_for: WaitFor,
    within: Duration,
) -> Result<Duration> {
    let mut request = tonic::Request::new(job.resize_request(&[width], wait_for));
    request.set_timeout(within);
    let start = Instant::now();
    balancer.clone().resize(request).await.with_context(|| format!("{width:?}, {wait_for:?}"))?;
    Ok(start.elapsed())
}

impl Others {
    /// With a job of their own in this namespace.
    ///
    /// # Errors
    /// When it does not come to rest.
    pub(super) async fn start(client: &Client, system: &System, namespace: &str) -> Result<Self> {
        let job = ObservedJob::create(client, &sample::job(namespace, "small")).await?;
        job.settled(sample::Widths::default(), WITHIN).await?;
        let balancer = system.frontend()?.balancer().await?;
        Ok(Self { client: client.clone(), balancer, job, resizes: AtomicU32::new(0) })
    }

    /// The elasticity API.
    pub(super) fn balancer(&self) -> &ElasticityServiceClient<Channel> {
        &self.balancer
    }

    /// Does all of it, one after the other of each kind, until then.
    pub(super) async fn until(&self, until: Instant) -> Beside {
        let region = repeated(until, EVERY[0], async || self.region().await);
        let committed = repeated(until, EVERY[1], async || self.resized().await);
        let submitted = repeated(until, EVERY[2], async || self.submitted().await);
        let ((region, failures), (committed, more), (submitted, most)) = join3(region, committed, submitted).await;
        let failures = failures.into_iter().chain(more).chain(most).collect();
        Beside { region, committed, submitted, failures }
    }

    /// How long it takes until a resize is committed, whatever fails before.
    ///
    /// # Errors
    /// When none is within this time.
    pub(super) async fn first_resize(&self, within: Duration) -> Result<Duration> {
        let start = Instant::now();
        while let Err(error) = self.committed(self.width()).await {
            if start.elapsed() > within {
                return Err(error);
            }
            sleep(LOOK_EVERY).await;
        }
        self.resizes.fetch_add(1, Ordering::Relaxed);
        Ok(start.elapsed())
    }

    async fn region(&self) -> Result<Duration> {
        let request = GetRegionRequest {
            namespace: self.job.namespace().to_owned(),
            job: self.job.name().to_owned(),
            region: CLEAN.to_owned(),
        };
        let mut request = tonic::Request::new(request);
        request.set_timeout(WITHIN);
        let start = Instant::now();
        self.balancer.clone().get_region(request).await.context("a region")?;
        Ok(start.elapsed())
    }

    /// The width that the small job has not: up and down in turn.
    fn width(&self) -> u32 {
        if self.resizes.load(Ordering::Relaxed).is_multiple_of(2) { 3 } else { 2 }
    }

    async fn committed(&self, width: u32) -> Result<Duration> {
        resize(&self.balancer, &self.job, (CLEAN, width), WaitFor::Committed, WITHIN).await
    }

    async fn resized(&self) -> Result<Duration> {
        let width = self.width();
        let took = self.committed(width).await?;
        self.resizes.fetch_add(1, Ordering::Relaxed);
        resize(&self.balancer, &self.job, (CLEAN, width), WaitFor::RolledOut, WITHIN).await?;
        Ok(took)
    }

    async fn submitted(&self) -> Result<Duration> {
        let name = format!("new-{:08x}", fastrand::u32(..));
        let mut job = sample::job(self.job.namespace(), &name);
        job.spec.fusion = Some(FusionOptions { manual: NonZeroU32::new(1), ..FusionOptions::default() });
        let start = Instant::now();
        let job = ObservedJob::create(&self.client, &job).await?;
        while job.status().await?.phase != Some(JobPhase::Running) {
            if start.elapsed() > WITHIN {
                bail!("{name} does not run");
            }
            sleep(LOOK_EVERY).await;
        }
        let took = start.elapsed();
        job.api::<Job>().delete(&name, &DeleteParams::background()).await?;
        Ok(took)
    }
}

/// Does something again and again until then: how long each took, and what failed.
async fn repeated(
    until: Instant,
    every: Duration,
    mut once: impl AsyncFnMut() -> Result<Duration>,
) -> (Durations, Vec<String>) {
    let (mut durations, mut failures) = (Durations::default(), Vec::new());
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if Instant::now() >= until {
            break;
        }
        match once().await {
            Ok(took) => durations.add(took),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    (durations, failures)
}
