//! The commands for people and scripts, one module per command. They need no cluster.
//!
//! Commands that take an application with flags share [`application`]. [`options`], `document` and `request` have other
//! code that several commands share.
//!
//! Knows: files, arguments, exit statuses. Must not know: gRPC, the server.

pub mod application;
pub mod check;
mod document;
pub mod explain;
pub mod fuse;
pub mod graph;
pub mod options;
pub mod plan;
mod request;
mod terminal;

use std::path::Path;
use std::process::ExitCode;

/// Why a command stops: one line for people. The application is not at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandFailure(String);

impl CommandFailure {
    pub(crate) fn new(what: impl std::fmt::Display) -> Self {
        Self(what.to_string())
    }

    pub(crate) fn at(path: &Path, what: impl std::fmt::Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }
}

/// The exit status of a command (rule service-18): 0 if everything was compiled, 3 if the application is at fault. A
/// failure is 2, with one line on standard error.
pub(crate) fn exit(good: Result<bool, CommandFailure>) -> ExitCode {
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(CommandFailure(message)) => {
            const MOST: usize = 1000;
            eprintln!("error: {}", terminal::printable(&message, MOST));
            ExitCode::from(2)
        }
    }
}
