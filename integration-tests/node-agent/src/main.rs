//! `node-agent`: plays the kubelet of some nodes of the cluster of `KUBECONFIG`, until Ctrl-C or SIGTERM.
//!
//! It is also the supervisor of the programs that the tests of this package start.

use anyhow::Result;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use streams_control_plane::process::{Supervisor, supervise_if_asked};
use streams_control_plane::{client, stop};
use streams_node_agent::{NodeAgent, Options};

/// Plays the kubelet of some nodes: pods become processes of this machine.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The cluster.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The names of its nodes.
    #[arg(long, default_value = "agent-0")]
    node: Vec<String>,
    /// Pods that fit on one of them.
    #[arg(long, default_value_t = 500)]
    pods_per_node: u32,
    /// The program that plays the entry point of every image.
    #[arg(long)]
    program: PathBuf,
    /// Run only pods with this label; others stay pending.
    #[arg(long, value_name = "KEY")]
    only_labelled: Option<String>,
    /// Further arguments of the program.
    #[arg(last = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    if let Some(code) = supervise_if_asked() {
        return code;
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: Arguments) -> Result<()> {
    let stopped = stop::asked()?;
    let supervisor = Supervisor::this_program()?;
    let client = client(&arguments.kubeconfig).await?;
    let options = Options {
        nodes: arguments.node.into_iter().collect(),
        pods_per_node: arguments.pods_per_node,
        program: arguments.program,
        arguments: arguments.arguments,
        only_labelled: arguments.only_labelled,
    };
    let agent = NodeAgent::start(&supervisor, &client, options).await?;
    println!("names are answered at {}, logs are in {}", agent.dns(), agent.state().path().display());
    stopped.await;
    Ok(())
}
