//! Bundles that are not there, that are none, and whose application is wrong: a condition and an Event say so in a
//! sentence, nothing half-created stays, and correcting it goes on with the same job
//! (rules fetch-10 and job-19).

use super::fixture::{Fixture, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{self, Widths};
use integration_tests::system::job::ObservedJob;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use streams_api::{Job, JobPhase, condition};
use streams_control_plane::wait::eventually;

const FILE: &str = "wrong.sab";

/// A job whose bundle is [`FILE`].
async fn create(it: &Fixture) -> Result<ObservedJob> {
    let mut job = it.sample("wrong");
    job.spec.bundle.file = Some(FILE.to_owned());
    ObservedJob::create(&it.client, &job).await
}

/// The submission has failed for this reason, with one sentence that contains these words, and nothing stays of it.
async fn fails(job: &ObservedJob, reason: &str, words: &[&str]) -> Result<()> {
    let edited = job.get().await?.metadata.generation;
    let (was, message) = job
        .until("the submission fails", WITHIN, |status| {
            let submitted = condition::get(&status.conditions, condition::SUBMITTED).context("no condition")?;
            ensure!(status.phase == Some(JobPhase::Failed) && submitted.status == "False", "{:?}", status.phase);
            // What is said of the spec before is not what is waited for.
            ensure!(submitted.observed_generation == edited, "{submitted:?}");
            Ok((submitted.reason.clone(), submitted.message.clone()))
        })
        .await?;
    ensure!(was == reason, "{was}: {message}");
    ensure!(!message.is_empty() && message.len() < 400 && !message.contains('\n'), "no clear sentence: {message}");
    for word in words {
        ensure!(message.contains(word), "{message:?} does not name {word}");
    }
    eventually("an Event says so, too", WITHIN, || async {
        let events = job.events().await?;
        let said = events.iter().any(|(kind, event, note)| {
            kind == "Warning" && event == "SubmissionFailed" && words.iter().all(|word| note.contains(word))
        });
        ensure!(said, "{events:?}");
        Ok(())
    })
    .await?;
    eventually("nothing half-created stays", WITHIN, || async {
        let left: Vec<_> = job.inventory().await?.names();
        ensure!(left.iter().all(|name| name.contains("-adl-")), "{}", left.join(", "));
        Ok(())
    })
    .await
}

/// The submission goes on waiting for a bundle that is not there; condition and Event say since when.
async fn waits(job: &ObservedJob) -> Result<()> {
    let said = job
        .until("the bundle is missed", WITHIN, |status| {
            let submitted = condition::get(&status.conditions, condition::SUBMITTED).context("no condition")?;
            let waits = submitted.reason == "BundleNotFound" && status.phase == Some(JobPhase::Submitting);
            ensure!(waits, "{:?} {submitted:?}", status.phase);
            Ok(submitted.message.clone())
        })
        .await?;
    ensure!(said.contains(FILE) && said.contains("so since 2"), "{said}");
    eventually("an Event says so, too", WITHIN, || async {
        let events = job.events().await?;
        let is_it = |(kind, event, note): &(String, String, String)| {
            kind == "Warning" && event == "BundleNotFound" && note.contains("so since 2")
        };
        ensure!(events.iter().any(is_it), "{events:?}");
        Ok(())
    })
    .await
}

/// Bytes that are no archive. No random number generator is needed for them.
fn junk() -> Vec<u8> {
    (0_u32..9_000).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

/// Edits the spec in a way that changes nothing but its generation, as a user does who has corrected the file behind
/// it.
async fn touch(job: &ObservedJob) -> Result<()> {
    let seconds = job.get().await?.spec.submission_time_out_in_seconds + 1;
    patch(job, json!({"spec": {"submissionTimeOutInSeconds": seconds}})).await
}

async fn patch(job: &ObservedJob, patch: serde_json::Value) -> Result<()> {
    job.api::<Job>().patch(job.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn one_job_with_every_mistake_runs_in_the_end() -> Result<()> {
    with_system("bad-bundles", async |it| {
        let path = it.system.bundles().join(FILE);
        let job = create(it).await?;
        waits(&job).await?;
        let id = job.status().await?.job_id;

        std::fs::write(&path, junk())?;
        fails(&job, "BundleInvalid", &[FILE]).await?;

        std::fs::write(&path, &sample::bundle()?[..500])?;
        touch(&job).await?;
        fails(&job, "BundleInvalid", &[FILE]).await?;

        let adl = sample::ADL.replace("</composites>", "");
        std::fs::write(&path, sample::bundle_of(&adl)?)?;
        touch(&job).await?;
        // Line and column of the place where the text stops to be XML.
        fails(&job, "ApplicationRejected", &["258:3: CDISA5089E"]).await?;

        let adl =
            sample::ADL.replace("operIndex=\"2\" operName=\"Score.Window\"", "operIndex=\"77\" operName=\"Gone\"");
        std::fs::write(&path, sample::bundle_of(&adl)?)?;
        touch(&job).await?;
        fails(&job, "ApplicationRejected", &["77"]).await?;

        // Another file instead of a better one.
        patch(&job, json!({"spec": {"bundle": {"file": sample::SAB}}})).await?;
        job.settled(Widths::default(), WITHIN).await?;
        let status = job.status().await?;
        ensure!(status.generation == Some(0) && status.phase == Some(JobPhase::Running), "{status:?}");
        ensure!(id.is_none() || status.job_id == id, "the job's number changed from {id:?} to {:?}", status.job_id);
        ensure!(condition::is_true(&status.conditions, condition::SUBMITTED), "{:?}", status.conditions);
        Ok(())
    })
    .await
}

/// What is not there is looked for again: the file appears, and the job goes on without an edit.
#[tokio::test]
async fn a_job_waits_for_its_bundle() -> Result<()> {
    with_system("bad-bundles", async |it| {
        let job = create(it).await?;
        waits(&job).await?;
        let generation = job.get().await?.metadata.generation;
        std::fs::write(it.system.bundles().join(FILE), sample::bundle()?)?;
        job.settled(Widths::default(), WITHIN).await?;
        ensure!(job.get().await?.metadata.generation == generation, "somebody edited it");
        Ok(())
    })
    .await
}

/// What is wrong for good is not tried again by itself: the file is replaced, and nothing happens until the spec is
/// edited.
#[tokio::test]
async fn a_job_that_failed_is_left_alone_until_it_is_edited() -> Result<()> {
    with_system("bad-bundles", async |it| {
        std::fs::write(it.system.bundles().join(FILE), junk())?;
        let job = create(it).await?;
        fails(&job, "BundleInvalid", &[FILE]).await?;
        std::fs::write(it.system.bundles().join(FILE), sample::bundle()?)?;
        // Something else that takes longer than a retry would.
        let other = it.submitted().await?;
        ensure!(job.status().await?.phase == Some(JobPhase::Failed), "it was tried again");
        touch(&job).await?;
        job.settled(Widths::default(), WITHIN).await?;
        other.settled(Widths::default(), WITHIN).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_running_job_cannot_be_given_another_application() -> Result<()> {
    with_system("bad-bundles", async |it| {
        let job = it.submitted().await?;
        // patch -> what the message says
        let table = [
            (json!({"bundle": {"file": "other.sab"}}), "bundle cannot be edited"),
            (json!({"fusion": {"legacy": null, "manual": 3}}), "fusion cannot be edited"),
            (json!({"submissionTimeValues": {"cleaners": "3"}}), "submissionTimeValues cannot be edited"),
            (json!({"parallelRegions": [{"name": "Clean", "width": 3}]}), "parallelRegions cannot be edited"),
            (json!({"processingElement": {"appTraceLevel": "DEBUG"}}), "appTraceLevel cannot be edited"),
        ];
        for (spec, expected) in table {
            let refused =
                patch(&job, json!({"spec": spec})).await.err().with_context(|| format!("{spec} was taken"))?;
            ensure!(format!("{refused:#}").contains(expected), "{spec}: {refused:#}");
        }
        Ok(())
    })
    .await
}
