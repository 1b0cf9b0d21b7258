//! Cores make a compilation faster and nothing else.

use super::super::{Compiled, FusionOption, JobState, Policy, Request, resize, submit};
use super::{request, source, submitted, texts};
use crate::budget::{Budget, Cores, Limits, SharedWork};
use crate::error::{Error, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use streams_test_support::application::Sketch;

/// Always has so many idle cores, and takes each of them back after so many pieces of work.
#[derive(Debug)]
struct Threads {
    count: usize,
    pieces: usize,
    asked: AtomicUsize,
}

impl Cores for Threads {
    fn share(&self, work: &SharedWork<'_>) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..self.count {
                scope.spawn(|| {
                    let done = AtomicUsize::new(0);
                    work(&|| done.fetch_add(1, Ordering::Relaxed) < self.pieces);
                });
            }
            work(&|| true);
        });
    }
}

fn helped(count: usize, limits: Limits) -> (Budget, Arc<Threads>) {
    interrupted(count, usize::MAX, limits)
}

fn interrupted(count: usize, pieces: usize, limits: Limits) -> (Budget, Arc<Threads>) {
    let threads = Arc::new(Threads { count, pieces, asked: AtomicUsize::new(0) });
    (Budget { cores: Some(Arc::<Threads>::clone(&threads)), ..Budget::with_limits(limits) }, threads)
}

fn sketch() -> Sketch {
    // Enough for all that is shared.
    Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 2100).parallel("Q", 3)
}

fn wider(job: &Compiled, budget: &Budget) -> Result<Compiled, Error> {
    resize(job, &[("P".to_owned(), 2101)], Policy::Sticky, &JobState::default(), budget)
}

#[test]
fn plans_and_texts_are_the_same_with_any_number_of_helpers() {
    for fusion in [FusionOption::Legacy, FusionOption::Manual(10)] {
        let job = submitted(&sketch(), fusion.clone());
        let expected = wider(&job, &Budget::default()).unwrap();
        for (count, pieces) in [(0, 0), (1, 0), (1, 1), (3, 2), (1, usize::MAX), (3, usize::MAX), (16, usize::MAX)] {
            let (budget, threads) = interrupted(count, pieces, Limits::default());
            let again = submit(&source(&sketch()), &request(fusion.clone()), &budget).unwrap();
            assert_eq!(again.plan(), job.plan());
            let found = wider(&job, &budget).unwrap();
            assert_eq!(found.plan(), expected.plan(), "{fusion:?}, {count} helpers, {pieces} pieces");
            assert_eq!(found.layout().to_bytes(), expected.layout().to_bytes());
            assert!(threads.asked.load(Ordering::Relaxed) >= 2, "nobody was asked for help");
            assert_eq!(texts(&found), texts(&expected));
        }
    }
}

#[test]
fn problems_are_the_same_with_helpers() {
    let job = submitted(&sketch(), FusionOption::Legacy);
    let bytes: u64 = wider(&job, &Budget::default()).unwrap().plan().elements.iter().map(|e| e.bytes).sum();
    for aadl_bytes in [bytes, bytes - 1, bytes / 2] {
        let limits = Limits { aadl_bytes, ..Limits::default() };
        let alone = wider(&job, &Budget::with_limits(limits.clone())).map(|job| job.plan().clone());
        let (budget, _) = helped(3, limits);
        assert_eq!(wider(&job, &budget).map(|job| job.plan().clone()), alone);
        assert_eq!(alone.is_ok(), aadl_bytes == bytes);
    }
    let unwritable = Request { job_name: "a\u{1}b".to_owned(), ..Request::default() };
    let unwritable = Arc::new(unwritable);
    let alone = submit(&source(&sketch()), &unwritable, &Budget::default()).unwrap_err();
    assert_eq!(submit(&source(&sketch()), &unwritable, &helped(3, Limits::default()).0).unwrap_err(), alone);
    let Error::Rejected(problems) = alone else { panic!("{alone:?}") };
    assert_eq!(problems[0].stage, Stage::Aadl);
}

#[test]
fn nobody_is_asked_to_help_with_what_takes_long_and_cannot_be_divided() {
    // Operators are compared, and grouped, with the help of others. The lists of PEs are short.
    for (width, asked) in [(1_000, 2), (9_000, 0)] {
        let region = |sketch: Sketch, name: &str| sketch.op(name, 0, 0).parallel(name, width);
        let sketch = ["A", "B", "C", "D"].into_iter().fold(Sketch::new(), region);
        let job = submitted(&sketch, FusionOption::Manual(1));
        let (budget, threads) = helped(1, Limits::default());
        let widths = [("A".to_owned(), i128::from(width) + 1)];
        resize(&job, &widths, Policy::Sticky, &JobState::default(), &budget).unwrap();
        assert_eq!(threads.asked.load(Ordering::Relaxed), asked, "{width}");
    }
}

#[test]
fn nobody_is_asked_to_help_with_little() {
    let (budget, threads) = helped(3, Limits::default());
    let small = Sketch::row(&["S", "P", "T"]).parallel("P", 3);
    submit(&source(&small), &request(FusionOption::Legacy), &budget).unwrap();
    assert_eq!(threads.asked.load(Ordering::Relaxed), 0);
}
