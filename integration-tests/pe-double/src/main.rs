//! `pe-double`: one PE. It ends on SIGTERM or SIGINT, and says on stdout what its status page would. What ends the
//! process of a PE ends it with exit status 1.

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use std::process::ExitCode;
use streams_pe_double::{Double, Options};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(options: &Options) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("no signals")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("no signals")?;
    let double = tokio::select! {
        double = Double::start(options) => double?,
        _ = terminated.recv() => return Ok(()),
        _ = interrupted.recv() => return Ok(()),
    };
    tokio::select! {
        why = double.ended() => bail!(why),
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    println!("{}", serde_json::to_string(&double.status())?);
    Ok(())
}
