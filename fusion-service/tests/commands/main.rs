//! The commands of the program, as somebody at a terminal or a script meets them: exit statuses, what is written where,
//! recorded results.
//!
//! Recorded results are files beside this folder. `UPDATE_EXPECT=1` writes them anew; look at the difference before
//! committing it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod check;
mod examples;
mod explain;
mod fuse;
mod graph;
mod plan;
mod serve;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fusion-service");

fn program() -> Command {
    Command::new(PROGRAM)
}

#[test]
fn every_help_has_examples() {
    for command in ["", "plan", "fuse", "explain", "check", "graph", "serve"] {
        let output =
            program().args(Some(command).filter(|command| !command.is_empty())).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let example = format!("\n  fusion-service {command}");
        assert!(output.status.success() && help.contains("\nExample") && help.contains(example.trim_end()), "{help}");
    }
}

/// Where the inputs and the recorded results are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}
