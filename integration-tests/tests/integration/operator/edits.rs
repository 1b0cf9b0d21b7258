//! Edits of a running job: what they do to its PEs, and what the job says of those that mean nothing.

use super::fixture::{JOB, Moment, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use streams_api::{Job, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;

/// A user merges this into the spec of the job.
async fn edit(job: &ObservedJob, spec: Value) -> Result<()> {
    job.api::<Job>().patch(job.name(), &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?;
    Ok(())
}

/// All PEs have these resources, and their pods, which were made with others, stay.
async fn outdated_with(job: &ObservedJob, before: &Moment, resources: &Value) -> Result<()> {
    eventually(&format!("PEs have {resources}"), WITHIN, || async {
        for pe in job.list::<ProcessingElement>().await? {
            let has = serde_json::to_value(&pe.spec.options.resources)?;
            let conditions = pe.status.unwrap_or_default().conditions;
            ensure!(has == *resources && condition::is_true(&conditions, condition::OUTDATED), "{has} {conditions:?}");
        }
        Ok(())
    })
    .await?;
    job.settled(Widths::default(), WITHIN).await?;
    let changed = Moment::of(job).await?.since(before)?;
    ensure!(changed.kept.len() == 12, "{changed:#?}");
    Ok(())
}

/// An apply of `resources: {}` after values is `null` for the API server, which refuses it.
#[tokio::test]
async fn resources_are_edited_and_emptied_without_a_restart() -> Result<()> {
    with_system("edits", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        // edit -> resources of each of the 12 PEs
        let default = json!({"requests": {"cpu": "100m", "memory": "128Mi"}});
        edit(&job, json!({"resources": {"requests": {"cpu": "1200m"}, "limits": {"cpu": 12}}})).await?;
        outdated_with(&job, &before, &json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}})).await?;
        edit(&job, json!({"resources": {"requests": null, "limits": null}})).await?;
        let spec = job.get().await?.spec;
        ensure!(serde_json::to_value(&spec.resources)? == json!({}), "{:?}", spec.resources);
        eventually("PEs have what they began with", WITHIN, || async {
            for pe in job.list::<ProcessingElement>().await? {
                let has = serde_json::to_value(&pe.spec.options.resources)?;
                let conditions = pe.status.unwrap_or_default().conditions;
                let outdated = condition::is_true(&conditions, condition::OUTDATED);
                ensure!(has == default && !outdated, "{has} {conditions:?}");
            }
            Ok(())
        })
        .await?;
        edit(&job, json!({"processingElement": {"resources": {"limits": {"memory": "1Gi"}}}})).await?;
        outdated_with(&job, &before, &json!({"limits": {"memory": "1Gi"}})).await?;
        edit(&job, json!({"processingElement": {"resources": {"limits": {"memory": null}}}})).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        job.until_condition(condition::PROGRESSING, false, WITHIN).await?;
        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(changed.kept.len() == 12, "{changed:#?}");
        Ok(())
    })
    .await
}

/// Bounds of a running job count at once. Those of no region are told.
#[tokio::test]
async fn bounds_of_no_region_are_told() -> Result<()> {
    with_system("edits", async |it| {
        let mut job = it.sample(JOB);
        job.spec.parallel_regions = Vec::new();
        let job = ObservedJob::create(&it.client, &job).await?;
        job.settled(Widths::default(), WITHIN).await?;
        edit(&job, json!({"parallelRegions": [{"name": "Claen", "maxWidth": 3}, {"name": "Score*", "maxWidth": 8}]}))
            .await?;
        let (reason, message) = job.until_condition(condition::WARNING, true, WITHIN).await?;
        ensure!(reason == "UnmatchedRegion" && message.contains("\"Claen\""), "{reason}: {message}");
        ensure!(!message.contains("Score"), "{message}");
        eventually("an Event tells it", WITHIN, || async {
            let events = job.events().await?;
            let about = |(kind, reason, note): &(String, String, String)| {
                kind == "Warning" && reason == "UnmatchedRegion" && note.contains("\"Claen\"")
            };
            ensure!(events.iter().filter(|event| about(event)).count() == 1, "{events:?}");
            Ok(())
        })
        .await?;
        edit(&job, json!({"parallelRegions": [{"name": CLEAN, "maxWidth": 3}]})).await?;
        eventually("the condition is gone", WITHIN, || async {
            let conditions = job.status().await?.conditions;
            ensure!(condition::get(&conditions, condition::WARNING).is_none(), "{conditions:?}");
            Ok(())
        })
        .await?;
        job.set_width(CLEAN, 4).await?;
        let (reason, _) = job.until_condition(condition::RESIZE_REJECTED, true, WITHIN).await?;
        ensure!(reason == "OutOfBounds", "{reason}");
        Ok(())
    })
    .await
}

/// CPU that the pods of the job ask for, in thousandths.
async fn cpu_of_pods(job: &ObservedJob) -> Result<Vec<u64>> {
    let cpu = |pod: &Pod| {
        let resources = pod.spec.as_ref()?.containers.first()?.resources.as_ref()?;
        resources.requests.as_ref()?.get("cpu")?.0.strip_suffix('m')?.parse().ok()
    };
    job.list::<Pod>().await?.iter().map(|pod| cpu(pod).with_context(|| format!("{:?}", pod.spec))).collect()
}

/// What a resize keeps runs on with its old share, says so, and gets the new one when it restarts.
#[tokio::test]
async fn the_shares_of_pes_add_up_to_what_the_job_says_once_all_have_restarted() -> Result<()> {
    with_system("edits", async |it| {
        let mut job = it.sample(JOB);
        job.spec.resources = Some(serde_json::from_value(json!({"requests": {"cpu": "1200m"}}))?);
        let job = ObservedJob::create(&it.client, &job).await?;
        job.settled(Widths::default(), WITHIN).await?;
        ensure!(cpu_of_pods(&job).await? == [100; 12]);
        job.set_width(CLEAN, 3).await?;
        let widths = Widths { clean: 3, ..Widths::default() };
        job.settled(widths, WITHIN).await?;
        // One that is restarted for the resize has its new share, one that is kept has the old one.
        let outdated = eventually("kept PEs say that they are outdated", WITHIN, || async {
            let mut outdated = 0;
            for pe in job.list::<ProcessingElement>().await? {
                let status = pe.status.unwrap_or_default();
                let is_outdated = condition::is_true(&status.conditions, condition::OUTDATED);
                ensure!(is_outdated == (pe.spec.generation == 0), "PE {}: {:?}", pe.spec.id, status.conditions);
                outdated += usize::from(is_outdated);
            }
            Ok(outdated)
        })
        .await?;
        let old = cpu_of_pods(&job).await?.into_iter().filter(|cpu| *cpu == 100).count();
        ensure!(outdated > 0 && old == outdated, "{outdated} PEs are outdated, {old} pods have the old share");
        let request = Patch::Merge(json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: "all"}}}));
        for pe in job.list::<ProcessingElement>().await? {
            job.api::<ProcessingElement>().patch(&pe.name_any(), &PatchParams::default(), &request).await?;
        }
        eventually("all PEs have restarted", WITHIN, || async {
            for pe in job.list::<ProcessingElement>().await? {
                let status = pe.status.unwrap_or_default();
                let is_outdated = condition::is_true(&status.conditions, condition::OUTDATED);
                ensure!(status.restart_requested.as_deref() == Some("all") && !is_outdated, "PE {}", pe.spec.id);
            }
            Ok(())
        })
        .await?;
        job.settled(widths, WITHIN).await?;
        let shares = cpu_of_pods(&job).await?;
        ensure!(shares == [92; 13], "{shares:?} of 1200");
        // Later edits count for the number of PEs that there are now.
        edit(&job, json!({"resources": {"requests": {"cpu": "1300m"}}})).await?;
        eventually("PEs have their share of the edit", WITHIN, || async {
            for pe in job.list::<ProcessingElement>().await? {
                let has = serde_json::to_value(&pe.spec.options.resources)?;
                ensure!(has == json!({"requests": {"cpu": "100m"}}), "PE {}: {has}", pe.spec.id);
            }
            Ok(())
        })
        .await
    })
    .await
}
