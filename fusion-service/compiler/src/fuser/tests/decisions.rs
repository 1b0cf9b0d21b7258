//! The constraints that decided a PE.

use super::manual;
use super::sample::{Sample, channel};
use crate::budget::Budget;
use crate::fuser::{Cause, Effect, Fusion, FusionType, Graph, Origin, decisions, fuse};

/// PE by PE: `together coLocation a x2; apart ...`.
fn decided(sample: &Sample, fusion: Fusion) -> Vec<String> {
    let graph = sample.graph();
    let partition = fuse(&graph, &fusion, &Budget::default()).unwrap();
    let decisions = decisions(&graph, &fusion, &partition, &Budget::default()).unwrap();
    let text = |decision: &crate::fuser::Decision| {
        let effect = match decision.effect {
            Effect::Together => "together",
            Effect::Alone => "alone",
            Effect::Apart => "apart",
        };
        format!("{effect} {} x{}", cause(&graph, decision.cause), decision.members)
    };
    decisions.of.values().map(|of| of.iter().map(text).collect::<Vec<_>>().join("; ")).collect()
}

fn cause(graph: &Graph, cause: Cause) -> String {
    match cause {
        Cause::Constraint(Origin::CoLocation(id)) => format!("co-location {}", graph.text(id)),
        Cause::Constraint(Origin::ExLocation(id)) => format!("ex-location {}", graph.text(id)),
        Cause::Constraint(Origin::SoftSegregation(_)) => "consistent region".to_owned(),
        Cause::Constraint(Origin::Provisional(_)) => "jvm".to_owned(),
        Cause::Constraint(Origin::Channels(region)) => format!("region {region}"),
        Cause::Constraint(origin) => format!("{origin:?}"),
        Cause::HostExLocation(id) => format!("host ex-location {}", graph.text(id)),
        other => format!("{other:?}"),
    }
}

fn names(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn legacy_fusion_is_decided_by_what_must_be_together() {
    let sample = Sample::chain(4).with([0, 2], |o| o.co_locations = names(&["a"])).with([1], |o| o.isolated = true);
    assert_eq!(decided(&sample, Fusion::Legacy), ["together co-location a x2", "", ""]);
}

#[test]
fn what_is_alone_and_what_is_apart() {
    let sample = Sample::chain(6)
        .with([0], |o| o.isolated = true)
        .with([1, 2], |o| o.ex_locations = names(&["x"]))
        .with([4, 5], |o| o.region = Some("r".to_owned()));
    assert_eq!(
        decided(&sample, manual(1)),
        ["alone Isolation x1", "apart ex-location x x1", "apart ex-location x x1", "apart consistent region x2"]
    );
}

#[test]
fn what_is_satisfied_by_itself_decides_nothing() {
    let all = Sample::chain(3).with(0..3, |o| {
        o.region = Some("r".to_owned());
        o.jvm = Some("-Xmx1g".to_owned());
        o.restartable = false;
    });
    assert_eq!(decided(&all, manual(1)), [""]);
    let single = Sample::chain(3).with([1], |o| {
        o.ex_locations = names(&["x"]);
        o.host_ex_locations = names(&["h"]);
    });
    assert_eq!(decided(&single, manual(2)), ["", ""]);
}

/// All operators of the unit are in the region, and still it is alone: the rule counts values (rule fusion-13).
#[test]
fn units_of_a_consistent_region_are_alone() {
    let sample = Sample::chain(3).with([0, 1], |o| {
        o.co_locations = names(&["a"]);
        o.region = Some("r".to_owned());
    });
    assert_eq!(decided(&sample, manual(1)), ["together co-location a x2; alone consistent region x2", ""]);
}

#[test]
fn channels_decide_where_the_fusion_type_says_so() {
    let sample = Sample::chain(4)
        .with([1], |o| o.channels = vec![channel(7, 0)])
        .with([2], |o| o.channels = vec![channel(7, 1)]);
    let isolation = Fusion::manual(1, FusionType::ChannelIsolation).unwrap();
    assert_eq!(decided(&sample, isolation), ["", "apart region 7 x1", "apart region 7 x1"]);
    assert_eq!(decided(&sample, manual(1)), [""]);
}

#[test]
fn hosts() {
    let pools = [(0, false, &[][..]), (1, true, &[][..])];
    let sample = Sample::chain(3).with_pools(&pools).with([1], |o| o.pool = Some((1, None)));
    assert_eq!(decided(&sample, manual(1)), ["", "apart Placement x1"]);
    let sample = Sample::chain(3).with([0, 2], |o| o.host_ex_locations = names(&["h"]));
    assert_eq!(decided(&sample, manual(1)), ["apart host ex-location h x1", "apart host ex-location h x1"]);
}
