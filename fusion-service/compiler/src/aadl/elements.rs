//! The PEs of a job with every number that a document needs: what [`super::Writer`] reads.
//!
//! Built once per compilation from the topology, the partition, the threads and the ids; then only read. Everything is
//! in dense arrays, and the connections of every splitter channel and input port are contiguous, so that writing is
//! linear in what is written.
//!
//! A *slot* is what a PE output port can stand for: an operator output port taken directly, or one channel of one of
//! its splitters.

use super::same::Generations;
use crate::fuser::{OperatorThreads, Partition, Pe, PeId, PeInput, PeOutput, ThreadedPort};
use crate::heap::{heap_fields, no_heap};
use crate::logical::Application;
use crate::topology::{Connection, Node, Operator, Splitter, Topology, Via};
use cranelift_entity::{EntityRef, PrimaryMap};
use std::ops::Range;
use std::sync::Arc;

/// Marks a port without PE port. Port ids are far smaller: a PE listens on 10000 plus the id.
const NONE: u32 = u32::MAX;

/// The PEs of a job.
#[derive(Debug)]
pub struct Elements {
    topology: Arc<Topology>,
    partition: Partition,
    ids: PrimaryMap<Pe, PeId>,
    /// PEs by ascending id.
    by_id: Vec<Pe>,
    flags: PrimaryMap<Node, OperatorFlags>,
    /// Input ports of operator `n` are `inputs[first_input[n]..first_input[n + 1]]`.
    first_input: Vec<u32>,
    inputs: Vec<Input>,
    /// Connections into input port `i` are at `incoming[incoming_start[i]..incoming_start[i + 1]]`, in order.
    incoming_start: Vec<u32>,
    incoming: Vec<u32>,
    /// Output ports of operator `n` are `outputs[first_output[n]..first_output[n + 1]]`.
    first_output: Vec<u32>,
    outputs: Vec<Output>,
    splitters: Vec<SplitterSlots>,
    /// PE port id of each slot.
    slots: Vec<u32>,
    /// Connections of slot `s` are at `outgoing[outgoing_start[s]..outgoing_start[s + 1]]`, in order.
    outgoing_start: Vec<u32>,
    outgoing: Vec<u32>,
}

/// What threads do at an operator (rule element-12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OperatorFlags {
    pub(super) single_threaded_on_inputs: bool,
    pub(super) single_threaded_on_outputs: bool,
    pub(super) single_threaded_to_others: bool,
}

#[derive(Clone, Copy, Debug)]
struct Input {
    /// ADL index.
    index: u64,
    pe_port: u32,
    threaded: Option<ThreadedPort>,
}

#[derive(Clone, Copy, Debug)]
struct Output {
    /// ADL index.
    index: u64,
    /// The direct slot; those of channels are in `splitters`.
    first_slot: u32,
    first_splitter: u32,
    splitters: u32,
}

#[derive(Clone, Copy, Debug)]
struct SplitterSlots {
    index: u32,
    first_slot: u32,
    width: u32,
}

heap_fields! {
    Elements {
        topology, partition, ids, by_id, flags, first_input, inputs, incoming_start, incoming, first_output, outputs,
        splitters, slots, outgoing_start, outgoing,
    }
}
no_heap!(OperatorFlags, Input, Output, SplitterSlots);

/// A slot, by position in [`Elements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

impl Elements {
    /// Indexes the connections. PE ports have no ids yet, threads are not known.
    ///
    /// The partition is one of the topology's operators; ids are different. Operators and ports of connections exist,
    /// as [`Topology`] promises.
    pub fn new(topology: Arc<Topology>, partition: Partition, ids: PrimaryMap<Pe, PeId>) -> Self {
        Self::make(topology, partition, ids, None)
    }

    /// The same for another generation. Operators that it shares with `before` have the port ids and threads that they
    /// had, which may not be right any more: see [`Elements::forget`].
    pub fn again(
        topology: Arc<Topology>,
        partition: Partition,
        ids: PrimaryMap<Pe, PeId>,
        before: &Self,
        earlier: &PrimaryMap<Node, Option<Node>>,
    ) -> Self {
        Self::make(topology, partition, ids, Some((before, earlier)))
    }

    fn make(
        topology: Arc<Topology>,
        partition: Partition,
        ids: PrimaryMap<Pe, PeId>,
        before: Option<(&Self, &PrimaryMap<Node, Option<Node>>)>,
    ) -> Self {
        let mut by_id: Vec<Pe> = partition.pes().collect();
        by_id.sort_unstable_by_key(|&pe| ids[pe]);
        let generations =
            before.map(|(before, earlier)| (before, Generations { before: &before.topology, now: &topology, earlier }));
        let mut rows = Rows::with_capacity(topology.operators.len());
        for (node, operator) in &topology.operators {
            match generations.as_ref().and_then(|(before, both)| Some((before, both.same(node)?))) {
                Some((before, earlier)) => rows.copy(before, earlier),
                None => rows.add(operator, &topology.application),
            }
        }
        let Rows { flags, mut first_input, inputs, mut first_output, outputs, splitters, slots } = rows;
        first_input.push(inputs.len() as u32);
        first_output.push(outputs.len() as u32);

        let mut elements = Self {
            partition,
            ids,
            by_id,
            flags,
            first_input,
            inputs,
            incoming_start: Vec::new(),
            incoming: Vec::new(),
            first_output,
            outputs,
            splitters,
            slots,
            outgoing_start: Vec::new(),
            outgoing: Vec::new(),
            topology,
        };
        elements.index_connections();
        elements
    }

    /// Counting sort of the connections by input port and by slot; both keep their order.
    fn index_connections(&mut self) {
        let connections = &self.topology.connections;
        let mut into = vec![0_u32; self.inputs.len() + 1];
        let mut out_of = vec![0_u32; self.slots.len() + 1];
        for connection in connections {
            into[self.input(connection.target, connection.target_port) + 1] += 1;
            out_of[self.slot_of(connection).0 as usize + 1] += 1;
        }
        for starts in [&mut into, &mut out_of] {
            let mut sum = 0;
            for start in starts.iter_mut() {
                sum += *start;
                *start = sum;
            }
        }
        let (mut next_into, mut next_out_of) = (into.clone(), out_of.clone());
        let mut incoming = vec![0_u32; connections.len()];
        let mut outgoing = vec![0_u32; connections.len()];
        for (number, connection) in (0_u32..).zip(connections) {
            let next = &mut next_into[self.input(connection.target, connection.target_port)];
            incoming[*next as usize] = number;
            *next += 1;
            let next = &mut next_out_of[self.slot_of(connection).0 as usize];
            outgoing[*next as usize] = number;
            *next += 1;
        }
        (self.incoming_start, self.incoming) = (into, incoming);
        (self.outgoing_start, self.outgoing) = (out_of, outgoing);
    }

    /// Says what threads do in a PE: the result of [`crate::fuser::threads`].
    pub fn set_threads(&mut self, pe: Pe, threads: &[OperatorThreads]) {
        for (&operator, threads) in self.partition.operators(pe).iter().zip(threads) {
            self.flags[operator] = OperatorFlags {
                single_threaded_on_inputs: threads.single_threaded_on_inputs,
                single_threaded_on_outputs: threads.single_threaded_on_outputs,
                single_threaded_to_others: threads.single_threaded_to_others,
            };
            let inputs = self.input_range(operator);
            for (input, threaded) in self.inputs[inputs].iter_mut().zip(&threads.threaded_ports) {
                input.threaded = *threaded;
            }
        }
    }

    /// Takes the port ids and threads of a PE away.
    pub fn forget(&mut self, pe: Pe) {
        for &operator in self.partition.operators(pe) {
            self.flags[operator] = OperatorFlags::default();
            let inputs = self.input_range(operator);
            for input in &mut self.inputs[inputs] {
                (input.pe_port, input.threaded) = (NONE, None);
            }
            let slots = self.slot_range(operator);
            self.slots[slots].fill(NONE);
        }
    }

    /// Gives a PE input port its id.
    pub fn set_input_id(&mut self, port: PeInput, id: u32) {
        let input = self.input(port.operator, port.port);
        self.inputs[input].pe_port = id;
    }

    /// Gives a PE output port its id.
    pub fn set_output_id(&mut self, port: PeOutput, id: u32) {
        let slot = self.slot(port.operator, port.port, port.via);
        self.slots[slot.0 as usize] = id;
    }

    /// The topology that they are made from.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Which operators share a PE.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// PEs, ascending id.
    pub fn pes(&self) -> &[Pe] {
        &self.by_id
    }

    /// Ids of all PEs.
    pub fn ids(&self) -> &PrimaryMap<Pe, PeId> {
        &self.ids
    }

    /// Id of a PE.
    pub fn id(&self, pe: Pe) -> PeId {
        self.ids[pe]
    }

    /// The PE of this id.
    pub fn find(&self, id: PeId) -> Option<Pe> {
        let position = self.by_id.binary_search_by_key(&id, |&pe| self.ids[pe]).ok()?;
        self.by_id.get(position).copied()
    }

    /// Operators of a PE, ascending index.
    pub fn members(&self, pe: Pe) -> &[Node] {
        self.partition.operators(pe)
    }

    /// The PE of an operator.
    pub fn pe(&self, operator: Node) -> Pe {
        self.partition.pe(operator)
    }

    pub(super) fn flags(&self, operator: Node) -> OperatorFlags {
        self.flags[operator]
    }

    pub(super) fn threaded_port(&self, operator: Node, port: u32) -> Option<ThreadedPort> {
        self.inputs[self.input(operator, port)].threaded
    }

    /// ADL index of an operator's input port.
    pub fn input_index(&self, operator: Node, port: u32) -> u64 {
        self.inputs[self.input(operator, port)].index
    }

    /// ADL index of an operator's output port.
    pub fn output_index(&self, operator: Node, port: u32) -> u64 {
        self.outputs[self.output(operator, port)].index
    }

    /// Id of the PE input port of an operator's input port.
    pub(super) fn input_id(&self, operator: Node, port: u32) -> u32 {
        self.inputs[self.input(operator, port)].pe_port
    }

    /// Id of the PE output port that a connection between PEs leaves by.
    pub(super) fn output_id(&self, connection: &Connection) -> u32 {
        self.slots[self.slot_of(connection).0 as usize]
    }

    /// Ids of the PE input ports of a PE with what they stand for, by operator and port.
    pub fn input_ports(&self, pe: Pe) -> impl Iterator<Item = (u32, PeInput)> + '_ {
        self.members(pe).iter().flat_map(move |&operator| {
            (0..).zip(&self.inputs[self.input_range(operator)]).filter_map(move |(port, input)| {
                (input.pe_port != NONE).then_some((input.pe_port, PeInput { operator, port }))
            })
        })
    }

    /// Ids of the PE output ports of a PE with what they stand for, by operator, port and channel.
    pub fn output_ports(&self, pe: Pe) -> impl Iterator<Item = (u32, PeOutput)> + '_ {
        self.output_slots(pe).map(|(id, port, _)| (id, port))
    }

    pub(super) fn output_slots(&self, pe: Pe) -> impl Iterator<Item = (u32, PeOutput, Slot)> + '_ {
        self.members(pe).iter().flat_map(move |&operator| {
            (0..).zip(&self.outputs[self.output_range(operator)]).flat_map(move |(port, output)| {
                let direct = std::iter::once((None, output.first_slot));
                let channels = self.splitters_of(output).iter().flat_map(|splitter| {
                    (0..splitter.width)
                        .map(|channel| (Some(Via { splitter: splitter.index, channel }), splitter.first_slot + channel))
                });
                direct.chain(channels).filter_map(move |(via, slot)| {
                    let id = self.slots[slot as usize];
                    (id != NONE).then_some((id, PeOutput { operator, port, via }, Slot(slot)))
                })
            })
        })
    }

    /// The slot of an operator's output port, or of a channel of one of its splitters.
    pub(super) fn slot(&self, operator: Node, port: u32, via: Option<Via>) -> Slot {
        let output = &self.outputs[self.output(operator, port)];
        // A connection through a splitter that is not there would be a broken topology; it counts as direct.
        let channel = via.and_then(|via| {
            let splitters = self.splitters_of(output);
            let found = splitters.binary_search_by_key(&via.splitter, |s| s.index).ok()?;
            splitters.get(found).filter(|s| via.channel < s.width).map(|s| s.first_slot + via.channel)
        });
        Slot(channel.unwrap_or(output.first_slot))
    }

    fn slot_of(&self, connection: &Connection) -> Slot {
        self.slot(connection.source, connection.source_port, connection.via())
    }

    /// Connections that leave through a slot, by target.
    pub(super) fn outgoing(&self, slot: Slot) -> impl ExactSizeIterator<Item = &Connection> + Clone {
        let at = slot.0 as usize;
        let range = self.outgoing_start[at] as usize..self.outgoing_start[at + 1] as usize;
        self.outgoing[range].iter().map(|&number| &self.topology.connections[number as usize])
    }

    /// Connections into an input port, by source.
    pub(super) fn incoming(&self, operator: Node, port: u32) -> impl ExactSizeIterator<Item = &Connection> + Clone {
        let at = self.input(operator, port);
        let range = self.incoming_start[at] as usize..self.incoming_start[at + 1] as usize;
        self.incoming[range].iter().map(|&number| &self.topology.connections[number as usize])
    }

    /// Connections that begin at an operator, by port and target.
    pub(super) fn leaving(&self, operator: Node) -> &[Connection] {
        let slots = self.slot_range(operator);
        // Slots are in order of operators, and `outgoing_start` counts connections in order of slots.
        let (start, end) = (self.outgoing_start[slots.start], self.outgoing_start[slots.end]);
        &self.topology.connections[start as usize..end as usize]
    }

    /// All connections that begin or end at an operator.
    pub fn connections_of(&self, operator: Node) -> impl Iterator<Item = &Connection> {
        let inputs = self.input_range(operator).len();
        self.leaving(operator).iter().chain((0..inputs).flat_map(move |port| self.incoming(operator, port as u32)))
    }

    /// Id of the PE output port of an output port taken directly.
    pub(super) fn direct_id(&self, operator: Node, port: u32) -> u32 {
        self.slots[self.outputs[self.output(operator, port)].first_slot as usize]
    }

    fn input(&self, operator: Node, port: u32) -> usize {
        self.first_input[operator.index()] as usize + port as usize
    }

    fn output(&self, operator: Node, port: u32) -> usize {
        self.first_output[operator.index()] as usize + port as usize
    }

    fn input_range(&self, operator: Node) -> Range<usize> {
        self.first_input[operator.index()] as usize..self.first_input[operator.index() + 1] as usize
    }

    fn output_range(&self, operator: Node) -> Range<usize> {
        self.first_output[operator.index()] as usize..self.first_output[operator.index() + 1] as usize
    }

    /// Slots of all output ports of an operator.
    fn slot_range(&self, operator: Node) -> Range<usize> {
        let outputs = self.output_range(operator);
        let first = |output: usize| self.outputs.get(output).map_or(self.slots.len(), |o| o.first_slot as usize);
        first(outputs.start)..first(outputs.end)
    }

    fn splitters_of(&self, output: &Output) -> &[SplitterSlots] {
        let first = output.first_splitter as usize;
        &self.splitters[first..first + output.splitters as usize]
    }
}

/// What [`Elements`] has of each operator, while it is put together.
struct Rows {
    flags: PrimaryMap<Node, OperatorFlags>,
    first_input: Vec<u32>,
    inputs: Vec<Input>,
    first_output: Vec<u32>,
    outputs: Vec<Output>,
    splitters: Vec<SplitterSlots>,
    slots: Vec<u32>,
}

impl Rows {
    /// For so many operators; most have one port of each kind.
    fn with_capacity(count: usize) -> Self {
        Self {
            flags: PrimaryMap::with_capacity(count),
            first_input: Vec::with_capacity(count + 1),
            inputs: Vec::with_capacity(count),
            first_output: Vec::with_capacity(count + 1),
            outputs: Vec::with_capacity(count),
            splitters: Vec::new(),
            slots: Vec::with_capacity(count),
        }
    }

    fn add(&mut self, operator: &Operator, application: &Application) {
        self.flags.push(OperatorFlags::default());
        self.first_input.push(self.inputs.len() as u32);
        self.first_output.push(self.outputs.len() as u32);
        // Ports of an operator are those of the ADL; where they are not, the position stands for the index.
        let written = operator.primitive(application);
        self.inputs.extend((0_u32..).zip(&operator.inputs).map(|(port, _)| {
            let index = written.and_then(|w| w.inputs.get(port as usize)).map_or(u64::from(port), |w| w.port.index);
            Input { index, pe_port: NONE, threaded: None }
        }));
        for (port, output) in (0_u32..).zip(&operator.outputs) {
            let first_slot = self.slots.len() as u32;
            let first_splitter = self.splitters.len();
            let mut next = first_slot + 1;
            for splitter in &output.splitters {
                collect_splitters(splitter, &mut self.splitters);
            }
            let own = self.splitters.get_mut(first_splitter..).unwrap_or_default();
            own.sort_unstable_by_key(|s: &SplitterSlots| s.index);
            for splitter in own.iter_mut() {
                splitter.first_slot = next;
                next += splitter.width;
            }
            let splitters = own.len() as u32;
            self.slots.resize(next as usize, NONE);
            let index = written.and_then(|w| w.outputs.get(port as usize)).map_or(u64::from(port), |w| w.port.index);
            self.outputs.push(Output { index, first_slot, first_splitter: first_splitter as u32, splitters });
        }
    }

    fn copy(&mut self, from: &Elements, operator: Node) {
        self.flags.push(from.flags[operator]);
        self.first_input.push(self.inputs.len() as u32);
        self.inputs.extend_from_slice(&from.inputs[from.input_range(operator)]);
        self.first_output.push(self.outputs.len() as u32);
        let slots = from.slot_range(operator);
        let (was, is) = (slots.start as u32, self.slots.len() as u32);
        for output in &from.outputs[from.output_range(operator)] {
            let first_splitter = self.splitters.len() as u32;
            let moved =
                |splitter: &SplitterSlots| SplitterSlots { first_slot: splitter.first_slot - was + is, ..*splitter };
            self.splitters.extend(from.splitters_of(output).iter().map(moved));
            self.outputs.push(Output { first_slot: output.first_slot - was + is, first_splitter, ..*output });
        }
        self.slots.extend_from_slice(&from.slots[slots]);
    }
}

/// A splitter and those under its channels. The nesting is that of parallel regions, which the depth of the ADL bounds.
fn collect_splitters(splitter: &Splitter, into: &mut Vec<SplitterSlots>) {
    into.push(SplitterSlots { index: splitter.index, first_slot: 0, width: splitter.width });
    for (_, nested) in &splitter.nested {
        collect_splitters(nested, into);
    }
}
