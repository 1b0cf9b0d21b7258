//! The program `streams-frontend`: reads options, runs, reports errors.
//!
//! It is part of the library because tests have a program of their own, which differs in one thing: its client of the
//! API server is told to fail. Nothing of that is in this crate, so no option, feature or environment can switch it on
//! in the program that is shipped.

use crate::options::{Arguments, Command, RunOptions};
use crate::run::{self, MakeClient};
use anyhow::Context as _;
use clap::Parser;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use streams_api::crds;
use streams_process::telemetry::{Program, Telemetry};

/// This program in logs and traces.
const PROGRAM: Program = Program {
    name: "streams-frontend",
    version: env!("CARGO_PKG_VERSION"),
    log: "info",
    // kube writes answers that it cannot read, Secrets too. Of every failed call it says what is said here as well, or
    // is retried and worth nothing.
    talkative: &["kube_client", "kube_runtime"],
    // Calls have spans of their own, without those of kube.
    detailed: &["streams_frontend", "streams_kubernetes"],
};

/// What `main` does: all of the program, with a client that is made like this.
pub fn main(make_client: MakeClient) -> ExitCode {
    match Arguments::parse().into_command() {
        Command::Run(options) => start(*options, make_client),
        Command::Crds { directory } => show_crds(directory.as_deref()).map_or_else(failed, |()| ExitCode::SUCCESS),
    }
}

fn failed(error: anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn start(options: RunOptions, make_client: MakeClient) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(error.into()),
    };
    let code = runtime.block_on(async {
        let telemetry = match Telemetry::start(&options.telemetry, PROGRAM) {
            Ok(telemetry) => telemetry,
            Err(error) => return failed(error),
        };
        let result = run::run(options, make_client).await;
        if let Err(error) = &result {
            tracing::error!(error = format!("{error:#}"), "ended");
        }
        telemetry.stop().await;
        result.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
    });
    // Work that cannot be interrupted does not keep the process from ending.
    runtime.shutdown_background();
    code
}

fn show_crds(directory: Option<&Path>) -> anyhow::Result<()> {
    let mut all = String::new();
    for crd in crds::crds()? {
        let manifest = crds::manifest(&crd)?;
        match directory {
            Some(directory) => {
                let path = directory.join(crds::file_name(&crd));
                std::fs::write(&path, manifest).with_context(|| path.display().to_string())?;
            }
            None => all.extend(["---\n", &manifest]),
        }
    }
    match io::stdout().write_all(all.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("the manifests cannot be printed"),
    }
}
