//! The program `streams-frontend`: options, wiring, end.

mod options;
mod run;

use std::{path::Path, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;
use streams_frontend::{api::crds, telemetry::Telemetry};

use crate::options::{Arguments, Command, RunOptions};

fn main() -> ExitCode {
    let result = match Arguments::parse().command() {
        Command::Run(options) => start(*options),
        Command::Crds { directory } => show_crds(directory.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: RunOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let result = runtime.block_on(async {
        let telemetry = Telemetry::start(&options.telemetry, "streams-frontend")?;
        let result = run::run(options).await;
        if let Err(error) = &result {
            tracing::error!(error = format!("{error:#}"), "ended");
        }
        telemetry.stop().await;
        result
    });
    // Work that cannot be interrupted does not keep the process from ending.
    runtime.shutdown_background();
    result
}

fn show_crds(directory: Option<&Path>) -> anyhow::Result<()> {
    for crd in crds::crds()? {
        let manifest = crds::manifest(&crd)?;
        match directory {
            Some(directory) => {
                let path = directory.join(crds::file_name(&crd));
                std::fs::write(&path, manifest).with_context(|| path.display().to_string())?;
            }
            None => print!("---\n{manifest}"),
        }
    }
    Ok(())
}
