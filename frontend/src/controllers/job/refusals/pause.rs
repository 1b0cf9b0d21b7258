//! Pauses after refusals: nothing is created for a while in a namespace that is being deleted (rule job-37), no object
//! is applied of a kind whose definition is of an earlier version (rule call-30), and what is being deleted is not
//! looked for (rule job-30). Pure.

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
        let length = FIRST_PAUSE.saturating_mul(1 << refusals.min(16)).min(LONGEST_PAUSE);
        let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
        Self { refusals, until: now.checked_add(length).unwrap_or(Timestamp::MAX) }
    }

    /// How much of it is left.
    pub(crate) fn left(self, now: Timestamp) -> Option<Duration> {
        Duration::try_from(self.until.duration_since(now)).ok().filter(|left| !left.is_zero())
    }
}
