//! However a process that has started a control plane ends, nothing of it stays: no program, no port, no file.
#![cfg(target_os = "linux")]

use crate::support::{SOON, supervisor};
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use streams_control_plane::process::{
    Exit, Process, Program, StateDirectory, accepts_connections, free_port, processes_of,
};
use streams_control_plane::wait::eventually;
use tempfile::TempDir;

/// Starting takes five seconds on an idle machine.
const STARTED: std::time::Duration = std::time::Duration::from_secs(120);

/// A process that starts a control plane in a directory of its own, by which everything that belongs to it can be
/// found.
struct Starter {
    directory: TempDir,
    child: Child,
    port: u16,
}

impl Starter {
    fn start() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("nothing-stays-").tempdir()?;
        let port = free_port()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_control-plane"));
        command.env("TMPDIR", directory.path()).args(["--port", &port.to_string()]);
        let child = command.stdout(fs::File::create(directory.path().join("output"))?).stderr(Stdio::null()).spawn()?;
        Ok(Self { directory, child, port })
    }

    /// Waits until it has written where the kubeconfig is, which it does when the control plane is ready.
    async fn ready(&self) -> Result<()> {
        eventually("a control plane is started", STARTED, || async {
            ensure!(fs::metadata(self.directory.path().join("output"))?.len() > 0, "not yet");
            Ok(())
        })
        .await?;
        accepts_connections((std::net::Ipv4Addr::LOCALHOST, self.port).into()).await
    }

    /// Waits until the API server has been started, but not yet become ready.
    async fn starting(&self) -> Result<()> {
        eventually("an API server is started", STARTED, || async {
            let programs = processes_of(self.directory.path())?;
            ensure!(programs.iter().any(|program| program.contains("--secure-port")), "{programs:?}");
            Ok(())
        })
        .await
    }

    /// Sends `signal` and checks that nothing is left. Gives the exit status.
    async fn leaves_nothing_after(mut self, signal: Signal) -> Result<ExitStatus> {
        ensure!(processes_of(self.directory.path())?.len() > 2, "nothing had been started");
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)?;
        let status = self.child.wait()?;
        eventually("all programs have ended", SOON, || async {
            let programs = processes_of(self.directory.path())?;
            ensure!(programs.is_empty(), "{programs:#?}");
            Ok(())
        })
        .await?;
        ensure!(
            accepts_connections((std::net::Ipv4Addr::LOCALHOST, self.port).into()).await.is_err(),
            "a port is open"
        );
        let left: Vec<_> =
            fs::read_dir(self.directory.path())?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
        ensure!(left == ["output"], "{left:?}");
        Ok(status)
    }
}

#[tokio::test]
async fn after_sigkill() -> Result<()> {
    let starter = Starter::start()?;
    starter.ready().await?;
    starter.leaves_nothing_after(Signal::KILL).await.map(drop)
}

#[tokio::test]
async fn after_sigkill_while_starting() -> Result<()> {
    let starter = Starter::start()?;
    starter.starting().await?;
    starter.leaves_nothing_after(Signal::KILL).await.map(drop)
}

#[tokio::test]
async fn after_ctrl_c() -> Result<()> {
    let starter = Starter::start()?;
    starter.ready().await?;
    let status = starter.leaves_nothing_after(Signal::INT).await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[tokio::test]
async fn of_a_program_whose_supervisor_is_killed() -> Result<()> {
    let state = StateDirectory::create(&supervisor())?;
    // Its command line contains the directory, so that processes_of finds it.
    let program = Program::new("tail", "tail").argument("-f").argument(state.log("tail"));
    let process = Process::start(&supervisor(), &state, program).await?;
    let id = process.id().context("it does not run")?;
    eventually("the supervisor has given way to the program", SOON, || async {
        ensure!(fs::read_to_string(format!("/proc/{id}/comm"))?.trim() == "tail", "not yet");
        Ok(())
    })
    .await?;
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).context("no parent")?.trim().parse()?;
    kill_process(Pid::from_raw(parent).context("no parent")?, Signal::KILL)?;
    ensure!(process.ended().await == Exit::Unknown, "it ended in another way");
    eventually("the program has ended, too", SOON, || async {
        let programs = processes_of(state.path())?;
        ensure!(programs.iter().all(|line| !line.starts_with("tail ")), "{programs:?}");
        Ok(())
    })
    .await?;
    state.remove().await
}
