//! Nodes whose pods are doubles of PEs.

use crate::system::Programs;
use anyhow::Result;
use kube::Client;
use streams_api::names;
use streams_control_plane::process::Supervisor;
use streams_node_agent::{NodeAgent, Options};

/// Some applications want PEs on different hosts.
const NODES: usize = 4;
const PODS_PER_NODE: u32 = 200;
/// How long a double believes a name, in milliseconds. A PE that was restarted has another address; who waits for it
/// here does not want to wait for the ten seconds of the runtime.
const NAMES_BELIEVED: &str = "1000";

/// Starts an agent with some nodes in a cluster that has no others. Pods that are no PEs stay pending there. Every
/// source of its PEs makes `rate` tuples a second.
///
/// # Errors
/// When pods cannot have addresses on this machine, or the API server does not do what it is asked for.
pub async fn start(supervisor: &Supervisor, client: &Client, programs: &Programs, rate: f64) -> Result<NodeAgent> {
    let options = Options {
        nodes: (0..NODES).map(|number| format!("node-{number}")).collect(),
        pods_per_node: PODS_PER_NODE,
        program: programs.pe_double.clone(),
        arguments: ["--rate", &rate.to_string(), "--cache-ms", NAMES_BELIEVED].map(str::to_owned).into(),
        // A double that is no PE ends at once, and who made the pod makes another one, without end.
        only_labelled: Some(names::LABEL_PE.to_owned()),
    };
    NodeAgent::start(supervisor, client, options).await
}
