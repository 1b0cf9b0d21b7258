//! Writes the report of a run: machine, commit, what was done, how long it took.

use super::faults::Fault;
use super::figures::Durations;
use super::resizes::{EndedRun, SoakOptions};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Shares of all, in per cent, whose durations are shown.
const SHOWN: [usize; 4] = [50, 90, 99, 100];

/// The page about a run of [`resizes`](super::resizes), in Markdown.
///
/// # Errors
/// When it cannot be written.
pub fn resizes(options: &SoakOptions, ended: &EndedRun) -> Result<String> {
    let EndedRun { outcome, failure, .. } = ended;
    let mut page = String::from("# Soak: resizes\n\n");
    writeln!(
        page,
        "Random widths for the three regions of the sample application, one to three of them in each request to the elasticity API, while processes \
         and pods die at random. After every few resizes the faults stop until everything has come to rest; then every PE that the widths call for \
         must run in exactly one pod, with its Service, text and owner, and nothing else may be there. Each request that changes a width must lead to \
         exactly one generation, however many regions it names. At the end the jobs are deleted, and nothing of them may stay.\n"
    )?;
    let result = match failure {
        None => "everything was in its place whenever it was looked at".to_owned(),
        Some(error) => format!("**failed**: {error:#}"),
    };
    writeln!(page, "Result: {result}.\n")?;
    let faults =
        options.fault_every.map_or_else(|| "none".to_owned(), |every| format!("one every {every:?} in the mean"));
    let more = vec![
        ("jobs, frontends, replicas of the fusion service", format!("{}, {}, 2", options.jobs, options.frontends)),
        ("faults", faults),
    ];
    run(&mut page, &command(options), &outcome.commit, outcome.took, more)?;

    page.push_str("\n## What was done\n\n");
    let [kept, restarted, added, removed] = outcome.pods;
    let mut counts = vec![
        ("resizes rolled out".to_owned(), outcome.resizes),
        ("of those, of more than one region".to_owned(), outcome.of_several_regions),
        ("pods kept".to_owned(), kept),
        ("pods replaced, by resizes or faults".to_owned(), restarted),
        ("pods added".to_owned(), added),
        ("pods removed".to_owned(), removed),
        ("calls repeated, because nobody answered".to_owned(), outcome.repeated_calls),
        ("services ended by themselves and started again".to_owned(), outcome.ended_by_themselves),
        ("checks".to_owned(), outcome.checks),
    ];
    counts.extend(Fault::ALL.map(|fault| (fault.to_string(), outcome.faults.get(&fault).copied().unwrap_or(0))));
    table(&mut page, ["", "times"], counts.into_iter().map(|(name, count)| [name, count.to_string()]))?;

    page.push_str("\n## How long it took\n\nSeconds, as the caller sees them. A fault that falls during a resize counts wherever it falls.\n\n");
    let rows = [
        ("request to committed", &outcome.committed),
        ("request to rolled out", &outcome.rolled_out),
        ("request to committed, under faults", &outcome.committed_under_faults),
        ("request to rolled out, under faults", &outcome.rolled_out_under_faults),
        ("end of faults to everything in its place", &outcome.settled),
    ];
    let rows = rows.into_iter().map(|(name, durations)| latency(name, durations));
    table(&mut page, ["", "number", "50 %", "90 %", "99 %", "longest"], rows)?;

    page.push_str(
        "\n## Memory\n\nResident, in MiB, from the time at which all jobs ran for the first time until they were at rest at the end. A process that was \
         killed begins anew: with faults the columns say little about growth.\n\n",
    );
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    let rows = outcome
        .memory
        .all()
        .map(|(name, of)| [name.to_owned(), mib(of.first), mib(of.last), mib(of.most), of.starts().to_string()]);
    table(&mut page, ["", "at the start", "at the end", "most", "times started"], rows)?;

    page.push_str("\n## Objects\n\n");
    let objects = outcome.objects.iter().map(|(kind, count)| [format!("{kind}, at the end"), count.to_string()]);
    let left = outcome.left_over.map_or_else(|| "not looked at".to_owned(), |left| left.to_string());
    let left = ["left after the deletion of the jobs".to_owned(), left];
    table(&mut page, ["", "number"], objects.chain([left]))?;
    Ok(page)
}

fn latency(name: &str, durations: &Durations) -> [String; 6] {
    let shown = durations.percentiles(SHOWN).map(|shown| shown.map(seconds));
    let [p50, p90, p99, longest] = shown.unwrap_or_else(|| ["-"; 4].map(str::to_owned));
    [name.to_owned(), durations.count().to_string(), p50, p90, p99, longest]
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

/// What every page says of its run, and `more`.
///
/// # Errors
/// When it cannot be written.
pub(super) fn run(
    page: &mut String,
    command: &str,
    commit: &str,
    took: Duration,
    more: Vec<(&str, String)>,
) -> Result<()> {
    let of_all = [
        ("command", format!("`{command}`")),
        ("commit", commit.to_owned()),
        ("machine", machine()),
        ("build", format!("profile {}", crate::cargo::profile().unwrap_or_else(|| "unknown".to_owned()))),
        ("date", jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()),
        ("duration", format!("{} s", took.as_secs())),
    ];
    table(page, ["", ""], of_all.into_iter().chain(more).map(|(name, value)| [name.to_owned(), value]))
}

/// A table in Markdown.
pub(super) fn table<const N: usize>(
    page: &mut String,
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Result<()> {
    writeln!(page, "| {} |", header.join(" | "))?;
    writeln!(page, "|{}", "---|".repeat(N))?;
    for row in rows {
        writeln!(page, "| {} |", row.join(" | "))?;
    }
    Ok(())
}

fn command(options: &SoakOptions) -> String {
    let minutes = options.duration.as_secs_f64() / 60.0;
    let mut command = format!(
        "cargo soak resizes --minutes {minutes} --seed {} --jobs {} --frontends {}",
        options.seed, options.jobs, options.frontends
    );
    match options.fault_every {
        Some(every) => command.push_str(&format!(" --blow-every {}", every.as_secs_f64())),
        None => command.push_str(" --no-blows"),
    }
    command
}

/// Processors, memory and system.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let read = |path: &str, field: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(field))?;
        Some(line.split_once([':', '='])?.1.trim().trim_matches('"').to_owned())
    };
    let model = read("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let kib = read("/proc/meminfo", "MemTotal").and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let memory = kib.map_or_else(|| "memory not known".to_owned(), |kib| format!("{} GiB", (kib + (1 << 19)) >> 20));
    let system = read("/etc/os-release", "PRETTY_NAME").unwrap_or_else(|| std::env::consts::OS.to_owned());
    format!("{processors} cores ({model}), {memory}, {system}")
}

/// Writes a page, and the folder it belongs to.
///
/// # Errors
/// When it cannot be written.
pub fn write(page: &str, path: &Path) -> Result<()> {
    let wrong = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(wrong)?;
    }
    std::fs::write(path, page).with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::super::resizes::{EndedRun, SoakOptions, SoakOutcome};
    use super::resizes;
    use anyhow::anyhow;
    use std::time::Duration;

    #[test]
    fn the_page_has_figures_and_what_went_wrong() {
        let options = SoakOptions {
            duration: Duration::from_secs(90),
            seed: 7,
            jobs: 2,
            frontends: 1,
            fault_every: Some(Duration::from_secs(5)),
        };
        let mut outcome = SoakOutcome { resizes: 3, ..SoakOutcome::default() };
        outcome.committed.add(Duration::from_millis(1_250));
        let failure = Some(anyhow!("a pod is missing"));
        let page = resizes(&options, &EndedRun { outcome, failure, logs: None }).unwrap();
        for part in [
            "Result: **failed**: a pod is missing.",
            "`cargo soak resizes --minutes 1.5 --seed 7 --jobs 2 --frontends 1 --blow-every 5`",
            "| resizes rolled out | 3 |",
            "| request to committed | 1 | 1.25 | 1.25 | 1.25 | 1.25 |",
            "| request to rolled out | 0 | - | - | - | - |",
            "| left after the deletion of the jobs | not looked at |",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
