//! All replicas of the fusion service are away during a resize: what runs goes on running, the job says what it waits
//! for, and when they are back the resize goes through (rule job-20).

use super::fixture::{Fixture, Moment, WITHIN, as_if_undisturbed, with};
use super::refused_texts::{RefusedTexts, Texts};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use streams_api::condition;
use streams_proto::elasticity::v1::resize_request::WaitFor;

const WIDTH: u32 = 5;
/// So many texts do not come with the plan of a resize (rule service-34).
const WIDE: u32 = 14;
/// A call that nobody answers is given up, and shown as trouble, after this time.
pub(super) const IMPATIENT: [&str; 6] =
    ["--submit-call-seconds", "5", "--resize-call-seconds", "5", "--render-call-seconds", "5"];

pub(super) async fn kill_fusion(it: &Fixture) -> Result<()> {
    for replica in it.system.fusion() {
        replica.kill().await?;
    }
    Ok(())
}

pub(super) async fn start_fusion(it: &Fixture) -> Result<()> {
    for (number, replica) in it.system.fusion().enumerate() {
        replica.start_again().await?;
        it.system.fusion_ready(number).await?;
    }
    Ok(())
}

/// The job says that it waits for the fusion service, and its pods are those of `before`.
async fn waits_untouched(job: &ObservedJob, before: &Moment) -> Result<()> {
    let (reason, message) = job
        .until("it says that it waits for the fusion service", WITHIN, |status| {
            let progressing = condition::get(&status.conditions, condition::PROGRESSING).context("no condition")?;
            let about_fusion = progressing.message.contains("fusion service");
            ensure!(progressing.status == "True" && about_fusion, "{progressing:?}");
            Ok((progressing.reason.clone(), progressing.message.clone()))
        })
        .await?;
    ensure!(!reason.is_empty() && message.starts_with("trying again"), "{reason}: {message}");
    let now = Moment::of(job).await?;
    ensure!(now.pods == before.pods, "pods were touched");
    let status = job.status().await?;
    ensure!(status.generation == Some(0), "generation {:?}", status.generation);
    ensure!(condition::is_true(&status.conditions, condition::READY), "what runs is not Ready any more");
    ensure!(condition::get(&status.conditions, condition::RESIZE_REJECTED).is_none(), "refused");
    Ok(())
}

#[tokio::test]
async fn before_a_resize_is_compiled() -> Result<()> {
    with("fusion-down", 1, &IMPATIENT, async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        kill_fusion(it).await?;
        it.resize(&job, &[(CLEAN, WIDTH)], WaitFor::Accepted).await?;
        waits_untouched(&job, &before).await?;
        start_fusion(it).await?;
        as_if_undisturbed(&job, &before, WIDTH).await.map(drop)
    })
    .await
}

/// The plan is there; the texts, which only the fusion service can make of it, are not.
#[tokio::test]
async fn before_the_texts_of_a_resize_are_rendered() -> Result<()> {
    with("fusion-down", 1, &IMPATIENT, async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let refused = RefusedTexts::from_now_on(it, Texts::OfAllPes).await?;
        it.resize(&job, &[(CLEAN, WIDE)], WaitFor::Accepted).await?;
        job.until("a plan is stored", WITHIN, |status| status.proposal.clone().context("no proposal")).await?;
        kill_fusion(it).await?;
        refused.lift().await?;
        waits_untouched(&job, &before).await?;
        start_fusion(it).await?;
        as_if_undisturbed(&job, &before, WIDE).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn one_of_two_is_enough() -> Result<()> {
    with("fusion-down", 1, &IMPATIENT, async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let first = it.system.fusion().next().context("no fusion service")?;
        first.kill().await?;
        it.resize(&job, &[(CLEAN, WIDTH)], WaitFor::RolledOut).await?;
        as_if_undisturbed(&job, &before, WIDTH).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_job_that_is_submitted_meanwhile_waits() -> Result<()> {
    with("fusion-down", 1, &IMPATIENT, async |it| {
        kill_fusion(it).await?;
        let job = ObservedJob::create(&it.client, &it.sample("patient")).await?;
        let waits = job.until("it waits for the fusion service", WITHIN, |status| {
            let progressing = condition::get(&status.conditions, condition::PROGRESSING).context("no condition")?;
            ensure!(progressing.message.contains("fusion service"), "{progressing:?}");
            Ok(())
        });
        waits.await?;
        start_fusion(it).await?;
        job.settled(integration_tests::sample::Widths::default(), WITHIN).await.map(drop)
    })
    .await
}
