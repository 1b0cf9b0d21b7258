//! Pauses after refusals: nothing is created for a while in a namespace that is being deleted (rule job-37), and no
//! object is applied of a kind whose definition is of an earlier version (rule call-30), however often somebody looks.
//! What is being deleted is tried at each look; its pause says when that comes if nothing else brings it (rule job-30).
//! Pure.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// First pause after a refusal; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long something is not tried that the API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// Refusals in a row.
    refusals: u32,
    /// When something is tried again.
    until: Timestamp,
}

impl Pause {
    /// The pause after another refusal.
    pub(crate) fn after(before: Option<Self>, now: Timestamp) -> Self {
        let refusals = before.map_or(0, |before| before.refusals.saturating_add(1));
        let length = SignedDuration::try_from(length(refusals)).unwrap_or(SignedDuration::MAX);
        Self { refusals, until: now.checked_add(length).unwrap_or(Timestamp::MAX) }
    }

    /// How much of it is left; nothing if a clock was put back so far that it would be more than twice as long.
    pub(crate) fn left(self, now: Timestamp) -> Option<Duration> {
        let left = Duration::try_from(self.until.duration_since(now)).ok().filter(|left| !left.is_zero());
        left.filter(|left| *left <= length(self.refusals) * 2)
    }
}

/// How long a pause is after so many refusals before.
fn length(refusals: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << refusals.min(16)).min(LONGEST_PAUSE)
}

/// Objects in the way are being deleted: when somebody looks whether they are gone, if nothing else brings a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Going {
    pause: Pause,
    /// The pause after everything was tried last.
    of_all: Option<Pause>,
    /// How much was tried since.
    tried: usize,
}

impl Going {
    /// A turn has tried so much of all that there is to do, and some of that is being deleted. The pause becomes longer
    /// each time that everything was tried: what a turn has left out was not tried before.
    pub(crate) fn found(before: Option<Self>, tried: usize, all: usize, now: Timestamp) -> Self {
        let tried = before.map_or(0, |before| before.tried).saturating_add(tried);
        let of_all = before.and_then(|before| before.of_all);
        match before {
            Some(before) if before.left(now).is_some() => Self { tried, ..before },
            _ if tried < all => Self { pause: Pause::after(None, now), of_all, tried },
            _ => {
                let pause = Pause::after(of_all, now);
                Self { pause, of_all: Some(pause), tried: 0 }
            }
        }
    }

    /// A turn has tried so much of all that there is to do, and nothing of that is being deleted. Only one that has
    /// tried everything knows that nothing is.
    pub(crate) fn not_found(self, tried: usize, all: usize) -> Option<Self> {
        (tried < all).then(|| Self { tried: self.tried.saturating_add(tried), ..self })
    }

    /// When somebody looks.
    pub(crate) fn left(self, now: Timestamp) -> Option<Duration> {
        self.pause.left(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn seconds(left: Option<Duration>) -> u64 {
        left.unwrap_or_default().as_secs()
    }

    #[test]
    fn pauses_double_and_end_also_if_a_clock_is_put_back() {
        let mut pause = None;
        for length in [1, 2, 4, 8, 16, 32, 60, 60] {
            let next = Pause::after(pause, at(0));
            // seconds that pass -> left
            let table =
                [(0, length), (1, length - 1), (length, 0), (-length, 2 * length), (-length - 1, 0), (-3_600, 0)];
            for (passed, expected) in table {
                assert_eq!(seconds(next.left(at(passed))), u64::try_from(expected).unwrap(), "{length} {passed}");
            }
            pause = Some(next);
        }
    }

    #[test]
    fn what_does_not_go_is_looked_for_less_often_each_time_that_everything_was_tried() {
        // what there is to do, what each turn has tried of it, one after the other pause -> pauses
        let table: [(usize, &[usize], &[u64]); 4] = [
            (3, &[3, 3, 3, 3, 3, 3, 3, 3], &[1, 2, 4, 8, 16, 32, 60, 60]),
            (9, &[3, 3, 3, 3, 3, 3, 3, 3, 3], &[1, 1, 1, 1, 1, 2, 1, 1, 4]),
            (8, &[5, 5, 5, 5, 5], &[1, 1, 1, 2, 1]),
            (0, &[0, 0], &[1, 2]),
        ];
        for (all, turns, expected) in table {
            let (mut going, mut now, mut pauses) = (None, at(0), Vec::new());
            for tried in turns {
                let found = Going::found(going, *tried, all, now);
                let left = found.left(now).unwrap();
                now = now.checked_add(SignedDuration::try_from(left).unwrap()).unwrap();
                pauses.push(left.as_secs());
                going = Some(found);
            }
            assert_eq!(pauses, expected, "{all} {turns:?}");
        }
    }

    #[test]
    fn looks_that_others_bring_make_no_pause_longer_and_a_turn_that_has_tried_everything_ends_it() {
        let first = Going::found(None, 2, 2, at(0));
        let again = (0..20).fold(first, |going, _| Going::found(Some(going), 2, 2, at(0)));
        assert_eq!([first, again].map(|going| seconds(going.left(at(0)))), [1, 1]);
        let next = Going::found(Some(again), 2, 2, at(1));
        assert_eq!(seconds(next.left(at(1))), 2);
        assert_eq!(next.not_found(2, 2), None);
        // The rest of it was tried, and is not being deleted.
        let rest = next.not_found(1, 2).unwrap();
        assert_eq!(seconds(Going::found(Some(rest), 1, 2, at(3)).left(at(3))), 4);
    }
}
