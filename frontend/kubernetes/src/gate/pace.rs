//! Whether the API server keeps its pace: how long calls take lately, beside how long they usually do. Reads no clock.

use std::time::Duration;
use tokio::time::Instant;

/// Lately is the last so many calls, about.
const LATELY: f64 = 8.0;
/// A call that takes longer than so many usual ones says no more than that.
const MOST: f64 = 8.0;
/// What was usual once is forgotten in about so many calls.
const FORGOTTEN: f64 = 1024.0;
/// Calls that take longer than so many usual ones are slow.
const SLOW: f64 = 1.5;
/// After so long without a call nobody knows whether calls take longer than usual: as long as a try of one may take.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// The pace of calls of one kind. In seconds; zero until there was a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    lately: f64,
    /// The quickest that it was lately, for some time.
    usual: f64,
    /// Until when it counts how long calls took.
    until: Option<Instant>,
}

impl Pace {
    /// A call took so long.
    pub(super) fn note(&mut self, took: Duration, now: Instant) {
        let took = took.as_secs_f64().max(f64::MIN_POSITIVE);
        self.until = Some(now + KNOWN_FOR);
        if self.usual == 0.0 {
            (self.lately, self.usual) = (took, took);
            return;
        }
        self.lately += (took.min(MOST * self.usual) - self.lately) / LATELY;
        self.usual = self.lately.min(self.usual * (1.0 + 1.0 / FORGOTTEN));
    }

    /// Whether a call that took so long took longer than several usual ones.
    pub(super) fn is_outrun_by(self, took: Duration) -> bool {
        took.as_secs_f64() > MOST * self.usual
    }

    pub(super) fn forget_what_is_past(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            self.pause();
        }
    }

    /// There was a pause: how long the calls before it took is no sign any more.
    pub(super) fn pause(&mut self) {
        self.lately = self.usual;
        self.until = None;
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
        let (mut pace, now) = (Pace::default(), Instant::now());
        for (times, milliseconds, expected) in runs {
            for _ in 0..times {
                pace.note(Duration::from_millis(milliseconds), now);
            }
            assert_eq!(pace.is_slow(), expected, "{times} of {milliseconds} ms: {pace:?}");
        }
        (0..10).for_each(|_| pace.note(Duration::from_millis(60_000), now));
        pace.pause();
        assert!(!pace.is_slow(), "{pace:?}");
    }

    #[test]
    fn it_is_forgotten_that_calls_were_slow_if_none_has_told_for_a_while() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for milliseconds in [10, 60, 60, 60] {
            pace.note(Duration::from_millis(milliseconds), now);
        }
        // how long ago the last one was -> slow
        for (ago, expected) in [(KNOWN_FOR / 2, true), (KNOWN_FOR, false)] {
            pace.forget_what_is_past(now + ago);
            assert_eq!(pace.is_slow(), expected, "{ago:?}");
        }
    }

    #[test]
    fn a_call_is_beyond_the_pace_if_it_took_longer_than_several_usual_ones() {
        let mut pace = Pace::default();
        pace.note(Duration::from_millis(100), Instant::now());
        for (milliseconds, expected) in [(100, false), (800, false), (900, true)] {
            assert_eq!(pace.is_outrun_by(Duration::from_millis(milliseconds)), expected, "{milliseconds} ms");
        }
    }
}
