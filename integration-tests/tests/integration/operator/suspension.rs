//! Jobs that users suspend and resume: the pods go and come, everything else stays (rules job-44 and pe-19).

use super::fixture::{WITHIN, is_told_once, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeMap;
use streams_api::{Job, JobPhase, ParallelRegion, ProcessingElement, condition};
use streams_control_plane::wait::eventually;

async fn suspend(job: &ObservedJob, suspend: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    job.api::<Job>().patch(job.name(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Uid and launch count of each PE.
async fn launches(job: &ObservedJob) -> Result<BTreeMap<u64, (Option<String>, u64)>> {
    let pes = job.list::<ProcessingElement>().await?;
    let launch_count = |pe: &ProcessingElement| pe.status.as_ref().map_or(0, |status| status.launch_count);
    Ok(pes.iter().map(|pe| (pe.spec.id, (pe.metadata.uid.clone(), launch_count(pe)))).collect())
}

#[tokio::test]
async fn a_job_is_suspended_resized_by_kubectl_and_resumed() -> Result<()> {
    with_system("suspend", async |it| {
        let job = it.submitted().await?;
        let before = launches(&job).await?;
        suspend(&job, true).await?;
        let (reason, _) = job
            .until("it has no pods", WITHIN, |status| {
                ensure!(status.phase == Some(JobPhase::Suspended), "{:?}", status.phase);
                let said = condition::get(&status.conditions, condition::SUSPENDED).context("no condition")?;
                ensure!(said.reason == "Suspended", "{said:?}");
                Ok((said.reason.clone(), said.message.clone()))
            })
            .await?;
        ensure!(reason == "Suspended", "{reason}");
        eventually("the pods are gone", WITHIN, || async {
            let pods = job.list::<Pod>().await?;
            ensure!(pods.is_empty(), "{} pods", pods.len());
            Ok(())
        })
        .await?;
        ensure!(launches(&job).await? == before, "PEs were touched");
        let shown = it.kubectl(&["get", "streamsjobs"]).await?;
        ensure!(shown.contains("Suspended"), "{shown}");

        // The scale sub-resource works, and nothing starts.
        let region = job.region(CLEAN).await?.metadata.name.context("no name")?;
        it.kubectl(&["scale", "streamspr", &region, "--replicas", "4"]).await?;
        job.until("the resize is rolled out", WITHIN, |status| {
            let rollout = status.rollout.clone().context("no roll-out")?;
            ensure!(rollout.generation == 1 && rollout.finished_at.is_some(), "{rollout:?}");
            ensure!(status.phase == Some(JobPhase::Suspended), "{:?}", status.phase);
            Ok(())
        })
        .await?;
        let regions: Api<ParallelRegion> = job.api();
        let scale = regions.get_scale(&region).await?;
        ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(4), "no scale");
        ensure!(job.list::<Pod>().await?.is_empty(), "pods start");

        // Another frontend than the one that suspended it. What a frontend has not told of when it dies, nobody hears.
        is_told_once(&job, "Suspended").await?;
        it.frontend()?.process().kill().await?;
        suspend(&job, false).await?;
        it.frontend()?.start_again().await?;
        job.settled(Widths { clean: 4, ..Widths::default() }, WITHIN).await?;
        let after = launches(&job).await?;
        for (id, (uid, count)) in &before {
            ensure!(after.get(id) == Some(&(uid.clone(), count + 1)), "PE {id}: {count} launches, {:?}", after.get(id));
        }
        is_told_once(&job, "Resumed").await?;
        is_told_once(&job, "Suspended").await
    })
    .await
}
