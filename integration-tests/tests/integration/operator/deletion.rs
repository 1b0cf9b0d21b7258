//! The deletion of a job leaves nothing of it, and nothing else is touched (rule job-29).

use super::fixture::{JOB, Moment, WITHIN, with_system};
use super::quota::{Limited, Quota};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use streams_api::{Job, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

async fn delete(job: &ObservedJob, how: &DeleteParams) -> Result<()> {
    job.api::<Job>().delete(job.name(), how).await?;
    eventually(&format!("nothing is left of {}", job.name()), WITHIN, || async {
        ensure!(job.api::<Job>().get_opt(job.name()).await?.is_none(), "the job is there");
        let left = job.inventory().await?.names();
        ensure!(left.is_empty(), "{}", left.join(", "));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn of_a_running_job() -> Result<()> {
    with_system("deletion", async |it| {
        let other = ObservedJob::create(&it.client, &it.sample("other")).await?;
        other.settled(Widths::default(), WITHIN).await?;
        let before = Moment::of(&other).await?;
        let mut last_id = None;
        for how in [DeleteParams::background(), DeleteParams::foreground()] {
            let job = it.submitted().await?;
            let id = job.status().await?.job_id;
            ensure!(id > last_id, "id {id:?} after {last_id:?}");
            last_id = id;
            delete(&job, &how).await?;
        }
        // What belongs to nobody stays: job ids are not given twice.
        ensure!(other.api::<ConfigMap>().get_opt(names::JOB_IDS).await?.is_some(), "job ids are forgotten");
        other.settled(Widths::default(), WITHIN).await?;
        ensure!(Moment::of(&other).await?.pods == before.pods, "the other job was touched");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn in_the_middle_of_a_submission_and_of_a_resize() -> Result<()> {
    with_system("deletion", async |it| {
        let quota = Quota::after(it, Limited::Pods, 5).await?;
        let job = ObservedJob::create(&it.client, &it.sample(JOB)).await?;
        job.until("a generation is committed", WITHIN, |status| status.generation.context("none")).await?;
        delete(&job, &DeleteParams::foreground()).await?;
        quota.lift().await?;

        let job = it.submitted().await?;
        let quota = Quota::after(it, Limited::Services, 1).await?;
        it.resize(&job, &[(CLEAN, 5)], WaitFor::Accepted).await?;
        job.until("a generation is proposed", WITHIN, |status| status.proposal.clone().context("none")).await?;
        delete(&job, &DeleteParams::background()).await?;
        quota.lift().await
    })
    .await
}
