//! The program `streams-frontend`.

use std::process::ExitCode;
use streams_frontend::program;
use streams_kubernetes::client;

fn main() -> ExitCode {
    program::main(client::new)
}
