//! Options that several commands have.

use streams_compiler::fuser::FusionType;
use streams_compiler::plan::{JobState, Policy};

/// Names of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PolicyName {
    /// Operators that exist stay where they are.
    Sticky,
    /// Fuse from scratch.
    Rebalance,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Sticky => Self::Sticky,
            PolicyName::Rebalance => Self::Rebalance,
        }
    }
}

/// Which PEs take no part in what resizes add.
#[derive(Clone, Debug, clap::Args)]
pub struct ClosedArguments {
    /// Processing element that takes no new operators at a resize, because it has completed or was stopped. Repeatable.
    #[arg(long = "closed-pe", value_name = "ID")]
    pub closed_pes: Vec<u64>,
}

impl ClosedArguments {
    /// What a resize is told of the job.
    pub(super) fn state(&self) -> JobState {
        JobState { closed: self.closed_pes.iter().copied().collect(), ..JobState::default() }
    }
}

/// Forms of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// In which form a command answers.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct OutputArguments {
    /// In which form to answer, on standard output.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
}

/// Reads the name of a fusion type.
pub(super) fn fusion_type(name: &str) -> Result<FusionType, String> {
    FusionType::parse(name).ok_or_else(|| "noChannelInfluence, channelIsolation or channelExlocation".to_owned())
}
