//! The topologies of small applications.

use super::sketch::Expand;
use crate::topology::{Numbering, Topology, relabel, verify};
use std::sync::Arc;
use streams_test_support::application::Sketch;

/// Names of operators by index.
fn names(topology: &Topology) -> Vec<String> {
    topology.operators.values().map(|operator| format!("{}:{}", operator.index, operator.name)).collect()
}

/// `from->to` or `from->to/splitter.channel`, by operator index.
fn connections(topology: &Topology) -> Vec<String> {
    let index = |node| topology.operators[node].index;
    let one = |c: &crate::topology::Connection| {
        let via = c.via().map(|via| format!("/{}.{}", via.splitter, via.channel)).unwrap_or_default();
        format!("{}->{}{via}", index(c.source), index(c.target))
    };
    topology.connections.iter().map(one).collect()
}

fn expand(sketch: &Sketch) -> Topology {
    let topology = sketch.expand().unwrap();
    verify(&topology).unwrap();
    topology
}

fn nested() -> Sketch {
    Sketch::new()
        .op("Src", 0, 1)
        .op("Snk", 1, 0)
        .composite("C", 1, 1)
        .op("C.B", 1, 1)
        .stream(0, "C")
        .chain(&["Src", "C", "C.B", "C", "Snk"])
        .parallel("C", 2)
        .parallel("C.B", 2)
}

#[test]
fn a_region_multiplies_its_operator() {
    let sketch =
        Sketch::new().op("Src", 0, 1).op("P", 1, 1).op("Snk", 1, 0).chain(&["Src", "P", "Snk"]).parallel("P", 3);
    let topology = expand(&sketch);
    assert_eq!(names(&topology), ["0:Src", "1:P[0]", "2:Snk", "3:P[1]", "4:P[2]"]);
    assert_eq!(connections(&topology), ["0->1/0.0", "0->3/0.1", "0->4/0.2", "1->2", "3->2", "4->2"]);
}

#[test]
fn nested_regions_multiply_and_nest_their_splitters() {
    let topology = expand(&nested());
    assert_eq!(names(&topology), ["0:Src", "1:Snk", "2:C[0].B[0]", "3:C[0].B[1]", "4:C[1].B[2]", "5:C[1].B[3]"]);
    let expected = ["0->2/1.0", "0->3/1.1", "0->4/2.0", "0->5/2.1", "2->1", "3->1", "4->1", "5->1"];
    assert_eq!(connections(&topology), expected);
    let streams: Vec<&str> = topology.operators.values().skip(2).map(|o| o.outputs[0].stream_name.as_str()).collect();
    assert_eq!(streams, ["C[0][0]", "C[0][1]", "C[1][0]", "C[1][1]"]);
}

#[test]
fn a_pool_of_the_document_keeps_its_number() {
    let resources = "<poolLocation poolIndex='1'/><exLocation exlocId='x'/>";
    let topology = expand(&Sketch::new().pool(1, "Pool", &[]).op("P", 0, 0).resources(resources).parallel("P", 3));
    let mut before = Numbering::of(&topology);
    before.host_pools = vec![("Pool".to_owned(), 7)];
    let topology = relabel(topology, &before);
    let resources: Vec<_> = topology.operators.values().map(|operator| &operator.resources).collect();
    assert!(resources.iter().all(|one| one.pool.is_some_and(|pool| pool.pool == 1)), "{resources:?}");
    assert!(resources.iter().all(|one| Arc::ptr_eq(one, resources[0])));
}

/// A broadcast leaves no trace but connections (rule expansion-14).
#[test]
fn a_broadcast_repeats_what_is_inside_in_every_channel() {
    let sketch = Sketch::new()
        .op("Src", 0, 1)
        .composite("C", 1, 0)
        .op("C.A", 1, 0)
        .op("C.B", 1, 0)
        .connect("Src:0", "C:0")
        .connect("C:0", "C.A:0")
        .connect("C:0", "C.B:0")
        .parallel_by("C", "<constantWidth>2</constantWidth>", "Broadcast", "")
        .parallel("C.B", 2);
    assert_eq!(connections(&expand(&sketch)), ["0->1", "0->2/0.0", "0->3/0.1", "0->4", "0->5/1.0", "0->6/1.1"]);
}

#[test]
fn a_splitter_has_all_channels_even_where_nothing_is_connected() {
    let sketch =
        Sketch::new().op("Src", 0, 1).composite("C", 1, 0).op("C.A", 0, 0).chain(&["Src", "C"]).parallel("C", 3);
    let topology = expand(&sketch);
    let source = topology.operators.values().next().unwrap();
    assert_eq!((source.outputs[0].splitters[0].width, topology.connections.len()), (3, 0));
}

#[test]
fn a_region_may_be_fed_by_nothing() {
    // The composite's input port has no incoming connection.
    let sketch = Sketch::new().composite("C", 1, 0).op("C.P", 1, 0).chain(&["C", "C.P"]).parallel("C.P", 2);
    assert_eq!(names(&expand(&sketch)), ["0:C.P[0]", "1:C.P[1]"]);
}

#[test]
fn every_channel_behind_a_merger_is_exported() {
    let sketch = Sketch::new()
        .composite("C", 0, 1)
        .op("C.P", 0, 1)
        .stream(0, "C")
        .export("Exp", "", "streamName='s_getChannel()'")
        .chain(&["C.P", "C", "Exp"])
        .parallel("C.P", 2);
    let topology = expand(&sketch);
    let exports: Vec<_> = topology.operators.values().map(|o| o.outputs[0].export.clone().unwrap()).collect();
    assert!(exports.iter().all(|export| export.name.as_deref() == Some("s_-1")), "{exports:?}");
    assert_eq!(exports.len(), 2);
}

#[test]
fn placeholders_are_substituted_outside_regions_too() {
    let resources = "<hostLocation hostname='h_getChannel()_getMaxChannels()'/><coLocation colocId='byChannel(x, 1)'/>";
    let topology = expand(&Sketch::new().op("A", 0, 0).resources(resources));
    let operator = topology.operators.values().next().unwrap();
    assert_eq!(operator.resources.host.as_deref(), Some("h_-1_0"));
    assert_eq!(operator.resources.co_locations, ["x"]);
}

#[test]
fn channels_get_copies_of_pools_with_replicated_tags() {
    let sketch = Sketch::new()
        .pool(1, "Pool", &["t", "u"])
        .op("P", 0, 0)
        .resources("<poolLocation poolIndex='1' inpoolIndex='0'/>")
        .parallel_by("P", "<constantWidth>2</constantWidth>", "Hash", "<replicateHostTag name='t'/>");
    let topology = expand(&sketch);
    let pools: Vec<String> =
        topology.host_pools.iter().map(|p| format!("{}:{}{:?}", p.index, p.name, p.tags)).collect();
    assert_eq!(
        pools,
        ["0:$default[]", "1:Pool[\"t\", \"u\"]", "2:Pool_0_0[\"t_0\", \"u\"]", "3:Pool_0_1[\"t_1\", \"u\"]"]
    );
    let used: Vec<u64> = topology.operators.values().map(|o| o.resources.pool.unwrap().pool).collect();
    assert_eq!(used, [2, 3]);
}

#[test]
fn copies_of_pools_may_have_numbers_below_those_of_the_document() {
    let sketch = Sketch::new().pool(5, "Pool", &["t"]).op("P", 0, 0).resources("<poolLocation poolIndex='5'/>");
    let sketch = sketch.parallel_by("P", "<constantWidth>2</constantWidth>", "Hash", "<replicateHostTag name='t'/>");
    let topology = expand(&sketch);
    let pools: Vec<_> = topology.host_pools.iter().map(|pool| (pool.index, pool.name.as_str())).collect();
    assert_eq!(pools, [(0, "$default"), (2, "Pool_0_0"), (3, "Pool_0_1"), (5, "Pool")]);
}

#[test]
fn regions_that_share_an_operator_are_one() {
    let start = "isStartOfRegion";
    let sketch = |end: bool| {
        let join = Sketch::new()
            .declare(0, "periodic")
            .declare(1, "periodic")
            .op("A", 0, 1)
            .consistent(1, start)
            .op("B", 0, 1)
            .consistent(0, start)
            .op("J", 2, 1)
            .consistent(0, if end { "isEndOfRegion" } else { "" })
            .op("K", 1, 0)
            .consistent(0, "");
        join.connect("A:0", "J:0").connect("B:0", "J:1").connect("J:0", "K:0")
    };
    for (end, expected) in [(false, [Some(0), Some(0), Some(0), Some(0)]), (true, [Some(0), Some(0), Some(0), None])] {
        let topology = expand(&sketch(end));
        let regions: Vec<_> = topology.operators.values().map(|operator| operator.consistent_region).collect();
        assert_eq!(regions, expected);
        assert_eq!(topology.consistent_regions.len(), 1);
    }
}

#[test]
fn every_channel_of_a_start_operator_has_a_region_of_its_own() {
    let sketch = Sketch::new()
        .declare(0, "periodic")
        .composite("C", 0, 0)
        .op("C.A", 0, 1)
        .consistent(0, "isStartOfRegion")
        .op("C.B", 1, 0)
        .consistent(0, "isTriggerOperator")
        .chain(&["C.A", "C.B"])
        .parallel("C", 3);
    let topology = expand(&sketch);
    let regions: Vec<(u64, u64, usize)> =
        topology.consistent_regions.iter().map(|r| (r.index, r.logical_index, r.members.len())).collect();
    assert_eq!(regions, [(0, 0, 2), (1, 0, 2), (2, 0, 2)]);
    let flags: Vec<(bool, bool)> = topology.consistent_regions[1].members.iter().map(|(_, s, t)| (*s, *t)).collect();
    assert_eq!(flags, [(true, false), (false, true)]);
}

#[test]
fn all_channels_of_a_composite_have_its_threading_model() {
    let model = "<splAnnotation tag='threading'><value key='model' type=''>dedicated</value></splAnnotation>";
    let topology =
        expand(&Sketch::new().composite("C", 0, 0).with(model).op("C.A", 0, 0).op("B", 0, 0).parallel("C", 2));
    let models: Vec<Option<&str>> = topology.operators.values().map(|o| o.threading_model.as_deref()).collect();
    assert_eq!(models, [Some("dedicated"), None, Some("dedicated")]);
}

#[test]
fn a_filter_is_not_cleared_by_an_import_without_one() {
    let import = |sketch: Sketch, name: &str, filter: &str| {
        sketch.import(name, "<nameBasedImport applicationName='a' streamName='s_getChannel()'/>", filter)
    };
    let sketch = import(import(Sketch::new().op("A", 1, 0), "I1", "filter='x  == 1'"), "I2", "");
    let topology = expand(&sketch.connect("I1:0", "A:0").connect("I2:0", "A:0"));
    let imports = topology.operators.values().next().unwrap().inputs[0].imports.clone().unwrap();
    assert_eq!(imports.filter.as_deref(), Some("x == 1"));
    let names: Vec<&str> = imports.by_name.iter().map(|import| import.operator_name.as_str()).collect();
    assert_eq!(names, ["I1", "I2"]);
    assert_eq!(imports.by_name[0].stream_name, "s_-1");
}

#[test]
fn numbers_survive_a_chain_of_resizes() {
    let widths = |outer: i128, inner: i128| nested().override_width("C", outer).override_width("C.B", inner);
    let mut running = expand(&widths(2, 2));
    for (outer, inner) in [(2, 3), (3, 3), (1, 3), (3, 1), (2, 2)] {
        let before = Numbering::of(&running);
        running = relabel(expand(&widths(outer, inner)), &before);
        verify(&running).unwrap();
        let after = Numbering::of(&running);
        for (identity, index) in &after.operators {
            let known = before.operators.iter().find(|(other, _)| other == identity);
            assert!(known.is_none_or(|(_, before)| before == index), "{identity:?} had {known:?}, has {index}");
        }
    }
}

/// Splitters and mergers belong to the regions that reach them, whatever is behind (rule expansion-29).
#[test]
fn consistent_regions_that_meet_in_a_merger_or_splitter_are_one() {
    let regions = |sketch: &Sketch| -> Vec<Option<u64>> {
        expand(sketch).operators.values().map(|operator| operator.consistent_region).collect()
    };
    let start = "isStartOfRegion";
    let merger = |end: &str| {
        let channel = Sketch::new().declare(0, "periodic").composite("C", 0, 1).op("Snk", 1, 0);
        let channel = channel.op("C.A", 0, 1).consistent(0, start).op("C.B", 1, 1).consistent(0, end).stream(0, "C");
        channel.chain(&["C.A", "C.B", "C", "Snk"]).parallel("C", 3)
    };
    let (one, two) = (Some(1), Some(2));
    assert_eq!(regions(&merger("")), [None, Some(0), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    assert_eq!(regions(&merger("isEndOfRegion")), [None, Some(0), Some(0), one, one, two, two]);

    let splitter = |parallel: bool| {
        let sketch = Sketch::new().declare(0, "periodic").declare(1, "periodic").composite("C", 1, 0).op("C.P", 1, 0);
        let sketch = sketch.op("A", 0, 1).consistent(0, start).op("B", 0, 1).consistent(1, start);
        let sketch = sketch.chain(&["A", "C", "C.P"]).connect("B:0", "C:0");
        if parallel { sketch.parallel("C.P", 2) } else { sketch }
    };
    assert_eq!(regions(&splitter(true)), [None, Some(0), Some(0), None]);
    assert_eq!(regions(&splitter(false)), [None, Some(0), one]);

    // A broadcast leads into both channels, in each of which another region has passed the splitter before it.
    let broadcast = |is_fed: bool| {
        let sketch = Sketch::new().declare(0, "periodic").composite("C", 1, 0).composite("C.K", 1, 0);
        let sketch = sketch.composite("C.K.R", 1, 0).connect("C.K:0", "C.K.R:0").parallel("C.K.R", 3);
        let sketch = sketch.op("A", 0, 1).consistent(0, start).connect("A:0", "C:0");
        let sketch = sketch.op("C.B", 0, 1).consistent(0, start).connect("C.B:0", "C.K:0");
        let sketch = sketch.parallel_by("C", "<constantWidth>2</constantWidth>", "Broadcast", "");
        if is_fed { sketch.connect("C:0", "C.K:0") } else { sketch }
    };
    assert_eq!(regions(&broadcast(true)), [Some(0), Some(0), Some(0)]);
    assert_eq!(regions(&broadcast(false)), [Some(0), Some(0), one]);
}
