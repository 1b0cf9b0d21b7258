//! What holds for everything that the commands for people say of an application: `check`, `explain`, `graph`.
//!
//! Knows: the public surface of the library. Must not know: where an application comes from, files, arguments.

use crate::compilation::budget;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use streams_compiler::error::{Error, Problem};
use streams_compiler::explain::explain;
use streams_compiler::plan::{self, Compiled, Fate, FusionOption, Request, Source};
use streams_graph::{Drawing, DrawingLimits, NodeKind, Widths};

/// Operators of an application that is drawn without folding.
const SMALL: usize = 80;

/// What is done with an input where doing everything would take too long. Follows from the input alone.
#[derive(Clone, Copy)]
pub(crate) struct Choice(u64);

impl Choice {
    pub(crate) fn of(input: &[u8]) -> Self {
        Self(
            input
                .iter()
                .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)),
        )
    }

    /// The next choice, below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let chosen = (self.0 >> 32) % end;
        self.0 = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        chosen
    }
}

/// A check says first what a submission says, leaves nothing of it out, and finds nothing wrong where a submission
/// finds nothing.
pub(crate) fn checked(document: &[u8], request: &Arc<Request>, submitted: Result<&Compiled, &Error>) {
    let checked = plan::check(document, request, &budget()).expect("only the budget ends a check");
    match submitted {
        Ok(job) => {
            assert_eq!(checked.problems, [], "a check of what can be submitted");
            let compiled = checked.compiled.expect("a check without problems has the job");
            assert_eq!(compiled.plan(), job.plan(), "a check compiles another job");
            assert_eq!(checked.warnings, job.plan().warnings);
        }
        Err(error) => {
            assert!(checked.compiled.is_none(), "a check has the job of what is refused: {error}");
            assert_eq!(checked.problems.first(), error.problems().first(), "what a check says first");
            let left_out: Vec<&Problem> =
                error.problems().iter().filter(|problem| !checked.problems.contains(problem)).collect();
            assert!(left_out.is_empty(), "a check leaves out {left_out:?}");
            let place = |problem: &Problem| problem.place.is_none_or(|place| place.line > 0 && place.column > 0);
            assert!(checked.problems.iter().all(place), "{:?}", checked.problems);
        }
    }
}

/// The same with a job that is at fault itself.
pub(crate) fn checked_with_a_fault(document: &[u8], request: &Request, choice: &mut Choice) {
    let mut request = request.clone();
    match choice.below(4) {
        0 => request.fusion = FusionOption::Manual(0),
        1 => request.submission_values.clear(),
        2 => request.widths.push(("*".to_owned(), 0)),
        _ => request.submission_values.values_mut().for_each(|value| "nonsense".clone_into(value)),
    }
    let request = Arc::new(request);
    let submitted = request.check().and_then(|()| {
        let source = Source::parse(document, &budget())?;
        plan::submit(&source, &request, &budget())
    });
    checked(document, &request, submitted.as_ref());
}

/// Explains a job; `prior` is the one that a resize made it from.
pub(crate) fn explained(now: &Compiled, prior: Option<&Compiled>) {
    let explain = || explain(now, prior, &budget()).expect("a compiled job can be explained");
    let (account, text) = (explain(), explain().to_string());
    assert_eq!(text, account.to_string(), "the same job was explained in two ways");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");

    let mut ids: Vec<u64> = account.processing_elements.iter().flat_map(|group| &group.ids).copied().collect();
    ids.sort_unstable();
    assert!(ids.iter().eq(now.plan().elements.iter().map(|element| &element.id)), "every PE in one group: {ids:?}");
    let operators: usize = account.processing_elements.iter().map(|group| group.ids.len() * group.operators_each).sum();
    assert_eq!((operators, operators), (account.totals.operators, now.topology().operators.len()));
    let bytes: u64 = account.processing_elements.iter().map(|group| group.aadl_bytes).sum();
    assert_eq!(bytes, account.totals.aadl_bytes);
    let mut removed: Vec<u64> = account.removed.iter().flat_map(|removed| &removed.ids).copied().collect();
    removed.sort_unstable();
    let change = now.plan().change.as_ref();
    assert!(removed.iter().eq(change.iter().flat_map(|change| &change.removed).map(|removed| &removed.id)));
    for group in &account.processing_elements {
        let observable = group.changes.iter().any(|change| change.observable);
        let compared = prior.is_some() && !group.not_compared;
        assert!(
            match group.fate {
                None => change.is_none() && group.changes.is_empty(),
                Some(Fate::Kept | Fate::Added) => change.is_some() && group.changes.is_empty(),
                Some(Fate::Restarted) => observable || !compared,
                Some(Fate::KeptUnobservable) => !observable && (group.change_count > 0 || !compared),
            },
            "{group:?}"
        );
    }
}

/// Draws a job in one of the ways that there are; `before` is the job that a resize made it from.
pub(crate) fn drawn(now: &Compiled, before: Option<&Compiled>, choice: &mut Choice) {
    let topology = now.topology();
    let all = topology.operators.len() + before.map_or(0, |before| before.topology().operators.len());
    let small = all <= SMALL;
    let limits = match choice.below(3) {
        0 => DrawingLimits { boxes: 2 + choice.below(20) as usize, edges: 1 + choice.below(20) as usize },
        1 if small => DrawingLimits::of_boxes(usize::MAX),
        _ => DrawingLimits::default(),
    };
    let regions = before.map(|before| before.topology().regions.as_slice()).unwrap_or_default();
    let view = choice.below(3);
    let draw = || {
        let drawing = match view {
            0 => streams_graph::logical(
                &topology.application,
                Widths { before: regions, now: &topology.regions },
                limits,
                &budget(),
            ),
            1 => streams_graph::physical(now, before, limits, &budget()),
            _ => streams_graph::fused(now, before, limits, &budget()),
        };
        drawing.expect("only the budget ends a drawing")
    };
    let drawing = draw();
    if view > 0 && limits.boxes == usize::MAX {
        let operators = |compiled: &Compiled| -> Vec<u32> {
            compiled.topology().operators.values().map(|operator| operator.index).collect()
        };
        let expected: BTreeSet<u32> = before.into_iter().chain([now]).flat_map(operators).collect();
        let nodes = drawing.nodes.values().filter(|node| node.kind == NodeKind::Operator).count();
        assert_eq!(nodes, expected.len(), "a node for each operator");
    }
    written(&drawing, limits, &draw());
}

/// A drawing keeps to its limits, and all three texts are well-formed.
fn written(drawing: &Drawing, limits: DrawingLimits, again: &Drawing) {
    let boxes = drawing.nodes.len() + drawing.clusters.len();
    assert!(boxes <= limits.boxes, "{boxes} boxes, at most {}", limits.boxes);
    let edges = drawing.edges.len();
    assert!(edges <= limits.edges || drawing.nodes.len() <= 2, "{edges} edges, at most {}", limits.edges);

    let svg = drawing.to_svg();
    assert_eq!(svg, again.to_svg(), "the same job was drawn in two ways");
    no_boxes_overlap(&svg);
    let dot = drawing.to_dot();
    assert_eq!(dot, again.to_dot(), "the same job was drawn in two ways");
    assert!(dot.ends_with("}\n") && dot.lines().all(has_closed_quotes), "{dot}");
    let mermaid = drawing.to_mermaid();
    assert_eq!(mermaid, again.to_mermaid(), "the same job was drawn in two ways");
    let mut lines = mermaid.lines().filter(|line| !line.starts_with("%%"));
    assert!(lines.all(|line| matches!(line.matches('"').count(), 0 | 2)), "{mermaid}");
}

/// Every quote that opens on a line of DOT closes on it, before the next attribute.
fn has_closed_quotes(line: &str) -> bool {
    let (mut open, mut escaped, mut last) = (false, false, ' ');
    for character in line.chars() {
        if character == '"' && !escaped {
            if !open && !matches!(last, ' ' | '=') {
                return false;
            }
            open = !open;
        } else if !open && last == '"' && !matches!(character, ' ' | ',' | ';' | ']' | ':') {
            return false;
        }
        escaped = character == '\\' && !escaped;
        last = character;
    }
    !open
}

fn no_boxes_overlap(svg: &str) {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("not well-formed: {error}\n{svg}"));
    let groups = document.descendants().filter(|group| group.attribute("id").is_some_and(|id| id.starts_with('n')));
    let boxes: Vec<[Range<f64>; 2]> = groups
        .filter_map(|group| group.children().find(|child| child.has_tag_name("rect")))
        .map(|rect| {
            let number = |name| -> f64 { rect.attribute(name).and_then(|text| text.parse().ok()).expect(name) };
            [("x", "width"), ("y", "height")].map(|(from, size)| number(from)..number(from) + number(size))
        })
        .collect();
    for (at, one) in boxes.iter().enumerate() {
        for other in &boxes[..at] {
            let apart = one.iter().zip(other).any(|(one, other)| one.end <= other.start || other.end <= one.start);
            assert!(apart, "boxes at {one:?} and {other:?}\n{svg}");
        }
    }
}
