//! Which numbers have arrived: as intervals, so that gaps and doubles are known for any number of tuples.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most gaps that are remembered. Beyond, the lowest ones count as lost for good.
const GAPS: usize = 4096;

/// Numbers from 0 that have arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// First number and the one behind the last one of each interval. Intervals do not touch.
    intervals: BTreeMap<u64, u64>,
    /// Different numbers.
    pub(crate) received: u64,
    /// Numbers that had arrived before.
    pub(crate) doubled: u64,
    /// Numbers that came after a higher one.
    pub(crate) late: u64,
}

impl Seen {
    /// A number has arrived.
    pub(crate) fn add(&mut self, number: u64) {
        let end = number.saturating_add(1);
        if self.highest().is_some_and(|highest| number < highest) {
            self.late += 1;
        }
        let before = self.intervals.range(..=number).next_back().map(|(from, to)| (*from, *to));
        if before.is_some_and(|(_, to)| to > number) {
            self.doubled += 1;
            return;
        }
        self.received += 1;
        let from = match before {
            Some((from, to)) if to == number => from,
            _ => number,
        };
        let to = self.intervals.remove(&end).unwrap_or(end);
        self.intervals.insert(from, to);
        if self.intervals.len() > GAPS
            && let Some((from, _)) = self.intervals.pop_first()
            && let Some(next) = self.intervals.first_key_value().map(|(from, _)| *from)
            && let Some(to) = self.intervals.remove(&next)
        {
            self.intervals.insert(from, to);
        }
    }

    /// The highest number.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.intervals.last_key_value().map(|(_, to)| to.saturating_sub(1))
    }

    /// Numbers below the highest that have not arrived.
    pub(crate) fn lost(&self) -> u64 {
        self.highest().map_or(0, |highest| highest.saturating_add(1).saturating_sub(self.received))
    }
}

#[cfg(test)]
mod tests {
    use super::{GAPS, Seen};

    #[test]
    fn gaps_doubles_and_order_are_counted() {
        for (numbers, received, lost, doubled, late) in [
            (&[][..], 0, 0, 0, 0),
            (&[0, 1, 2], 3, 0, 0, 0),
            (&[0, 2, 1], 3, 0, 0, 1),
            (&[2, 0], 2, 1, 0, 1),
            (&[5], 1, 5, 0, 0),
            (&[0, 1, 1, 0, 3], 3, 1, 2, 1),
            (&[4, 2, 0, 1, 3, 3], 5, 0, 1, 5),
        ] {
            let mut seen = Seen::default();
            numbers.iter().for_each(|number| seen.add(*number));
            assert_eq!(
                (seen.received, seen.lost(), seen.doubled, seen.late),
                (received, lost, doubled, late),
                "{numbers:?}"
            );
        }
    }

    #[test]
    fn gaps_beyond_the_bound_stay_lost() {
        let mut seen = Seen::default();
        let count = 2 * GAPS as u64;
        (0..count).for_each(|number| seen.add(2 * number));
        assert_eq!((seen.received, seen.lost()), (count, count - 1));
        assert!(seen.intervals.len() <= GAPS);
    }
}
