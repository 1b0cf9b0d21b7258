//! How much is done because of an event by whoever is told of it. The rest is done in turns (rule import-10).
//!
//! Knows: steps of evaluations, time. Must not know: what is done.

use std::mem;
use std::time::Duration;
use tokio::time::Instant;

/// What is tried at a time, in steps of evaluations: a millisecond or two, in which a subscription is tried with two
/// thousand exports. So long whoever is told of a change is held up, and whoever asks for the namespace meanwhile.
pub(super) const SLICE: usize = 1 << 20;

/// The time in which events about jobs and PEs of a namespace have a slice together.
const WITHIN: Duration = Duration::from_secs(1);

/// What may still be done at once, in steps of evaluations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    /// For looks at objects.
    pub(super) looks: usize,
    /// For trying what may match.
    pub(super) tries: usize,
}

/// What may still be done at once because of events about jobs and PEs of a namespace, each of which may be about
/// thousands of objects, and may come again and again.
#[derive(Debug, Default)]
pub(super) struct AllowanceOfEvents {
    left: Allowance,
    /// Since when it has been that of a slice, but for what has been done.
    since: Option<Instant>,
}

impl AllowanceOfEvents {
    /// What an event may have done, and since when that has been a slice. Until it has given back what is left of that,
    /// others may have nothing done.
    pub(super) fn take(&mut self, now: Instant) -> (Allowance, Instant) {
        let since = self.since.filter(|since| *since + WITHIN > now).unwrap_or_else(|| {
            self.left = Allowance { looks: SLICE, tries: SLICE };
            now
        });
        self.since = Some(since);
        (mem::take(&mut self.left), since)
    }

    /// Whether an event may have nothing looked at.
    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        self.left.looks == 0 && self.since.is_some_and(|since| since + WITHIN > now)
    }

    /// An event has left this of what it took. Another one may have taken nothing meanwhile, and given that back. What
    /// was of an earlier slice is gone.
    pub(super) fn give_back(&mut self, left: Allowance, since: Instant) {
        if self.since == Some(since) {
            self.left.looks += left.looks;
            self.left.tries += left.tries;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_second_have_a_slice_together() {
        let (begun, mut of_events) = (Instant::now(), AllowanceOfEvents::default());
        let all = Allowance { looks: SLICE, tries: SLICE };
        // milliseconds after the first, what the event may have done, what it leaves
        let table = [
            (0, all, Allowance { looks: 7, tries: SLICE }),
            (999, Allowance { looks: 7, tries: SLICE }, Allowance { looks: 0, tries: 3 }),
            (999, Allowance { looks: 0, tries: 3 }, Allowance { looks: 0, tries: 3 }),
            (1_000, all, Allowance::default()),
            (1_999, Allowance::default(), Allowance::default()),
            (9_000, all, all),
        ];
        for (after, expected, left) in table {
            let now = begun + Duration::from_millis(after);
            assert_eq!(of_events.is_used_up(now), expected.looks == 0, "{after}");
            let (taken, since) = of_events.take(now);
            assert_eq!(taken, expected, "{after}");
            assert_eq!(of_events.take(now), (Allowance::default(), since), "{after}: somebody has it");
            of_events.give_back(left, since);
        }
    }

    #[test]
    fn what_is_given_back_is_there_once_whoever_else_gives_back() {
        let (begun, mut of_events) = (Instant::now(), AllowanceOfEvents::default());
        let all = Allowance { looks: SLICE, tries: SLICE };
        let ((first, since), (second, _)) = (of_events.take(begun), of_events.take(begun));
        assert_eq!((first, second), (all, Allowance::default()));
        of_events.give_back(first, since);
        of_events.give_back(second, since);
        assert_eq!(of_events.take(begun), (all, since));
        // It is given back after the next slice was taken.
        let next = begun + WITHIN;
        assert_eq!(of_events.take(next), (all, next));
        of_events.give_back(first, since);
        assert_eq!(of_events.take(next), (Allowance::default(), next));
    }
}
