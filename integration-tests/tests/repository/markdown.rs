//! Headings, anchors and links of documents.

use crate::files::line_at;
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};

/// A heading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) level: u32,
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A link, or a picture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// What is shown.
    pub(crate) text: String,
    /// Where it leads to.
    pub(crate) target: String,
    pub(crate) line: usize,
}

fn parser(text: &str) -> impl Iterator<Item = (Event<'_>, std::ops::Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter()
}

/// All headings of a document, in their order.
pub(crate) fn headings(text: &str) -> Vec<Heading> {
    let mut headings = Vec::new();
    let mut open: Option<Heading> = None;
    for (event, range) in parser(text) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                let line = line_at(text, range.start);
                open = Some(Heading { level: number(level), text: String::new(), line });
            }
            Event::End(TagEnd::Heading(_)) => headings.extend(open.take()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut open {
                    heading.text.push_str(&part);
                }
            }
            _ => {}
        }
    }
    headings
}

fn number(level: HeadingLevel) -> u32 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

/// All links of a document, in their order.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut open: Vec<Link> = Vec::new();
    for (event, range) in parser(text) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = line_at(text, range.start);
                open.push(Link { text: String::new(), target: dest_url.into_string(), line });
            }
            Event::End(TagEnd::Link | TagEnd::Image) => links.extend(open.pop()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(link) = open.last_mut() {
                    link.text.push_str(&part);
                }
            }
            _ => {}
        }
    }
    links
}

/// The anchors of a document, as GitHub makes them of headings.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let anchors = headings(text).into_iter().map(|heading| {
        let anchor = anchor(&heading.text);
        let count = seen.entry(anchor.clone()).or_insert(0);
        let numbered = if *count == 0 { anchor } else { format!("{anchor}-{count}") };
        *count += 1;
        numbered
    });
    anchors.collect()
}

/// Lower case, blanks as hyphens, without other punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn headings_are_told_from_what_looks_like_one() {
    let text =
        "# One\n\ntext\n\n### a-1: `code` and *more*\n\n```text\n### a-2: in code\n```\n\n<!--\n### a-3: hidden\n-->\n";
    let expected = [(1, "One", 1), (3, "a-1: code and more", 5)];
    let expected = expected.map(|(level, text, line)| Heading { level, text: text.to_owned(), line });
    assert_eq!(headings(text), expected);
}

#[test]
fn anchors_are_those_of_github() {
    let table = [
        ("### fusion-7: Host isolation", "fusion-7-host-isolation"),
        ("## What it is (and is not)", "what-it-is-and-is-not"),
        ("## PEs, `ids` & ports", "pes-ids--ports"),
        ("## user's_words", "users_words"),
    ];
    for (heading, expected) in table {
        assert_eq!(anchors(heading), BTreeSet::from([expected.to_owned()]), "{heading}");
    }
    assert_eq!(anchors("# A\n# A\n"), BTreeSet::from(["a".to_owned(), "a-1".to_owned()]));
}

#[test]
fn links_are_found_wherever_they_are() {
    let text = "[a](b.md)\n\n| [c](d.md#e) |\n|---|\n| ![p](q.svg) |\n\n`[no](code)` and [split\nover lines](f.md)\n";
    let expected = [("a", "b.md", 1), ("c", "d.md#e", 3), ("p", "q.svg", 5), ("splitover lines", "f.md", 7)];
    let link = |(text, target, line): (&str, &str, usize)| Link { text: text.into(), target: target.into(), line };
    let expected = expected.map(link);
    assert_eq!(links(text), expected);
}
