//! Submission-time values of a fixed application that has all kinds of them.
//!
//! Input: lines `name=value`; of a repeated name the last counts.

use crate::compilation;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use streams_compiler::logical::submission::{Literal, bind};
use streams_compiler::plan::{FusionOption, Policy, Request, Source};

const ADL: &str = include_str!("values.adl");

static SOURCE: LazyLock<Source> =
    LazyLock::new(|| Source::parse(ADL.as_bytes(), &compilation::budget()).expect("the application can be read"));

/// What a literal stands for, by the rules of SPL for what the compiler quotes; none if it is no such literal.
fn text_of(literal: &str) -> Option<String> {
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let (mut text, mut characters) = (String::new(), inner.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.push(characters.next().filter(|c| matches!(c, '\\' | '"'))?),
            '"' => return None,
            other => text.push(other),
        }
    }
    Some(text)
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines = text.split('\n').filter_map(|line| line.split_once('='));
    let given: BTreeMap<String, String> = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let application = &SOURCE.application;
    let request =
        Request { submission_values: given.clone(), ..compilation::request(&SOURCE, FusionOption::Manual(3)) };
    let request = Arc::new(request);
    let Ok(bindings) = bind(application, &given) else {
        assert!(compilation::submitted(&SOURCE, &request).is_none(), "unbound values were compiled");
        return;
    };
    for value in &application.submission_values {
        let qualified = format!("{}.{}", value.composite, value.name);
        let partly = qualified.rsplit(':').next().unwrap_or_default();
        let found = [value.name.as_str(), &qualified, partly].into_iter().find_map(|name| given.get(name));
        match (found, bindings.literal(value.index)) {
            (Some(text), Literal::Text(literal)) if !value.list => {
                assert_eq!(text_of(literal).as_ref(), Some(text), "the literal {literal}");
            }
            (Some(text), Literal::Text(literal)) => {
                assert!(literal.starts_with('[') && literal.ends_with(']'), "{literal}");
                assert!(literal.matches("\",\"").count() >= text.matches(',').count(), "{literal}");
            }
            (None, Literal::Text(literal)) => assert_eq!(value.default.as_deref(), Some(literal)),
            (None, Literal::Absent) => assert!(value.default.is_none() && !value.required),
            (found, literal) => panic!("{qualified}: {found:?} became {literal:?}"),
        }
    }
    if let Some(compiled) = compilation::submitted(&SOURCE, &request)
        && data.len().is_multiple_of(4)
    {
        compilation::resized(&compiled, &SOURCE, &request, Policy::Sticky, |_, _| ());
    }
}
