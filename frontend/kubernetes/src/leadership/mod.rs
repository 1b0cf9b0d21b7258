//! One replica leads: it holds a Lease and renews it (rule call-12).
//!
//! The rules are those of Kubernetes' own components. A replica takes a Lease that nobody holds, that was released, or
//! that has not changed for its duration *since this replica saw it last*: clocks of other machines play no part. Every
//! write is a compare-and-swap on `resourceVersion`.
//!
//! Being leader is a hint, not a lock: whoever could not renew begins no write any more before another one starts
//! ([`Term::bound`]), but one that was sent may arrive later. What must not happen twice is therefore a
//! compare-and-swap of its own (a generation, a launch count, a job id).
//!
//! A process that has lost its Lease must end (rule call-13): [`Leader::hold`] returns. One that ends in order may stay
//! for a while after it has released the Lease, and say something to the next leader ([`LastWords`]).
//!
//! Knows: a Lease, clocks of this machine. Must not know: what the leader does, nor what its last words say.
//!
//! Invariants: while [`Term::lasts`] no other replica leads that follows the same rules. No write of the Lease replaces
//! one that was not seen. A term counts from when a write was sent that is stored, or earlier.

mod last_words;
mod lease;
mod term;
#[cfg(test)]
mod tests;

pub use self::last_words::{LINGER, LastWords, Released};
use self::lease::{Claim, SeenLease, SentRenewals};
pub use self::term::Term;
use super::client::single_try;
use super::error::{absent, is_already_exists, is_conflict, is_not_found, with_causes};
use crate::metrics::Metrics;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// How leadership is agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this replica, different from that of every other one.
    pub identity: String,
    /// How long others wait after the last renewal.
    pub duration: Duration,
    /// Time from one renewal to the next, and between looks at somebody else's Lease.
    pub renew_interval: Duration,
    /// How long the leader goes on without a successful renewal; less than `duration`.
    pub renew_deadline: Duration,
}

impl LeaseOptions {
    /// `renew_interval` < `renew_deadline` < `duration`, and a call must end before another replica can lead.
    ///
    /// # Errors
    /// A sentence that says which rule does not hold.
    pub fn check(&self, call_deadline: Duration) -> Result<(), String> {
        if self.renew_interval.is_zero() || self.duration.as_secs() == 0 {
            return Err(
                "a lease must last at least a second, and be renewed at an interval greater than zero".to_owned()
            );
        }
        if self.renew_interval >= self.renew_deadline || self.renew_deadline >= self.duration {
            return Err(format!(
                "a lease of {:?} must be renewed more often than every {:?} and given up before it ends: {:?}",
                self.duration, self.renew_deadline, self.renew_interval
            ));
        }
        if call_deadline >= self.duration.saturating_sub(self.renew_interval) {
            return Err(format!(
                "calls may take {call_deadline:?}, which must be less than the lease ({:?}) without the renewal interval ({:?}): \
                 a write of a deposed leader could arrive when another one leads",
                self.duration, self.renew_interval
            ));
        }
        Ok(())
    }

    /// From the beginning of a renewal that fails to the next try, at least: there is time for many of them until
    /// leadership is lost.
    fn pause(&self) -> Duration {
        self.renew_interval / 4
    }
}

/// Leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Somebody else holds the Lease.
    #[error("{0} leads now")]
    To(String),
    /// The Lease could not be renewed in time.
    #[error("the lease could not be renewed within {0:?}")]
    Expired(Duration),
}

/// Waits until this replica leads; `term` says so from then on. Nothing if `stop` comes first.
pub async fn acquire(
    client: Client,
    options: LeaseOptions,
    term: Term,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Option<Leader> {
    let api = Api::namespaced(client, &options.namespace);
    let mut candidate = Candidate { api, options, last_state: SeenLease::default(), holder: String::new() };
    let mut is_renewed_first = false;
    loop {
        match candidate.look().await {
            // Little time is left for the first renewal, and whoever is late with that must end. It is this replica's
            // now, which renews it first; once: others may have been faster.
            Ok(Some((_, sent_at)))
                if sent_at.elapsed() * 2 > candidate.options.renew_deadline
                    && !is_renewed_first
                    && !stop.is_cancelled() =>
            {
                tracing::info!(took = ?sent_at.elapsed(), "taking the lease took long; will renew it first");
                is_renewed_first = true;
                continue;
            }
            Ok(Some((lease, renewed_at))) => {
                tracing::info!(identity = candidate.options.identity, lease = candidate.options.name, "leading");
                metrics.set_leader(true);
                let Candidate { api, options, .. } = candidate;
                term.renewed(renewed_at + options.renew_deadline);
                term.hear(last_words::found(&lease, renewed_at));
                return Some(Leader { api, options, lease, term, renewed_at, metrics: metrics.clone() });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = with_causes(&error), "the lease cannot be read or taken; will try again")
            }
        }
        tokio::select! {
            () = sleep(candidate.options.renew_interval) => {}
            () = stop.cancelled() => return None,
        }
    }
}

struct Candidate {
    api: Api<Lease>,
    options: LeaseOptions,
    last_state: SeenLease,
    /// Who was seen to lead last, for the log.
    holder: String,
}

impl Candidate {
    /// Looks at the Lease and takes it if it may. The Lease, if this replica holds it now, and when it was asked for:
    /// others wait from then, or later. The look before that may have taken long, and is of no concern to them.
    async fn look(&mut self) -> kube::Result<Option<(Lease, Instant)>> {
        let current = absent(self.api.get(&self.options.name).await)?;
        let spec = current.as_ref().and_then(|lease| lease.spec.as_ref());
        let now = Timestamp::now();
        let sent_at = Instant::now();
        let own = match self.last_state.claim(spec, &self.options, sent_at) {
            Claim::Wait { holder } => {
                if holder != self.holder {
                    tracing::info!(holder, lease = self.options.name, "another replica leads");
                    self.holder = holder;
                }
                return Ok(None);
            }
            Claim::Take => self.last_state.taken(spec, &self.options, now),
            // Under another number it would be another leader, for which the last words of the one before do not count.
            Claim::Keep => lease::renewed(spec, &self.options, now),
        };
        let taken = match current {
            None => {
                let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() };
                self.api.create(&PostParams::default(), &Lease { metadata, spec: Some(own) }).await
            }
            Some(mut lease) => {
                lease.spec = Some(own);
                self.api.replace(&self.options.name, &PostParams::default(), &lease).await
            }
        };
        match taken {
            Ok(lease) => Ok(Some((lease, sent_at))),
            // Somebody else was faster.
            Err(error) if is_conflict(&error) || is_already_exists(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// This replica leads.
pub struct Leader {
    api: Api<Lease>,
    options: LeaseOptions,
    lease: Lease,
    term: Term,
    /// When the last successful renewal was sent; others wait from then, or later.
    renewed_at: Instant,
    metrics: Metrics,
}

impl Leader {
    /// Renews the Lease until `stop`, then releases it so that another replica need not wait. Nothing, if that fails.
    ///
    /// # Errors
    /// The Lease is lost: end the process.
    pub async fn hold(mut self, stop: &CancellationToken) -> Result<Option<Released>, Lost> {
        let result = loop {
            // From when the last one was sent: where answers take long, waiting after them as well would be too late.
            tokio::select! {
                () = sleep_until(self.renewed_at + self.options.renew_interval) => {}
                () = stop.cancelled() => break Ok(()),
            }
            if let Err(lost) = self.renew_in_time().await {
                break Err(lost);
            }
        };
        self.metrics.set_leader(false);
        self.term.over();
        result?;
        Ok(self.release().await)
    }

    async fn renew_in_time(&mut self) -> Result<(), Lost> {
        // Counted from the last success: a process that was frozen is late as soon as it goes on.
        match timeout_at(self.renewed_at + self.options.renew_deadline, self.renew()).await {
            Ok(result) => result,
            Err(_) => Err(Lost::Expired(self.options.renew_deadline)),
        }
    }

    /// Tries until it succeeds, or somebody else has the Lease. Each try is made once and counts for itself, from when
    /// it was sent: a success says that this very try is stored, or what is read says which one is.
    async fn renew(&mut self) -> Result<(), Lost> {
        let mut tries = SentRenewals::default();
        let mut has_conflicted = false;
        loop {
            let sent_at = Instant::now();
            let spec = tries.next(self.lease.spec.as_ref(), &self.options, Timestamp::now(), sent_at);
            let sent = Lease { spec: Some(spec), ..self.lease.clone() };
            let error = match single_try(self.api.replace(&self.options.name, &PostParams::default(), &sent)).await {
                Ok(lease) => {
                    self.note_renewal(lease, sent_at);
                    return Ok(());
                }
                Err(error) => error,
            };
            // Somebody wrote it: perhaps this replica, in a try whose answer was lost. Or it was deleted, and then
            // others take it at once. If what was read just now is no good, either, it is not the version that is
            // in the way.
            let is_outdated = is_conflict(&error) || is_not_found(&error);
            if !is_outdated || std::mem::replace(&mut has_conflicted, true) {
                tracing::warn!(error = with_causes(&error), "the lease was not renewed; will try again");
                // One that was not answered has taken longer: there is no time to lose.
                sleep_until(sent_at + self.options.pause()).await;
            }
            // After every failure, not only after a conflict: the answers that would say so may be lost as well.
            if self.read_again(&tries).await? {
                return Ok(());
            }
        }
    }

    /// The try that was sent then has renewed the Lease, which is now like this.
    fn note_renewal(&mut self, mut lease: Lease, sent_at: Instant) {
        if let LastWords::Awaited { .. } = self.term.last_words() {
            if let Some(words) = last_words::said(&lease) {
                // They were not there when the renewal before was sent, which has replaced a Lease without.
                self.term.hear(LastWords::Said { words, not_before: self.renewed_at });
                last_words::remove(&mut lease);
            } else if !last_words::are_promised(&lease) {
                self.term.hear(LastWords::None);
            }
        }
        self.lease = lease;
        self.renewed_at = sent_at;
        self.term.renewed(sent_at + self.options.renew_deadline);
    }

    /// Reads what the next try replaces. Whether one of these tries is stored: then the Lease is renewed.
    async fn read_again(&mut self, tries: &SentRenewals) -> Result<bool, Lost> {
        let lease = match absent(single_try(self.api.get(&self.options.name)).await) {
            Ok(Some(lease)) => lease,
            Ok(None) => return Err(Lost::To("nobody".to_owned())),
            Err(error) => {
                tracing::warn!(error = with_causes(&error), "the lease cannot be read; will try again");
                return Ok(false);
            }
        };
        if let Some(sent_at) = tries.sent_at(lease.spec.as_ref()) {
            self.note_renewal(lease, sent_at);
            return Ok(true);
        }
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        if holder != self.options.identity {
            return Err(Lost::To(holder));
        }
        self.lease = lease;
        Ok(false)
    }

    async fn release(mut self) -> Option<Released> {
        let (at, term) = (Instant::now(), last_words::term(&self.lease));
        let spec = LeaseSpec {
            holder_identity: None,
            renew_time: None,
            ..lease::renewed(self.lease.spec.as_ref(), &self.options, Timestamp::now())
        };
        self.lease.spec = Some(spec);
        last_words::write(&mut self.lease, term, None);
        match self.api.replace(&self.options.name, &PostParams::default(), &self.lease).await {
            Ok(_) => {
                tracing::info!(lease = self.options.name, "released the lease");
                Some(Released { api: self.api, name: self.options.name, term, at })
            }
            Err(error) => {
                tracing::warn!(error = with_causes(&error), "the lease was not released; others wait until it ends");
                None
            }
        }
    }
}
