//! Submissions that take long for reasons outside of the frontend, and what only the cluster can refuse: nothing is
//! torn down, and they go on when the reason is gone (rules job-18, job-41 and job-43).

use super::fixture::{Fixture, JOB, Moment, WITHIN, is_told_once, with, with_system};
use super::quota::{Limited, Quota};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{self, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use streams_api::{
    Job, JobPhase, JobStatus, ParallelRegion, ParallelRegionSpec, ProcessingElement, ProcessingElementSpec, condition,
};
use streams_control_plane::wait::eventually;

/// Time-out of the submissions, in seconds of work: more than one takes on a machine with a lot else to do.
const TIME_OUT: u32 = 20;
/// A call that nobody answers is given up, and shown as trouble, after this time.
const IMPATIENT: [&str; 6] = ["--submit-call-seconds", "1", "--resize-call-seconds", "1", "--render-call-seconds", "1"];

/// The sample with a short time-out.
async fn create(it: &Fixture, change: impl FnOnce(&mut Job)) -> Result<ObservedJob> {
    let mut job = it.sample(JOB);
    job.spec.submission_time_out_in_seconds = TIME_OUT;
    change(&mut job);
    ObservedJob::create(&it.client, &job).await
}

/// Waits until the submission would have begun anew, if time that passes counted.
async fn long_ago(job: &ObservedJob) -> Result<()> {
    eventually("the attempt would be over", WITHIN, || async {
        let status = job.status().await?;
        let started = status.submission_started_at.context("it has not begun")?.0;
        let passed = Timestamp::now().as_second() - started.as_second();
        ensure!(passed > 2 + i64::from(TIME_OUT), "{passed} s");
        Ok(())
    })
    .await
}

/// The submission was not begun anew, and nobody was told so.
async fn was_one_attempt(job: &ObservedJob) -> Result<()> {
    let status = job.status().await?;
    ensure!(status.submission_attempts == 1, "{} attempts", status.submission_attempts);
    let events = job.events().await?;
    ensure!(!events.iter().any(|(_, event, _)| event == "SubmissionTimedOut"), "{events:?}");
    Ok(())
}

/// Waits until the submission says why it does not go on, and gives the message.
async fn says(job: &ObservedJob, phase: JobPhase, reason: &str) -> Result<String> {
    let said = |status: &JobStatus| {
        let submitted = condition::get(&status.conditions, condition::SUBMITTED).context("no condition")?;
        ensure!(status.phase == Some(phase) && submitted.reason == reason, "{:?}", status.phase);
        Ok(submitted.message.clone())
    };
    job.until(&format!("{phase:?} because of {reason}"), WITHIN, said).await
}

#[tokio::test]
async fn a_fusion_service_that_is_away_for_longer_than_the_time_out() -> Result<()> {
    with("clock", 1, &IMPATIENT, async |it| {
        for replica in it.system.fusion() {
            replica.kill().await?;
        }
        let job = create(it, |_| {}).await?;
        says(&job, JobPhase::Submitting, "FusionUnavailable").await?;
        long_ago(&job).await?;
        for (number, replica) in it.system.fusion().enumerate() {
            replica.start_again().await?;
            it.system.fusion_ready(number).await?;
        }
        job.settled(Widths::default(), WITHIN).await?;
        was_one_attempt(&job).await
    })
    .await
}

/// What a submission has brought about stays while no frontend runs, and the next one goes on from there.
#[tokio::test]
async fn a_frontend_that_is_away_for_longer_than_the_time_out() -> Result<()> {
    with_system("clock", async |it| {
        let quota = Quota::after(it, Limited::Pods, 3).await?;
        let job = create(it, |_| {}).await?;
        says(&job, JobPhase::Failed, "QuotaExceeded").await?;
        let before = Moment::of(&job).await?;
        it.frontend()?.process().kill().await?;
        quota.lift().await?;
        long_ago(&job).await?;
        it.frontend()?.start_again().await?;
        job.settled(Widths::default(), WITHIN).await?;
        let after = Moment::of(&job).await?;
        ensure!(before.pods.0.iter().all(|(id, pod)| after.pods.0.get(id) == Some(pod)), "pods were replaced");
        was_one_attempt(&job).await
    })
    .await
}

#[tokio::test]
async fn a_bundle_that_is_missing_for_longer_than_the_time_out() -> Result<()> {
    with_system("clock", async |it| {
        let job = create(it, |job| job.spec.bundle.file = Some("late.sab".to_owned())).await?;
        let first = says(&job, JobPhase::Submitting, "BundleNotFound").await?;
        let told = job.until_condition(condition::BUNDLE_UNAVAILABLE, true, WITHIN).await?;
        ensure!(told == ("BundleNotFound".to_owned(), first.clone()) && first.contains("so since 2"), "{told:?}");
        long_ago(&job).await?;
        is_told_once(&job, "BundleNotFound").await?;
        // Whoever leads next says since when, as well.
        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        eventually("it has asked for the bundle again", WITHIN, || async {
            let asked =
                it.frontend()?.metric("streams_frontend_work_duration_seconds_count{queue=\"downloads\"}").await?;
            ensure!(asked >= 2.0, "{asked}");
            Ok(())
        })
        .await?;
        let later = says(&job, JobPhase::Submitting, "BundleNotFound").await?;
        ensure!(later == first, "{later:?} after {first:?}");
        std::fs::write(it.system.bundles().join("late.sab"), sample::bundle()?)?;
        job.settled(Widths::default(), WITHIN).await?;
        let status = job.status().await?;
        ensure!(condition::get(&status.conditions, condition::BUNDLE_UNAVAILABLE).is_none(), "{:?}", status.conditions);
        is_told_once(&job, "BundleNotFound").await?;
        was_one_attempt(&job).await
    })
    .await
}

/// It fails once, in the words of the PE; what runs is left alone; and it goes on when the cluster is corrected.
#[tokio::test]
async fn a_pod_that_a_quota_does_not_permit() -> Result<()> {
    with_system("clock", async |it| {
        let quota = Quota::after(it, Limited::Pods, 4).await?;
        let job = create(it, |_| {}).await?;
        let message = says(&job, JobPhase::Failed, "QuotaExceeded").await?;
        for words in ["PE", "exceeded quota: hold", "requested: pods=1", "limited: pods=4"] {
            ensure!(message.contains(words), "{message:?} does not say {words}");
        }
        job.until("four PEs run", WITHIN, |status| {
            let ready = status.statistics.as_ref().map(|statistics| statistics.ready_processing_elements);
            ensure!(ready == Some(4), "{ready:?}");
            Ok(())
        })
        .await?;
        let before = Moment::of(&job).await?;
        long_ago(&job).await?;
        ensure!(Moment::of(&job).await?.pods == before.pods, "pods were touched");
        quota.lift().await?;
        job.settled(Widths::default(), WITHIN).await?;
        let after = Moment::of(&job).await?;
        ensure!(before.pods.0.iter().all(|(id, pod)| after.pods.0.get(id) == Some(pod)), "pods were replaced");
        is_told_once(&job, "SubmissionFailed").await?;
        was_one_attempt(&job).await
    })
    .await
}

/// The spec is corrected, and the PEs start without another attempt.
#[tokio::test]
async fn checkpoints_without_a_volume() -> Result<()> {
    with_system("clock", async |it| {
        let job = create(it, |job| {
            let options = json!({"checkpointRepository": {"fileSystem": {"path": "/checkpoint"}}});
            job.spec.processing_element = serde_json::from_value(options).ok();
        })
        .await?;
        let message = says(&job, JobPhase::Failed, "CheckpointVolumeMissing").await?;
        ensure!(message.contains("neither volumeClaim nor the frontend's options name a volume"), "{message}");
        long_ago(&job).await?;
        let uids = uids(&job).await?;
        let corrected = json!({"spec": {"processingElement": {"checkpointRepository": null}}});
        job.api::<Job>().patch(job.name(), &PatchParams::default(), &Patch::Merge(corrected)).await?;
        job.settled(Widths::default(), WITHIN).await?;
        ensure!(self::uids(&job).await? == uids, "PEs were made again");
        was_one_attempt(&job).await
    })
    .await
}

async fn uids(job: &ObservedJob) -> Result<Vec<Option<String>>> {
    Ok(job.list::<ProcessingElement>().await?.into_iter().map(|pe| pe.metadata.uid).collect())
}

/// A PE and a region that somebody made by hand say that no job controls them, and so does an Event.
#[tokio::test]
async fn objects_that_were_made_by_hand() -> Result<()> {
    with_system("by-hand", async |it| {
        let spec = ProcessingElementSpec {
            job_name: "nobody".to_owned(),
            content_id: "0".repeat(64),
            runtime_id: "r".to_owned(),
            config_map: streams_api::AadlConfigMap { name: "nobody-0".to_owned(), compressed: false },
            ..ProcessingElementSpec::default()
        };
        let pes: Api<ProcessingElement> = Api::namespaced(it.client.clone(), &it.namespace);
        pes.create(&PostParams::default(), &ProcessingElement::new("nobody-0", spec)).await?;
        let spec = ParallelRegionSpec { job_name: "nobody".to_owned(), index: 0, name: "R".to_owned(), width: 2 };
        let regions: Api<ParallelRegion> = Api::namespaced(it.client.clone(), &it.namespace);
        regions.create(&PostParams::default(), &ParallelRegion::new("nobody-1", spec)).await?;
        let nobody = ObservedJob::new(&it.client, &it.namespace, "nobody");
        eventually("both say that they were made by hand", WITHIN, || async {
            let pe = pes.get("nobody-0").await?.status.unwrap_or_default().conditions;
            let region = regions.get("nobody-1").await?.status.unwrap_or_default().conditions;
            for (kind, conditions) in [("PE", pe), ("region", region)] {
                let ready = condition::get(&conditions, condition::READY).context(kind)?;
                ensure!(ready.reason == "JobMissing" && ready.message.contains("by hand"), "{kind}: {ready:?}");
            }
            let events = nobody.events().await?;
            let told = events.iter().filter(|(kind, event, _)| kind == "Warning" && event == "JobMissing").count();
            ensure!(told == 2, "{events:?}");
            Ok(())
        })
        .await
    })
    .await
}
