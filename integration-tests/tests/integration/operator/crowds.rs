//! More jobs are to be resized at once than can have their turn in time: some callers hear at once that they would have
//! to wait for too long, and when to come again; all of them get what they want in the end (rule elasticity-26).

use super::fixture::{Fixture, WITHIN, reason, with};
use super::fusion_down::{IMPATIENT, kill_fusion, start_fusion};
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use std::collections::BTreeSet;
use std::time::Duration;
use streams_api::Resize;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{GetRegionRequest, ResizeResponse};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// So many jobs may wait as long as it is not known how long one takes.
const MAY_WAIT: usize = 32;
const JOBS: usize = MAY_WAIT + 6;
/// Of each job. They want the same.
const CALLERS: usize = 3;
const WIDTH: u32 = 5;
/// Until everybody has come again, on a machine with a lot else to do.
const ALL: Duration = Duration::from_secs(480);

/// The sample under many names, without pods: what is asked for here is decided before there are any.
async fn suspended_jobs(it: &Fixture) -> Result<Vec<ObservedJob>> {
    let mut jobs = Vec::new();
    for number in 0..JOBS {
        let mut job = it.sample(&format!("crowd-{number}"));
        job.spec.suspend = true;
        jobs.push(ObservedJob::create(&it.client, &job).await?);
    }
    let balancer = it.frontend()?.balancer().await?;
    for job in &jobs {
        let get =
            GetRegionRequest { namespace: it.namespace.clone(), job: job.name().to_owned(), region: CLEAN.to_owned() };
        eventually("the frontend shows the region of a job that is submitted", ALL, || {
            let (get, mut balancer) = (get.clone(), balancer.clone());
            async move {
                let region = balancer.get_region(get).await?.into_inner();
                ensure!(region.applied_width == Some(2), "{region:?}");
                Ok(())
            }
        })
        .await?;
    }
    Ok(jobs)
}

/// The job is asked for its width, after this time.
async fn ask(
    mut balancer: ElasticityServiceClient<Channel>,
    job: &ObservedJob,
    after: Duration,
) -> (&ObservedJob, Result<ResizeResponse, Status>) {
    // As the answer before has told the caller to.
    sleep(after).await;
    let mut request = Request::new(job.resize_request(&[(CLEAN, WIDTH)], WaitFor::Committed));
    request.set_timeout(ALL);
    (job, balancer.resize(request).await.map(tonic::Response::into_inner))
}

/// When a caller that was refused is to come again.
fn again(status: &Status) -> Result<Duration> {
    ensure!(status.code() == Code::ResourceExhausted && reason(status) == "TOO_MANY_WAITING", "{status:?}");
    let details = status.get_error_details();
    let delay = details.retry_info().and_then(|info| info.retry_delay).with_context(|| format!("{status:?}"))?;
    ensure!((1..=10).contains(&delay.as_secs()), "{delay:?}");
    Ok(delay)
}

#[tokio::test]
async fn who_would_wait_for_too_long_hears_so_at_once_and_is_served_when_it_comes_again() -> Result<()> {
    with("crowds", 1, &IMPATIENT, async |it| {
        let jobs = suspended_jobs(it).await?;
        // Nobody has a turn any more: whoever is answered now was not made to wait for one.
        kill_fusion(it).await?;
        let balancer = it.frontend()?.balancer().await?;
        let callers = jobs.iter().flat_map(|job| std::iter::repeat_n(job, CALLERS));
        let mut calls: FuturesUnordered<_> = callers.map(|job| ask(balancer.clone(), job, Duration::ZERO)).collect();
        let mut refused = Vec::new();
        while refused.len() < (JOBS - MAY_WAIT) * CALLERS {
            let (job, answer) =
                timeout(WITHIN, calls.next()).await.context("too few are refused")?.context("no call")?;
            let status = answer.err().with_context(|| format!("{job:?} has a turn"))?;
            refused.push((job, again(&status)?));
        }
        // Nothing was written for jobs all of whose callers were refused.
        let names: BTreeSet<_> = refused.iter().map(|(job, _)| job.name()).collect();
        for job in jobs.iter().filter(|job| names.contains(job.name())) {
            let of_job = refused.iter().filter(|(of, _)| of.name() == job.name()).count();
            let written = job.list::<Resize>().await?.into_iter().filter(|resize| resize.spec.job_name == job.name());
            let written = written.count();
            ensure!(of_job < CALLERS || written == 0, "{written} requests of {job:?} were written");
        }

        start_fusion(it).await?;
        let mut come_again = refused.len();
        for (job, after) in refused {
            calls.push(ask(balancer.clone(), job, after));
        }
        let mut served = 0;
        let everybody = async {
            while let Some((job, answer)) = calls.next().await {
                match answer {
                    Ok(answer) => {
                        ensure!(answer.generation == Some(1), "{job:?}: {answer:?}");
                        served += 1;
                    }
                    // Another caller's request for the same is newer, and in force.
                    Err(status) if status.code() == Code::Aborted && reason(&status) == "SUPERSEDED" => served += 1,
                    Err(status) => {
                        come_again += 1;
                        let after = again(&status).with_context(|| format!("{job:?}"))?;
                        calls.push(ask(balancer.clone(), job, after));
                    }
                }
            }
            anyhow::Ok(())
        };
        let ended = timeout(ALL, everybody).await.map_err(anyhow::Error::from).flatten();
        ended.with_context(|| format!("{served} of {} were served, {come_again} came again", JOBS * CALLERS))?;
        ensure!(served == JOBS * CALLERS, "{served}");
        for job in &jobs {
            let status = job.status().await?;
            let width =
                status.applied_widths.iter().find(|applied| applied.region == CLEAN).map(|applied| applied.width);
            ensure!((status.generation, width) == (Some(1), Some(WIDTH)), "{job:?}: {:?}", status.applied_widths);
        }
        Ok(())
    })
    .await
}
