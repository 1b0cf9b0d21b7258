//! How pods end: by themselves, killed, deleted.

use crate::support::{Fixture, SOON, terminated};
use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use std::time::{Duration, Instant};
use streams_control_plane::wait::eventually;

#[tokio::test]
async fn a_process_that_ends_is_told_by_phase_exit_code_and_last_words() -> Result<()> {
    let Some(fixture) = Fixture::new("ends").await? else { return Ok(()) };
    for (name, script, phase, code, reason, message) in [
        ("zero", "echo done", "Succeeded", 0, "Completed", ""),
        ("three", "echo first; echo last >&2; exit 3", "Failed", 3, "Error", "first\nlast"),
        ("killed", "kill -9 $$$$", "Failed", 137, "Error", "(its log is empty)"),
    ] {
        fixture.script(name, script).await?;
        let end = terminated(&fixture.reaches(name, phase).await?).context("it has not ended")?;
        let seen = (end.exit_code, end.reason.as_deref(), end.message.as_deref().unwrap_or_default());
        assert_eq!(seen, (code, Some(reason), message), "{name}");
    }
    let missing = json!({"command": ["/no/such/program"]});
    fixture.pod("missing", missing, json!({})).await?;
    let end = terminated(&fixture.reaches("missing", "Failed").await?).context("it has not ended")?;
    assert_eq!((end.exit_code, end.reason.as_deref()), (128, Some("StartError")));
    // Pods that have ended are removed when they are deleted.
    fixture.delete("zero", &DeleteParams::default()).await
}

#[tokio::test]
async fn a_process_that_a_test_kills_fails_its_pod() -> Result<()> {
    let Some(fixture) = Fixture::new("kills").await? else { return Ok(()) };
    fixture.script("p", "exec sleep 1000").await?;
    fixture.reaches("p", "Running").await?;
    fixture.agent.process(&fixture.namespace, "p").context("no process")?.kill().await?;
    let end = terminated(&fixture.reaches("p", "Failed").await?).context("it has not ended")?;
    assert_eq!(end.exit_code, 137);
    assert!(fixture.agent.process(&fixture.namespace, "p").is_none());
    Ok(())
}

#[tokio::test]
async fn a_deleted_pod_may_end_within_its_grace_period() -> Result<()> {
    let Some(fixture) = Fixture::new("graceful").await? else { return Ok(()) };
    for (name, on_term) in [("polite", "echo ending > /out/said; exit 0"), ("deaf", "")] {
        // A shell needs a moment until it listens.
        let script = format!("trap '{on_term}' TERM; echo > /out/{name}; while true; do sleep 0.1; done");
        let container = json!({
            "command": ["/bin/sh", "-c", script],
            "volumeMounts": [{"name": "out", "mountPath": "/out"}],
        });
        let volumes = json!({"volumes": [{"name": "out", "hostPath": {"path": fixture.out()}}]});
        fixture.pod(name, container, volumes).await?;
        fixture.reaches(name, "Running").await?;
        fixture.reads(&fixture.out().join(name), "\n").await?;
    }
    let since = Instant::now();
    fixture.delete("polite", &DeleteParams::default().grace_period(60)).await?;
    assert!(since.elapsed() < Duration::from_secs(30), "it need not be killed");
    fixture.reads(&fixture.out().join("said"), "ending\n").await?;
    let since = Instant::now();
    fixture.delete("deaf", &DeleteParams::default().grace_period(2)).await?;
    assert!(since.elapsed() >= Duration::from_secs(1), "it has some time");
    Ok(())
}

#[tokio::test]
async fn the_process_of_a_pod_that_is_gone_is_killed() -> Result<()> {
    let Some(fixture) = Fixture::new("gone").await? else { return Ok(()) };
    fixture.script("p", "trap '' TERM; while true; do sleep 0.1; done").await?;
    fixture.reaches("p", "Running").await?;
    let process = fixture.agent.process(&fixture.namespace, "p").context("no process")?;
    fixture.pods().delete("p", &DeleteParams::default().grace_period(0)).await?;
    eventually("the process has ended", SOON, || async {
        ensure!(process.id().is_none(), "it runs");
        Ok(())
    })
    .await?;
    assert!(fixture.pods().list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn all_processes_end_with_the_agent() -> Result<()> {
    let Fixture { agent, client: _client, namespace, .. } = {
        let Some(fixture) = Fixture::new("stops").await? else { return Ok(()) };
        fixture.script("p", "exec sleep 1000").await?;
        fixture.reaches("p", "Running").await?;
        fixture
    };
    let process = agent.process(&namespace, "p").context("no process")?;
    let path = format!("/proc/{}", process.id().context("it does not run")?);
    drop(process);
    drop(agent);
    eventually("the process has ended", SOON, || async {
        ensure!(!std::path::Path::new(&path).exists(), "it runs");
        Ok(())
    })
    .await
}
