//! The page about a run.

use super::phases::{Measured, REST};
use super::{LoadOptions, LoadOutcome};
use crate::soak::memory::Parts;
use crate::soak::metrics::Figures;
use crate::soak::report::{run, table};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// The page, in Markdown.
///
/// # Errors
/// When it cannot be written.
pub fn page(command: &str, options: &LoadOptions, outcome: &LoadOutcome) -> Result<String> {
    let mut page = String::from("# Load\n\n");
    page.push_str(
        "Jobs of the sample application, created at once on a control plane whose nodes only seem to run pods (kwok), one frontend for all namespaces. \
         The *bare client* then writes the same objects (Job, ConfigMaps, regions, host pools, Service, PE and pod of each PE, with their owners) into other namespaces, knows nothing, \
         and waits for nothing but its own calls; the scheduler and kwok do the same work for both. All of it shares the processors of one machine.\n\n",
    );
    let more = vec![
        ("calls of the bare client at a time", options.at_once.to_string()),
        ("what ran beside", options.beside.clone()),
    ];
    run(&mut page, command, &outcome.commit, outcome.took, more)?;
    for failure in &outcome.failures {
        writeln!(page, "\n**Failed**: {failure}")?;
    }

    page.push_str("\n## Beside the bare client\n\nSeconds from the first job until all pods run. The goal is 1.5 times the bare client.\n\n");
    let rows = outcome.measured.iter().map(|of| {
        let (objects, wrote, ran) = of.bare;
        [
            name(of),
            of.pes.to_string(),
            seconds(of.running),
            seconds(of.ready),
            objects.to_string(),
            seconds(wrote),
            seconds(ran),
            format!("**{:.2}**", of.running.as_secs_f64() / ran.as_secs_f64().max(f64::EPSILON)),
            seconds(of.resized),
        ]
    });
    let header = [
        "",
        "PEs",
        "all pods run",
        "all jobs ready",
        "objects",
        "bare: written",
        "bare: all pods run",
        "ratio",
        "a resize of each",
    ];
    table(&mut page, header, rows)?;

    memory(&mut page, outcome)?;

    for of in &outcome.measured {
        writeln!(page, "\n## Calls and waits: {}\n\nCalls for each PE.\n", name(of))?;
        calls(&mut page, of)?;
        page.push_str("\nWaits in queues, in seconds: 50, 99 and 100 per cent of the keys waited at most so long (bounds of buckets).\n\n");
        let rows = [("submission", &of.submission), ("resize", &of.resize)].into_iter().flat_map(|(when, figures)| {
            let row = move |(queue, keys, [a, b, c]): (String, u64, [f64; 3])| {
                [when.to_owned(), queue, keys.to_string(), a.to_string(), b.to_string(), c.to_string()]
            };
            figures.waits().into_iter().map(row).collect::<Vec<_>>()
        });
        table(&mut page, ["", "queue", "keys", "50 %", "99 %", "100 %"], rows)?;
    }

    if let Some(tenants) = &outcome.tenants {
        page.push_str(
            "\n## A hostile tenant\n\nResizes of a job of 12 PEs, request to rolled out, in seconds, while another tenant does nothing; and while it has 12 \
             jobs whose bundles a server never gives, 10 jobs whose pods are refused, and restarts all PEs of its large job again and again. The goal is \
             twice the time at most.\n\n",
        );
        let rows = [("alone", &tenants.quiet), ("beside a hostile tenant", &tenants.hostile)].map(|(name, of)| {
            let shown = of.percentiles([50, 90, 100]).map(|shown| shown.map(seconds));
            let [a, b, c] = shown.unwrap_or_else(|| ["-"; 3].map(str::to_owned));
            [name.to_owned(), of.count().to_string(), a, b, c]
        });
        table(&mut page, ["", "resizes", "50 %", "90 %", "longest"], rows.into_iter())?;
        if let (Some([quiet, ..]), Some([hostile, ..])) =
            (tenants.quiet.percentiles([50, 100]), tenants.hostile.percentiles([50, 100]))
        {
            let ratio = hostile.as_secs_f64() / quiet.as_secs_f64().max(f64::EPSILON);
            let (pes, rounds) = (options.hostile_pes, tenants.restarts);
            writeln!(
                page,
                "\nRatio of the medians: **{ratio:.2}**. {pes} PEs were asked to restart {rounds} times meanwhile."
            )?;
        }
    }
    Ok(page)
}

fn memory(page: &mut String, outcome: &LoadOutcome) -> Result<()> {
    writeln!(
        page,
        "\n## Memory of the frontend\n\nResident, in MiB: before the jobs, when they are ready, and {} s later; what is \
         mirrored, as JSON, after trimming. The goal is 1.5 times that.\n",
        REST.as_secs()
    )?;
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let ratio = |of: &Measured, grown: u64| format!("{:.2}", grown as f64 / of.mirrored.max(1) as f64);
    let rows = outcome.measured.iter().map(|of| {
        let [before, ready, at_rest] = of.memory.map(|parts| parts.all);
        let grown = at_rest.saturating_sub(before);
        [
            name(of),
            mib(before),
            mib(ready),
            mib(at_rest),
            format!("{:.1}", grown as f64 / 1024.0 / of.pes.max(1) as f64),
            mib(of.mirrored),
            ratio(of, ready.saturating_sub(before)),
            format!("**{}**", ratio(of, grown)),
        ]
    });
    let header = ["", "before", "ready", "at rest", "KiB a PE", "mirrored", "grown / mirrored: ready", "at rest"];
    table(page, header, rows)?;

    page.push_str(
        "\nOf that, in MiB: anonymous memory, which the frontend has written (its heap above all), and pages of files \
         (the program itself above all), which the system may drop; and by how much anonymous memory alone has grown.\n\n",
    );
    let rows = outcome.measured.iter().map(|of| {
        let [before, ready, at_rest] = of.memory;
        let grown = |at: Parts| ratio(of, at.anonymous.saturating_sub(before.anonymous));
        [
            name(of),
            mib(before.anonymous),
            mib(ready.anonymous),
            mib(at_rest.anonymous),
            mib(before.files),
            mib(ready.files),
            mib(at_rest.files),
            grown(ready),
            grown(at_rest),
        ]
    });
    let header = [
        "",
        "anonymous: before",
        "ready",
        "at rest",
        "files: before",
        "ready",
        "at rest",
        "anonymous grown / mirrored: ready",
        "at rest",
    ];
    table(page, header, rows)
}

fn name(of: &Measured) -> String {
    match of.shape.jobs {
        1 => format!("one job of {} PEs", of.pes),
        jobs => format!("{jobs} jobs in {} namespaces", of.shape.namespaces),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

fn calls(page: &mut String, of: &Measured) -> Result<()> {
    let keys: BTreeSet<_> = of.submission.calls.keys().chain(of.resize.calls.keys()).cloned().collect();
    let each = |count: u64| format!("{:.2}", count as f64 / of.pes.max(1) as f64);
    let count = |figures: &Figures, key| figures.calls.get(key).copied().unwrap_or_default();
    let row = |what: String, [running, ready, resize]: [u64; 3]| {
        let counts = [(running, each(running)), (ready, each(ready)), (resize, each(resize))];
        let [(a, b), (c, d), (e, f)] = counts.map(|(count, each)| (count.to_string(), each));
        [what, a, b, c, d, e, f]
    };
    let all = [&of.until_running, &of.submission, &of.resize];
    let rows = keys.iter().map(|key| {
        let (verb, resource) = key;
        row(format!("{verb} {resource}"), all.map(|figures| count(figures, key)))
    });
    let sum = row("all but watches".to_owned(), all.map(Figures::total));
    let header = ["", "until all pods run", "a PE", "until all jobs are ready", "a PE", "resize", "a PE"];
    table(page, header, rows.chain([sum]))
}
