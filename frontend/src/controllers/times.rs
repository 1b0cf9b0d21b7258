//! Times as statuses hold them, which is in whole seconds, and as controllers wait for them.

use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// `start` plus `duration`; a duration beyond the calendar never ends.
pub(crate) fn after(start: Timestamp, duration: Duration) -> Timestamp {
    start.saturating_add(duration).unwrap_or(Timestamp::MAX)
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
