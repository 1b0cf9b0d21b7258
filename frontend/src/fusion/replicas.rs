//! Which replicas of the fusion service there are, how they are, and which one to ask (rule call-15).
//!
//! Somebody who watches them may tell which there are ([`Endpoint`]); as long as nobody knows of any, addresses do.
//! Addresses are `host:port`; a name with several addresses (a headless Service) stands for as many replicas. Names are
//! resolved beside the calls, every [`REFRESH`] and as soon as a replica cannot be reached; no call waits for that but
//! those that know of no replica yet. A replica that failed is left alone ([`Rest`]). Connections are made when first
//! needed and kept; resizes have their own, so that the texts of a submission are not in front of them.
//!
//! Knows: addresses, connections, how calls ended. Must not know: what is called.

use super::preference::{Candidate, bound, preferred};
use super::rest::Rest;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use streams_process::tls::Connector;
use tokio::sync::{Notify, watch as latest};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{self, Channel};
use tower::service_fn;

/// How long a resolved name is believed.
const REFRESH: Duration = Duration::from_secs(5);
/// Names are not resolved more often, whatever fails.
const LEAST_BETWEEN: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// What a replica may send ahead of who reads, of one answer and of all. Texts are read as slowly as they are written:
/// many such answers must leave room for others on the same connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Resizes,
    Others,
}

/// A replica that somebody else knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is.
    pub address: SocketAddr,
    /// It answers still, and is about to go.
    pub is_terminating: bool,
}

/// Told again and again by somebody who watches the replicas; empty as long as none is known.
pub type Endpoints = latest::Receiver<Vec<Endpoint>>;

/// The replicas behind some addresses.
#[derive(Debug)]
pub(super) struct Replicas {
    names: Vec<String>,
    told: Option<Endpoints>,
    tls: Option<Connector>,
    replicas: Mutex<BTreeMap<SocketAddr, Arc<Replica>>>,
    /// Resolves the names again and again.
    following: Mutex<Option<JoinHandle<()>>>,
    /// The addresses may be out of date.
    doubt: Notify,
}

/// One replica.
#[derive(Debug)]
pub(super) struct Replica {
    address: SocketAddr,
    resizes: Channel,
    others: Channel,
    is_terminating: AtomicBool,
    in_flight: AtomicUsize,
    rest: Mutex<Rest>,
}

/// A replica that was chosen for a call; counts as busy until dropped.
#[derive(Debug)]
pub(super) struct Chosen {
    replica: Arc<Replica>,
    lane: Lane,
}

impl Chosen {
    /// The connection, made on first use.
    pub(super) fn channel(&self) -> Channel {
        match self.lane {
            Lane::Resizes => self.replica.resizes.clone(),
            Lane::Others => self.replica.others.clone(),
        }
    }

    /// Where the replica is.
    pub(super) fn address(&self) -> SocketAddr {
        self.replica.address
    }

    /// Says that the replica answered.
    pub(super) fn answered(&self) {
        self.replica.rest.lock().answered();
    }

    /// Says that the replica failed.
    pub(super) fn failed(&self) {
        self.replica.failed();
    }

    /// The replica has failed, and is left alone for so long.
    #[cfg(test)]
    pub(super) fn failed_for(&self, length: Duration) {
        self.replica.rest.lock().has_failed_for(length, Instant::now());
    }

    /// Says that there is no connection to the replica. Returns whether that is news since it has answered.
    pub(super) fn was_not_reached(&self) -> bool {
        self.replica.rest.lock().was_not_reached(Instant::now())
    }

    /// The replica, for whoever may have to say how it did while somebody else has the choice.
    pub(super) fn replica(&self) -> Arc<Replica> {
        Arc::clone(&self.replica)
    }

    /// Says that the replica has enough to do for so long.
    pub(super) fn has_enough(&self, length: Duration) {
        self.replica.rest.lock().has_enough_for(length, Instant::now());
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.replica.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Replica {
    fn new(address: SocketAddr, tls: Option<&Connector>) -> Result<Self, String> {
        let endpoint = transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| format!("{address}: {error}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let connection = |endpoint: &transport::Endpoint| match tls {
            None => endpoint.connect_lazy(),
            Some(tls) => {
                let tls = tls.clone();
                endpoint.connect_with_connector_lazy(service_fn(move |_| {
                    let tls = tls.clone();
                    async move { tls.connect(address).await.map(TokioIo::new) }
                }))
            }
        };
        let resizes = connection(&endpoint);
        let windows = (STREAM_WINDOW, CONNECTION_WINDOW);
        let others =
            connection(&endpoint.initial_stream_window_size(windows.0).initial_connection_window_size(windows.1));
        Ok(Self {
            address,
            resizes,
            others,
            is_terminating: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            rest: Mutex::default(),
        })
    }

    /// Where it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says that it failed.
    pub(super) fn failed(&self) {
        self.rest.lock().failed(Instant::now());
    }

    /// It as one of those that may be asked; `rests` says whether it rests.
    fn candidate(
        &self,
        now: Instant,
        tried: &BTreeSet<SocketAddr>,
        rests: impl Fn(Rest, Instant) -> bool,
    ) -> Candidate {
        let rest = *self.rest.lock();
        Candidate {
            address: self.address,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            is_tried: tried.contains(&self.address),
            is_resting: rests(rest, now),
            is_terminating: self.is_terminating.load(Ordering::Relaxed),
        }
    }
}

impl Replicas {
    /// The replicas that are told, else those behind `host:port` addresses; `http://` in front is allowed.
    pub(super) fn new(
        addresses: impl IntoIterator<Item = String>,
        told: Option<Endpoints>,
        tls: Option<Connector>,
    ) -> Self {
        let names = addresses
            .into_iter()
            .map(|a| a.trim_start_matches("http://").trim_end_matches('/').to_owned())
            .filter(|a| !a.is_empty())
            .collect();
        Self { names, told, tls, replicas: Mutex::default(), following: Mutex::default(), doubt: Notify::new() }
    }

    /// Chooses a replica for a call about this application, one that was not tried if possible.
    ///
    /// # Errors
    /// A sentence when no name can be resolved.
    pub(super) async fn choose(
        self: &Arc<Self>,
        application: &[u8],
        lane: Lane,
        tried: &BTreeSet<SocketAddr>,
    ) -> Result<Chosen, String> {
        self.follow().await?;
        let replicas = self.replicas.lock();
        let now = Instant::now();
        let candidates = replicas.values().map(|replica| replica.candidate(now, tried, Rest::is_left_alone));
        let candidates: Vec<_> = candidates.collect();
        let address = preferred(application, &candidates);
        let replica = address.and_then(|address| replicas.get(&address));
        let replica = replica.ok_or_else(|| format!("{} has no address", self.names.join(", ")))?;
        Ok(Chosen::of(replica, lane))
    }

    /// Chooses one more replica for a call that others work on already, if one has nothing better to do.
    pub(super) fn spare(&self, application: &[u8], lane: Lane, asked: &BTreeSet<SocketAddr>) -> Option<Chosen> {
        self.spare_unless(application, lane, asked, Rest::is_left_alone)
    }

    /// The same, also one that is left alone because it failed: perhaps it is back. Not one that has enough to do.
    pub(super) fn spare_though_it_failed(
        &self,
        application: &[u8],
        lane: Lane,
        asked: &BTreeSet<SocketAddr>,
    ) -> Option<Chosen> {
        self.spare_unless(application, lane, asked, Rest::has_enough)
    }

    fn spare_unless(
        &self,
        application: &[u8],
        lane: Lane,
        asked: &BTreeSet<SocketAddr>,
        rests: impl Fn(Rest, Instant) -> bool,
    ) -> Option<Chosen> {
        let replicas = self.replicas.lock();
        let now = Instant::now();
        let candidates = replicas.values().map(|replica| replica.candidate(now, asked, &rests));
        let mut candidates: Vec<_> = candidates.collect();
        let calls = candidates.iter().map(|candidate| candidate.in_flight).sum::<usize>() + 1;
        let bound = bound(calls, candidates.len());
        candidates.retain(|one| !one.is_tried && !one.is_resting && !one.is_terminating && one.in_flight < bound);
        let replica = preferred(application, &candidates).and_then(|address| replicas.get(&address))?;
        Some(Chosen::of(replica, lane))
    }

    /// Whether there are replicas besides these.
    pub(super) fn has_others(&self, tried: &BTreeSet<SocketAddr>) -> bool {
        self.replicas.lock().keys().any(|address| !tried.contains(address))
    }

    /// Says that a replica could not be reached: it may be gone, and others there.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Takes over what was told. Without it, resolves the names from now on again and again, if nobody does, as long as
    /// somebody uses the replicas. Only who knows of no replica waits for that.
    async fn follow(self: &Arc<Self>) -> Result<(), String> {
        let goes_on = |following: &JoinHandle<()>| !following.is_finished();
        if self.take_over()? || self.following.lock().as_ref().is_some_and(goes_on) {
            return Ok(());
        }
        if self.replicas.lock().is_empty() {
            self.resolve().await?;
        } else {
            self.doubt();
        }
        let mut following = self.following.lock();
        if !following.as_ref().is_some_and(goes_on) {
            *following = Some(tokio::spawn(keep_resolved(Arc::downgrade(self))));
        }
        Ok(())
    }

    /// Takes over the replicas that were told, if any is known.
    fn take_over(&self) -> Result<bool, String> {
        let Some(told) = self.told.as_ref().map(Endpoints::borrow).filter(|told| !told.is_empty()) else {
            return Ok(false);
        };
        let mut replicas = self.replicas.lock();
        replicas.retain(|address, _| told.iter().any(|endpoint| endpoint.address == *address));
        for Endpoint { address, is_terminating } in told.iter() {
            let replica = match replicas.entry(*address) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(Arc::new(Replica::new(*address, self.tls.as_ref())?)),
            };
            replica.is_terminating.store(*is_terminating, Ordering::Relaxed);
        }
        Ok(true)
    }

    async fn resolve(&self) -> Result<(), String> {
        if self.take_over()? {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        let mut failure = None;
        for name in &self.names {
            match timeout(REFRESH, tokio::net::lookup_host(name.as_str())).await {
                Ok(Ok(addresses)) => found.extend(addresses),
                Ok(Err(error)) => failure = Some(format!("{name}: {error}")),
                Err(_) => failure = Some(format!("{name}: no answer in {REFRESH:?}")),
            }
        }
        let mut replicas = self.replicas.lock();
        if found.is_empty() {
            // Old addresses are better than none.
            return match failure {
                Some(failure) if replicas.is_empty() => Err(failure),
                _ => Ok(()),
            };
        }
        // What one name cannot say now is kept.
        if failure.is_none() {
            replicas.retain(|address, _| found.contains(address));
        }
        for address in found {
            match replicas.entry(address) {
                Entry::Occupied(known) => known.get().is_terminating.store(false, Ordering::Relaxed),
                Entry::Vacant(new) => {
                    new.insert(Arc::new(Replica::new(address, self.tls.as_ref())?));
                }
            }
        }
        Ok(())
    }
}

impl Chosen {
    fn of(replica: &Arc<Replica>, lane: Lane) -> Self {
        replica.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { replica: Arc::clone(replica), lane }
    }
}

/// Resolves the names again and again until nobody uses the replicas any more.
async fn keep_resolved(replicas: Weak<Replicas>) {
    loop {
        sleep(LEAST_BETWEEN).await;
        let Some(there) = replicas.upgrade() else { return };
        // In doubt at once; without it, later.
        let is_due = timeout(REFRESH - LEAST_BETWEEN, there.doubt.notified()).await;
        if let Err(message) = there.resolve().await {
            tracing::warn!(message, in_doubt = is_due.is_ok(), "replicas of the fusion service are not found");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rest::REST;
    use super::*;
    use futures::FutureExt as _;

    fn two() -> Arc<Replicas> {
        Arc::new(Replicas::new(["127.0.0.1:1".to_owned(), "http://127.0.0.1:2/".to_owned()], None, None))
    }

    async fn ask(replicas: &Arc<Replicas>, tried: &BTreeSet<SocketAddr>) -> Chosen {
        replicas.choose(b"a", Lane::Others, tried).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_application_goes_to_one_replica_while_that_does_well() {
        let (replicas, none) = (two(), BTreeSet::new());
        let first = ask(&replicas, &none).await.address();
        for _ in 0..3 {
            assert_eq!(ask(&replicas, &none).await.address(), first, "it knows the application");
        }
        let busy: Vec<_> = futures::future::join_all((0..3).map(|_| ask(&replicas, &none))).await;
        assert!(busy.iter().any(|chosen| chosen.address() != first), "the other helps");
        drop(busy);

        // Each failure in a row keeps it away for longer; an answer ends that.
        for seconds in [2, 4, 8, 16, 30, 30] {
            ask(&replicas, &none).await.failed();
            let other = ask(&replicas, &none).await;
            assert_ne!(other.address(), first, "{seconds}");
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(ask(&replicas, &none).await.address(), first, "{seconds}");
        }
        ask(&replicas, &none).await.answered();
        ask(&replicas, &none).await.failed();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(ask(&replicas, &none).await.address(), first, "it did well in between");
        ask(&replicas, &none).await.has_enough(Duration::from_millis(300));
        assert_ne!(ask(&replicas, &none).await.address(), first);
        let tried = BTreeSet::from([ask(&replicas, &none).await.address()]);
        assert_eq!(ask(&replicas, &tried).await.address(), first, "one that was not tried goes first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_has_enough_is_left_alone_while_it_answers_what_it_has_taken() {
        let (replicas, none) = (two(), BTreeSet::new());
        let (first, taken_before) = (ask(&replicas, &none).await, ask(&replicas, &none).await);
        let full = first.address();
        assert_eq!(taken_before.address(), full);
        let other = ask(&replicas, &[full].into()).await.address();
        first.has_enough(Duration::from_secs(10));
        taken_before.answered();
        drop((first, taken_before));
        assert_eq!(ask(&replicas, &none).await.address(), other);
        // Nor does a failure that is over end it.
        ask(&replicas, &[other].into()).await.failed();
        tokio::time::advance(REST).await;
        assert_eq!(ask(&replicas, &none).await.address(), other);
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(ask(&replicas, &none).await.address(), full);
    }

    #[tokio::test(start_paused = true)]
    async fn that_there_is_no_connection_is_news_once_until_there_is_one() {
        let (replicas, none) = (two(), BTreeSet::new());
        let chosen = ask(&replicas, &none).await;
        chosen.failed();
        assert_eq!([chosen.was_not_reached(), chosen.was_not_reached()], [true, false]);
        chosen.answered();
        assert!(chosen.was_not_reached());
        assert_ne!(ask(&replicas, &none).await.address(), chosen.address(), "it is left alone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_replica_is_one_that_was_not_asked_and_does_well() {
        let (replicas, none) = (two(), BTreeSet::new());
        let first = ask(&replicas, &none).await;
        let asked = BTreeSet::from([first.address()]);
        let spare = replicas.spare(b"a", Lane::Resizes, &asked).unwrap();
        assert_ne!(spare.address(), first.address());
        spare.failed();
        let failed = spare.address();
        drop(spare);
        assert!(replicas.spare(b"a", Lane::Resizes, &asked).is_none());
        let spare = replicas.spare_though_it_failed(b"a", Lane::Resizes, &asked).unwrap();
        assert_eq!(spare.address(), failed);
        spare.has_enough(Duration::from_secs(1));
        drop(spare);
        assert!(replicas.spare_though_it_failed(b"a", Lane::Resizes, &asked).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_followed_again_when_what_follows_them_has_ended() {
        let (replicas, none) = (two(), BTreeSet::new());
        let goes_on = || replicas.following.lock().as_ref().is_some_and(|following| !following.is_finished());
        ask(&replicas, &none).await;
        assert!(goes_on());
        replicas.following.lock().as_ref().unwrap().abort();
        while goes_on() {
            tokio::task::yield_now().await;
        }
        ask(&replicas, &none).await;
        assert!(goes_on());
    }

    #[tokio::test]
    async fn who_knows_a_replica_does_not_wait_for_names_once_none_is_told() {
        let endpoint = Endpoint { address: ([127, 0, 0, 1], 1).into(), is_terminating: false };
        let (tell, told) = latest::channel(vec![endpoint]);
        let replicas = Arc::new(Replicas::new(["does-not-exist.invalid:1".to_owned()], Some(told), None));
        let none = BTreeSet::new();
        let port = || {
            let chosen = replicas.choose(b"a", Lane::Others, &none).now_or_never();
            chosen.expect("it waits for nothing").unwrap().address().port()
        };
        assert_eq!(port(), 1);
        tell.send_replace(Vec::new());
        assert_eq!(port(), 1, "what was known is better than none");
        assert!(replicas.following.lock().is_some(), "names are followed from now on");
    }

    #[tokio::test]
    async fn a_name_without_address_is_an_error() {
        let replicas = Arc::new(Replicas::new(["does-not-exist.invalid:1".to_owned()], None, None));
        let error = replicas.choose(b"a", Lane::Others, &BTreeSet::new()).await;
        assert!(error.unwrap_err().contains("does-not-exist.invalid"), "names the name");
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_are_told_count_and_names_while_none_is() {
        let (tell, told) = latest::channel(Vec::new());
        let replicas = Arc::new(Replicas::new(["127.0.0.1:9".to_owned()], Some(told), None));
        let port = async |replicas: &Arc<Replicas>| ask(replicas, &BTreeSet::new()).await.address().port();
        assert_eq!(port(&replicas).await, 9, "nobody knows of any yet");
        let endpoint = |(port, is_terminating)| Endpoint { address: ([127, 0, 0, 1], port).into(), is_terminating };
        // who is told of -> who is asked
        let table =
            [(vec![(1, false)], 1), (vec![(1, true), (2, false)], 2), (vec![(1, true)], 1), (vec![(3, false)], 3)];
        for (endpoints, expected) in table {
            tell.send_replace(endpoints.iter().copied().map(endpoint).collect());
            // Whatever application, so that it is not by chance.
            for application in 0..20_u8 {
                let chosen = replicas.choose(&[application], Lane::Others, &BTreeSet::new()).await.unwrap();
                assert_eq!(chosen.address().port(), expected, "{endpoints:?}");
            }
        }
        tell.send_replace(vec![endpoint((1, false)), endpoint((2, true))]);
        let first = ask(&replicas, &BTreeSet::new()).await;
        let asked = BTreeSet::from([first.address()]);
        assert!(replicas.spare(b"a", Lane::Resizes, &asked).is_none(), "one that goes is no spare one");
        // The only other one failed: one that goes is better.
        first.failed();
        assert_eq!(port(&replicas).await, 2);
        // None is left: what the name says, once it was asked for.
        tell.send_replace(Vec::new());
        replicas.resolve().await.unwrap();
        assert_eq!(port(&replicas).await, 9);
    }
}
