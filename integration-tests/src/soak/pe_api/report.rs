//! The page about a run.
//!
//! Knows: what was counted. Must not know: how it came about.

use super::tally::{Asked, Question};
use super::usage::{API_SERVER, ETCD, FRONTEND, OTHERS, PES};
use super::window::Window;
use super::{PeApiOptions, PeApiOutcome, names};
use crate::soak::figures::Durations;
use crate::soak::metrics::Figures;
use crate::soak::report::{run, table};
use anyhow::Result;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The page, in Markdown.
///
/// # Errors
/// When it cannot be written.
pub fn page(command: &str, options: &PeApiOptions, outcome: &PeApiOutcome) -> Result<String> {
    let mut page = String::from("# The API of PEs\n\n");
    writeln!(
        page,
        "{} PEs of one job of the sample application, on a control plane whose nodes only seem to run pods (kwok); one \
         frontend, two replicas of the fusion service. Each pod has a loopback address of its own, from which this run \
         asks and reports as the runtime does: for routes at the start and every 60 s; its connectivity whenever it is \
         another one, again after 1 s, 2 s, ... 60 s as long as nobody answers, and never again once anybody has; the \
         name of its job before it connects, at most every 10 s; what its consistent region says every 5 s. A call has \
         one second, and a connection of its own; for routes and for what regions say one is kept, if the frontend \
         does. Beside that each PE asks once for a width. Nearly all PEs are connected with one whose pod each resize \
         of a narrow region replaces, so each of them has to tell twice. PEs of a consistent region write a checkpoint \
         in 10 to 300 ms. All of it shares the processors of one machine. There are no EndpointSlices of the Services \
         of PEs, because they must not have loopback addresses.\n",
        options.pes
    )?;
    let more = vec![
        ("PEs, and PEs of a consistent region", format!("{}, {}", options.pes, options.region_pes)),
        ("a window", format!("{} s", options.window.as_secs())),
        ("what ran beside", options.beside.clone()),
    ];
    run(&mut page, command, &outcome.commit, outcome.took, more)?;
    for failure in &outcome.failures {
        writeln!(page, "\n**Failed**: {failure}")?;
    }
    if outcome.failures.is_empty() {
        page.push_str("\nEvery answer was right or late, and the status of every PE said what it had told last.\n");
    }
    cost(&mut page, options, outcome)?;
    windows(&mut page, outcome)?;
    reports(&mut page, outcome)?;
    answers(&mut page, outcome)?;
    others(&mut page, outcome)?;
    restarts(&mut page, outcome)?;
    attack(&mut page, outcome)?;
    region(&mut page, outcome)?;
    Ok(page)
}

fn window<'a>(outcome: &'a PeApiOutcome, name: &str) -> Option<&'a Window> {
    outcome.windows.iter().find(|window| window.name == name)
}

/// Processor time of the three in milliseconds, and calls of the frontend.
fn amounts(of: &Window) -> [f64; 4] {
    let [a, b, c] = [FRONTEND, API_SERVER, ETCD].map(|name| of.usage.of(name).processor.as_secs_f64() * 1e3);
    [a, b, c, of.figures.total() as f64]
}

fn cost(page: &mut String, options: &PeApiOptions, outcome: &PeApiOutcome) -> Result<()> {
    page.push_str(
        "\n## What a PE costs\n\nWhat the windows with PEs have more than those without, for each PE: processor time \
         in milliseconds, and calls of the frontend to the API server, watches left out.\n\n",
    );
    let pes = options.pes.max(1) as f64;
    let mut rows = Vec::new();
    let mut row = |name: &str, [without, with]: [&str; 2], amounts: &dyn Fn(&Window) -> [f64; 4]| {
        let (Some(without), Some(with)) = (window(outcome, without), window(outcome, with)) else { return };
        let (before, now) = (amounts(without), amounts(with));
        let more = [0, 1, 2, 3].map(|index| format!("{:.3}", (now[index] - before[index]) / pes));
        let [frontend, api_server, etcd, calls] = more;
        rows.push([name.to_owned(), frontend, api_server, etcd, calls]);
    };
    let a_minute = |of: &Window| amounts(of).map(|amount| of.a_minute(amount));
    row("at rest, a minute", [names::REST, names::REST_WITH], &a_minute);
    row("while others ask, a minute", [names::OTHERS, names::OTHERS_WITH], &a_minute);
    row("a resize of a narrow region", [names::RESIZES, names::RESIZES_WITH], &|of| {
        let others = if of.name == names::RESIZES { names::OTHERS } else { names::OTHERS_WITH };
        let rest = window(outcome, others).map_or([0.0; 4], a_minute);
        let resizes = of.seen.rolled_out.count().max(1) as f64;
        let minutes = of.took.as_secs_f64() / 60.0;
        let all = amounts(of);
        [0, 1, 2, 3].map(|index| (all[index] - rest[index] * minutes) / resizes)
    });
    row("a resize that replaces nearly all PEs", [names::WIDE, names::WIDE_WITH], &amounts);
    table(page, ["", "frontend", "kube-apiserver", "etcd", "calls"], rows.into_iter())
}

fn windows(page: &mut String, outcome: &PeApiOutcome) -> Result<()> {
    page.push_str(
        "\n## The windows\n\n*Others* ask for a region four times a second, resize a small job every 4 s, and submit a \
         job of one PE every 6 s; the large job is resized every 8 s, if the resize before has come to its end. Processor time in seconds; resident memory in MiB at the end of the window.\n\n",
    );
    let rows = all_windows(outcome).map(|of| {
        let processor = |name| format!("{:.2}", of.usage.of(name).processor.as_secs_f64());
        let memory = |name| format!("{:.0}", of.usage.of(name).resident as f64 / 1024.0);
        [
            of.name.to_owned(),
            format!("{:.0}", of.took.as_secs_f64()),
            processor(FRONTEND),
            processor(API_SERVER),
            processor(ETCD),
            processor(OTHERS),
            processor(PES),
            memory(FRONTEND),
            memory(API_SERVER),
            of.figures.total().to_string(),
            of.asked.calls().to_string(),
            of.seen.rolled_out.count().to_string(),
        ]
    });
    let header = [
        "",
        "s",
        "frontend",
        "kube-apiserver",
        "etcd",
        "other services",
        "this run",
        "memory: frontend",
        "kube-apiserver",
        "calls of the frontend",
        "calls of PEs",
        "resizes of the large job",
    ];
    table(page, header, rows)
}

fn all_windows(outcome: &PeApiOutcome) -> impl Iterator<Item = &Window> {
    outcome.windows.iter().chain(outcome.region.iter().map(|region| &region.window))
}

/// Calls and pieces of work for each of so many things.
fn each(page: &mut String, what: &str, number: u64, figures: &Figures) -> Result<()> {
    let of_each = |count: u64| format!("{:.3}", count as f64 / number.max(1) as f64);
    let calls = figures.calls.iter().filter(|((verb, _), _)| verb != "watch");
    let calls = calls.map(|((verb, resource), count)| {
        [format!("{verb} {resource}"), count.to_string(), of_each(*count), "-".to_owned()]
    });
    let keys = figures.waits().into_iter().map(|(queue, keys, _)| {
        let worked = format!("{:.2}", figures.worked(&queue));
        [format!("work on {queue}"), keys.to_string(), of_each(keys), worked]
    });
    table(page, ["", "number", what, "seconds of work"], calls.chain(keys))
}

fn reports(page: &mut String, outcome: &PeApiOutcome) -> Result<()> {
    for name in [names::START, names::RESIZES_WITH] {
        let Some(of) = window(outcome, name) else { continue };
        let reports = of.asked.right(Question::Connectivity);
        writeln!(
            page,
            "\n## Reports of connectivity: {name}\n\n{reports} were answered with 204. What the frontend called and \
             worked on meanwhile, for whatever reason:\n"
        )?;
        each(page, "a report", reports, &of.figures)?;
    }
    Ok(())
}

fn answers(page: &mut String, outcome: &PeApiOutcome) -> Result<()> {
    page.push_str(
        "\n## How PEs are answered\n\nMilliseconds until the right answer. *Missing*: nobody answered within a second; \
         *later*: 503. *A change is known*: from a change of the connectivity until a report of it was answered with \
         204, however often it was told.\n\n",
    );
    let of_windows = all_windows(outcome).map(|of| (of.name, &of.asked));
    let of_restarts = outcome.restarts.iter().map(|of| (of.name, &of.asked));
    let rows = of_windows.chain(of_restarts).flat_map(|(name, asked)| answer_rows(name, asked));
    table(page, ["", "what", "number", "50 %", "99 %", "longest", "missing", "later"], rows)
}

fn answer_rows(name: &str, asked: &Asked) -> Vec<[String; 8]> {
    let row = |what: &str, right: &Durations, missing: String, later: String| {
        let [number, p50, p99, longest] = shown(right);
        [name.to_owned(), what.to_owned(), number, p50, p99, longest, missing, later]
    };
    let found = Question::ALL.into_iter().filter_map(|question| Some((question, asked.answers.get(&question)?)));
    let rows =
        found.map(|(question, of)| row(question.name(), &of.right, of.missing.to_string(), of.later.to_string()));
    let known =
        (asked.known.count() > 0).then(|| row("a change is known", &asked.known, "-".to_owned(), "-".to_owned()));
    rows.chain(known).collect()
}

fn others(page: &mut String, outcome: &PeApiOutcome) -> Result<()> {
    page.push_str(
        "\n## What else the frontend does\n\nMilliseconds: a region is asked for; a resize of a job of 12 PEs is \
         committed; a new job of one PE runs; a resize of the large job is committed, and rolled out.\n\n",
    );
    let of_windows = outcome.windows.iter().flat_map(|of| {
        let seen = &of.seen;
        let failed = seen.beside.failures.len();
        [
            (of.name, "region", &seen.beside.region, failed),
            (of.name, "small resize", &seen.beside.committed, 0),
            (of.name, "new job", &seen.beside.submitted, 0),
            (of.name, "large resize committed", &seen.committed, 0),
            (of.name, "large resize rolled out", &seen.rolled_out, 0),
        ]
    });
    let of_restarts = outcome.restarts.iter().flat_map(|of| {
        [
            (of.name, "region", &of.beside.region, of.beside.failures.len()),
            (of.name, "small resize", &of.beside.committed, 0),
            (of.name, "new job", &of.beside.submitted, 0),
        ]
    });
    let rows = of_windows.chain(of_restarts).filter(|(_, _, durations, _)| durations.count() > 0);
    let rows = rows.map(|(name, what, durations, _)| {
        let [number, p50, p99, longest] = shown(durations);
        [name.to_owned(), what.to_owned(), number, p50, p99, longest]
    });
    table(page, ["", "what", "number", "50 %", "99 %", "longest"], rows)?;
    let failures: Vec<&String> = outcome
        .windows
        .iter()
        .flat_map(|of| &of.seen.beside.failures)
        .chain(outcome.restarts.iter().flat_map(|of| &of.beside.failures))
        .collect();
    if let Some(first) = failures.first() {
        writeln!(page, "\n{} of these failed, the first: {first}", failures.len())?;
    }
    Ok(())
}

fn restarts(page: &mut String, outcome: &PeApiOutcome) -> Result<()> {
    if outcome.restarts.is_empty() {
        return Ok(());
    }
    page.push_str(
        "\n## The frontend is killed and comes back\n\nSeconds from its start, two after its end. While it is away the \
         connections of all PEs break, which each of them tries to tell; when all have told that, all connections are \
         mended at the same moment, and all tell that at once.\n\n",
    );
    let rows = outcome.restarts.iter().map(|of| {
        let reports = of.asked.right(Question::Connectivity);
        [
            of.name.to_owned(),
            seconds(of.serves),
            seconds(of.resized),
            of.storm.map_or_else(|| "-".to_owned(), |_| seconds(of.told)),
            of.storm.map_or_else(|| "-".to_owned(), seconds),
            reports.to_string(),
            of.figures.total().to_string(),
        ]
    });
    let header = [
        "",
        "it serves",
        "a resize is committed",
        "all that was to be told is",
        "all tell at once: until all are answered",
        "reports",
        "calls of the frontend",
    ];
    table(page, header, rows)
}

fn attack(page: &mut String, outcome: &PeApiOutcome) -> Result<()> {
    let Some((of, attack)) = outcome.windows.iter().find_map(|of| Some((of, of.seen.attack.as_ref()?))) else {
        return Ok(());
    };
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
    writeln!(
        page,
        "\n## A hostile PE\n\nFor {} s it wrote its connectivity in a loop over 32 connections and opened others as \
         fast as it could: {} connections, of which {} were closed at once; {} writes were answered with 204, {} in another \
         way or not in time. What that cost, beside the resizes:\n",
        of.took.as_secs(),
        count(&attack.opened),
        count(&attack.closed),
        count(&attack.written),
        count(&attack.refused)
    )?;
    each(page, "a write", count(&attack.written), &of.figures)
}

fn region(page: &mut String, outcome: &PeApiOutcome) -> Result<()> {
    let Some(of) = &outcome.region else { return Ok(()) };
    let reports = of.window.asked.right(Question::Report);
    let calls = of.window.figures.calls.iter();
    let writes: u64 = calls
        .filter(|((verb, resource), _)| verb != "watch" && resource.starts_with("streamscrs"))
        .map(|(_, count)| count)
        .sum();
    writeln!(
        page,
        "\n## Reports to a consistent region\n\n{} PEs, a checkpoint every 5 s, while the large job rests: {} \
         checkpoints, {reports} reports answered with 204, {writes} calls about the region: {:.3} a report, {:.1} a checkpoint.\n",
        of.pes,
        of.checkpoints,
        writes as f64 / reports.max(1) as f64,
        writes as f64 / of.checkpoints.max(1) as f64
    )?;
    each(page, "a report", reports, &of.window.figures)
}

/// How many, and three of them in milliseconds.
fn shown(durations: &Durations) -> [String; 4] {
    let shown = durations.percentiles([50, 99, 100]).map(|shown| shown.map(milliseconds));
    let [p50, p99, longest] = shown.unwrap_or_else(|| ["-"; 3].map(str::to_owned));
    [durations.count().to_string(), p50, p99, longest]
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::super::beside::Beside;
    use super::super::phases::Region;
    use super::super::tally::{Answer, Question, Tally};
    use super::super::usage::Usage;
    use super::super::window::{Seen, Window};
    use super::super::{PeApiOptions, PeApiOutcome, names};
    use super::page;
    use crate::soak::metrics::Figures;
    use std::time::Duration;

    fn window(name: &'static str, calls: u64) -> Window {
        let tally = Tally::default();
        tally.add("p", Question::Report, Duration::from_millis(3), Answer::Right);
        tally.add("p", Question::Report, Duration::from_millis(9), Answer::Missing);
        let mut figures = Figures::default();
        figures.calls.insert(("update".to_owned(), "streamscrs/status".to_owned()), calls);
        let mut seen = Seen { beside: Beside::default(), ..Seen::default() };
        seen.beside.region.add(Duration::from_millis(2));
        Window { name, took: Duration::from_secs(30), usage: Usage::default(), figures, asked: tally.take(), seen }
    }

    #[test]
    fn the_page_has_what_a_pe_costs_and_what_went_wrong() {
        let options = PeApiOptions {
            pes: 10,
            region_pes: 4,
            window: Duration::from_secs(30),
            is_wide: false,
            seed: 1,
            within: Duration::from_secs(60),
            beside: "nothing".to_owned(),
        };
        let outcome = PeApiOutcome {
            windows: vec![window(names::REST, 10), window(names::REST_WITH, 15)],
            region: Some(Region { pes: 4, checkpoints: 2, window: window(names::REGION, 3) }),
            failures: vec!["reports were lost".to_owned()],
            ..PeApiOutcome::default()
        };
        let page = page("cargo soak pe-api", &options, &outcome).unwrap();
        for part in [
            "**Failed**: reports were lost",
            // Five calls more in half a minute, of ten PEs.
            "| at rest, a minute | 0.000 | 0.000 | 0.000 | 1.000 |",
            "| rest | checkpoint, a report | 1 | 3.0 | 3.0 | 3.0 | 1 | 0 |",
            "| rest | region | 1 | 2.0 | 2.0 | 2.0 |",
            "2 checkpoints, 1 reports answered with 204, 3 calls about the region: 3.000 a report, 1.5 a checkpoint.",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
