//! A pod that a user deletes, on a node that ends its PE and says how before the pod is gone, as a kubelet does
//! (rule pe-7).

use crate::fixture::{WITHIN, with_running_pes};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use streams_api::{PePhase, TerminationOutcome, condition};
use streams_control_plane::wait::eventually;

/// A PE that a resize of [`CLEAN`] restarts.
const OPERATOR: &str = "Clean[0]";

#[tokio::test]
async fn a_pe_that_completes_because_its_pod_is_deleted_is_down_until_a_resize_starts_it() -> Result<()> {
    with_running_pes("running-pods", async |it| {
        let job = ObservedJob::create(&it.client, &it.sample("sensors")).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        it.pes.until_connected(&job, WITHIN).await?;
        let pod = job.pe(OPERATOR).await?.status.and_then(|status| status.pod_name).context("no pod")?;
        job.api::<Pod>().delete(&pod, &DeleteParams::default()).await?;
        eventually("the PE is down", WITHIN, || async {
            let status = job.pe(OPERATOR).await?.status.unwrap_or_default();
            ensure!(status.phase == Some(PePhase::Stopped), "{status:?}");
            let last = status.last_termination.context("how it ended is not known")?;
            ensure!((last.outcome, last.exit_code) == (TerminationOutcome::Deleted, Some(0)), "{last:?}");
            Ok(())
        })
        .await?;
        job.until_condition(condition::DEGRADED, true, WITHIN).await?;
        eventually("people hear of it", WITHIN, || async {
            let events = job.events().await?;
            ensure!(events.iter().any(|(_, reason, _)| reason == "NotRestarted"), "{events:?}");
            Ok(())
        })
        .await?;
        job.set_width(CLEAN, 3).await?;
        eventually("the PE runs again", WITHIN, || async {
            let status = job.pe(OPERATOR).await?.status.unwrap_or_default();
            ensure!((status.launch_count, status.phase) == (2, Some(PePhase::Running)), "{status:?}");
            Ok(())
        })
        .await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        it.pes.until_connected(&job, WITHIN).await?;
        Ok(())
    })
    .await
}
