//! Memory of a compilation: how much stays, how much it takes on the way, what a cached job says of itself, and what is
//! taken before something is refused.
//!
//! Every allocation is counted. `STREAMS_BENCH=large cargo test --release -p fusion-service --test memory --
//! --nocapture` prints the table of `docs/measurements/compiler.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use parking_lot::Mutex;
use peak_alloc::PeakAlloc;
use std::sync::Arc;
use streams_compiler::budget::{Budget, Limits};
use streams_compiler::plan::{FusionOption, JobState, Policy, Request, Source, resize, submit};
use streams_test_support::application::Sketch;
use streams_test_support::corpus;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Peak by what stays. What a compilation needs on the way is given back.
const MOST_ON_THE_WAY: f64 = 1.5;

/// One test at a time: others would be counted with it.
static TURN: Mutex<()> = Mutex::new(());

/// What `work` gives, how many bytes of it stay, and how many were in use at most meanwhile.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    // What the test before has left may go meanwhile.
    (result, ALLOCATOR.current_usage().saturating_sub(before), ALLOCATOR.peak_usage().saturating_sub(before))
}

#[test]
fn a_compilation_takes_little_more_than_what_stays_and_a_job_knows_its_size() {
    let _turn = TURN.lock();
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
            let beside = next.weight();
            drop(job);
            if beside != next.weight() {
                wrong.push(format!("{name} {mode}: says {beside} as long as the job before is there"));
            }
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

/// Some hundred kilobytes that ask for hundreds of megabytes: of the parts that documents have in common, and of texts
/// of channels, there may be 8 MiB each where documents may have 64 MiB. To fold the last ones takes more steps than
/// these permit.
#[test]
fn what_is_too_large_is_refused_before_it_is_made() {
    const MOST: usize = 48 << 20;
    let _turn = TURN.lock();
    // Each value has a triple for each channel of the operator that it names.
    let connections = "<value key='inputConnections' type=''>[0,0,0]</value>".repeat(10_000);
    let annotation = format!("<splAnnotation tag='eventTimeContext'>{connections}</splAnnotation>");
    let channels = Sketch::new().op("P", 0, 0).parallel("P", 1_000).op("E", 0, 0).with(&annotation);
    // Each constant has the text, and each character of it becomes five.
    let text = format!("defaultValue='\"{}\"'", "&amp;".repeat(100_000));
    let constants: String =
        (0..70).map(|number| format!("<runtimeConstant name='c{number}' submissionTimeValueIndex='4'/>")).collect();
    let constants = format!("<runtimeConstants>{constants}</runtimeConstants>");
    let row = Sketch::row(&["S", "T"]).value(4, "v", &text).adl().replacen("<runtimeConstants/>", &constants, 1);
    // A tree takes forty times as much as its text.
    let imports = |end: &str| {
        let subscription = "a|".repeat(50_000) + end;
        let what = format!("<propertyBasedImport subscription='{subscription}' applicationScope='s'/>");
        let import = |sketch: Sketch, number| sketch.import(&format!("I{number}"), &what, "");
        (0..30).fold(Sketch::new().op("P", 0, 0), import).adl()
    };
    let common = "what the AADL documents of the job have in common is too large: no room is left for";
    let (constants_of, annotations_of) =
        (format!("{common} runtime constants of operator S"), format!("{common} annotations of operator E"));
    let texts = Some("texts of channels, and expressions of imports, have more than");
    let table = [
        ("names of operators in annotations", channels.adl(), 64, Some(&*annotations_of)),
        ("constants of an operator", row, 64, Some(&*constants_of)),
        ("expressions of channels", imports("getChannel()"), 64, texts),
        ("expressions", imports("b"), 256, None),
    ];
    for (what, adl, aadl_mib, expected) in table {
        let budget = Budget::with_limits(Limits { aadl_bytes: aadl_mib << 20, ..Limits::default() });
        let source = Source::parse(adl.as_bytes(), &Budget::default()).unwrap();
        let request = Arc::new(Request { job_name: "large".to_owned(), ..Request::default() });
        let (error, _, peak) = counted(|| submit(&source, &request, &budget).err().map(|error| error.to_string()));
        let is_expected = match (&error, expected) {
            (Some(error), Some(expected)) => error.contains(expected),
            (error, expected) => error.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{what}: {error:?}");
        println!("{what}: {peak} bytes");
        assert!(peak < MOST, "{what}: {peak} bytes");
    }
}
