//! Options that several commands have.

use streams_compiler::fuser::FusionType;
use streams_compiler::plan::Policy;

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
