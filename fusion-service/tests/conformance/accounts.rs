//! Accounts of everything in the conformance corpus: whatever compiles can be explained, and what is said of documents
//! agrees with their ids.
//!
//! `STREAMS_CASE=case-0024` narrows it down.

use clap::Parser;
use fusion_service::command::application::ApplicationArguments;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_compiler::explain::{Account, explain};
use streams_compiler::plan::{self, Compiled, Fate, JobState, Policy, Request};
use streams_compiler::topology::ChannelCount;
use streams_test_support::corpus;

#[derive(Parser)]
struct Tool {
    #[command(flatten)]
    application: ApplicationArguments,
}

/// Steps that were explained, and what was wrong with them.
#[derive(Default)]
struct Tally {
    submissions: usize,
    resizes: usize,
    changes: usize,
    problems: Vec<String>,
}

#[test]
fn the_corpus() {
    let Some(archive) = corpus::cases() else {
        println!("no corpus at {}: nothing is explained", corpus::folder().display());
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let wanted = std::env::var("STREAMS_CASE").ok();
    let mut cases = archive.unpack(folder.path());
    cases.retain(|case| wanted.as_ref().is_none_or(|wanted| case.ends_with(wanted)));
    let (tally, next) = (Mutex::new(Tally::default()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    explain_case(case, Policy::Sticky, ChannelCount::Observed, &tally);
                    explain_case(case, Policy::Rebalance, ChannelCount::Observed, &tally);
                    explain_case(case, Policy::Sticky, ChannelCount::Ignored, &tally);
                }
            });
        }
    });
    let Tally { submissions, resizes, changes, mut problems } = tally.into_inner();
    problems.sort();
    println!("{submissions} submissions and {resizes} resizes explained, {changes} changes of documents named");
    problems.iter().take(40).for_each(|problem| println!("{problem}"));
    assert!(problems.is_empty(), "{} problems", problems.len());
    assert!(submissions > 0 && (wanted.is_some() || changes > 1000));
}

fn explain_case(case: &Path, policy: Policy, count: ChannelCount, tally: &Mutex<Tally>) {
    let (adl, request) = (case.join("app.adl"), case.join("request.json"));
    let arguments = ["tool".as_ref(), adl.as_os_str(), "--request".as_ref(), request.as_os_str()];
    let application = Tool::parse_from(arguments).application.read().unwrap();
    let budget = &application.budget;
    let submitted = application.open().and_then(|(source, request)| {
        let channel_counts = match count {
            ChannelCount::Observed => Vec::new(),
            ChannelCount::Ignored => vec![("*".to_owned(), count)],
        };
        plan::submit(&source, &Arc::new(Request { channel_counts, ..(*request).clone() }), budget)
    });
    let Ok(submitted) = submitted else { return };
    let at = |step: usize| format!("{} step {step} {policy:?} {count:?}", case.file_name().unwrap().display());
    let told = told(&at(0), &submitted, None);
    {
        let mut tally = tally.lock();
        tally.submissions += 1;
        tally.problems.extend(told.1);
    }
    let mut current = submitted;
    for (step, width) in (1..).zip(&application.resizes) {
        let width = std::slice::from_ref(width);
        let Ok(resized) = plan::resize(&current, width, policy, &JobState::default(), budget) else { continue };
        let (changes, problems) = self::told(&at(step), &resized, Some(&current));
        let mut tally = tally.lock();
        tally.resizes += 1;
        tally.changes += changes;
        tally.problems.extend(problems);
        drop(tally);
        current = resized;
    }
}

/// Number of changes that the account names, and what is wrong with it.
fn told(at: &str, now: &Compiled, prior: Option<&Compiled>) -> (usize, Vec<String>) {
    let account = match explain(now, prior, &Default::default()) {
        Ok(account) => account,
        Err(error) => return (0, vec![format!("{at}: {error}")]),
    };
    let mut problems = Vec::new();
    let mut ids: Vec<u64> = account.processing_elements.iter().flat_map(|group| group.ids.iter().copied()).collect();
    ids.sort_unstable();
    let expected: Vec<u64> = now.plan().elements.iter().map(|element| element.id).collect();
    if ids != expected {
        problems.push(format!("{at}: PEs {ids:?} instead of {expected:?}"));
    }
    let operators: usize = account.processing_elements.iter().map(|group| group.ids.len() * group.operators_each).sum();
    if operators != account.totals.operators {
        problems.push(format!("{at}: {operators} operators instead of {}", account.totals.operators));
    }
    for group in &account.processing_elements {
        let observable = group.changes.iter().any(|change| change.observable);
        let right = match group.fate {
            Some(Fate::Restarted) => observable,
            Some(Fate::KeptUnobservable) => !observable && group.change_count > 0,
            Some(Fate::Kept | Fate::Added) | None => group.changes.is_empty(),
        };
        if !right || group.not_compared {
            problems.push(format!("{at}: {group:?}"));
        }
    }
    if explain(now, prior, &Default::default()).as_ref() != Ok(&account) {
        problems.push(format!("{at}: another account for the same job"));
    }
    problems.extend(unreadable(&account).map(|line| format!("{at}: {line}")));
    (account.processing_elements.iter().map(|group| group.change_count).sum(), problems)
}

/// A line that nobody could read.
fn unreadable(account: &Account) -> Option<String> {
    let text = account.to_string();
    let odd = |line: &&str| line.chars().count() > 1000 || line.chars().any(char::is_control) || line.ends_with(' ');
    text.lines().find(odd).map(str::to_owned)
}
