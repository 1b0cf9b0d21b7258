//! Applications for property tests. All of them are valid.

use crate::application::Sketch;
use proptest::collection::vec;
use proptest::prelude::*;

/// Of a region: host pools with this tag are copied for each channel.
const COPIED: &str = "<replicateHostTag name='gpu'/>";

/// An operator or composite of [`rows`].
#[derive(Clone, Debug)]
struct Part {
    width: Option<u32>,
    kind: &'static str,
    /// Decides which part before it feeds it, too.
    chance: usize,
    /// What it contains, if it is a composite.
    inside: Vec<Part>,
}

impl Part {
    /// Which parts before it, in the same composite, feed it: the one before it, and now and then another one.
    fn sources(&self, at: usize) -> impl Iterator<Item = usize> {
        let before = at.checked_sub(1);
        let second = before.filter(|before| self.chance.is_multiple_of(3) && self.chance % at != *before);
        before.into_iter().chain(second.map(|_| self.chance % at))
    }
}

/// Small applications: operators and composites in a row with some second connections, up to two levels of composites,
/// regions anywhere but on the source.
pub fn rows() -> impl Strategy<Value = Sketch> {
    let leaf = || {
        (prop::option::of(1..4_u32), any::<bool>(), any::<u8>()).prop_map(|(width, hash, chance)| {
            let kind = if hash { "Hash" } else { "RoundRobin" };
            Part { width, kind, chance: chance.into(), inside: Vec::new() }
        })
    };
    let around = |(inside, width, chance): (Vec<Part>, Option<u32>, u8)| Part {
        width,
        kind: "RoundRobin",
        chance: chance.into(),
        inside,
    };
    let composite = (vec(leaf(), 1..4), prop::option::of(1..4_u32), any::<u8>()).prop_map(around);
    let nested = (vec(prop_oneof![leaf(), composite], 1..4), prop::option::of(1..3_u32), any::<u8>()).prop_map(around);
    vec(prop_oneof![3 => leaf(), 2 => nested], 2..6).prop_map(|parts| {
        let source = Part { width: None, kind: "RoundRobin", chance: 1, inside: Vec::new() };
        let parts: Vec<Part> = std::iter::once(source).chain(parts).collect();
        add(Sketch::new().pool(1, "Gpus", &["gpu"]), &parts, None)
    })
}

/// Adds the parts of a composite, or of the application. The first takes what the composite gets; the last feeds its
/// output.
fn add(mut sketch: Sketch, parts: &[Part], composite: Option<&str>) -> Sketch {
    let name = |at: usize| composite.map_or(format!("O{at}"), |composite| format!("{composite}.O{at}"));
    let last = parts.len() - 1;
    for (at, part) in parts.iter().enumerate() {
        let inside = composite.is_some();
        sketch = if part.inside.is_empty() {
            sketch.op(&name(at), usize::from(inside || at > 0), usize::from(inside || at < last))
        } else {
            sketch.composite(&name(at), 1, 1)
        };
    }
    for (at, part) in parts.iter().enumerate() {
        for source in part.sources(at) {
            sketch = sketch.connect(&format!("{}:0", name(source)), &format!("{}:0", name(at)));
        }
    }
    if let Some(composite) = composite {
        let end = format!("{composite}:0");
        sketch = sketch.connect(&end, &format!("{}:0", name(0))).connect(&format!("{}:0", name(last)), &end);
    }
    for (at, part) in parts.iter().enumerate() {
        if let Some(width) = part.width {
            sketch =
                sketch.parallel_by(&name(at), &format!("<constantWidth>{width}</constantWidth>"), part.kind, COPIED);
        }
        if !part.inside.is_empty() {
            sketch = add(sketch, &part.inside, Some(&name(at)));
        }
    }
    sketch
}

/// Applications of up to three levels: a source, composites of operators in a row, a sink; composites and operators may
/// be regions, with broadcasts, hashes, fan-out, fan-in and feedback.
pub fn composites() -> impl Strategy<Value = Sketch> {
    let operator = (0..3_usize, 1..4_u32, 0..4_u8, 0..4_usize, any::<bool>());
    let inner = vec(operator, 1..4);
    (vec((inner, 0..4_u32, any::<bool>()), 1..4)).prop_map(|composites| {
        let mut sketch = Sketch::new().op("Src", 0, 1).op("Snk", 1, 1);
        let mut regions: Vec<(String, u32, &str)> = Vec::new();
        let mut last = "Src:0".to_owned();
        for (number, (operators, width, nested)) in composites.into_iter().enumerate() {
            let composite = format!("C{number}");
            sketch = sketch.composite(&composite, 1, 1).connect(&last, &format!("{composite}:0"));
            if width > 0 {
                regions.push((composite.clone(), width, "RoundRobin"));
            }
            let prefix = match nested {
                true => {
                    let inner = format!("{composite}.D");
                    sketch = sketch.composite(&inner, 1, 1).connect(&format!("{composite}:0"), &format!("{inner}:0"));
                    sketch = sketch.connect(&format!("{inner}:0"), &format!("{composite}:0"));
                    inner
                }
                false => composite.clone(),
            };
            let mut feeding = format!("{prefix}:0");
            let count = operators.len();
            for (at, (extra, width, kind, back, fan)) in operators.into_iter().enumerate() {
                let name = format!("{prefix}.O{at}");
                sketch = sketch.op(&name, 2, 1 + extra);
                // The last stream leaves the composite and is named after it.
                if at + 1 == count {
                    sketch = sketch.stream(0, &composite);
                }
                sketch = sketch.connect(&feeding, &format!("{name}:0"));
                if fan && at > 0 {
                    sketch = sketch.connect(&format!("{prefix}:0"), &format!("{name}:1"));
                } else if back <= at {
                    sketch = sketch.connect(&format!("{prefix}.O{at}:0"), &format!("{prefix}.O{}:1", at - back));
                }
                if kind > 0 {
                    regions.push((name.clone(), width, ["", "RoundRobin", "Hash", "Broadcast"][usize::from(kind)]));
                }
                feeding = format!("{name}:0");
            }
            sketch = sketch.connect(&feeding, &format!("{prefix}:0"));
            last = format!("{composite}:0");
        }
        sketch = sketch.connect(&last, "Snk:0");
        for (name, width, kind) in regions {
            sketch = sketch.parallel_by(&name, &format!("<constantWidth>{width}</constantWidth>"), kind, "");
        }
        sketch
    })
}
