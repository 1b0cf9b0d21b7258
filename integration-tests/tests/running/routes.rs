//! Imports meet exports while jobs run: routes come, follow what is changed, and go.

use crate::fixture::{Fixture, WITHIN, with_running_pes};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use kube::api::DeleteParams;
use streams_api::{Export, Import, Job, condition};
use streams_control_plane::wait::eventually;

/// Sensors, lanes that import and export, alarms.
const TELEMETRY: &str = include_str!("../../../fusion-service/tests/applications/telemetry.adl");

async fn telemetry(it: &Fixture, name: &str) -> Result<ObservedJob> {
    let adl = TELEMETRY.replace("<tag name=\"gpu\"/><tag name=\"fast\"/>", "");
    let adl = adl.replace("<replicateHostTag name=\"gpu\"/>", "").replace("tag=\"consistentRegion", "tag=\"other");
    std::fs::write(it.system.bundles().join("telemetry.sab"), sample::bundle_of(&adl)?)?;
    let mut job = it.sample(name);
    job.spec.bundle.file = Some("telemetry.sab".to_owned());
    let job = ObservedJob::create(&it.client, &job).await?;
    job.until_condition(condition::READY, true, WITHIN).await?;
    Ok(job)
}

/// How many routes lead from the exports of one job to another, as the PEs of the former know them.
async fn routes(it: &Fixture, from: &str, to: u64) -> Result<usize> {
    let statuses = it.statuses(from).await?;
    let routes = statuses.values().flat_map(|status| status.routes.exports.values()).flatten();
    Ok(routes.filter(|(_, route)| route.job_id == to).count())
}

#[tokio::test]
async fn routes_lead_to_a_job_that_comes_carry_tuples_and_end_with_it() -> Result<()> {
    with_running_pes("running-routes", async |it| {
        let first = telemetry(it, "first").await?;
        it.until_connected(&first).await?;
        let (exports, imports) = (first.list::<Export>().await?, first.list::<Import>().await?);
        println!(
            "{:?} {:?}",
            exports.iter().map(|export| &export.spec.stream).collect::<Vec<_>>(),
            imports.iter().map(|import| &import.spec.streams).collect::<Vec<_>>()
        );
        let second = telemetry(it, "second").await?;
        let id = second.status().await?.job_id.context("no number")?;
        eventually("routes lead to the second job and carry tuples", WITHIN, || async {
            let count = routes(it, "first", id).await?;
            ensure!(count > 0, "no routes");
            let statuses = it.statuses("first").await?;
            let label = format!("@{id}");
            let outputs = statuses.values().flat_map(|status| &status.outputs);
            let to_second: Vec<_> = outputs
                .filter(|output| output.kind == "route" && output.to.as_ref().is_some_and(|to| to.ends_with(&label)))
                .collect();
            ensure!(to_second.len() == count, "{count} routes: {to_second:#?}");
            ensure!(to_second.iter().all(|output| output.connected && output.sent > 0), "{to_second:#?}");
            Ok(())
        })
        .await?;
        let told: u64 = it.statuses("first").await?.values().map(|status| status.routes.datagrams).sum();
        ensure!(told > 0, "the routes came by polls only");
        for export in first.list::<Export>().await? {
            let ready = export.status.map(|status| status.conditions).unwrap_or_default();
            let ready = condition::get(&ready, condition::READY).context("an export says nothing")?;
            ensure!(["Connected", "NoSubscribers"].contains(&&*ready.reason), "{ready:?}");
        }
        second.api::<Job>().delete("second", &DeleteParams::foreground()).await?;
        eventually("no route leads to the second job", WITHIN, || async {
            let count = routes(it, "first", id).await?;
            ensure!(count == 0, "{count} routes");
            Ok(())
        })
        .await
    })
    .await
}
