//! A bundle that is replaced while its job runs: PEs that start anew wait for the one that the job was submitted with,
//! and the job says so (rules fetch-13, job-43 and repository-11).

use crate::fixture::{WITHIN, sketched, with_running_pes_led};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use streams_api::{PePhase, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;
use streams_test_support::application::Sketch;

#[tokio::test]
async fn a_pe_waits_for_a_bundle_that_was_replaced_and_its_job_says_so() -> Result<()> {
    with_running_pes_led("running-bundles", &["--no-leader-election"], async |it| {
        let job = sketched(it, "flow", &Sketch::row(&["Source", "Work", "Sink"])).await?;
        let file = it.system.bundles().join("flow.sab");
        let was = std::fs::read(&file)?;
        let is = sample::bundle_of(&Sketch::row(&["Source", "Other", "Sink"]).adl())?;
        // A frontend that is started anew has bundles only from where jobs say that they are.
        let frontend = it.system.frontend()?;
        frontend.process().kill().await?;
        std::fs::write(&file, &is)?;
        frontend.start_again().await?;
        let elements = job.api::<ProcessingElement>();
        let first = job.list::<ProcessingElement>().await?.into_iter().next().context("there is no PE")?;
        let pe = first.name_any();
        let restart = json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: "now"}}});
        elements.patch(&pe, &PatchParams::default(), &Patch::Merge(restart)).await?;

        let digests = [&was, &is].map(|bytes| hex::encode(Sha256::digest(bytes)));
        let who = format!("PE {} (BundleUnavailable)", first.spec.id);
        let words = [&*who, "flow.sab was replaced", &digests[0], &digests[1]];
        let (reason, _) = job.until_told(condition::BUNDLE_UNAVAILABLE, &words, WITHIN).await?;
        ensure!(reason == "BundleUnavailable", "{reason}");
        eventually("the PE says so", WITHIN, || async {
            let status = elements.get(&pe).await?.status.unwrap_or_default();
            let ready = condition::get(&status.conditions, condition::READY).context("it says nothing")?;
            ensure!(status.phase == Some(PePhase::Starting) && ready.reason == "BundleUnavailable", "{status:?}");
            Ok(())
        })
        .await?;

        std::fs::write(&file, &was)?;
        job.until("the bundle is there", WITHIN, |status| {
            let said = condition::get(&status.conditions, condition::BUNDLE_UNAVAILABLE);
            ensure!(said.is_none(), "{said:?}");
            Ok(())
        })
        .await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        let status = elements.get(&pe).await?.status.unwrap_or_default();
        ensure!(status.launch_count > 1 && status.bundle_unavailable.is_none(), "{status:?}");
        it.pes.until_connected(&job, WITHIN).await?;
        Ok(())
    })
    .await
}
