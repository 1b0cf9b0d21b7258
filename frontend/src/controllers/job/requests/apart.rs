//! Wishes with which compilations come to no end (rule elasticity-3): they are tried alone, so that others go on.
//!
//! A compilation that takes longer than it may, or that replicas do not survive, says nothing about the widths: it may
//! be that the service has too much to do. So such a wish is not refused, and what is known of it has an end.
//!
//! Knows: wishes, failures. Must not know: which sets of wishes are compiled.

use super::super::tasks::Failure;
use super::wishes::{Author, Wish};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Reason of a compilation that took longer than it may.
pub(crate) const DEADLINE_EXCEEDED: &str = "FusionDeadlineExceeded";
/// Reason of a compilation that ended replica after replica.
pub(crate) const REPLICAS_LOST: &str = "FusionReplicasLost";

/// How long a wish is not tried after it was set apart; doubled with each further try. A few seconds of broken
/// connections look like a request that replicas do not survive, and perhaps nobody else waits.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// The same if each try may cost replicas: those that it has cost are back by then.
const FIRST_PAUSE_IF_COSTLY: SignedDuration = SignedDuration::from_secs(20);
/// The longest such time.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// The same if each try may cost replicas.
const LONGEST_PAUSE_IF_COSTLY: SignedDuration = SignedDuration::from_secs(300);

/// A wish that is tried alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Apart {
    /// What somebody wants.
    pub(super) wish: Wish,
    /// What came of the last try.
    pub(crate) failure: Failure,
    /// It is not tried before, unless a clock was put back.
    pub(crate) until: Timestamp,
    /// How often it was tried alone in vain.
    tries: u32,
}

impl Apart {
    /// The wish is at fault, and is not tried for a while from now on.
    pub(super) fn new(wish: Wish, failure: Failure, now: Timestamp) -> Self {
        Self::after(0, wish, failure, now)
    }

    /// This has come of the last try. Whoever looks at that twice does not count it twice.
    pub(super) fn again(&self, failure: &Failure, now: Timestamp) -> Self {
        if self.failure == *failure && !self.is_due(now) {
            return self.clone();
        }
        Self::after(self.tries.saturating_add(1), self.wish.clone(), failure.clone(), now)
    }

    fn after(tries: u32, wish: Wish, failure: Failure, now: Timestamp) -> Self {
        let until = now.checked_add(pause(tries, &failure)).unwrap_or(Timestamp::MAX);
        Self { wish, failure, until, tries }
    }

    /// It may be tried; also if a clock was put back since: no pause is as long (rule call-20).
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let left = self.until.duration_since(now);
        left <= SignedDuration::ZERO || left > LONGEST_PAUSE_IF_COSTLY
    }

    /// Who wants it.
    pub(crate) fn who(&self) -> String {
        match &self.wish.author {
            Author::Edit(region) => format!("the width in the spec of {region}"),
            Author::Request(_, name) => format!("the request {name}"),
        }
    }

    /// Why it is not carried out with the others, in one sentence.
    pub(super) fn message(&self) -> String {
        format!("{}; it is tried alone from now on, and others go on without it", self.failure.message)
    }
}

/// Whether the widths may be the reason for a failure after which it is tried again.
pub(super) fn may_be_of_widths(failure: &Failure) -> bool {
    failure.is_temporary() && [DEADLINE_EXCEEDED, REPLICAS_LOST].contains(&failure.reason.as_str())
}

/// How long a wish is left alone after so many tries in vain.
fn pause(tries: u32, failure: &Failure) -> SignedDuration {
    if !may_be_of_widths(failure) {
        // What the cluster refuses is written before it is known to be refused.
        return LONGEST_PAUSE;
    }
    let (first, longest) = match failure.reason.as_str() {
        REPLICAS_LOST => (FIRST_PAUSE_IF_COSTLY, LONGEST_PAUSE_IF_COSTLY),
        _ => (FIRST_PAUSE, LONGEST_PAUSE),
    };
    first.checked_mul(1 << tries.min(16)).unwrap_or(longest).min(longest)
}

#[cfg(test)]
mod tests {
    use super::super::super::tasks::Remedy;
    use super::super::wishes::tests::request;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn failure(reason: &str, second: i64) -> Failure {
        let (reason, message) = (reason.to_owned(), String::new());
        Failure { remedy: Remedy::Retry(at(second)), reason, message, stage: None, code: None }
    }

    #[test]
    fn a_wish_is_tried_again_soon_and_then_less_and_less_often() {
        // why each try is in vain -> seconds until the next one
        let table = [
            (REPLICAS_LOST, [20, 40, 80, 160, 300, 300, 300, 300, 300, 300, 300]),
            (DEADLINE_EXCEEDED, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]),
            ("QuotaExceeded", [60; 11]),
        ];
        for (reason, pauses) in table {
            let (mut before, mut now): (Option<Apart>, i64) = (None, 0);
            for pause in pauses {
                let failure = failure(reason, now);
                let tried = match &before {
                    None => Apart::new(request(1, &[("A", 9)]), failure.clone(), at(now)),
                    Some(before) => before.again(&failure, at(now)),
                };
                assert_eq!(tried.until, at(now + pause), "{reason} {before:?}");
                assert_eq!(tried.again(&failure, at(now)), tried, "the same try");
                (before, now) = (Some(tried), now + pause);
            }
        }
    }

    #[test]
    fn a_wish_is_due_once_its_pause_is_over_also_if_a_clock_was_put_back() {
        let apart = Apart::new(request(1, &[("A", 9)]), failure(REPLICAS_LOST, 0), at(0));
        // seconds since it was set apart -> whether it may be tried
        for (passed, expected) in [(0, false), (19, false), (20, true), (-280, false), (-281, true), (-1_800, true)] {
            assert_eq!(apart.is_due(at(passed)), expected, "{passed}");
        }
    }
}
