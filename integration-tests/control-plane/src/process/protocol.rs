//! The lines of JSON between this process and the supervisor of a program: orders on the supervisor's stdin, reports on
//! its stdout.
//!
//! There is no order to end: a closed stdin is it, because the kernel closes it however this process ends.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// What the supervisor is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Send this signal to the program's process group.
    Signal(i32),
}

/// What happened to the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It runs, with this process id.
    Started(u32),
    /// It could not be started.
    Refused(String),
    /// It has ended.
    Ended(Exit),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Together with its supervisor, which could not say how.
    Unknown,
}

impl Exit {
    /// Whether the program said that it succeeded.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
            Self::Unknown => formatter.write_str("an unknown exit"),
        }
    }
}
