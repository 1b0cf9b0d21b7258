//! `cargo demo`: the whole system on one machine, doing its main job.

use anyhow::Result;
use clap::Parser;
use integration_tests::demo::report;
use integration_tests::demo::run::{Demo, DemoOptions};
use std::path::PathBuf;
use std::process::ExitCode;
use streams_control_plane::process::{Supervisor, supervise_if_asked};
use streams_control_plane::stop;

/// Runs a stream application on a real control plane and resizes one of its parallel regions, 2 -> 10 -> 4 channels.
///
/// Builds what is missing (the first time this takes some minutes), starts etcd, kube-apiserver,
/// kube-controller-manager, kube-scheduler and fake nodes, two replicas of the fusion service and the frontend, submits
/// the sample application, asks for other widths over gRPC as a load balancer would, and prints what became of each
/// processing element.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  cargo demo                                       everything, then stop
  cargo demo --keep                                leave it running, with lines to go on with, until Ctrl-C
  cargo demo --keep --env-file /tmp/demo.env       write addresses and programs as shell variables
  cargo demo --context kind-kind                   use an existing cluster")]
struct Arguments {
    /// Leave everything running at the end, until Ctrl-C or SIGTERM.
    #[arg(long)]
    keep: bool,
    /// Once the demo is through, write KUBECONFIG, KUBECTL, GRPCURL, JOB, NAMESPACE, REGION, ELASTICITY and FUSION to
    /// this file, as variables for a shell.
    #[arg(long, value_name = "PATH")]
    env_file: Option<PathBuf>,
    /// Use the cluster of this context of the kubeconfig instead of starting a control plane.
    ///
    /// The custom resources are applied and stay; the job is deleted at the end. The services run on this machine. The
    /// nodes must be fake (kwok), or run the runtime image, which STREAMS_IMAGE_REGISTRY, STREAMS_IMAGE_NAME and
    /// STREAMS_IMAGE_VERSION name.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the job; made if it is not there.
    #[arg(long, default_value = "streams-demo")]
    namespace: String,
}

fn main() -> ExitCode {
    if let Some(code) = supervise_if_asked() {
        return code;
    }
    match demo(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn demo(arguments: Arguments) -> Result<()> {
    let stopped = stop::asked()?;
    tokio::pin!(stopped);
    let supervisor = Supervisor::this_program()?;
    let options = DemoOptions { context: arguments.context, namespace: arguments.namespace };
    let demo = tokio::select! {
        demo = Demo::run(&supervisor, &options) => demo?,
        // What has been started by now ends with this process.
        () = &mut stopped => return Ok(()),
    };
    println!("{}", report::table(&demo.steps));
    let handles = demo.handles();
    if let Some(path) = &arguments.env_file {
        handles.write(path)?;
    }
    if arguments.keep {
        println!("\nIt goes on until Ctrl-C. Logs: {}\n\n{}", demo.logs().display(), handles.commands());
        stopped.await;
    }
    demo.stop().await
}
