//! Accounts without the job before, without time, and without room for comparing documents.

use super::{changes, explain};
use crate::budget::Budget;
use crate::error::Error;
use crate::plan::{Compiled, Fate, FusionOption, JobState, Policy, Request, Source, resize, submit};
use std::sync::Arc;
use streams_test_support::application::Sketch;

/// A job, and the same with another width.
fn resized() -> (Compiled, Compiled) {
    let budget = Budget::default();
    let source = Source::parse(include_bytes!("../../../tests/golden/feeds/app.adl"), &budget).unwrap();
    let before = submit(&source, &Arc::new(Request::default()), &budget).unwrap();
    let now = resize(&before, &[("Lane".to_owned(), 3)], Policy::Sticky, &JobState::default(), &budget).unwrap();
    (before, now)
}

#[test]
fn without_the_job_before_the_plan_gives_the_reasons() {
    let (before, now) = resized();
    let account = explain(&now, None, &Budget::default()).unwrap();
    assert_eq!(account.resize, explain(&now, Some(&before), &Budget::default()).unwrap().resize);
    for group in account.processing_elements.iter().filter(|group| group.fate == Some(Fate::Restarted)) {
        assert!(group.changes.is_empty() && group.reason.is_some() && !group.not_compared, "{group:?}");
    }
    assert!(account.to_string().contains("because"), "{account}");
}

#[test]
fn what_is_too_large_is_not_compared() {
    let (before, now) = resized();
    let restarted: Vec<u64> =
        now.plan().elements.iter().filter(|e| e.fate == crate::plan::Fate::Restarted).map(|e| e.id).collect();
    let compared = |most| {
        let compared = changes::compare(&before, &now, most, &Budget::default()).unwrap();
        restarted.iter().filter(|&&id| compared.of(id).is_some()).count()
    };
    assert!(!restarted.is_empty());
    assert_eq!((compared(0), compared(u64::MAX)), (0, restarted.len()));
}

#[test]
fn nobody_waits() {
    let (before, now) = resized();
    let budget = Budget::cancelled();
    assert_eq!(explain(&now, Some(&before), &budget), Err(Error::Cancelled));
}

#[test]
fn a_submission_has_no_job_before() {
    let (before, now) = resized();
    let account = explain(&before, Some(&now), &Budget::default()).unwrap();
    assert_eq!((account.kind, account.resize), ("submission", None));
    assert!(account.regions.iter().all(|region| region.width_before.is_none()));
}

#[test]
fn why_there_are_more_pes_than_asked_for_is_what_made_them() {
    let budget = Budget::default();
    let account = |job: &Compiled, before: Option<&Compiled>| {
        let account = explain(job, before, &budget).unwrap();
        account.fusion.why.last().cloned().unwrap()
    };
    let resized = |job: &Compiled, width: i128, closed: &[u64]| {
        let state = JobState { closed: closed.iter().copied().collect(), ..JobState::default() };
        resize(job, &[("P".to_owned(), width)], Policy::Sticky, &state, &budget).unwrap()
    };
    let submitted = |sketch: &Sketch| {
        let source = Source::parse(sketch.adl().as_bytes(), &budget).unwrap();
        let request = Request { fusion: FusionOption::Manual(2), ..Request::default() };
        submit(&source, &Arc::new(request), &budget).unwrap()
    };
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2);
    let before = submitted(&sketch);
    assert_eq!(account(&before, None), "2 asked for");
    let all: Vec<u64> = before.plan().elements.iter().map(|element| element.id).collect();
    assert_eq!(account(&resized(&before, 3, &all[..1]), Some(&before)), "2 asked for");
    let wider = resized(&before, 3, &all);
    let more = "1 more than that, because";
    assert_eq!(account(&wider, Some(&before)), format!("{more} 2 PEs took nothing new"));
    assert_eq!(account(&resized(&wider, 4, &[]), Some(&wider)), format!("{more} there were as many before"));
    let apart = "<partitions><exLocation exlocId='apart'/></partitions>";
    let before = submitted(&sketch.of("P").with(apart));
    let wider = resized(&before, 3, &[]);
    let constraints = "constraints keep operators apart";
    assert_eq!(account(&wider, Some(&before)), format!("{more} {constraints}"));
    let widest = resized(&wider, 4, &[0]);
    let more = "2 more than that, because";
    assert_eq!(account(&widest, Some(&wider)), format!("{more} {constraints}, and 1 PE took nothing new"));
}
