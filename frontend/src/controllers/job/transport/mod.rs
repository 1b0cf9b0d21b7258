//! The Secret with which the PEs of a job secure their connections (rule job-48).
//!
//! It has a certificate and its key for all PEs, signed by a certificate authority that the job has for itself, and the
//! key of that authority. The Secret is only ever read, not watched: the reconciler looks at it when it does not know
//! it, every minute after that, and when the certificate is due.
//!
//! One that somebody has made immutable is made again. Meanwhile a copy of it keeps the authority, so that a process
//! may end at any time.
//!
//! * [`certificate`] — pure but for chance: makes certificates, and says what is wrong with some;
//! * [`secret`] — where the Secret keeps them;
//! * this file — what is observed of it.
//!
//! Knows: Secrets, time. Must not know: pods, plans. Invariant: no key is logged, printed, or in an error.

pub(crate) mod certificate;
pub(crate) mod secret;

use self::certificate::Certificates;
use super::going::GoingObject;
use crate::controllers::times::Clocks;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// How long what was seen of the Secret counts.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(60);
/// What stands for the hash of a Secret that is as it should be.
pub(crate) const GOOD: &str = "good";

/// What is known of the Secret of a job that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    /// Whether the job is to have the Secret.
    pub(crate) wanted: bool,
    /// For how many days its certificate is to be valid.
    pub(crate) days: u32,
    /// What was seen of it; `None` if it could not be looked at.
    pub(crate) sighting: Option<Sighting>,
}

impl Transport {
    /// When something is to be done next.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.sighting.as_ref().map(|sighting| sighting.next(self.days, now))
    }

    /// There is a Secret, or it is not known that there is none.
    pub(crate) fn has_secret(&self) -> bool {
        self.sighting.as_ref().is_none_or(|sighting| sighting.secret.is_some())
    }
}

/// What was seen of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// When.
    pub(crate) at: Timestamp,
    /// The Secret; `None` if there is none.
    pub(crate) secret: Option<SeenSecret>,
}

/// What was seen of a Secret of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenSecret {
    /// What it says of its deletion, if somebody is deleting it.
    pub(crate) going: Option<Arc<GoingObject>>,
    /// What its certificates say; `None` if they cannot be used.
    pub(crate) certificates: Option<Certificates>,
    /// Somebody has made it immutable: it cannot be renewed, and nodes do not look at it any more.
    pub(crate) immutable: bool,
    /// There is a copy of it: a process has ended while it made the Secret again.
    pub(crate) has_copy: bool,
}

/// What was seen of the Secret last, as a process remembers it: how long it counts does not depend on what becomes of
/// the time of day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RememberedSighting {
    sighting: Sighting,
    /// How much time had passed then.
    at: Duration,
}

impl RememberedSighting {
    /// It is seen now.
    pub(crate) fn new(sighting: Sighting, clocks: Clocks) -> Self {
        Self { sighting, at: clocks.passed }
    }

    /// What was seen, if it still counts.
    pub(crate) fn found(&self, clocks: Clocks) -> Option<Sighting> {
        let found = Sighting { at: clocks.time_of(self.at), ..self.sighting.clone() };
        (clocks.now < found.until()).then_some(found)
    }
}

impl SeenSecret {
    /// Whether the certificate can be used, and is not due yet.
    fn is_usable(&self, days: u32, now: Timestamp) -> bool {
        self.certificates.as_ref().is_some_and(|certificates| certificates.is_good(days, now))
    }

    /// Whether nothing is wrong with it, but that somebody has made it immutable.
    pub(crate) fn is_only_immutable(&self, days: u32, now: Timestamp) -> bool {
        self.immutable && !self.has_copy && self.is_usable(days, now)
    }
}

impl Sighting {
    /// What is seen of the Secret now; it must be the job's own.
    pub(crate) fn of(secret: Option<&Secret>, at: Timestamp) -> Self {
        let secret = secret.map(|secret| SeenSecret {
            going: GoingObject::of(&secret.metadata),
            certificates: secret::material(secret).and_then(|material| certificate::inspect(&material).ok()),
            immutable: secret.immutable == Some(true),
            has_copy: false,
        });
        Self { at, secret }
    }

    /// When it has to be looked at again, although nothing happens.
    pub(crate) fn until(&self) -> Timestamp {
        self.at.checked_add(LOOK_AGAIN).unwrap_or(Timestamp::MAX)
    }

    /// When something is to be done next: the certificate is due, or the Secret has to be looked at again. A
    /// certificate that is due already is renewed by now, or cannot be.
    pub(crate) fn next(&self, days: u32, now: Timestamp) -> Timestamp {
        let due = self.certificates().map(|certificates| certificates.renew_at(days));
        due.filter(|due| now < *due).map_or(self.until(), |due| due.min(self.until()))
    }

    /// What usable certificates say.
    pub(crate) fn certificates(&self) -> Option<&Certificates> {
        self.secret.as_ref()?.certificates.as_ref()
    }

    /// Whether the Secret is as it should be, with a certificate that is valid for so many days; `None`: there is none.
    pub(crate) fn is_good(&self, days: u32, now: Timestamp) -> Option<bool> {
        let secret = self.secret.as_ref()?;
        Some(secret.is_usable(days, now) && !secret.immutable && !secret.has_copy)
    }
}

#[cfg(test)]
mod tests {
    use super::certificate::{Names, issue};
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use streams_kubernetes::Key;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + days * 86_400).unwrap()
    }

    #[test]
    fn a_secret_is_good_until_two_thirds_of_the_validity_are_over() {
        let job = Key::new("n", "flow");
        let material = issue(Names::of(&job), 30, at(0)).unwrap();
        let mut secret = secret::secret(&job.name, &OwnerReference::default(), &material);
        let good = |days: u32, now: Timestamp| {
            let sighting = Sighting::of(Some(&secret), now);
            sighting.is_good(days, now).unwrap()
        };
        // wanted validity in days, now in days -> good
        let table = [
            (30, 0, true),
            (30, 19, true),
            (30, 20, false),
            (30, 31, false),
            (31, 0, false),
            (7, 0, false),
            (30, -1, false),
            (30, -365, false),
        ];
        for (days, now, expected) in table {
            assert_eq!(good(days, at(now)), expected, "{days} {now}");
        }
        let sighting = Sighting::of(Some(&secret), at(0));
        assert_eq!(sighting.next(30, at(0)), sighting.until());
        // It is due in a moment, and was a moment ago.
        let due = sighting.certificates().unwrap().renew_at(30);
        for (seen, expected) in [(-1, due), (1, due + SignedDuration::from_secs(1) + LOOK_AGAIN)] {
            let seen = due + SignedDuration::from_secs(seen);
            assert_eq!(Sighting::of(Some(&secret), seen).next(30, seen), expected);
        }
        let seen = |seconds| Clocks { now: at(0), passed: Duration::from_secs(seconds) };
        let remembered = RememberedSighting::new(sighting.clone(), seen(100));
        assert_eq!(remembered.found(seen(100)), Some(sighting.clone()));
        assert_eq!(remembered.found(seen(160)), None);
        // The clock was put back.
        let back = Clocks { now: at(-365), ..seen(159) };
        let found = remembered.found(back).unwrap();
        assert_eq!(found, Sighting { at: at(-365) - SignedDuration::from_secs(59), ..sighting });
        assert_eq!(found.until(), at(-365) + SignedDuration::from_secs(1));

        secret.immutable = Some(true);
        let frozen = |now| {
            let sighting = Sighting::of(Some(&secret), now);
            (sighting.is_good(30, now), sighting.secret.unwrap().is_only_immutable(30, now))
        };
        assert_eq!([frozen(at(0)), frozen(at(20))], [(Some(false), true), (Some(false), false)]);
        secret.immutable = Some(false);
        let mut with_copy = Sighting::of(Some(&secret), at(0));
        assert_eq!(with_copy.is_good(30, at(0)), Some(true));
        with_copy.secret.as_mut().unwrap().has_copy = true;
        assert_eq!(with_copy.is_good(30, at(0)), Some(false));

        secret.metadata.deletion_timestamp = Some(Time(at(0)));
        assert!(Sighting::of(Some(&secret), at(0)).secret.unwrap().going.is_some());
        secret.data = None;
        let empty = Sighting::of(Some(&secret), at(0));
        assert_eq!(empty.is_good(30, at(0)), Some(false));
        assert_eq!(Sighting::of(None, at(0)).is_good(30, at(0)), None);
    }
}
