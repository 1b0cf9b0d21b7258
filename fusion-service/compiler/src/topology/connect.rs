//! Connections and splitters of output ports (rules expansion-15 and expansion-16).
//!
//! [`super::links`] has found the ends that each port reaches. This module turns them into connections for every copy
//! of the port: a splitter adds a digit to the global channel, a merger removes one. The order matters. Of two paths
//! between the same two ports the last one counts, and splitters are numbered in pre-order.
//!
//! A walk over ends takes time, in every channel again, also where it makes nothing. So its steps are counted before,
//! like what it makes. What is still to be walked over is a range of channels, however many these are.
//!
//! Knows: ends that ports reach, copies of ports. Must not know: how ends were found, PEs.

use super::copies::Copies;
use super::count::Count;
use super::links::{End, Links, Reach};
use super::shape::Shape;
use super::wiring::SplitterId;
use super::{Connection, Merger, Node, Splitter, Via};
use crate::budget::{Budget, Pace};
use crate::error::{Error, Problems};
use crate::logical::{OperatorId, OperatorKind, SplitterKind};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};
use std::ops::Range;
use std::sync::Arc;

/// For each output port and each of its connections in the ADL: what lies behind it.
pub(super) type Outputs = Vec<Vec<Reach>>;

/// What lies behind the output ports of all primitives, and the mergers before their input ports.
pub(super) struct ReachedPorts {
    /// Output ports by operator.
    pub(super) outputs: SecondaryMap<OperatorId, Outputs>,
    /// Mergers before input ports, by operator.
    pub(super) mergers: SecondaryMap<OperatorId, Vec<Arc<[Merger]>>>,
    /// Whether each splitter is fed by a merger.
    drop_window_punctuation: SecondaryMap<SplitterId, bool>,
    /// Number of connections, duplicates included.
    pub(super) connections: u64,
}

impl ReachedPorts {
    /// Follows all ports of primitive operators that have copies, and counts their connections, splitters, channels of
    /// splitters and steps to these. Adds connections that cannot be followed, and counts above the limit, to the
    /// problems.
    pub(super) fn follow(
        shape: &Shape<'_>,
        links: &mut Links<'_, '_>,
        budget: &Budget,
        problems: &mut Problems,
    ) -> Result<Self, Error> {
        let mut ports = Self {
            outputs: SecondaryMap::new(),
            mergers: SecondaryMap::new(),
            drop_window_punctuation: SecondaryMap::new(),
            connections: 0,
        };
        let [mut connections, mut splitters, mut channels, mut steps] = [Count::default(); 4];
        let mut pace = budget.pace();
        for (id, operator) in shape.application.operators.iter() {
            pace.step()?;
            let OperatorKind::Primitive(primitive) = &operator.kind else { continue };
            for position in 0..primitive.outputs.len() {
                pace.step()?;
                let reached = problems.keep(links.follow_output(id, position, budget))?.unwrap_or_default();
                ports.outputs[id].push(reached);
            }
            // A share is that of an operator, with all its ports.
            let copies = u64::from(shape.scopes[shape.scope_of[id]].channels);
            let outputs = &ports.outputs[id];
            let sum = |of: fn(&Reach) -> u64| outputs.iter().flatten().map(of).fold(0, u64::saturating_add);
            connections.add(id, sum(|reach| reach.connections), copies);
            splitters.add(id, sum(|reach| reach.nested_splitters), copies);
            channels.add(id, sum(|reach| reach.channels), copies);
            // Each channel looks also at a connection behind which there is nothing.
            steps.add(id, sum(|reach| reach.steps.max(1)), copies);
        }
        ports.connections = connections.total();
        let limits = &budget.limits;
        for (count, what, most) in [
            (connections, "connections", limits.connections),
            (splitters, "splitters, with those that they are under,", limits.splitters()),
            (channels, "channels of splitters", limits.channels()),
            (steps, "steps from output ports to what they reach", limits.steps()),
        ] {
            problems.keep(count.check(shape.application, what, most))?;
        }
        if !problems.is_empty() {
            // Following links upstream would only find the same problems again.
            return Ok(ports);
        }
        for (id, operator) in shape.application.operators.iter() {
            pace.step()?;
            let OperatorKind::Primitive(primitive) = &operator.kind else { continue };
            for position in 0..primitive.inputs.len() {
                pace.step()?;
                let before = problems.keep(links.mergers_before(id, position, budget))?.unwrap_or_default();
                let regions = &shape.application.regions;
                let mergers = before.iter().flat_map(|mergers| {
                    (0..).zip(mergers).map(|(index, region)| Merger { index, region: regions[*region].index })
                });
                ports.mergers[id].push(mergers.collect());
            }
        }
        for id in shape.splitters.keys() {
            pace.step()?;
            let fed_by_merger = problems.keep(links.fed_by_merger(id, budget))?;
            ports.drop_window_punctuation[id] = fed_by_merger.unwrap_or_default();
        }
        Ok(ports)
    }
}

/// A port with fewer connections is sorted once. Any number of connections may lead to the same few ports, so of a port
/// with more those that others overwrite are dropped while it is connected.
const SORT_FROM: usize = 1 << 16;

/// Makes the connections of output ports, one port after the other.
pub(super) struct Connector<'r, 's, 'a> {
    shape: &'s Shape<'a>,
    links: &'r Links<'s, 'a>,
    ports: &'r ReachedPorts,
    copies: &'r Copies,
    /// All connections so far.
    pub(super) connections: Vec<Connection>,
    /// The port that is being connected.
    source: (Node, u32),
    /// Where its connections begin.
    start: usize,
    /// How many connections there are when they are next sorted before the port is done.
    sort_at: usize,
    /// Splitters of that port, in pre-order, with the splitter and channel that each is nested in.
    splitters: Vec<(Splitter, Option<(usize, u32)>)>,
    work: Vec<PendingWork<'r>>,
}

/// A step that is still to be done for a port.
enum PendingWork<'r> {
    /// Number the splitters behind ends.
    Split { walk: Walk<'r>, under: Option<(usize, u32)> },
    /// Connect a channel of a splitter and those after it.
    Channel { splitter: SplitterId, number: usize, channel: u32, next: u32 },
}

/// A walk over ends, in one global channel after the other.
struct Walk<'r> {
    ends: &'r [End],
    /// Position of the next end.
    next: usize,
    channels: Range<u32>,
}

impl<'r> Walk<'r> {
    fn new(ends: &'r [End], channels: Range<u32>) -> Self {
        Self { ends, next: 0, channels }
    }
}

impl Iterator for Walk<'_> {
    type Item = (End, u32);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.ends.len() {
            self.channels.next();
            self.next = 0;
        }
        if self.channels.is_empty() {
            return None;
        }
        let end = *self.ends.get(self.next)?;
        self.next += 1;
        Some((end, self.channels.start))
    }
}

/// The global channels of a region, of this width, that are in one global channel of what is around it.
fn inside(channel: u32, width: u32) -> Range<u32> {
    channel * width..(channel + 1) * width
}

/// One global channel.
fn only(channel: u32) -> Range<u32> {
    channel..channel + 1
}

/// The result for one port: its outermost splitters, and the Export behind it with its global channel.
pub(super) struct Connected {
    pub(super) splitters: Vec<Splitter>,
    pub(super) export: Option<(OperatorId, u32)>,
}

impl<'r, 's, 'a> Connector<'r, 's, 'a> {
    pub(super) fn new(
        shape: &'s Shape<'a>,
        links: &'r Links<'s, 'a>,
        ports: &'r ReachedPorts,
        copies: &'r Copies,
    ) -> Self {
        Self {
            shape,
            links,
            ports,
            copies,
            connections: Vec::with_capacity(usize::try_from(ports.connections).unwrap_or_default()),
            source: (Node::new(0), 0),
            start: 0,
            sort_at: SORT_FROM,
            splitters: Vec::new(),
            work: Vec::new(),
        }
    }

    /// Connects an output port of an operator in a global channel. Ports come in ascending order.
    pub(super) fn connect(
        &mut self,
        source: Node,
        (id, position): (OperatorId, usize),
        channel: u32,
        pace: &mut Pace<'_>,
    ) -> Result<Connected, Error> {
        let ports = self.ports;
        self.start = self.connections.len();
        self.sort_at = self.start + SORT_FROM;
        self.source = (source, u32::try_from(position).unwrap_or(u32::MAX));
        self.splitters.clear();
        let mut export = None;
        for reach in ports.outputs[id].get(position).into_iter().flatten() {
            pace.step()?;
            if reach.destinations > 0 || reach.exports {
                let found = self.destinations(&reach.ends, channel, None, pace)?;
                // A later connection of the ADL overwrites an earlier one (rule expansion-27).
                export = found.or(export);
            }
            if reach.splitters > 0 {
                self.work.push(PendingWork::Split { walk: Walk::new(&reach.ends, only(channel)), under: None });
                self.split(pace)?;
            }
        }
        self.sort_port(pace)?;
        Ok(Connected { splitters: self.assemble(), export })
    }

    /// Makes the connections that need no splitter. Returns the first Export.
    fn destinations(
        &mut self,
        ends: &'r [End],
        channel: u32,
        via: Option<Via>,
        pace: &mut Pace<'_>,
    ) -> Result<Option<(OperatorId, u32)>, Error> {
        let (shape, links) = (self.shape, self.links);
        let mut export = None;
        let mut walk = Walk::new(ends, only(channel));
        // Walks that were left for what is behind one of their ends.
        let mut around: Vec<Walk<'r>> = Vec::new();
        loop {
            pace.step()?;
            let Some((end, channel)) = walk.next() else {
                let Some(left) = around.pop() else { return Ok(export) };
                walk = left;
                continue;
            };
            let behind = match end {
                End::Port(id, port) => {
                    let target = self.copies.node(id, channel);
                    self.connections.extend(target.map(|target| Connection::new(self.source, (target, port), via)));
                    self.sort_if_grown(pace)?;
                    continue;
                }
                End::Export(id) => {
                    export = export.or(Some((id, channel)));
                    continue;
                }
                End::Merger(id) => {
                    let reach = links.merger(id);
                    let outside = channel / shape.width(shape.mergers[id].region);
                    (reach.destinations > 0 || reach.exports).then(|| Walk::new(&reach.ends, only(outside)))
                }
                End::Splitter(id) if shape.splitters[id].kind == SplitterKind::Broadcast => {
                    let reach = links.splitter(id);
                    let width = shape.width(shape.splitters[id].region);
                    (reach.destinations > 0).then(|| Walk::new(&reach.ends, inside(channel, width)))
                }
                End::Splitter(_) => None,
            };
            if let Some(behind) = behind {
                around.push(std::mem::replace(&mut walk, behind));
            }
        }
    }

    /// Makes the pending splitters and those nested in them.
    fn split(&mut self, pace: &mut Pace<'_>) -> Result<(), Error> {
        let (shape, links) = (self.shape, self.links);
        while let Some(work) = self.work.pop() {
            pace.step()?;
            let (mut walk, under) = match work {
                PendingWork::Split { walk, under } => (walk, under),
                PendingWork::Channel { splitter, number, channel, next } => {
                    self.channels((splitter, number), channel, next, pace)?;
                    continue;
                }
            };
            let Some((end, channel)) = walk.next() else { continue };
            self.work.push(PendingWork::Split { walk, under });
            match end {
                End::Port(..) | End::Export(_) => {}
                End::Merger(id) => {
                    let reach = links.merger(id);
                    if reach.splitters > 0 {
                        let outside = channel / shape.width(shape.mergers[id].region);
                        self.work.push(PendingWork::Split { walk: Walk::new(&reach.ends, only(outside)), under });
                    }
                }
                End::Splitter(id) => {
                    let reach = links.splitter(id);
                    let width = shape.width(shape.splitters[id].region);
                    if shape.splitters[id].kind == SplitterKind::Broadcast {
                        if reach.splitters > 0 {
                            let walk = Walk::new(&reach.ends, inside(channel, width));
                            self.work.push(PendingWork::Split { walk, under });
                        }
                    } else {
                        let number = self.splitters.len();
                        self.splitters.push((self.splitter(id, number, width), under));
                        if reach.connections > 0 || reach.splitters > 0 {
                            self.work.push(PendingWork::Channel { splitter: id, number, channel, next: 0 });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Connects the channels of a splitter from `next` on, up to the first channel with nested splitters.
    fn channels(
        &mut self,
        (splitter, number): (SplitterId, usize),
        channel: u32,
        next: u32,
        pace: &mut Pace<'_>,
    ) -> Result<(), Error> {
        let width = self.shape.width(self.shape.splitters[splitter].region);
        let links = self.links;
        let reach = links.splitter(splitter);
        let index = u32::try_from(number).unwrap_or(u32::MAX);
        if let [End::Port(id, port)] = reach.ends.as_slice() {
            // The usual case: each channel begins with one port of one operator.
            let targets = self.copies.from(*id, channel * width).iter().zip(0..width);
            let connection = |(target, channel): (&PackedOption<Node>, u32)| {
                let via = Via { splitter: index, channel };
                Some(Connection::new(self.source, (target.expand()?, *port), Some(via)))
            };
            self.connections.extend(targets.filter_map(connection));
            self.sort_if_grown(pace)?;
            return pace.steps(width);
        }
        for local in next..width {
            let inside = channel * width + local;
            if reach.destinations > 0 {
                self.destinations(&reach.ends, inside, Some(Via { splitter: index, channel: local }), pace)?;
            }
            if reach.splitters > 0 {
                self.work.push(PendingWork::Channel { splitter, number, channel, next: local + 1 });
                let walk = Walk::new(&reach.ends, only(inside));
                self.work.push(PendingWork::Split { walk, under: Some((number, local)) });
                return Ok(());
            }
        }
        Ok(())
    }

    fn splitter(&self, id: SplitterId, number: usize, width: u32) -> Splitter {
        let splitter = &self.shape.splitters[id];
        Splitter {
            index: u32::try_from(number).unwrap_or(u32::MAX),
            input_port: splitter.input_port,
            kind: splitter.kind,
            region: self.shape.application.regions[splitter.region].index,
            drop_window_punctuation: self.ports.drop_window_punctuation[id],
            attributes: splitter.attributes.clone(),
            width,
            nested: Vec::new(),
        }
    }

    /// Sorts the connections of the current port when there are twice as many as after the last time.
    fn sort_if_grown(&mut self, pace: &mut Pace<'_>) -> Result<(), Error> {
        if self.connections.len() >= self.sort_at {
            self.sort_port(pace)?;
            let left = self.connections.len() - self.start;
            self.sort_at = self.start + (2 * left).max(SORT_FROM);
        }
        Ok(())
    }

    /// Sorts the connections of the current port. Of several between the same ports, keeps the last one.
    fn sort_port(&mut self, pace: &mut Pace<'_>) -> Result<(), Error> {
        let target = |connection: &Connection| (connection.target, connection.target_port);
        let port = self.connections.get_mut(self.start..).unwrap_or_default();
        if port.is_sorted_by(|a, b| target(a) < target(b)) {
            return Ok(());
        }
        pace.steps(u32::try_from(port.len()).unwrap_or(u32::MAX))?;
        port.reverse();
        port.sort_by_key(target);
        let mut kept = 0;
        for position in 0..port.len() {
            if kept == 0 || target(&port[kept - 1]) != target(&port[position]) {
                port[kept] = port[position];
                kept += 1;
            }
        }
        self.connections.truncate(self.start + kept);
        Ok(())
    }

    /// All connections that were made.
    pub(super) fn into_connections(self) -> Vec<Connection> {
        let mut connections = self.connections;
        // There was room for those that others have overwritten.
        if connections.len() < connections.capacity() / 2 {
            connections.shrink_to_fit();
        }
        connections
    }

    /// Nests the splitters of a port.
    fn assemble(&mut self) -> Vec<Splitter> {
        let mut top = Vec::new();
        // Nested splitters come after the splitter around them. So, from the end, each splitter is complete when it is
        // taken.
        while let Some((mut splitter, under)) = self.splitters.pop() {
            splitter.nested.reverse();
            match under.and_then(|(number, channel)| Some((self.splitters.get_mut(number)?, channel))) {
                Some(((parent, _), channel)) => parent.nested.push((channel, splitter)),
                None => top.push(splitter),
            }
        }
        top.reverse();
        top
    }
}
