//! `control-plane`: starts a control plane for work by hand, and stops it on Ctrl-C.
//!
//! It is also the supervisor of the programs that the tests of this package start.

use anyhow::{Context as _, Result};
use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use std::path::PathBuf;
use std::process::ExitCode;
use streams_control_plane::binaries::{Binaries, Tool};
use streams_control_plane::process::{Supervisor, supervise_if_asked};
use streams_control_plane::{ControlPlane, Options, stop};

/// A Kubernetes control plane with fake nodes, until Ctrl-C or SIGTERM.
#[derive(Parser, Debug)]
struct Arguments {
    /// Number of fake nodes.
    #[arg(long, default_value_t = Options::default().nodes)]
    nodes: u16,
    /// YAML files with custom resource definitions to begin with.
    #[arg(long)]
    crds: Vec<PathBuf>,
    /// Port of the API server; another is chosen if it is taken.
    #[arg(long)]
    port: Option<u16>,
    /// Only build the programs that are missing, and end.
    #[arg(long)]
    build_only: bool,
}

fn main() -> ExitCode {
    if let Some(code) = supervise_if_asked() {
        return code;
    }
    match start(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn start(arguments: &Arguments) -> Result<()> {
    let supervisor = Supervisor::this_program()?;
    let stopped = stop::asked()?;
    tokio::pin!(stopped);
    if arguments.build_only {
        let binaries = tokio::select! {
            binaries = Binaries::find_or_build(&supervisor) => binaries?,
            () = &mut stopped => return Ok(()),
        };
        for tool in Tool::ALL {
            println!("{}", binaries.path(tool).display());
        }
        return Ok(());
    }
    let options = options(arguments)?;
    let control_plane = tokio::select! {
        control_plane = ControlPlane::start(&supervisor, &options) => control_plane?,
        // What has been started by now ends with this process.
        () = &mut stopped => return Ok(()),
    };
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    println!("alias kubectl={}", control_plane.executable(Tool::Kubectl).display());
    stopped.await;
    control_plane.stop().await
}

fn options(arguments: &Arguments) -> Result<Options> {
    let mut options = Options { nodes: arguments.nodes, port: arguments.port, ..Options::default() };
    for path in &arguments.crds {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let crds: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("no custom resource definitions: {}", path.display()))?;
        options.crds.extend(crds);
    }
    Ok(options)
}
