//! Applications and requests that a stage refuses, and which stage it is.

use super::super::{FusionOption, JobState, Policy, Replay, replay, resize, submit};
use super::{request, source, submitted};
use crate::aadl::Writer;
use crate::budget::{Budget, Limits};
use crate::error::{Error, Stage, code};
use crate::plan::Request;
use std::sync::Arc;
use std::time::Instant;
use streams_test_support::application::Sketch;

fn first(error: Error) -> (Stage, Option<&'static str>) {
    let problem = &error.problems()[0];
    (problem.stage, problem.code)
}

#[test]
fn resizes_of_no_region_or_several() {
    let sketch = Sketch::row(&["S", "P1", "P2", "T"]).parallel("P1", 2).parallel("P2", 2);
    let job = submitted(&sketch, FusionOption::Legacy);
    for (region, width, expected) in [
        ("Nothing", 2, (Stage::Transfer, Some(code::NO_REGION))),
        ("P*", 2, (Stage::Transfer, Some(code::SEVERAL_REGIONS))),
        ("P-1", 2, (Stage::Topology, None)),
        ("P1", 0, (Stage::Topology, Some(code::WIDTH))),
        ("P1", -4, (Stage::Topology, Some(code::WIDTH))),
        ("P1", i128::from(u64::MAX), (Stage::Topology, None)),
    ] {
        let widths = [(region.to_owned(), width)];
        let error = resize(&job, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap_err();
        assert_eq!(first(error), expected, "{region} {width}");
    }
}

#[test]
fn all_regions_of_a_resize_that_do_not_fit_are_told() {
    let sketch = Sketch::row(&["S", "P1", "P2", "T"]).parallel("P1", 2).parallel("P2", 2);
    let widths = [("Nothing", 1), ("P1", 3), ("P*", 1), ("P+", 1)].map(|(region, width)| (region.to_owned(), width));
    let job = submitted(&sketch, FusionOption::Legacy);
    let error = resize(&job, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap_err();
    let codes: Vec<_> = error.problems().iter().map(|problem| problem.code).collect();
    assert_eq!(codes, [Some(code::NO_REGION), Some(code::SEVERAL_REGIONS), None]);
}

#[test]
fn replays_of_no_region() {
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2);
    let widths = |width| vec![("P".to_owned(), width), ("Unknown".to_owned(), 7)];
    let run = |region: &str, before, after| {
        let input = Replay {
            region: region.to_owned(),
            prior_widths: widths(before),
            current_widths: widths(after),
            previous_elements: [(4, vec!["S".to_owned()]), (9, vec!["P[0]".to_owned(), "No".to_owned()])].into(),
        };
        replay(&source(&sketch), &request(FusionOption::Legacy), &input, &Budget::default())
    };
    assert_eq!(first(run("Q", 2, 3).unwrap_err()), (Stage::Transfer, Some(code::NO_REGION)));
    assert_eq!(first(run("P", 0, 3).unwrap_err()), (Stage::Topology, Some(code::WIDTH)));
    let job = run("P", 2, 3).unwrap();
    let ids: Vec<(u64, &str)> = job.plan().elements.iter().map(|e| (e.id, e.operators[0].as_str())).collect();
    assert_eq!(ids, [(4, "S"), (10, "P[0]"), (11, "T"), (12, "P[1]"), (13, "P[2]")]);
    let removed: Vec<u64> = job.plan().change.as_ref().unwrap().removed.iter().map(|e| e.id).collect();
    assert_eq!(removed, [9]);
}

#[test]
fn impossible_fusion_options() {
    let sketch = Sketch::row(&["S", "T"]);
    for count in [0, -3, i128::from(i64::MIN)] {
        let error = submit(&source(&sketch), &request(FusionOption::Manual(count)), &Budget::default()).unwrap_err();
        assert_eq!(first(error), (Stage::FusionOption, None));
    }
    assert_eq!(submitted(&sketch, FusionOption::Manual(i128::from(u64::MAX))).plan().elements.len(), 2);
}

#[test]
fn consistent_regions_need_their_declaration() {
    let entry = r#"<splAnnotation tag="consistentRegionEntry"><value key="index" type="int32">0</value><value key="isStartOfRegion" type="boolean">true</value></splAnnotation>"#;
    let sketch = Sketch::row(&["S", "T"]).of("S").with(entry);
    let value = |key: &str, text: &str| format!(r#"<value key="{key}" type="rstring">{text}</value>"#);
    let declare = |values: &[(&str, &str)]| {
        let values: String = values.iter().map(|(key, text)| value(key, text)).collect();
        let annotations = format!(r#"<splAnnotation tag="consistentRegion">{values}</splAnnotation>"#);
        submit(&source(&sketch.clone().main(&annotations)), &request(FusionOption::Legacy), &Budget::default())
    };
    let whole = [
        ("index", "0"),
        ("trigger", "periodic"),
        ("period", "2.5"),
        ("drainTimeout", "60.5"),
        ("resetTimeout", "180"),
        ("maxConsecutiveResetAttempts", "5"),
    ];
    let job = declare(&whole).unwrap();
    let region = &job.plan().consistent_regions[0];
    assert_eq!((region.trigger.name(), region.trigger.period()), ("periodic", 2.5));
    assert_eq!((region.drain_timeout, region.reset_timeout, region.max_consecutive_reset_attempts), (60.5, 180.0, 5));
    assert_eq!(region.pe_ids, [0]);
    assert_eq!(job.plan().elements[0].consistent_regions, [0]);

    assert_eq!(first(declare(&whole[..5]).unwrap_err()).0, Stage::ConsistentRegions);
    let mut wrong = whole;
    wrong[5].1 = "many";
    assert_eq!(first(declare(&wrong).unwrap_err()).0, Stage::ConsistentRegions);
}

#[test]
fn texts_that_xml_cannot_hold() {
    let sketch = Sketch::row(&["S", "T"]);
    let request = Request { job_name: "a\u{1}b".to_owned(), ..Request::default() };
    let error = submit(&source(&sketch), &Arc::new(request), &Budget::default()).unwrap_err();
    assert_eq!(first(error.clone()).0, Stage::Aadl);
    assert!(error.to_string().contains("U+0001"), "{error}");
}

#[test]
fn too_much_text_is_refused_early() {
    // 40,000 connections make the most of it. That it is more than twice too much is known before any document is
    // written.
    let sketch = Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 200).parallel("Q", 200);
    let job = submitted(&sketch, FusionOption::Manual(1));
    let all: u64 = job.plan().elements.iter().map(|element| element.bytes).sum();
    for (aadl_bytes, expected) in [(all / 2, Err((Stage::Topology, None))), (all, Ok(()))] {
        let budget = Budget::with_limits(Limits { aadl_bytes, ..Limits::default() });
        let before_any = Writer::new(job.elements(), "job", 0, None, &budget).map(|_| ()).map_err(first);
        assert_eq!(before_any, expected, "{aadl_bytes} of {all} bytes");
        let whole = submit(&source(&sketch), &request(FusionOption::Manual(1)), &budget).map(|_| ()).map_err(first);
        assert_eq!(whole, expected, "{aadl_bytes} of {all} bytes");
    }

    // What cannot be foreseen is noticed while it is written.
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2);
    let request = request(FusionOption::Manual(2));
    let all: u64 = submitted(&sketch, FusionOption::Manual(2)).plan().elements.iter().map(|e| e.bytes).sum();
    for (aadl_bytes, expected) in [(all - 1, Err(Stage::Topology)), (all, Ok(()))] {
        let budget = Budget::with_limits(Limits { aadl_bytes, ..Limits::default() });
        let result = submit(&source(&sketch), &request, &budget).map(|_| ());
        assert_eq!(result.map_err(|error| first(error).0), expected);
    }
}

#[test]
fn nobody_waits_any_more() {
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 50);
    let budget = Budget::cancelled();
    let error = submit(&source(&sketch), &request(FusionOption::Legacy), &budget).unwrap_err();
    assert_eq!(error, Error::Cancelled);
    let budget = Budget { deadline: Some(Instant::now()), ..Budget::default() };
    let error = submit(&source(&sketch), &request(FusionOption::Legacy), &budget).unwrap_err();
    assert_eq!(error, Error::DeadlineExceeded);
}
