//! A resize takes over operators that it does not change. The result equals that of an expansion from scratch.

use super::sketch::Expand;
use crate::topology::{Connection, Node, Numbering, Splitter, Topology, Via, relabel, verify};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use streams_test_support::application::Sketch;
use streams_test_support::generated;

/// Everything that was made, as text.
fn parts(topology: &Topology) -> [String; 6] {
    let Topology { operators, connections, regions, host_pools, consistent_regions, import_costs, .. } = topology;
    [
        format!("{operators:#?}"),
        format!("{connections:?}"),
        format!("{regions:?}"),
        format!("{host_pools:?}"),
        format!("{consistent_regions:?}"),
        // What is taken over counts as if it had been made again.
        format!("{import_costs:?}"),
    ]
}

/// Whether every splitter carries connections. An expansion with the numbers before knows no others, and numbers them
/// afresh.
fn all_carry(topology: &Topology) -> bool {
    let via = |c: &Connection| Some((c.source, c.source_port, c.via()?.splitter));
    let used: BTreeSet<(Node, u32, u32)> = topology.connections.iter().filter_map(via).collect();
    let mut all = BTreeSet::new();
    for (node, operator) in &topology.operators {
        for (port, output) in (0..).zip(&operator.outputs) {
            let mut open: Vec<&Splitter> = output.splitters.iter().collect();
            while let Some(splitter) = open.pop() {
                all.insert((node, port, splitter.index));
                open.extend(splitter.nested.iter().map(|(_, nested)| nested));
            }
        }
    }
    used == all
}

/// The same without the numbers of splitters.
fn unnumbered(topology: &Topology) -> Topology {
    let mut topology = topology.clone();
    for operator in topology.operators.values_mut() {
        for output in &mut operator.to_mut().outputs {
            let mut open: Vec<&mut Splitter> = output.splitters.iter_mut().collect();
            while let Some(splitter) = open.pop() {
                splitter.index = 0;
                open.extend(splitter.nested.iter_mut().map(|(_, nested)| nested));
            }
        }
    }
    for c in &mut topology.connections {
        let via = c.via().map(|via| Via { splitter: 0, ..via });
        *c = Connection::new((c.source, c.source_port), (c.target, c.target_port), via);
    }
    topology
}

/// Resizes step by step: (position of the region, width); and each region there and back.
fn compare(sketch: &Sketch, steps: &[(usize, i128)]) -> Result<(), TestCaseError> {
    let mut before = sketch.expand().unwrap();
    let mut wanted = sketch.clone();
    for (which, width) in steps {
        let Some(region) = before.regions.get(which % before.regions.len().max(1)) else { return Ok(()) };
        let name = region.name.clone();
        wanted = wanted.override_width(&name, *width);
        let expected = relabel(wanted.expand().unwrap(), &Numbering::of(&before));
        let after = wanted.expand_again(&before).unwrap();
        prop_assert_eq!(verify(&after), Ok(()));
        if all_carry(&expected) {
            prop_assert_eq!(parts(&after), parts(&expected));
        } else {
            prop_assert_eq!(parts(&unnumbered(&after)), parts(&unnumbered(&expected)));
        }
        for region in &after.regions {
            let width = i128::from(region.width) + 2;
            let wide = wanted.clone().override_width(&region.name, width).expand_again(&after).unwrap();
            let back = wanted.expand_again(&wide).unwrap();
            prop_assert_eq!(parts(&back), parts(&after), "{} to {} and back", region.name, width);
        }
        before = after;
    }
    Ok(())
}

/// How many operators of the second topology are taken over from the first.
fn shared(before: &Topology, after: &Topology) -> usize {
    after.operators.values().filter(|operator| before.operators.values().any(|other| operator.is(other))).count()
}

#[test]
fn operators_that_are_made_again_have_the_annotations_and_mergers_that_they_had() {
    let annotations = "<splAnnotation tag='t'/>".repeat(100);
    let sketch = Sketch::new().op("O", 0, 1).op("P", 1, 1).with(&annotations).op("Q", 1, 0).chain(&["O", "P", "Q"]);
    let sketch = sketch.parallel("O", 2).parallel("P", 20).parallel("Q", 1);
    let sketch = sketch.op("Other", 0, 0).with(&annotations).parallel("Other", 2);
    // With a consistent region all operators get their annotations anew.
    let with_region = sketch.clone().declare(0, "periodic").op("C", 0, 0).consistent(0, "isStartOfRegion");
    for sketch in [sketch, with_region] {
        let before = sketch.expand().unwrap();
        let after = sketch.override_width("Q", 2).expand_again(&before).unwrap();
        let find = |topology: &Topology, name: &str| {
            topology.operators.values().find(|operator| operator.name == name).unwrap().clone()
        };
        let generations = |name: &str| [find(&before, name), find(&after, name)];
        for channel in 0..20 {
            let [was, is] = generations(&format!("P[{channel}]"));
            assert!(!was.is(&is) && is.annotations.len() == 100);
            assert!(Arc::ptr_eq(&was.annotations, &is.annotations), "{channel}");
            let [had, has] = [&was, &is].map(|operator| &operator.inputs[0].mergers);
            assert!(has.len() == 1 && Arc::ptr_eq(had, has), "{channel}");
        }
        let [was, is] = generations("Other[1]");
        assert!(was.is(&is));
    }
}

/// Two regions in a row.
fn row() -> Sketch {
    let parts = Sketch::new().op("Src", 0, 1).op("A", 1, 1).op("B", 1, 1).op("Snk", 1, 0);
    parts.chain(&["Src", "A", "B", "Snk"]).parallel("A", 2).parallel("B", 3)
}

/// One output port before two regions, of which one has another inside.
fn fan() -> Sketch {
    Sketch::new()
        .op("Src", 0, 1)
        .composite("C", 1, 0)
        .op("C.A", 1, 0)
        .composite("D", 1, 0)
        .op("D.A", 1, 0)
        .op("D.B", 1, 0)
        .chain(&["Src", "C", "C.A"])
        .chain(&["Src", "D", "D.A"])
        .chain(&["D", "D.B"])
        .parallel("C", 2)
        .parallel("C.A", 2)
        .parallel("D", 2)
        .parallel("D.B", 2)
}

/// Imports inside a region and outside.
fn imports() -> Sketch {
    let streams = "<nameBasedImport applicationName='a' streamName='s_getChannel()'/>";
    Sketch::new()
        .op("First", 1, 0)
        .import("I", streams, "")
        .composite("C", 0, 0)
        .import("C.I", streams, "")
        .op("C.A", 1, 0)
        .op("Other", 0, 0)
        .connect("I:0", "First:0")
        .connect("C.I:0", "C.A:0")
        .parallel("C", 2)
        .parallel("Other", 2)
}

/// What channels send is exported behind the merger; so is what an operator sends that is in no channel.
fn exports() -> Sketch {
    Sketch::new()
        .op("A", 0, 1)
        .composite("C", 0, 1)
        .op("C.P", 0, 1)
        .stream(0, "C")
        .export("E", "", "streamName='a_getChannel()'")
        .export("F", "", "streamName='p_getChannel()'")
        .op("Other", 0, 0)
        .chain(&["A", "E"])
        .chain(&["C.P", "C", "F"])
        .parallel("C.P", 2)
        .parallel("Other", 2)
}

fn pools() -> Sketch {
    let place = "<poolLocation poolIndex='1' inpoolIndex='0'/>";
    let sketch =
        Sketch::new().pool(1, "Pool", &["t", "u"]).op("P", 0, 0).resources(place).op("Q", 0, 0).resources(place);
    let sketch = sketch.op("R", 0, 0).resources(place);
    let by = |sketch: Sketch, name: &str, tags: &str| {
        sketch.parallel_by(name, "<constantWidth>2</constantWidth>", "Hash", tags)
    };
    let sketch = by(by(sketch, "P", "<replicateHostTag name='t'/>"), "Q", "<replicateHostTag name='u'/>");
    by(sketch, "R", "")
}

/// A pool of the document has the name of a copy, and a number above all copies.
fn pools_with_gaps() -> Sketch {
    let place = |index: u64| format!("<poolLocation poolIndex='{index}'/>");
    let sketch = Sketch::new().pool(1, "A", &["t"]).pool(100, "A_0_1", &[]).op("P", 0, 0).resources(&place(1));
    let sketch = sketch.op("D", 0, 0).resources(&place(100)).op("R", 0, 0);
    let tag = "<replicateHostTag name='t'/>";
    sketch.parallel_by("P", "<constantWidth>2</constantWidth>", "Hash", tag).parallel("R", 2)
}

/// A pool of the document has the largest number that there is, so copies cannot have numbers above all.
fn pools_up_to_the_largest_number() -> Sketch {
    let place = "<poolLocation poolIndex='1'/>";
    let sketch = Sketch::new().pool(1, "P", &["t"]).pool(u64::MAX, "Z", &[]);
    let sketch = sketch.op("A", 0, 0).resources(place).op("B", 0, 0).resources(place);
    let tag = "<replicateHostTag name='t'/>";
    let width = "<constantWidth>1</constantWidth>";
    sketch.parallel_by("A", width, "Hash", tag).parallel_by("B", width, "Hash", tag)
}

fn placeholders() -> Sketch {
    let host = "<hostLocation hostname='h_getChannel()_getMaxChannels()'/><coLocation colocId='byChannel(x, 0)'/>";
    Sketch::new().op("A", 0, 0).resources(host).op("B", 0, 0).parallel("A", 2).parallel("B", 2)
}

/// Consistent regions that meet behind two parallel ones.
fn consistent() -> Sketch {
    Sketch::new()
        .declare(0, "periodic")
        .declare(1, "periodic")
        .op("A", 0, 1)
        .consistent(1, "isStartOfRegion")
        .op("B", 0, 1)
        .consistent(0, "isStartOfRegion")
        .op("J", 2, 1)
        .consistent(0, "")
        .op("K", 1, 0)
        .consistent(0, "")
        .op("Z", 0, 0)
        .connect("A:0", "J:0")
        .connect("B:0", "J:1")
        .connect("J:0", "K:0")
        .parallel("A", 2)
        .parallel("J", 2)
        .parallel("Z", 2)
}

fn views() -> Sketch {
    let view = "<splAnnotation tag='view'><value key='name' type=''>v</value></splAnnotation>";
    let parts = Sketch::new().composite("C", 0, 0).op("C.A", 0, 0).with(view).op("B", 0, 0).with(view);
    parts.parallel("C", 2).parallel("B", 2)
}

/// Three regions inside each other: of their splitters only the innermost carry connections.
fn deep() -> Sketch {
    Sketch::new()
        .op("Src", 0, 1)
        .composite("C", 1, 0)
        .composite("C.D", 1, 0)
        .op("C.D.E", 1, 0)
        .chain(&["Src", "C", "C.D", "C.D.E"])
        .parallel("C", 1)
        .parallel("C.D", 2)
        .parallel("C.D.E", 1)
}

/// Splitters into regions where nothing is connected.
fn dead_ends() -> Sketch {
    Sketch::new()
        .op("Src", 0, 1)
        .composite("C", 1, 0)
        .op("C.A", 1, 0)
        .composite("C.D", 1, 0)
        .op("C.D.A", 0, 0)
        .composite("E", 1, 0)
        .op("E.A", 1, 0)
        .chain(&["Src", "C", "C.A"])
        .chain(&["C", "C.D"])
        .chain(&["Src", "E", "E.A"])
        .parallel("C", 2)
        .parallel("C.D", 2)
        .parallel("E", 2)
}

#[test]
fn whatever_an_operator_has() {
    let sketches = [row(), fan(), deep(), dead_ends(), imports(), exports(), pools(), pools_with_gaps()];
    let sketches =
        sketches.into_iter().chain([pools_up_to_the_largest_number(), placeholders(), consistent(), views()]);
    for (number, sketch) in sketches.enumerate() {
        let sketch = &sketch;
        let regions = sketch.expand().unwrap().regions.len();
        assert!(regions > 1, "{number}");
        for first in 0..regions {
            for second in 0..regions {
                let steps = [(first, 3), (second, 4), (first, 1), (second, 1), (first, 2), (second, 2)];
                compare(sketch, &steps).unwrap_or_else(|error| panic!("{number}, {steps:?}: {error}"));
            }
        }
    }
}

#[test]
fn operators_stay_in_pools_of_the_document() {
    let mut sketch = pools_with_gaps();
    let mut topology = sketch.expand().unwrap();
    for width in [3, 2, 1, 2] {
        sketch = sketch.override_width("P", width);
        topology = sketch.expand_again(&topology).unwrap();
        let pool_of = |name: &str| {
            let operator = topology.operators.values().find(|operator| operator.name == name).unwrap();
            operator.resources.pool.unwrap().pool
        };
        assert_eq!((pool_of("D"), pool_of("P[0]")), (100, 3), "{topology}");
    }
}

#[test]
fn copies_of_one_name_have_a_number_each_which_who_restores_finds() {
    let at = |pool: u64| format!("<poolLocation poolIndex='{pool}'/>");
    let parallel = |sketch: Sketch, name: &str, channels: u32| {
        let width = format!("<constantWidth>{channels}</constantWidth>");
        sketch.parallel_by(name, &width, "Hash", "<replicateHostTag name='t'/>")
    };
    let sketch = Sketch::new().pool(1, "C", &["t"]).pool(2, "P", &["t"]).pool(3, "P_1", &["t"]);
    let sketch = sketch.composite("J", 0, 0).op("J.C", 0, 0).resources(&at(1));
    let sketch = sketch.composite("K", 0, 0).op("K.B", 0, 0).resources(&at(3));
    let sketch = sketch.composite("O", 0, 0).op("O.A", 0, 0).resources(&at(2)).parallel("O", 1);
    let sketch = parallel(parallel(sketch, "O.A", 2), "K.B", 1);
    // The pool of `K.B` gets the fresh number 5, and keeps its earlier one, 8 or 54. Then channel 2 of `O.A` has a new
    // pool of the same name, with the fresh number 8.
    for channels in [4, 50] {
        let mut sketch = parallel(sketch.clone(), "J.C", channels);
        let mut topology = sketch.expand().unwrap();
        for (region, width, of_one_name) in [("J.C", 1, 1), ("O.A", 3, 2)] {
            sketch = sketch.override_width(region, width);
            topology = sketch.expand_again(&topology).unwrap();
            let pools = || topology.host_pools.iter();
            assert_eq!(pools().filter(|pool| pool.name == "P_1_2_0").count(), of_one_name);
            assert!(pools().is_sorted_by(|a, b| a.index < b.index), "{topology}");
            let restored = relabel(sketch.expand().unwrap(), &Numbering::of(&topology));
            assert_eq!(parts(&restored), parts(&topology), "{channels}, {region}");
        }
    }
}

#[test]
fn what_no_changed_region_concerns_is_shared() {
    // Operators as they were, region whose width grows by one, operators that are taken over.
    for (sketch, region, expected) in [
        // The source, and nothing of A, whose channels feed B.
        (row(), "B", 2),
        (row(), "A", 4),
        // Also operators that import something in channels that stay.
        (imports(), "Other", 3),
        (imports(), "C", 3),
        (exports(), "Other", 0),
        (placeholders(), "A", 2),
        (placeholders(), "B", 0),
        (consistent(), "Z", 6),
    ] {
        let before = sketch.expand().unwrap();
        let width = before.regions.iter().find(|r| r.name == region).unwrap().width + 1;
        let after = sketch.clone().override_width(region, width.into()).expand_again(&before).unwrap();
        assert_eq!(shared(&before, &after), expected, "{region} of {before}");
    }
}

proptest! {
    #![proptest_config(streams_test_support::property_cases(48))]

    #[test]
    fn any_application(sketch in generated::composites(), steps in prop::collection::vec((0..8_usize, 1..5_i128), 1..5)) {
        compare(&sketch, &steps)?;
    }
}
