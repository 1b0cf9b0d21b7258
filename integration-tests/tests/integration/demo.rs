//! `cargo demo` as people use it: it does its steps, leaves everything running when asked to, says how to go on, and
//! leaves nothing behind.
#![cfg(target_os = "linux")]

use crate::support::{SOON, control_plane, programs};
use anyhow::{Context as _, Result, ensure};
use integration_tests::running;
use integration_tests::system::job::ObservedJob;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;
use streams_control_plane::CONTEXT;
use streams_control_plane::process::{accepts_connections, processes_of};
use streams_control_plane::wait::eventually;

/// Beside the other tests. A quarter of a minute on an idle machine.
const THROUGH: Duration = Duration::from_secs(240);

#[tokio::test]
async fn it_does_its_steps_says_how_to_go_on_and_leaves_nothing() -> Result<()> {
    // Built before, so that the demo finds them.
    programs().await?;
    let directory = tempfile::Builder::new().prefix("demo-").tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.args(["--keep", "--env-file"]).arg(path("variables")).env("TMPDIR", directory.path());
    command.stdout(fs::File::create(path("output"))?).stderr(fs::File::create(path("errors"))?);
    let mut demo = command.stdin(Stdio::null()).spawn()?;
    let pid = Pid::from_child(&demo);
    eventually("the demo is through", THROUGH, || async {
        let said = || fs::read_to_string(path("errors")).unwrap_or_default();
        ensure!(path("variables").exists() && fs::read_to_string(path("output"))?.contains("grpcurl"), "{}", said());
        Ok(())
    })
    .await?;

    let table = fs::read_to_string(path("output"))?;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(['│', '┆']).map(str::trim).collect()).collect();
    // step -> kept, restarted, added, removed, pods running
    for (step, counts) in [
        ("submit sensors", ["0", "0", "12", "0", "12"]),
        ("resize Clean 2 -> 10", ["7", "5", "8", "0", "20"]),
        ("resize Clean 10 -> 4", ["7", "7", "0", "6", "14"]),
    ] {
        let row = rows.iter().find(|row| row.contains(&step)).with_context(|| format!("{step} is not in\n{table}"))?;
        ensure!(row.windows(5).any(|cells| cells == counts), "{step}: {row:?}");
    }

    // Tuples move through it, where pods can be processes.
    if running::possible().await.is_ok() {
        let row = |title: &str| {
            let row = rows.iter().find(|row| row.get(1).is_some_and(|cell| *cell == title));
            let row = row.with_context(|| format!("{title} is not in\n{table}"))?;
            row.get(2..5).map(<[&str]>::to_vec).with_context(|| format!("{row:?}"))
        };
        let broken = row("connections broken between PEs that stayed")?;
        ensure!(broken == ["-", "0 of 6", "0 of 6"], "{broken:?}");
        for title in ["after that", "until every PE had tuples again"] {
            let rates = row(title)?;
            let moves = |rate: &&&str| rate.parse::<u32>().is_ok_and(|rate| rate > 0);
            ensure!(rates.iter().filter(moves).count() >= 2, "{title}: {rates:?}");
        }
        for cell in row("tuples lost")? {
            let (lost, made) = cell.split_once(" of ").with_context(|| format!("{cell} tuples are lost"))?;
            ensure!(lost.parse::<u64>()? < made.parse()?, "{cell} tuples are lost");
        }
        ensure!(table.contains(":9696/status"), "nobody says where a PE can be asked:\n{table}");
    } else {
        let said = fs::read_to_string(path("errors"))?;
        ensure!(said.contains("No tuples will move"), "{said}");
    }

    // The variables are those of a shell, and what they name works.
    let script = r#". "$0" && export KUBECONFIG && "$KUBECTL" -n "$NAMESPACE" get streamsjob "$JOB" -o name && "$GRPCURL" -plaintext "$FUSION" list && "$GRPCURL" -plaintext -d "{\"namespace\": \"$NAMESPACE\", \"job\": \"$JOB\", \"region\": \"$REGION\"}" "$ELASTICITY" streams.elasticity.v1.ElasticityService/GetRegion && "$KUBECTL_STREAMS" -n "$NAMESPACE" plan "$JOB" "$REGION=6" --endpoint "$ELASTICITY" && ls "$BUNDLES""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(path("variables"));
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        shell.env_remove(name);
    }
    let shell = shell.output()?;
    let said = String::from_utf8_lossy(&shell.stdout);
    ensure!(shell.status.success(), "{said}{}", String::from_utf8_lossy(&shell.stderr));
    for expected in [
        "job.streams.ibm.com/sensors",
        "streams.fusion.v1.FusionService",
        r#""appliedWidth": 4"#,
        "would come: ",
        "demo.sensors.Sensors.sab",
    ] {
        ensure!(said.contains(expected), "{expected} is not in\n{said}");
    }

    let variables: BTreeMap<String, String> = fs::read_to_string(path("variables"))?
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned()))
        .collect();
    kill_process(pid, Signal::TERM)?;
    let status = tokio::task::spawn_blocking(move || demo.wait()).await??;
    ensure!(status.success(), "it ended with {status}: {}", fs::read_to_string(path("errors"))?);
    eventually("all programs have ended", SOON, || async {
        let programs = processes_of(directory.path())?;
        ensure!(programs.is_empty(), "{programs:#?}");
        Ok(())
    })
    .await?;
    for name in ["ELASTICITY", "METRICS", "FUSION", "FUSION_METRICS"] {
        let address = variables.get(name).with_context(|| format!("no {name}"))?.parse()?;
        ensure!(accepts_connections(address).await.is_err(), "somebody listens on {address}");
    }
    let mut left = fs::read_dir(directory.path())?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    left.sort();
    ensure!(left == ["errors", "output", "variables"], "{left:?}");
    Ok(())
}

/// The cluster of the other tests is one that exists, as far as the demo is concerned.
#[tokio::test]
async fn an_existing_cluster_is_used_by_the_name_of_its_context_and_the_job_is_taken_away_again() -> Result<()> {
    programs().await?;
    let control_plane = control_plane().await?;
    let directory = tempfile::Builder::new().prefix("demo-context-").tempdir()?;
    let demo = |context: &str| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_demo"));
        command.args(["--context", context, "--namespace", "demo-context"]);
        command.env("KUBECONFIG", control_plane.kubeconfig()).env("TMPDIR", directory.path());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    let unknown = demo("nowhere").output().await?;
    ensure!(!unknown.status.success(), "{}", said(&unknown.stdout));
    let expected = format!("there is no context nowhere; the kubeconfig has: {CONTEXT}");
    ensure!(said(&unknown.stderr).contains(&expected), "{}", said(&unknown.stderr));

    let through = tokio::time::timeout(THROUGH, demo(CONTEXT).output()).await.context("it does not end")??;
    let table = said(&through.stdout);
    ensure!(through.status.success(), "{table}{}", said(&through.stderr));
    for step in ["connect to the cluster", "submit sensors", "resize Clean 2 -> 10", "resize Clean 10 -> 4"] {
        ensure!(table.contains(step), "{step} is not in\n{table}");
    }
    let job = ObservedJob::new(&control_plane.client().await?, "demo-context", "sensors");
    ensure!(job.get().await.is_err(), "the job is left");
    let left = job.inventory().await?.names();
    ensure!(left.is_empty(), "{left:?}");
    ensure!(processes_of(directory.path())?.is_empty(), "something still runs");
    ensure!(fs::read_dir(directory.path())?.next().is_none(), "files are left");
    Ok(())
}
