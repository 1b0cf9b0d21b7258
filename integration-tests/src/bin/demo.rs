//! `cargo demo`: the whole system on one machine, doing its main job.

use anyhow::{Context as _, Result};
use clap::Parser;
use integration_tests::demo::report;
use integration_tests::demo::run::{Demo, DemoOptions};
use integration_tests::sample;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use streams_control_plane::process::{Supervisor, supervise_if_asked};
use streams_control_plane::stop;

/// Runs a stream application on a real control plane and resizes one of its parallel regions, 2 -> 10 -> 4 channels.
///
/// Builds what is missing (the first time this takes some minutes), starts etcd, kube-apiserver,
/// kube-controller-manager, kube-scheduler and nodes, two replicas of the fusion service and the frontend, submits the
/// sample application, asks for other widths over gRPC as a load balancer would, and prints what became of each
/// processing element.
///
/// As root on Linux the pods are processes with addresses of their own (10.77.0.0/16, by a route of the loopback
/// interface, which stays). They run doubles of processing elements, which move numbered tuples; the demo also prints
/// how many of them moved before, during and after each resize, and how many were lost. Pods that are no processing
/// elements stay pending there. Elsewhere the nodes are fake: pods seem to run, and no tuples move.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  cargo demo                                       everything, then stop
  cargo demo --keep                                leave it running, with lines to go on with, until Ctrl-C
  cargo demo --rate 1000                           ten times as many tuples, where the pods are processes
  cargo demo --keep --env-file /tmp/demo.env       write addresses and programs as shell variables
  cargo demo --context kwok-kwok                   use an existing cluster, with fake nodes
  cargo demo --write-bundle demo.sensors.Sensors.sab
                                                   only the bundle of the sample application, to submit it elsewhere")]
struct Arguments {
    /// Leave everything running at the end, until Ctrl-C or SIGTERM.
    #[arg(long)]
    keep: bool,
    /// Once the demo is through, write to this file, as variables for a shell: KUBECONFIG, the programs KUBECTL,
    /// KUBECTL_STREAMS and GRPCURL, JOB, NAMESPACE, REGION, the addresses ELASTICITY and FUSION of the gRPC APIs and
    /// METRICS and FUSION_METRICS of /metrics, and BUNDLES, the directory of `bundle.file`.
    #[arg(long, value_name = "PATH")]
    env_file: Option<PathBuf>,
    /// Use the cluster of this context of the kubeconfig instead of starting a control plane.
    ///
    /// The custom resources are applied and stay; the job is deleted at the end. The nodes must be fake (kwok): the
    /// services run on this machine, where no pod reaches the frontend, so PEs of the runtime image would get neither
    /// names nor routes nor their bundle, and end.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the job; made if it is not there.
    #[arg(long, default_value = "streams-demo")]
    namespace: String,
    /// Tuples a second that the source of the application makes, where the pods are processes.
    #[arg(long, default_value_t = 100.0, value_name = "NUMBER", value_parser = rate, conflicts_with = "context")]
    rate: f64,
    /// Write the bundle of the sample application to this file, and do nothing else.
    #[arg(long, value_name = "PATH", exclusive = true)]
    write_bundle: Option<PathBuf>,
}

/// A rate that is neither too low to be measured nor more than a machine can do.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (1.0..=100_000.0).contains(rate));
    rate.ok_or_else(|| "it is not a number between 1 and 100000".to_owned())
}

fn main() -> ExitCode {
    if let Some(code) = supervise_if_asked() {
        return code;
    }
    let arguments = Arguments::parse();
    let done = match &arguments.write_bundle {
        Some(path) => write_bundle(path),
        None => demo(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn write_bundle(path: &Path) -> Result<()> {
    std::fs::write(path, sample::bundle()?).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

#[tokio::main]
async fn demo(arguments: Arguments) -> Result<()> {
    let stopped = stop::asked()?;
    tokio::pin!(stopped);
    let supervisor = Supervisor::this_program()?;
    let options = DemoOptions { context: arguments.context, namespace: arguments.namespace, rate: arguments.rate };
    let demo = tokio::select! {
        demo = Demo::run(&supervisor, &options) => demo?,
        // What has been started by now ends with this process.
        () = &mut stopped => return Ok(()),
    };
    println!("{}", report::table(&demo.steps));
    if let Some(tuples) = report::tuples(&demo.steps) {
        println!("\n{tuples}");
    }
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
