//! An API server does what the fake one assumes of it: the table of cases that the fake passes holds for the real one.

use crate::support::control_plane;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use streams_kubernetes::cluster::ApiServer;
use streams_kubernetes::events::{Events, Reporter};
use streams_kubernetes::gate::{Gate, Limits};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::conformance::{Patience, cases, run};
use tokio::time::sleep;

/// How long the garbage collector may take: it looks for kinds that it does not know yet every 30 s.
const COLLECTED_WITHIN: Duration = Duration::from_secs(60);

/// Looks again until it takes too long.
struct Until(Instant);

impl Patience for Until {
    async fn wait(&mut self) -> bool {
        sleep(Duration::from_millis(50)).await;
        Instant::now() < self.0
    }
}

#[tokio::test]
async fn an_api_server_does_what_the_fake_does() -> Result<()> {
    let control_plane = control_plane().await?;
    let client = control_plane.client().await?;
    let reporter = Reporter { controller: "test.streams.ibm.com/conformance".into(), instance: "test".into() };
    let metrics = Metrics::new("test");
    let (events, _) = Events::new(client.clone(), reporter, &metrics);
    let cluster = ApiServer::new(client, events, Gate::new(Limits::of(24), &metrics));
    let mut failed = Vec::new();
    for case in cases() {
        let namespace = control_plane.namespace("conformance").await?;
        if let Err(error) = run(&cluster, &namespace, &case, &mut Until(Instant::now() + COLLECTED_WITHIN)).await {
            failed.push(format!("{error:#}"));
        }
    }
    ensure!(failed.is_empty(), "\n{}", failed.join("\n"));
    Ok(())
}
