//! How a replica of the fusion service has done, and for how long it is left alone (rule call-15).
//!
//! Knows: the time, how calls ended. Must not know: addresses, connections, what is called.

use std::time::Duration;
use tokio::time::Instant;

/// How long a replica that failed is left alone the first time, and at most.
pub(super) const REST: Duration = Duration::from_secs(2);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// How a replica has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// How often it has failed since it answered last.
    failures: u32,
    /// There was no connection to it since it answered last.
    is_unreachable: bool,
    /// Until when it is left alone because it failed. An answer ends that.
    failed_until: Option<Instant>,
    /// Until when it has enough to do, by what it said. It goes on answering what it has taken before.
    has_enough_until: Option<Instant>,
}

impl Rest {
    /// It answered.
    pub(super) fn answered(&mut self) {
        (self.failures, self.is_unreachable, self.failed_until) = (0, false, None);
    }

    /// It failed. While it is left alone that says nothing new: the end of a replica ends all of its calls, and who
    /// has found no other one has asked it nevertheless.
    pub(super) fn failed(&mut self, now: Instant) {
        if self.has_failed(now) {
            return;
        }
        let length = REST.saturating_mul(1 << self.failures.min(8)).min(LONGEST_REST);
        (self.failures, self.failed_until) = (self.failures.saturating_add(1), Some(now + length));
    }

    /// There is no connection to it. Returns whether that is news since it has answered.
    pub(super) fn was_not_reached(&mut self, now: Instant) -> bool {
        self.failed(now);
        !std::mem::replace(&mut self.is_unreachable, true)
    }

    /// It has enough to do for so long.
    pub(super) fn has_enough_for(&mut self, length: Duration, now: Instant) {
        self.has_enough_until = Some(now + length.min(LONGEST_REST));
    }

    /// It has failed, and is left alone for so long.
    #[cfg(test)]
    pub(super) fn has_failed_for(&mut self, length: Duration, now: Instant) {
        self.failed_until = Some(now + length);
    }

    /// It is left alone because it failed.
    fn has_failed(self, now: Instant) -> bool {
        self.failed_until.is_some_and(|until| until > now)
    }

    /// It is left alone because it has enough to do.
    pub(super) fn has_enough(self, now: Instant) -> bool {
        self.has_enough_until.is_some_and(|until| until > now)
    }

    /// It is left alone.
    pub(super) fn is_left_alone(self, now: Instant) -> bool {
        self.has_failed(now) || self.has_enough(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_one_end_of_a_replica_ends_are_one_failure() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut rest = Rest::default();
        // when how many calls fail -> when it is left alone no more
        for (at, calls, expected) in [(0, 5, 2), (1, 3, 2), (2, 5, 6), (5, 1, 6), (6, 1, 14)] {
            (0..calls).for_each(|_| rest.failed(after(at)));
            assert!(rest.is_left_alone(after(expected - 1)), "{at} s: {rest:?}");
            assert!(!rest.is_left_alone(after(expected)), "{at} s: {rest:?}");
        }
        rest.answered();
        (0..5).for_each(|_| rest.failed(after(14)));
        assert!(rest.is_left_alone(after(15)) && !rest.is_left_alone(after(16)), "{rest:?}");
    }
}
