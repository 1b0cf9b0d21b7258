//! Decides what to do about a Lease, and computes its next state. Makes no calls and reads no clock.

use super::LeaseOptions;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// What a candidate may do about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Take the Lease.
    Take,
    /// Go on with it: this replica has taken it, and nobody has led since.
    Keep,
    /// Look again later.
    Wait {
        /// Who leads.
        holder: String,
    },
}

/// The state of the Lease that was seen last, and since when.
#[derive(Debug, Default)]
pub(super) struct SeenLease {
    last: Option<(LeaseSpec, Instant)>,
    /// The number under which this replica has tried last to take it.
    tried: Option<i32>,
}

impl SeenLease {
    /// What to do about a Lease that is in this state now.
    pub(super) fn claim(&mut self, current: Option<&LeaseSpec>, options: &LeaseOptions, now: Instant) -> Claim {
        let Some(current) = current else { return Claim::Take };
        let holder = current.holder_identity.clone().unwrap_or_default();
        if holder.is_empty() {
            return Claim::Take;
        }
        if holder == options.identity {
            // The answer to its own try was lost, or came late. A replica that was started again under its own name is
            // another leader, but need not wait for itself.
            let is_taken = self.tried.is_some() && self.tried == current.lease_transitions;
            return if is_taken { Claim::Keep } else { Claim::Take };
        }
        let since = match &self.last {
            Some((last, since)) if last == current => *since,
            _ => {
                self.last = Some((current.clone(), now));
                now
            }
        };
        let duration = current
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(options.duration, Duration::from_secs);
        if now.saturating_duration_since(since) >= duration { Claim::Take } else { Claim::Wait { holder } }
    }

    /// The Lease after this replica has taken it, which it is about to try.
    pub(super) fn taken(&mut self, before: Option<&LeaseSpec>, options: &LeaseOptions, now: Timestamp) -> LeaseSpec {
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(-1);
        self.tried = Some(transitions.saturating_add(1));
        LeaseSpec { acquire_time: Some(MicroTime(now)), lease_transitions: self.tried, ..renewed(before, options, now) }
    }
}

/// The tries of one renewal, each of which may be stored although its answer was lost.
#[derive(Debug, Default)]
pub(super) struct SentRenewals {
    sent: Vec<(LeaseSpec, Instant)>,
}

impl SentRenewals {
    /// The Lease after the try that is sent now, or later. No state before it, and no other try, is the same: it shows
    /// which try is stored, whatever the clock says.
    pub(super) fn next(
        &mut self,
        before: Option<&LeaseSpec>,
        options: &LeaseOptions,
        now: Timestamp,
        sent_at: Instant,
    ) -> LeaseSpec {
        let mut now = in_microseconds(now, 0);
        let mut spec = renewed(before, options, now);
        while before == Some(&spec) || self.sent.iter().any(|(sent, _)| *sent == spec) {
            now = in_microseconds(now, 1);
            spec = renewed(before, options, now);
        }
        self.sent.push((spec.clone(), sent_at));
        spec
    }

    /// When the try was sent that has made this state of the Lease, if one has. Others wait from then, or later.
    pub(super) fn sent_at(&self, stored: Option<&LeaseSpec>) -> Option<Instant> {
        self.sent.iter().find(|(sent, _)| stored == Some(sent)).map(|(_, sent_at)| *sent_at)
    }
}

/// So many microseconds after this time, which is stored like that: an API server keeps no more digits.
fn in_microseconds(time: Timestamp, later: i64) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond().saturating_add(later)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The Lease after this replica has renewed it.
pub(super) fn renewed(before: Option<&LeaseSpec>, options: &LeaseOptions, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(options.identity.clone()),
        renew_time: Some(MicroTime(now)),
        // Seconds; rounded up, so that others never wait too short.
        lease_duration_seconds: i32::try_from(options.duration.as_millis().div_ceil(1000)).ok(),
        ..before.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LeaseOptions {
        LeaseOptions {
            namespace: "n".to_owned(),
            name: "l".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_secs(3),
            renew_interval: Duration::from_secs(1),
            renew_deadline: Duration::from_secs(2),
        }
    }

    fn held_by(holder: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            lease_duration_seconds: Some(5),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_when_it_has_not_changed_for_its_duration() {
        let start = Instant::now();
        let wait = Claim::Wait { holder: "other".to_owned() };
        // seconds, state of the lease -> step; one candidate sees them all in this order
        let table = [
            (0, Some(held_by("other", 0)), wait.clone()),
            (4, Some(held_by("other", 0)), wait.clone()),
            // Renewed: the waiting starts again, and it is the holder's duration that counts.
            (5, Some(held_by("other", 5)), wait.clone()),
            (9, Some(held_by("other", 5)), wait),
            (10, Some(held_by("other", 5)), Claim::Take),
        ];
        let mut last_state = SeenLease::default();
        for (seconds, spec, expected) in table {
            let claim = last_state.claim(spec.as_ref(), &options(), start + Duration::from_secs(seconds));
            assert_eq!(claim, expected, "{seconds} s");
        }
    }

    #[test]
    fn a_free_lease_is_taken_at_once() {
        let released = LeaseSpec { holder_identity: None, ..held_by("x", 0) };
        for spec in [None, Some(released), Some(held_by("", 0)), Some(held_by("me", 0))] {
            assert_eq!(SeenLease::default().claim(spec.as_ref(), &options(), Instant::now()), Claim::Take, "{spec:?}");
        }
    }

    #[test]
    fn a_lease_that_this_replica_has_tried_to_take_is_its_own_unless_somebody_else_has_led_since() {
        let numbered = |holder: &str, number: i32| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_transitions: Some(number),
            ..LeaseSpec::default()
        };
        // the Lease that it tries to take, the Lease that it sees then -> what it does
        let table = [
            (None, numbered("me", 0), Claim::Keep),
            (Some(numbered("", 4)), numbered("me", 5), Claim::Keep),
            (Some(numbered("", 4)), numbered("me", 4), Claim::Take),
            (Some(numbered("", 4)), numbered("me", 6), Claim::Take),
            (Some(numbered("", 4)), numbered("", 5), Claim::Take),
            (Some(numbered("", 4)), numbered("other", 5), Claim::Wait { holder: "other".to_owned() }),
        ];
        for (before, sees, expected) in table {
            let mut seen = SeenLease::default();
            let _ = seen.taken(before.as_ref(), &options(), Timestamp::UNIX_EPOCH);
            assert_eq!(seen.claim(Some(&sees), &options(), Instant::now()), expected, "{before:?} {sees:?}");
        }
        // Another process of the same name has tried.
        assert_eq!(SeenLease::default().claim(Some(&numbered("me", 5)), &options(), Instant::now()), Claim::Take);
    }

    #[test]
    fn what_is_stored_shows_which_try_of_a_renewal_it_was() {
        let (start, at) = (Instant::now(), |microsecond| Timestamp::from_microsecond(microsecond).unwrap());
        let before = renewed(None, &options(), at(7));
        let mut tries = SentRenewals::default();
        // Of a clock that stands still, and one that is set back. Not all of what it shows is stored.
        let clock = [at(7), at(7), Timestamp::from_nanosecond(9_999).unwrap(), at(7)];
        let mut sent = Vec::new();
        for (seconds, now) in (1..).zip(clock) {
            let sent_at = start + Duration::from_secs(seconds);
            sent.push((tries.next(Some(&before), &options(), now, sent_at), sent_at));
        }
        for (spec, sent_at) in &sent {
            let stored: LeaseSpec = serde_json::from_str(&serde_json::to_string(spec).unwrap()).unwrap();
            assert_eq!(tries.sent_at(Some(&stored)), Some(*sent_at), "{sent:?}");
        }
        let other_term = LeaseSpec { lease_transitions: Some(1), ..sent[0].0.clone() };
        let other_holder = LeaseSpec { holder_identity: Some("other".to_owned()), ..sent[0].0.clone() };
        for spec in [None, Some(&before), Some(&other_term), Some(&other_holder)] {
            assert_eq!(tries.sent_at(spec), None, "{spec:?}");
        }
    }

    #[test]
    fn taking_counts_and_renewing_does_not() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = SeenLease::default().taken(None, &options(), at(1));
        let again = renewed(Some(&first), &options(), at(2));
        let second = SeenLease::default().taken(Some(&again), &options(), at(3));
        let transitions: Vec<_> = [&first, &again, &second].iter().map(|spec| spec.lease_transitions).collect();
        assert_eq!(transitions, [Some(0), Some(0), Some(1)]);
        assert_eq!(again.acquire_time, first.acquire_time);
        assert_eq!(again.lease_duration_seconds, Some(3));
    }
}
