//! Documents that would need too much memory or whose links form circles. The expansion refuses them quickly and
//! without using that memory.

use super::sketch::Expand;
use crate::budget::Budget;
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
