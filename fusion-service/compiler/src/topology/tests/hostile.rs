//! Documents that would need too much memory or whose links form circles. The expansion refuses them quickly and
//! without using that memory.

use super::sketch::Expand;
use crate::budget::{Budget, Limits};
use crate::error::{Error, Stage};
use crate::topology::Topology;
use std::time::{Duration, Instant};
use streams_test_support::application::Sketch;

#[track_caller]
fn refused(what: &str, sketch: &Sketch, code: Option<&str>) {
    let begun = Instant::now();
    let error = sketch.expand().map(|topology| topology.operators.len()).expect_err(what);
    let first = error.problems().first().unwrap_or_else(|| panic!("{what}: {error}"));
    assert_eq!((first.stage, first.code), (Stage::Topology, code), "{what}: {first}");
    // Without a bound it would take hours.
    assert!(begun.elapsed() < Duration::from_secs(60), "{what} took {:?}", begun.elapsed());
}

/// Composites within each other, all parallel.
fn tower(depth: usize, width: u32, inside: bool) -> Sketch {
    let mut sketch = Sketch::new();
    let mut name = String::new();
    for level in 0..depth {
        name = if level == 0 { "C".to_owned() } else { format!("{name}.C") };
        sketch = sketch.composite(&name, 0, 0).parallel(&name, width);
    }
    if inside { sketch.op(&format!("{name}.A"), 0, 0) } else { sketch }
}

#[test]
fn products_of_widths() {
    refused("operators", &tower(3, 100, true), None);
    refused("operators beyond any integer", &tower(100, 10_000, true), None);
    refused("channels without operators", &tower(100, 10_000, false), None);
    let all_to_all =
        Sketch::new().op("A", 0, 1).op("B", 1, 0).chain(&["A", "B"]).parallel("A", 10_000).parallel("B", 10_000);
    refused("connections", &all_to_all, None);
}

/// Refused within these limits, with a message that has this text; accepted within the other ones.
#[track_caller]
fn bounded(what: &str, sketch: &Sketch, refused: Limits, message: &str, accepted: Limits) {
    let error = sketch.expand_within(&Budget::with_limits(refused)).map(|_| ()).expect_err(what);
    assert_eq!(error.problems().first().map(|problem| problem.stage), Some(Stage::Topology), "{what}: {error}");
    assert!(error.to_string().contains(message), "{what}: {error}");
    if let Err(error) = sketch.expand_within(&Budget::with_limits(accepted)) {
        panic!("{what}: {error}");
    }
}

/// In each of 10 channels an operator feeds 4 regions of 25 channels, in which nothing is connected.
fn splitters_to_nowhere() -> Sketch {
    let mut sketch = Sketch::new().composite("C", 0, 0).op("C.S", 0, 1).parallel("C", 10);
    for number in 0..4 {
        let name = format!("C.E{number}");
        sketch = sketch.composite(&name, 1, 0).parallel(&name, 25).connect("C.S:0", &format!("{name}:0"));
    }
    sketch
}

#[test]
fn whoever_has_most_is_named() {
    let row = || Sketch::row(&["S", "P", "T"]).parallel("P", 4);
    let operators = |operators| Limits { operators, ..Limits::default() };
    // T has most of one port, S of both of its own.
    let ports = Sketch::new().op("T", 0, 1).op("Q", 1, 0).op("S", 0, 2).op("P", 2, 0).connect("T:0", "Q:0");
    let ports = ports.connect("S:0", "P:0").connect("S:1", "P:1").parallel("Q", 5).parallel("P", 3);
    let connections = |connections| Limits { connections, ..Limits::default() };
    for (what, sketch, limits, expected) in [
        ("operators", row(), operators(5), "6 operators at these widths, 4 of them of P; at most 5 are"),
        ("ports", row().op("Q", 0, 199), operators(7), "209 ports of operators at these widths, 199 of them of Q;"),
        (
            "connections",
            row(),
            connections(7),
            "8 connections at these widths, 4 of them of S; at most 7 are supported",
        ),
        ("several ports", ports, connections(10), "11 connections at these widths, 6 of them of S;"),
    ] {
        let error = sketch.expand_within(&Budget::with_limits(limits)).unwrap_err();
        let problem = &error.problems()[0];
        assert!(problem.message.contains(expected) && problem.place.is_some(), "{what}: {error}");
    }
}

#[test]
fn channels_without_connections() {
    let connections = |connections| Limits { connections, ..Limits::default() };
    bounded("channels", &splitters_to_nowhere(), connections(499), "1000 channels of splitters", connections(500));
    let slots = |connections| Limits { connections, ..Limits::default() }.channels();
    assert_eq!((slots(7), slots(8_000), slots(u64::MAX)), (14, 9_000, 1 << 31), "positions have 32 bits");
}

#[test]
fn splitters_below_each_other() {
    // A port feeds the outermost of 100 regions of one channel each. All 100 splitters are on it.
    let mut sketch = Sketch::new().op("S", 0, 1);
    let (mut name, mut last) = (String::new(), "S:0".to_owned());
    for level in 0..100 {
        name = if level == 0 { "C".to_owned() } else { format!("{name}.C") };
        sketch = sketch.composite(&name, 1, 0).parallel(&name, 1).connect(&last, &format!("{name}:0"));
        last = format!("{name}:0");
    }
    let connections = |connections| Limits { connections, ..Limits::default() };
    bounded("splitters", &sketch, connections(5_049), "5050 splitters", connections(5_050 * 8));
}

fn broadcast(sketch: Sketch, name: &str, width: u32) -> Sketch {
    sketch.parallel_by(name, &format!("<constantWidth>{width}</constantWidth>"), "Broadcast", "")
}

/// The same connection, many times.
fn repeat(sketch: Sketch, times: usize, from: &str, to: &str) -> Sketch {
    (0..times).fold(sketch, |sketch, _| sketch.connect(from, to))
}

#[test]
fn steps_to_ends_that_become_nothing() {
    // In each of 100 channels a stream goes to a sink, and 500 times to a region in which nothing is connected.
    let sketch = Sketch::new().op("O", 0, 1).composite("P", 1, 0).op("P.S", 1, 0).composite("P.R", 1, 0);
    let sketch = sketch.connect("O:0", "P:0").connect("P:0", "P.S:0");
    let sketch = broadcast(repeat(sketch, 500, "P:0", "P.R:0"), "P.R", 1);
    let limits = |connections| Limits { operators: 101, connections, ..Limits::default() };
    let message = "50101 steps from output ports to what they reach";
    bounded("broadcast", &broadcast(sketch.clone(), "P", 100), limits(1_100), message, limits(2_000));
    bounded("splitter", &sketch.parallel("P", 100), limits(1_100), message, limits(2_000));
    // Not even an end is behind the port of a composite in which nothing is connected.
    let nothing = Sketch::new().composite("P", 0, 0).op("P.O", 0, 1).composite("P.N", 1, 0).parallel("P", 100);
    bounded("composite", &repeat(nothing, 500, "P.O:0", "P.N:0"), limits(1_100), "50000 steps", limits(2_000));
    // An Export is made once, however often a port leads to it.
    let exports = Sketch::new().composite("P", 0, 0).op("P.O", 0, 1).export("P.E", "", "").parallel("P", 100);
    let exports = repeat(exports, 500, "P.O:0", "P.E:0");
    bounded("exports", &exports, limits(1_100), "50000 steps", limits(2_000));
}

#[test]
fn what_broadcasts_repeat_needs_no_memory() {
    // 480 MB, if what is in all channels was remembered at once.
    let sketch = Sketch::new().op("O", 0, 1).composite("P", 1, 0).op("P.S", 1, 0).composite("P.R", 1, 0);
    let sketch = sketch.connect("O:0", "P:0").connect("P:0", "P.S:0");
    let sketch = broadcast(broadcast(repeat(sketch, 3_000, "P:0", "P.R:0"), "P.R", 1), "P", 10_000);
    let topology = sketch.expand().unwrap();
    assert_eq!((topology.operators.len(), topology.connections.len()), (10_001, 10_000));
}

#[test]
fn mergers_multiply_on_the_way_upstream() {
    // Nothing feeds the region, so only the way upstream from Q shows that there are 4e8 paths.
    let sketch = Sketch::new().composite("Y", 0, 1).composite("Y.P", 0, 1).parallel("Y.P", 2);
    let sketch = repeat(sketch.composite("X", 1, 0).op("X.Q", 1, 0).connect("X:0", "X.Q:0"), 20_000, "Y.P:0", "Y:0");
    refused("mergers", &repeat(sketch, 20_000, "Y:0", "X:0"), None);
}

#[test]
fn ids_of_locations_of_many_channels() {
    let operators = |operators| Limits { operators, ..Limits::default() };
    let ids = |element: &str| format!("<{element}/>").repeat(5);
    let partition = ids("coLocation colocId='a'") + &ids("exLocation exlocId='b'");
    let hosts = "<poolLocation poolIndex='0'/>".to_owned() + &partition;
    let sketch = Sketch::new().op("A", 0, 0).with(&format!("<partitions>{partition}</partitions>")).resources(&hosts);
    bounded("ids", &sketch.parallel("A", 2), operators(4), "40 ids of locations", operators(5));
}

#[test]
fn regions_without_operators_cost_nothing_at_a_resize() {
    let sketch = tower(2, 10_000, false).composite("C.C.C", 0, 0).parallel("C.C.C", 40).op("A", 0, 0);
    let before = sketch.expand().unwrap();
    let after = sketch.override_width("C", 9_999).expand_again(&before).unwrap();
    let channels = |topology: &Topology| topology.regions.iter().map(|region| region.global_max).max();
    assert_eq!((channels(&before), channels(&after)), (Some(4_000_000_000), Some(3_999_600_000)));
    assert!(after.operators.values().next().unwrap().is(before.operators.values().next().unwrap()));
}

#[test]
fn consistent_regions_pass_broadcasts_into_very_many_channels() {
    let mut sketch = Sketch::new().declare(0, "periodic").op("S", 0, 1).consistent(0, "isStartOfRegion");
    let (mut name, mut last) = (String::new(), "S:0".to_owned());
    for (level, width) in [10_000, 10_000, 40, 1].into_iter().enumerate() {
        name = if level == 0 { "C".to_owned() } else { format!("{name}.C") };
        sketch = broadcast(sketch.composite(&name, 1, 0), &name, width).connect(&last, &format!("{name}:0"));
        last = format!("{name}:0");
    }
    assert_eq!(sketch.expand().unwrap().consistent_regions.len(), 1);
}

#[test]
fn what_consistent_regions_pass_is_counted() {
    let start = "isStartOfRegion";
    let limits = |operators, connections| Limits { operators, connections, ..Limits::default() };
    // In each of 100 channels a region of its own passes 300 splitters that lead to nothing.
    let sketch = Sketch::new().declare(0, "periodic").composite("P", 0, 0).composite("P.R", 1, 0);
    let sketch = repeat(sketch.op("P.A", 0, 1).consistent(0, start).parallel("P", 100), 300, "P.A:0", "P.R:0");
    let message = "more than 1800 splitters and mergers";
    bounded("splitters", &broadcast(sketch, "P.R", 1), limits(100, 1_000), message, limits(100, 1_000_000));
    // In each of 200 channels a region passes a merger and looks at the same 200 mergers behind it.
    let sketch = Sketch::new().declare(0, "periodic").composite("P", 0, 1).composite("P.K", 0, 1).composite("Z", 1, 0);
    let sketch = sketch.op("P.K.A", 0, 1).consistent(0, start).chain(&["P.K.A", "P.K", "P"]);
    let sketch = repeat(sketch.parallel("P", 200).parallel("P.K", 1), 200, "P:0", "Z:0");
    bounded("looks", &sketch, limits(200, 1_000), "more than 67200 steps", limits(200, 10_000));
}

#[test]
fn ports_and_regions_of_many_channels() {
    let operators = |operators| Limits { operators, ..Limits::default() };
    // An operator within the limit may have very many ports, and be in very many regions.
    let ports = Sketch::new().op("A", 20, 13).parallel("A", 2);
    bounded("ports", &ports, operators(4), "66 ports", operators(5));
    let regions = |outputs| {
        let sketch = tower(33, 1, false);
        sketch.op(&format!("{}.A", ["C"; 33].join(".")), 0, outputs)
    };
    bounded("regions", &regions(0), operators(2), "33 parallel regions", operators(3));
    bounded("regions in names", &regions(1), operators(4), "66 parallel regions", operators(5));
}

#[test]
fn long_names_of_many_channels() {
    let aadl_bytes = |aadl_bytes| Limits { aadl_bytes, ..Limits::default() };
    let name = "n".repeat(4_096);
    // 2 MiB of names. All documents together may have eight times as much, or 32 times.
    let operator = Sketch::new().op(&name, 0, 0).parallel(&name, 512);
    bounded("operators", &operator, aadl_bytes(16 << 20), "the names of all operators", aadl_bytes(64 << 20));
    let stream = Sketch::new().op("A", 0, 1).stream(0, &name).parallel("A", 512);
    bounded("streams", &stream, aadl_bytes(16 << 20), "the names of all operators", aadl_bytes(64 << 20));
}

#[test]
fn products_of_paths() {
    // Each composite hands on its stream twice; 40 of them make 2^40 paths.
    let mut sketch = Sketch::new().op("Src", 0, 1).op("Snk", 1, 0);
    let mut last = "Src:0".to_owned();
    for level in 0..40 {
        let name = format!("C{level}");
        sketch = sketch.composite(&name, 1, 2).connect(&last, &format!("{name}:0"));
        if level > 0 {
            sketch = sketch.connect(&format!("C{}:1", level - 1), &format!("{name}:0"));
        }
        sketch = sketch
            .connect(&format!("{name}:0"), &format!("{name}:0"))
            .connect(&format!("{name}:0"), &format!("{name}:1"));
        last = format!("{name}:0");
    }
    refused("paths", &sketch.connect(&last, "Snk:0"), None);
}

#[test]
fn circles_of_composites() {
    let circle = |parallel: bool| {
        let sketch = Sketch::new()
            .op("Src", 0, 1)
            .composite("A", 1, 1)
            .composite("B", 1, 1)
            .connect("A:0", "A:0")
            .connect("B:0", "B:0")
            .connect("Src:0", "A:0")
            .connect("A:0", "B:0")
            .connect("B:0", "A:0");
        if parallel { sketch.parallel("A", 2).parallel("B", 2) } else { sketch }
    };
    refused("composites", &circle(false), Some("CDISR1358E"));
    refused("regions", &circle(true), Some("CDISR1358E"));
}

#[test]
fn a_circle_that_nothing_feeds_is_not_followed() {
    let sketch = Sketch::new().op("Src", 0, 0).composite("A", 1, 1).connect("A:0", "A:0");
    assert!(sketch.expand().is_ok());
}

#[test]
fn nobody_waits_for_a_cancelled_expansion() {
    let budget = Budget::cancelled();
    assert_eq!(tower(1, 2, true).expand_within(&budget).map(|_| ()), Err(Error::Cancelled));
    let budget = Budget { deadline: Some(Instant::now()), ..Budget::default() };
    assert_eq!(tower(1, 2, true).expand_within(&budget).map(|_| ()), Err(Error::DeadlineExceeded));
}

#[test]
fn deep_applications_are_expanded() {
    let topology = tower(240, 1, true).expand().unwrap();
    assert_eq!(topology.operators.values().next().unwrap().channels.len(), 240);
}
