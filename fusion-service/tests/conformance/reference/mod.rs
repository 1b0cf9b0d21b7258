//! The program against the conformance corpus: submissions and single resizes equal to the expected files, user errors
//! with the same stage and code, sound results where the reference implementation fails, and chains of resizes whose
//! numbers stay; the fuser, logical and topology sets. The table of totals is shown although the test passes, with what
//! differs on purpose and why.
//!
//! Where the corpus is not found the test says so and passes. `STREAMS_CASE=case-0024` narrows it down. Documents are
//! compared as trees, without white space, without the order of attributes and sets, and with every port id replaced by
//! what the port stands for (`streams_test_support::documents`). Steps that show a defect of the reference
//! implementation are marked in the corpus itself, and [`rules`] says what each mark means.

mod chain;
mod judge;
mod logical;
mod rules;
mod topology;

use super::PROGRAM;
use judge::Verdict;
use parking_lot::Mutex;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_test_support::documents::context;
use streams_test_support::table::{Set, say, table};
use streams_test_support::{corpus, fused};

/// Kinds of judgements, in the order of the table.
const KINDS: [(&str, &str); 5] = [
    ("ok", "good steps"),
    ("user-error", "user errors"),
    ("defect", "steps where the reference fails"),
    ("chain", "steps of chains"),
    ("check", "errors as the command check says them"),
];

/// One judged step.
struct Judged {
    name: String,
    step: usize,
    kind: &'static str,
    verdict: Verdict,
    /// Why it may differ from the expected files.
    because: Vec<&'static str>,
}

#[test]
fn the_corpus() {
    let corpus = corpus::folder();
    let Some(archive) = corpus::cases() else {
        say(&format!("\nno corpus at {}: NOTHING is compared with the reference\n", corpus.display()));
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let wanted = std::env::var("STREAMS_CASE").ok();
    let cases: Vec<PathBuf> = (archive.unpack(folder.path()).into_iter())
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
                    results.lock().extend(judged);
                }
            });
        }
    });
    let mut results = results.into_inner();
    results.sort_by(|a, b| (&a.name, a.kind, a.step).cmp(&(&b.name, b.kind, b.step)));
    let mut sets: Vec<Set> = KINDS.iter().map(|(kind, what)| set(kind, what, &results)).collect();
    if wanted.is_none() {
        sets.push(fused::cases(PROGRAM, &corpus.join("fuser.jsonl")));
        sets.extend([logical::applications(&corpus), logical::expansions(&corpus), topology::topologies(&corpus)]);
        assert!(sets.iter().all(|set| set.compared > 0), "a part of the corpus is not there:{}", table(&sets));
    }
    say(&table(&sets));
    let wrong: usize = sets.iter().map(|set| set.wrong.len()).sum();
    assert!(wrong == 0, "{wrong} comparisons fail: see the table");
    assert!(sets.iter().any(|set| set.compared > 0), "no case was found");
}

/// The judgements of one kind.
fn set(kind: &str, what: &'static str, results: &[Judged]) -> Set {
    let mut set = Set::new(what);
    for Judged { name, step, verdict, because, .. } in results.iter().filter(|judged| judged.kind == kind) {
        let name = format!("{name} step {step}");
        let difference = (!verdict.accepted()).then(|| verdict.differences.join("; "));
        let how = match (kind, verdict.how) {
            ("ok", "match") => "equal",
            ("ok", "masked") => "equal but for corrections",
            ("ok", "sound") => "corrected and sound",
            ("ok", "error") => "refused on purpose",
            ("user-error" | "check", "error") => "same verdict, stage and code",
            (_, "error") => "refused with its reason",
            (_, how) => how,
        };
        set.add_as(how, &name, difference);
        if kind == "ok" && verdict.how != "match" {
            because.iter().for_each(|why| set.correct(why, &name));
        }
    }
    set
}

/// Runs the program; gives its exit status.
fn run(case: &Path, replay: Option<&Path>, out: &Path) -> Result<i32, String> {
    let mut command = Command::new(PROGRAM);
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
    let judged = |step, kind, verdict| Judged {
        name: case.name.clone(),
        step,
        kind,
        verdict,
        because: case.defects(step).iter().map(|defect| rules::reason(defect)).collect(),
    };
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
    if status == Ok(3) {
        results.extend(checked(&case.folder, &out).into_iter().map(|(step, verdict)| judged(step, "check", verdict)));
    }
    results
}

/// What the command check says first of every step that `plan` refused, against that step's `error.json`.
fn checked(case: &Path, plan: &Path) -> Vec<(usize, Verdict)> {
    let mut command = Command::new(PROGRAM);
    command.arg("check").arg(case.join("app.adl")).arg("--request").arg(case.join("request.json"));
    let output = command.args(["-o", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let problems = context::list(&report, "problems");
    let steps = (0..).map(|step| (step, plan.join(format!("step-{step}")))).take_while(|(_, folder)| folder.is_dir());
    let refused = steps.filter(|(_, folder)| folder.join("error.json").exists());
    refused
        .map(|(step, folder)| {
            let (error, mut differences) = judge::read_error(&folder);
            let first = problems.iter().find(|problem| problem["step"] == step).unwrap_or(&Value::Null);
            for key in ["stage", "code", "line", "column"] {
                if first[key] != error[key] {
                    differences.push(format!("{key} {} instead of {}", first[key], error[key]));
                }
            }
            if output.status.code() != Some(3) {
                differences.push(format!("exit status {:?}", output.status.code()));
            }
            (step, Verdict::new("error", differences))
        })
        .collect()
}
