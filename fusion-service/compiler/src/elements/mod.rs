//! The stage between fusion and documents: the PEs of a job with their ids, their ports and what threads do in them.
//!
//! A compilation builds [`Elements`] once from the topology, the partition and the ids of PEs, and numbers them
//! ([`Elements::number`]). After that they do not change. All tables are dense arrays in which the connections of a
//! splitter channel or an input port are contiguous. So writing a document takes time linear in its length.
//!
//! `ungrouped` makes the tables, which depend on the topology alone, and `rows` fills them; `ports` gives PE ports
//! their ids, and `unchanged` finds PEs that a resize leaves as they are.
//!
//! A *slot* is an operator output port taken directly, or one channel of one of its splitters. A PE output port stands
//! for one slot.
//!
//! Knows: the topology, PEs, their ports and threads; which PEs a resize leaves as they are. Must not know: how
//! operators were grouped, XML.

mod ports;
mod rows;
mod unchanged;
mod ungrouped;

pub use ports::{InUse, PortsInUse};
pub(crate) use ports::{KeptPorts, PriorPorts};
pub(crate) use unchanged::Unchanged;
pub(crate) use ungrouped::UngroupedElements;

use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::{self, Graph, OperatorThreads, Partition, Pe, PeId, PeInput, PeOutput, ThreadedPort};
use crate::heap::{primary_map, share};
use crate::topology::{Connection, Node, Topology, Via};
use cranelift_entity::{EntityRef, PrimaryMap};
use get_size2::GetSize;
use ports::PortIds;
use std::ops::Range;
use std::sync::Arc;

/// Operators and connections of PEs that are numbered together: so much is kept until it is in the tables. With
/// helpers, enough for all of them.
const LARGEST_WAVE: usize = 1 << 18;
/// Without helpers, what is near.
const SMALLEST_WAVE: usize = 1 << 10;

/// Marks a port without PE port. Port ids are far smaller: a PE listens on 10000 plus the id.
const NONE: u32 = u32::MAX;

/// The PEs of a job.
#[derive(Debug, GetSize)]
pub struct Elements {
    #[get_size(size_fn = share)]
    topology: Arc<Topology>,
    partition: Partition,
    #[get_size(size_fn = primary_map)]
    ids: PrimaryMap<Pe, PeId>,
    /// PEs by ascending id.
    by_id: Vec<Pe>,
    #[get_size(size_fn = primary_map)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, GetSize)]
pub(crate) struct OperatorFlags {
    pub(crate) single_threaded_on_inputs: bool,
    pub(crate) single_threaded_on_outputs: bool,
    pub(crate) single_threaded_to_others: bool,
}

#[derive(Clone, Copy, Debug, GetSize)]
struct Input {
    /// ADL index.
    index: u64,
    pe_port: u32,
    threaded: Option<ThreadedPort>,
}

#[derive(Clone, Copy, Debug, GetSize)]
struct Output {
    /// ADL index.
    index: u64,
    /// The direct slot; those of channels are in `splitters`.
    first_slot: u32,
    first_splitter: u32,
    splitters: u32,
}

#[derive(Clone, Copy, Debug, GetSize)]
struct SplitterSlots {
    index: u32,
    first_slot: u32,
    width: u32,
}

/// A slot, by position in [`Elements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

impl Elements {
    /// Makes the PEs of a partition. Their ports have no ids and their threads are not known until [`Elements::number`]
    /// is called.
    ///
    /// The partition must be one of the topology's operators, and all ids must differ. Operators and ports of
    /// connections exist, as [`Topology`] promises.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub fn new(
        topology: Arc<Topology>,
        partition: Partition,
        ids: PrimaryMap<Pe, PeId>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        Ok(UngroupedElements::new(topology, budget)?.group(partition, ids))
    }

    /// Gives the ports of these PEs their ids, and computes their threads. A port keeps the id that `prior` has for it.
    /// No new port gets an id that is `in_use`.
    pub(crate) fn number(
        &mut self,
        pes: &[Pe],
        graph: &Graph<'_>,
        prior: Option<&dyn PriorPorts>,
        in_use: &InUse,
        budget: &Budget,
    ) -> Result<(), Error> {
        pes.iter().for_each(|&pe| self.forget(pe));
        let most = if budget.is_worth_a_helper(pes.len()) { LARGEST_WAVE } else { SMALLEST_WAVE };
        let (mut rest, mut pace) = (pes, budget.pace());
        while !rest.is_empty() {
            let (wave, others) = self.wave(rest, graph, most);
            rest = others;
            let unnumbered = &*self;
            let some = |positions: Range<usize>| -> Result<Vec<_>, Error> {
                let mut pace = budget.pace();
                let some = wave.get(positions).unwrap_or_default().iter();
                some.map(|&pe| {
                    let ports = PortIds::of(unnumbered, pe, graph, prior, in_use, &mut pace)?;
                    Ok((ports, fuser::threads(graph, &unnumbered.partition, pe, &mut pace)?))
                })
                .collect()
            };
            let numbers = budget.in_chunks(wave.len(), some)?;
            for (&pe, (ports, threads)) in wave.iter().zip(numbers) {
                pace.steps(u32::try_from(threads.len() + ports.len()).unwrap_or(u32::MAX))?;
                ports.set(self);
                self.set_threads(pe, &threads);
            }
        }
        Ok(())
    }

    /// The first of these PEs, at least one, which have at most so many operators and connections together; and the
    /// others.
    fn wave<'p>(&self, pes: &'p [Pe], graph: &Graph<'_>, most: usize) -> (&'p [Pe], &'p [Pe]) {
        let mut size = 0_usize;
        let fits = |pe: &&Pe| {
            size += self.members(**pe).iter().map(|&node| 1 + graph.degree(node) as usize).sum::<usize>();
            size <= most
        };
        let count = pes.iter().take_while(fits).count().max(1);
        pes.split_at(count.min(pes.len()))
    }

    /// Clears the port ids and threads of a PE.
    fn forget(&mut self, pe: Pe) {
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

    /// Stores the threads of a PE, which [`crate::fuser::threads`] computed.
    fn set_threads(&mut self, pe: Pe, threads: &[OperatorThreads]) {
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

    /// Gives a PE input port its id.
    fn set_input_id(&mut self, port: PeInput, id: u32) {
        let input = self.input(port.operator, port.port);
        self.inputs[input].pe_port = id;
    }

    /// Gives a PE output port its id.
    fn set_output_id(&mut self, port: PeOutput, id: u32) {
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

    pub(crate) fn flags(&self, operator: Node) -> OperatorFlags {
        self.flags[operator]
    }

    pub(crate) fn threaded_port(&self, operator: Node, port: u32) -> Option<ThreadedPort> {
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
    pub(crate) fn input_id(&self, operator: Node, port: u32) -> u32 {
        self.inputs[self.input(operator, port)].pe_port
    }

    /// Id of the PE output port that a connection between PEs leaves by.
    pub(crate) fn output_id(&self, connection: &Connection) -> u32 {
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

    pub(crate) fn output_slots(&self, pe: Pe) -> impl Iterator<Item = (u32, PeOutput, Slot)> + '_ {
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
    pub(crate) fn slot(&self, operator: Node, port: u32, via: Option<Via>) -> Slot {
        // In a broken topology, a connection may name a splitter that does not exist. It counts as direct.
        let direct = || Slot(self.outputs[self.output(operator, port)].first_slot);
        self.existing_slot(operator, port, via).unwrap_or_else(direct)
    }

    /// The same, if there is such a channel.
    fn existing_slot(&self, operator: Node, port: u32, via: Option<Via>) -> Option<Slot> {
        let Some(via) = via else { return Some(Slot(self.outputs[self.output(operator, port)].first_slot)) };
        let splitter = self.splitter(operator, port, via.splitter).filter(|splitter| via.channel < splitter.width)?;
        Some(Slot(splitter.first_slot + via.channel))
    }

    /// Whether connections leave through channels of a splitter. Those of splitters under it do not count.
    pub(crate) fn has_connections(&self, operator: Node, port: u32, splitter: u32) -> bool {
        self.splitter(operator, port, splitter).is_some_and(|splitter| {
            let (first, width) = (splitter.first_slot as usize, splitter.width as usize);
            // Connections are counted in order of slots.
            self.outgoing_start[first] < self.outgoing_start[first + width]
        })
    }

    fn slot_of(&self, connection: &Connection) -> Slot {
        self.slot(connection.source, connection.source_port, connection.via())
    }

    /// Connections that leave through a slot, by target.
    pub(crate) fn outgoing(&self, slot: Slot) -> impl ExactSizeIterator<Item = &Connection> + Clone {
        let at = slot.0 as usize;
        let range = self.outgoing_start[at] as usize..self.outgoing_start[at + 1] as usize;
        self.outgoing[range].iter().map(|&number| &self.topology.connections[number as usize])
    }

    /// Connections into an input port, by source.
    pub(crate) fn incoming(&self, operator: Node, port: u32) -> impl ExactSizeIterator<Item = &Connection> + Clone {
        let at = self.input(operator, port);
        let range = self.incoming_start[at] as usize..self.incoming_start[at + 1] as usize;
        self.incoming[range].iter().map(|&number| &self.topology.connections[number as usize])
    }

    /// Connections that begin at an operator, by port and target.
    pub(crate) fn leaving(&self, operator: Node) -> &[Connection] {
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

    fn splitter(&self, operator: Node, port: u32, index: u32) -> Option<&SplitterSlots> {
        let splitters = self.splitters_of(&self.outputs[self.output(operator, port)]);
        let found = splitters.binary_search_by_key(&index, |splitter| splitter.index).ok()?;
        splitters.get(found)
    }

    fn splitters_of(&self, output: &Output) -> &[SplitterSlots] {
        let first = output.first_splitter as usize;
        &self.splitters[first..first + output.splitters as usize]
    }
}
