//! What a user deletes by mistake comes back, without touching what need not be touched (rule job-26).

use super::fixture::{Changed, JOB, Moment, WITHIN, lingers, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::DeleteParams;
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use streams_api::{ParallelRegion, ProcessingElement, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// Deletes an object and waits until there is another one of its name.
async fn returns<K>(job: &ObservedJob, name: &str) -> Result<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned,
{
    let api = job.api::<K>();
    let old = api.get(name).await.with_context(|| format!("{} {name}", K::kind(&())))?.uid();
    api.delete(name, &DeleteParams::background()).await?;
    eventually(&format!("{} {name} is back", K::kind(&())), WITHIN, || async {
        let new = api.get(name).await?;
        ensure!(new.uid() != old, "it is still the old one");
        Ok(new)
    })
    .await
}

#[tokio::test]
async fn objects_come_back_and_no_pod_notices() -> Result<()> {
    with_system("repair", async |it| {
        let job = it.submitted().await?;
        // Not the widths of the submission: what is in force must return.
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        let widths = Widths { clean: 3, ..Widths::default() };
        job.settled(widths, WITHIN).await?;
        let before = Moment::of(&job).await?;
        let inventory = job.inventory().await?;

        let pe = inventory.processing_elements.first().context("no PE")?;
        returns::<Service>(&job, &pe.name_any()).await?;
        returns::<ConfigMap>(&job, &pe.spec.config_map.name).await?;
        returns::<ConfigMap>(&job, JOB).await?;
        for part in [names::PART_PLAN, names::PART_ADL] {
            let chunk = inventory.config_maps_of(Some(part)).next().with_context(|| format!("no {part}"))?;
            returns::<ConfigMap>(&job, &chunk.name_any()).await?;
        }
        let region = job.region(CLEAN).await?.name_any();
        let region = returns::<ParallelRegion>(&job, &region).await?;
        ensure!(region.spec.width == 3, "it returned with width {}", region.spec.width);

        job.settled(widths, WITHIN).await?;
        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(
            changed == Changed { kept: widths.operators().into_iter().collect(), ..Changed::default() },
            "{changed:#?}"
        );
        // It is not only there, it is of use: a resize needs plan and ADL.
        it.resize(&job, &[(CLEAN, 2)], WaitFor::RolledOut).await?;
        job.settled(Widths::default(), WITHIN).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_deleted_pe_comes_back_with_a_new_pod() -> Result<()> {
    with_system("repair", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let pe = job.pe("Score[1].Best").await?;
        // The new PE has the id of the old one and shares its Service and volumes: it waits for the end of the old pod.
        let old = before.pods.0.get(&pe.spec.id).context("it has no pod")?;
        lingers(&job, &old.name, true).await?;
        returns::<ProcessingElement>(&job, &pe.name_any()).await?;
        lingers(&job, &old.name, false).await?;
        job.settled(Widths::default(), WITHIN).await?;
        let difference = job.snapshot().await?.since(&before.pods);
        ensure!(difference.restarted == [pe.spec.id] && difference.kept.len() == 11, "{difference:?}");
        Ok(())
    })
    .await
}

/// A user deletes a PE without its pod (`--cascade=orphan`): nobody else would ever end that pod.
#[tokio::test]
async fn a_pe_that_is_deleted_without_its_pod_has_one_pod_when_it_comes_back() -> Result<()> {
    with_system("repair", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let pe = job.pe("Score[1].Best").await?;
        let old = before.pods.0.get(&pe.spec.id).context("it has no pod")?;
        job.api::<ProcessingElement>().delete(&pe.name_any(), &DeleteParams::orphan()).await?;
        eventually("the PE is back, and its pod is another one", WITHIN, || async {
            let back = job.pe("Score[1].Best").await?;
            ensure!(back.uid() != pe.uid(), "it is the old one");
            let pods: Vec<_> = job.list::<Pod>().await?.iter().map(kube::ResourceExt::name_any).collect();
            ensure!(!pods.contains(&old.name) && pods.len() == 12, "{pods:?}");
            Ok(())
        })
        .await?;
        job.settled(Widths::default(), WITHIN).await.map(drop)
    })
    .await
}

/// What is deleted while no frontend runs is missed when one is started.
#[tokio::test]
async fn what_is_deleted_while_no_frontend_runs_comes_back_later() -> Result<()> {
    with_system("repair", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        it.frontend()?.process().kill().await?;
        let delete = DeleteParams::background();
        let pe = job.pe("Readings").await?;
        job.api::<Service>().delete(&pe.name_any(), &delete).await?;
        job.api::<ConfigMap>().delete(&pe.spec.config_map.name, &delete).await?;
        job.api::<ParallelRegion>().delete(&job.region(CLEAN).await?.name_any(), &delete).await?;
        it.frontend()?.start_again().await?;
        job.settled(Widths::default(), WITHIN).await?;
        ensure!(Moment::of(&job).await?.pods == before.pods, "pods were touched");
        Ok(())
    })
    .await
}
