//! Which width a balancer asks for. Pure.
//!
//! Hysteresis, twice: within a tolerance around what a channel is to have, nothing changes; and a region becomes
//! narrower only as far as was enough for a whole while. It becomes wider at once, and not more than twice as wide in
//! one step.

use std::collections::VecDeque;
use std::time::Duration;

/// What a balancer wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// How much of the metric a channel is to have.
    pub per_channel: f64,
    /// The least width.
    pub min: u32,
    /// The greatest width.
    pub max: u32,
    /// How far the load of a channel may be from what is wanted, as a part of it.
    pub tolerance: f64,
    /// How long less must have been enough before a region becomes narrower.
    pub narrower_after: Duration,
}

/// What was found enough in the last while.
#[derive(Debug, Default)]
pub struct History(VecDeque<(Duration, u32)>);

impl Wish {
    /// The width for this value of the metric, `now` after the beginning, if it is not the present one.
    pub fn width(&self, value: f64, present: u32, now: Duration, history: &mut History) -> Option<u32> {
        if !value.is_finite() {
            return None;
        }
        let load = value / (self.per_channel * f64::from(present.max(1)));
        let enough = if (load - 1.0).abs() <= self.tolerance { present } else { self.enough(value) };
        let enough = enough.clamp(self.min, self.max);
        history.0.push_back((now, enough));
        let since = now.saturating_sub(self.narrower_after);
        // One that is older says what has been enough at the beginning of the while.
        while history.0.get(1).is_some_and(|(at, _)| *at <= since) {
            history.0.pop_front();
        }
        let is_whole = history.0.front().is_some_and(|(at, _)| *at <= since && now >= self.narrower_after);
        let most = history.0.iter().map(|(_, width)| *width).max().unwrap_or(enough);
        let width = if enough >= present {
            enough.min(present.saturating_mul(2).max(self.min))
        } else if is_whole {
            most.min(present)
        } else {
            present
        };
        (width != present).then_some(width)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the bounds of the type")]
    fn enough(&self, value: f64) -> u32 {
        (value / self.per_channel).ceil().clamp(0.0, f64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(narrower_after: u64) -> Wish {
        let narrower_after = Duration::from_secs(narrower_after);
        Wish { per_channel: 100.0, min: 1, max: 8, tolerance: 0.1, narrower_after }
    }

    #[test]
    fn a_region_gets_as_many_channels_as_the_metric_needs() {
        // value, present width -> width that is asked for
        let table = [
            (200.0, 2, None),
            (219.0, 2, None),
            (230.0, 2, Some(3)),
            (181.0, 2, None),
            (100.0, 2, Some(1)),
            (0.0, 2, Some(1)),
            (-5.0, 2, Some(1)),
            (10_000.0, 2, Some(4)),
            (10_000.0, 5, Some(8)),
            (10_000.0, 8, None),
            // Somebody else has gone beyond the bounds.
            (1_200.0, 12, Some(8)),
            (f64::NAN, 2, None),
        ];
        for (value, present, expected) in table {
            let width = wish(0).width(value, present, Duration::ZERO, &mut History::default());
            assert_eq!(width, expected, "{value} {present}");
        }
    }

    #[test]
    fn it_becomes_narrower_only_as_far_as_was_enough_for_a_while() {
        let (wish, mut history) = (wish(60), History::default());
        // seconds, value -> width that is asked for
        let table = [
            (0, 600.0, None),
            (10, 100.0, None),
            (30, 400.0, None),
            (50, 100.0, None),
            // What was enough at 30 was so until 50.
            (71, 100.0, Some(4)),
            (91, 100.0, None),
            (111, 100.0, Some(1)),
        ];
        let mut present = 6;
        for (second, value, expected) in table {
            let width = wish.width(value, present, Duration::from_secs(second), &mut history);
            assert_eq!(width, expected, "{second}");
            present = width.unwrap_or(present);
        }
        assert_eq!(
            wish.width(800.0, 1, Duration::from_secs(112), &mut history),
            Some(2),
            "wider at once, step by step"
        );
    }
}
