//! Applications that an old compiler has written: ADL of version v4000.

use super::fixture::{Fixture, JOB, WITHIN, with, with_system};
use anyhow::{Result, ensure};
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use streams_api::{Job, JobPhase, ProcessingElement, condition};
use streams_control_plane::wait::eventually;

const OLDER: &str = include_str!("../../../../fusion-service/tests/applications/older-dialect.adl");

/// A job of such an application.
fn old(it: &Fixture) -> Result<Job> {
    std::fs::write(it.system.bundles().join("old.sab"), sample::bundle_of(OLDER)?)?;
    let mut job = it.sample(JOB);
    job.spec.bundle.file = Some("old.sab".to_owned());
    Ok(job)
}

#[tokio::test]
async fn an_old_adl_is_refused_with_the_option_that_would_allow_it() -> Result<()> {
    with_system("dialects", async |it| {
        let job = ObservedJob::create(&it.client, &old(it)?).await?;
        let (reason, message) = job.until_condition(condition::PROGRESSING, false, WITHIN).await?;
        ensure!(reason == "SubmissionFailed", "{reason}: {message}");
        let status = job.status().await?;
        let submitted = condition::get(&status.conditions, condition::SUBMITTED).map(|c| (&*c.reason, &*c.message));
        let (reason, message) = submitted.unwrap_or_default();
        ensure!(status.phase == Some(JobPhase::Failed) && reason == "AdlVersionRefused", "{status:?}");
        ensure!(message.contains("v4000") && message.contains("--allow-adl-v4000"), "{message}");
        eventually("an Event tells it", WITHIN, || async {
            let events = job.events().await?;
            let about = |(kind, reason, note): &(String, String, String)| {
                kind == "Warning" && reason == "SubmissionFailed" && note.contains("v4000")
            };
            ensure!(events.iter().any(about), "{events:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn an_old_adl_runs_where_the_option_allows_it() -> Result<()> {
    with("dialects", 1, &["--allow-adl-v4000"], async |it| {
        let job = ObservedJob::create(&it.client, &old(it)?).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        let pes = job.list::<ProcessingElement>().await?;
        ensure!(!pes.is_empty() && pes.iter().all(|pe| pe.spec.operator_count > 0), "{pes:?}");
        Ok(())
    })
    .await
}
