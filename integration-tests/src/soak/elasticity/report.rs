//! The page about a run.

use super::course::Course;
use super::flood::Flooded;
use super::latency::Latency;
use super::{ElasticityOptions, ElasticityOutcome};
use crate::soak::figures::Durations;
use crate::soak::report::{run, table};
use anyhow::Result;
use std::fmt::Write as _;
use std::time::Duration;

/// Shares of all, in per cent, whose durations are shown.
const SHOWN: [usize; 4] = [50, 90, 99, 100];

/// The page, in Markdown.
///
/// # Errors
/// When it cannot be written.
pub fn page(command: &str, options: &ElasticityOptions, outcome: &ElasticityOutcome) -> Result<String> {
    let mut page = String::from("# Elasticity\n\n");
    page.push_str(
        "Requests to the elasticity API over gRPC, on a control plane whose nodes only seem to run pods (kwok), with one frontend for all namespaces and \
         two replicas of the fusion service. The *bare client* writes what a request creates before its commit, and the statuses, and knows nothing. All of \
         it shares the processors of one machine.\n\n",
    );
    run(&mut page, command, &outcome.commit, outcome.took, vec![("what ran beside", options.beside.clone())])?;
    for failure in &outcome.failures {
        writeln!(page, "\n**Failed**: {failure}")?;
    }
    if !outcome.latencies.is_empty() {
        page.push_str(
            "\n## One request after the other\n\nMilliseconds from the request to the answer. Each is made when nothing is left to do for the one before, to a large job 2 s later; \
             *at once*: when that one is rolled out, while what it replaced is still being deleted.\n\n",
        );
        let rows = outcome.latencies.iter().flat_map(latency);
        table(&mut page, ["", "number", "50 %", "90 %", "99 %", "longest"], rows)?;
        for of in outcome.latencies.iter().filter(|of| of.lane.background.0 > 0) {
            let (at_once, operators) = of.lane.background;
            writeln!(
                page,
                "\nBeside {at_once} submissions at a time of {operators} operators in layers, each connected with all of the next: {} were compiled.",
                of.submitted
            )?;
        }
    }
    for course in &outcome.courses {
        steps(&mut page, course)?;
    }
    if let Some(flooded) = &outcome.flooded {
        flood(&mut page, options, flooded)?;
    }
    Ok(page)
}

fn latency(of: &Latency) -> Vec<[String; 6]> {
    let (pes, how) = (of.lane.shape.widths().processing_elements(), of.lane.circumstances());
    let mut rows = vec![
        row(format!("{pes} PEs{how}: to committed"), &of.committed),
        row(format!("{pes} PEs{how}: to rolled out"), &of.rolled_out),
    ];
    if let Some((objects, durations)) = &of.bare {
        rows.push(row(format!("{pes} PEs: the bare client, {objects} objects"), durations));
    }
    rows
}

fn row(name: String, durations: &Durations) -> [String; 6] {
    let shown = durations.percentiles(SHOWN).map(|shown| shown.map(milliseconds));
    let [p50, p90, p99, longest] = shown.unwrap_or_else(|| ["-"; 4].map(str::to_owned));
    [name, durations.count().to_string(), p50, p90, p99, longest]
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

fn steps(page: &mut String, of: &Course) -> Result<()> {
    let (pes, how) = (of.lane.shape.widths().processing_elements(), of.lane.circumstances());
    writeln!(
        page,
        "\n## Where the time until the commit goes: {pes} PEs{how}\n\nMilliseconds from the begin of a request: when a step begins and ends, at the median of those \
         of {} requests that have it. Their traces were collected, which costs time itself. What happens in fewer than half of them is left out; \
         what happens often is one step, from the first begin to the last end.\n",
        of.requests
    )?;
    let median = |of: &Durations| of.percentiles([50]).map_or_else(|| "-".to_owned(), |[half]| milliseconds(half));
    let rows = of.steps.iter().map(|step| {
        [
            median(&step.begins),
            median(&step.ends),
            step.requests.to_string(),
            step.times.to_string(),
            format!("`{}`", step.name),
        ]
    });
    table(page, ["begins", "ends", "in requests", "times", "step"], rows)
}

fn flood(page: &mut String, options: &ElasticityOptions, of: &Flooded) -> Result<()> {
    writeln!(
        page,
        "\n## Many requests\n\n{} requests a second for {} s over {} jobs of the sample application, each for one region; one caller of ten leaves within \
         half a second, one waits for nothing but acceptance, the others for the commit, for 15 s at most. {} times a replica of the fusion service was \
         killed and started again. Afterwards each request had an outcome, and each job ran the widths of its regions in exactly one pod a PE, {} s after \
         the last answer.\n",
        options.per_second,
        options.duration.as_secs(),
        options.jobs,
        of.deaths,
        of.rest.as_secs()
    )?;
    let answers = of.answers.iter().map(|(name, count)| [name.clone(), count.to_string()]);
    let more = [
        ["took longer than 5 s".to_owned(), of.too_long.len().to_string()],
        ["not made: too many were under way".to_owned(), of.not_made.to_string()],
    ];
    table(page, ["answer", "calls"], answers.chain(more))?;
    if !of.too_long.is_empty() {
        page.push_str("\nCalls that took longer than 5 s, in seconds since the first call:\n\n");
        let mut too_long = of.too_long.clone();
        too_long.sort();
        let seconds = |duration: Duration| format!("{:.1}", duration.as_secs_f64());
        let rows = too_long.iter().map(|call| [seconds(call.begins), seconds(call.took), call.answer.clone()]);
        table(page, ["begun", "took", "answer"], rows)?;
    }
    page.push_str("\nMilliseconds until the answer:\n\n");
    let rows = [row("accepted".to_owned(), &of.accepted), row("committed".to_owned(), &of.committed)];
    table(page, ["", "number", "50 %", "90 %", "99 %", "longest"], rows.into_iter())?;
    writeln!(page, "\nGenerations committed: {}. Outcomes of the requests that were still kept:\n", of.generations)?;
    let outcomes = of.outcomes.iter().map(|(name, count)| [name.clone(), count.to_string()]);
    table(page, ["outcome", "requests"], outcomes)?;
    page.push_str("\nResident memory in MiB, from the first request until everything was at rest:\n\n");
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    let memory = of.memory.all().map(|(name, memory)| {
        [name.to_owned(), mib(memory.first), mib(memory.last), mib(memory.most), memory.starts().to_string()]
    });
    table(page, ["", "at the start", "at the end", "most", "times started"], memory)
}
