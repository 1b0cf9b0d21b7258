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

/// How long a wish is not tried with which compilations take too long.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// The same if each try may cost a replica.
const PAUSE_IF_COSTLY: SignedDuration = SignedDuration::from_secs(300);

/// A wish that is tried alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Apart {
    /// What somebody wants.
    pub(super) wish: Wish,
    /// What came of the last try.
    pub(crate) failure: Failure,
    /// It is not tried before.
    pub(crate) until: Timestamp,
}

impl Apart {
    /// The wish is not tried for a while from now on.
    pub(super) fn new(wish: Wish, failure: Failure, now: Timestamp) -> Self {
        let pause = if failure.reason == REPLICAS_LOST { PAUSE_IF_COSTLY } else { PAUSE };
        Self { wish, failure, until: now.checked_add(pause).unwrap_or(Timestamp::MAX) }
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
