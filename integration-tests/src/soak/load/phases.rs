//! What a run measures: many jobs or a large one beside the bare client, and two tenants beside each other.
//!
//! Knows: jobs, times, tenants. Must not know: how a report is written.

use super::bare::{Awaited, Written};
use super::{LoadOptions, Shape};
use crate::sample::{self, CLEAN, MODEL, SCORE};
use crate::soak::figures::Durations;
use crate::soak::memory::{Parts, parts};
use crate::soak::metrics::Figures;
use crate::system::job::ObservedJob;
use crate::system::{Frontend, System};
use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::time::{Duration, Instant};
use streams_api::{Job, ProcessingElement, Rollout, condition, names};
use streams_control_plane::ControlPlane;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// Time between two looks at how far things are; a look at hundreds of jobs costs the API server something, too.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// One call of the elasticity API.
const CALL_WITHIN: Duration = Duration::from_secs(300);
/// How long jobs rest before the frontend's memory is measured once more: after the last look that describes them,
/// which a crowd puts off for up to a minute, it keeps plans unpacked for another one.
pub(super) const REST: Duration = Duration::from_secs(150);
/// PEs of a large job that are looked at while all restart.
const LOOKED_AT: usize = 16;

/// What one shape of load came to.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) shape: Shape,
    pub(super) pes: usize,
    /// From the first job to the last pod that runs, and to the last job that is ready.
    pub(super) running: Duration,
    pub(super) ready: Duration,
    /// Figures of the time until the last pod runs.
    pub(super) until_running: Figures,
    /// Figures of the time until the last job is ready.
    pub(super) submission: Figures,
    /// From the first width to the last job that is rolled out, and the figures of that time.
    pub(super) resized: Duration,
    pub(super) resize: Figures,
    /// Resident memory of the frontend before, after, and when the jobs have rested for a while.
    pub(super) memory: [Parts; 3],
    /// Bytes that the mirrors hold, as JSON.
    pub(super) mirrored: u64,
    /// The bare client: objects, the time until all were written, and until all pods ran.
    pub(super) bare: (usize, Duration, Duration),
}

/// What two tenants came to.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// Resizes of one while the other does nothing, and while it does its worst.
    pub(super) quiet: Durations,
    pub(super) hostile: Durations,
    pub(super) restarts: usize,
}

/// Namespaces of a run.
async fn namespaces(control_plane: &ControlPlane, count: usize) -> Result<Vec<String>> {
    try_join_all((0..count).map(|_| control_plane.namespace("load"))).await
}

/// Deletes namespaces and waits until they are gone.
async fn leave(client: &Client, all: &[String], within: Duration) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in all {
        namespaces.delete(name, &DeleteParams::background()).await?;
    }
    eventually("the namespaces are gone", within, || async {
        for name in all {
            ensure!(namespaces.get_opt(name).await?.is_none(), "{name} is there");
        }
        Ok(())
    })
    .await
}

fn memory(frontend: &Frontend) -> Parts {
    frontend.process().id().and_then(parts).unwrap_or_default()
}

/// Measures the frontend, then the bare client.
pub(super) async fn measure(
    control_plane: &ControlPlane,
    system: System,
    options: &LoadOptions,
    shape: Shape,
) -> Result<Measured> {
    let client = control_plane.client().await?;
    let frontend = system.frontend()?;
    let all = namespaces(control_plane, shape.namespaces).await?;
    let before_memory = memory(frontend);
    let expected = shape.jobs * shape.widths().processing_elements();
    let progress = Progress::begin(format!("{} jobs, {expected} PEs", shape.jobs));

    let before = Figures::of(frontend.http()).await?;
    let start = Instant::now();
    let jobs =
        (0..shape.jobs).filter_map(|number| all.get(number % all.len()).map(|namespace| shape.job(namespace, number)));
    let jobs: Vec<Job> = jobs.collect();
    let created = stream::iter(&jobs).map(|job| ObservedJob::create(&client, job)).buffered(options.at_once);
    let created: Vec<ObservedJob> = created.try_collect().await?;
    let mut awaited = Awaited::new(shape.pods(&all));
    wait("all pods run", options.within, async || {
        progress.at(format!("namespaces with pods that do not run: {}", awaited.left()));
        awaited.run(&client).await
    })
    .await?;
    let running = start.elapsed();
    let at_running = Figures::of(frontend.http()).await?;
    wait_rolled_out(&client, &all, 0, options.within).await.context("all jobs are ready")?;
    let ready = start.elapsed();
    let after = Figures::of(frontend.http()).await?;
    progress.done();

    let after_memory = memory(frontend);
    let progress = Progress::begin("the jobs rest");
    tokio::time::sleep(REST).await;
    progress.done();
    let memory = [before_memory, after_memory, memory(frontend)];
    let written = Written::read(&client, &all).await?;
    ensure!(written.pods == expected, "{} pods for {expected} PEs", written.pods);

    let progress = Progress::begin("a resize of each");
    let begun = Instant::now();
    let width = shape.clean + 1;
    let resizing = stream::iter(&created).map(|job| job.set_width(CLEAN, width)).buffer_unordered(options.at_once);
    resizing.try_collect::<Vec<()>>().await?;
    wait_rolled_out(&client, &all, 1, options.within).await.context("all resizes")?;
    let resized = begun.elapsed();
    let last = Figures::of(frontend.http()).await?;
    progress.done();

    // The bare client has the machine for itself, as the frontend had.
    drop(system);
    let progress = Progress::begin("namespaces go");
    leave(&client, &all, options.within).await?;
    progress.done();
    let progress = Progress::begin("the bare client");
    let others = namespaces(control_plane, shape.namespaces).await?;
    let start = Instant::now();
    let writing = async {
        let written = written.write(&client, &others, options.at_once).await;
        written.map(|()| start.elapsed())
    };
    // Looked at as often as beside the frontend.
    let coming_up = async {
        let mut awaited = written.awaited(&others);
        let running = wait("all pods run", options.within, async || awaited.run(&client).await).await;
        running.map(|()| start.elapsed())
    };
    let (wrote, ran) = tokio::try_join!(writing, coming_up)?;
    leave(&client, &others, options.within).await?;
    progress.done();
    Ok(Measured {
        shape,
        pes: expected,
        running,
        ready,
        until_running: at_running.since(&before),
        submission: after.since(&before),
        resized,
        resize: last.since(&after),
        memory,
        mirrored: written.mirrored,
        bare: (written.count(), wrote, ran),
    })
}

/// Waits with a pause between looks that does not grow: what is measured must not depend on how long it takes.
async fn wait(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + within;
    while !is_so().await? {
        ensure!(Instant::now() < deadline, "{what}: not within {within:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Waits until all jobs of these namespaces have rolled out this generation, one namespace after the other.
async fn wait_rolled_out(client: &Client, namespaces: &[String], generation: u64, within: Duration) -> Result<()> {
    let mut left = namespaces.to_vec();
    wait("rolled out", within, async || {
        while let Some(namespace) = left.last() {
            let jobs = Api::<Job>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
            if !jobs.iter().all(|job| is_rolled_out(job, generation)) {
                return Ok(false);
            }
            left.pop();
        }
        Ok(true)
    })
    .await
}

fn is_rolled_out(job: &Job, generation: u64) -> bool {
    job.status.as_ref().is_some_and(|status| {
        let is_out = |out: &Rollout| out.generation == generation && out.finished_at.is_some();
        status.rollout.as_ref().is_some_and(is_out) && condition::is_true(&status.conditions, condition::READY)
    })
}

/// One tenant resizes; the other does nothing at first, and then its worst.
pub(super) async fn tenants(control_plane: &ControlPlane, system: &System, options: &LoadOptions) -> Result<Tenants> {
    let client = control_plane.client().await?;
    let (ours, theirs) = (control_plane.namespace("tenant").await?, control_plane.namespace("hostile").await?);
    let job = ObservedJob::create(&client, &sample::job(&ours, "ours")).await?;
    job.settled(sample::Widths::default(), options.within).await?;
    let mut tenants = Tenants::default();
    let progress = Progress::begin("a tenant alone");
    resize(&job, system, options.resizes, &mut tenants.quiet).await?;
    progress.done();

    let progress = Progress::begin(format!("a hostile tenant: {} PEs", options.hostile_pes));
    let large = Shape { jobs: 1, namespaces: 1, clean: Shape::clean_for(options.hostile_pes) };
    let large = ObservedJob::create(&client, &large.job(&theirs, 0)).await?;
    wait_rolled_out(&client, std::slice::from_ref(&theirs), 0, options.within).await.context("the large job")?;
    progress.done();
    // Nobody ever answers there.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/slow.sab", silent.local_addr()?);
    for number in 0..12 {
        let mut slow = sample::job(&theirs, &format!("slow-{number}"));
        slow.spec.bundle.file = None;
        slow.spec.bundle.url = Some(url.clone());
        ObservedJob::create(&client, &slow).await?;
    }
    // No pod more than there are: those of these jobs are refused.
    let refusing = control_plane.namespace("refusing").await?;
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), &refusing);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    for number in 0..10 {
        ObservedJob::create(&client, &sample::job(&refusing, &format!("refused-{number}"))).await?;
    }
    let progress = Progress::begin("a tenant beside a hostile one");
    let restarts = std::sync::atomic::AtomicUsize::new(0);
    let hostile = async {
        loop {
            let number = restarts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if let Err(error) = restart(&client, &large, number).await {
                return error;
            }
        }
    };
    let resizing = resize(&job, system, options.resizes, &mut tenants.hostile);
    tokio::select! {
        result = resizing => result?,
        error = hostile => return Err(error.context("the hostile tenant")),
    }
    tenants.restarts = restarts.into_inner();
    progress.done();
    for namespace in [&theirs, &refusing] {
        Api::<Namespace>::all(client.clone()).delete(namespace, &DeleteParams::background()).await?;
    }
    Ok(tenants)
}

/// Resizes a job time and again: how long until each is rolled out.
async fn resize(job: &ObservedJob, system: &System, times: usize, durations: &mut Durations) -> Result<()> {
    for number in 0..times {
        let width = if number % 2 == 0 { 3 } else { 2 };
        let mut request = tonic::Request::new(job.resize_request(&[(CLEAN, width)], WaitFor::RolledOut));
        request.set_timeout(CALL_WITHIN);
        let start = Instant::now();
        system.frontend()?.balancer().await?.resize(request).await.context("a resize of the quiet tenant")?;
        durations.add(start.elapsed());
    }
    Ok(())
}

/// All PEs of a job restart; returns when all were asked and half of them have.
async fn restart(client: &Client, job: &ObservedJob, number: usize) -> Result<()> {
    let api: Api<ProcessingElement> = Api::namespaced(client.clone(), job.namespace());
    let asked = number.to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: asked}}}));
    let pes = job.list::<ProcessingElement>().await?;
    let asking = stream::iter(&pes).map(|pe| {
        let (api, patch) = (api.clone(), patch.clone());
        async move { api.patch(&pe.name_any(), &PatchParams::default(), &patch).await.map(drop) }
    });
    asking.buffer_unordered(16).try_collect::<Vec<()>>().await?;
    // Some of them stand for all: a look at each costs the API server more than what the tenant asked.
    let some: Vec<String> =
        pes.iter().step_by(pes.len().div_ceil(LOOKED_AT).max(1)).map(kube::ResourceExt::name_any).collect();
    wait("half of the PEs have restarted", CALL_WITHIN, async || {
        let looked = try_join_all(some.iter().map(|name| api.get(name))).await?;
        let has = |pe: &&ProcessingElement| {
            pe.status.as_ref().and_then(|status| status.restart_requested.as_deref()) == Some(asked.as_str())
        };
        Ok(looked.iter().filter(has).count() * 2 >= some.len())
    })
    .await
}

impl Shape {
    /// The width of `Clean` that gives a job this number of PEs.
    pub(super) fn clean_for(pes: usize) -> u32 {
        // Besides: source, sink, and a scorer of three.
        u32::try_from(pes.saturating_sub(5).max(1)).unwrap_or(u32::MAX)
    }

    pub(in crate::soak) fn widths(self) -> sample::Widths {
        if self.clean == sample::Widths::default().clean {
            return sample::Widths::default();
        }
        sample::Widths { clean: self.clean, score: 1, model: 1 }
    }

    /// Pods of each of these namespaces; jobs are dealt out to them in turn.
    fn pods(self, namespaces: &[String]) -> impl Iterator<Item = (String, usize)> {
        let (jobs, all, pes) = (self.jobs, namespaces.len().max(1), self.widths().processing_elements());
        let jobs_of = move |index: usize| jobs / all + usize::from(index < jobs % all);
        namespaces.iter().cloned().enumerate().map(move |(index, namespace)| (namespace, jobs_of(index) * pes))
    }

    pub(in crate::soak) fn job(self, namespace: &str, number: usize) -> Job {
        let mut job = sample::job(namespace, &format!("load-{number}"));
        let widths = self.widths();
        let wanted = [(CLEAN, widths.clean), (SCORE, widths.score), (MODEL, widths.model)];
        job.spec.parallel_regions = wanted.map(|(region, width)| sample::initial_width(region, width)).into();
        // However loaded the machine is: what is measured is how long it takes.
        job.spec.submission_time_out_in_seconds = 86_400;
        job
    }
}
