//! Placement, environment and other properties that a PE takes from its operators.

use super::super::{FusionOption, submit};
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
    let policy = super::super::Policy::Rebalance;
    let after = super::super::resize(&job, &widths, policy, &Default::default(), &Budget::default()).unwrap();
    assert_eq!(after.plan().automatic, None);
    assert_eq!(after.layout().automatic_count, Some(found.count));
    assert_eq!(after.plan().elements.len() as u32, found.count);
}
