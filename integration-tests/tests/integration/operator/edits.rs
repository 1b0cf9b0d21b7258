//! Edits of a running job: what they do to its PEs, and what the job says of those that mean nothing.

use super::fixture::{JOB, Moment, WITHIN, with_system};
use anyhow::{Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use streams_api::{Job, ProcessingElement, condition};
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
