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
//! one that was not seen.

mod last_words;
mod lease;

pub use self::last_words::{LINGER, LastWords};
use self::lease::{Claim, SeenLease};
use super::error::{absent, is_already_exists, is_conflict, is_not_found, with_causes};
use crate::metrics::Metrics;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// How often words are written while others write the Lease as well.
const TRIES: usize = 5;

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
}

/// Whether this process leads, for those who must be certain that nobody else has led since. Cheap to clone; all clones
/// are the same. The default is that of a process that does not lead.
#[derive(Clone, Debug, Default)]
pub struct Term {
    ends: Arc<Mutex<Option<TermEnd>>>,
    words: Arc<Mutex<LastWords>>,
}

#[derive(Clone, Copy, Debug)]
enum TermEnd {
    Never,
    At(Instant),
}

impl Term {
    /// That of a process which leads without a Lease.
    pub fn endless() -> Self {
        Self { ends: Arc::new(Mutex::new(Some(TermEnd::Never))), ..Self::default() }
    }

    /// Whether this process has led since it began to, until now: its Lease was renewed in time. One that was frozen
    /// knows it as soon as it goes on.
    pub fn lasts(&self) -> bool {
        match *self.lock() {
            Some(TermEnd::Never) => true,
            Some(TermEnd::At(end)) => Instant::now() < end,
            None => false,
        }
    }

    /// Makes a call as long as the term lasts. `None` once it does not: whatever was not sent by then is not sent.
    pub(crate) async fn bound<F: Future>(&self, call: F) -> Option<F::Output> {
        let mut call = pin!(call);
        // Asked whenever the call could go on, and not by a timer: in a process that was frozen the call may be woken
        // before any timer is.
        poll_fn(|context| if self.lasts() { call.as_mut().poll(context).map(Some) } else { Poll::Ready(None) }).await
    }

    fn renewed(&self, until: Instant) {
        *self.lock() = Some(TermEnd::At(until));
    }

    /// This process does not lead any more.
    pub fn over(&self) {
        *self.lock() = None;
    }

    /// What the leader before has said at its end.
    pub fn last_words(&self) -> LastWords {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match words {
            LastWords::Awaited { until } if until <= Instant::now() => LastWords::None,
            words => words,
        }
    }

    /// This is known of what the leader before says.
    pub fn hear(&self, words: LastWords) {
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    fn lock(&self) -> MutexGuard<'_, Option<TermEnd>> {
        // Nothing under the lock can panic.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
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
    let mut is_taken_again = false;
    loop {
        match candidate.look().await {
            // Little time is left for the first renewal, and whoever is late with that must end. It is this replica's
            // now, which may take it again; once: others may be faster.
            Ok(Some((_, sent_at)))
                if sent_at.elapsed() * 2 > candidate.options.renew_deadline
                    && !is_taken_again
                    && !stop.is_cancelled() =>
            {
                tracing::info!(took = ?sent_at.elapsed(), "taking the lease took long; will take it again");
                is_taken_again = true;
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
        let claim = self.last_state.claim(spec, &self.options, sent_at);
        let taken = match (claim, current) {
            (Claim::Wait { holder }, _) => {
                if holder != self.holder {
                    tracing::info!(holder, lease = self.options.name, "another replica leads");
                    self.holder = holder;
                }
                return Ok(None);
            }
            (Claim::Take, None) => {
                let lease = Lease {
                    metadata: ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() },
                    spec: Some(lease::taken(None, &self.options, now)),
                };
                self.api.create(&PostParams::default(), &lease).await
            }
            (Claim::Take, Some(mut lease)) => {
                lease.spec = Some(lease::taken(lease.spec.as_ref(), &self.options, now));
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

    /// Tries until it succeeds, or somebody else has the Lease.
    async fn renew(&mut self) -> Result<(), Lost> {
        let mut has_conflicted = false;
        loop {
            let sent_at = Instant::now();
            let mut renewed = self.lease.clone();
            renewed.spec = Some(lease::renewed(renewed.spec.as_ref(), &self.options, Timestamp::now()));
            match self.api.replace(&self.options.name, &PostParams::default(), &renewed).await {
                Ok(mut lease) => {
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
                    return Ok(());
                }
                // Somebody wrote it: perhaps this replica, in a try whose answer was lost. Or it was deleted, and then
                // others take it at once. If what was read just now is no good, either, it is not the version that is
                // in the way.
                Err(error) if is_conflict(&error) || is_not_found(&error) => {
                    if std::mem::replace(&mut has_conflicted, true) {
                        tracing::warn!(error = with_causes(&error), "the lease was not renewed; will try again");
                        sleep(self.options.renew_interval).await;
                    }
                    self.read_again().await?;
                }
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "the lease was not renewed; will try again");
                    sleep(self.options.renew_interval).await;
                }
            }
        }
    }

    async fn read_again(&mut self) -> Result<(), Lost> {
        match absent(self.api.get(&self.options.name).await) {
            Ok(Some(lease)) => {
                let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
                if holder != self.options.identity {
                    return Err(Lost::To(holder));
                }
                self.lease = lease;
                Ok(())
            }
            Ok(None) => Err(Lost::To("nobody".to_owned())),
            Err(error) => {
                tracing::warn!(error = with_causes(&error), "the lease cannot be read; will try again");
                sleep(self.options.renew_interval).await;
                Ok(())
            }
        }
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

/// A Lease that this replica has released, while the next leader waits for what it says (rule call-32).
#[derive(Debug)]
pub struct Released {
    api: Api<Lease>,
    name: String,
    term: i32,
    at: Instant,
}

impl Released {
    /// When that was asked for; nobody has led before.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Says to the next leader what `words` returns, or that there are none after all. It is asked after each look at
    /// the Lease: what was found later than that is not missing in what replaces this version. If nobody can hear it
    /// any more, nothing is said.
    ///
    /// # Errors
    /// The Lease cannot be read, or written.
    pub async fn say(self, words: impl Fn() -> Option<String>) -> kube::Result<()> {
        let mut tries_left = TRIES;
        loop {
            let Some(mut lease) = absent(self.api.get(&self.name).await)? else { return Ok(()) };
            if !(self.term..=self.term.saturating_add(1)).contains(&last_words::term(&lease)) {
                return Ok(());
            }
            match words() {
                Some(words) => last_words::write(&mut lease, self.term, Some(&words)),
                None => last_words::remove(&mut lease),
            }
            tries_left -= 1;
            match self.api.replace(&self.name, &PostParams::default(), &lease).await {
                // The next leader has renewed it meanwhile, which it does every few seconds.
                Err(error) if is_conflict(&error) && tries_left > 0 => {}
                said => return said.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::{Method, Request, Response};
    use kube::client::Body as Sent;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tower::service_fn;

    fn options() -> LeaseOptions {
        LeaseOptions {
            namespace: "n".to_owned(),
            name: "l".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_secs(15),
            renew_interval: Duration::from_secs(2),
            renew_deadline: Duration::from_secs(10),
        }
    }

    const CONFLICT: (u16, &str) =
        (409, r#"{"kind":"Status","status":"Failure","reason":"Conflict","message":"m","code":409}"#);
    const NOT_FOUND: (u16, &str) =
        (404, r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"m","code":404}"#);

    /// How long a Lease is held, and with how many calls, by a leader whose first writes, so many, are answered with
    /// this; for half a minute at most. Reads are as well, if there is no Lease.
    async fn held_with(answer: (u16, &'static str), writes: usize, is_gone: bool) -> (Duration, usize) {
        let calls = Arc::new(Mutex::new((0, writes)));
        let counted = Arc::clone(&calls);
        let server = service_fn(move |request: Request<Sent>| {
            let fails = {
                let (count, left) = &mut *counted.lock().unwrap();
                *count += 1;
                let fails = request.method() == Method::PUT && *left > 0;
                *left -= usize::from(fails);
                fails || is_gone
            };
            async move {
                sleep(Duration::from_millis(1)).await;
                let there = (200, r#"{"metadata":{"name":"l","namespace":"n"},"spec":{"holderIdentity":"me"}}"#);
                let (code, text) = if fails { answer } else { there };
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(text)).unwrap())
            }
        });
        let (renewed_at, stop) = (Instant::now(), CancellationToken::new());
        let api = Api::namespaced(Client::new(server, "n"), "n");
        let (lease, term, metrics) = (Lease::default(), Term::default(), Metrics::new("test"));
        let leader = Leader { api, options: options(), lease, term, renewed_at, metrics };
        let _ = tokio::time::timeout(Duration::from_secs(30), leader.hold(&stop)).await;
        let count = calls.lock().unwrap().0;
        (renewed_at.elapsed(), count)
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_is_read_again_at_once_and_more_of_them_after_a_pause() {
        // writes that conflict -> seconds until the Lease is lost or the test ends, calls
        let table = [(0, 30, 14), (1, 30, 16), (2, 30, 17), (usize::MAX, 10, 9)];
        for (conflicts, seconds, calls) in table {
            let (held, count) = held_with(CONFLICT, conflicts, false).await;
            assert_eq!(held.as_secs(), seconds, "{conflicts}");
            assert!((calls - 1..=calls + 1).contains(&count), "{conflicts}: {count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_gone_is_lost_at_once_and_one_that_is_there_after_all_is_not() {
        // whether it is gone -> seconds until the Lease is lost or the test ends
        for (is_gone, seconds) in [(true, 2), (false, 30)] {
            let (held, _) = held_with(NOT_FOUND, 1, is_gone).await;
            assert_eq!(held.as_secs(), seconds, "{is_gone}");
        }
    }

    /// An API server with one Lease, which somebody holds who is not there any more. It answers after so many
    /// milliseconds: the first write, and everything else.
    fn slow_server(first_write: u64, others: u64) -> Client {
        let spec = LeaseSpec { holder_identity: Some("other".to_owned()), ..LeaseSpec::default() };
        let metadata = ObjectMeta { name: Some("l".to_owned()), ..ObjectMeta::default() };
        let stored = Arc::new(Mutex::new(Lease { metadata, spec: Some(spec) }));
        let was_written = Arc::new(AtomicBool::new(false));
        let server = service_fn(move |request: Request<Sent>| {
            let stored = Arc::clone(&stored);
            let is_write = request.method() == Method::PUT;
            let is_first = is_write && !was_written.swap(true, Ordering::SeqCst);
            let milliseconds = if is_first { first_write } else { others };
            async move {
                let sent = request.into_body().collect_bytes().await.unwrap();
                sleep(Duration::from_millis(milliseconds)).await;
                let mut stored = stored.lock().unwrap();
                if is_write {
                    *stored = serde_json::from_slice(&sent).unwrap();
                }
                Ok::<_, tower::BoxError>(Response::new(Body::from(serde_json::to_vec(&*stored).unwrap())))
            }
        });
        Client::new(server, "n")
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_api_server_lets_a_candidate_lead_as_long_as_it_lets_a_leader_go_on() {
        // milliseconds that the answer to the first write takes, and all others -> the Lease is held for a minute
        let table = [
            (1, 1, true),
            (2_000, 2_000, true),
            (3_000, 3_000, true),
            (4_900, 4_900, true),
            // It is taken again: there was no time left to renew it.
            (9_500, 1_000, true),
            (1, 10_100, false),
        ];
        for (first_write, others, expected) in table {
            let (term, stop, metrics) = (Term::default(), CancellationToken::new(), Metrics::new("test"));
            let server = slow_server(first_write, others);
            let leader = acquire(server, options(), term.clone(), &metrics, &stop).await.unwrap();
            let held = tokio::time::timeout(Duration::from_secs(60), leader.hold(&stop)).await;
            assert_eq!((held.is_err(), term.lasts()), (expected, expected), "{first_write} {others}: {held:?}");
        }
    }

    /// An API server with one Lease, if anybody has made it, of which only the newest version is replaced.
    fn server() -> Client {
        let stored = Arc::new(Mutex::new(None::<Lease>));
        let server = service_fn(move |request: Request<Sent>| {
            let stored = Arc::clone(&stored);
            async move {
                let is_read = request.method() == Method::GET;
                let sent = request.into_body().collect_bytes().await.unwrap();
                let mut stored = stored.lock().unwrap();
                let version = |lease: &Lease| lease.metadata.resource_version.clone().unwrap_or_default();
                let now = stored.as_ref().map(version);
                let (code, text) = if is_read {
                    stored
                        .as_ref()
                        .map_or((404, NOT_FOUND.1.to_owned()), |it| (200, serde_json::to_string(it).unwrap()))
                } else {
                    let mut lease: Lease = serde_json::from_slice(&sent).unwrap();
                    if now.as_ref().is_some_and(|now| *now != version(&lease)) {
                        (409, CONFLICT.1.to_owned())
                    } else {
                        let next = now.map_or(1, |now| now.parse::<u64>().unwrap() + 1);
                        lease.metadata.resource_version = Some(next.to_string());
                        let text = serde_json::to_string(&lease).unwrap();
                        *stored = Some(lease);
                        (200, text)
                    }
                };
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(text)).unwrap())
            }
        });
        Client::new(server, "n")
    }

    /// A leader that begins, and its term.
    async fn leader(client: &Client, identity: &str) -> (Leader, Term) {
        let (term, options) = (Term::default(), LeaseOptions { identity: identity.to_owned(), ..options() });
        let (stop, metrics) = (CancellationToken::new(), Metrics::new("test"));
        (acquire(client.clone(), options, term.clone(), &metrics, &stop).await.unwrap(), term)
    }

    /// Ends in order.
    async fn end(leader: Leader) -> Released {
        let stop = CancellationToken::new();
        stop.cancel();
        leader.hold(&stop).await.unwrap().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_leader_hears_what_the_one_before_says_and_that_it_was_not_said_earlier() {
        let client = server();
        let (first, term) = leader(&client, "a").await;
        assert_eq!(term.last_words(), LastWords::None, "there was none before");
        let released = end(first).await;
        let (second, term) = leader(&client, "b").await;
        assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
        let holding = tokio::spawn(async move { second.hold(&CancellationToken::new()).await });
        sleep(LINGER).await;
        let said_at = Instant::now();
        released.say(|| Some("n/a".to_owned())).await.unwrap();
        sleep(options().renew_interval * 2).await;
        let LastWords::Said { words, not_before } = term.last_words() else { panic!("{:?}", term.last_words()) };
        assert_eq!(&*words, "n/a");
        assert!(
            not_before <= said_at && said_at - not_before <= options().renew_interval,
            "{not_before:?} {said_at:?}"
        );
        assert!(!holding.is_finished(), "a Lease that both write is not lost");
        holding.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_the_words_of_a_leader_that_has_ended() {
        let client = server();
        drop(end(leader(&client, "a").await.0).await);
        let (second, term) = leader(&client, "b").await;
        sleep(LINGER).await;
        assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
        sleep(LINGER).await;
        assert_eq!(term.last_words(), LastWords::None);
        // This one is killed.
        drop(second);
        let (_, term) = leader(&client, "c").await;
        assert_eq!(term.last_words(), LastWords::None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_is_found_out_after_the_look_at_the_version_that_it_replaces() {
        let client = server();
        let released = end(leader(&client, "a").await.0).await;
        let (second, term) = leader(&client, "b").await;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (counted, passed_on) = (Arc::clone(&calls), client.clone());
        // The next leader has always renewed the Lease just before the first write.
        let between = service_fn(move |request: Request<Sent>| {
            let is_first = {
                let mut calls = counted.lock().unwrap();
                calls.push(request.method().to_string());
                calls.iter().filter(|call| *call == "PUT").count() == 1
            };
            let client = passed_on.clone();
            async move {
                if request.method() == Method::PUT && is_first {
                    let api = Api::<Lease>::namespaced(client.clone(), "n");
                    let renewed = api.get("l").await.unwrap();
                    api.replace("l", &PostParams::default(), &renewed).await.unwrap();
                }
                Ok::<_, tower::BoxError>(client.send(request).await.unwrap())
            }
        });
        let released = Released { api: Api::namespaced(Client::new(between, "n"), "n"), ..released };
        let found = || {
            let mut calls = calls.lock().unwrap();
            calls.push("words".to_owned());
            Some(format!("after {}", calls.len()))
        };
        released.say(found).await.unwrap();
        assert_eq!(*calls.lock().unwrap(), ["GET", "words", "PUT", "GET", "words", "PUT"]);
        let holding = tokio::spawn(async move { second.hold(&CancellationToken::new()).await });
        sleep(options().renew_interval * 2).await;
        assert!(matches!(term.last_words(), LastWords::Said { words, .. } if &*words == "after 5"));
        holding.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_words_that_are_taken_back() {
        let client = server();
        let released = end(leader(&client, "a").await.0).await;
        let (second, term) = leader(&client, "b").await;
        let holding = tokio::spawn(async move { second.hold(&CancellationToken::new()).await });
        sleep(options().renew_interval * 2).await;
        assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
        released.say(|| None).await.unwrap();
        sleep(options().renew_interval * 2).await;
        assert_eq!(term.last_words(), LastWords::None);
        assert!(!holding.is_finished());
        holding.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_can_hear_is_not_said() {
        let client = server();
        let released = end(leader(&client, "a").await.0).await;
        drop(end(leader(&client, "b").await.0).await);
        let (_, term) = leader(&client, "c").await;
        let api = Api::<Lease>::namespaced(client.clone(), "n");
        let before = api.get("l").await.unwrap();
        released.say(|| Some("n/a".to_owned())).await.unwrap();
        assert_eq!(api.get("l").await.unwrap(), before);
        assert!(matches!(term.last_words(), LastWords::Awaited { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_of_a_call_is_done_once_the_term_has_ended() {
        // seconds that the term lasts, if it ends; seconds after which a call goes on -> it does
        let table = [(None, 20, true), (Some(10), 9, true), (Some(10), 11, false), (Some(0), 0, false)];
        for (lasts, goes_on_after, expected) in table {
            let term = Term::endless();
            if let Some(seconds) = lasts {
                term.renewed(Instant::now() + Duration::from_secs(seconds));
            }
            let mut goes_on = false;
            let call = async {
                sleep(Duration::from_secs(goes_on_after)).await;
                goes_on = true;
            };
            let made = term.bound(call).await.is_some();
            assert_eq!((made, goes_on), (expected, expected), "{lasts:?} {goes_on_after}");
        }
        assert_eq!(Term::default().bound(async {}).await, None);
    }

    #[test]
    fn timings_must_fit_together() {
        // duration, renewal interval, renewal deadline, call deadline in ms -> part of the error
        let table = [
            (15_000, 2_000, 10_000, 10_000, None),
            (3_000, 500, 2_000, 2_000, None),
            (15_000, 2_000, 15_000, 10_000, Some("given up before it ends")),
            (15_000, 10_000, 10_000, 1_000, Some("given up before it ends")),
            (15_000, 2_000, 10_000, 13_000, Some("deposed leader")),
            (15_000, 0, 10_000, 1_000, Some("greater than zero")),
            (500, 100, 200, 100, Some("at least a second")),
        ];
        for (duration, renew_interval, renew_deadline, call, expected) in table {
            let options = LeaseOptions {
                namespace: "n".to_owned(),
                name: "l".to_owned(),
                identity: "me".to_owned(),
                duration: Duration::from_millis(duration),
                renew_interval: Duration::from_millis(renew_interval),
                renew_deadline: Duration::from_millis(renew_deadline),
            };
            let error = options.check(Duration::from_millis(call)).err();
            assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
            if let (Some(error), Some(part)) = (error, expected) {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
