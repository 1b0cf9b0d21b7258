//! Memory of a compilation: how much stays, how much it takes on the way, and what a cached job says of itself.
//!
//! Every allocation is counted. `STREAMS_BENCH=large cargo test --release -p fusion-service --test memory --
//! --nocapture` prints the table of `docs/measurements/compiler.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use peak_alloc::PeakAlloc;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::plan::{FusionOption, JobState, Policy, Request, Source, resize, submit};
use streams_test_support::corpus;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Peak by what stays. What a compilation needs on the way is given back.
const MOST_ON_THE_WAY: f64 = 1.5;

/// What `work` gives, how many bytes of it stay, and how many were in use at most meanwhile.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    (result, ALLOCATOR.current_usage() - before, ALLOCATOR.peak_usage() - before)
}

/// One test only: others would be counted with it.
#[test]
fn a_compilation_takes_little_more_than_what_stays_and_a_job_knows_its_size() {
    let Some(folder) = corpus::benchmarks() else {
        eprintln!("no corpus: nothing to measure");
        return;
    };
    let mut names = vec!["pipeline-100", "pipeline-300", "channels-300", "channels-1000"];
    if std::env::var("STREAMS_BENCH").is_ok_and(|size| size == "large") {
        names.extend(["pipeline-1000", "channels-10000", "pipeline-3000"]);
    }
    let mut wrong = Vec::new();
    println!("| application | mode | step | stays | peak | peak / stays | says |\n|---|---|---|---|---|---|---|");
    for name in names {
        let document = std::fs::read(folder.join(format!("{name}.adl"))).unwrap();
        let budget = Budget::default();
        for (mode, fusion, given) in [
            ("legacy", FusionOption::Legacy, 0),
            ("manual(10)", FusionOption::Manual(10), 0),
            // Values that are larger than the job.
            ("legacy, 16 MiB of values", FusionOption::Legacy, 16),
        ] {
            let values = || (0..given).map(|number| (format!("value {number}"), "x".repeat(1 << 20)));
            let request = || Request {
                job_name: "bench".to_owned(),
                job_id: 1,
                fusion: fusion.clone(),
                submission_values: values().collect(),
                ..Request::default()
            };
            let (source, model, _) = counted(|| Source::parse(&document, &budget).unwrap());
            // The ADL and its model are there all the time.
            let around = document.len() + model;
            let start = ALLOCATOR.current_usage();
            let (job, stays, peak) = counted(|| submit(&source, &Arc::new(request()), &budget).unwrap());
            let regions = &job.plan().regions;
            let region = &regions[regions.len() / 2].region;
            let widths = [(region.name.clone(), i128::from(region.width) + 1)];
            let mut steps = vec![("submit", stays, peak, job.weight())];
            let (next, adds, extra) =
                counted(|| resize(&job, &widths, Policy::Sticky, &JobState::default(), &budget).unwrap());
            drop(job);
            // With what it shared with the job before.
            let stays = ALLOCATOR.current_usage() - start;
            steps.push(("resize", stays, stays - adds + extra, next.weight()));
            drop(next);
            for (step, stays, peak, weight) in steps {
                let factor = (peak + around) as f64 / (stays + around) as f64;
                let says = weight as f64 / stays as f64;
                println!("| {name} | {mode} | {step} | {stays} | {peak} | {factor:.2} | {says:.2} |");
                if factor > MOST_ON_THE_WAY {
                    wrong.push(format!("{name} {mode} {step}: a peak of {factor:.2} times what stays"));
                }
                // It adds an eighth for the allocator.
                if !(1.0..1.3).contains(&says) {
                    wrong.push(format!("{name} {mode} {step}: says {says:.2} times what it takes"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
