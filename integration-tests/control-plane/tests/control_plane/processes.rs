//! Supervised programs, with a shell in the place of a server.

use crate::support::{SOON, supervisor};
use anyhow::{Result, bail, ensure};
use std::time::{Duration, Instant};
use streams_control_plane::process::{Exit, Process, Program, StateDirectory};

fn shell(script: &str) -> Program {
    Program::new("shell", "/bin/sh").arguments(["-c", script])
}

async fn start(program: Program) -> Result<(StateDirectory, Process)> {
    let state = StateDirectory::create(&supervisor())?;
    let process = Process::start(&supervisor(), &state, program).await?;
    Ok((state, process))
}

/// Waits until the log of `process` has `lines` lines.
async fn has_written(process: &Process, lines: usize) -> Result<()> {
    process
        .ready(SOON, || async {
            let written = std::fs::read_to_string(process.log())?;
            ensure!(written.lines().count() == lines, "{written:?}");
            Ok(())
        })
        .await
}

#[tokio::test]
async fn the_exit_code_and_the_environment_arrive() -> Result<()> {
    let program = shell("echo $GREETING; exit 3").environment("GREETING", "hello");
    let (_state, process) = start(program).await?;
    assert_eq!(process.ended().await, Exit::Code(3));
    assert_eq!(process.last_lines(5), "hello");
    assert_eq!(process.id(), None);
    Ok(())
}

#[tokio::test]
async fn a_killed_program_can_be_started_again() -> Result<()> {
    let (_state, process) = start(shell("echo $$; exec sleep 600")).await?;
    has_written(&process, 1).await?;
    let first = process.id();
    assert!(process.start_again().await.is_err(), "it still runs");
    assert_eq!(process.kill().await?, Exit::Signal(9));
    assert!(process.kill().await.is_err(), "it does not run");
    process.start_again().await?;
    has_written(&process, 2).await?;
    assert_ne!(process.id(), first);
    Ok(())
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_after_the_grace() -> Result<()> {
    let (_state, process) = start(shell("trap '' TERM; echo ready; while true; do sleep 600; done")).await?;
    has_written(&process, 1).await?;
    let grace = Duration::from_millis(300);
    let start = Instant::now();
    assert_eq!(process.stop(grace).await?, Exit::Signal(9));
    assert!(start.elapsed() >= grace);
    Ok(())
}

#[tokio::test]
async fn a_program_that_obeys_sigterm_ends_by_itself() -> Result<()> {
    let (_state, process) = start(shell("trap 'exit 7' TERM; echo ready; sleep 600 & wait")).await?;
    has_written(&process, 1).await?;
    assert_eq!(process.stop(SOON).await?, Exit::Code(7));
    Ok(())
}

#[tokio::test]
async fn who_waits_for_a_program_that_ends_is_told_at_once_with_its_last_words() -> Result<()> {
    let (_state, process) = start(shell("echo no port left; exit 1")).await?;
    let start = Instant::now();
    let failure = process.ready::<(), _, _>(SOON, || async { bail!("not yet") }).await;
    let text = failure.err().map(|failure| format!("{failure:#}")).unwrap_or_default();
    assert!(text.contains("ended with exit code 1") && text.contains("no port left"), "{text}");
    assert!(start.elapsed() < SOON);
    Ok(())
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() -> Result<()> {
    let (_state, process) = start(Program::new("ghost", "/nowhere/ghost")).await?;
    assert_eq!(process.ended().await, Exit::Code(127));
    assert!(process.last_lines(1).starts_with("cannot execute /nowhere/ghost: "), "{}", process.last_lines(1));
    Ok(())
}

#[tokio::test]
async fn a_dropped_program_ends_and_its_directory_goes_after_it() -> Result<()> {
    let (state, process) = start(shell("echo $$; exec sleep 600")).await?;
    has_written(&process, 1).await?;
    let path = state.path().to_owned();
    drop(process);
    state.remove().await?;
    assert!(!path.exists());
    Ok(())
}

#[tokio::test]
async fn a_directory_is_not_removed_under_a_running_program() -> Result<()> {
    let (state, process) = start(shell("echo $$; exec sleep 600")).await?;
    has_written(&process, 1).await?;
    let path = state.path().to_owned();
    let mut removal = std::pin::pin!(state.remove());
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut removal).await.is_err(), "it did not wait");
    assert!(path.exists() && process.id().is_some());
    drop(process);
    removal.await?;
    assert!(!path.exists());
    Ok(())
}
