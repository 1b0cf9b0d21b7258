//! How long drains and resets took, and the figures that are published (rule consistent-region-12).

use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Durations that an average is made of.
const SAMPLES_MAX: usize = 10;

/// The figures of a region, under the names and with the units of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Average time of the last drains, with their checkpoints.
    pub average_drain_time_milliseconds: u64,
    /// Average time of the last resets.
    pub average_reset_time_milliseconds: u64,
    /// When the last checkpoint was completed; 0 if none was.
    pub last_consistent_state_time_milliseconds: u64,
    /// When the last reset was completed; 0 if none was.
    pub last_reset_time_milliseconds: u64,
    /// The last completed checkpoint; -1 if there is none.
    pub last_completed_drain_seq_id: i64,
    /// The checkpoint that the last reset went back to; -1 if there was no reset.
    pub last_completed_reset_seq_id: i64,
    /// Number of the state.
    pub state: u8,
    /// Resets that were begun since the last completed checkpoint.
    pub n_current_reset_attempts: u32,
}

/// What is stored of past drains and resets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Measured {
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub(crate) drains: Series,
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub(crate) resets: Series,
}

/// Drains, or resets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Series {
    /// Milliseconds that the last ones took.
    samples: VecDeque<u64>,
    /// The last one.
    last: Option<Completion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Completion {
    sequence: u64,
    at: Time,
}

impl Series {
    pub(crate) fn add(&mut self, sequence: u64, since: Time, at: Time) {
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(at.milliseconds_since(since));
        self.last = Some(Completion { sequence, at });
    }

    fn is_empty(&self) -> bool {
        self.last.is_none() && self.samples.is_empty()
    }

    pub(crate) fn average(&self) -> u64 {
        let sum = self.samples.iter().fold(0_u64, |sum, sample| sum.saturating_add(*sample));
        sum.checked_div(self.samples.len() as u64).unwrap_or_default()
    }

    pub(crate) fn last_time(&self) -> u64 {
        self.last.map_or(0, |last| last.at.0)
    }

    pub(crate) fn last_sequence(&self) -> i64 {
        self.last.map_or(-1, |last| i64::try_from(last.sequence).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_is_of_the_last_ten() {
        let mut series = Series::default();
        assert_eq!((series.average(), series.last_time(), series.last_sequence()), (0, 0, -1));
        for took in [1_000, 4, 4, 4, 4, 4, 4, 4, 4, 4] {
            series.add(7, Time(100), Time(100 + took));
        }
        assert_eq!(series.average(), 103);
        series.add(8, Time(200), Time(209));
        assert_eq!((series.average(), series.last_time(), series.last_sequence()), (4, 209, 8));
    }
}
