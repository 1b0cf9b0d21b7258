//! Namespaces whose calls fail because of what they ask for: an admission webhook of theirs is down, or silent. Each of
//! their calls may keep its place for seconds. Reads no clock.
//!
//! Invariant: nothing is kept of a namespace that has had no such call for a minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After a try that failed, the patient calls of its namespace rest for so many times as long as it took: so it has a
/// small part of the time of the one place that there may be.
const RESTS_FOR: u32 = 4;
/// At most. After an outage of everything, everybody goes on soon.
const RESTS_AT_MOST: Duration = Duration::from_secs(10);
/// So long after its last failure a namespace counts as one whose calls fail: perhaps others of its calls do not.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// By namespace.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    by_namespace: HashMap<Arc<str>, Trouble>,
}

/// What the failures of a namespace lead to.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    rests_until: Option<Instant>,
    remembered_until: Instant,
}

impl Troubles {
    /// How long a namespace rests after a failure that took so long.
    pub(super) fn rest_after(took: Duration) -> Duration {
        took.saturating_mul(RESTS_FOR).min(RESTS_AT_MOST)
    }

    /// A try of a call of this namespace failed, after which it rests for so long.
    pub(super) fn failed(&mut self, namespace: &Arc<str>, rest: Option<Duration>, now: Instant) {
        let trouble = Trouble { rests_until: rest.map(|rest| now + rest), remembered_until: now + REMEMBERED_FOR };
        let of_namespace = self.by_namespace.entry(Arc::clone(namespace)).or_insert(trouble);
        of_namespace.rests_until = of_namespace.rests_until.max(trouble.rests_until);
        of_namespace.remembered_until = trouble.remembered_until;
    }

    /// Calls of this namespace failed not long ago.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.by_namespace.contains_key(namespace)
    }

    /// It rests.
    pub(super) fn rests(&self, namespace: &str, now: Instant) -> bool {
        self.by_namespace.get(namespace).is_some_and(|trouble| Some(now) < trouble.rests_until)
    }

    pub(super) fn forget_what_is_past(&mut self, now: Instant) {
        self.by_namespace.retain(|_, trouble| now < trouble.remembered_until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_rests_for_longer_the_longer_its_failure_took_and_is_forgotten() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        // milliseconds that each failure took -> that the namespace rests after the last
        let table: [(&[u64], u64); 5] =
            [(&[10], 40), (&[2_000], 8_000), (&[60_000], 10_000), (&[10, 5], 40), (&[5, 10], 40)];
        for (failures, expected) in table {
            let (mut troubles, namespace) = (Troubles::default(), Arc::from("a"));
            for took in failures {
                troubles.failed(&namespace, Some(Troubles::rest_after(ms(*took))), start);
                troubles.failed(&namespace, None, start);
            }
            let rests = |after| troubles.rests("a", start + ms(after));
            assert_eq!((rests(0), rests(expected - 1), rests(expected)), (true, true, false), "{failures:?}");
            assert!(!troubles.rests("b", start) && !troubles.has("b"));
            // seconds -> remembered
            for (seconds, expected) in [(59, true), (60, false)] {
                troubles.forget_what_is_past(start + Duration::from_secs(seconds));
                assert_eq!(troubles.has("a"), expected, "{seconds} s");
            }
        }
    }
}
