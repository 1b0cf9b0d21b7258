//! What the application says about a region.
//!
//! Settings are no part of the state: they may change at any time, and hold from the next step on (rule
//! consistent-region-5).

use std::collections::BTreeSet;
use std::time::Duration;

/// What the application says about a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What asks for checkpoints.
    pub trigger: Trigger,
    /// How long a checkpoint may take, from the drain to its end.
    pub drain_timeout: Duration,
    /// How long a reset may take.
    pub reset_timeout: Duration,
    /// How many resets in a row may fail.
    pub max_consecutive_reset_attempts: u32,
}

/// What asks for checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Time.
    Periodic {
        /// From the end of a checkpoint, or reset, to the next drain.
        period: Duration,
    },
    /// One of these operators.
    OperatorDriven {
        /// Their full names.
        operators: BTreeSet<String>,
    },
}

impl Settings {
    /// Whether this operator may ask for checkpoints (rule consistent-region-9).
    #[must_use]
    pub fn may_drain(&self, operator: &str) -> bool {
        match &self.trigger {
            Trigger::Periodic { .. } => false,
            Trigger::OperatorDriven { operators } => operators.contains(operator),
        }
    }
}
