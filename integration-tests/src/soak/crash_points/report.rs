//! The page about a run: each operation, its writes, the points, and how many of them passed.

use super::{Blow, CrashPointOptions, CrashPointOutcome, Operation, Watches};
use crate::soak::report::{run, table};
use anyhow::Result;
use std::fmt::Write as _;

/// The page, in Markdown.
///
/// # Errors
/// When it cannot be written.
pub fn page(command: &str, options: &CrashPointOptions, outcome: &CrashPointOutcome) -> Result<String> {
    let mut page = String::from("# Crash points\n\n");
    page.push_str(
        "The frontend is killed before and after each write of each operation, and each call fails in each way, below the frontend's own retries. The \
         process is started again after a kill. A *frozen* frontend stops before a write is sent, and sends it when another one leads, every second \
         time after that one has worked for a while. The API server and etcd are killed before a write reaches them, and started again. Then the job \
         must come to the same end as undisturbed: every PE in one pod that runs, the same objects, the same texts, no PE launched more often, no \
         generation more. Two edits that follow each other (shrink) are one generation or two, and what both change restarts once or twice. Calls about Leases and Events do not count.\n\n",
    );
    let result = match outcome.failures.len() {
        0 => "the same end each time".to_owned(),
        failed => format!("**{failed} points failed**"),
    };
    writeln!(page, "Result: {result}.\n")?;
    let watches = match options.watches {
        Watches::Good => "as they are".to_owned(),
        Watches::Late(milliseconds) => format!("everything that they tell comes {milliseconds} ms late"),
        Watches::BreakOff(after) => format!("each breaks off after {after} pieces"),
    };
    let more = vec![
        ("frontends of a job", options.frontends.to_string()),
        ("watches", watches),
        ("points planned", outcome.planned.to_string()),
    ];
    run(&mut page, command, &outcome.commit, outcome.took, more)?;

    page.push_str(
        "\n## Operations\n\n*Writes* and *calls* are those of an undisturbed run. A point is not reached when the operation takes fewer calls this \
         time.\n\n",
    );
    let of = |operation: Operation, kills: bool| {
        let mut sums = [0; 3];
        let points = outcome.points.iter().filter(|((of, blow), _)| *of == operation && blow.is_of_writes() == kills);
        for (_, counts) in points {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        sums
    };
    let rows = Operation::ALL.map(|operation| {
        let (writes, calls) = outcome.calls.get(&operation).copied().unwrap_or_default();
        let [killed, faulty] = [true, false].map(|kills| of(operation, kills));
        let [tried, passed, missed] = killed;
        let [tried_faults, passed_faults, missed_faults] = faulty;
        let numbers = [writes, calls, tried, passed, missed, tried_faults, passed_faults, missed_faults];
        let [a, b, c, d, e, f, g, h] = numbers.map(|number| number.to_string());
        [operation.to_string(), a, b, c, d, e, f, g, h]
    });
    let header =
        ["operation", "writes", "calls", "at writes", "passed", "not reached", "at calls", "passed", "not reached"];
    table(&mut page, header, rows.into_iter())?;

    page.push_str("\n## By what happened\n\n");
    let all = Blow::ALL.into_iter().filter(|blow| options.blows.contains(blow)).map(|blow| {
        let mut sums = [0; 3];
        for (_, counts) in outcome.points.iter().filter(|((_, of), _)| *of == blow) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        let [a, b, c] = sums.map(|sum: usize| sum.to_string());
        [blow.to_string(), a, b, c]
    });
    table(&mut page, ["", "points", "passed", "not reached"], all)?;

    if !outcome.failures.is_empty() {
        page.push_str("\n## What failed\n\n");
        let rows = outcome.failures.iter().map(|(point, struck, what)| {
            let what: String = what.chars().take(600).collect();
            [
                format!("{}, {} at {}", point.operation, point.blow, point.number),
                format!("`{struck}`"),
                what.replace('|', "\\|").replace('\n', " "),
            ]
        });
        table(&mut page, ["point", "call", "what was wrong"], rows)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::super::{Blow, CrashPointOptions, CrashPointOutcome, Operation, Passed, Point, Watches};
    use super::page;
    use std::time::Duration;

    #[test]
    fn the_page_counts_points_by_operation_and_by_what_happened() {
        let options = CrashPointOptions {
            lanes: 4,
            frontends: 1,
            every: 1,
            offset: 0,
            blows: Blow::ALL.into(),
            watches: Watches::Late(500),
            operations: Operation::ALL.into(),
            within: Duration::from_secs(60),
        };
        let mut outcome = CrashPointOutcome::default();
        outcome.calls.insert(Operation::Grow, (7, 9));
        let point = |number, blow| Point { operation: Operation::Grow, number, blow };
        outcome.add(point(1, Blow::KilledBefore), Passed::Yes);
        outcome.add(point(2, Blow::KilledAfter), Passed::NotReached);
        let failed = Passed::No { struck: "PATCH /x".to_owned(), what: "two | pods".to_owned() };
        outcome.add(point(3, Blow::Status(503)), failed);
        let page = page("cargo soak crash-points", &options, &outcome).unwrap();
        for part in [
            "**1 points failed**",
            "comes 500 ms late",
            "| grow | 7 | 9 | 2 | 1 | 1 | 1 | 0 | 0 |",
            "| answered 503 | 1 | 0 | 0 |",
            "| grow, answered 503 at 3 | `PATCH /x` | two \\| pods |",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
