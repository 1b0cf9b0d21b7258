//! Pictures of everything in the conformance corpus: what all of them keep to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::plan::{self, Compiled, FusionOption, JobState, Policy, Request, Source};
use streams_graph::{ClusterKind, Drawing, DrawingLimits, NodeKind, Widths};
use streams_test_support::corpus;

/// A job of the corpus, and what each of its resizes made of it.
fn compile(case: &Path) -> Option<(Source, Vec<Compiled>)> {
    let budget = Budget::default();
    let source = Source::parse(&std::fs::read(case.join("app.adl")).ok()?, &budget).ok()?;
    let job: serde_json::Value = serde_json::from_slice(&std::fs::read(case.join("request.json")).ok()?).ok()?;
    let widths = |value: &serde_json::Value| -> Vec<(String, i128)> {
        let entries = value.as_object().into_iter().flatten();
        entries.filter_map(|(name, width)| Some((name.clone(), width.as_i64()?.into()))).collect()
    };
    let values: BTreeMap<String, String> = (job["submissionTimeValues"].as_object().into_iter().flatten())
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let request = Request {
        job_name: "job".to_owned(),
        fusion: job["fusion"]["manual"].as_i64().map_or(FusionOption::Legacy, |n| FusionOption::Manual(n.into())),
        submission_values: values,
        widths: widths(&job["parallelRegions"]),
        ..Request::default()
    };
    let mut steps = vec![plan::submit(&source, &Arc::new(request), &budget).ok()?];
    for resize in job["resizes"].as_array().into_iter().flatten() {
        let step = (resize["region"].as_str()?.to_owned(), resize["width"].as_i64()?.into());
        match plan::resize(steps.last()?, &[step], Policy::Sticky, &JobState::default(), &budget) {
            Ok(next) => steps.push(next),
            Err(_) => continue,
        }
    }
    Some((source, steps))
}

/// Every operator is a node of its own, in exactly one cluster of a PE: the one of the plan.
fn every_operator_in_its_pe(drawing: &Drawing, now: &Compiled, before: Option<&Compiled>) {
    let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
    for compiled in before.into_iter().chain([now]) {
        for element in &compiled.plan().elements {
            expected.extend(element.operator_indexes.iter().map(|index| (*index, element.id)));
        }
    }
    let mut found = 0;
    for node in drawing.nodes.values().filter(|node| node.kind == NodeKind::Operator) {
        let around: Vec<&str> = (drawing.around(node.parent))
            .filter(|&cluster| drawing.clusters[cluster].kind == ClusterKind::Element)
            .map(|cluster| drawing.clusters[cluster].label.as_str())
            .collect();
        let index =
            node.tooltip.iter().find_map(|line| line.strip_prefix("operator ")?.split(',').next()?.parse().ok());
        assert_eq!(around, [format!("PE {}", expected[&index.unwrap()])], "{:?}", node.tooltip);
        found += 1;
    }
    assert_eq!(found, expected.len());
}

/// Boxes of nodes as the SVG has them do not overlap.
fn no_boxes_overlap(svg: &str) {
    let document = roxmltree::Document::parse(svg).unwrap();
    let boxes: Vec<[f64; 4]> = document
        .descendants()
        .filter(|g| g.attribute("id").is_some_and(|id| id.starts_with('n')))
        .filter_map(|g| g.children().find(|child| child.has_tag_name("rect")))
        .map(|rect| ["x", "y", "width", "height"].map(|name| rect.attribute(name).unwrap().parse().unwrap()))
        .collect();
    for (at, [x, y, width, height]) in boxes.iter().enumerate() {
        for [other_x, other_y, other_width, other_height] in &boxes[..at] {
            let apart = x + width <= *other_x
                || other_x + other_width <= *x
                || y + height <= *other_y
                || other_y + other_height <= *y;
            assert!(apart, "boxes at {x},{y} and {other_x},{other_y}");
        }
    }
}

#[test]
fn the_corpus_can_be_drawn() {
    let Some(archive) = corpus::cases() else {
        eprintln!("no corpus: not drawn");
        return;
    };
    let cases = tempfile::tempdir().unwrap();
    let (budget, mut drawn) = (Budget::default(), 0);
    for folder in archive.unpack(cases.path()) {
        let Some((source, steps)) = compile(&folder) else { continue };
        for (at, now) in steps.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| steps.get(at));
            let widths = Widths { before: &[], now: &now.topology().regions };
            let default = DrawingLimits::default();
            let views = [
                streams_graph::logical(&source.application, widths, default, &budget).unwrap(),
                streams_graph::physical(now, before, default, &budget).unwrap(),
                streams_graph::fused(now, before, default, &budget).unwrap(),
            ];
            for drawing in views {
                assert!(drawing.nodes.len() + drawing.clusters.len() <= default.boxes, "{}", folder.display());
                assert!(drawing.edges.len() <= default.edges, "{}", folder.display());
                no_boxes_overlap(&drawing.to_svg());
                assert!(drawing.to_dot().ends_with("}\n"));
                assert!(drawing.to_mermaid().len() < 50_000, "{}: Mermaid refuses longer texts", folder.display());
                drawn += 1;
            }
            every_operator_in_its_pe(
                &streams_graph::fused(now, before, DrawingLimits::of_boxes(usize::MAX), &budget).unwrap(),
                now,
                before,
            );
        }
    }
    assert!(drawn > 500, "{drawn} pictures");
}
