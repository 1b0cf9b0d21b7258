//! The kubectl plug-in: `kubectl streams status`, `graph`, `plan`, `resize` and `cancel`.
//!
//! * `options` — the command line.
//! * [`status`] — how a job is: its conditions, regions, PEs that do not run, requests to resize.
//! * [`graph`] — the PEs of a job in its regions, as a tree or for Graphviz.
//! * [`plan`] — what a resize would do.
//! * [`resize`] — asks for widths and follows the request; withdraws one.
//! * [`progress`] — pure: what there is to tell of a request.
//! * [`named`] — objects by their names.
//! * [`lists`] — lists of objects, page by page.
//! * [`output`] — lines of commands that do something, whoever reads them.
//! * [`words`] — pure: errors, numbers and texts of others, for people.
//!
//! Knows: the custom resources. Must not know: the frontend. It asks the API server only, so it needs no more than the
//! rights of the ClusterRoles `streams-view` and `streams-edit`. The exception is `plan`, which asks the elasticity
//! API: what a resize would do is in no object.

mod graph;
mod lists;
mod named;
mod options;
mod output;
mod plan;
mod progress;
mod resize;
mod status;
mod words;

use self::options::{Arguments, Command};
use self::resize::Ending;
use anyhow::anyhow;
use clap::Parser;
use kube::Client;
use std::process::ExitCode;
use streams_kubernetes::client::configuration;

/// The request has not come so far in the time that there was; it goes on.
const TIME_IS_OVER: u8 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(Ending::Good) => ExitCode::SUCCESS,
        Ok(Ending::Bad) => ExitCode::FAILURE,
        Ok(Ending::StillGoing) => ExitCode::from(TIME_IS_OVER),
        // Of a command that shows something: others go on.
        Err(error) if words::is_of_a_reader_that_has_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell(&format!("error: {}", words::of_error(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<Ending> {
    // Fails only if there is a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // kube's message has its causes in it already.
    let mut config =
        configuration::from_kubeconfig(arguments.context.as_deref()).map_err(|error| anyhow!("{error}"))?;
    if let Some(namespace) = arguments.namespace {
        config.default_namespace = namespace;
    }
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config)?;
    match arguments.command {
        Command::Status(options) => status::show(client, &namespace, &options).await.map(|()| Ending::Good),
        Command::Resize(options) => resize::resize(client, &namespace, options).await,
        Command::Cancel(options) => resize::cancel(client, &namespace, &options).await,
        Command::Graph(options) => graph::show(client, &namespace, &options).await.map(|()| Ending::Good),
        Command::Plan(options) => plan::plan(&namespace, options).await.map(|()| Ending::Good),
    }
}
