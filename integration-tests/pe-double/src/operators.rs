//! The operators of a PE: what becomes of a tuple or a marker within it, and what leaves it.
//!
//! Operators without inputs make numbered tuples. Operators between others hand on what they get, to everything that is
//! connected, through splitters. Operators without outputs count, by source and way, what arrives. A tuple that comes
//! back to an operator that it has passed ends there.
//!
//! Knows: connections within the PE, state, checkpoints. Must not know: sockets, time. Invariant: the same input gives
//! the same effects.

use crate::aadl::{Branch, Destination, Lane, Operator, Origin, Pe};
use crate::checkpoints::Checkpoints;
use crate::control::Report;
use crate::frame::{Frame, Marker, Tuple, Wave};
use crate::seen::Seen;
use crate::status::{OperatorStatus, RegionStatus, SinkStatus};
use crate::waves::Alignment;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Longest way of a tuple.
const HOPS: usize = 64;
/// Tuples that wait for a paused region, per operator.
const HELD: usize = 4096;
/// Sources and ways that an operator counts.
const COUNTED: usize = 1024;

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Send this over all connections of an output port.
    Send { port: u32, frame: Frame },
    /// Report this.
    Report(Report),
    /// Something went wrong.
    Problem(String),
}

/// The operators of a PE at work.
#[derive(Debug)]
pub(crate) struct Operators {
    job_id: u64,
    launch: u64,
    habits: Habits,
    operators: BTreeMap<u32, Worker>,
    inputs: BTreeMap<u32, Destination>,
    outputs: BTreeMap<Origin, Vec<u32>>,
    regions: BTreeMap<u32, Region>,
    checkpoints: Checkpoints,
}

/// What operators do of their own accord.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habits {
    /// Sources make so many tuples each, if there is a limit.
    pub(crate) limit: Option<u64>,
    /// A source that may begin to drain its region does so whenever it has made so many tuples; 0: never.
    pub(crate) drain_every: u64,
    /// An operator without outputs asks for a reset of its region whenever so many tuples have come to it since this PE
    /// was launched; 0: never.
    pub(crate) reset_every: u64,
    /// An operator with which a region starts rests until its checkpoint is complete, as in a call that waits for that.
    pub(crate) rests: bool,
}

#[derive(Debug)]
struct Worker {
    operator: Operator,
    /// Nothing leaves it.
    is_sink: bool,
    state: State,
    held: VecDeque<(u32, Tuple)>,
    circled: u64,
    refused: u64,
    /// Tuples that have come since the PE was launched; no reset takes that back.
    came: u64,
    /// How many tuples it had made when it drained its region, or where it went back to.
    drained_at: Option<u64>,
}

/// What a checkpoint keeps of an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    made: u64,
    taken: u64,
    /// Whose turn it is, by port and splitter.
    turns: BTreeMap<String, u64>,
    seen: Vec<Counted>,
}

/// What has arrived from one source on one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Counted {
    port: u32,
    source: String,
    path: Vec<String>,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Region {
    alignment: Alignment,
    /// States of operators that have turned, of the drain that runs.
    captured: BTreeMap<u32, State>,
    /// States to go back to, of the reset that runs.
    restored: Option<(u64, BTreeMap<u32, State>)>,
    resumed: Option<Wave>,
    /// It was told to go on, and rests until all checkpoints of the last drain are written.
    resting: Option<Wave>,
    /// The number of the next drain.
    sequence: u64,
    /// Checkpoints of the last drain are still being written: there is no other one until they are.
    is_pending: bool,
    status: RegionStatus,
}

/// What has come to an operator.
#[derive(Debug)]
enum Arrival {
    Tuple(Tuple),
    Marker(Marker),
}

impl Operators {
    /// The operators of a PE.
    pub(crate) fn new(pe: &Pe, launch: u64, habits: Habits, checkpoints: Checkpoints) -> Self {
        let mut outputs: BTreeMap<Origin, Vec<u32>> = BTreeMap::new();
        for port in &pe.outputs {
            outputs.entry(port.origin).or_default().push(port.id);
        }
        let mut regions: BTreeMap<u32, Region> = BTreeMap::new();
        let mut operators = BTreeMap::new();
        for operator in &pe.operators {
            if let Some(entry) = &operator.region {
                let region = regions.entry(entry.index).or_default();
                region.alignment.add(operator, entry.start, &entry.autonomous);
            }
            let connected =
                operator.outputs.iter().any(|branch| !branch.local.is_empty() || !branch.splitters.is_empty());
            let is_sink = !connected && !outputs.keys().any(|origin| origin.operator == operator.index);
            let (state, held) = (State::default(), VecDeque::new());
            let worker = Worker {
                operator: operator.clone(),
                is_sink,
                state,
                held,
                circled: 0,
                refused: 0,
                came: 0,
                drained_at: None,
            };
            operators.insert(operator.index, worker);
        }
        for (index, region) in &mut regions {
            // A PE that has run before does not know how far it was: it waits until it is told.
            region.status.paused = launch > 1 && region.alignment.starts_here();
            region.status.kept = checkpoints.kept(*index);
            region.sequence = 1;
        }
        let inputs = pe.inputs.iter().map(|port| (port.id, port.destination)).collect();
        Self { job_id: pe.job_id, launch, habits, operators, inputs, outputs, regions, checkpoints }
    }

    /// Operators that make tuples.
    pub(crate) fn sources(&self) -> Vec<u32> {
        let sources = self.operators.iter().filter(|(_, worker)| worker.operator.inputs.is_empty() && !worker.is_sink);
        sources.map(|(index, _)| *index).collect()
    }

    /// Regions that the PE is in.
    pub(crate) fn regions(&self) -> impl Iterator<Item = u32> {
        self.regions.keys().copied()
    }

    /// A source makes its next tuple, unless it may not.
    pub(crate) fn make(&mut self, source: u32) -> Vec<Effect> {
        let Some(worker) = self.operators.get_mut(&source) else { return Vec::new() };
        let region = worker.operator.region.as_ref().and_then(|entry| self.regions.get(&entry.index));
        let over = self.habits.limit.is_some_and(|limit| worker.state.made >= limit);
        if over || region.is_some_and(|region| region.status.paused) {
            return Vec::new();
        }
        let is_in_region = region.is_some();
        if let Some(region) = self.wants_to_drain(source) {
            return self.begin_to_drain(source, region);
        }
        let Some(worker) = self.operators.get_mut(&source) else { return Vec::new() };
        // In a region the numbers go on where the checkpoint was; elsewhere each launch counts anew.
        let launch = if is_in_region { String::new() } else { format!("#{}", self.launch) };
        let tuple = Tuple {
            source: format!("{}/{}{launch}", self.job_id, worker.operator.name),
            number: worker.state.made,
            path: Vec::new(),
        };
        worker.state.made += 1;
        let mut work = Work::default();
        self.leave(source, None, tuple, &mut work);
        self.run(work)
    }

    /// The region that a source drains before it makes another tuple.
    fn wants_to_drain(&self, source: u32) -> Option<u32> {
        let worker = self.operators.get(&source)?;
        let entry = worker.operator.region.as_ref().filter(|entry| entry.start && entry.trigger)?;
        let made = worker.state.made;
        let is_time = made > 0 && made.checked_rem(self.habits.drain_every) == Some(0);
        (is_time && worker.drained_at != Some(made)).then_some(entry.index)
    }

    /// As the runtime does, it begins at once, and says so; nobody tells it to.
    fn begin_to_drain(&mut self, source: u32, index: u32) -> Vec<Effect> {
        let (Some(region), Some(worker)) = (self.regions.get(&index), self.operators.get_mut(&source)) else {
            return Vec::new();
        };
        if region.is_pending {
            return Vec::new();
        }
        worker.drained_at = Some(worker.state.made);
        let seq = region.sequence;
        self.tell(index, Wave::Drain { seq })
    }

    /// All checkpoints are written that were still being written when it was told to go on.
    pub(crate) fn all_is_written(&mut self, index: u32) -> Vec<Effect> {
        let Some(region) = self.regions.get_mut(&index) else { return Vec::new() };
        region.is_pending = false;
        let mut work = Work::default();
        if let Some(wave) = region.resting.take() {
            self.resume(index, wave, &mut work);
        }
        self.run(work)
    }

    /// Something has come to an input port of the PE.
    pub(crate) fn arrive(&mut self, port: u32, frame: Frame) -> Vec<Effect> {
        let Some(destination) = self.inputs.get(&port).copied() else { return Vec::new() };
        let arrival = match frame {
            Frame::Tuple(tuple) => Arrival::Tuple(tuple),
            Frame::Marker(marker) => Arrival::Marker(marker),
            Frame::Hello(_) => return Vec::new(),
        };
        let mut work = Work::default();
        work.open.push_back((destination, arrival));
        self.run(work)
    }

    /// The region is told to drain or to reset, or that it goes on. Only a PE in which it starts acts.
    pub(crate) fn tell(&mut self, region: u32, wave: Wave) -> Vec<Effect> {
        let Some(told) = self.regions.get_mut(&region).filter(|told| told.alignment.starts_here()) else {
            return Vec::new();
        };
        let mut work = Work::default();
        let rests = self.habits.rests;
        told.resting = None;
        if let Wave::Resume { seq, retire, pending: true } = wave
            && rests
        {
            (told.sequence, told.is_pending) = (seq, true);
            // When it goes on, nothing is written any more.
            told.resting = Some(Wave::Resume { seq, retire, pending: false });
        } else if matches!(wave, Wave::Resume { .. }) {
            self.resume(region, wave, &mut work);
        } else {
            let turning = told.alignment.begin(wave);
            if !turning.is_empty() {
                told.status.paused = true;
            }
            for operator in turning {
                self.turn(region, operator, wave, &mut work);
            }
        }
        self.run(work)
    }

    /// Says something of a region.
    pub(crate) fn note(&mut self, region: u32, note: impl FnOnce(&mut RegionStatus)) {
        if let Some(region) = self.regions.get_mut(&region) {
            note(&mut region.status);
        }
    }

    fn run(&mut self, mut work: Work) -> Vec<Effect> {
        while let Some((destination, arrival)) = work.open.pop_front() {
            match arrival {
                Arrival::Tuple(tuple) => self.take(destination, tuple, &mut work),
                Arrival::Marker(marker) => self.mark(destination, marker, &mut work),
            }
        }
        work.effects
    }

    fn take(&mut self, at: Destination, tuple: Tuple, work: &mut Work) {
        let Some(worker) = self.operators.get_mut(&at.operator) else { return };
        let entry = worker.operator.region.as_ref().filter(|entry| entry.start);
        let paused = entry.and_then(|entry| self.regions.get(&entry.index)).is_some_and(|region| region.status.paused);
        if paused {
            if worker.held.len() < HELD {
                worker.held.push_back((at.port, tuple));
            } else {
                worker.refused += 1;
            }
            return;
        }
        let name = format!("{}:{}", self.job_id, worker.operator.logical_name);
        if tuple.path.len() >= HOPS || tuple.path.iter().any(|passed| passed.split(['<', '>']).next() == Some(&name)) {
            worker.circled += 1;
            return;
        }
        worker.state.taken += 1;
        if !worker.is_sink {
            return self.leave(at.operator, Some(at.port), tuple, work);
        }
        worker.came += 1;
        if let Some(entry) = &worker.operator.region
            && worker.came.checked_rem(self.habits.reset_every) == Some(0)
        {
            let (region, operator) = (entry.index, worker.operator.name.clone());
            work.effects.push(Effect::Report(Report::ResetWanted { region, operator }));
            if let Some(region) = self.regions.get_mut(&region) {
                region.status.resets_wanted += 1;
            }
        }
        let Tuple { source, number, path } = tuple;
        let all = &mut worker.state.seen;
        let is_it = |counted: &Counted| counted.port == at.port && counted.source == source && counted.path == path;
        if let Some(counted) = all.iter_mut().find(|counted| is_it(counted)) {
            counted.seen.add(number);
        } else if all.len() < COUNTED {
            let mut seen = Seen::default();
            seen.add(number);
            all.push(Counted { port: at.port, source, path, seen });
        } else {
            worker.refused += 1;
        }
    }

    /// A tuple leaves an operator over all its output ports.
    fn leave(&mut self, index: u32, input: Option<u32>, tuple: Tuple, work: &mut Work) {
        let Some(worker) = self.operators.get_mut(&index) else { return };
        for (port, branch) in (0..).zip(&worker.operator.outputs) {
            let mut tuple = tuple.clone();
            let mut name = format!("{}:{}", self.job_id, worker.operator.logical_name);
            // Two ways between the same operators are two ways.
            if let Some(input) = input.filter(|input| *input > 0) {
                name.push_str(&format!("<{input}"));
            }
            if port > 0 {
                name.push_str(&format!(">{port}"));
            }
            tuple.path.push(name);
            let mut left = vec![(Origin { operator: index, port, lane: None }, branch)];
            while let Some((origin, branch)) = left.pop() {
                for destination in &branch.local {
                    work.open.push_back((*destination, Arrival::Tuple(tuple.clone())));
                }
                for id in self.outputs.get(&origin).into_iter().flatten() {
                    work.effects.push(Effect::Send { port: *id, frame: Frame::Tuple(tuple.clone()) });
                }
                for splitter in &branch.splitters {
                    let turn = worker.state.turns.entry(format!("{port}.{}", splitter.index)).or_default();
                    let chosen = if splitter.by_key { tuple.number } else { *turn };
                    *turn = turn.wrapping_add(1);
                    let width = splitter.channels.len().max(1) as u64;
                    let chosen = usize::try_from(chosen % width).unwrap_or_default();
                    if let (Some(branch), Ok(channel)) = (splitter.channels.get(chosen), u32::try_from(chosen)) {
                        let lane = Some(Lane { splitter: splitter.index, channel });
                        left.push((Origin { operator: index, port, lane }, branch));
                    }
                }
            }
        }
    }

    fn mark(&mut self, at: Destination, marker: Marker, work: &mut Work) {
        let is_member =
            |worker: &Worker| worker.operator.region.as_ref().is_some_and(|entry| entry.index == marker.region);
        if !self.operators.get(&at.operator).is_some_and(is_member) {
            return;
        }
        if matches!(marker.wave, Wave::Resume { .. }) {
            return self.resume(marker.region, marker.wave, work);
        }
        let Some(region) = self.regions.get_mut(&marker.region) else { return };
        if region.alignment.arrive(at.operator, at.port, marker.origin, marker.wave) {
            self.turn(marker.region, at.operator, marker.wave, work);
        }
    }

    /// An operator makes its part of the checkpoint, or goes back to it, and sends markers on.
    fn turn(&mut self, index: u32, operator: u32, wave: Wave, work: &mut Work) {
        let Self { regions, operators, checkpoints, .. } = self;
        let (Some(region), Some(worker)) = (regions.get_mut(&index), operators.get_mut(&operator)) else { return };
        match wave {
            Wave::Drain { seq } => {
                region.captured.insert(operator, worker.state.clone());
                // The runtime says so for each operator with which the region starts, whoever has asked for the drain.
                if worker.operator.region.as_ref().is_some_and(|entry| entry.start) {
                    let operator = worker.operator.name.clone();
                    work.effects.push(Effect::Report(Report::DrainBegun { region: index, seq, operator }));
                }
            }
            Wave::Reset { seq, .. } => {
                if region.restored.as_ref().is_none_or(|(restored, _)| *restored != seq) {
                    let states = if seq == 0 { Ok(BTreeMap::new()) } else { checkpoints.read(index, seq) };
                    match states {
                        Ok(states) => region.restored = Some((seq, states)),
                        // Without a report the region tries again or gives up.
                        Err(error) => return work.effects.push(Effect::Problem(format!("{error:#}"))),
                    }
                }
                let states = region.restored.as_ref().map(|(_, states)| states);
                worker.state = states.and_then(|states| states.get(&operator)).cloned().unwrap_or_default();
                worker.drained_at = Some(worker.state.made);
                region.is_pending = false;
            }
            Wave::Resume { .. } => return,
        }
        self.send_markers(index, operator, wave, work);
        let Some(region) = self.regions.get_mut(&index) else { return };
        if region.alignment.turned(operator)
            && let Err(error) = done(region, &self.checkpoints, index, wave, work)
        {
            work.effects.push(Effect::Problem(format!("{error:#}")));
        }
    }

    /// It goes on: the PE tells all that follow, once, and forgets the checkpoint that is of no use any more.
    fn resume(&mut self, index: u32, wave: Wave, work: &mut Work) {
        let Some(region) = self.regions.get_mut(&index).filter(|region| region.resumed != Some(wave)) else { return };
        region.resumed = Some(wave);
        region.status.paused = false;
        if let Wave::Resume { seq, retire, pending } = wave {
            (region.sequence, region.is_pending) = (seq, pending);
            self.checkpoints.remove(index, retire);
            region.status.kept = self.checkpoints.kept(index);
        }
        let members: Vec<u32> = region.alignment.members().collect();
        for operator in members {
            self.send_markers(index, operator, wave, work);
            let held = self.operators.get_mut(&operator).map(|worker| std::mem::take(&mut worker.held));
            let held = held.unwrap_or_default().into_iter();
            work.open.extend(held.map(|(port, tuple)| (Destination { operator, port }, Arrival::Tuple(tuple))));
        }
    }

    /// Sends a marker over all connections of an operator, of all channels.
    fn send_markers(&self, region: u32, index: u32, wave: Wave, work: &mut Work) {
        let Some(worker) = self.operators.get(&index) else { return };
        for (port, branch) in (0..).zip(&worker.operator.outputs) {
            let mut left: Vec<(Origin, &Branch)> = vec![(Origin { operator: index, port, lane: None }, branch)];
            while let Some((origin, branch)) = left.pop() {
                let marker = Marker { region, wave, origin };
                for destination in &branch.local {
                    work.open.push_back((*destination, Arrival::Marker(marker.clone())));
                }
                for id in self.outputs.get(&origin).into_iter().flatten() {
                    work.effects.push(Effect::Send { port: *id, frame: Frame::Marker(marker.clone()) });
                }
                for splitter in &branch.splitters {
                    for (channel, branch) in (0..).zip(&splitter.channels) {
                        let lane = Some(Lane { splitter: splitter.index, channel });
                        left.push((Origin { operator: index, port, lane }, branch));
                    }
                }
            }
        }
    }

    /// What the status page says of the operators.
    pub(crate) fn status(&self) -> (Vec<OperatorStatus>, Vec<SinkStatus>, BTreeMap<u32, RegionStatus>) {
        let operators = self.operators.values().map(|worker| OperatorStatus {
            index: worker.operator.index,
            name: worker.operator.name.clone(),
            made: worker.state.made,
            taken: worker.state.taken,
            circled: worker.circled,
            refused: worker.refused,
        });
        let sinks = self.operators.values().flat_map(|worker| {
            worker.state.seen.iter().map(|counted| SinkStatus {
                operator: worker.operator.name.clone(),
                port: counted.port,
                source: counted.source.clone(),
                path: counted.path.join(" "),
                received: counted.seen.received,
                highest: counted.seen.highest().unwrap_or_default(),
                lost: counted.seen.lost(),
                doubled: counted.seen.doubled,
                late: counted.seen.late,
            })
        });
        let regions = self.regions.iter().map(|(index, region)| (*index, region.status.clone()));
        (operators.collect(), sinks.collect(), regions.collect())
    }
}

/// What is left to do in a run.
#[derive(Debug, Default)]
struct Work {
    open: VecDeque<(Destination, Arrival)>,
    effects: Vec<Effect>,
}

/// All operators of the PE have turned.
fn done(region: &mut Region, checkpoints: &Checkpoints, index: u32, wave: Wave, work: &mut Work) -> Result<()> {
    match wave {
        Wave::Drain { seq } => {
            checkpoints.write(index, seq, &std::mem::take(&mut region.captured))?;
            region.status.checkpoint = Some(seq);
            region.status.checkpoints += 1;
            work.effects.push(Effect::Report(Report::Checkpoint { region: index, seq }));
        }
        Wave::Reset { seq, attempt } => {
            region.restored = None;
            region.captured.clear();
            // Of drains that did not come to an end.
            checkpoints
                .kept(index)
                .into_iter()
                .filter(|kept| *kept > seq)
                .for_each(|kept| checkpoints.remove(index, kept));
            region.status.reset = Some((seq, attempt));
            region.status.resets += 1;
            work.effects.push(Effect::Report(Report::Reset { region: index, seq, attempt }));
        }
        Wave::Resume { .. } => {}
    }
    region.status.kept = checkpoints.kept(index);
    Ok(())
}
