//! What is known of a region: what is stored, and all that follows from it.
//!
//! Only the step makes a new state of an old one (`transition`).
//!
//! Knows: phases, launches, sequence ids. Must not know: what an event does, clocks.
//!
//! Invariant: what PEs are told, and when time is up, follow from the state and the settings alone (rule
//! consistent-region-3).

use crate::health::Launches;
use crate::message::Message;
use crate::metrics::{Figures, Measured};
use crate::settings::{Settings, Trigger};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A PE asks for its messages when it has not heard of any for 5 seconds, and a call takes a second at most. So a PE
/// that can ask has tried three times within this time, and twice with success unless more than one call has failed
/// (rule consistent-region-8).
pub(crate) const SEEN_WITHIN: Duration = Duration::from_secs(20);
/// Least time from the beginning of a reset to that of the next one (rule consistent-region-10).
pub(crate) const RESET_PAUSE: Duration = Duration::from_secs(1);
/// PEs read sequence ids as signed numbers of 64 bits. A report with a higher one than this is none.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;
/// The beginning of 2020. PEs read attempts as signed numbers of 32 bits, so their seconds are counted from here.
const ATTEMPTS_EPOCH: u64 = 1_577_836_800;

/// What is known of a region. As JSON it is what is stored (rule consistent-region-3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The sequence id in use: number of the next checkpoint, or of the one being taken.
    pub(crate) sequence: u64,
    /// The checkpoint that a reset goes back to; 0 is the initial state of the operators.
    pub(crate) last_completed: u64,
    /// The checkpoint that PEs are told to delete.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) retired: u64,
    /// Checkpoints that no reset needs any more, and that PEs have not been told to delete; the oldest is the first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) superseded: VecDeque<u64>,
    /// Resets begun since the last completed checkpoint.
    #[serde(default)]
    pub(crate) attempts: u32,
    /// How many of them came before the last reset that was completed, or forced. They do not count for the limit.
    #[serde(default)]
    pub(crate) attempts_before: u32,
    /// What is added to the attempts that PEs are told: these may know numbers of a state that was lost. None, once a
    /// checkpoint is completed.
    #[serde(default, skip_serializing_if = "is_no_attempt")]
    pub(crate) attempts_told: u32,
    /// When the last reset began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reset_begun: Option<Time>,
    /// Somebody has asked for a reset a moment after one had begun. It begins when the moment has passed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_reset_wanted: bool,
    /// Where the region is.
    pub(crate) phase: Phase,
    #[serde(default)]
    pub(crate) measured: Measured,
}

/// Where a region is. Who is in a phase with launches is healthy in these.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Phase {
    /// It was never healthy.
    Started {
        /// Whether its operators may have done something that has to be undone.
        must_reset: bool,
    },
    /// Tuples are processed.
    Processing {
        launches: Launches,
        /// What PEs were told last.
        told: Told,
        since: Time,
    },
    /// A PE is missing.
    Unhealthy {},
    /// Operators come to rest and write checkpoints.
    Draining {
        launches: Launches,
        /// What PEs were told before, and still are, if an operator has asked for the drain. If there is nothing here,
        /// time has asked, and PEs are told to drain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requested: Option<Told>,
        since: Time,
        reports: Reports,
    },
    /// Operators go back to the last completed checkpoint.
    Resetting {
        launches: Launches,
        since: Time,
        /// PEs that have done so.
        done: BTreeSet<u64>,
    },
    /// Too many resets in a row have failed.
    MaximumResetAttemptsReached {
        /// If the region is healthy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        launches: Option<Launches>,
    },
    /// Tuples are processed, while checkpoints are still written.
    CheckpointPending {
        launches: Launches,
        /// When the drain began.
        since: Time,
        /// When PEs were told to go on.
        resumed: Time,
        reports: Reports,
        /// When the last PE reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        complete: Option<Time>,
    },
}

/// What some PEs must have been told before a region goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToBeTold<'s> {
    /// The message.
    pub message: Message,
    /// The PEs of the region, of which those count that are in other regions as well.
    pub launches: &'s Launches,
    /// The region does not go on before this moment.
    pub from: Time,
}

/// What PEs were told before they process tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Told {
    /// Nothing: a new job processes tuples without being told.
    Nothing,
    /// To go on.
    Resumed,
    /// That the checkpoint is complete that was still written when they were told to go on.
    Drained,
}

/// Which PEs have written their checkpoints. No PE is in both sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Reports {
    /// All of them.
    pub(crate) done: BTreeSet<u64>,
    /// Those that tuples have to wait for.
    pub(crate) blocking: BTreeSet<u64>,
}

impl Reports {
    /// How many PEs have not written all checkpoints.
    pub(crate) fn not_done(&self, launches: &Launches) -> usize {
        launches.pes().filter(|pe| !self.done.contains(pe)).count()
    }

    /// How many PEs tuples have to wait for.
    pub(crate) fn tuples_wait_for(&self, launches: &Launches) -> usize {
        launches.pes().filter(|pe| !self.done.contains(pe) && !self.blocking.contains(pe)).count()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_no_attempt(number: &u32) -> bool {
    *number == 0
}

/// An attempt that no PE has been told: there is at most one in a second ([`RESET_PAUSE`]).
pub(crate) fn unheard_attempt(now: Time) -> u32 {
    let seconds = (now.0 / 1_000).saturating_sub(ATTEMPTS_EPOCH);
    u32::try_from(seconds).unwrap_or(u32::MAX).min(u32::MAX / 4)
}

/// A sequence id that no PE has been told: regions complete fewer than a checkpoint in a millisecond.
pub(crate) fn unheard_sequence(now: Time) -> u64 {
    now.0.clamp(1, SEQUENCE_MAX)
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// A region of a new job.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sequence: 1,
            last_completed: 0,
            retired: 0,
            superseded: VecDeque::new(),
            attempts: 0,
            attempts_before: 0,
            attempts_told: 0,
            reset_begun: None,
            is_reset_wanted: false,
            phase: Phase::Started { must_reset: false },
            measured: Measured::default(),
        }
    }

    /// A region whose PEs were driven before, by a state that is lost. It is reset as soon as it is healthy, under
    /// numbers that no PE can have been told: they are made of the time, and count faster than any region does (rule
    /// consistent-region-13).
    #[must_use]
    pub fn of_driven_before(now: Time) -> Self {
        Self::after_lost(unheard_sequence(now), unheard_attempt(now))
    }

    /// The same, with these numbers.
    pub(crate) fn after_lost(sequence: u64, attempts_told: u32) -> Self {
        Self { sequence, attempts_told, phase: Phase::Started { must_reset: true }, ..Self::new() }
    }

    /// The sequence id in use: number of the next checkpoint, or of the one being taken.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The checkpoint that a reset goes back to; 0 is the initial state of the operators.
    #[must_use]
    pub fn last_completed(&self) -> u64 {
        self.last_completed
    }

    /// The name of where the region is, as users see it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.phase {
            Phase::Started { .. } => "STARTED",
            Phase::Processing { .. } => "PROCESSING",
            Phase::Unhealthy {} => "UNHEALTHY",
            Phase::Draining { .. } => "DRAINING",
            Phase::Resetting { .. } => "RESETTING",
            Phase::MaximumResetAttemptsReached { .. } => "MAXIMUM_RESET_ATTEMPTS_REACHED",
            Phase::CheckpointPending { .. } => "CHECKPOINT_PENDING",
        }
    }

    /// The number of where the region is, as metrics have it.
    fn number(&self) -> u8 {
        match &self.phase {
            Phase::Started { .. } => 0,
            Phase::Processing { .. } => 1,
            Phase::Unhealthy {} => 2,
            Phase::Draining { .. } => 3,
            Phase::Resetting { .. } => 4,
            Phase::MaximumResetAttemptsReached { .. } => 5,
            Phase::CheckpointPending { .. } => 6,
        }
    }

    /// The launches that the region is driven with, if it is healthy.
    #[must_use]
    pub fn launches(&self) -> Option<&Launches> {
        match &self.phase {
            Phase::Started { .. } | Phase::Unhealthy {} => None,
            Phase::MaximumResetAttemptsReached { launches } => launches.as_ref(),
            Phase::Processing { launches, .. }
            | Phase::Draining { launches, .. }
            | Phase::Resetting { launches, .. }
            | Phase::CheckpointPending { launches, .. } => Some(launches),
        }
    }

    /// What the PEs of the region are told as long as the region is in this state (rule consistent-region-6).
    #[must_use]
    pub fn message(&self) -> Option<Message> {
        let resume =
            |is_pending| Message::ResumeSubmission { sequence: self.sequence, retired: self.retired, is_pending };
        match &self.phase {
            Phase::Started { .. } | Phase::Unhealthy {} => None,
            Phase::Draining { requested: None, .. } => Some(Message::TriggerDrain { sequence: self.sequence }),
            Phase::Processing { told, .. } | Phase::Draining { requested: Some(told), .. } => match told {
                Told::Nothing => None,
                Told::Resumed => Some(resume(false)),
                Told::Drained => Some(Message::Drained { sequence: self.last_completed }),
            },
            Phase::CheckpointPending { .. } => Some(resume(true)),
            Phase::Resetting { .. } => {
                Some(Message::TriggerReset { sequence: self.last_completed, attempt: self.attempt() })
            }
            Phase::MaximumResetAttemptsReached { launches } => {
                launches.as_ref().map(|_| Message::ResetFailed { sequence: self.last_completed })
            }
        }
    }

    /// The message for a PE in a launch: none, if the region is not driven with it.
    #[must_use]
    pub fn message_for(&self, pe: u64, launch: u32) -> Option<Message> {
        if self.launches()?.of(pe)? == launch { self.message() } else { None }
    }

    /// When the region has to be told that time has passed. A moment that has passed means at once (rule
    /// consistent-region-5).
    #[must_use]
    pub fn deadline(&self, settings: &Settings) -> Option<Time> {
        let next_reset = self.next_reset();
        if self.is_reset_wanted && self.launches().is_some() {
            return Some(next_reset);
        }
        match &self.phase {
            Phase::Started { .. } | Phase::Unhealthy {} | Phase::MaximumResetAttemptsReached { .. } => None,
            Phase::Processing { since, told, .. } => match settings.trigger {
                Trigger::Periodic { period } if *told == Told::Nothing => Some(since.after(period)),
                Trigger::Periodic { period } => Some(since.after(period.max(SEEN_WITHIN))),
                Trigger::OperatorDriven { .. } => None,
            },
            Phase::Draining { since, .. } | Phase::CheckpointPending { since, complete: None, .. } => {
                Some(since.after(settings.drain_timeout).max(next_reset))
            }
            // Before all is written, what other regions tell a PE keeps it from asking.
            Phase::CheckpointPending { since, resumed, complete: Some(complete), .. } => {
                let asked = (*resumed).max(*complete).after(SEEN_WITHIN);
                Some(since.after(settings.drain_timeout).max(asked).max(next_reset))
            }
            Phase::Resetting { since, .. } => Some(since.after(settings.reset_timeout).max(next_reset)),
        }
    }

    /// When the next reset may begin.
    pub(crate) fn next_reset(&self) -> Time {
        self.reset_begun.map_or(Time(0), |begun| begun.after(RESET_PAUSE))
    }

    /// What each PE of these launches must have got for an answer before the region goes on ([`Event::SeenByAll`]);
    /// nothing if the region does not wait for that.
    ///
    /// [`Event::SeenByAll`]: crate::Event::SeenByAll
    #[must_use]
    pub fn to_be_seen(&self) -> Option<(Message, &Launches)> {
        match &self.phase {
            Phase::CheckpointPending { launches, complete: Some(_), .. } => Some((self.message()?, launches)),
            _ => None,
        }
    }

    /// What has to be told before the region drains because its period has passed, and to whom ([`Event::Told`]);
    /// nothing if it does not wait for that. A PE that is in one region only is told by a datagram. For one that is in
    /// several there may be no datagram that is short enough, and while it hears others it does not ask; and the drain
    /// takes the place of what it should have seen. That is the message to go on, or the one that a checkpoint is
    /// complete: an operator may rest until then (rule consistent-region-8).
    ///
    /// [`Event::Told`]: crate::Event::Told
    #[must_use]
    pub fn to_be_told(&self, settings: &Settings) -> Option<ToBeTold<'_>> {
        let Trigger::Periodic { period } = settings.trigger else { return None };
        match &self.phase {
            Phase::Processing { launches, since, .. } if !self.is_reset_wanted => {
                Some(ToBeTold { message: self.message()?, launches, from: since.after(period) })
            }
            _ => None,
        }
    }

    /// How many PEs have to report before the region goes on; none if it does not wait for reports.
    #[must_use]
    pub fn missing_reports(&self) -> usize {
        match &self.phase {
            Phase::Started { .. }
            | Phase::Unhealthy {}
            | Phase::Processing { .. }
            | Phase::MaximumResetAttemptsReached { .. } => 0,
            Phase::Draining { launches, reports, .. } => reports.tuples_wait_for(launches),
            Phase::CheckpointPending { launches, reports, .. } => reports.not_done(launches),
            Phase::Resetting { launches, done, .. } => launches.pes().filter(|pe| !done.contains(pe)).count(),
        }
    }

    /// The attempt to reset that PEs are told, from 0. Meant while the region is reset.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempts_told.saturating_add(self.attempts.saturating_sub(1))
    }

    /// The figures for the metrics (rule consistent-region-12).
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (drains, resets) = (&self.measured.drains, &self.measured.resets);
        Figures {
            average_drain_time_milliseconds: drains.average(),
            average_reset_time_milliseconds: resets.average(),
            last_consistent_state_time_milliseconds: drains.last_time(),
            last_reset_time_milliseconds: resets.last_time(),
            last_completed_drain_seq_id: drains.last_sequence(),
            last_completed_reset_seq_id: resets.last_sequence(),
            state: self.number(),
            n_current_reset_attempts: self.attempts,
        }
    }
}
