//! Options that several commands have.

use streams_compiler::budget::Limits;
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

/// Bounds on sizes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArguments {
    /// Width of one parallel region.
    #[arg(long, value_name = "N", default_value_t = Limits::default().width)]
    pub max_width: u64,
    /// Physical operators.
    #[arg(long, value_name = "N", default_value_t = Limits::default().operators)]
    pub max_operators: u64,
    /// Connections between operator ports.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    pub max_connections: u64,
    /// Bytes of all AADL documents of a step.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().aadl_bytes)]
    pub max_aadl_bytes: u64,
}

impl LimitArguments {
    /// The limits.
    pub fn limits(&self) -> Limits {
        Limits {
            width: self.max_width,
            operators: self.max_operators,
            connections: self.max_connections,
            aadl_bytes: self.max_aadl_bytes,
            ..Limits::default()
        }
    }
}

/// Reads the name of a fusion type.
pub(super) fn fusion_type(name: &str) -> Result<FusionType, String> {
    FusionType::parse(name).ok_or_else(|| "noChannelInfluence, channelIsolation or channelExlocation".to_owned())
}
