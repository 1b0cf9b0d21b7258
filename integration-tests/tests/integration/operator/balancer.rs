//! The sample balancer, as a process that reads a metric over HTTP and asks the elasticity API.

use super::fixture::{WITHIN, with_system};
use crate::support::supervisor;
use anyhow::{Result, ensure};
use axum::Router;
use axum::routing::get;
use integration_tests::sample::{CLEAN, Widths};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use streams_control_plane::process::{Process, Program};
use streams_control_plane::wait::eventually;
use tokio::net::TcpListener;

#[tokio::test]
async fn the_sample_balancer_follows_a_metric_within_its_bounds() -> Result<()> {
    with_system("balancer", async |it| {
        let job = it.submitted().await?;
        let backlog = Arc::new(AtomicU32::new(4_000));
        let answering = Arc::clone(&backlog);
        let text = move || {
            let backlog = answering.load(Ordering::Relaxed);
            async move { format!("backlog{{region=\"Score\"}} 9000\nbacklog{{region=\"Clean\"}} {backlog}\n") }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let metrics = format!("http://{}/metrics", listener.local_addr()?);
        let router = Router::new().route("/metrics", get(text));
        tokio::spawn(async move { axum::serve(listener, router).await });

        let api = format!("http://{}", it.frontend()?.elasticity());
        let program = Program::new("balancer", env!("CARGO_BIN_EXE_balancer"))
            .arguments(["--api", &api, "--namespace", &it.namespace, "--job", job.name(), "--region", CLEAN])
            .arguments(["--metrics", &metrics, "--metric", r#"backlog{region="Clean"}"#, "--per-channel", "1000"])
            .arguments(["--min", "2", "--max", "5", "--every-seconds", "1", "--narrower-after-seconds", "1"])
            .without_proxy();
        let balancer = Process::start(&supervisor(), it.system.state(), program).await?;
        // backlog -> width: as much as is needed, and no more or less than the bounds say
        for (value, clean) in [(4_000, 4), (9_000, 5), (100, 2)] {
            backlog.store(value, Ordering::Relaxed);
            job.settled(Widths { clean, ..Widths::default() }, WITHIN).await?;
        }
        eventually("the balancer tells of its last resize", WITHIN, || async {
            let said = balancer.last_lines(20);
            ensure!(said.contains("width 2 is in force in generation 3"), "{said}");
            Ok(())
        })
        .await
    })
    .await
}
