//! Documents that would need too much memory or whose links form circles. The expansion refuses them quickly and
//! without using that memory.

use super::sketch::Expand;
use crate::budget::{Budget, Limits};
use crate::error::{Error, Stage};
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
