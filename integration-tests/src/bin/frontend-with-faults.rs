//! The frontend, with a client whose calls fail as a test says: see `integration_tests::faults`.

use integration_tests::faults::{FaultLayer, SOCKET};
use kube::{Client, Config};
use std::path::PathBuf;
use std::process::ExitCode;
use streams_frontend::program;
use streams_kubernetes::client::{self, CallOptions};
use streams_kubernetes::metrics::Metrics;

fn main() -> ExitCode {
    if std::env::var_os(SOCKET).is_none() {
        eprintln!("error: {SOCKET} does not say where the referee listens; to run the frontend, use streams-frontend");
        return ExitCode::FAILURE;
    }
    program::main(with_faults)
}

fn with_faults(config: Config, options: CallOptions, metrics: &Metrics) -> kube::Result<Client> {
    let socket = PathBuf::from(std::env::var_os(SOCKET).unwrap_or_default());
    client::with_layer(config, options, metrics, &FaultLayer::new(&socket))
}
