//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;
use std::time::Duration;
use streams_api::{ResizePhase, ResizePolicy};

const EXAMPLES: &str = "\
Examples:
    kubectl streams status sensors
    kubectl streams resize sensors Clean=4
    kubectl streams resize sensors Clean=4 Score=3 --wait written
    kubectl streams resize sensors Clean=4 --expect Clean=2 --timeout 2m
    kubectl streams cancel sensors-7xk2p

Exit statuses: 0 done; 1 refused, superseded, cancelled, or an error; 2 wrong arguments; 3 the time is over, and the
request goes on.";

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
    Resize(ResizeOptions),
    /// Withdraws a request to resize, as long as it is not committed
    Cancel(CancelOptions),
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

fn region_and_width(text: &str) -> Result<(String, u32), String> {
    // A name could have an equals sign; a width has none.
    let (region, width) = text.rsplit_once('=').ok_or("REGION=WIDTH is needed, e.g. Clean=4")?;
    if region.is_empty() {
        return Err("a region is needed before the equals sign".to_owned());
    }
    let width = width.parse().map_err(|_| format!("'{width}' is no width"))?;
    Ok((region.to_owned(), width))
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error| format!("a duration is needed, e.g. 90s: {error}"))?;
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
    fn widths_and_durations_are_read() {
        assert_eq!(region_and_width("Score.Model=3"), Ok(("Score.Model".to_owned(), 3)));
        assert_eq!(region_and_width("a=b=3"), Ok(("a=b".to_owned(), 3)));
        for wrong in ["Clean", "=3", "Clean=", "Clean=-1", "Clean=x"] {
            assert!(region_and_width(wrong).is_err(), "{wrong}");
        }
        let seconds = |text| duration(text).map(|duration| duration.as_secs());
        assert_eq!((seconds("90s"), seconds("10m"), seconds("1h")), (Ok(90), Ok(600), Ok(3600)));
        for wrong in ["", "s", "10", "1d", "99999999999999999999s", "18446744073709551615h", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
