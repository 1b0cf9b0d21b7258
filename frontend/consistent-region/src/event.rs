//! What can happen to a region, and why nothing comes of it.

use crate::health::Health;
use crate::time::Time;
use std::fmt;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This is the health of the region now. It may be told as often as one likes.
    Health(Health),
    /// A PE says how far it is.
    Report(Member, Progress),
    /// An operator has begun to drain the region.
    Drain {
        /// The PE of the operator.
        by: Member,
        /// Full name of the operator.
        operator: String,
        /// The sequence id that it drains with.
        sequence: u64,
    },
    /// Somebody asks for a reset.
    Reset {
        /// The PE that asks; none for a person.
        by: Option<Member>,
        /// Whether attempts are counted anew.
        is_forced: bool,
    },
    /// Every PE of the region has got the message of this state, as far as answers tell ([`State::to_be_seen`]).
    ///
    /// [`State::to_be_seen`]: crate::State::to_be_seen
    SeenByAll,
    /// Every PE that is in other regions as well was told the message of this state ([`State::to_be_told`]).
    ///
    /// [`State::to_be_told`]: crate::State::to_be_told
    Told,
    /// Time has passed.
    Time,
    /// Somebody else drives the region from now on, such as a new leader.
    TakenOver,
}

/// A PE in a launch. Who receives a report knows the launch from the pod that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Number of the PE in the job.
    pub pe: u64,
    /// Its launch.
    pub launch: u32,
}

/// How far a PE is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Progress {
    /// All of its operators have written their checkpoints.
    CheckpointDone {
        /// Number of the checkpoint.
        sequence: u64,
    },
    /// What is missing of its checkpoints is written while tuples are processed again.
    BlockingCheckpointDone {
        /// Number of the checkpoint.
        sequence: u64,
    },
    /// All of its operators have gone back.
    ResetDone {
        /// The checkpoint that they went back to.
        sequence: u64,
        /// The attempt that the PE was told.
        attempt: u32,
    },
}

/// Why nothing comes of an event (rule consistent-region-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// It says what was known.
    NothingNew,
    /// Nothing is due yet.
    NotDue,
    /// The region does not wait for it in its state.
    NotExpected,
    /// The PE does not belong to the region.
    NotAMember,
    /// It comes from a launch of the PE that is not the one that the region is driven with.
    AnotherLaunch {
        /// The launch that the region is driven with.
        expected: u32,
    },
    /// It has another sequence id.
    AnotherSequence {
        /// The sequence id that the region waits for.
        expected: u64,
    },
    /// It belongs to another attempt to reset.
    AnotherAttempt {
        /// The attempt that the region waits for.
        expected: u32,
    },
    /// The PE has said so, or more, before.
    AlreadyReported,
    /// The operator may not ask for drains.
    NotATrigger,
    /// The region is reset anyway as soon as it is healthy.
    ResetsWhenHealthy,
    /// The region is being reset, or is about to be.
    IsBeingReset,
    /// The last reset began a moment ago.
    TooSoon {
        /// When the next one may begin.
        until: Time,
    },
    /// No attempt to reset is left; only a forced reset is accepted.
    NoAttemptsLeft,
}

impl fmt::Display for Ignored {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingNew => write!(formatter, "nothing new"),
            Self::NotDue => write!(formatter, "nothing is due"),
            Self::NotExpected => write!(formatter, "not expected"),
            Self::NotAMember => write!(formatter, "the PE is not in the region"),
            Self::AnotherLaunch { expected } => write!(formatter, "another launch than {expected}"),
            Self::AnotherSequence { expected } => write!(formatter, "another sequence id than {expected}"),
            Self::AnotherAttempt { expected } => write!(formatter, "another attempt than {expected}"),
            Self::AlreadyReported => write!(formatter, "already reported"),
            Self::NotATrigger => write!(formatter, "the operator may not ask for it"),
            Self::ResetsWhenHealthy => write!(formatter, "it is reset when it is healthy"),
            Self::IsBeingReset => write!(formatter, "it is being reset"),
            Self::TooSoon { .. } => write!(formatter, "the last reset began a moment ago"),
            Self::NoAttemptsLeft => write!(formatter, "no attempts are left"),
        }
    }
}
