//! The step from one state to the next (rules consistent-region-1 and consistent-region-4).
//!
//! Pure. Knows: states, events, settings. Must not know: how states are stored, how PEs are told, clocks.
//!
//! Invariants: those of the crate are kept here.

use crate::event::{Event, Ignored, Member, Progress};
use crate::health::{Cause, Health, Launches};
use crate::message::Message;
use crate::settings::{Settings, Trigger};
use crate::state::{Phase, Reports, SEQUENCE_MAX, State, Told, unheard_attempt, unheard_sequence};
use crate::time::Time;
use std::collections::BTreeSet;

/// What comes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state from now on.
    pub state: State,
    /// Whether it is another one. If so, it is stored before anything else is done.
    pub has_changed: bool,
    /// What to tell the PEs of the region once the state is stored.
    pub send: Option<Message>,
    /// When to say that time has passed. It replaces what was said before.
    pub deadline: Option<Time>,
    /// Why nothing came of the event, for the log.
    pub ignored: Option<Ignored>,
}

/// What a region does when something happens.
#[must_use]
pub fn step(settings: &Settings, state: &State, event: &Event, now: Time) -> Step {
    let mut next = state.clone();
    not_after(&mut next, now);
    let mut transition = Transition { settings, now, state: next };
    let ignored = transition.take(event).err();
    let next = transition.state;
    let has_changed = next != *state;
    let is_news = next.message() != state.message() || matches!(event, Event::TakenOver);
    Step {
        send: next.message().filter(|_| is_news),
        deadline: next.deadline(settings),
        ignored,
        has_changed,
        state: next,
    }
}

/// Moments that would lie in the future are now: a clock that was put back makes nothing late (rule
/// consistent-region-5).
fn not_after(state: &mut State, now: Time) {
    state.reset_begun = state.reset_begun.map(|begun| now.min(begun));
    match &mut state.phase {
        Phase::Started { .. } | Phase::Unhealthy {} | Phase::MaximumResetAttemptsReached { .. } => {}
        Phase::Processing { since, .. } | Phase::Draining { since, .. } | Phase::Resetting { since, .. } => {
            *since = now.min(*since);
        }
        Phase::CheckpointPending { since, resumed, complete, .. } => {
            *since = now.min(*since);
            *resumed = now.min(*resumed);
            *complete = complete.map(|complete| now.min(complete));
        }
    }
}

/// Between two sequence ids that are made of the time, in milliseconds.
const SEQUENCE_PAUSE: u64 = 1_000;

/// The launch of a PE is the one that the region is driven with.
fn is_member(launches: &Launches, member: Member) -> Result<(), Ignored> {
    let expected = launches.of(member.pe).ok_or(Ignored::NotAMember)?;
    if expected == member.launch { Ok(()) } else { Err(Ignored::AnotherLaunch { expected }) }
}

fn is_sequence(expected: u64, sequence: u64) -> Result<(), Ignored> {
    if expected == sequence { Ok(()) } else { Err(Ignored::AnotherSequence { expected }) }
}

/// How far a PE is with its checkpoints.
#[derive(Clone, Copy)]
enum Written {
    All,
    Blocking,
}

impl Reports {
    /// Notes what a PE says. Nothing takes back that all is written.
    fn note(&mut self, pe: u64, written: Written) -> Result<(), Ignored> {
        let is_new = match written {
            Written::All => {
                self.blocking.remove(&pe);
                self.done.insert(pe)
            }
            Written::Blocking => !self.done.contains(&pe) && self.blocking.insert(pe),
        };
        if is_new { Ok(()) } else { Err(Ignored::AlreadyReported) }
    }
}

struct Transition<'a> {
    settings: &'a Settings,
    now: Time,
    state: State,
}

impl Transition<'_> {
    fn take(&mut self, event: &Event) -> Result<(), Ignored> {
        match event {
            Event::Health(Health::Healthy(launches)) => self.healthy(launches),
            Event::Health(Health::Unhealthy(cause)) => self.unhealthy(matches!(cause, Cause::TakenAway(_))),
            Event::Report(member, Progress::CheckpointDone { sequence }) => {
                self.written(*member, *sequence, Written::All)
            }
            Event::Report(member, Progress::BlockingCheckpointDone { sequence }) => {
                self.written(*member, *sequence, Written::Blocking)
            }
            Event::Report(member, Progress::ResetDone { sequence, attempt }) => {
                self.went_back(*member, *sequence, *attempt)
            }
            Event::Drain { by, operator, sequence } => self.drain(*by, operator, *sequence),
            Event::Reset { by, is_forced } => self.asked_to_reset(*by, *is_forced),
            Event::SeenByAll => self.seen_by_all(),
            Event::Told => self.told(),
            Event::Time => self.time(),
            Event::TakenOver => self.taken_over(),
        }
    }

    fn healthy(&mut self, launches: &Launches) -> Result<(), Ignored> {
        match &mut self.state.phase {
            Phase::Started { must_reset: false } if launches.are_first() => {
                self.state.phase =
                    Phase::Processing { launches: launches.clone(), told: Told::Nothing, since: self.now };
            }
            Phase::Started { .. } | Phase::Unhealthy {} => {
                self.is_not_too_soon()?;
                self.reset(launches.clone());
            }
            Phase::MaximumResetAttemptsReached { launches: known } => {
                if known.as_ref() == Some(launches) {
                    return Err(Ignored::NothingNew);
                }
                *known = Some(launches.clone());
            }
            Phase::Processing { launches: known, .. }
            | Phase::Draining { launches: known, .. }
            | Phase::Resetting { launches: known, .. }
            | Phase::CheckpointPending { launches: known, .. } => {
                if known == launches {
                    return Err(Ignored::NothingNew);
                }
                // A PE was launched again, came or went, or has lost connections, and nobody has noticed that the
                // region was unhealthy. Until it may be reset, no report counts for a checkpoint.
                if self.is_not_too_soon().is_err() {
                    return self.unhealthy(false);
                }
                self.reset(launches.clone());
            }
        }
        Ok(())
    }

    /// A reset that is under way has failed, unless pods were taken away from it: that is no fault of the region (rule
    /// consistent-region-10).
    fn unhealthy(&mut self, is_taken_away: bool) -> Result<(), Ignored> {
        if is_taken_away && matches!(self.state.phase, Phase::Resetting { .. }) {
            self.state.attempts_before = self.state.attempts_before.saturating_add(1).min(self.state.attempts);
        }
        match &mut self.state.phase {
            Phase::Started { .. } | Phase::Unhealthy {} | Phase::MaximumResetAttemptsReached { launches: None } => {
                Err(Ignored::NothingNew)
            }
            Phase::MaximumResetAttemptsReached { launches } => {
                *launches = None;
                Ok(())
            }
            Phase::Processing { .. }
            | Phase::Draining { .. }
            | Phase::Resetting { .. }
            | Phase::CheckpointPending { .. } => {
                self.state.phase = Phase::Unhealthy {};
                self.state.is_reset_wanted = false;
                Ok(())
            }
        }
    }

    /// A PE has written checkpoints (rules consistent-region-8 and consistent-region-9).
    fn written(&mut self, member: Member, sequence: u64, written: Written) -> Result<(), Ignored> {
        if self.is_unheard_of(sequence) {
            return self.drained_under_lost_state(member, sequence);
        }
        let is_operator_driven = matches!(self.settings.trigger, Trigger::OperatorDriven { .. });
        match &mut self.state.phase {
            Phase::Draining { launches, reports, .. } => {
                is_member(launches, member)?;
                is_sequence(self.state.sequence, sequence)?;
                reports.note(member.pe, written)?;
                self.go_on_when_written();
            }
            Phase::CheckpointPending { launches, reports, complete, .. } => {
                is_member(launches, member)?;
                is_sequence(self.state.sequence.saturating_sub(1), sequence)?;
                reports.note(member.pe, written)?;
                if reports.not_done(launches) == 0 {
                    complete.get_or_insert(self.now);
                }
            }
            // The request for the drain was lost, or is still on its way. This report says that it was made.
            Phase::Started { .. } if is_operator_driven => return self.drained_too_early(sequence),
            Phase::Processing { launches, told, .. } if is_operator_driven => {
                is_member(launches, member)?;
                is_sequence(self.state.sequence, sequence)?;
                let mut reports = Reports::default();
                reports.note(member.pe, written)?;
                let launches = launches.clone();
                self.state.phase = Phase::Draining { launches, requested: Some(*told), since: self.now, reports };
                self.go_on_when_written();
            }
            _ => return Err(Ignored::NotExpected),
        }
        Ok(())
    }

    /// Ends a drain that tuples need not wait for any longer.
    fn go_on_when_written(&mut self) {
        let Phase::Draining { launches, since, reports, .. } = &self.state.phase else { return };
        if reports.not_done(launches) == 0 {
            let (launches, since) = (launches.clone(), *since);
            self.complete(self.state.sequence, since, self.now);
            self.retire();
            self.state.sequence = self.state.sequence.saturating_add(1);
            self.state.phase = Phase::Processing { launches, told: Told::Resumed, since: self.now };
        } else if reports.tuples_wait_for(launches) == 0 {
            let phase = Phase::CheckpointPending {
                launches: launches.clone(),
                since: *since,
                resumed: self.now,
                reports: reports.clone(),
                complete: None,
            };
            self.retire();
            self.state.sequence = self.state.sequence.saturating_add(1);
            self.state.phase = phase;
        }
    }

    /// Every PE has seen that it should go on: a checkpoint that was written while tuples were processed is complete.
    fn seen_by_all(&mut self) -> Result<(), Ignored> {
        let Phase::CheckpointPending { launches, since, complete: Some(complete), .. } = &self.state.phase else {
            return Err(Ignored::NotExpected);
        };
        let (launches, since, complete) = (launches.clone(), *since, *complete);
        self.complete(self.state.sequence.saturating_sub(1), since, complete);
        self.state.phase = Phase::Processing { launches, told: Told::Drained, since: self.now };
        Ok(())
    }

    /// No PE would miss that it should go on if it were told to drain now: the period counts (rule
    /// consistent-region-8).
    fn told(&mut self) -> Result<(), Ignored> {
        let Some(to_be_told) = self.state.to_be_told(self.settings) else { return Err(Ignored::NotExpected) };
        if self.now < to_be_told.from {
            return Err(Ignored::NotDue);
        }
        let launches = to_be_told.launches.clone();
        self.begin_drain(launches);
        Ok(())
    }

    /// PEs are told to drain.
    fn begin_drain(&mut self, launches: Launches) {
        let reports = Reports::default();
        self.state.phase = Phase::Draining { launches, requested: None, since: self.now, reports };
    }

    /// A checkpoint is complete: resets go back to it from now on.
    fn complete(&mut self, sequence: u64, since: Time, at: Time) {
        if self.state.last_completed > 0 {
            self.state.superseded.push_back(self.state.last_completed);
        }
        self.state.last_completed = sequence;
        self.state.attempts = 0;
        self.state.attempts_before = 0;
        self.state.attempts_told = 0;
        self.state.measured.drains.add(sequence, since, at);
    }

    /// The next message to go on tells PEs to delete a checkpoint. It has room for one (rule consistent-region-11).
    fn retire(&mut self) {
        if let Some(superseded) = self.state.superseded.pop_front() {
            self.state.retired = superseded;
        }
    }

    /// Begins a reset, or gives up (rule consistent-region-10).
    fn reset(&mut self, launches: Launches) {
        let failed = self.state.attempts.saturating_sub(self.state.attempts_before);
        if failed >= self.settings.max_consecutive_reset_attempts {
            self.state.is_reset_wanted = false;
            self.state.phase = Phase::MaximumResetAttemptsReached { launches: Some(launches) };
        } else {
            self.begin_reset(launches);
        }
    }

    /// Begins a reset, whatever has failed before.
    fn begin_reset(&mut self, launches: Launches) {
        self.state.attempts = self.state.attempts.saturating_add(1);
        self.state.reset_begun = Some(self.now);
        self.state.is_reset_wanted = false;
        self.state.phase = Phase::Resetting { launches, since: self.now, done: BTreeSet::new() };
    }

    /// Does what somebody asks for as soon as the last reset did not begin a moment ago.
    fn reset_soon(&mut self, launches: Launches) {
        if self.is_not_too_soon().is_ok() {
            self.reset(launches);
        } else {
            self.state.is_reset_wanted = true;
        }
    }

    /// The last reset did not begin a moment ago.
    fn is_not_too_soon(&self) -> Result<(), Ignored> {
        let until = self.state.next_reset();
        if self.now < until { Err(Ignored::TooSoon { until }) } else { Ok(()) }
    }

    /// A PE has gone back.
    fn went_back(&mut self, member: Member, sequence: u64, attempt: u32) -> Result<(), Ignored> {
        let expected = self.state.attempt();
        let Phase::Resetting { launches, since, done } = &mut self.state.phase else {
            return Err(Ignored::NotExpected);
        };
        is_member(launches, member)?;
        is_sequence(self.state.last_completed, sequence)?;
        if attempt != expected {
            return Err(Ignored::AnotherAttempt { expected });
        }
        if !done.insert(member.pe) {
            return Err(Ignored::AlreadyReported);
        }
        // Who has asked for another reset meanwhile gets it.
        if launches.pes().all(|pe| done.contains(&pe)) && !self.state.is_reset_wanted {
            self.state.measured.resets.add(self.state.last_completed, *since, self.now);
            self.state.phase = Phase::Processing { launches: launches.clone(), told: Told::Resumed, since: self.now };
            self.state.attempts_before = self.state.attempts;
            // What was written of a checkpoint under the number in use is not mixed with another one.
            self.state.sequence = self.state.sequence.saturating_add(1);
        }
        Ok(())
    }

    /// An operator has begun to drain the region (rule consistent-region-9).
    fn drain(&mut self, by: Member, operator: &str, sequence: u64) -> Result<(), Ignored> {
        if !self.settings.may_drain(operator) {
            return Err(Ignored::NotATrigger);
        }
        if self.is_unheard_of(sequence) {
            return self.drained_under_lost_state(by, sequence);
        }
        match &mut self.state.phase {
            Phase::Processing { launches, told, .. } => {
                is_member(launches, by)?;
                is_sequence(self.state.sequence, sequence)?;
                self.state.phase = Phase::Draining {
                    launches: launches.clone(),
                    requested: Some(*told),
                    since: self.now,
                    reports: Reports::default(),
                };
            }
            Phase::Started { .. } => return self.drained_too_early(sequence),
            _ => return Err(Ignored::NotExpected),
        }
        Ok(())
    }

    /// An operator has drained the region before it was healthy. Nobody would tell it to go on.
    fn drained_too_early(&mut self, sequence: u64) -> Result<(), Ignored> {
        is_sequence(self.state.sequence, sequence)?;
        match &mut self.state.phase {
            Phase::Started { must_reset } if !*must_reset => {
                *must_reset = true;
                Ok(())
            }
            _ => Err(Ignored::ResetsWhenHealthy),
        }
    }

    /// No PE can know this sequence id from the state.
    fn is_unheard_of(&self, sequence: u64) -> bool {
        sequence > self.state.sequence && sequence <= SEQUENCE_MAX
    }

    /// A PE has drained with a sequence id of a state that is lost. Nobody would tell it to go on, and it would take
    /// what it is told under smaller numbers for something else (rule consistent-region-9).
    ///
    /// Once the reset is noted, another number is no news but for that. Forged ones, each higher than the last, would
    /// be stored one by one: so it goes up to one that is above all that PEs were told, and not again for a while.
    fn drained_under_lost_state(&mut self, by: Member, sequence: u64) -> Result<(), Ignored> {
        let (launches, noted) = match &mut self.state.phase {
            Phase::Started { must_reset } => {
                let was_noted = std::mem::replace(must_reset, true);
                (None, was_noted.then_some(Ignored::ResetsWhenHealthy))
            }
            Phase::Processing { launches, .. }
            | Phase::Draining { launches, .. }
            | Phase::CheckpointPending { launches, .. } => {
                is_member(launches, by)?;
                (Some(launches.clone()), self.state.is_reset_wanted.then_some(Ignored::IsBeingReset))
            }
            Phase::Unhealthy {} | Phase::Resetting { .. } | Phase::MaximumResetAttemptsReached { .. } => {
                return Err(Ignored::NotExpected);
            }
        };
        self.state.sequence = match noted {
            None => sequence,
            Some(ignored) => {
                let unheard = unheard_sequence(self.now);
                if unheard < self.state.sequence.saturating_add(SEQUENCE_PAUSE) {
                    return Err(ignored);
                }
                unheard.max(sequence)
            }
        };
        self.state.attempts_told = self.state.attempts_told.max(unheard_attempt(self.now));
        if let Some(launches) = launches {
            self.reset_soon(launches);
        }
        Ok(())
    }

    /// Somebody asks for a reset (rule consistent-region-10).
    fn asked_to_reset(&mut self, by: Option<Member>, is_forced: bool) -> Result<(), Ignored> {
        if let (Some(by), Some(launches)) = (by, self.state.launches()) {
            is_member(launches, by)?;
        }
        let before = self.state.clone();
        if is_forced {
            self.state.attempts_before = self.state.attempts;
        }
        let ignored = match &mut self.state.phase {
            Phase::Started { must_reset } => {
                *must_reset = true;
                Ignored::ResetsWhenHealthy
            }
            Phase::Unhealthy {} => Ignored::ResetsWhenHealthy,
            Phase::MaximumResetAttemptsReached { .. } if !is_forced => return Err(Ignored::NoAttemptsLeft),
            Phase::MaximumResetAttemptsReached { launches: None } => {
                self.state.phase = Phase::Unhealthy {};
                Ignored::ResetsWhenHealthy
            }
            // No PE has gone back: this reset is the one that is asked for, and the first one of those that count.
            Phase::Resetting { done, .. } if done.is_empty() => {
                if is_forced {
                    self.state.attempts_before = self.state.attempts.saturating_sub(1);
                }
                Ignored::IsBeingReset
            }
            Phase::MaximumResetAttemptsReached { launches: Some(launches) }
            | Phase::Processing { launches, .. }
            | Phase::Draining { launches, .. }
            | Phase::Resetting { launches, .. }
            | Phase::CheckpointPending { launches, .. } => {
                let launches = launches.clone();
                self.reset_soon(launches);
                Ignored::IsBeingReset
            }
        };
        if self.state == before { Err(ignored) } else { Ok(()) }
    }

    fn time(&mut self) -> Result<(), Ignored> {
        let Some(deadline) = self.state.deadline(self.settings) else { return Err(Ignored::NotExpected) };
        if self.now < deadline {
            return Err(Ignored::NotDue);
        }
        if self.state.is_reset_wanted
            && let Some(launches) = self.state.launches()
        {
            let launches = launches.clone();
            self.reset(launches);
            return Ok(());
        }
        match &self.state.phase {
            Phase::Processing { launches, .. } => self.begin_drain(launches.clone()),
            Phase::Draining { launches, .. }
            | Phase::Resetting { launches, .. }
            | Phase::CheckpointPending { launches, .. } => self.reset(launches.clone()),
            Phase::Started { .. } | Phase::Unhealthy {} | Phase::MaximumResetAttemptsReached { .. } => {}
        }
        Ok(())
    }

    /// What PEs have reported while nobody drove the region is lost: they do not report again. So a reset begins at
    /// once where the region rests until they have, or may have been drained by an operator, which nobody would tell to
    /// go on. It is no attempt that has failed. Where tuples are processed meanwhile, to wait costs nothing, and a
    /// report that was lost leads to a reset when the time of the drain is up. Nor could PEs ask for their messages
    /// meanwhile (rules consistent-region-3 and consistent-region-9).
    fn taken_over(&mut self) -> Result<(), Ignored> {
        let is_operator_driven = matches!(self.settings.trigger, Trigger::OperatorDriven { .. });
        let launches = match &mut self.state.phase {
            Phase::Started { must_reset } if is_operator_driven && !*must_reset => {
                *must_reset = true;
                return Ok(());
            }
            Phase::CheckpointPending { resumed, .. } => {
                *resumed = self.now;
                return Ok(());
            }
            Phase::Resetting { launches, .. } => {
                self.state.attempts_before = self.state.attempts_before.saturating_add(1);
                launches.clone()
            }
            Phase::Processing { launches, .. } if is_operator_driven => launches.clone(),
            Phase::Draining { launches, .. } => launches.clone(),
            Phase::Started { .. }
            | Phase::Processing { .. }
            | Phase::Unhealthy {}
            | Phase::MaximumResetAttemptsReached { .. } => return Err(Ignored::NothingNew),
        };
        self.begin_reset(launches);
        Ok(())
    }
}
