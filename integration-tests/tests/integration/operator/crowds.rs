//! More jobs are to be resized at once than can have their turn in time: some callers hear at once that they would have
//! to wait for too long, and when to come again; all of them get what they want in the end (rule elasticity-26).

use super::fixture::{ALL, Fixture, WITHIN, is_unknown, reason, with};
use super::fusion_down::{IMPATIENT, kill_fusion, start_fusion};
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use streams_api::Resize;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{GetRegionRequest, ResizeRequest, ResizeResponse};
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

/// A job, and which of those is meant that want to resize it.
type Caller<'a> = (&'a ObservedJob, usize);

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

/// The caller asks for its width, after this time; whenever it comes again it asks for the same request.
async fn ask(
    mut balancer: ElasticityServiceClient<Channel>,
    caller: Caller<'_>,
    after: Duration,
) -> (Caller<'_>, Result<ResizeResponse, Status>) {
    // As the answer before has told the caller to.
    sleep(after).await;
    let (job, number) = caller;
    let wanted = job.resize_request(&[(CLEAN, WIDTH)], WaitFor::Committed);
    let mut request = Request::new(ResizeRequest { idempotency_key: number.to_string(), ..wanted });
    request.set_timeout(ALL);
    (caller, balancer.resize(request).await.map(tonic::Response::into_inner))
}

/// When a caller is to come again that was refused, or for which the API server was too slow.
fn again(status: &Status) -> Result<Duration> {
    let is_refused = status.code() == Code::ResourceExhausted && reason(status) == "TOO_MANY_WAITING";
    ensure!(is_refused || is_unknown(status), "{status:?}");
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
        let callers = jobs.iter().flat_map(|job| (0..CALLERS).map(move |number| (job, number)));
        let mut calls: FuturesUnordered<_> =
            callers.map(|caller| ask(balancer.clone(), caller, Duration::ZERO)).collect();
        let mut refused: Vec<(Caller<'_>, Duration)> = Vec::new();
        // Jobs for which something may have been written although a caller was refused: it had come before.
        let mut unknown = BTreeSet::new();
        while refused.len() < (JOBS - MAY_WAIT) * CALLERS {
            let (caller, answer) =
                timeout(WITHIN, calls.next()).await.context("too few are refused")?.context("no call")?;
            let status = answer.err().with_context(|| format!("{caller:?} has a turn"))?;
            let after = again(&status)?;
            if is_unknown(&status) {
                unknown.insert(caller.0.name());
                calls.push(ask(balancer.clone(), caller, after));
            } else {
                refused.push((caller, after));
            }
        }
        // Nothing was written for jobs all of whose callers were refused.
        let mut of_jobs: BTreeMap<&str, (&ObservedJob, usize)> = BTreeMap::new();
        for ((job, _), _) in &refused {
            of_jobs.entry(job.name()).or_insert((*job, 0)).1 += 1;
        }
        for (name, (job, of_job)) in of_jobs {
            let written = job.list::<Resize>().await?.into_iter().filter(|resize| resize.spec.job_name == name).count();
            let is_fine = of_job < CALLERS || written == 0 || unknown.contains(name);
            ensure!(is_fine, "{written} requests of {job:?} were written");
        }

        start_fusion(it).await?;
        let mut come_again = refused.len();
        for (caller, after) in refused {
            calls.push(ask(balancer.clone(), caller, after));
        }
        let mut served = 0;
        let everybody = async {
            while let Some((caller, answer)) = calls.next().await {
                match answer {
                    Ok(answer) => {
                        ensure!(answer.generation == Some(1), "{caller:?}: {answer:?}");
                        served += 1;
                    }
                    // Another caller's request for the same is newer, and in force.
                    Err(status) if status.code() == Code::Aborted && reason(&status) == "SUPERSEDED" => served += 1,
                    Err(status) => {
                        come_again += 1;
                        let after = again(&status).with_context(|| format!("{caller:?}"))?;
                        calls.push(ask(balancer.clone(), caller, after));
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
