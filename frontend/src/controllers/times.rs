//! Times as statuses hold them, which is in whole seconds, and as controllers wait for them; moments that a process
//! remembers. What clocks that differ, or that are set, do to all of that.

use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_kubernetes::cluster::Cluster;

/// How far the clocks of the API server and of the frontend may be apart.
pub(crate) const CLOCKS_DIFFER: Duration = Duration::from_secs(5);

/// What the clocks of the process say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// The time of day. That clock may be set at any moment.
    pub(crate) now: Timestamp,
    /// How much time has passed since some moment. A moment that the process remembers is one of these: how long ago it
    /// was does not depend on what becomes of the time of day (rule call-20).
    pub(crate) passed: Duration,
}

impl Clocks {
    /// As they are now.
    pub(crate) fn of<C: Cluster>(cluster: &C) -> Self {
        Self { now: cluster.now(), passed: cluster.passed() }
    }

    /// The time of day of a remembered moment, by the clock as it is set now.
    pub(crate) fn time_of(self, moment: Duration) -> Timestamp {
        let ago = self.passed.saturating_sub(moment);
        self.now.checked_sub(ago).unwrap_or(Timestamp::MIN)
    }
}

/// `start` plus `duration`; a duration beyond the calendar never ends.
pub(crate) fn after(start: Timestamp, duration: Duration) -> Timestamp {
    start.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// How long ago the API server has created something. `None` if that lies too far in the future: how long ago it was is
/// not known then, and what waits for some time after it would wait for as much longer.
pub(crate) fn age(created: Timestamp, now: Timestamp) -> Option<Duration> {
    let is_known = created <= after(now, CLOCKS_DIFFER);
    is_known.then(|| Duration::try_from(now.duration_since(created)).unwrap_or_default())
}

/// How far two times are apart. What counts for a while counts for no longer before its time than after it: a clock was
/// put back then (rule call-20).
pub(crate) fn distance(one: Timestamp, other: Timestamp) -> Duration {
    other.duration_since(one).unsigned_abs()
}

/// The time as a status can hold it, so that a decision equals what is read back later.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The first whole second that is not before `at`. An observation has no other times: a look before that second would
/// find that it is still to wait, again and again.
pub(crate) fn up_to_second(at: Timestamp) -> Timestamp {
    match Timestamp::from_second(at.as_second()) {
        Ok(second) if second < at => after(second, Duration::from_secs(1)),
        Ok(second) => second,
        Err(_) => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_ago_something_was_does_not_depend_on_the_time_of_day() {
        let at = |second| Timestamp::from_second(second).unwrap();
        // time of day, seconds that have passed -> when it was in the hundredth second
        for (now, passed, expected) in [(1_000, 100, 1_000), (1_005, 105, 1_000), (400, 105, 395), (9_000, 105, 8_995)]
        {
            let clocks = Clocks { now: at(now), passed: Duration::from_secs(passed) };
            assert_eq!(clocks.time_of(Duration::from_secs(100)), at(expected), "{now} {passed}");
        }
    }

    #[test]
    fn the_age_of_what_was_created_in_the_future_is_not_known() {
        let at = |second| Timestamp::from_second(second).unwrap();
        // when it was created -> seconds, if that is known
        for (created, expected) in [(70, Some(30)), (100, Some(0)), (105, Some(0)), (106, None), (3_700, None)] {
            assert_eq!(age(at(created), at(100)), expected.map(Duration::from_secs), "{created}");
        }
    }

    #[test]
    fn a_duration_beyond_the_calendar_never_ends() {
        let start = Timestamp::from_second(10).unwrap();
        for (duration, expected) in [
            (Duration::ZERO, start),
            (Duration::from_millis(1_500), Timestamp::from_millisecond(11_500).unwrap()),
            (Duration::from_secs(1 << 40), Timestamp::MAX),
            (Duration::MAX, Timestamp::MAX),
        ] {
            assert_eq!(after(start, duration), expected, "{duration:?}");
        }
    }
}
