//! `fusion-service serve`: the server as a process, with its options, its runtime, its logs and traces.
//!
//! Knows: options and their defaults, [`Settings`]. Must not know: what the server does with them.

use crate::options::LimitArguments;
use crate::server::{self, Settings};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use streams_process::telemetry::{self, Program, Telemetry};
use streams_process::tls::{Pair, ServerFiles};
use tokio::runtime;

/// This program in logs and traces.
const PROGRAM: Program = Program {
    name: "fusion-service",
    version: env!("CARGO_PKG_VERSION"),
    log: "info",
    talkative: &[],
    detailed: &["fusion_service", "streams_compiler"],
};

/// Serves the compiler over gRPC until SIGTERM or SIGINT.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  fusion-service serve
  fusion-service serve --listen 127.0.0.1:0 --port-file port --http-listen 127.0.0.1:8080
  fusion-service serve --tls-cert tls.crt --tls-key tls.key --tls-client-ca ca.crt
  fusion-service serve --max-width 1000 --log info,streams_compiler=debug --log-format json")]
pub struct ServeArgs {
    /// Where to listen for gRPC. Port 0: any free one, see --port-file.
    #[arg(long, env = "FUSION_LISTEN", default_value = "0.0.0.0:50051", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// File to write the gRPC port to, once it is open.
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,

    /// Where to listen for HTTP: /metrics, /healthz, /readyz. Not given: nowhere.
    #[arg(long, env = "FUSION_HTTP_LISTEN", value_name = "ADDRESS:PORT")]
    pub http_listen: Option<SocketAddr>,

    /// File to write the HTTP port to, once it is open.
    #[arg(long, requires = "http_listen", value_name = "FILE")]
    pub http_port_file: Option<PathBuf>,

    /// Threads that compile, each with memory of its own. Not given: one per core.
    #[arg(long, env = "FUSION_WORKERS", value_name = "N",
        value_parser = at_most::<1024>)]
    pub workers: Option<NonZeroUsize>,

    /// Submissions worked on or waiting; more are told to go to another replica.
    #[arg(long, env = "FUSION_MAX_SUBMITS", default_value = "16", value_name = "N",
        value_parser = at_most::<65_536>)]
    pub max_submits: NonZeroUsize,

    /// Resizes worked on or waiting.
    #[arg(long, env = "FUSION_MAX_RESIZES", default_value = "64", value_name = "N",
        value_parser = at_most::<65_536>)]
    pub max_resizes: NonZeroUsize,

    /// Open streams of rendered documents.
    #[arg(long, env = "FUSION_MAX_RENDERS", default_value = "64", value_name = "N",
        value_parser = at_most::<65_536>)]
    pub max_renders: NonZeroUsize,

    /// Dry runs (Plan, Explain) worked on or waiting.
    #[arg(long, env = "FUSION_MAX_DRY_RUNS", default_value = "8", value_name = "N",
        value_parser = at_most::<65_536>)]
    pub max_dry_runs: NonZeroUsize,

    /// Connections of clients at once; more wait to be accepted.
    #[arg(long, env = "FUSION_MAX_CLIENTS", default_value = "1024", value_name = "N",
        value_parser = at_most::<1_048_576>)]
    pub max_clients: NonZeroUsize,

    /// The most time a call gets, whatever its caller's deadline.
    #[arg(long, env = "FUSION_MAX_SECONDS", default_value = "600", value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub max_seconds: u64,

    /// How long a request may take to arrive, besides a second for each 8 MiB.
    #[arg(long, env = "FUSION_REQUEST_SECONDS", default_value = "10", value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub request_seconds: u64,

    /// How long a caller may read nothing of its answer.
    #[arg(long, env = "FUSION_UNREAD_SECONDS", default_value = "30", value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub unread_seconds: u64,

    /// Memory for calls: what they send, that expanded, decoded and parsed, and texts that wait for their reader. A
    /// call that finds too little is told to go to another replica. What compiling takes comes on top, once per worker.
    #[arg(long, env = "FUSION_MEMORY_MIB", default_value = "1536", value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(16..=1 << 24))]
    pub memory_mib: u64,

    /// Memory for what is remembered between calls.
    #[arg(long, env = "FUSION_CACHE_MIB", default_value = "1024", value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    pub cache_mib: u64,

    /// On SIGTERM: how long to go on as before while load balancers find out.
    #[arg(long, env = "FUSION_DRAIN_SECONDS", default_value = "0", value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=3_600))]
    pub drain_seconds: u64,

    /// After that: how long calls in flight may go on before they are cancelled.
    #[arg(long, env = "FUSION_GRACE_SECONDS", default_value = "25", value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=3_600))]
    pub grace_seconds: u64,

    /// Certificate chain of the server (PEM), read again when it changes, as all of these files. Not given: plain text.
    #[arg(long, env = "FUSION_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Its private key (PEM).
    #[arg(long, env = "FUSION_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Certificates of those who may sign callers' certificates (PEM). Given: a caller without one is turned away.
    #[arg(long, env = "FUSION_TLS_CLIENT_CA", requires = "tls_cert", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Bounds on the size of a job.
    #[command(flatten)]
    pub limits: LimitArguments,

    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: telemetry::Options,
}

/// A number from 1 to `MOST`, of which each one may take a thread, or a place that something is counted by.
///
/// # Errors
/// A sentence that says what is wrong with the text.
fn at_most<const MOST: usize>(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= MOST);
    number.ok_or_else(|| format!("'{text}' is not a number in 1..={MOST}"))
}

/// Serves, with a runtime of its own. An error is one line on standard error and status 2.
pub fn run(arguments: &ServeArgs) -> ExitCode {
    let runtime = runtime::Builder::new_multi_thread().enable_all().thread_name("serve").build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(serve(arguments));
        // Work that was cancelled may need a moment to notice.
        runtime.shutdown_timeout(Duration::from_secs(1));
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn serve(arguments: &ServeArgs) -> anyhow::Result<()> {
    let telemetry = Telemetry::start(&arguments.telemetry, PROGRAM)?;
    let result = server::run(&arguments.settings()).await;
    telemetry.stop().await;
    result
}

impl ServeArgs {
    fn settings(&self) -> Settings {
        let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        // The options allow neither without the other.
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        Settings {
            listen: self.listen,
            port_file: self.port_file.clone(),
            http_listen: self.http_listen,
            http_port_file: self.http_port_file.clone(),
            workers: self.workers.unwrap_or_else(cores),
            max_submits: self.max_submits,
            max_resizes: self.max_resizes,
            max_renders: self.max_renders,
            max_dry_runs: self.max_dry_runs,
            max_clients: self.max_clients,
            longest_call: Duration::from_secs(self.max_seconds),
            arrival: Duration::from_secs(self.request_seconds),
            stall: Duration::from_secs(self.unread_seconds),
            memory_bytes: self.memory_mib << 20,
            cache_bytes: self.cache_mib << 20,
            drain: Duration::from_secs(self.drain_seconds),
            grace: Duration::from_secs(self.grace_seconds),
            tls: tls.map(|(certificate, key)| ServerFiles {
                pair: Pair { certificate, key },
                client_authority: self.tls_client_ca.clone(),
            }),
            limits: self.limits.limits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn settings(options: &[&str]) -> Settings {
        Alone::parse_from(["serve"].iter().chain(options)).serve.settings()
    }

    #[test]
    fn options_are_consistent() {
        Alone::command().debug_assert();
        let settings = settings(&[]);
        assert_eq!((settings.listen.port(), settings.http_listen, settings.tls.is_none()), (50051, None, true));
        assert_eq!((settings.longest_call, settings.cache_bytes), (Duration::from_secs(600), 1 << 30));
        assert_eq!(settings.memory_bytes, 1536 << 20);
    }

    #[test]
    fn numbers_with_which_nothing_could_be_compiled_are_refused_by_the_name_of_the_option() {
        // arguments -> part of the error
        let table = [
            ("--workers=0", "'--workers <N>': '0' is not a number in 1..=1024"),
            ("--workers=1025", "'1025' is not a number in 1..=1024"),
            ("--max-submits=0", "'0' is not a number in 1..=65536"),
            ("--max-resizes=65537", "'65537' is not a number in 1..=65536"),
            ("--max-renders=few", "'few' is not a number in 1..=65536"),
            ("--max-dry-runs=-1", "'-1' is not a number in 1..=65536"),
            ("--max-clients=2305843009213693952", "is not a number in 1..=1048576"),
            ("--max-width=0", "'--max-width <N>': 0 is not in 1.."),
            ("--max-operators=0", "'--max-operators <N>': 0 is not in 1.."),
            ("--max-connections=0", "'--max-connections <N>': 0 is not in 1.."),
            ("--max-aadl-bytes=0", "'--max-aadl-bytes <BYTES>': 0 is not in 1.."),
        ];
        for (argument, expected) in table {
            let error = Alone::try_parse_from(["serve", argument]).unwrap_err().to_string();
            assert!(error.contains(expected), "{argument}: {error}");
        }
        assert_eq!(settings(&["--workers=1024"]).workers.get(), 1024);
    }

    #[test]
    fn options_are_environment_variables_too() {
        let command = Alone::command();
        let others = command.get_arguments().filter(|option| option.get_env().is_none());
        // Whoever asks for a file with the port starts the process without a cluster.
        assert_eq!(others.filter_map(clap::Arg::get_long).collect::<Vec<_>>(), ["port-file", "http-port-file"]);
    }

    #[test]
    fn the_chart_takes_all_options_that_it_does_not_give_itself() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/streams-operator/values.schema.json");
        let schema: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let names = schema.pointer("/properties/fusionService/properties/options/propertyNames/enum").unwrap();
        let taken: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let files = ["port-file", "http-port-file", "tls-cert", "tls-key", "tls-client-ca"];
        let given = ["listen", "http-listen", "log-format"];
        let command = Alone::command();
        let mut options: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        options.retain(|option| !files.contains(option) && !given.contains(option));
        options.sort_unstable();
        assert_eq!(taken, options);
    }

    #[test]
    fn tls_has_its_files() {
        let tls = settings(&["--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"]).tls.unwrap();
        let pair = Pair { certificate: "c".into(), key: "k".into() };
        assert_eq!(tls, ServerFiles { pair, client_authority: Some("a".into()) });
    }

    #[test]
    fn half_of_tls_is_refused() {
        for options in [["--tls-cert", "c"], ["--tls-key", "k"], ["--tls-client-ca", "c"]] {
            let error = Alone::try_parse_from(["serve"].into_iter().chain(options)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument, "{options:?}");
        }
    }
}
