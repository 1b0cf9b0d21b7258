//! Accounts without the job before, without time, and without room for comparing documents.

use super::{changes, explain};
use crate::budget::Budget;
use crate::error::Error;
use crate::plan::{Compiled, Fate, JobState, Policy, Request, Source, resize, submit};
use std::sync::Arc;

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
