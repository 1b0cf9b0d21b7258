//! The frontend is killed in the middle of a resize and started again: the end is the one of an undisturbed resize, and
//! nothing was done twice (rules job-1 and call-9).
//!
//! Where it is killed is certain, not a matter of luck: a quota or a policy keeps it from the next step until it is
//! dead.

use super::fixture::{Fixture, Moment, WITHIN, as_if_undisturbed, with_system};
use super::quota::{Limited, Quota};
use super::refused_texts::{RefusedTexts, Texts};
use anyhow::{Context as _, Result, bail, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use streams_api::{JobStatus, condition};
use streams_proto::elasticity::v1::resize_request::WaitFor;

const WIDTH: u32 = 5;

/// Where the operator is kept from its next step.
#[derive(Clone, Copy)]
enum Held {
    Nowhere,
    /// There are no more than so many further objects of this kind.
    AtQuota(Limited, usize),
    BeforeTexts(Texts),
}

/// Asks for a width, waits until the operator has come as far as it can, kills it, and starts it again once it could go
/// on.
async fn killed(held: Held, arrived: fn(&JobStatus) -> Result<()>) -> Result<()> {
    with_system("killed", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let (mut quota, mut refused) = (None, None);
        match held {
            Held::Nowhere => {}
            Held::AtQuota(limited, more) => quota = Some(Quota::after(it, limited, more).await?),
            Held::BeforeTexts(texts) => refused = Some(RefusedTexts::from_now_on(it, texts).await?),
        }
        it.resize(&job, &[(CLEAN, WIDTH)], WaitFor::Accepted).await?;
        job.until("it has come to where it is killed", WITHIN, arrived).await?;
        if let Some(refused) = &refused {
            refused.until_reached(&job).await?;
        }
        it.frontend()?.process().kill().await?;
        if let Some(quota) = quota {
            quota.lift().await?;
        }
        if let Some(refused) = refused {
            refused.lift().await?;
        }
        if !matches!(held, Held::Nowhere | Held::AtQuota(Limited::Pods, _)) {
            let untouched = Moment::of(&job).await?.pods == before.pods;
            ensure!(untouched, "pods were touched before the generation was committed");
        }
        it.frontend()?.start_again().await?;
        as_if_undisturbed(&job, &before, WIDTH).await.map(drop)
    })
    .await
}

fn committed(status: &JobStatus) -> Result<()> {
    ensure!(status.generation == Some(1), "generation {:?}", status.generation);
    Ok(())
}

fn proposed(status: &JobStatus) -> Result<()> {
    ensure!(status.generation == Some(0), "generation {:?}", status.generation);
    status.proposal.as_ref().map(drop).context("no proposal")
}

#[tokio::test]
async fn as_soon_as_it_was_asked() -> Result<()> {
    killed(Held::Nowhere, |_| Ok(())).await
}

#[tokio::test]
async fn with_a_plan_that_is_not_stored() -> Result<()> {
    killed(Held::AtQuota(Limited::ConfigMaps, 0), |status| {
        match condition::get(&status.conditions, condition::PROGRESSING) {
            Some(progressing) if progressing.message.contains("quota") => Ok(()),
            other => bail!("Progressing is {other:?}"),
        }
    })
    .await
}

#[tokio::test]
async fn with_a_plan_and_without_texts() -> Result<()> {
    killed(Held::BeforeTexts(Texts::OfAllPes), proposed).await
}

#[tokio::test]
async fn with_some_of_the_texts() -> Result<()> {
    killed(Held::BeforeTexts(Texts::OfOddPes), proposed).await
}

#[tokio::test]
async fn with_texts_and_without_services() -> Result<()> {
    killed(Held::AtQuota(Limited::Services, 1), |status| {
        proposed(status)?;
        let progressing = condition::get(&status.conditions, condition::PROGRESSING);
        ensure!(
            progressing.is_some_and(|c| c.message.contains("objects") || c.message.contains("quota")),
            "{progressing:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn as_soon_as_the_generation_is_committed() -> Result<()> {
    killed(Held::Nowhere, committed).await
}

/// With one of the new PEs without a pod, nothing is restarted yet. In the middle of restarts a frontend is killed by a
/// test of [`waves`](super::waves).
#[tokio::test]
async fn while_new_pods_start() -> Result<()> {
    killed(Held::AtQuota(Limited::Pods, 2), |status| {
        committed(status)?;
        let rollout = status.rollout.clone().unwrap_or_default();
        ensure!(rollout.pending > 0 && rollout.pending < 8, "{rollout:?}");
        Ok(())
    })
    .await
}

/// Killed again and again, wherever it happens to be, until the resize is through.
#[tokio::test]
async fn at_every_change_of_the_status() -> Result<()> {
    with_system("killed", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        it.resize(&job, &[(CLEAN, WIDTH)], WaitFor::Accepted).await?;
        for _ in 0..4 {
            let seen = job.get().await?.metadata.resource_version;
            if is_through(&job).await? {
                break;
            }
            changed(&job, seen).await?;
            it.frontend()?.process().kill().await?;
            it.frontend()?.start_again().await?;
        }
        as_if_undisturbed(&job, &before, WIDTH).await.map(drop)
    })
    .await
}

async fn is_through(job: &ObservedJob) -> Result<bool> {
    let status = job.status().await?;
    Ok(status.generation == Some(1) && status.rollout.is_some_and(|rollout| rollout.finished_at.is_some()))
}

async fn changed(job: &ObservedJob, seen: Option<String>) -> Result<()> {
    streams_control_plane::wait::eventually("the status is written", WITHIN, || async {
        ensure!(job.get().await?.metadata.resource_version != seen, "not yet");
        Ok(())
    })
    .await
}

/// While the frontend is away, the API is, too; the running application is not touched, and what users do meanwhile is
/// seen later.
#[tokio::test]
async fn a_width_set_while_no_frontend_runs_is_applied_later() -> Result<()> {
    with_system("killed", async |it: &Fixture| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        it.frontend()?.process().kill().await?;
        ensure!(it.frontend()?.balancer().await.is_err(), "somebody answers");
        job.set_width(CLEAN, WIDTH).await?;
        it.frontend()?.start_again().await?;
        as_if_undisturbed(&job, &before, WIDTH).await.map(drop)
    })
    .await
}
