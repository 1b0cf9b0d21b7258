//! What holds for every compilation that succeeds.
//!
//! Knows: the public surface of the library. Must not know: where an application comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_compiler::budget::{Budget, Limits};
use streams_compiler::error::Error;
use streams_compiler::plan::{self, Compiled, FusionOption, JobState, Layout, Policy, Request, Source};
use streams_compiler::topology;

/// Small limits, so that an input which is not refused is compiled within milliseconds.
pub(crate) fn budget() -> Budget {
    Budget::with_limits(Limits {
        adl_bytes: 1 << 20,
        depth: 64,
        text_bytes: 64 << 10,
        width: 64,
        operators: 1_000,
        connections: 10_000,
        aadl_bytes: 4 << 20,
        isolation_labels: 10_000,
    })
}

/// The texts of all PEs, by id.
pub(crate) fn texts(compiled: &Compiled) -> BTreeMap<u64, Vec<u8>> {
    let text = |id: u64| {
        let mut text = Vec::new();
        compiled.render(id, &mut text, &budget()).expect("a new plan can be rendered");
        (id, text)
    };
    compiled.plan().elements.iter().map(|element| text(element.id)).collect()
}

/// Submits; if that succeeds, checks the result.
pub(crate) fn submitted(source: &Source, request: &Arc<Request>) -> Option<Compiled> {
    let compiled = plan::submit(source, request, &budget()).ok()?;
    sound(&compiled, source, request);
    Some(compiled)
}

/// Submits; if that succeeds, checks the result. A second time gives the same.
pub(crate) fn submitted_twice(source: &Source, request: &Arc<Request>) -> Result<Compiled, Error> {
    let first = plan::submit(source, request, &budget());
    let second = plan::submit(source, request, &budget());
    match (first, second) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first.plan(), second.plan(), "the same submission gave two plans");
            assert_eq!(texts(&first), sound(&second, source, request), "the same submission gave two texts");
            Ok(first)
        }
        (Err(first), Err(second)) => {
            assert_eq!(first, second, "the same submission failed in two ways");
            Err(first)
        }
        (first, second) => panic!("the same submission gave {first:?} and {second:?}"),
    }
}

/// Checks a plan that was just made, and gives its texts: numbers are unique, the layout says all, texts are
/// well-formed.
pub(crate) fn sound(compiled: &Compiled, source: &Source, request: &Arc<Request>) -> BTreeMap<u64, Vec<u8>> {
    let plan = compiled.plan();
    topology::verify(compiled.topology()).unwrap();
    assert!(plan.elements.is_sorted_by(|a, b| a.id < b.id), "two PEs have one id");
    let placed: Vec<u32> = plan.elements.iter().flat_map(|element| element.operator_indexes.iter().copied()).collect();
    let unique: BTreeSet<u32> = placed.iter().copied().collect();
    let operators: BTreeSet<u32> = compiled.topology().operators.values().map(|operator| operator.index).collect();
    assert_eq!(placed.len(), unique.len(), "an operator is in two PEs");
    assert_eq!(unique, operators, "an operator is in no PE");

    let bytes = compiled.layout().to_bytes();
    let layout = Layout::from_bytes(&bytes, &budget()).expect("a new layout can be read");
    assert_eq!(layout, compiled.layout());
    assert_eq!(layout.to_bytes(), bytes);
    let texts = texts(compiled);
    for element in &plan.elements {
        let text = &texts[&element.id];
        assert_eq!(text.len() as u64, element.bytes, "the length of PE {}", element.id);
        let text = std::str::from_utf8(text).expect("texts are UTF-8");
        let options = roxmltree::ParsingOptions { nodes_limit: u32::MAX, ..Default::default() };
        if let Err(error) = roxmltree::Document::parse_with_options(text, options) {
            panic!("PE {} is not well-formed: {error}\n{text}", element.id);
        }
    }
    let restored = plan::restore(source, request, &bytes, &budget()).expect("a new layout can be restored");
    assert_eq!(restored.layout().to_bytes(), bytes);
    assert_eq!(self::texts(&restored), texts, "another replica writes other texts");
    texts
}

/// Widens a region by one channel and narrows it again. Sticky: the job is then what it was. `look` sees each job, and
/// the one that it was made from.
pub(crate) fn resized(
    before: &Compiled,
    source: &Source,
    request: &Arc<Request>,
    policy: Policy,
    mut look: impl FnMut(&Compiled, &Compiled),
) {
    let Some(region) = before.topology().regions.first() else { return };
    let resize = |prior: &Compiled, width: u32| {
        // An exact name; one that several regions share cannot be resized.
        let widths = [(region.name.clone(), i128::from(width))];
        plan::resize(prior, &widths, policy, &JobState::default(), &budget()).ok()
    };
    let Some(wide) = resize(before, region.width + 1) else { return };
    sound(&wide, source, request);
    look(&wide, before);
    let change = wide.plan().change.as_ref().expect("a resize says what it changes");
    if policy == Policy::Sticky {
        assert!(change.removed.is_empty(), "one more channel removes a PE");
    }
    if let Some(back) = resize(&wide, region.width) {
        let texts = sound(&back, source, request);
        look(&back, &wide);
        if policy == Policy::Sticky {
            assert_eq!(texts, self::texts(before), "there and back again is somewhere else");
        }
    }
}

/// A request that gives every required submission-time value.
pub(crate) fn request(source: &Source, fusion: FusionOption) -> Request {
    let required = source.application.submission_values.iter().filter(|value| value.required);
    Request {
        job_name: "fuzz".to_owned(),
        job_id: 7,
        fusion,
        submission_values: required
            .map(|value| (format!("{}.{}", value.composite, value.name), "2".to_owned()))
            .collect(),
        ..Request::default()
    }
}
