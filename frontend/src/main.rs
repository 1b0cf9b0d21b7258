//! The program `streams-frontend`.

use std::process::ExitCode;
use streams_frontend::program;
use streams_kubernetes::client;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    program::main(client::new)
}
