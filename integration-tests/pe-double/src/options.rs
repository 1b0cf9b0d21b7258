//! What a double is told: the environment of its pod, and where it lives on this machine.

use clap::{Parser, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A test double of the PE runtime. It is a test double for the contract, not a stream processor.
#[derive(Clone, Debug, Parser)]
#[command(version, args_override_self = true)]
pub struct Options {
    /// Its own address, on which it listens and from which it calls.
    #[arg(long, env = "PE_DOUBLE_ADDRESS")]
    pub address: IpAddr,
    /// A DNS server that knows Services.
    #[arg(long, env = "PE_DOUBLE_DNS", required_unless_present = "hosts")]
    pub dns: Option<SocketAddr>,
    /// A file with a line `ADDRESS NAME` for each name, instead of a DNS server. It is read again for each question.
    #[arg(long, env = "PE_DOUBLE_HOSTS")]
    pub hosts: Option<PathBuf>,
    /// The directory below which the files of the pod are, such as `etc/config/pe/aadl.xml`.
    #[arg(long, env = "PE_DOUBLE_ROOT", default_value = "/")]
    pub root: PathBuf,
    /// Tuples a second of each operator without inputs.
    #[arg(long, env = "PE_DOUBLE_RATE", default_value_t = 200.0)]
    pub rate: f64,
    /// An operator without inputs ends after this many tuples.
    #[arg(long, env = "PE_DOUBLE_LIMIT")]
    pub limit: Option<u64>,
    /// Port of its status page, `/status`.
    #[arg(long, env = "PE_DOUBLE_STATUS_PORT", default_value_t = 9696)]
    pub status_port: u16,
    /// It does without its bundle.
    #[arg(long, env = "PE_DOUBLE_WITHOUT_BUNDLE")]
    pub without_bundle: bool,
    /// How long names, addresses and labels of ports are believed, in milliseconds.
    #[arg(long, env = "PE_DOUBLE_CACHE_MS", default_value_t = 10_000)]
    pub cache_ms: u64,
    /// How long it waits for a message about routes before it asks, in milliseconds.
    #[arg(long, env = "PE_DOUBLE_ROUTES_POLL_MS", default_value_t = 60_000)]
    pub routes_poll_ms: u64,
    /// How often it asks for messages about consistent regions, in milliseconds.
    #[arg(long, env = "PE_DOUBLE_REGION_POLL_MS", default_value_t = 5_000)]
    pub region_poll_ms: u64,
    /// How long it keeps the address at which it asks for them, in milliseconds. Where it reports it looks up anew.
    #[arg(long, env = "PE_DOUBLE_REGION_ADDRESS_MS", default_value_t = 60_000)]
    pub region_address_ms: u64,
    /// How long it waits for its static connections before it moves the first tuple, in milliseconds.
    #[arg(long, env = "PE_DOUBLE_START_WAIT_MS", default_value_t = 30_000)]
    pub start_wait_ms: u64,
    /// Where it keeps checkpoints, whatever its pod says.
    #[arg(long, env = "PE_DOUBLE_CHECKPOINTS")]
    pub checkpoints: Option<PathBuf>,
    /// How it reports checkpoints.
    #[arg(long, env = "PE_DOUBLE_CHECKPOINT_STYLE", value_enum, default_value_t = CheckpointStyle::Plain)]
    pub checkpoint_style: CheckpointStyle,
    /// A source that may begin to drain its consistent region does so whenever it has made so many tuples; 0: never.
    #[arg(long, env = "PE_DOUBLE_DRAIN_EVERY", default_value_t = 0)]
    pub drain_every: u64,
    /// An operator without outputs asks for a reset of its region whenever so many tuples have come; 0: never.
    #[arg(long, env = "PE_DOUBLE_RESET_EVERY", default_value_t = 0)]
    pub reset_every: u64,
    /// An operator with which a consistent region starts rests until its checkpoint is complete, and not only until it
    /// is told to go on.
    #[arg(long, env = "PE_DOUBLE_RESTS")]
    pub rests: bool,
    /// The namespace.
    #[arg(long, env = "STREAMS_INSTANCE_ID")]
    pub namespace: String,
    /// The name of the job.
    #[arg(long, env = "STREAMS_JOB_NAME")]
    pub job: String,
    /// The id of the PE.
    #[arg(long, env = "STREAMS_PE_ID")]
    pub pe: u64,
    /// The launch count of the PE.
    #[arg(long, env = "STREAMS_PE_LAUNCH_COUNT", default_value_t = 1)]
    pub launch: u64,
    /// The name of the bundle.
    #[arg(long, env = "STREAMS_SAB_NAME", default_value = "")]
    pub sab: String,
    /// How checkpoints are kept, as JSON.
    #[arg(long, env = "STREAMS_CHECKPOINT_REPOSITORY_CONFIGURATION")]
    pub repository: Option<String>,
    /// Arguments of the container. They are for the real runtime.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub of_the_container: Vec<String>,
}

/// How a double reports checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckpointStyle {
    /// When they are written.
    Plain,
    /// First that what has to wait for them need not wait any more, then that they are written.
    Blocking,
}

impl Options {
    /// Where a file of the pod is.
    #[must_use]
    pub fn path(&self, in_the_pod: &str) -> PathBuf {
        self.root.join(in_the_pod.trim_start_matches('/'))
    }

    /// Where checkpoints are kept.
    #[must_use]
    pub fn checkpoint_directory(&self) -> PathBuf {
        let configured = || {
            let configuration: serde_json::Value = serde_json::from_str(self.repository.as_deref()?).ok()?;
            Some(self.path(configuration.get("Dir")?.as_str()?))
        };
        self.checkpoints.clone().or_else(configured).unwrap_or_else(|| self.path("checkpoint"))
    }

    /// How long what was found out is believed.
    #[must_use]
    pub fn cache(&self) -> Duration {
        Duration::from_millis(self.cache_ms)
    }
}
