//! Whether the API server keeps its pace: how long calls take lately, beside how long they usually do. Reads no clock.

use std::time::Duration;

/// Lately is the last so many calls, about.
const LATELY: f64 = 8.0;
/// A call that takes longer than so many usual ones says no more than that.
const MOST: f64 = 8.0;
/// What was usual once is forgotten in about so many calls.
const FORGOTTEN: f64 = 1024.0;
/// Calls that take longer than so many usual ones are slow.
const SLOW: f64 = 1.5;

/// The pace of calls of one kind. In seconds; zero until there was a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    lately: f64,
    /// The quickest that it was lately, for some time.
    usual: f64,
}

impl Pace {
    /// A call took so long.
    pub(super) fn note(&mut self, took: Duration) {
        let took = took.as_secs_f64().max(f64::MIN_POSITIVE);
        if self.usual == 0.0 {
            *self = Self { lately: took, usual: took };
            return;
        }
        self.lately += (took.min(MOST * self.usual) - self.lately) / LATELY;
        self.usual = self.lately.min(self.usual * (1.0 + 1.0 / FORGOTTEN));
    }

    /// There was a pause: how long the calls before it took is no sign any more.
    pub(super) fn pause(&mut self) {
        self.lately = self.usual;
    }

    /// Calls take longer than usual.
    pub(super) fn is_slow(self) -> bool {
        self.lately > SLOW * self.usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_slow_while_several_take_longer_than_usual() {
        // how often, milliseconds -> slow afterwards
        let runs = [
            (0, 0, false),
            (1, 50, false),
            (20, 10, false),
            (1, 60_000, true),
            (20, 10, false),
            (2, 20, false),
            (10, 20, true),
            (20, 10, false),
            // A server that is slower for good is slow until that is usual.
            (100, 20, true),
            (1_000, 20, false),
        ];
        let mut pace = Pace::default();
        for (times, milliseconds, expected) in runs {
            for _ in 0..times {
                pace.note(Duration::from_millis(milliseconds));
            }
            assert_eq!(pace.is_slow(), expected, "{times} of {milliseconds} ms: {pace:?}");
        }
        (0..10).for_each(|_| pace.note(Duration::from_millis(60_000)));
        pace.pause();
        assert!(!pace.is_slow(), "{pace:?}");
    }
}
