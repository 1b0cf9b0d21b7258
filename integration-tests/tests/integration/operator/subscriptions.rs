//! Programs change what jobs export and import (rules import-8 and import-9), through a frontend and a real API server;
//! people see it with `kubectl`, PEs in their routes.

use super::fixture::{Fixture, JOB, WITHIN, reason, with, with_system};
use super::interfaces::{put_telemetry, telemetry};
use super::walk_through::typed;
use anyhow::{Context as _, Result, ensure};
use integration_tests::system::Frontend;
use integration_tests::system::job::ObservedJob;
use kube::ResourceExt as _;
use streams_api::{Export, Import, Job, condition};
use streams_control_plane::process::serves_grpc;
use streams_control_plane::wait::eventually;
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{
    self as proto, EditImportedStreams, EditProperties, GetImportRequest, ListExportsRequest, ListImportsRequest,
    Property, Reset, Standing, UpdateExportRequest, UpdateImportRequest,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// What people read.
const PAGE: &str = include_str!("../../../../docs/subscriptions.md");

fn property(name: &str, kind: &str, value: &str) -> Property {
    Property { name: name.to_owned(), r#type: kind.to_owned(), values: vec![value.to_owned()] }
}

fn adding(add: &[Property]) -> OfExport {
    OfExport::Edit(EditProperties { add: add.to_vec(), ..EditProperties::default() })
}

fn filtering(filter: &str) -> OfImport {
    OfImport::Edit(EditImportedStreams { subscription: None, filter: Some(filter.to_owned()) })
}

/// Changes an export through this frontend.
async fn change_export(
    it: &Fixture,
    frontend: &Frontend,
    name: &str,
    etag: &str,
    change: OfExport,
) -> Result<Result<proto::Export, Status>> {
    let request = UpdateExportRequest {
        namespace: it.namespace.clone(),
        name: name.to_owned(),
        expected_etag: etag.to_owned(),
        change: Some(change),
    };
    let answer = frontend.subscriptions().await?.update_export(request).await;
    Ok(answer.map(|answer| answer.into_inner().export.unwrap_or_default()))
}

/// Changes an import through this frontend.
async fn change_import(
    it: &Fixture,
    frontend: &Frontend,
    name: &str,
    change: OfImport,
) -> Result<Result<proto::Import, Status>> {
    let request = UpdateImportRequest {
        namespace: it.namespace.clone(),
        name: name.to_owned(),
        expected_etag: String::new(),
        change: Some(change),
    };
    let answer = frontend.subscriptions().await?.update_import(request).await;
    Ok(answer.map(|answer| answer.into_inner().import.unwrap_or_default()))
}

/// What the PE of an export is told when it asks this frontend.
async fn routes(it: &Fixture, frontend: &Frontend, export: &Export) -> Result<serde_json::Value> {
    let path = format!("http://{}/api/subscriptions/job/{JOB}/pe/{}", frontend.pe_api(), export.spec.pe_id);
    let host = format!("streams-api.{}", it.namespace);
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.get(path).header("host", host).send().await?.error_for_status()?;
    Ok(serde_json::from_str(&answer.text().await?)?)
}

/// The condition of an export has this reason.
async fn stands(job: &ObservedJob, export: &str, expected: &str) -> Result<()> {
    eventually(&format!("the export says {expected}"), WITHIN, || async {
        let conditions = job.api::<Export>().get(export).await?.status.unwrap_or_default().conditions;
        let ready = condition::get(&conditions, condition::READY).context("it says nothing")?;
        ensure!(ready.reason == expected, "{ready:?} instead of {expected}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn programs_change_what_is_exported_and_imported() -> Result<()> {
    with("subscriptions", 2, &[], async |it| {
        let job = telemetry(it, false).await?;
        let [one, other] = it.system.frontends() else { anyhow::bail!("there are two frontends") };
        for frontend in [one, other] {
            serves_grpc(frontend.elasticity(), "streams.subscription.v1.SubscriptionService").await?;
        }
        let (exports, imports) = (job.list::<Export>().await?, job.list::<Import>().await?);
        let (export, import) = (&exports[0], imports[0].name_any());
        let name = export.name_any();

        // What there is, and that nobody is at the other end.
        let mut client = one.subscriptions().await?;
        let namespace = it.namespace.clone();
        let list = ListExportsRequest { namespace: namespace.clone(), job: JOB.to_owned(), ..Default::default() };
        let listed = client.list_exports(list).await?.into_inner().exports;
        ensure!(listed.len() == exports.len(), "{listed:#?}");
        let before = listed.iter().find(|listed| listed.name == name).context("the export is not listed")?;
        ensure!(before.standing() == Standing::Alone && !before.changed_at_run_time, "{before:#?}");
        let list = ListImportsRequest { namespace: namespace.clone(), job: JOB.to_owned(), ..Default::default() };
        ensure!(client.list_imports(list).await?.into_inner().imports.len() == imports.len(), "other imports");
        ensure!(routes(it, one, export).await?["exports"] == serde_json::json!({}), "it has routes already");

        // One change, which the frontend that answers knows at once: its board, and what it tells PEs.
        let wanted = [property("kind", "rstring", "\"rule\""), property("lanes", "int64", "2")];
        let changed = change_export(it, one, &name, &before.etag, adding(&wanted)).await??;
        ensure!(changed.standing() == Standing::Connected && changed.changed_at_run_time, "{changed:#?}");
        let mut names: Vec<String> = imports.iter().map(|import| import.name_any()).collect();
        names.sort();
        ensure!(changed.importers == names, "{changed:#?}");
        let told = routes(it, one, export).await?;
        let entries = told["exports"][&name]["entries"].as_object().context("it has no routes")?;
        ensure!(entries.keys().eq(&names), "{told}");
        let get = GetImportRequest { namespace: namespace.clone(), name: import.clone() };
        let sent = client.get_import(get).await?.into_inner().import.context("no import")?;
        ensure!(sent.exporters == [name.clone()], "{sent:#?}");

        // People see it, and who has done it.
        let path = "jsonpath={.status.runTime.properties[*].name}";
        let shown = it.kubectl(&["get", "streamsexports", &name, "-o", path]).await?;
        ensure!(shown == "lane kind lanes", "{shown}");
        let path = "jsonpath={.metadata.managedFields[*].manager}";
        let shown = it.kubectl(&["get", "streamsexports", &name, "-o", path]).await?;
        ensure!(shown.split(' ').any(|manager| manager == "streams-subscription"), "{shown}");
        stands(&job, &name, "Connected").await?;

        // The other frontend takes what the first one has answered, though its mirrors may not show it yet.
        let more = change_export(it, other, &name, &changed.etag, adding(&[property("n", "int64", "1")])).await??;
        let late = change_export(it, one, &name, &changed.etag, adding(&[property("m", "int64", "1")])).await?;
        let late = late.err().context("an old etag was taken")?;
        ensure!((late.code(), &*reason(&late)) == (Code::FailedPrecondition, "ETAG_MISMATCH"), "{late:?}");
        let details = late.get_error_details();
        let info = details.error_info().context("no details")?;
        ensure!(info.metadata.get("etag") == Some(&more.etag), "{late:?}");

        // What people write is gone on from.
        let by_hand = r#"{"name": "by", "type": "rstring", "values": ["\"hand\""]}"#;
        let patch = format!(r#"{{"status": {{"runTime": {{"properties": [{by_hand}]}}}}}}"#);
        it.kubectl(&["patch", "streamsexports", &name, "--subresource=status", "--type=merge", "-p", &patch]).await?;
        let both = change_export(it, other, &name, "", adding(&wanted)).await??;
        let all: Vec<_> = both.properties.iter().flat_map(|all| &all.properties).map(|one| &*one.name).collect();
        ensure!(all == ["by", "kind", "lanes"], "{both:#?}");

        // Filters, and what is none.
        let wrong = change_import(it, one, &import, filtering("lane = 1")).await?.err().context("no expression")?;
        ensure!((wrong.code(), &*reason(&wrong)) == (Code::InvalidArgument, "INVALID_EXPRESSION"), "{wrong:?}");
        let filtered = change_import(it, one, &import, filtering("lane == 7")).await??;
        ensure!(filtered.streams.as_ref().is_some_and(|streams| streams.filter == "lane == 7"), "{filtered:#?}");
        let path = "jsonpath={.status.runTime.streams.filter}";
        let shown = it.kubectl(&["get", "streamsimports", &import, "-o", path]).await?;
        ensure!(shown == "lane == 7", "{shown}");

        // Back to what the application says.
        let back = change_export(it, one, &name, "", OfExport::Reset(Reset {})).await??;
        ensure!(back.etag == before.etag && back.standing() == Standing::Alone, "{back:#?}");
        let back = change_import(it, other, &import, OfImport::Reset(Reset {})).await??;
        ensure!(back.streams == back.application_streams && !back.changed_at_run_time, "{back:#?}");
        let shown = it.kubectl(&["get", "streamsexports,streamsimports", "-o", "yaml"]).await?;
        ensure!(!shown.contains("runTime:"), "{shown}");
        stands(&job, &name, "NoSubscribers").await
    })
    .await
}

/// The job that the page has its readers make.
fn job_of_the_page() -> Result<Job> {
    let (_, after) = PAGE.split_once("<<'END'\n").context("the page has no manifest")?;
    let (manifest, _) = after.split_once("\nEND\n").context("the manifest has no end")?;
    Ok(serde_saphyr::from_str(manifest)?)
}

#[tokio::test]
async fn the_page_about_subscriptions_says_what_is_answered() -> Result<()> {
    with_system("subscriptions", async |it| {
        put_telemetry(it, false)?;
        let mut job = job_of_the_page()?;
        job.metadata.namespace = Some(it.namespace.clone());
        let job = ObservedJob::create(&it.client, &job).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        typed(it, "subscriptions.md", 6).await
    })
    .await
}
