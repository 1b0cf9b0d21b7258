//! The program `streams-frontend`.

use mimalloc::MiMalloc;
use std::process::ExitCode;
use streams_frontend::program;
use streams_kubernetes::client;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    program::main(client::new)
}
