//! A check says first what a submission says, and finds nothing wrong where a submission finds nothing, whatever is
//! wrong with the document.

use proptest::prelude::*;
use proptest::sample::Index;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::error::{Error, Problem};
use streams_compiler::plan::{self, Compiled, FusionOption, Request, Source};
use streams_test_support::application::Sketch;

/// A change of a document.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A number becomes another one.
    Number(Index, u32),
    /// An attribute goes away.
    Attribute(Index),
    /// An attribute has another text.
    Text(Index, &'static str),
    /// An empty element goes away.
    Element(Index),
    /// A byte goes away.
    Byte(Index),
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (any::<Index>(), 0..12_u32).prop_map(|(at, number)| Change::Number(at, number)),
        4 => any::<Index>().prop_map(Change::Attribute),
        4 => (any::<Index>(), prop::sample::select(vec!["", "x", "-1", "O0.O1", " "])).prop_map(|(at, t)| Change::Text(at, t)),
        3 => any::<Index>().prop_map(Change::Element),
        1 => any::<Index>().prop_map(Change::Byte),
    ]
}

/// Ranges of ` name='value'`, and of the values in them.
fn attributes(text: &str) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("='") {
        let (Some(start), Some(length)) = (text[..at].rfind(' '), text[at + 2..].find('\'')) else { continue };
        found.push((start..at + 2 + length + 1, at + 2..at + 2 + length));
    }
    found
}

fn changed(mut text: String, change: &Change) -> String {
    let attributes = attributes(&text);
    let numbers: Vec<_> = attributes.iter().filter(|(_, v)| text[v.clone()].parse::<u32>().is_ok()).cloned().collect();
    let elements: Vec<usize> = text.match_indices("/>").map(|(at, _)| at).collect();
    match change {
        Change::Number(at, number) => text.replace_range(at.get(&numbers).1.clone(), &number.to_string()),
        Change::Attribute(at) => text.replace_range(at.get(&attributes).0.clone(), ""),
        Change::Text(at, other) => text.replace_range(at.get(&attributes).1.clone(), other),
        Change::Element(at) => {
            let end = *at.get(&elements);
            let start = text[..end].rfind('<').unwrap_or(end);
            text.replace_range(start..end + 2, "");
        }
        Change::Byte(at) => {
            let at = at.index(text.len());
            text.replace_range(at..=at, "");
        }
    }
    text
}

fn submitted(document: &[u8], request: &Arc<Request>) -> Result<Compiled, Error> {
    let budget = Budget::default();
    request.check()?;
    plan::submit(&Source::parse(document, &budget)?, request, &budget)
}

/// Changes a document and compares.
pub(crate) fn hold(sketch: &Sketch, manual: i128, changes: &[Change]) -> Result<(), TestCaseError> {
    let document = changes.iter().fold(sketch.adl(), changed);
    let fusion = if manual < 0 { FusionOption::Legacy } else { FusionOption::Manual(manual) };
    let request = Arc::new(Request { job_name: "job".to_owned(), fusion, ..Request::default() });
    let checked = plan::check(document.as_bytes(), &request, &Budget::default()).unwrap();
    let first = |problems: &[Problem]| problems.first().cloned();
    match submitted(document.as_bytes(), &request) {
        Ok(job) => {
            prop_assert_eq!(&checked.problems, &[]);
            prop_assert_eq!(checked.compiled.as_ref().map(Compiled::plan), Some(job.plan()));
        }
        Err(error) => {
            prop_assert!(checked.compiled.is_none());
            prop_assert_eq!(first(&checked.problems), first(error.problems()));
            // Nothing that a submission says is left out.
            for problem in error.problems() {
                prop_assert!(checked.problems.contains(problem), "{} is missing", problem);
            }
        }
    }
    Ok(())
}
