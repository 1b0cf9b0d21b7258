//! One request after the other: how long until the generation is committed, and until it is rolled out.

use super::background::submissions;
use super::bare::Writes;
use super::{ElasticityOptions, Lane, Pace, Shape};
use crate::sample::{CLEAN, Widths};
use crate::soak::figures::Durations;
use crate::system::System;
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Result};
use kube::api::{Api, DeleteParams, ListParams};
use std::time::{Duration, Instant};
use streams_api::Job;
use streams_control_plane::ControlPlane;
use streams_control_plane::progress::Progress;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tonic::transport::Channel;

/// From a job of this many PEs on, the API server cleans up for a while after all of its objects were listed.
const LARGE: usize = 100;
/// How long that is waited for.
const QUIET: Duration = Duration::from_secs(2);

/// How long requests to one job took.
#[derive(Debug)]
pub(super) struct Latency {
    pub(super) lane: Lane,
    /// Submissions that were compiled meanwhile.
    pub(super) submitted: usize,
    pub(super) committed: Durations,
    pub(super) rolled_out: Durations,
    /// Objects that one request creates before the commit, and how long the bare client takes for them.
    pub(super) bare: Option<(usize, Durations)>,
}

/// Measures it.
pub(super) async fn measure(
    control_plane: &ControlPlane,
    system: System,
    options: &ElasticityOptions,
    lane: Lane,
) -> Result<Latency> {
    let Lane { shape, times, pace, background } = lane;
    let client = control_plane.client().await?;
    let job = settled_job(control_plane, shape, options, "latency").await?;
    let beside = if background.0 > 0 { format!(" beside {} submissions", background.0) } else { String::new() };
    let progress = Progress::begin(format!("{times} requests{beside}"));
    let mut latency =
        Latency { lane, submitted: 0, committed: Durations::default(), rolled_out: Durations::default(), bare: None };
    let mut balancer = system.frontend()?.balancer().await?;
    let submitted = std::sync::atomic::AtomicUsize::new(0);
    let requests = async {
        for number in 0..times {
            let width = shape.clean + u32::from(number.is_multiple_of(2));
            let start = Instant::now();
            ask(&mut balancer, &job, width, WaitFor::Committed, options.within, None).await?;
            latency.committed.add(start.elapsed());
            ask(&mut balancer, &job, width, WaitFor::RolledOut, options.within, None).await?;
            latency.rolled_out.add(start.elapsed());
            settle(&job, width, lane, options.within).await?;
            progress.at(format!("{} done", number + 1));
        }
        anyhow::Ok(())
    };
    let beside = submissions(control_plane, system.bundles(), background, &submitted);
    tokio::select! {
        done = requests => done?,
        error = beside => return Err(error.context("the submissions beside it")),
    }
    latency.submitted = submitted.into_inner();
    progress.done();
    if background.0 > 0 || pace == Pace::AtOnce {
        return Ok(latency);
    }

    // What one more request creates; the bare client does the same when nobody else is there.
    let before = Writes::there(&job).await?;
    let width = shape.clean + u32::from(times.is_multiple_of(2));
    ask(&mut balancer, &job, width, WaitFor::Committed, options.within, None).await?;
    let writes = Writes::since(&job, &before).await?;
    ask(&mut balancer, &job, width, WaitFor::RolledOut, options.within, None).await?;
    drop(system);
    let progress = Progress::begin("the bare client");
    let mut durations = Durations::default();
    for _ in 0..times.min(20) {
        let namespace = control_plane.namespace("bare").await?;
        durations.add(writes.write(&client, &namespace).await?);
        // The next frontend has nothing to do with its job.
        Api::<Job>::namespaced(client.clone(), &namespace)
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await?;
    }
    progress.done();
    latency.bare = Some((writes.count(), durations));
    Ok(latency)
}

/// Waits until the next request may be made.
pub(super) async fn settle(job: &ObservedJob, width: u32, lane: Lane, within: Duration) -> Result<()> {
    match lane.pace {
        Pace::AtOnce => {}
        Pace::AtRest => {
            let widths = Widths { clean: width, ..lane.shape.widths() };
            job.settled(widths, within).await?;
            if widths.processing_elements() >= LARGE {
                tokio::time::sleep(QUIET).await;
            }
        }
    }
    Ok(())
}

/// A job in a namespace of its own, once it runs.
pub(super) async fn settled_job(
    control_plane: &ControlPlane,
    shape: Shape,
    options: &ElasticityOptions,
    purpose: &str,
) -> Result<ObservedJob> {
    let client = control_plane.client().await?;
    let namespace = control_plane.namespace(purpose).await?;
    let pes = shape.widths().processing_elements();
    let progress = Progress::begin(format!("a job of {pes} PEs"));
    let job = ObservedJob::create(&client, &shape.job(&namespace, 0)).await?;
    job.settled(shape.widths(), options.within).await?;
    progress.done();
    Ok(job)
}

/// Asks for a width, as part of a trace if there is one.
pub(super) async fn ask(
    balancer: &mut ElasticityServiceClient<Channel>,
    job: &ObservedJob,
    width: u32,
    wait_for: WaitFor,
    within: Duration,
    trace_parent: Option<&str>,
) -> Result<()> {
    let mut request = tonic::Request::new(job.resize_request(&[(CLEAN, width)], wait_for));
    request.set_timeout(within);
    if let Some(parent) = trace_parent {
        request.metadata_mut().insert("traceparent", parent.parse()?);
    }
    balancer.resize(request).await.with_context(|| format!("width {width}, {wait_for:?}"))?;
    Ok(())
}
