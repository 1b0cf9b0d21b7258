//! What a server is started with.
//!
//! Knows: values. Must not know: options, environment variables and defaults, which belong to the command line; what
//! the server does with the values.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use streams_compiler::budget::Limits;
use streams_process::tls::ServerFiles;

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the server listens for gRPC.
    pub listen: SocketAddr,
    /// The file that the server writes its gRPC port to.
    pub port_file: Option<PathBuf>,
    /// Where the server listens for HTTP; nowhere if not set.
    pub http_listen: Option<SocketAddr>,
    /// The file that the server writes its HTTP port to.
    pub http_port_file: Option<PathBuf>,
    /// Threads that compile.
    pub workers: NonZeroUsize,
    /// Submissions worked on or waiting.
    pub max_submits: NonZeroUsize,
    /// Resizes worked on or waiting.
    pub max_resizes: NonZeroUsize,
    /// Open streams of rendered documents.
    pub max_renders: NonZeroUsize,
    /// Dry runs worked on or waiting.
    pub max_dry_runs: NonZeroUsize,
    /// Connections at once.
    pub max_clients: NonZeroUsize,
    /// The longest time a call may take, whatever its caller's deadline.
    pub longest_call: Duration,
    /// How long a request may take to arrive, besides a second for each 8 MiB.
    pub arrival: Duration,
    /// How long a caller may read nothing of its answer.
    pub stall: Duration,
    /// Bytes of memory for calls: what they send, and what is decoded and parsed of it.
    pub memory_bytes: u64,
    /// Bytes of memory for the caches.
    pub cache_bytes: u64,
    /// After a request to stop: how long the server takes calls as before, while load balancers learn that it will be
    /// gone.
    pub drain: Duration,
    /// After that: how long calls in flight may go on before they are cancelled.
    pub grace: Duration,
    /// Files with certificates, read again when they change; plain text if not set.
    pub tls: Option<ServerFiles>,
    /// Bounds on the size of a job.
    pub limits: Limits,
}
