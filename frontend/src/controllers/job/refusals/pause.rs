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
/// After a turn that has tried a part of all, the pause is not doubled more often: whatever can be done by then waits
/// until all other parts were tried, one after the other.
const DOUBLED_FOR_A_PART: u32 = 3;

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
        Self::doubled(before.map_or(0, |before| before.refusals.saturating_add(1)), now)
    }

    /// The pause after a refusal if there were so many before.
    fn doubled(refusals: u32, now: Timestamp) -> Self {
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
    /// How much there was to do in the last turn.
    all: usize,
    /// It became more since everything was tried last: some of that may be free.
    has_more: bool,
    /// That was so before everything was tried last: what comes and goes must not bring the first pause each time.
    had_more: bool,
}

impl Going {
    /// A turn has tried so much of all that there is to do, and some of that is being deleted. The pause becomes longer
    /// each time that everything was tried. What a turn has left out was perhaps not tried before: until everything was
    /// tried once, and again where there is more to do than there was, a part follows the other after the first pause;
    /// then not until everything was tried once more, however often there is more.
    pub(crate) fn found(before: Option<Self>, tried: usize, all: usize, now: Timestamp) -> Self {
        let pause = Pause::doubled(0, now);
        let begun = Self { pause, of_all: None, tried, all, has_more: false, had_more: false };
        let going = before.map_or(begun, |before| before.and(tried, all));
        let is_part = going.tried < all;
        let begins_anew = before.is_some_and(|before| before.begins_anew(all));
        let is_paused = before.is_some_and(|before| before.left(now).is_some());
        if is_paused && !(is_part && begins_anew) {
            return going;
        }
        if !is_part {
            let pause = Pause::after(going.of_all, now);
            return Self { pause, of_all: Some(pause), tried: 0, all, has_more: false, had_more: going.has_more };
        }
        let before = going.of_all.filter(|_| !going.has_more);
        let doubled = before.map_or(0, |before| before.refusals.saturating_add(1).min(DOUBLED_FOR_A_PART));
        Self { pause: Pause::doubled(doubled, now), ..going }
    }

    /// A turn has tried so much of all that there is to do, and nothing of that is being deleted. Only one that has
    /// tried everything knows that nothing is.
    pub(crate) fn not_found(self, tried: usize, all: usize) -> Option<Self> {
        (tried < all).then(|| self.and(tried, all))
    }

    /// Whether all of it is tried anew because there is more: what has come to it may be anywhere among that.
    fn begins_anew(self, all: usize) -> bool {
        all > self.all && !self.has_more && !self.had_more
    }

    /// A turn has tried so much of all.
    fn and(self, tried: usize, all: usize) -> Self {
        let begins_anew = self.begins_anew(all);
        let before = if begins_anew { 0 } else { self.tried };
        Self { tried: before.saturating_add(tried), all, has_more: self.has_more || begins_anew, ..self }
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
            (9, &[3; 18], &[1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8, 8, 16, 8, 8, 32]),
            (8, &[5, 5, 5, 5, 5], &[1, 1, 2, 2, 4]),
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
    fn what_comes_to_it_is_not_held_up_by_what_does_not_go() {
        // seconds that have passed since the turn before, what the turn has tried, what there is to do -> pause
        let table = [
            (0, 3, 6, 1),
            (1, 3, 6, 1),
            (1, 3, 6, 2),
            (2, 3, 6, 2),
            (2, 3, 6, 4),
            // It may be among what is tried last.
            (1, 3, 7, 1),
            (1, 3, 7, 1),
            (1, 3, 7, 4),
            (4, 3, 7, 8),
            (0, 3, 7, 8),
            // Some of it has gone.
            (8, 3, 5, 8),
            // All of it was tried.
            (1, 6, 6, 7),
        ];
        let (mut going, mut now) = (None, at(0));
        for (number, (passed, tried, all, expected)) in table.into_iter().enumerate() {
            now = now.checked_add(SignedDuration::from_secs(passed)).unwrap();
            let found = Going::found(going, tried, all, now);
            assert_eq!(seconds(found.left(now)), expected, "{number}");
            going = Some(found);
        }
    }

    #[test]
    fn a_large_job_with_what_does_not_go_is_looked_at_seldom_and_what_goes_is_found_within_minutes() {
        // turns in which everything is tried -> most looks in an hour, most seconds until everything was tried again
        let table = [(1, 70, 60), (2, 130, 68), (16, 400, 180), (40, 520, 372)];
        for (turns, looks, longest) in table {
            let (mut going, mut begun, mut tried, end) = (None, at(0), 0, at(3_600));
            let mut now = begun;
            while now < end {
                let found = Going::found(going, 256, turns * 256, now);
                now = now.checked_add(SignedDuration::try_from(found.left(now).unwrap()).unwrap()).unwrap();
                going = Some(found);
                tried += 1;
                if tried % turns == 0 {
                    assert!(now.duration_since(begun).as_secs() <= longest, "{turns}: {begun} to {now}");
                    begun = now;
                }
            }
            assert!(tried <= looks, "{turns}: {tried}");
        }
    }

    /// As where somebody asks for a width every half a minute, or changes one of the objects.
    #[test]
    fn what_comes_and_goes_does_not_bring_the_first_pause_again_and_again() {
        // turns in which everything is tried -> most looks in an hour
        for (turns, looks) in [(2, 150), (16, 600), (40, 900)] {
            let (mut going, mut now, mut tried, end) = (None, at(0), 0, at(3_600));
            let mut came = now;
            while now < end {
                let comes = now.duration_since(came).as_secs() >= 30;
                came = if comes { now } else { came };
                let found = Going::found(going, 256, turns * 256 + usize::from(comes), now);
                now = now.checked_add(SignedDuration::try_from(found.left(now).unwrap()).unwrap()).unwrap();
                going = Some(found);
                tried += 1;
            }
            assert!(tried <= looks, "{turns}: {tried}");
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
