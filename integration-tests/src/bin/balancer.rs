//! The sample load balancer as a program.

use anyhow::{Result, ensure};
use clap::Parser;
use integration_tests::balancer::decision::Wish;
use integration_tests::balancer::metric::Metric;
use integration_tests::balancer::{Address, Balancer, Outcome, Source};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use streams_control_plane::stop;
use streams_proto::elasticity::v1::GetRegionRequest;

/// Keeps a parallel region as wide as a metric needs, through the elasticity API, until Ctrl-C.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  A channel for each 1,000 messages that wait, 2 to 10 of them, narrower after five minutes in which less was enough:
    balancer --api http://streams-frontend.streams-system:50052 --job sensors --region Clean \\
      --metrics http://sensors-exporter:8080/metrics --metric 'sensors_backlog{region=\"Clean\"}' \\
      --per-channel 1000 --min 2 --max 10 --narrower-after-seconds 300

  The same where the frontend asks who calls: the token of the pod's service account for the audience streams-frontend,
  from a projected volume (deploy/samples/caller.yaml):
    balancer --api http://streams-frontend.streams-system:50052 --token-file /var/run/streams/token --job sensors \\
      --region Clean --metrics http://sensors-exporter:8080/metrics --metric 'sensors_backlog{region=\"Clean\"}'

  The same with a certificate in place of the token, where the API speaks TLS and has been told who may sign it
  (deploy/README.md says where these files come from, and what a pod needs for TLS and a token):
    balancer --api https://streams-frontend.streams-system:50052 --tls-ca /tls/ca.crt --tls-cert /tls/tls.crt \\
      --tls-key /tls/tls.key --job sensors --region Clean --metrics http://sensors-exporter:8080/metrics \\
      --metric 'sensors_backlog{region=\"Clean\"}'

  Load: as many resizes one after another as there are in a minute, and how long they took:
    balancer --job sensors --region Clean --swing --min 2 --max 8 --every-seconds 0 --for-seconds 60")]
struct Arguments {
    /// The elasticity API: a URL with http, or with https where --tls-ca is given.
    #[arg(long, default_value = "http://localhost:50052", value_name = "URL")]
    api: String,
    /// A file with a token to show where the elasticity API asks who calls. It is read for each call.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates of those who may sign that of the elasticity API (PEM), which is spoken to by TLS then. These files
    /// are read again after each error.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Name that its certificate is for; else the host of --api.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
    /// Certificate chain to show (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Namespace of the job.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The job.
    #[arg(long)]
    job: String,
    /// Logical name of the region.
    #[arg(long)]
    region: String,
    /// Where the metric is: text as Prometheus scrapes it.
    #[arg(long, value_name = "URL", requires = "metric", required_unless_present = "swing", conflicts_with = "swing")]
    metrics: Option<reqwest::Url>,
    /// The metric, with labels; the sum of its samples counts.
    #[arg(long, value_name = "NAME{LABELS}", requires = "metrics")]
    metric: Option<Metric>,
    /// Instead of a metric: the least and the greatest width in turn.
    #[arg(long)]
    swing: bool,
    /// How much of the metric a channel is to have.
    #[arg(long, default_value_t = 1.0, value_name = "NUMBER")]
    per_channel: f64,
    /// The least width.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    min: u32,
    /// The greatest width.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// How far the load of a channel may be from what is wanted, as a part of it.
    #[arg(long, default_value_t = 0.1, value_name = "PART")]
    tolerance: f64,
    /// How long less must have been enough before the region becomes narrower.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    narrower_after_seconds: u64,
    /// Time from one look to the next.
    #[arg(long, default_value_t = 15, value_name = "SECONDS")]
    every_seconds: u64,
    /// How long to wait until a width is in force.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    resize_seconds: u64,
    /// End after this time.
    #[arg(long, value_name = "SECONDS")]
    for_seconds: Option<u64>,
}

fn main() -> ExitCode {
    match balance(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn balance(arguments: Arguments) -> Result<()> {
    ensure!(arguments.min <= arguments.max, "--min is greater than --max");
    ensure!(arguments.per_channel > 0.0, "--per-channel is not positive");
    let source = match (arguments.metrics, arguments.metric) {
        (Some(address), Some(metric)) => Source::Metric(address, metric),
        _ => Source::Swing,
    };
    let region = GetRegionRequest { namespace: arguments.namespace, job: arguments.job, region: arguments.region };
    let wish = Wish {
        per_channel: arguments.per_channel,
        min: arguments.min,
        max: arguments.max,
        tolerance: arguments.tolerance,
        narrower_after: Duration::from_secs(arguments.narrower_after_seconds),
    };
    let resize_within = Duration::from_secs(arguments.resize_seconds);
    let address = Address {
        url: arguments.api,
        token_file: arguments.token_file,
        authority: arguments.tls_ca,
        server_name: arguments.tls_server_name,
        pair: arguments.tls_cert.zip(arguments.tls_key),
    };
    let mut balancer = Balancer::new(address, region, source, wish, resize_within)?;
    let every = Duration::from_secs(arguments.every_seconds);
    let mut times = Vec::new();
    let balancing = async {
        loop {
            let mut pause = every;
            match balancer.look().await {
                Outcome::Nothing => {}
                Outcome::Resized(width, answer, took) => {
                    let generation = answer.generation.unwrap_or_default();
                    let changes = answer.changes.unwrap_or_default();
                    println!(
                        "width {width} is in force in generation {generation} after {} ms: {} PEs kept, {} restarted, {} \
                         added, {} removed",
                        took.as_millis(),
                        changes.kept,
                        changes.restarted,
                        changes.added,
                        changes.removed
                    );
                    times.push(took);
                }
                Outcome::NotNow(why, after) => {
                    eprintln!("{why}");
                    // What is told to wait waits, and nobody asks in a loop who is told nothing.
                    pause = after.unwrap_or(every).max(every).max(Duration::from_millis(100));
                }
            }
            tokio::time::sleep(pause).await;
        }
    };
    let end = async {
        match arguments.for_seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = balancing => {}
        () = end => {}
        () = stop::asked()? => {}
    }
    times.sort_unstable();
    if let (Some(median), Some(most)) = (times.get(times.len() / 2), times.last()) {
        let (median, most) = (median.as_millis(), most.as_millis());
        println!("{} resizes; until they were in force: median {median} ms, longest {most} ms", times.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn the_examples_of_the_help_are_taken() {
        Arguments::command().debug_assert();
        let help = Arguments::command().get_after_help().map(ToString::to_string).unwrap_or_default();
        let commands: Vec<_> = help.replace("\\\n", " ").lines().map(str::trim).filter_map(command).collect();
        assert_eq!(commands.len(), 4, "{help}");
        for command in commands {
            Arguments::try_parse_from(&command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        }
    }

    /// The words of a line that is a command.
    fn command(line: &str) -> Option<Vec<String>> {
        let words = line.starts_with("balancer ").then(|| line.split_whitespace())?;
        Some(words.map(|word| word.trim_matches('\'').to_owned()).collect())
    }
}
