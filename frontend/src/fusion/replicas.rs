//! Which replicas of the fusion service there are, and which one to ask (rule call-15).
//!
//! Addresses are `host:port`; a name with several addresses (a headless Service) stands for as many replicas and is
//! resolved again every [`REFRESH`]. The replica with the fewest calls in flight is asked, among equals the one asked
//! longest ago; one that failed is left alone for a moment unless there is no other. Connections are made when first
//! needed and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// How long a resolved name is believed.
const REFRESH: Duration = Duration::from_secs(5);
/// How long a replica that failed is left alone.
const REST: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The replicas behind some addresses.
#[derive(Debug)]
pub struct Replicas {
    names: Vec<String>,
    state: Mutex<ResolvedReplicas>,
}

#[derive(Debug, Default)]
struct ResolvedReplicas {
    resolved: Option<Instant>,
    choices: usize,
    replicas: BTreeMap<SocketAddr, Arc<Replica>>,
}

/// One replica.
#[derive(Debug)]
struct Replica {
    address: SocketAddr,
    channel: Channel,
    in_flight: AtomicUsize,
    /// Number of the last choice that fell on it.
    last_chosen: AtomicUsize,
    rests_until: Mutex<Option<Instant>>,
}

/// A replica that was chosen for a call; counts as busy until dropped.
#[derive(Debug)]
pub struct Chosen {
    replica: Arc<Replica>,
}

impl Chosen {
    /// The connection, made on first use.
    pub fn channel(&self) -> Channel {
        self.replica.channel.clone()
    }

    /// Where the replica is.
    pub fn address(&self) -> SocketAddr {
        self.replica.address
    }

    /// Says that the replica failed.
    pub fn failed(&self) {
        *lock(&self.replica.rests_until) = Some(Instant::now() + REST);
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.replica.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing in this module panics while it holds a lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replicas {
    /// The replicas behind `host:port` addresses; `http://` in front is allowed.
    pub fn new(addresses: impl IntoIterator<Item = String>) -> Self {
        let names = addresses
            .into_iter()
            .map(|a| a.trim_start_matches("http://").trim_end_matches('/').to_owned())
            .filter(|a| !a.is_empty())
            .collect();
        Self { names, state: Mutex::default() }
    }

    /// Chooses a replica, one that is not in `tried` if possible.
    ///
    /// # Errors
    /// A sentence when no name can be resolved.
    pub async fn choose(&self, tried: &BTreeSet<SocketAddr>) -> Result<Chosen, String> {
        self.resolve().await?;
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.choices += 1;
        let best = state.replicas.values().min_by_key(|r| {
            let resting = lock(&r.rests_until).is_some_and(|until| until > now);
            (
                tried.contains(&r.address),
                resting,
                r.in_flight.load(Ordering::Relaxed),
                r.last_chosen.load(Ordering::Relaxed),
            )
        });
        let replica = Arc::clone(best.ok_or_else(|| format!("{} has no address", self.names.join(", ")))?);
        replica.in_flight.fetch_add(1, Ordering::Relaxed);
        replica.last_chosen.store(state.choices, Ordering::Relaxed);
        Ok(Chosen { replica })
    }

    async fn resolve(&self) -> Result<(), String> {
        if lock(&self.state).resolved.is_some_and(|at| at.elapsed() < REFRESH) {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        let mut failure = None;
        for name in &self.names {
            match tokio::net::lookup_host(name.as_str()).await {
                Ok(addresses) => found.extend(addresses),
                Err(error) => failure = Some(format!("{name}: {error}")),
            }
        }
        let mut state = lock(&self.state);
        if found.is_empty() {
            // Old addresses are better than none.
            return match failure {
                Some(failure) if state.replicas.is_empty() => Err(failure),
                _ => Ok(()),
            };
        }
        state.resolved = Some(Instant::now());
        state.replicas.retain(|address, _| found.contains(address));
        for address in found {
            if state.replicas.contains_key(&address) {
                continue;
            }
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .map_err(|error| format!("{address}: {error}"))?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_while_idle(true)
                .tcp_nodelay(true);
            let channel = endpoint.connect_lazy();
            let replica = Replica {
                address,
                channel,
                in_flight: AtomicUsize::new(0),
                last_chosen: AtomicUsize::new(0),
                rests_until: Mutex::default(),
            };
            state.replicas.insert(address, Arc::new(replica));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_spread_and_failures_are_avoided() {
        let replicas = Replicas::new(["127.0.0.1:1".to_owned(), "http://127.0.0.1:2/".to_owned()]);
        let none = BTreeSet::new();
        let first = replicas.choose(&none).await.unwrap();
        let second = replicas.choose(&none).await.unwrap();
        assert_ne!(first.address(), second.address(), "the idle one is asked");
        let failed = first.address();
        first.failed();
        drop(first);
        let third = replicas.choose(&none).await.unwrap();
        assert_ne!(third.address(), failed, "a busy replica is better than one that failed");
        let tried = BTreeSet::from([third.address()]);
        assert_eq!(replicas.choose(&tried).await.unwrap().address(), failed, "one that was not tried goes first");
    }

    #[tokio::test]
    async fn a_name_without_address_is_an_error() {
        let error = Replicas::new(["does-not-exist.invalid:1".to_owned()]).choose(&BTreeSet::new()).await;
        assert!(error.unwrap_err().contains("does-not-exist.invalid"), "names the name");
    }
}
