//! What a run measures: many jobs or a large one beside the bare client, and two tenants beside each other.

use super::bare::{self, Written};
use super::figures::Figures;
use super::{LoadOptions, Shape};
use crate::sample::{self, CLEAN, MODEL, SCORE};
use crate::soak::figures::Durations;
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
use streams_api::{Job, ProcessingElement, condition, names};
use streams_control_plane::ControlPlane;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// Time between two looks at how far things are; a look at hundreds of jobs costs the API server something, too.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// One call of the elasticity API.
const CALL_WITHIN: Duration = Duration::from_secs(300);

/// What one shape of load came to.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) shape: Shape,
    pub(super) pes: usize,
    /// From the first job to the last pod that runs, and to the last job that is ready.
    pub(super) running: Duration,
    pub(super) ready: Duration,
    /// Figures of that time.
    pub(super) submission: Figures,
    /// From the first width to the last job that is rolled out, and the figures of that time.
    pub(super) resized: Duration,
    pub(super) resize: Figures,
    /// Resident memory of the frontend before, and after, in bytes.
    pub(super) memory: [u64; 2],
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

fn memory(frontend: &Frontend) -> u64 {
    frontend.process().id().and_then(crate::soak::memory::resident).unwrap_or_default() * 1024
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
    let running = async {
        wait("all pods run", options.within, || async {
            let running = bare::running(&client, &all).await?;
            progress.at(format!("{running} of {expected} pods run"));
            Ok(running >= expected)
        })
        .await
        .map(|()| start.elapsed())
    };
    let ready = async {
        wait("all jobs are ready", options.within, || rolled_out(&client, &all, shape.jobs, 0))
            .await
            .map(|()| start.elapsed())
    };
    let (running, ready) = tokio::try_join!(running, ready)?;
    let after = Figures::of(frontend.http()).await?;
    progress.done();

    let memory = [before_memory, memory(frontend)];
    let written = Written::read(&client, &all).await?;
    ensure!(written.pods == expected, "{} pods for {expected} PEs", written.pods);

    let progress = Progress::begin("a resize of each");
    let begun = Instant::now();
    let width = shape.clean + 1;
    let resizing = stream::iter(&created).map(|job| job.set_width(CLEAN, width)).buffer_unordered(options.at_once);
    resizing.try_collect::<Vec<()>>().await?;
    wait("all resizes are rolled out", options.within, || rolled_out(&client, &all, shape.jobs, 1)).await?;
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
    written.write(&client, &others, options.at_once).await?;
    let wrote = start.elapsed();
    wait("all pods run", options.within, || async { Ok(bare::running(&client, &others).await? >= written.pods) })
        .await?;
    let ran = start.elapsed();
    leave(&client, &others, options.within).await?;
    progress.done();
    Ok(Measured {
        shape,
        pes: expected,
        running,
        ready,
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

/// Whether this number of jobs has rolled out this generation.
async fn rolled_out(client: &Client, namespaces: &[String], jobs: usize, generation: u64) -> Result<bool> {
    let mut done = 0;
    for namespace in namespaces {
        let api: Api<Job> = Api::namespaced(client.clone(), namespace);
        for job in api.list(&ListParams::default()).await? {
            let status = job.status.unwrap_or_default();
            let is_out = status.rollout.is_some_and(|out| out.generation == generation && out.finished_at.is_some());
            done += usize::from(is_out && condition::is_true(&status.conditions, condition::READY));
        }
    }
    Ok(done >= jobs)
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
    wait("the large job runs", options.within, || rolled_out(&client, std::slice::from_ref(&theirs), 1, 0)).await?;
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
    loop {
        let restarted = job.list::<ProcessingElement>().await?.into_iter().filter(|pe| {
            pe.status.as_ref().and_then(|status| status.restart_requested.as_deref()) == Some(asked.as_str())
        });
        if restarted.count() * 2 >= pes.len() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Shape {
    /// The width of `Clean` that gives a job this number of PEs.
    pub(super) fn clean_for(pes: usize) -> u32 {
        // Besides: source, sink, and a scorer of three.
        u32::try_from(pes.saturating_sub(5).max(1)).unwrap_or(u32::MAX)
    }

    pub(super) fn widths(self) -> sample::Widths {
        if self.clean == sample::Widths::default().clean {
            return sample::Widths::default();
        }
        sample::Widths { clean: self.clean, score: 1, model: 1 }
    }

    fn job(self, namespace: &str, number: usize) -> Job {
        let mut job = sample::job(namespace, &format!("load-{number}"));
        let widths = self.widths();
        let wanted = [(CLEAN, widths.clean), (SCORE, widths.score), (MODEL, widths.model)];
        job.spec.parallel_regions = wanted.map(|(region, width)| sample::initial_width(region, width)).into();
        // However loaded the machine is: what is measured is how long it takes.
        job.spec.submission_time_out_in_seconds = 86_400;
        job
    }
}
