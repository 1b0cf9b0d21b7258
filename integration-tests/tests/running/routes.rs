//! Imports meet exports while jobs run: routes come, follow what is changed, and go.

use crate::fixture::{Fixture, WITHIN, with_running_pes};
use anyhow::{Context as _, Result, ensure};
use integration_tests::running::pes::ANSWERS_WITHIN;
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use kube::api::DeleteParams;
use reqwest::{Method, StatusCode};
use std::collections::BTreeSet;
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
    let statuses = it.pes.statuses(from).await?;
    let routes = statuses.values().flat_map(|status| status.routes.exports.values()).flatten();
    Ok(routes.filter(|(_, route)| route.job_id == to).count())
}

/// A PE of a job.
type Pe<'a> = (&'a str, u64);

/// A request that the pod of one PE sends about another one, or itself. `path` goes on where that of the PE's
/// subscriptions ends.
async fn request(
    it: &Fixture,
    from: Pe<'_>,
    (job, pe): Pe<'_>,
    (method, path): (Method, &str),
    body: &str,
) -> Result<StatusCode> {
    let statuses = it.pes.statuses(from.0).await?;
    let pod = statuses.get(&from.1).context("the PE does not run")?.address;
    let client = reqwest::Client::builder().no_proxy().local_address(pod).timeout(ANSWERS_WITHIN).build()?;
    let url = format!("http://{}/api/subscriptions/job/{job}/pe/{pe}{path}", it.system.frontend()?.pe_api());
    let request = client.request(method, url).header("content-type", "application/xml").body(body.to_owned());
    Ok(request.send().await?.status())
}

/// Waits until so many routes lead from the exports of one job to another, and each carries tuples.
async fn until_routes(it: &Fixture, from: &str, to: u64, count: usize) -> Result<()> {
    eventually(&format!("{count} routes lead from {from} to job {to} and carry tuples"), WITHIN, || async {
        let statuses = it.pes.statuses(from).await?;
        let label = format!("@{to}");
        let outputs = statuses.values().flat_map(|status| &status.outputs);
        let of_routes = outputs.filter(|output| output.kind == "route");
        let there: Vec<_> =
            of_routes.filter(|output| output.to.as_ref().is_some_and(|to| to.ends_with(&label))).collect();
        let known = routes(it, from, to).await?;
        ensure!(known == count, "{known} routes");
        let carry = there.iter().filter(|output| output.connected && output.sent > 0).count();
        ensure!(carry == count, "{carry} of {count} carry tuples: {there:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn routes_follow_what_pes_change_and_jobs_that_come_and_go() -> Result<()> {
    with_running_pes("running-routes", async |it| {
        let first = telemetry(it, "first").await?;
        it.pes.until_connected(&first, WITHIN).await?;
        let second = telemetry(it, "second").await?;
        it.pes.until_connected(&second, WITHIN).await?;
        let (first_id, second_id) = (first.status().await?.job_id, second.status().await?.job_id);
        let (first_id, second_id) = (first_id.context("no number")?, second_id.context("no number")?);
        let imports = second.list::<Import>().await?;
        let import = &imports.first().context("nothing is imported")?.spec;
        let exports = first.list::<Export>().await?;
        let of_lane = |lane: &str| {
            let has = |export: &&Export| export.spec.stream.properties.iter().any(|property| property.values == [lane]);
            exports.iter().filter(has).collect::<Vec<_>>()
        };
        let (ones, changed) = (of_lane("1").len(), of_lane("1").first().context("no such export")?.spec.clone());
        ensure!(ones > 1 && routes(it, "first", second_id).await? == 0, "{ones} exports");

        // An importing PE asks for something else: both jobs export that.
        let streams = format!("/import/{}/streams", import.port_id);
        let asked = r#"<importedStreams><propertyBasedImport subscription="lane == 1"/></importedStreams>"#;
        let (importer, exporter) = (("second", import.pe_id), ("first", changed.pe_id));
        let status = request(it, exporter, importer, (Method::PUT, &streams), asked).await?;
        ensure!(status == StatusCode::FORBIDDEN, "a PE changes what another job imports: {status}");
        let status = request(it, importer, importer, (Method::PUT, &streams), asked).await?;
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        until_routes(it, "first", second_id, ones).await?;
        until_routes(it, "second", second_id, ones).await?;
        let polls: u64 = it.pes.statuses("first").await?.values().map(|status| status.routes.datagrams).sum();
        ensure!(polls > 0, "nobody was told");

        // An exporting PE changes a property: it sends no more.
        let property = format!("/export/{}/property/lane", changed.port_id);
        let lane = r#"<streamProperty name="lane" type="int64"><value>7</value></streamProperty>"#;
        let status = request(it, exporter, exporter, (Method::PATCH, &property), lane).await?;
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        until_routes(it, "first", second_id, ones - 1).await?;

        // Objects say how they stand.
        eventually("exports and imports say how they stand", WITHIN, || async {
            let ready =
                |conditions: Vec<_>| condition::get(&conditions, condition::READY).map(|one| one.reason.clone());
            let exports = first.list::<Export>().await?.into_iter();
            let exports = exports.filter_map(|export| ready(export.status?.conditions)).collect::<Vec<_>>();
            let connected = exports.iter().filter(|reason| *reason == "Connected").count();
            ensure!(connected == ones - 1, "{exports:?}");
            let imports = second.list::<Import>().await?.into_iter();
            let imports = imports.filter_map(|import| ready(import.status?.conditions)).collect::<BTreeSet<_>>();
            ensure!(imports == ["Connected", "NoExports"].map(str::to_owned).into(), "{imports:?}");
            Ok(())
        })
        .await?;

        // The importing job goes.
        second.api::<Job>().delete("second", &DeleteParams::foreground()).await?;
        until_routes(it, "first", second_id, 0).await?;
        ensure!(routes(it, "first", first_id).await? == 0, "nothing else was connected");
        Ok(())
    })
    .await
}
