//! The deletion of a job leaves nothing of it, and nothing else is touched (rule job-29).

use super::fixture::{JOB, Moment, WITHIN, with_system};
use super::quota::{Limited, Quota};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use integration_tests::system::snapshot::PePod;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use streams_api::{Export, HostPool, Import, Job, ParallelRegion, PePhase, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

async fn delete(job: &ObservedJob, how: &DeleteParams) -> Result<()> {
    job.api::<Job>().delete(job.name(), how).await?;
    eventually(&format!("nothing is left of {}", job.name()), WITHIN, || async {
        ensure!(job.api::<Job>().get_opt(job.name()).await?.is_none(), "the job is there");
        let left = job.inventory().await?.names();
        ensure!(left.is_empty(), "{}", left.join(", "));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn of_a_running_job() -> Result<()> {
    with_system("deletion", async |it| {
        let other = ObservedJob::create(&it.client, &it.sample("other")).await?;
        other.settled(Widths::default(), WITHIN).await?;
        let before = Moment::of(&other).await?;
        let mut last_id = None;
        for how in [DeleteParams::background(), DeleteParams::foreground()] {
            let job = it.submitted().await?;
            let id = job.status().await?.job_id;
            ensure!(id > last_id, "id {id:?} after {last_id:?}");
            last_id = id;
            delete(&job, &how).await?;
        }
        // What belongs to nobody stays: job ids are not given twice.
        ensure!(other.api::<ConfigMap>().get_opt(names::JOB_IDS).await?.is_some(), "job ids are forgotten");
        other.settled(Widths::default(), WITHIN).await?;
        ensure!(Moment::of(&other).await?.pods == before.pods, "the other job was touched");
        Ok(())
    })
    .await
}

/// Everything goes on but the job; the next one of its name takes nothing over, and lists what it would have to.
#[tokio::test]
async fn of_the_job_alone() -> Result<()> {
    with_system("deletion", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let alone = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        job.api::<Job>().delete(job.name(), &alone).await?;
        eventually("the PEs know", WITHIN, || async {
            ensure!(job.api::<Job>().get_opt(job.name()).await?.is_none(), "the job is there");
            for pe in job.list::<ProcessingElement>().await? {
                let status = pe.status.clone().unwrap_or_default();
                let is_told = condition::is_true(&status.conditions, condition::ORPHANED);
                ensure!(is_told && pe.metadata.owner_references.is_none(), "PE {}", pe.spec.id);
                ensure!(status.phase == Some(PePhase::Running), "PE {}: {status:?}", pe.spec.id);
            }
            let events = job.events().await?;
            let told: Vec<_> = events.iter().filter(|(_, reason, _)| reason == "Orphaned").collect();
            ensure!(told.len() == 1 && told[0].0 == "Warning", "{told:?}");
            Ok(())
        })
        .await?;
        ensure!(Moment::of(&job).await?.pods == before.pods, "pods were touched");

        let next = ObservedJob::create(&it.client, &it.sample(JOB)).await?;
        let message = next
            .until("names are taken", WITHIN, |status| {
                let said = condition::get(&status.conditions, condition::SUBMITTED).context("no condition")?;
                ensure!(said.reason == "NameTaken" && said.message.contains("in the way"), "{said:?}");
                Ok(said.message.clone())
            })
            .await?;
        let pes = format!("{} ProcessingElements ({JOB}-0, ", before.pods.0.len());
        ensure!(message.contains(&pes), "{pes}: {message}");
        ensure!(Moment::of(&next).await?.pods == before.pods, "pods were touched");

        // Once what is in the way is gone, the job goes on.
        let ours = ListParams::default().labels(&format!("{}={JOB}", names::LABEL_JOB));
        let how = DeleteParams::background();
        next.api::<ProcessingElement>().delete_collection(&how, &ours).await?;
        next.api::<ParallelRegion>().delete_collection(&how, &ours).await?;
        next.api::<HostPool>().delete_collection(&how, &ours).await?;
        next.api::<Export>().delete_collection(&how, &ours).await?;
        next.api::<Import>().delete_collection(&how, &ours).await?;
        next.api::<ConfigMap>().delete_collection(&how, &ours).await?;
        for service in next.list::<Service>().await? {
            next.api::<Service>().delete(&service.name_any(), &how).await?;
        }
        next.settled(Widths::default(), WITHIN).await?;
        let after = Moment::of(&next).await?;
        let is_new = |(id, pod): (&u64, &PePod)| before.pods.0.get(id).is_none_or(|old| old.uid != pod.uid);
        ensure!(after.pods.0.iter().all(is_new), "a pod was taken over");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn in_the_middle_of_a_submission_and_of_a_resize() -> Result<()> {
    with_system("deletion", async |it| {
        let quota = Quota::after(it, Limited::Pods, 5).await?;
        let job = ObservedJob::create(&it.client, &it.sample(JOB)).await?;
        job.until("a generation is committed", WITHIN, |status| status.generation.context("none")).await?;
        delete(&job, &DeleteParams::foreground()).await?;
        quota.lift().await?;

        let job = it.submitted().await?;
        let quota = Quota::after(it, Limited::Services, 1).await?;
        it.resize(&job, &[(CLEAN, 5)], WaitFor::Accepted).await?;
        job.until("a generation is proposed", WITHIN, |status| status.proposal.clone().context("none")).await?;
        delete(&job, &DeleteParams::background()).await?;
        quota.lift().await
    })
    .await
}
