//! Pods that end: what the restart policies make of it (rule pe-7). kwok lets a pod end when an annotation says so.

use super::fixture::{Fixture, JOB, Moment, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams};
use serde_json::json;
use std::num::NonZeroU32;
use streams_api::{
    FusionOptions, JobStatus, ParallelRegion, PeOptions, PePhase, ProcessingElement, TerminationOutcome, condition,
    names,
};
use streams_control_plane::wait::eventually;

const OPERATOR: &str = "Score[0].Best";

/// The sample with these options of its PEs, running.
async fn submitted(it: &Fixture, options: PeOptions) -> Result<ObservedJob> {
    let mut job = it.sample(JOB);
    job.spec.processing_element = Some(options);
    let job = ObservedJob::create(&it.client, &job).await?;
    job.settled(Widths::default(), WITHIN).await?;
    Ok(job)
}

/// The pod of the PE with [`OPERATOR`], as its status names it.
async fn pod(job: &ObservedJob) -> Result<Pod> {
    let status = job.pe(OPERATOR).await?.status.unwrap_or_default();
    Ok(job.api::<Pod>().get(&status.pod_name.context("no pod")?).await?)
}

/// Tells a pod what becomes of it.
async fn tell(job: &ObservedJob, pod: &Pod, annotations: serde_json::Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    job.api::<Pod>().patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn fail(job: &ObservedJob, pod: &Pod) -> Result<()> {
    tell(job, pod, json!({"streams-test/fail": "3", "streams-test/fail-reason": "OOMKilled"})).await
}

async fn until_pe(
    job: &ObservedJob,
    what: &str,
    expected: impl Fn(&ProcessingElement) -> Result<()>,
) -> Result<ProcessingElement> {
    eventually(what, WITHIN, || async {
        let pe = job.pe(OPERATOR).await?;
        expected(&pe).with_context(|| format!("{:?}", pe.status))?;
        Ok(pe)
    })
    .await
}

/// The PE runs in a pod with this launch count, all others are what they were, and the job is whole.
async fn replaced(job: &ObservedJob, before: &Moment) -> Result<ProcessingElement> {
    let old = job.pe(OPERATOR).await?.spec.id;
    let launches = before.pods.0.get(&old).context("there was no pod")?.launch_count;
    let pe = until_pe(job, "the pod is replaced", |pe| {
        let status = pe.status.clone().unwrap_or_default();
        ensure!(status.phase == Some(PePhase::Running) && status.launch_count == launches + 1, "not yet");
        Ok(())
    })
    .await?;
    job.settled(Widths::default(), WITHIN).await?;
    let changed = Moment::of(job).await?.since(before)?;
    ensure!(changed.restarted == [OPERATOR] && changed.kept.len() == 11, "{changed:#?}");
    Ok(pe)
}

/// The PE stays without a running pod, and the job says so. That nothing more happens to it shows when something else
/// has happened: another PE is restarted on request.
async fn stays_down(job: &ObservedJob, phase: PePhase, degraded: bool) -> Result<ProcessingElement> {
    let down = until_pe(job, "the PE is given up", |pe| {
        ensure!(pe.status.as_ref().and_then(|status| status.phase) == Some(phase), "another phase");
        Ok(())
    })
    .await?;
    if degraded {
        let (reason, message) = job.until_condition(condition::DEGRADED, true, WITHIN).await?;
        ensure!(
            reason == "ProcessingElementsDown" && message.contains(&down.spec.id.to_string()),
            "{reason}: {message}"
        );
    }
    // What has completed is done.
    job.until_condition(condition::READY, !degraded, WITHIN).await?;
    let other = job.pe("Alarms").await?;
    let request = Patch::Merge(json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: "now"}}}));
    let pes: Api<ProcessingElement> = job.api();
    pes.patch(&other.name_any(), &PatchParams::default(), &request).await?;
    eventually("another PE is restarted", WITHIN, || async {
        let status = pes.get(&other.name_any()).await?.status.unwrap_or_default();
        ensure!(status.launch_count == 2 && status.phase == Some(PePhase::Running), "{status:?}");
        Ok(())
    })
    .await?;
    let now = job.pe(OPERATOR).await?;
    let launches = |pe: &ProcessingElement| pe.status.as_ref().map(|status| status.launch_count);
    ensure!(launches(&now) == launches(&down) && launches(&now) == Some(1), "{:?}", now.status);
    Ok(now)
}

fn termination(pe: &ProcessingElement) -> Result<(TerminationOutcome, Option<i32>, String, String)> {
    let last = pe.status.as_ref().and_then(|status| status.last_termination.clone()).context("no termination")?;
    Ok((last.outcome, last.exit_code, last.reason, last.pod_name))
}

#[tokio::test]
async fn a_failed_pod_is_replaced_and_its_end_is_recorded() -> Result<()> {
    with_system("pods", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let failed = pod(&job).await?;
        fail(&job, &failed).await?;
        let pe = replaced(&job, &before).await?;
        let expected = (TerminationOutcome::Failed, Some(3), "OOMKilled".to_owned(), failed.name_any());
        ensure!(termination(&pe)? == expected, "{:?}", pe.status);
        ensure!(pe.status.as_ref().map(|status| status.restarts) == Some(1), "{:?}", pe.status);
        ensure!(job.api::<Pod>().get_opt(&failed.name_any()).await?.is_none(), "the failed pod is still there");
        Ok(())
    })
    .await
}

/// The second failure in a row is answered after 10 seconds; when, is known to a frontend that was started meanwhile.
#[tokio::test]
async fn a_pod_that_fails_again_waits_and_a_new_frontend_knows_for_how_long() -> Result<()> {
    with_system("pods", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        fail(&job, &pod(&job).await?).await?;
        replaced(&job, &before).await?;
        let between = Moment::of(&job).await?;
        fail(&job, &pod(&job).await?).await?;
        let waiting = until_pe(&job, "the restart is put off", |pe| {
            let status = pe.status.clone().unwrap_or_default();
            ensure!(status.phase == Some(PePhase::BackOff) && status.next_restart_time.is_some(), "not yet");
            Ok(())
        })
        .await?;
        eventually("people hear for how long", WITHIN, || async {
            let events = job.events().await?;
            let mut notes = events.iter().filter(|(_, reason, _)| reason == "BackOff").map(|(_, _, note)| note);
            ensure!(notes.any(|note| note.contains("after 10 s")), "{events:?}");
            Ok(())
        })
        .await?;
        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        let pe = replaced(&job, &between).await?;
        let (was, is) = (waiting.status.unwrap_or_default(), pe.status.unwrap_or_default());
        let (due, since) =
            (was.next_restart_time.context("no time")?, is.running_since.clone().context("it does not run")?);
        // Times of objects have whole seconds.
        ensure!(since.0.as_second() + 1 >= due.0.as_second(), "it was to wait until {due:?} and runs since {since:?}");
        let finished = was.last_termination.and_then(|last| last.finished_at).context("no end")?;
        // It counts from when the end was seen.
        let delay = due.0.as_second() - finished.0.as_second();
        ensure!(delay >= 9, "put off by {delay} s");
        ensure!(is.restarts == 2 && is.consecutive_restarts == 2, "{is:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_failed_pod_is_given_up_if_the_user_says_so() -> Result<()> {
    with_system("pods", async |it| {
        let options = PeOptions { restart_failed_pod: Some(false), ..PeOptions::default() };
        let job = submitted(it, options).await?;
        let failed = pod(&job).await?;
        fail(&job, &failed).await?;
        let pe = stays_down(&job, PePhase::Failed, true).await?;
        ensure!(termination(&pe)?.1 == Some(3), "{:?}", pe.status);
        eventually("the failed pod is deleted", WITHIN, || async {
            ensure!(job.api::<Pod>().get_opt(&failed.name_any()).await?.is_none(), "it is there");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_failed_pod_is_kept_if_the_user_says_so() -> Result<()> {
    with_system("pods", async |it| {
        let options = PeOptions { delete_failed_pod: false, ..PeOptions::default() };
        let job = submitted(it, options).await?;
        let failed = pod(&job).await?;
        fail(&job, &failed).await?;
        until_pe(&job, "the pod is replaced", |pe| {
            let status = pe.status.clone().unwrap_or_default();
            ensure!(status.phase == Some(PePhase::Running) && status.launch_count == 2, "not yet");
            Ok(())
        })
        .await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        ensure!(job.api::<Pod>().get_opt(&failed.name_any()).await?.is_some(), "the failed pod is gone");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_completed_pod_is_replaced_only_if_the_user_says_so() -> Result<()> {
    for restart_completed_pod in [false, true] {
        with_system("pods", async |it| {
            let job = submitted(it, PeOptions { restart_completed_pod, ..PeOptions::default() }).await?;
            let before = Moment::of(&job).await?;
            tell(&job, &pod(&job).await?, json!({"streams-test/succeed": "yes"})).await?;
            let pe = match restart_completed_pod {
                true => replaced(&job, &before).await?,
                false => stays_down(&job, PePhase::Completed, false).await?,
            };
            let (outcome, code, ..) = termination(&pe)?;
            ensure!((outcome, code) == (TerminationOutcome::Completed, Some(0)), "{:?}", pe.status);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// One PE counts as done, and the job as ready because all others run.
fn one_has_completed(status: &JobStatus) -> Result<()> {
    let ready = condition::get(&status.conditions, condition::READY).context("no condition")?;
    let completed = status.statistics.as_ref().map(|statistics| statistics.completed_processing_elements);
    ensure!(ready.status == "True" && ready.reason == "AllRunning", "{ready:?}");
    ensure!(completed == Some(1), "{completed:?} have completed");
    Ok(())
}

/// It counts as done: the job and its regions are ready, and a resize that changes its text does not run it again
/// (rule job-42).
#[tokio::test]
async fn a_completed_pe_stays_completed_over_a_resize() -> Result<()> {
    with_system("pods", async |it| {
        let job = submitted(it, PeOptions::default()).await?;
        // It splits onto the channels, so that its text changes with every width.
        let completed = async || -> Result<ProcessingElement> { job.pe("Readings").await };
        let pod = completed().await?.status.and_then(|status| status.pod_name).context("no pod")?;
        tell(&job, &job.api::<Pod>().get(&pod).await?, json!({"streams-test/succeed": "yes"})).await?;
        job.until("it counts as done", WITHIN, one_has_completed).await?;
        let before = completed().await?;
        job.set_width(CLEAN, 3).await?;
        job.until("the resize is rolled out", WITHIN, |status| {
            let rollout = status.rollout.clone().context("no roll-out")?;
            ensure!(rollout.generation == 1 && rollout.finished_at.is_some(), "{rollout:?}");
            Ok(())
        })
        .await?;
        let after = completed().await?;
        ensure!(after.spec.runtime_id != before.spec.runtime_id, "it has not got the new text");
        let status = after.status.unwrap_or_default();
        ensure!(status.phase == Some(PePhase::Completed) && status.launch_count == 1, "{status:?}");
        eventually("the regions are ready", WITHIN, || async {
            for region in job.list::<ParallelRegion>().await? {
                let status = region.status.clone().unwrap_or_default();
                ensure!(condition::is_true(&status.conditions, condition::READY), "{status:?}");
            }
            Ok(())
        })
        .await
    })
    .await
}

/// The PE of the source restarts with every resize, so what is new would come to it first. It would never run there
/// (rule job-55).
#[tokio::test]
async fn a_resize_puts_no_channel_into_a_pe_that_has_completed() -> Result<()> {
    with_system("pods", async |it| {
        let mut job = it.sample(JOB);
        job.spec.fusion = Some(FusionOptions { manual: NonZeroU32::new(2), ..FusionOptions::default() });
        let job = ObservedJob::create(&it.client, &job).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        let before = job.pe("Readings").await?;
        let pod = before.status.as_ref().and_then(|status| status.pod_name.clone()).context("no pod")?;
        tell(&job, &job.api::<Pod>().get(&pod).await?, json!({"streams-test/succeed": "yes"})).await?;
        job.until("the PE counts as done", WITHIN, one_has_completed).await?;
        job.set_width(CLEAN, 5).await?;
        job.until("the resize is rolled out", WITHIN, |status| {
            let rollout = status.rollout.clone().context("no roll-out")?;
            ensure!(rollout.generation == 1 && rollout.finished_at.is_some(), "{rollout:?}");
            Ok(())
        })
        .await?;
        let after = job.pe("Readings").await?;
        ensure!(after.spec.id == before.spec.id, "{:?}", after.spec);
        ensure!(after.spec.operators == before.spec.operators, "{:?}", after.spec.operators);
        ensure!(after.status.as_ref().is_some_and(|status| status.launch_count == 1), "{:?}", after.status);
        for channel in 2..5 {
            let status = job.pe(&format!("Clean[{channel}]")).await?.status.unwrap_or_default();
            ensure!(status.phase == Some(PePhase::Running), "channel {channel}: {status:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_deleted_pod_is_replaced_only_if_the_user_says_so() -> Result<()> {
    for restart_deleted_pod in [false, true] {
        with_system("pods", async |it| {
            let job = submitted(it, PeOptions { restart_deleted_pod, ..PeOptions::default() }).await?;
            let before = Moment::of(&job).await?;
            job.api::<Pod>().delete(&pod(&job).await?.name_any(), &DeleteParams::default()).await?;
            let pe = match restart_deleted_pod {
                true => replaced(&job, &before).await?,
                false => stays_down(&job, PePhase::Stopped, true).await?,
            };
            ensure!(termination(&pe)?.0 == TerminationOutcome::Deleted, "{:?}", pe.status);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Nobody wanted that pod gone: it has failed, although nothing but its deletion is seen in the end.
#[tokio::test]
async fn an_evicted_pod_counts_as_failed() -> Result<()> {
    with_system("pods", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        job.api::<Pod>().evict(&pod(&job).await?.name_any(), &EvictParams::default()).await?;
        let pe = replaced(&job, &before).await?;
        ensure!(termination(&pe)?.0 == TerminationOutcome::Failed, "{:?}", pe.status);
        Ok(())
    })
    .await
}

/// Pods that end while no frontend runs are found when one is started. Of one that is gone nobody can say that a user
/// wanted it to be.
#[tokio::test]
async fn what_ends_while_no_frontend_runs_is_replaced_later() -> Result<()> {
    with_system("pods", async |it| {
        let job = submitted(it, PeOptions { restart_deleted_pod: false, ..PeOptions::default() }).await?;
        let before = Moment::of(&job).await?;
        it.frontend()?.process().kill().await?;
        let alarms = job.pe("Alarms").await?.status.and_then(|status| status.pod_name).context("no pod")?;
        job.api::<Pod>().delete(&alarms, &DeleteParams::default()).await?;
        fail(&job, &pod(&job).await?).await?;
        eventually("the pods have ended", WITHIN, || async {
            ensure!(job.snapshot().await?.running() == 10, "they run");
            Ok(())
        })
        .await?;
        it.frontend()?.start_again().await?;
        job.settled(Widths::default(), WITHIN).await?;
        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(changed.restarted == ["Alarms", OPERATOR], "{changed:#?}");
        let lost = termination(&job.pe("Alarms").await?)?;
        ensure!(lost.0 == TerminationOutcome::Lost, "{lost:?}");
        Ok(())
    })
    .await
}
