//! Placement, environment and other properties that a PE takes from its operators.

use super::super::{Compiled, FusionOption, JobState, Policy, resize, submit};
use super::{request, source, submitted};
use crate::budget::{Budget, Limits};
use crate::error::Stage;
use crate::fuser::Cpus;
use streams_test_support::application::Sketch;

const TOGETHER: &str = r#"<partitions><coLocation colocId="x"/></partitions>"#;

/// A source, and two operators in one PE.
fn pair() -> Sketch {
    let row = Sketch::row(&["S", "A", "B"]).pool(1, "Gpus", &["gpu"]);
    row.of("A").with(TOGETHER).of("B").with(TOGETHER)
}

fn host(name: &str) -> String {
    format!(r#"<hostLocation hostname="{name}"/>"#)
}

fn variables(variables: &str) -> String {
    format!("<envVars>{variables}</envVars>")
}

fn variable(name: &str, value: &str) -> String {
    format!(r#"<envVar name="{name}" value="{value}"/>"#)
}

#[test]
fn isolation_labels_have_a_limit() {
    let isolated = Sketch::row(&["A", "B", "C", "D"]).adl().replace("<resources>", "<resources isolation='true'>");
    let source = super::Source::parse(isolated.as_bytes(), &Budget::default()).unwrap();
    for (limit, expected) in [(16, None), (15, Some("4 isolated operators in 4 PEs are too many"))] {
        let budget = Budget::with_limits(Limits { isolation_labels: limit, ..Limits::default() });
        let result = submit(&source, &request(FusionOption::Legacy), &budget);
        let problem = result.as_ref().err().map(|error| (error.problems()[0].stage, error.to_string()));
        assert_eq!(problem, expected.map(|message| (Stage::HostIsolation, message.to_owned())));
    }
}

/// What PEs share in the application, a plan has of each of them.
#[test]
fn texts_of_a_plan_have_a_limit() {
    // With 600 channels: texts of 2,400 bytes make more than a MiB, of 100 bytes they do not.
    let row = |length: usize| (Sketch::row(&["S", "P"]).parallel("P", 600).of("P"), "x".repeat(length));
    let of_channels = |make: fn(Sketch, String) -> Sketch| {
        [2_400, 100].map(|length| {
            let (row, text) = row(length);
            // The documents are far smaller than that; a plan may have a 32nd part of it.
            let budget = Budget::with_limits(Limits { aadl_bytes: 32 << 20, ..Limits::default() });
            let result = submit(&source(&make(row, text)), &request(FusionOption::Legacy), &budget);
            result.err().map(|error| (error.problems()[0].stage, error.to_string()))
        })
    };
    let cases: [(&str, fn(Sketch, String) -> Sketch); 5] = [
        ("environment", |row, text| row.with(&variables(&variable("X", &text)))),
        ("host", |row, text| row.resources(&host(&text))),
        ("co-location", |row, text| row.resources(&format!("<coLocation colocId='{text}'/>"))),
        ("ex-location", |row, text| row.resources(&format!("<exLocation exlocId='{text}'/>"))),
        ("export", |row, text| {
            // The port of the source is split into all channels, and each of its PE ports has the export.
            let property =
                format!("<properties><property name='p' type='rstring'><value>{text}</value></property></properties>");
            row.export("E", &property, "").chain(&["S", "E"])
        }),
    ];
    for (what, make) in cases {
        let [refused, accepted] = of_channels(make);
        let (stage, message) = refused.expect(what);
        assert_eq!(stage, Stage::Topology, "{what}: {message}");
        assert!(message.contains("more than 1048576 bytes"), "{what}: {message}");
        assert_eq!(accepted, None, "{what}");
    }
}

/// Whether a resize is refused does not depend on what is known of the job already.
#[test]
fn texts_of_pes_that_a_resize_keeps_count() {
    let sketch =
        Sketch::row(&["S", "P"]).parallel("P", 400).of("P").with(&variables(&variable("X", &"x".repeat(2_400))));
    let budget = Budget::with_limits(Limits { aadl_bytes: 32 << 20, ..Limits::default() });
    let job = submit(&source(&sketch), &request(FusionOption::Legacy), &budget).unwrap();
    let wider = |width| resize(&job, &[("P".to_owned(), width)], Policy::Sticky, &JobState::default(), &budget);
    assert!(wider(401).is_ok());
    let error = wider(450).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("more than 1048576 bytes"), "{error}");
}

#[test]
fn isolation_labels_may_not_be_long() {
    let name = "n".repeat(4_096);
    let isolated = Sketch::new().op(&name, 0, 0).parallel(&name, 32);
    let isolated = isolated.adl().replace("<resources>", "<resources isolation='true'>");
    let source = super::Source::parse(isolated.as_bytes(), &Budget::default()).unwrap();
    // 128 KiB of names, in each of 32 PEs.
    for (aadl_bytes, expected) in [(64 << 20, Some(Stage::HostIsolation)), (256 << 20, None)] {
        let budget = Budget::with_limits(Limits { aadl_bytes, ..Limits::default() });
        let result = submit(&source, &request(FusionOption::Legacy), &budget);
        assert_eq!(result.err().map(|error| error.problems()[0].stage), expected);
    }
}

#[test]
fn one_host_and_one_pool_per_element() {
    let stage = |a: &str, b: &str| {
        let sketch = pair().of("A").resources(a).of("B").resources(b);
        match submit(&source(&sketch), &request(FusionOption::Legacy), &Budget::default()) {
            Ok(_) => None,
            Err(error) => Some((error.problems()[0].stage, error.to_string())),
        }
    };
    let default = r#"<poolLocation poolIndex="0"/>"#;
    let gpus = r#"<poolLocation poolIndex="1"/>"#;
    let first = r#"<poolLocation poolIndex="1" inpoolIndex="0"/>"#;
    assert_eq!(stage(&host("h1"), &host("h1")), None);
    assert_eq!(stage(&host("h1"), default), None);
    assert_eq!(stage(default, gpus), None);
    assert_eq!(stage(gpus, gpus), None);
    let (at, message) = stage(&host("h1"), &host("h2")).unwrap();
    assert_eq!(at, Stage::HostPlacement);
    assert!(message.contains('A') && message.contains('B') && message.contains("PE 1"), "{message}");
    assert_eq!(stage(gpus, first).map(|(at, _)| at), Some(Stage::HostPoolLocation));
}

#[test]
fn placement_of_an_element() {
    let a = r#"<hostLocation hostname="h"/><coLocation colocId="c2"/><coLocation colocId="c1"/>"#;
    let b = r#"<exLocation exlocId="e"/><coLocation colocId="c1"/>"#;
    let sketch = pair().of("A").resources(a).of("B").resources(b);
    let job = submitted(&sketch, FusionOption::Legacy);
    let placement = &job.plan().element(1).unwrap().placement;
    assert_eq!(placement.host.as_deref(), Some("h"));
    assert_eq!(placement.co_locations, ["c1", "c2"]);
    assert_eq!(placement.ex_locations, ["e"]);
    assert_eq!(placement.pool, None);
}

#[test]
fn pools_may_be_numbered_with_gaps() {
    let sketch = Sketch::new().pool(5, "Pool", &["t"]).op("P", 0, 0).resources("<poolLocation poolIndex='5'/>");
    let sketch = sketch.parallel_by("P", "<constantWidth>2</constantWidth>", "Hash", "<replicateHostTag name='t'/>");
    let pools = |job: &Compiled| -> Vec<u64> {
        job.plan().elements.iter().filter_map(|element| Some(element.placement.pool?.pool)).collect()
    };
    let job = submitted(&sketch, FusionOption::Legacy);
    assert_eq!(pools(&job), [2, 3]);
    let widths = [("P".to_owned(), 4)];
    let wider = resize(&job, &widths, Policy::Sticky, &JobState::default(), &Budget::default()).unwrap();
    assert_eq!(pools(&wider), [2, 3, 4, 6]);
}

#[test]
fn isolated_operators_are_named_to_everybody_else() {
    let resources = "<resources><poolLocation poolIndex='0'/></resources><runtimeConstants/><sharedObject class='A'>";
    let isolated = resources.replace("<resources>", "<resources isolation='true'>");
    let document = Sketch::row(&["S", "A", "B"]).adl().replace(resources, &isolated);
    let source = super::Source::parse(document.as_bytes(), &Budget::default()).unwrap();
    let job = submit(&source, &request(FusionOption::Legacy), &Budget::default()).unwrap();
    let plan = job.plan();
    assert_eq!(plan.element(1).unwrap().placement.isolation.as_deref(), Some("A"));
    assert_eq!(plan.isolation_labels(0).collect::<Vec<_>>(), ["A"]);
    assert_eq!(plan.isolation_labels(1).count(), 0);
}

#[test]
fn environments_have_to_agree() {
    let compile = |a: &str, b: &str| {
        let sketch = pair().of("A").with(&variables(a)).of("B").with(&variables(b));
        submit(&source(&sketch), &request(FusionOption::Legacy), &Budget::default())
    };
    let job = compile(&variable("X", "1"), &(variable("X", "1") + &variable("Y", "2"))).unwrap();
    let environment = &job.plan().element(1).unwrap().environment;
    assert_eq!(environment.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), [("X", "1"), ("Y", "2")]);
    let error = compile(&variable("X", "1"), &variable("X", "2")).unwrap_err().to_string();
    assert!(error.contains('A') && error.contains('B') && error.contains('X'), "{error}");
}

#[test]
fn the_automatic_number_is_found_once() {
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 4);
    let cpus = Cpus { share: Cpus::DEFAULT_SHARE, free: Some(6_000), request: Some(1_000), ..Cpus::default() };
    let automatic = FusionOption::Automatic { cpus, count: None };
    let job = submitted(&sketch, automatic);
    let found = job.plan().automatic.expect("it was found now");
    assert_eq!(job.plan().elements.len() as u32, found.count);
    let widths = [("P".to_owned(), 9)];
    let policy = Policy::Rebalance;
    let after = resize(&job, &widths, policy, &Default::default(), &Budget::default()).unwrap();
    assert_eq!(after.plan().automatic, None);
    assert_eq!(after.layout().automatic_count, Some(found.count));
    assert_eq!(after.plan().elements.len() as u32, found.count);
}

/// All operators of the PE are in the outer region, and each but the first in one of its own besides: more regions than
/// are near.
#[test]
fn a_region_is_found_again_behind_many_others() {
    let names: Vec<String> = (0..20).map(|number| format!("C.P{number}")).collect();
    let sketch = Sketch::new().composite("C", 0, 0).parallel("C", 1).op("C.A", 0, 0);
    let sketch = names.iter().fold(sketch, |sketch, name| sketch.op(name, 0, 0).parallel(name, 1));
    let job = submitted(&sketch, FusionOption::Manual(1));
    assert_eq!(job.plan().elements.len(), 1);
    for planned in &job.plan().regions {
        assert_eq!(planned.channels_have_own_pes, planned.region.name == "C", "{}", planned.region.name);
    }
}
