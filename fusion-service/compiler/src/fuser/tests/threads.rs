//! Ports and threads of PEs.

use super::properties::{application, free};
use super::sample::{Sample, SampleOperator};
use super::{manual, text};
use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::{Graph, InputPortTraits, OperatorThreads, OutputPortTraits, Partition, Pe, fuse, ports, threads};
use crate::topology::{Configuration, Node, Parameters, Via, expand};
use cranelift_entity::EntityRef;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Threads of one PE, followed one by one (rule element-11): for each operator, whether it is single-threaded on
/// inputs, on outputs and towards other PEs; per input port, the threaded port as (injected, single-threaded).
type Flags = (bool, bool, bool, Vec<Option<(bool, bool)>>);

struct OneByOne<'a> {
    graph: &'a Graph<'a>,
    inside: BTreeSet<Node>,
    /// Threads that fill a threaded port, execute an operator, leave through a PE output port.
    queues: BTreeMap<(Node, u32), (bool, BTreeSet<u32>)>,
    executing: BTreeMap<Node, BTreeSet<u32>>,
    leaving: BTreeMap<(Node, u32, Option<Via>), BTreeSet<u32>>,
}

impl OneByOne<'_> {
    fn follow(&mut self, start: Node, thread: u32, counts_at_start: bool) {
        let mut seen = BTreeSet::new();
        let mut pending = vec![(start, counts_at_start)];
        while let Some((node, counts)) = pending.pop() {
            if seen.contains(&node) {
                continue;
            }
            if counts {
                seen.insert(node);
                self.executing.entry(node).or_default().insert(thread);
            }
            for connection in self.graph.outgoing(node) {
                let port = (connection.target, connection.target_port);
                if !self.inside.contains(&connection.target) {
                    let left = (node, connection.source_port, connection.via());
                    self.leaving.entry(left).or_default().insert(thread);
                } else if let Some((_, filling)) = self.queues.get_mut(&port) {
                    filling.insert(thread);
                } else if !self.graph.traits(connection.target).threading.dynamic {
                    pending.push((connection.target, true));
                }
            }
            for (port, output) in (0..).zip(&self.graph.traits(node).outputs) {
                if output.exported {
                    self.leaving.entry((node, port, None)).or_default().insert(thread);
                }
            }
        }
    }
}

fn one_by_one(graph: &Graph, partition: &Partition, pe: Pe) -> Vec<Flags> {
    let members = partition.operators(pe);
    let traits = |node: Node| graph.traits(node);
    let mut all = OneByOne {
        graph,
        inside: members.iter().copied().collect(),
        queues: BTreeMap::new(),
        executing: BTreeMap::new(),
        leaving: BTreeMap::new(),
    };
    for &node in members {
        for (port, input) in (0..).zip(&traits(node).inputs) {
            if input.threaded {
                all.queues.insert((node, port), (false, BTreeSet::new()));
            }
        }
    }
    for connection in members.iter().flat_map(|&node| graph.outgoing(node)) {
        let dedicated = traits(connection.target).threading.dedicated;
        if all.inside.contains(&connection.target) && (connection.via().is_some() || dedicated) {
            all.queues.entry((connection.target, connection.target_port)).or_insert((true, BTreeSet::new()));
        }
    }
    let mut next = 0;
    let mut thread = || {
        next += 1;
        next
    };
    for port in ports(graph, partition, pe, &mut Budget::default().pace()).unwrap().inputs {
        let thread = thread();
        match all.queues.get_mut(&(port.operator, port.port)) {
            Some((_, filling)) => {
                filling.insert(thread);
            }
            None => all.follow(port.operator, thread, true),
        }
    }
    for &node in members {
        if traits(node).inputs.is_empty() && !traits(node).outputs.is_empty() {
            all.follow(node, thread(), false);
        }
        if !traits(node).single_threaded_on_outputs {
            all.follow(node, thread(), false);
        }
        for (port, _) in (0..).zip(&traits(node).inputs) {
            if all.queues.contains_key(&(node, port)) || !traits(node).threading.manual {
                all.follow(node, thread(), true);
            }
        }
    }
    let flags = members.iter().map(|&node| {
        let inputs = traits(node).inputs.len();
        let executing = all.executing.get(&node).map_or(0, BTreeSet::len);
        let single = executing <= 1 && (traits(node).threading.manual || inputs <= 1);
        let others = all.leaving.iter().filter(|((from, ..), _)| *from == node).all(|(_, threads)| threads.len() <= 1);
        let queue =
            |port: u32| all.queues.get(&(node, port)).map(|(injected, filling)| (*injected, filling.len() <= 1));
        let queues = (0..inputs as u32).map(queue).collect();
        (single, single && traits(node).single_threaded_on_outputs, others, queues)
    });
    flags.collect()
}

fn flags(threads: &OperatorThreads) -> Flags {
    let queue = |port: crate::fuser::ThreadedPort| (port.injected, port.single_threaded_on_input);
    (
        threads.single_threaded_on_inputs,
        threads.single_threaded_on_outputs,
        threads.single_threaded_to_others,
        threads.threaded_ports.iter().map(|port| port.map(queue)).collect(),
    )
}

/// Makes an operator that does something with threads: one bit, one property.
fn with_threads(operator: &mut SampleOperator, bits: u32) {
    let bit = |bit: u32| bits >> bit & 1 == 1;
    for (port, input) in (0..).zip(&mut operator.inputs) {
        *input = InputPortTraits { threaded: bit(port) && bit(2), imported: bit(port + 1) && bit(3) };
    }
    for output in &mut operator.outputs {
        *output = OutputPortTraits { exported: bit(4) && bit(5) };
    }
    match bits >> 6 & 7 {
        0 | 1 => operator.threading.manual = true,
        2 => operator.threading.dynamic = true,
        3 => operator.threading.dedicated = true,
        _ => {}
    }
    operator.single_threaded_on_outputs = !(bit(9) && bit(10));
}

proptest! {
    #[test]
    fn the_data_flow_agrees_with_threads_followed_one_by_one(
        sample in application(20, free),
        bits in prop::collection::vec(any::<u32>(), 20),
        channels in prop::collection::vec(prop::option::weighted(0.3, 0..2_u32), 60),
        count in 1..6_i128,
    ) {
        let mut sample = sample;
        for (operator, bits) in sample.operators.iter_mut().zip(bits) {
            with_threads(operator, bits);
        }
        for (edge, channel) in sample.edges.iter_mut().zip(channels) {
            edge.2 = channel;
        }
        // One connection between two ports (topology, invariants).
        sample.edges.sort();
        sample.edges.dedup_by_key(|edge| (edge.0, edge.1));
        let graph = sample.graph();
        let partition = fuse(&graph, &manual(count), &Budget::default()).unwrap();
        for pe in partition.pes() {
            let budget = Budget::default();
            let ports = ports(&graph, &partition, pe, &mut budget.pace()).unwrap();
            let got = threads(&graph, &partition, pe, &mut budget.pace()).unwrap();
            let got: Vec<Flags> = got.iter().map(flags).collect();
            let want = one_by_one(&graph, &partition, pe);
            // What leaves is said for operators with a PE output port only.
            let leaves = |position: usize| ports.outputs.iter().any(|p| partition.position(p.operator) == position);
            for (position, (got, want)) in got.iter().zip(&want).enumerate() {
                prop_assert_eq!((got.0, got.1, &got.3), (want.0, want.1, &want.3), "{:?} {}", pe, position);
                prop_assert!(got.2 == want.2 || !leaves(position), "{:?} {}", pe, position);
            }
        }
    }
}

/// A source, a region of one operator, a sink: 0 -> (1 2) -> 3.
fn region() -> Sample {
    let mut sample = Sample::new(4, [(0, 1), (0, 2), (1, 3), (2, 3)]);
    sample.edges[0].2 = Some(0);
    sample.edges[1].2 = Some(1);
    sample
}

#[test]
fn ports_are_where_connections_cross_and_streams_are_imported_or_exported() {
    let sample = region().with([1], |o| o.inputs[0].imported = true).with([2], |o| o.outputs[0].exported = true);
    let graph = sample.graph();
    let partition = fuse(&graph, &manual(2), &Budget::default()).unwrap();
    assert_eq!(text(&graph, &partition), "{0,2} {1,3}");
    let lists = partition.pes().map(|pe| {
        let ports = ports(&graph, &partition, pe, &mut Budget::default().pace()).unwrap();
        let inputs: Vec<(usize, u32)> = ports.inputs.iter().map(|p| (p.operator.index(), p.port)).collect();
        let outputs: Vec<(usize, u32, Option<u32>)> =
            ports.outputs.iter().map(|p| (p.operator.index(), p.port, p.via.map(|via| via.channel))).collect();
        (inputs, outputs)
    });
    let expected = [
        // Channel 0 leaves, channel 1 stays; the connection 2 -> 3 and the export share a port.
        (vec![], vec![(0, 0, Some(0)), (2, 0, None)]),
        // The import and the connection from PE 0 share a port.
        (vec![(1, 0), (3, 0)], vec![]),
    ];
    assert_eq!(lists.collect::<Vec<_>>(), expected);
}

#[test]
fn threaded_ports_are_injected_behind_splitters_and_for_dedicated_operators() {
    let check = |sample: &Sample, count: i128, expected: [Option<(bool, bool)>; 3]| {
        let graph = sample.graph();
        let partition = fuse(&graph, &manual(count), &Budget::default()).unwrap();
        let port = |node: usize| {
            let node = Node::new(node);
            let threads = threads(&graph, &partition, partition.pe(node), &mut Budget::default().pace()).unwrap();
            flags(&threads[partition.position(node)]).3[0]
        };
        assert_eq!([1, 2, 3].map(port), expected, "{}", text(&graph, &partition));
    };
    let (injected, explicit) = (Some((true, true)), Some((false, true)));
    check(&region(), 1, [injected, injected, None]);
    // {0,2} {1,3}: channel 0 leaves the PE.
    check(&region(), 2, [None, injected, None]);
    check(&region(), 4, [None, None, None]);
    let dedicated = region().with([3], |o| o.threading.dedicated = true);
    // Operators 1 and 2 have threads of their own, so two threads fill the queue.
    check(&dedicated, 1, [injected, injected, Some((true, false))]);
    check(&dedicated, 4, [None, None, None]);
    check(&region().with([1], |o| o.inputs[0].threaded = true), 1, [explicit, injected, None]);
}

#[test]
fn connections_within_a_pe_are_followed_within_the_budget() {
    let sample = Sample::new(200, (0..100).flat_map(|from| (100..200).map(move |to| (from, to))));
    let graph = sample.graph();
    let partition = fuse(&graph, &manual(1), &Budget::default()).unwrap();
    let pe = partition.pe(Node::new(0));
    let cancelled = Budget::cancelled();
    let found = ports(&graph, &partition, pe, &mut cancelled.pace());
    assert_eq!(found.map(|_| ()), Err(Error::Cancelled));
    let found = threads(&graph, &partition, pe, &mut cancelled.pace());
    assert_eq!(found.map(|_| ()), Err(Error::Cancelled));
}

#[test]
fn the_older_dialect_leaves_models_at_operators() {
    let document = include_bytes!("../../../../tests/applications/older-dialect.adl");
    for (threading_model, expected) in [(None, (true, false)), (Some("dynamic".to_owned()), (true, true))] {
        let application = Arc::new(crate::adl::parse(document, &Budget::default()).unwrap());
        let configuration = Configuration { threading_model, ..Configuration::default() };
        let parameters = Parameters { configuration, ..Parameters::default() };
        let topology = expand(&application, &parameters, &Budget::default()).unwrap();
        let graph = Graph::from_topology(&topology, &Budget::default()).unwrap();
        let models = |name: &str| {
            let (node, _) = graph.operators().iter().find(|(_, operator)| operator.name == name).unwrap();
            let threading = graph.traits(node).threading;
            (threading.manual, threading.dynamic)
        };
        assert_eq!(models("T"), expected, "an annotation of its own");
        assert_eq!(models("S"), (false, expected.1));
    }
}
