//! The program against the conformance corpus: submissions and single resizes equal to the expected files, user errors with the same
//! stage and code, sound results where the reference fails, and chains of resizes whose numbers stay.
//!
//! The corpus is found by `STREAMS_CORPUS`, or beside the checkout; without it the test says so and passes. `STREAMS_CASE=case-0024` narrows it
//! down. How results are compared is said by the plan command ("How results are compared"); steps that show a defect of the reference are marked
//! in the corpus itself, and [`rules`] says what each mark means.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod chain;
mod context;
mod corpus;
mod judge;
mod rules;
mod sound;
mod step;
mod tree;

use judge::Verdict;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Kinds of judgements, in the order of the table.
const KINDS: [&str; 4] = ["ok", "user-error", "defect", "chain"];

/// One judged step.
struct Judged {
    name: String,
    step: usize,
    kind: &'static str,
    verdict: Verdict,
}

#[test]
fn the_corpus() {
    let corpus = corpus::folder();
    let archive = corpus.join("cases.tar.zst");
    if !archive.is_file() {
        println!("no corpus at {}: nothing is compared", corpus.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wanted = std::env::var("STREAMS_CASE").ok();
    let cases: Vec<PathBuf> = (corpus::unpack(&archive, folder.path()).into_iter())
        .filter(|case| wanted.as_ref().is_none_or(|wanted| case.ends_with(wanted)))
        .collect();
    let affected = rules::Affected::read(&corpus.join("check/affected.json"));
    let results: Mutex<Vec<Judged>> = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let judged = one(case, &affected);
                    results.lock().unwrap().extend(judged);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by(|a, b| (&a.name, a.kind, a.step).cmp(&(&b.name, b.kind, b.step)));
    report(&results);
}

/// Prints the table and the failures.
fn report(results: &[Judged]) {
    let mut how: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let (mut total, mut good): (BTreeMap<&str, usize>, BTreeMap<&str, usize>) = Default::default();
    for judged in results {
        *total.entry(judged.kind).or_default() += 1;
        if judged.verdict.accepted() {
            *good.entry(judged.kind).or_default() += 1;
            *how.entry((judged.kind, judged.verdict.how)).or_default() += 1;
        }
    }
    let count = |counts: &BTreeMap<&str, usize>, kind: &str| counts.get(kind).copied().unwrap_or(0);
    println!("{:<12}{:>10}{:>10}  how", "kind", "accepted", "steps");
    for kind in KINDS {
        let ways: Vec<String> =
            how.iter().filter(|((k, _), _)| *k == kind).map(|((_, how), n)| format!("{how} {n}")).collect();
        println!("{kind:<12}{:>10}{:>10}  {}", count(&good, kind), count(&total, kind), ways.join(", "));
    }
    let failures: Vec<&Judged> = results.iter().filter(|judged| !judged.verdict.accepted()).collect();
    for Judged { name, step, kind, verdict } in failures.iter().take(40) {
        println!("{name} step {step} {kind} ({}): {}", verdict.how, verdict.differences.join("; "));
    }
    assert!(failures.is_empty(), "{} of {} steps are not accepted", failures.len(), results.len());
    assert!(!results.is_empty(), "no case was found");
}

/// Runs the program; gives its exit status.
fn run(case: &Path, replay: Option<&Path>, out: &Path) -> Result<i32, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusion-service"));
    command.arg("plan").arg("--adl").arg(case.join("app.adl")).arg("--request").arg(case.join("request.json"));
    if let Some(input) = replay {
        command.arg("--replay").arg(input);
    }
    let output = command.arg("--out").arg(out).output().map_err(|error| error.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(status @ (0 | 3)) if errors.is_empty() => Ok(status),
        status => Err(format!("exit status {status:?}: {}", errors.lines().next().unwrap_or_default())),
    }
}

/// Judges one case.
fn one(case: &Path, affected: &rules::Affected) -> Vec<Judged> {
    let work = tempfile::tempdir().unwrap();
    let case = judge::Case::read(case, affected);
    let judged = |step, kind, verdict| Judged { name: case.name.clone(), step, kind, verdict };
    let mut results = Vec::new();
    let out = work.path().join("chain");
    let status = run(&case.folder, None, &out);
    let steps = case.steps();
    let verdict = match &status {
        Ok(status) => case.judge(&out.join("step-0"), 0, &out).and_status(*status, &out, steps.len() == 1),
        Err(message) => Verdict::failed("program", message),
    };
    results.push(judged(0, case.kind(0), verdict));
    for &step in &steps[1..] {
        let replay = work.path().join(format!("replay-{step}"));
        let verdict = match run(&case.folder, Some(&case.expected(step).join("input.json")), &replay) {
            Ok(status) => {
                let failed = replay.join("error.json").exists();
                let right = status == if failed { 3 } else { 0 };
                let verdict = case.judge(&replay, step, &out);
                if right { verdict } else { Verdict::failed("program", &format!("exit status {status}")) }
            }
            Err(message) => Verdict::failed("program", &message),
        };
        results.push(judged(step, case.kind(step), verdict));
    }
    for (step, problems) in chain::judge(&case, &out, &steps, &status) {
        results.push(judged(step, "chain", Verdict::new("sound", problems)));
    }
    results
}
