//! Exports and imports, as PEs are told of them.

use crate::world::{NAMESPACE, SOON, World, arrived, reaches};
use anyhow::Result;
use streams_compiler::plan::FusionOption;
use streams_pe_double::status::Connectivity;
use streams_pe_double::{Double, Status};
use streams_test_support::application::Sketch;
use tokio::time::timeout;

/// Routes of no PE.
const NOTHING: &str = r#"{"exports":{},"imports":{}}"#;

async fn two_jobs(world: &World) -> Result<(Double, Double)> {
    let exporter = Sketch::new().op("Out", 0, 1).export("Export", "", "streamName='s'").chain(&["Out", "Export"]);
    let import = "<nameBasedImport applicationName='a' streamName='s'/>";
    let importer = Sketch::new().import("Import", import, "").op("In", 1, 0).chain(&["Import", "In"]);
    let exporter = world.job("exporter", 1, &exporter, FusionOption::Legacy)?;
    let importer = world.job("importer", 2, &importer, FusionOption::Legacy)?;
    let polled = ["--routes-poll-ms=60000"];
    Ok((world.start(&exporter, 0, 1, &polled).await?, world.start(&importer, 0, 1, &polled).await?))
}

fn exports(filter: &str) -> String {
    format!(
        r#"{{"exports":{{"exporter-0-0":{{"portId":0,"entries":{{"importer-0-0":{{"jobId":2,"peId":0,"portId":0,"portIndex":0,"filter":"{filter}"}}}}}}}},"imports":{{}}}}"#
    )
}

const IMPORTS: &str = r#"{"exports":{},"imports":{"importer-0-0":{"portId":0,"entries":{"exporter-0-0":{"jobId":1,"peId":0,"portId":0}}}}}"#;

fn connected(status: &Status) -> bool {
    status.outputs.iter().any(|output| output.connected && output.kind == "route")
}

#[tokio::test]
async fn a_route_comes_by_a_message_and_goes_with_one() -> Result<()> {
    let world = World::new().await?;
    let (exporter, importer) = two_jobs(&world).await?;
    reaches(&exporter, "it has asked", |status| status.routes.absent == 1).await?;
    reaches(&importer, "it has asked", |status| status.routes.absent == 1).await?;
    reaches(&exporter, "nothing is missing", |status| status.reported == Some(Connectivity::Full)).await?;

    world.tell_routes(&exporter, &exports("")).await?;
    world.tell_routes(&importer, IMPORTS).await?;
    reaches(&exporter, "the route is there", connected).await?;
    let status = reaches(&importer, "tuples come", |status| arrived(status).0 > 20).await?;
    assert_eq!((status.inputs[0].from.as_str(), status.connectivity), ("0.0@1", Connectivity::Full));
    assert_eq!((status.sinks[0].source.as_str(), arrived(&status).2), ("1/Out#1", 0));

    world.tell_routes(&exporter, &exports("i % 5 == 0")).await?;
    let filtered = |status: &Status| status.outputs[0].filter.as_deref() == Some("i % 5 == 0");
    let status = reaches(&exporter, "the filter is known", filtered).await?;
    assert_eq!((status.outputs.len(), status.outputs[0].opened), (1, 1), "it is the same connection");
    let (sent, held_back) = (status.outputs[0].sent, status.outputs[0].filtered);
    let is_enough = |status: &Status| status.outputs[0].filtered - held_back >= 80;
    let status = reaches(&exporter, "the filter holds tuples back", is_enough).await?;
    let (sent, held_back) = (status.outputs[0].sent - sent, status.outputs[0].filtered - held_back);
    // Four of five, but for those that were on the way to being sent.
    assert!((held_back / 4).abs_diff(sent) <= 20, "{sent} sent, {held_back} held back");

    world.tell_routes(&exporter, NOTHING).await?;
    reaches(&exporter, "the route is gone", |status| status.outputs.is_empty()).await?;
    let status = reaches(&importer, "a sender is missed", |status| status.connectivity == Connectivity::None).await?;
    assert_eq!(status.routes.imports.len(), 1);
    world.tell_routes(&importer, NOTHING).await?;
    reaches(&importer, "no sender is missed", |status| status.reported == Some(Connectivity::Full)).await?;
    Ok(())
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_ends_it() -> Result<()> {
    let world = World::new().await?;
    let (exporter, _importer) = two_jobs(&world).await?;
    world.tell_routes(&exporter, &exports("i == j")).await?;
    let why = timeout(SOON, exporter.ended()).await?;
    assert!(why.contains("the filter \"i == j\" cannot be read"), "{why}");
    assert!(exporter.status().problems.last.contains(&why));
    Ok(())
}

#[tokio::test]
async fn a_route_from_a_port_that_it_does_not_have_ends_it() -> Result<()> {
    let world = World::new().await?;
    let (exporter, _importer) = two_jobs(&world).await?;
    world.tell_routes(&exporter, &exports("").replace(r#""portId":0,"entries""#, r#""portId":7,"entries""#)).await?;
    let why = timeout(SOON, exporter.ended()).await?;
    assert!(why.contains("a route from the port 7, which is not there"), "{why}");
    Ok(())
}

#[tokio::test]
async fn a_message_can_ask_it_to_get_its_routes_and_404_ends_exports() -> Result<()> {
    let world = World::new().await?;
    let (exporter, _importer) = two_jobs(&world).await?;
    let path = "GET /api/subscriptions/job/exporter/pe/0";
    world.answer(path.to_owned(), 200, &exports(""));
    world.tell_routes(&exporter, "deadbeef").await?;
    let status = reaches(&exporter, "the route is there", connected).await?;
    assert_eq!((status.routes.asked_to_poll, status.routes.polls), (1, 2));
    // An answer that says nothing of routes changes none.
    world.answer(path.to_owned(), 500, "");
    world.tell_routes(&exporter, "deadbeef").await?;
    let status = reaches(&exporter, "it has asked", |status| status.routes.polls == 3).await?;
    assert!(connected(&status));
    world.answer(path.to_owned(), 404, "");
    world.tell_routes(&exporter, "deadbeef").await?;
    reaches(&exporter, "the route is gone", |status| status.outputs.is_empty()).await?;
    let call = format!("GET http://streams-api.{NAMESPACE}:10000/api/subscriptions/job/exporter/pe/0");
    assert_eq!(world.calls("/subscriptions/job/exporter")[0], call);
    Ok(())
}

#[tokio::test]
async fn a_message_that_is_no_document_changes_nothing_and_is_counted() -> Result<()> {
    let world = World::new().await?;
    let (exporter, _importer) = two_jobs(&world).await?;
    world.tell_routes(&exporter, &exports("")).await?;
    reaches(&exporter, "the route is there", connected).await?;
    // Longer than a PE reads: the end is missing.
    world.tell_routes(&exporter, &exports(&"x".repeat(17_000))).await?;
    world.tell_routes(&exporter, "null").await?;
    let status = reaches(&exporter, "both are counted", |status| status.routes.malformed == 2).await?;
    assert!(connected(&status));
    Ok(())
}

#[tokio::test]
async fn it_asks_again_when_no_message_comes() -> Result<()> {
    let world = World::new().await?;
    let sketch = Sketch::new().op("Out", 0, 1).export("Export", "", "streamName='s'").chain(&["Out", "Export"]);
    let job = world.job("exporter", 1, &sketch, FusionOption::Legacy)?;
    let double = world.start(&job, 0, 1, &["--routes-poll-ms=100"]).await?;
    reaches(&double, "it has asked three times", |status| status.routes.polls == 3).await?;
    Ok(())
}
