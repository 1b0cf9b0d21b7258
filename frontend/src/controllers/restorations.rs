//! How often an object was restored, and when it may be restored again (rule call-19). Pure.
//!
//! Two who disagree about a field would write it in turn for ever. So the third restoration within ten minutes begins a
//! contention: from then on pauses between restorations grow. It ends when nothing had to be restored for ten minutes
//! longer than the last pause.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// So many restorations within [`PERIOD`] begin a contention.
const TOLERATED: usize = 3;
const PERIOD: SignedDuration = SignedDuration::from_mins(10);
/// First pause; doubled for each further restoration.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
/// Longest pause.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// Restorations of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restorations {
    /// At most [`TOLERATED`], oldest first.
    recent: Vec<Timestamp>,
    /// Restorations in a row since a contention began, that one included; 0 if there is none.
    pauses: u32,
    /// The field that was restored last.
    pub(crate) field: String,
    /// It was restored in vain: the API server does not keep the field (rule call-30).
    pub(crate) in_vain: bool,
}

impl Restorations {
    /// The field was restored.
    pub(crate) fn note(&mut self, field: &str, now: Timestamp) {
        field.clone_into(&mut self.field);
        self.in_vain = false;
        if self.contended_until().is_some_and(|until| now < until) {
            self.pauses = self.pauses.saturating_add(1);
        } else {
            self.pauses = 0;
            self.recent.retain(|at| now.duration_since(*at) < PERIOD);
        }
        self.recent.push(now);
        if self.recent.len() > TOLERATED {
            self.recent.remove(0);
        }
        if self.pauses == 0 && self.recent.len() == TOLERATED {
            self.pauses = 1;
        }
    }

    /// The field was written, and the API server does not keep it: the next time is after a pause, as in a contention.
    pub(crate) fn note_in_vain(&mut self, field: &str, now: Timestamp) {
        self.note(field, now);
        self.in_vain = true;
        self.pauses = self.pauses.max(1);
    }

    /// The object is not restored before this time; `None` if it may be at once.
    pub(crate) fn not_before(&self) -> Option<Timestamp> {
        (self.pauses > 0).then(|| self.after_the_last(self.pause()))
    }

    /// When the contention is over, if nothing is restored any more; `None` if there is none.
    pub(crate) fn contended_until(&self) -> Option<Timestamp> {
        (self.pauses > 0).then(|| self.after_the_last(self.pause().saturating_add(PERIOD)))
    }

    /// Whether they still say anything about what may be done `now`. Not if a clock was put back since: pauses would
    /// last until its time has come.
    pub(crate) fn count(&self, now: Timestamp) -> bool {
        let forgotten = self.contended_until().unwrap_or_else(|| self.after_the_last(PERIOD));
        let is_ahead = self.recent.last().is_some_and(|last| last.duration_since(now) >= FIRST_PAUSE);
        now < forgotten && !is_ahead
    }

    fn pause(&self) -> SignedDuration {
        let doubled = 1_i32.checked_shl(self.pauses.saturating_sub(1).min(16)).unwrap_or(i32::MAX);
        FIRST_PAUSE.checked_mul(doubled).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
    }

    fn after_the_last(&self, time: SignedDuration) -> Timestamp {
        let last = self.recent.last().copied().unwrap_or(Timestamp::MIN);
        last.checked_add(time).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    #[test]
    fn the_third_restoration_within_ten_minutes_begins_a_contention() {
        // minutes of restorations -> minute before which there is no other, minute when the contention is over
        let table: [(&[i64], Option<i64>, Option<i64>); 8] = [
            (&[0], None, None),
            (&[0, 1], None, None),
            (&[0, 1, 2], Some(3), Some(13)),
            (&[0, 5, 9], Some(10), Some(20)),
            (&[0, 5, 10], None, None),
            (&[0, 1, 2, 3], Some(5), Some(15)),
            (&[0, 1, 2, 3, 5, 9, 17, 27], Some(37), Some(47)),
            // It was over.
            (&[0, 1, 2, 13], None, None),
        ];
        for (minutes, not_before, until) in table {
            let mut restorations = Restorations::default();
            minutes.iter().for_each(|minute| restorations.note("f", at(*minute)));
            assert_eq!(restorations.not_before(), not_before.map(at), "{minutes:?}");
            assert_eq!(restorations.contended_until(), until.map(at), "{minutes:?}");
            assert!(restorations.recent.len() <= TOLERATED);
        }
    }

    #[test]
    fn what_is_in_vain_is_tried_again_after_a_pause_from_the_first_time_on() {
        let mut restorations = Restorations::default();
        // minute of a try -> minute before which there is no other
        for (minute, not_before) in [(0, 1), (1, 3), (3, 7), (7, 15), (15, 25), (25, 35)] {
            restorations.note_in_vain("f", at(minute));
            assert_eq!((restorations.not_before(), restorations.in_vain), (Some(at(not_before)), true), "{minute}");
        }
        restorations.note("g", at(35));
        assert!(!restorations.in_vain);
    }

    #[test]
    fn they_are_forgotten_when_they_do_not_matter_any_more() {
        let mut restorations = Restorations::default();
        restorations.note("f", at(0));
        assert!(restorations.count(at(9)) && !restorations.count(at(10)));
        restorations.note("f", at(1));
        restorations.note("f", at(2));
        assert!(restorations.count(at(12)) && !restorations.count(at(13)));
        assert!(restorations.count(at(2)) && !restorations.count(at(1)), "a clock was put back");
    }
}
