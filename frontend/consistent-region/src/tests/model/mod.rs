//! A model checker looks at every short history of a region: PEs that crash, pods that are taken away while they run,
//! connections that break and come back, messages and reports that are lost or come twice, a frontend that dies between
//! storing a state and sending the message, or with it all that PEs report meanwhile, PEs and people who ask for
//! resets, and people who delete the region, which is made again.
//!
//! What is asked of every state that can be reached:
//!
//! * No tuple is lost or doubled: the checkpoints of all PEs that a reset goes back to belong together, and while the
//!   region is driven, the sink has got what the sources have sent.
//! * The checkpoint that a reset goes back to is there.
//! * No region is stuck: if there are no faults from here on, tuples are processed again, or the attempts to reset are
//!   used up. The properties of the checker that are called `eventually` overlook circles, so this is one that always
//!   holds: from every state, one history without faults is followed to its end.
//! * Whoever takes over waits for nothing that may be lost, but where tuples are processed meanwhile: from there on,
//!   the history without faults has no time-out, in a region of one source.
//!
//! What is not in it: PEs of several regions, which hear of all of them by one document; a state that is lost without
//! notice, or replaced by an earlier one; and answers and datagrams none of which arrive, though together they count
//! for that (rule consistent-region-8): here all have seen what they must have seen.
//!
//! What is assumed of the network is rule consistent-region-7, and of what PEs tell of their connections rule
//! consistent-region-2: it is known before what they report after they have told it.

mod pe;

use super::{OPERATOR, operator_driven, periodic};
use crate::event::Event;
use crate::health::{Health, PeFacts, PodFacts, health};
use crate::message::Message;
use crate::metrics::Measured;
use crate::settings::{Settings, Trigger};
use crate::state::{Phase, State};
use crate::time::Time;
use crate::transition::step;
use parking_lot::Mutex;
use pe::{Call, Effects, Item, Pe};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is checked, and how far.
struct Region {
    settings: Settings,
    sources: usize,
    /// Whether checkpoints are written while tuples are processed again.
    is_asynchronous: bool,
    /// Sequence ids and tuples that histories end with.
    sequence_max: u64,
    tuples_max: u8,
    /// Faults, and other things that happen a few times at most.
    faults: u8,
    /// Whether it takes a while until the next reset may begin.
    has_pauses: bool,
    /// Hashes of states that are known not to be stuck.
    settled: Mutex<HashSet<u64>>,
    /// Hashes of states that are known not to be stuck though no time is ever up.
    settled_at_once: Mutex<HashSet<u64>>,
}

/// Everything there is: the stored state, PEs, and what is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    region: State,
    pes: Vec<Pe>,
    /// From each source to the sink.
    links: Vec<VecDeque<Item>>,
    /// From each PE to the frontend. A PE makes one call after the other.
    calls: Vec<VecDeque<Call>>,
    /// Calls that PEs have given up, or made again, and that arrive some time.
    late: BTreeSet<Call>,
    /// Faults that may still come.
    faults: u8,
    violation: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Emit(usize),
    Transfer(usize),
    FinishWriting(usize),
    OperatorDrains,
    See(usize),
    Deliver(usize),
    Lose(usize),
    Delay(usize),
    Double(usize),
    DeliverLate(Call),
    /// The connection of a source breaks, with what is on its way.
    Break(usize),
    Heal(usize),
    Crash(usize),
    /// Its pod is deleted while the region is reset: then that is no failure of the reset.
    TakeAway(usize),
    Relaunch(usize),
    Observe,
    SeenByAll,
    Time,
    /// Enough time passes since a reset has begun.
    Pause,
    TakeOver {
        are_reports_lost: bool,
    },
    Reset {
        is_forced: bool,
    },
    /// Somebody deletes the region, and it is made again.
    Replace,
}

impl Region {
    fn new(settings: Settings, is_asynchronous: bool) -> Self {
        let settings = Settings { max_consecutive_reset_attempts: 1, ..settings };
        Self {
            settings,
            sources: 1,
            is_asynchronous,
            sequence_max: 3,
            tuples_max: 1,
            faults: 2,
            has_pauses: false,
            settled: Mutex::default(),
            settled_at_once: Mutex::default(),
        }
    }

    fn sink(&self) -> usize {
        self.sources
    }

    fn is_operator_driven(&self) -> bool {
        matches!(self.settings.trigger, Trigger::OperatorDriven { .. })
    }

    fn health(world: &World) -> Health {
        let facts = |pe: u64| {
            let pe = world.pes.iter().find(|known| known.member.pe == pe)?;
            let launch = pe.member.launch;
            let pod = Some(PodFacts { launch, is_running: pe.is_running, is_taken_away: pe.is_taken_away });
            let connected = pe.is_connected.then_some(launch);
            Some(PeFacts { launch, connected, interruptions: pe.interruptions, pod })
        };
        health(&world.pes.iter().map(|pe| pe.member.pe).collect(), facts)
    }

    /// The message that a source sees when it asks.
    fn shown(world: &World, source: usize) -> Option<Message> {
        let pe = &world.pes[source];
        world.region.message_for(pe.member.pe, pe.member.launch).filter(|message| pe.seen != Some(*message))
    }

    /// The region is told something.
    fn tell(&self, world: &mut World, event: &Event) {
        let now = match (event, world.region.deadline(&self.settings)) {
            (Event::Time, Some(deadline)) => deadline,
            _ => Time(0),
        };
        let taken = step(&self.settings, &world.region, event, now);
        assert!(taken.state.sequence >= world.region.sequence);
        assert!(taken.state.last_completed >= world.region.last_completed);
        assert!(taken.state.last_completed < taken.state.sequence);
        world.region = without_times(taken.state);
        if !self.has_pauses {
            world.region.reset_begun = None;
        }
    }

    /// How PEs are, if the region knows how they are connected in the launches that it drives, and has not learned yet
    /// that any of them has crashed. Nothing, if it drives none.
    fn known_connections(world: &World) -> Option<Health> {
        let launches = world.region.launches()?;
        let facts = |pe: u64| {
            let launch = launches.of(pe)?;
            let (is_connected, interruptions) = world.pes.iter().find(|it| it.member.pe == pe)?.connections(launch);
            let pod = Some(PodFacts { launch, is_running: true, is_taken_away: false });
            Some(PeFacts { launch, connected: is_connected.then_some(launch), interruptions, pod })
        };
        Some(health(&world.pes.iter().map(|pe| pe.member.pe).collect(), facts))
    }

    fn call(&self, world: &mut World, call: Call) {
        if let Some(health) = Self::known_connections(world) {
            self.tell(world, &Event::Health(health));
        }
        let event = match call {
            Call::Report(member, progress) => Event::Report(member, progress),
            Call::Drain(by, sequence) => Event::Drain { by, operator: OPERATOR.to_owned(), sequence },
        };
        self.tell(world, &event);
    }

    fn affect(&self, world: &mut World, pe: usize, effects: Effects) {
        if pe < self.sources && world.pes[pe].is_connected && world.pes[self.sink()].is_running {
            world.links[pe].extend(effects.items);
        }
        world.calls[pe].extend(effects.calls);
        world.violation = world.violation.or(effects.violation);
    }

    /// Every PE that acts on messages has got the one that the region waits for.
    fn is_seen_by_all(&self, world: &World) -> bool {
        let message = world.region.to_be_seen().map(|(message, _)| message);
        message.is_some() && world.pes.iter().take(self.sources).all(|source| source.seen == message)
    }

    /// Whether a timer leads to histories that are looked at.
    fn may_fire(&self, world: &World) -> bool {
        let is_drain = matches!(world.region.phase, Phase::Processing { .. }) && !world.region.is_reset_wanted;
        !is_drain || world.region.sequence <= self.sequence_max
    }

    fn is_timeout(world: &World) -> bool {
        !matches!(world.region.phase, Phase::Processing { .. }) && !world.region.is_reset_wanted
    }

    /// What happens next if there are no faults, and timers are slow.
    fn calm(&self, world: &World) -> Option<Action> {
        let first = |action: Option<Action>| action.into_iter();
        let sources = || 0..self.sources;
        let is_broken = |source: &usize| world.pes[*source].is_running && !world.pes[*source].is_connected;
        let mut actions = sources()
            .filter(is_broken)
            .map(Action::Heal)
            .chain(world.late.first().copied().map(Action::DeliverLate))
            .chain((0..=self.sources).filter(|pe| !world.calls[*pe].is_empty()).map(Action::Deliver))
            .chain(sources().filter(|source| self.can_see(world, *source)).map(Action::See))
            .chain(sources().filter(|source| self.can_transfer(world, *source)).map(Action::Transfer))
            .chain((0..=self.sources).filter(|pe| world.pes[*pe].writing.is_some()).map(Action::FinishWriting))
            .chain((0..=self.sources).filter(|pe| !world.pes[*pe].is_running).map(Action::Relaunch))
            .chain(first(self.can_observe(world).then_some(Action::Observe)))
            .chain(first(self.is_seen_by_all(world).then_some(Action::SeenByAll)))
            .chain(first(world.region.reset_begun.map(|_| Action::Pause)))
            .chain(first(self.has_timer(world).then_some(Action::Time)));
        actions.next()
    }

    fn can_see(&self, world: &World, source: usize) -> bool {
        world.pes[source].is_running && world.calls[source].is_empty() && Self::shown(world, source).is_some()
    }

    fn can_transfer(&self, world: &World, source: usize) -> bool {
        let is_tuple = matches!(world.links[source].front(), Some(Item::Tuple(_)));
        world.pes[self.sink()].is_running
            && !world.links[source].is_empty()
            && (is_tuple || world.calls[self.sink()].is_empty())
    }

    fn can_observe(&self, world: &World) -> bool {
        step(&self.settings, &world.region, &Event::Health(Self::health(world)), Time(0)).has_changed
    }

    fn has_timer(&self, world: &World) -> bool {
        world.region.deadline(&self.settings).is_some()
    }

    /// Whether a region has come to where it should.
    fn is_settled(&self, world: &World) -> bool {
        match &world.region.phase {
            Phase::Processing { launches, .. } => {
                Health::Healthy(launches.clone()) == Self::health(world)
                    && world.pes.iter().all(|pe| !pe.is_paused && !pe.must_reset)
            }
            Phase::MaximumResetAttemptsReached { .. } => true,
            _ => false,
        }
    }

    /// Follows the history without faults.
    fn settles(&self, world: &World, may_time_be_up: bool) -> bool {
        let known = if may_time_be_up { &self.settled } else { &self.settled_at_once };
        let mut passed = Vec::new();
        let mut world = world.clone();
        while !self.is_settled(&world) && !known.lock().contains(&hash(&world)) {
            let Some(action) = self.calm(&world) else { return false };
            if action == Action::Time && Self::is_timeout(&world) && !may_time_be_up {
                return false;
            }
            let next = self.take(&world, action);
            passed.push(hash(&world));
            world = next;
            if passed.len() > 200 || world.violation.is_some() {
                return false;
            }
        }
        known.lock().extend(passed);
        true
    }

    fn take(&self, last: &World, action: Action) -> World {
        let mut next = last.clone();
        let world = &mut next;
        match action {
            Action::Emit(source) => {
                world.pes[source].content.tuples[source] += 1;
                let item = Item::Tuple(world.pes[source].content.tuples[source]);
                self.affect(world, source, Effects { items: vec![item], ..Effects::default() });
            }
            Action::Transfer(source) => {
                if let Some(item) = world.links[source].pop_front() {
                    let sources = u8::try_from(self.sources).unwrap();
                    let effects = world.pes[self.sink()].receive(source, item, sources, self.is_asynchronous);
                    self.affect(world, self.sink(), effects);
                }
            }
            Action::FinishWriting(pe) => {
                let mut effects = Effects::default();
                world.pes[pe].finish_writing(&mut effects);
                self.affect(world, pe, effects);
            }
            Action::OperatorDrains => {
                let effects = world.pes[0].drain(self.is_asynchronous);
                self.affect(world, 0, effects);
            }
            Action::See(source) => {
                if let Some(message) = Self::shown(world, source) {
                    let effects = world.pes[source].see(message, self.is_asynchronous);
                    self.affect(world, source, effects);
                }
            }
            Action::Deliver(pe) => {
                if let Some(call) = world.calls[pe].pop_front() {
                    self.call(world, call);
                }
            }
            Action::Lose(pe) => {
                world.calls[pe].pop_front();
                world.faults -= 1;
            }
            Action::Delay(pe) => {
                world.late.extend(world.calls[pe].pop_front());
                world.faults -= 1;
            }
            Action::Double(pe) => {
                if let Some(call) = world.calls[pe].pop_front() {
                    world.late.insert(call);
                    world.faults -= 1;
                    self.call(world, call);
                }
            }
            Action::DeliverLate(call) => {
                world.late.remove(&call);
                self.call(world, call);
            }
            Action::Break(source) => {
                world.faults -= 1;
                world.links[source].clear();
                let pe = &mut world.pes[source];
                (pe.is_connected, pe.interruptions) = (false, pe.interruptions + 1);
            }
            Action::Heal(source) => world.pes[source].is_connected = true,
            Action::Crash(pe) | Action::TakeAway(pe) => {
                world.faults -= 1;
                world.pes[pe].crash();
                world.pes[pe].is_taken_away = matches!(action, Action::TakeAway(_));
                for source in (0..self.sources).filter(|source| *source == pe || pe == self.sink()) {
                    world.links[source].clear();
                }
            }
            Action::Relaunch(pe) => {
                world.pes[pe].is_running = true;
                world.pes[pe].launch_again();
            }
            Action::Observe => {
                let event = Event::Health(Self::health(world));
                self.tell(world, &event);
            }
            Action::Time => {
                if Self::is_timeout(world) {
                    world.faults = world.faults.saturating_sub(1);
                }
                self.tell(world, &Event::Time);
            }
            Action::SeenByAll => self.tell(world, &Event::SeenByAll),
            Action::Pause => world.region.reset_begun = None,
            Action::TakeOver { are_reports_lost } => {
                world.faults -= 1;
                if are_reports_lost {
                    world.calls.iter_mut().for_each(VecDeque::clear);
                }
                self.tell(world, &Event::TakenOver);
                // A checkpoint that is still being written costs nobody anything until its time is up.
                let may_wait = matches!(world.region.phase, Phase::CheckpointPending { complete: None, .. });
                // Where links meet, a marker of the drain may come between those of the reset, which then takes a
                // second attempt, whoever leads.
                if self.sources == 1 && !may_wait && world.violation.is_none() && !self.settles(world, false) {
                    world.violation = Some("whoever takes over waits for what may be lost");
                }
            }
            Action::Replace => {
                world.faults = world.faults.saturating_sub(1);
                let (sequence, attempt) = (world.region.sequence, world.region.attempt());
                // The clock counts faster than the region.
                world.region = State::after_lost(sequence + 1, attempt + 1);
            }
            Action::Reset { is_forced } => {
                world.faults = world.faults.saturating_sub(1);
                // People force resets, PEs ask for them.
                let by = (!is_forced).then(|| world.pes[self.sink()].member);
                self.tell(world, &Event::Reset { by, is_forced });
            }
        }
        next
    }
}

fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Moments and measurements do not matter to what comes next: timers may fire at any time.
fn without_times(mut state: State) -> State {
    state.measured = Measured::default();
    state.reset_begun = state.reset_begun.map(|_| Time(0));
    match &mut state.phase {
        Phase::Processing { since, .. } | Phase::Draining { since, .. } | Phase::Resetting { since, .. } => {
            *since = Time(0);
        }
        Phase::CheckpointPending { since, resumed, complete, .. } => {
            (*since, *resumed, *complete) = (Time(0), Time(0), complete.map(|_| Time(0)));
        }
        Phase::Started { .. } | Phase::Unhealthy {} | Phase::MaximumResetAttemptsReached { .. } => {}
    }
    state
}

impl Model for Region {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            region: State::new(),
            pes: (0..=self.sources as u64).map(Pe::new).collect(),
            links: vec![VecDeque::new(); self.sources],
            calls: vec![VecDeque::new(); self.sources + 1],
            late: BTreeSet::new(),
            faults: self.faults,
            violation: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let has_faults = world.faults > 0;
        for (source, pe) in world.pes.iter().enumerate().take(self.sources) {
            let has_tuples = pe.content.tuples[source] < self.tuples_max && world.links[source].len() < 2;
            if pe.is_running && !pe.is_paused && has_tuples {
                actions.push(Action::Emit(source));
            }
            if self.can_transfer(world, source) {
                actions.push(Action::Transfer(source));
            }
            if self.can_see(world, source) {
                actions.push(Action::See(source));
            }
            if pe.is_running && !pe.is_connected {
                actions.push(Action::Heal(source));
            } else if pe.is_running && has_faults && world.pes[self.sink()].is_running {
                actions.push(Action::Break(source));
            }
        }
        for (index, pe) in world.pes.iter().enumerate() {
            if pe.writing.is_some() && world.calls[index].is_empty() {
                actions.push(Action::FinishWriting(index));
            }
            if !pe.is_running {
                actions.push(Action::Relaunch(index));
            } else if has_faults {
                actions.push(Action::Crash(index));
                // At any other time it is the same as a crash.
                if matches!(world.region.phase, Phase::Resetting { .. }) {
                    actions.push(Action::TakeAway(index));
                }
            }
        }
        for pe in (0..=self.sources).filter(|pe| !world.calls[*pe].is_empty()) {
            actions.push(Action::Deliver(pe));
            if has_faults {
                actions.extend([Action::Lose(pe), Action::Delay(pe), Action::Double(pe)]);
            }
        }
        actions.extend(world.late.iter().copied().map(Action::DeliverLate));
        let source = &world.pes[0];
        let may_drain =
            source.is_running && !source.is_paused && !source.is_waiting && source.sequence <= self.sequence_max;
        if self.is_operator_driven() && may_drain && world.calls[0].is_empty() {
            actions.push(Action::OperatorDrains);
        }
        if self.can_observe(world) {
            actions.push(Action::Observe);
        }
        let has_time = !Self::is_timeout(world) || has_faults;
        if self.has_timer(world) && self.may_fire(world) && has_time {
            actions.push(Action::Time);
        }
        if self.is_seen_by_all(world) {
            actions.push(Action::SeenByAll);
        }
        if world.region.reset_begun.is_some() {
            actions.push(Action::Pause);
        }
        if has_faults {
            let are_lost = |are_reports_lost| Action::TakeOver { are_reports_lost };
            actions.extend([are_lost(false), are_lost(true), Action::Replace]);
        }
        let has_given_up = matches!(world.region.phase, Phase::MaximumResetAttemptsReached { .. });
        if has_faults && !has_given_up && world.pes[self.sink()].is_running {
            actions.push(Action::Reset { is_forced: false });
        }
        if has_faults || has_given_up {
            actions.push(Action::Reset { is_forced: true });
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let next = self.take(world, action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "what a reset goes back to is there, and belongs together",
                |model: &Self, world: &World| {
                    let sequence = world.region.last_completed();
                    if sequence == 0 {
                        return true;
                    }
                    let Some(received) = world.pes[model.sink()].checkpoints.get(&sequence) else { return false };
                    let is_sent = |source: usize| {
                        let sent = world.pes[source].checkpoints.get(&sequence);
                        sent.is_some_and(|sent| sent.tuples[source] == received.tuples[source])
                    };
                    !received.is_wrong && (0..model.sources).all(is_sent)
                },
            ),
            Property::always(
                "no tuple is lost or doubled while the region is driven",
                |model: &Self, world: &World| {
                    let phase = &world.region.phase;
                    let is_driven =
                        !matches!(phase, Phase::Resetting { .. } | Phase::MaximumResetAttemptsReached { .. })
                            && world.region.launches().cloned().map(Health::Healthy) == Some(Region::health(world));
                    !is_driven || !world.pes[model.sink()].content.is_wrong
                },
            ),
            Property::always("no PE meets what it cannot handle", |_, world: &World| world.violation.is_none()),
            Property::always("no region is stuck", |model: &Self, world: &World| model.settles(world, true)),
            Property::sometimes("two checkpoints are completed", |_, world: &World| world.region.last_completed() >= 2),
            Property::sometimes("a region goes back to a checkpoint, and on", |_, world: &World| {
                let region = &world.region;
                let has_reset = region.attempts > 0 && region.last_completed() > 0;
                has_reset && matches!(region.phase, Phase::Processing { .. })
            }),
            Property::sometimes("all tuples arrive", |model: &Self, world: &World| {
                world.pes[model.sink()].content.tuples[0] == model.tuples_max
            }),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.region.sequence <= self.sequence_max
    }
}

fn check(model: Region) {
    let begun = std::time::Instant::now();
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{} states, depth {}, {:?}", checker.unique_state_count(), checker.max_depth(), begun.elapsed());
    for (name, path) in checker.discoveries() {
        if checker.model().property(name).expectation != Expectation::Sometimes {
            let (last, _) = path.clone().into_vec().pop().unwrap();
            panic!("{name}: {:?}\n{last:#?}", path.into_actions());
        }
    }
    checker.assert_properties();
}

/// Checkpoints that are written at once, or while tuples are processed; settings; sequence ids; faults.
fn regions() -> impl Iterator<Item = Region> {
    [(periodic(), false), (periodic(), true), (operator_driven(), false), (operator_driven(), true)]
        .into_iter()
        .map(|(settings, is_asynchronous)| Region::new(settings, is_asynchronous))
}

#[test]
fn regions_with_a_fault_are_exact_and_never_stuck() {
    for model in regions() {
        check(Region { faults: 1, ..model });
    }
}

#[test]
fn regions_that_rest_a_while_between_resets_are_exact_and_never_stuck() {
    for model in regions().filter(|model| !model.is_asynchronous) {
        check(Region { faults: 1, has_pauses: true, ..model });
    }
}

#[test]
#[ignore = "takes a while"]
fn regions_that_rest_a_while_and_write_meanwhile_are_exact_and_never_stuck() {
    for model in regions().filter(|model| model.is_asynchronous) {
        check(Region { faults: 1, has_pauses: true, ..model });
    }
}

#[test]
fn periodic_regions_with_two_faults_are_exact_and_never_stuck() {
    check(Region::new(periodic(), false));
}

#[test]
#[ignore = "takes minutes"]
fn regions_with_two_faults_are_exact_and_never_stuck() {
    for model in regions() {
        check(Region { sequence_max: 4, ..model });
    }
}

#[test]
#[ignore = "takes minutes"]
fn regions_of_three_pes_are_exact_and_never_stuck() {
    for is_asynchronous in [false, true] {
        check(Region { sources: 2, faults: 1, ..Region::new(periodic(), is_asynchronous) });
    }
}
