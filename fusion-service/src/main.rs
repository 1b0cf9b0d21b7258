//! The program `fusion-service`.
//!
//! One subcommand per thing that people and clusters want; each lives in the library. Exit status 2 goes with exactly
//! one line on standard error (rule service-18).

use clap::{CommandFactory, Parser};
use fusion_service::command::{check, explain, fuse, graph, plan};
use fusion_service::serve;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const EXAMPLES: &str = "\
Examples:
  fusion-service check app.sab
  fusion-service graph app.adl --out app.svg
  fusion-service plan --adl app.adl --request request.json --out plans
  fusion-service serve --listen 127.0.0.1:50051

Each command has examples of its own: fusion-service check --help";

/// Compiles stream applications into processing elements.
#[derive(Debug, Parser)]
#[command(name = "fusion-service", version, max_term_width = 120, arg_required_else_help = false)]
#[command(after_help = EXAMPLES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(plan::Arguments),
    Fuse(fuse::Arguments),
    Explain(Box<explain::Arguments>),
    Check(Box<check::Arguments>),
    Graph(Box<graph::Arguments>),
    Serve(Box<serve::ServeArgs>),
}

fn main() -> ExitCode {
    match Program::try_parse() {
        Ok(Program { command: Command::Plan(arguments) }) => plan::run(&arguments),
        Ok(Program { command: Command::Fuse(arguments) }) => fuse::run(&arguments),
        Ok(Program { command: Command::Explain(arguments) }) => explain::run(&arguments),
        Ok(Program { command: Command::Check(arguments) }) => check::run(&arguments),
        Ok(Program { command: Command::Graph(arguments) }) => graph::run(&arguments),
        Ok(Program { command: Command::Serve(arguments) }) => serve::run(&arguments),
        Err(error) if error.use_stderr() => {
            eprintln!("{}", one_line(&error.render().to_string()));
            ExitCode::from(2)
        }
        // --help, --version.
        Err(error) => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
    }
}

/// The message without usage and advice.
fn one_line(message: &str) -> String {
    let usage = message.find("\nUsage:").or_else(|| message.find("\n\n")).unwrap_or(message.len());
    let words: Vec<&str> = message.get(..usage).unwrap_or(message).split_whitespace().collect();
    let line = words.join(" ");
    if line.starts_with("error:") {
        return line;
    }
    let name = Program::command().get_name().to_owned();
    format!("error: no subcommand; see {name} --help")
}
