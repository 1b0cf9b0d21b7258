//! Options that the commands and the server have in common.

use streams_compiler::budget::Limits;

/// Bounds on sizes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArguments {
    /// Width of one parallel region.
    #[arg(long, env = "FUSION_MAX_WIDTH", value_name = "N", default_value_t = Limits::default().width,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub max_width: u64,
    /// Physical operators.
    #[arg(long, env = "FUSION_MAX_OPERATORS", value_name = "N", default_value_t = Limits::default().operators,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub max_operators: u64,
    /// Connections between operator ports.
    #[arg(long, env = "FUSION_MAX_CONNECTIONS", value_name = "N", default_value_t = Limits::default().connections,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub max_connections: u64,
    /// Bytes of all AADL documents of a step.
    #[arg(long, env = "FUSION_MAX_AADL_BYTES", value_name = "BYTES", default_value_t = Limits::default().aadl_bytes,
          value_parser = clap::value_parser!(u64).range(1..))]
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
