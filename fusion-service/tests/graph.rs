//! Pictures of applications: some byte for byte, and what all pictures of the conformance corpus keep to.
//!
//! `UPDATE_GOLDEN=1` writes the recorded pictures anew; look at them before committing. The corpus is found by
//! `STREAMS_CORPUS`, or beside the checkout; without it the test says so and passes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::plan::{self, Compiled, FusionOption, InUse, Policy, Request, Source};
use streams_graph::{ClusterKind, Drawing, Limits, NodeKind, Widths};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_fusion-service")).current_dir(folder()).arg("graph").args(arguments).output();
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn pictures_are_as_recorded() {
    let orders = ["golden/orders/app.adl", "--value=currencies=EUR"];
    let feeds = ["golden/feeds/app.adl", "--request", "golden/feeds/request.json"];
    // The pictures of the README.
    let sensors = ["../../integration-tests/applications/sensors/demo.sensors.Sensors.adl"];
    let cases: [(&str, Vec<&str>); 9] = [
        ("../../../docs/graphs/sensors-logical.svg", [&sensors[..], &["--view=logical"]].concat()),
        ("../../../docs/graphs/sensors-fused.svg", sensors.to_vec()),
        (
            "../../../docs/graphs/sensors-resize.svg",
            [&sensors[..], &["--fusion=manual:4", "--resize=Clean=4"]].concat(),
        ),
        ("orders-logical.mmd", [&orders[..], &["--view=logical", "--format=mermaid"]].concat()),
        ("orders-resize.svg", [&orders[..], &["--fusion=manual:4", "--resize=Paid=4"]].concat()),
        ("orders-resize.dot", [&orders[..], &["--fusion=manual:4", "--resize=Paid=4", "--format=dot"]].concat()),
        ("feeds-resize.svg", [&feeds[..], &["--format=svg"]].concat()),
        ("feeds-resize.mmd", [&feeds[..], &["--format=mermaid"]].concat()),
        ("feeds-physical.dot", vec![feeds[0], "--view=physical", "-o", "dot"]),
    ];
    for (name, arguments) in cases {
        let (status, text, problems) = run(&arguments);
        assert_eq!((status, problems.as_str()), (0, ""), "{name}");
        let recorded = folder().join("graphs").join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(recorded.parent().unwrap()).unwrap();
            std::fs::write(&recorded, &text).unwrap();
        }
        let recorded = std::fs::read_to_string(&recorded).unwrap();
        assert!(text == recorded, "{name} is not as recorded:\n{text}");
    }
}

#[test]
fn what_is_too_much_is_folded() {
    let feeds = ["golden/feeds/app.adl", "--format=dot", "--width=Lane=20"];
    for (flags, expected) in [
        (&["--max-nodes=1000"][..], &["label=\"channel 19\\l\""][..]),
        (
            &["--max-nodes=60"],
            &["label=\"channel 0\\l\"", "label=\"channels 1–19\\n19 like channel 0\\n", "peripheries=2"],
        ),
        // Channels that are restarted are not like those that are added.
        (
            &["--max-nodes=60", "--resize=Lane=40"],
            &["label=\"~ channels 1–19\\n19 like channel 0\\n", "label=\"+ channels 21–39\\n19 like channel 20\\n"],
        ),
        (&["--max-nodes=60", "--view=physical"], &["label=\"channels 1–19\\n19 like channel 0\\n"]),
        // Not even that: clusters become nodes.
        (&["--max-nodes=4"], &["label=\"channel 0\\n"]),
        (&["--max-nodes=2"], &["label=\"Lane\\nparallel, width 20\\n"]),
    ] {
        let (status, text, problems) = run(&[&feeds[..], flags].concat());
        assert_eq!((status, problems.as_str()), (0, ""), "{flags:?}");
        for expected in expected {
            assert!(text.contains(expected), "{flags:?}: no {expected} in\n{text}");
        }
    }
}

#[test]
fn exit_statuses_and_outputs() {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("app.dot");
    let path = file.to_str().unwrap();
    assert_eq!(run(&["golden/feeds/app.adl", "--out", path]), (0, String::new(), String::new()));
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("digraph"), "the name of the file says the format");

    let (status, text, problems) = run(&["golden/feeds/app.adl", "--width", "Lane=0"]);
    assert_eq!((status, text.as_str()), (3, ""));
    assert!(problems.contains("CDISR1164E"), "{problems}");
    // As written, it can be looked at all the same.
    let (status, text, _) = run(&["golden/feeds/app.adl", "--width", "Lane=0", "--view", "logical"]);
    assert_eq!(status, 0);
    assert!(text.starts_with("<svg"), "{text}");

    let (status, _, problems) = run(&["no-such-file.adl"]);
    assert_eq!((status, problems.lines().count()), (2, 1), "{problems}");
    assert_eq!(run(&["golden/feeds/app.adl", "--max-nodes", "1"]).0, 2);
}

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
        match plan::resize(steps.last()?, &[step], Policy::Sticky, &InUse::default(), &budget) {
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
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let corpus = std::env::var_os("STREAMS_CORPUS").map_or(beside, PathBuf::from);
    let Ok(archive) = std::fs::File::open(corpus.join("cases.tar.zst")) else {
        eprintln!("no corpus: not drawn");
        return;
    };
    let cases = tempfile::tempdir().unwrap();
    let mut decoder = zstd::Decoder::new(archive).unwrap();
    decoder.window_log_max(31).unwrap();
    tar::Archive::new(decoder).unpack(cases.path()).unwrap();
    let mut folders = vec![cases.path().to_owned()];
    let (budget, mut drawn) = (Budget::default(), 0);
    while let Some(folder) = folders.pop() {
        folders.extend(std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).filter(|path| path.is_dir()));
        let Some((source, steps)) = compile(&folder) else { continue };
        for (at, now) in steps.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| steps.get(at));
            let widths = Widths { before: &[], now: &now.topology().regions };
            let default = Limits::default();
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
                &streams_graph::fused(now, before, Limits::of_boxes(usize::MAX), &budget).unwrap(),
                now,
                before,
            );
        }
    }
    assert!(drawn > 500, "{drawn} pictures");
}
