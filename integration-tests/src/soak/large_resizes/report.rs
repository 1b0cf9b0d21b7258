//! The page about a run.

use super::{LargeResizeOptions, LargeResizeOutcome, Measured};
use crate::soak::figures::Durations;
use crate::soak::report::{run, table};
use anyhow::Result;
use std::fmt::Write as _;
use std::time::Duration;

/// The page, in Markdown.
///
/// # Errors
/// When it cannot be written.
pub fn page(command: &str, options: &LargeResizeOptions, outcome: &LargeResizeOutcome) -> Result<String> {
    let mut page = String::from("# Large resizes\n\n");
    writeln!(
        page,
        "{} callers, each with a job and an application of its own, send a resize of {} MiB at the same time to one \
         replica of the fusion service with the arguments of its manifest. A third of each message is an ADL, a third \
         a layout. Who is told to come again does so when it is told to. The process must stay within the memory limit \
         of its pod, {} MiB, and everybody must get the answer that the contract promises within {} s. Each round has \
         a process of its own. Beside the large ones, somebody resizes a small job ten times a second.\n",
        options.callers,
        options.bytes >> 20,
        outcome.limit >> 20,
        options.within.as_secs()
    )?;
    let result = match outcome.failures.as_slice() {
        [] => "everybody was answered, within the limit".to_owned(),
        failures => format!("**failed**: {}", failures.join("; ")),
    };
    writeln!(page, "Result: {result}.\n")?;
    let more = vec![
        ("what ran beside", options.beside.clone()),
        ("arguments of the service", format!("`{}`", outcome.arguments.join(" "))),
    ];
    run(&mut page, command, &outcome.commit, outcome.took, more)?;
    page.push_str("\n## Memory and answers\n\nMost memory: `VmHWM` of the process.\n\n");
    let header =
        ["", "MiB sent, each", "most memory, MiB", "answered", "told to come again", "of these, most to one caller"];
    table(&mut page, header, outcome.measured.iter().map(memory))?;
    page.push_str("\n## How long it took\n\nSeconds from the first call of a caller to its answer.\n\n");
    table(&mut page, ["", "first", "50 %", "90 %", "last"], outcome.measured.iter().map(durations))?;
    page.push_str(
        "\n## Small resizes beside them\n\nMilliseconds of those that were answered. Told to come again is a small one \
         while the large ones have all tickets of resizes.\n\n",
    );
    let header = ["", "answered", "told to come again", "50 %", "99 %", "longest"];
    table(&mut page, header, outcome.measured.iter().map(small))?;
    Ok(page)
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn memory(of: &Measured) -> [String; 6] {
    let (least, most) = of.sent;
    let refusals = of.callers.iter().map(|called| called.refusals);
    [
        of.round.name().to_owned(),
        if least == most { mib(most as u64) } else { format!("{} to {}", mib(least as u64), mib(most as u64)) },
        mib(of.most),
        format!("{} of {}", of.answered(), of.callers.len()),
        refusals.clone().sum::<usize>().to_string(),
        refusals.max().unwrap_or_default().to_string(),
    ]
}

fn durations(of: &Measured) -> [String; 5] {
    let mut durations = Durations::default();
    of.callers.iter().for_each(|called| durations.add(called.after));
    let [first, p50, p90, last] =
        shown(&durations, [0, 50, 90, 100], |duration| format!("{:.1}", duration.as_secs_f64()));
    [of.round.name().to_owned(), first, p50, p90, last]
}

fn small(of: &Measured) -> [String; 6] {
    let small = &of.small;
    let [p50, p99, longest] =
        shown(&small.answered, [50, 99, 100], |duration| format!("{:.1}", duration.as_secs_f64() * 1e3));
    let (answered, refusals) = (small.answered.count().to_string(), small.refusals.to_string());
    [of.round.name().to_owned(), answered, refusals, p50, p99, longest]
}

fn shown<const N: usize>(durations: &Durations, shares: [usize; N], text: impl Fn(Duration) -> String) -> [String; N] {
    durations.percentiles(shares).map_or_else(|| shares.map(|_| "-".to_owned()), |found| found.map(text))
}

#[cfg(test)]
mod tests {
    use super::super::caller::{Answer, Called, Small};
    use super::super::{LargeResizeOptions, LargeResizeOutcome, Measured, Round};
    use super::page;
    use std::time::Duration;

    #[test]
    fn the_page_has_figures_and_what_went_wrong() {
        let options = LargeResizeOptions {
            callers: 2,
            bytes: 192 << 20,
            rounds: vec![Round::Gzip],
            within: Duration::from_secs(600),
            beside: "nothing".to_owned(),
        };
        let mut small = Small::default();
        small.answered.add(Duration::from_micros(2_500));
        let called = |answer, refusals| Called { answer, refusals, after: Duration::from_secs(4) };
        let measured = Measured {
            round: Round::Gzip,
            callers: vec![called(Answer::Resized, 3), called(Answer::Other("late".to_owned()), 40)],
            small,
            sent: (3 << 20, 3 << 20),
            most: 2350 << 20,
        };
        let limit = 4 << 30;
        let failures = measured.failures(limit);
        let outcome = LargeResizeOutcome { measured: vec![measured], limit, failures, ..Default::default() };
        let page = page("cargo soak large-resizes", &options, &outcome).unwrap();
        for part in [
            "Result: **failed**: compressed with gzip: 1 of 2 were not answered as they should, the first: late.",
            "| compressed with gzip | 3.0 | 2350.0 | 1 of 2 | 43 | 40 |",
            "| compressed with gzip | 4.0 | 4.0 | 4.0 | 4.0 |",
            "| compressed with gzip | 1 | 0 | 2.5 | 2.5 | 2.5 |",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
