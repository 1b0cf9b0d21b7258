//! PEs that a user stops for good (rule pe-21).

use super::fixture::{JOB, Moment, WITHIN, is_told_once, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use streams_api::{
    DeletedBy, Job, JobPhase, PeOptions, PePhase, ProcessingElement, TerminationOutcome, condition, names,
};
use streams_control_plane::wait::eventually;

/// An operator whose text a resize of `Clean` changes.
const OPERATOR: &str = "Score[1].Window";

async fn annotate(job: &ObservedJob, annotation: &str, value: Option<&str>) -> Result<()> {
    let pe = job.pe(OPERATOR).await?.name_any();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    job.api::<ProcessingElement>().patch(&pe, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn until(job: &ObservedJob, phase: PePhase, launches: u64) -> Result<ProcessingElement> {
    eventually(&format!("the PE is {phase:?} after {launches} launches"), WITHIN, || async {
        let pe = job.pe(OPERATOR).await?;
        let status = pe.status.clone().unwrap_or_default();
        ensure!((status.phase, status.launch_count) == (Some(phase), launches), "{status:?}");
        Ok(pe)
    })
    .await
}

async fn has_no_pod(job: &ObservedJob, pe: &ProcessingElement) -> Result<()> {
    let pods: Api<Pod> = job.api();
    let name = pe.status.as_ref().and_then(|status| status.pod_name.clone()).context("it had no pod")?;
    eventually("the pod is gone", WITHIN, || async {
        ensure!(pods.get_opt(&name).await?.is_none(), "{name} is there");
        Ok(())
    })
    .await
}

/// With policies that replace every pod that ends.
#[tokio::test]
async fn whatever_happens_it_has_no_pod_until_that_is_taken_back() -> Result<()> {
    with_system("stopped", async |it| {
        let mut sample = it.sample(JOB);
        sample.spec.processing_element = Some(PeOptions {
            restart_failed_pod: Some(true),
            restart_completed_pod: true,
            restart_deleted_pod: true,
            ..PeOptions::default()
        });
        let job = ObservedJob::create(&it.client, &sample).await?;
        job.settled(Widths::default(), WITHIN).await?;
        let before = Moment::of(&job).await?;
        annotate(&job, names::ANNOTATION_STOP_REQUESTED, Some("1")).await?;
        let stopped = until(&job, PePhase::Stopped, 1).await?;
        let last = stopped.status.as_ref().and_then(|status| status.last_termination.clone()).context("no end")?;
        let said = (last.outcome, last.deleted_by, last.reason.as_str());
        let expected = (TerminationOutcome::Stopped, Some(DeletedBy::Controller), "StopRequested");
        ensure!(said == expected, "{said:?}");
        has_no_pod(&job, &stopped).await?;
        let told = format!("PE {} (StopRequested)", stopped.spec.id);
        job.until_told(condition::DEGRADED, &[&told], WITHIN).await?;

        // Neither a resize, which changes its text, nor another frontend, nor a suspension starts it.
        is_told_once(&job, "Stopped").await?;
        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        let region = job.region(CLEAN).await?.name_any();
        it.kubectl(&["scale", "streamspr", &region, "--replicas", "3"]).await?;
        job.until("the resize is rolled out", WITHIN, |status| {
            let rollout = status.rollout.clone().context("no roll-out")?;
            ensure!(rollout.generation == 1 && rollout.finished_at.is_some(), "{rollout:?}");
            let progressing = condition::get(&status.conditions, condition::PROGRESSING).context("no condition")?;
            ensure!(progressing.status == "False" && progressing.reason == "Done", "{progressing:?}");
            Ok(())
        })
        .await?;
        for suspend in [true, false] {
            let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
            job.api::<Job>().patch(job.name(), &PatchParams::default(), &patch).await?;
            let phase = if suspend { JobPhase::Suspended } else { JobPhase::Degraded };
            job.until("it is suspended, or all others run", WITHIN, |status| {
                let progressing = condition::is_true(&status.conditions, condition::PROGRESSING);
                ensure!(status.phase == Some(phase) && !progressing, "{:?}", status.phase);
                Ok(())
            })
            .await?;
        }
        let still = until(&job, PePhase::Stopped, 1).await?;
        ensure!(still.spec.generation == 1, "it takes its new text: {:?}", still.spec);
        is_told_once(&job, "Stopped").await?;

        // A restart that is requested starts it; the same request to stop is met, another one is not.
        annotate(&job, names::ANNOTATION_RESTART_REQUESTED, Some("1")).await?;
        until(&job, PePhase::Running, 2).await?;
        annotate(&job, names::ANNOTATION_STOP_REQUESTED, Some("2")).await?;
        has_no_pod(&job, &until(&job, PePhase::Stopped, 2).await?).await?;
        // And so does the end of the request to stop.
        annotate(&job, names::ANNOTATION_STOP_REQUESTED, None).await?;
        until(&job, PePhase::Running, 3).await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        let now = Moment::of(&job).await?;
        ensure!(now.pods.0.len() == before.pods.0.len() + 1, "{:?}", now.pods);
        Ok(())
    })
    .await
}
