//! The command line.
//!
//! Knows: names, defaults and bounds of options. Must not know: what is done with them.

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;
use std::path::PathBuf;
use std::time::Duration;
use streams_api::resize::KEY_MAX;
use streams_api::{ResizePhase, ResizePolicy};
use streams_proto::elasticity::v1::resize_request::Policy as WirePolicy;

/// What can be waited for: more than a year.
const LONGEST: SignedDuration = SignedDuration::from_hours(10_000);

const EXAMPLES: &str = "\
Examples:
    kubectl streams status sensors
    kubectl streams resize sensors Clean=4
    kubectl streams resize sensors Clean=4 Score=3 --wait written
    kubectl streams resize sensors Clean=4 --expect Clean=2 --timeout 2m
    kubectl streams resize sensors Clean=4 --key balancer-17
    kubectl streams cancel sensors-1f0c9e4ab2d37c58e6a1
    kubectl streams plan sensors Clean=4
    kubectl streams graph sensors

Exit statuses: 0 done; 1 refused, superseded, cancelled, or an error; 2 wrong arguments; 3 the time is over, and the
request goes on.";

const RESIZE_EXAMPLES: &str = "\
Examples:
    kubectl streams resize sensors Clean=4
    kubectl streams resize sensors Clean=4 Score=3 --expect Clean=2 --expect Score=2
    kubectl streams resize sensors Clean=4 --wait none
    kubectl streams resize sensors Clean=4 --key balancer-17     # again: the same request, whatever became of it";

const CANCEL_EXAMPLES: &str = "\
Examples:
    kubectl streams cancel sensors-1f0c9e4ab2d37c58e6a1

Exit statuses: 0 it is withdrawn; 1 it is too late, or an error; 3 the time is over, and it may still be withdrawn.";

const PLAN_EXAMPLES: &str = "\
Examples:
    kubectl -n streams-system port-forward service/streams-frontend 50052 &
    kubectl streams plan sensors Clean=4
    kubectl streams plan sensors Clean=4 --policy rebalance
    kubectl create token balancer --audience streams-frontend > token     # where the frontend asks who calls
    kubectl streams plan sensors Clean=4 --token-file token
    kubectl streams plan sensors Clean=4 --endpoint streams-frontend.streams-system:50052
    kubectl streams plan sensors Clean=4 --tls-ca ca.crt --tls-server-name streams-frontend.streams-system \
      --tls-cert tls.crt --tls-key tls.key                                # where the frontend speaks TLS";

const GRAPH_EXAMPLES: &str = "\
Examples:
    kubectl streams graph sensors
    kubectl streams graph sensors --output dot | dot -Tsvg > sensors.svg";

/// Shows and resizes stream-processing jobs
#[derive(Debug, Parser)]
#[command(name = "kubectl-streams", bin_name = "kubectl streams", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Namespace of the job; else that of the context
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig; else the current one
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How a job is: conditions, regions, PEs that do not run, requests to resize
    Status(StatusOptions),
    /// Asks for other widths of parallel regions, and follows what becomes of that
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ResizeOptions),
    /// Withdraws a request to resize, as long as it is not committed, and waits until that is certain
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel(CancelOptions),
    /// What a resize would do: PEs that it would restart, add and remove, and why
    ///
    /// Asks the elasticity API of the frontend for a dry run; nothing is written.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanOptions),
    /// The PEs of a job in the channels of its regions
    #[command(after_help = GRAPH_EXAMPLES)]
    Graph(GraphOptions),
}

#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    /// Name of the job
    pub(crate) job: String,
    /// Region, by the logical name of its operator, and the width that is wanted
    #[arg(required = true, value_name = "REGION=WIDTH", value_parser = region_and_width)]
    pub(crate) widths: Vec<(String, u32)>,
    /// Refuse unless this is the desired width of the region
    #[arg(long, value_name = "REGION=WIDTH", value_parser = region_and_width)]
    pub(crate) expect: Vec<(String, u32)>,
    /// Whether PEs keep their operators, or operators are distributed anew
    #[arg(long, value_enum, default_value_t)]
    pub(crate) policy: Policy,
    /// Address of the elasticity API: HOST:PORT, or a URL with http, or with https where --tls-ca is given
    #[arg(long, value_name = "ADDRESS", default_value = "localhost:50052", value_parser = url)]
    pub(crate) endpoint: String,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
    /// File with a token to show where the frontend asks who calls (--authenticate=token)
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long to wait for the answer, e.g. 90s
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// For a frontend that speaks TLS.
#[derive(Clone, Debug, Args)]
pub(crate) struct TlsOptions {
    /// Certificates of those who may sign the certificate of the elasticity API (PEM), which is spoken to by TLS then
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Name that its certificate is for; else the host of --endpoint
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub(crate) tls_server_name: Option<String>,
    /// Certificate chain to show in place of a token (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct GraphOptions {
    /// Name of the job
    pub(crate) job: String,
    /// A tree for people, or a graph for Graphviz
    #[arg(long, short, value_enum, default_value_t)]
    pub(crate) output: GraphFormat,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Lines with branches
    #[default]
    Tree,
    /// The language of Graphviz
    Dot,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// Name of the job
    pub(crate) job: String,
}

#[derive(Debug, Args)]
pub(crate) struct CancelOptions {
    /// Name of the Resize object
    pub(crate) request: String,
    /// How long to wait until it is certain, e.g. 90s
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeOptions {
    /// Name of the job
    pub(crate) job: String,
    /// Region, by the logical name of its operator, and the width that is wanted
    #[arg(required = true, value_name = "REGION=WIDTH", value_parser = region_and_width)]
    pub(crate) widths: Vec<(String, u32)>,
    /// Refuse unless this is the desired width of the region
    #[arg(long, value_name = "REGION=WIDTH", value_parser = region_and_width)]
    pub(crate) expect: Vec<(String, u32)>,
    /// Refuse unless this is the committed generation of the job
    #[arg(long, value_name = "NUMBER")]
    pub(crate) expect_generation: Option<u64>,
    /// Names the request: whoever asks again with the same key follows the same request, and makes no other one
    #[arg(long, value_name = "TEXT", value_parser = key)]
    pub(crate) key: Option<String>,
    /// Whether PEs keep their operators, or operators are distributed anew
    #[arg(long, value_enum, default_value_t)]
    pub(crate) policy: Policy,
    /// How far to follow the request
    #[arg(long, value_enum, default_value_t)]
    pub(crate) wait: Wait,
    /// How long to follow it, e.g. 90s, 10m or 1h
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Policy {
    /// As few PEs as possible restart
    #[default]
    Sticky,
    /// As if the job were submitted with these widths
    Rebalance,
}

impl Policy {
    /// In the words of the elasticity API.
    pub(crate) fn of_api(self) -> WirePolicy {
        match self {
            Self::Sticky => WirePolicy::Sticky,
            Self::Rebalance => WirePolicy::Rebalance,
        }
    }
}

impl From<Policy> for ResizePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Sticky => Self::Sticky,
            Policy::Rebalance => Self::Rebalance,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Wait {
    /// Not at all
    None,
    /// Until there is a plan
    Planned,
    /// Until a generation with the widths is committed: from there on it will happen
    Written,
    /// Until every PE runs
    #[default]
    RolledOut,
}

impl Wait {
    /// The phase that is waited for.
    pub(crate) fn phase(self) -> Option<ResizePhase> {
        match self {
            Self::None => None,
            Self::Planned => Some(ResizePhase::Planned),
            Self::Written => Some(ResizePhase::Written),
            Self::RolledOut => Some(ResizePhase::RolledOut),
        }
    }
}

/// What an address means. Whether TLS is spoken there is said by other options.
fn url(address: &str) -> Result<String, String> {
    match address.split_once("://") {
        None => Ok(format!("http://{address}")),
        Some(("http" | "https", _)) => Ok(address.to_owned()),
        Some((scheme, _)) => Err(format!(
            "the elasticity API is spoken to by http or https, not by {scheme}; kubectl -n streams-system port-forward \
             service/streams-frontend 50052 brings it to this machine"
        )),
    }
}

fn region_and_width(text: &str) -> Result<(String, u32), String> {
    // A name could have an equals sign; a width has none.
    let (region, width) = text.rsplit_once('=').ok_or("REGION=WIDTH is needed, e.g. Clean=4")?;
    if region.is_empty() {
        return Err("a region is needed before the equals sign".to_owned());
    }
    let width = width.parse().map_err(|_| format!("'{width}' is no width"))?;
    Ok((region.to_owned(), width))
}

fn key(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("a key is needed".to_owned()),
        1..=KEY_MAX => Ok(text.to_owned()),
        _ => Err(format!("a key has at most {KEY_MAX} bytes")),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error| format!("a duration is needed, e.g. 90s: {error}"))?;
    if duration > LONGEST {
        return Err(format!("'{text}' is longer than {} hours", LONGEST.as_hours()));
    }
    duration.try_into().map_err(|_| format!("'{text}' is over before it begins"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn each_subcommand_that_does_something_has_examples() {
        for name in ["resize", "cancel", "plan", "graph"] {
            let mut command = Arguments::command();
            let help = command.find_subcommand_mut(name).unwrap().render_help().to_string();
            assert!(help.contains(&format!("    kubectl streams {name} sensors")), "{help}");
        }
    }

    #[test]
    fn an_address_needs_no_scheme() {
        for (address, expected) in [
            ("127.0.0.1:23807", "http://127.0.0.1:23807"),
            ("localhost:50052", "http://localhost:50052"),
            ("[::1]:50052", "http://[::1]:50052"),
            ("http://frontend:50052", "http://frontend:50052"),
            ("https://frontend:50052", "https://frontend:50052"),
        ] {
            let arguments =
                Arguments::try_parse_from(["kubectl-streams", "plan", "sensors", "Clean=4", "--endpoint", address]);
            let Command::Plan(options) = arguments.unwrap().command else { panic!("{address}") };
            assert_eq!(options.endpoint, expected);
        }
        assert!(url("dns://frontend:50052").unwrap_err().contains("not by dns"));
    }

    #[test]
    fn half_of_tls_is_refused() {
        let table: [&[&str]; 4] = [
            &["--tls-server-name", "n"],
            &["--tls-cert", "c", "--tls-key", "k"],
            &["--tls-ca", "a", "--tls-cert", "c"],
            &["--tls-ca", "a", "--tls-key", "k"],
        ];
        for options in table {
            let line = [&["kubectl-streams", "plan", "sensors", "Clean=4"][..], options].concat();
            let error = Arguments::try_parse_from(line).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::MissingRequiredArgument, "{options:?}");
        }
    }

    #[test]
    fn a_key_has_a_length() {
        assert_eq!(key("k"), Ok("k".to_owned()));
        assert!(key("").is_err() && key(&"k".repeat(KEY_MAX)).is_ok() && key(&"k".repeat(KEY_MAX + 1)).is_err());
    }

    #[test]
    fn widths_and_durations_are_read() {
        assert_eq!(region_and_width("Score.Model=3"), Ok(("Score.Model".to_owned(), 3)));
        assert_eq!(region_and_width("a=b=3"), Ok(("a=b".to_owned(), 3)));
        for wrong in ["Clean", "=3", "Clean=", "Clean=-1", "Clean=x"] {
            assert!(region_and_width(wrong).is_err(), "{wrong}");
        }
        let seconds = |text| duration(text).map(|duration| duration.as_secs());
        assert_eq!((seconds("90s"), seconds("10m"), seconds("1h")), (Ok(90), Ok(600), Ok(3600)));
        assert_eq!(seconds("10000h"), Ok(36_000_000));
        let too_long = ["10000h1s", "100000000h", "9223372036854775807s"];
        let wrong = ["", "s", "10", "1d", "99999999999999999999s", "18446744073709551615h", "-1s"];
        for wrong in wrong.into_iter().chain(too_long) {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
