//! Keyed queues: which objects wait for a reconcile, and which ones a worker has (rule call-7).
//!
//! A key is in one of these places: *queued*, *in progress*, in progress and *asked for again*, or nowhere; beside that
//! it may be *delayed* until some time. Reconcilers and long work use the same queue.
//!
//! Guarantees, property-tested below:
//! * Never two workers on the same key.
//! * Nothing is lost: after every addition the key is handed out at least once, from a moment that is not before the
//!   addition.
//! * Additions coalesce: a key waits at most once, however often it is added.
//! * Fair: namespaces take turns, and within one of them the objects that keys belong to; keys of one object come first
//!   in, first out. A namespace never has more workers than [`Sharing`] allows.
//! * Namespaces that are in trouble ([`Queue::with_troubles`]) leave workers to others, however many they are.
//! * No worker has a key of a namespace that must not be looked at ([`Queue::put_off_while`]): it waits aside until it
//!   may be.
//! * Urgent keys go before others, but for one in nine; some workers are for urgent keys only, if [`Sharing`] says so.
//!   A key that fails or comes back soon stays urgent. Patient keys go after others of their namespace, but for one in
//!   nine.
//!
//! Not guaranteed: that a key is handed out once per addition, or that a delay is exact.
//!
//! Knows: keys, whom they belong to, whether work succeeded. Must not know: what the work is.

mod state;
pub(crate) mod turns;
mod workers;

pub use self::state::Sharing;
use self::state::{State, Urgency};
pub use self::turns::{Owner, Turns};
pub use self::workers::{Outcome, run};
use crate::metrics::{Metrics, QueueLabels, as_seconds};
use backon::{BackoffBuilder, ExponentialBuilder};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What a key must be able to do.
pub trait QueueKey: Clone + Ord + Hash + fmt::Display + Send + Sync + 'static {}
impl<T: Clone + Ord + Hash + fmt::Display + Send + Sync + 'static> QueueKey for T {}

/// How long a key waits after a failure: `first`, doubled after each further one up to `max`, with jitter.
#[derive(Clone, Copy, Debug)]
pub struct BackOff {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), max: Duration::from_secs(60) }
    }
}

impl BackOff {
    /// After `failures` failures in a row, counted from 0.
    pub fn delay(self, failures: u32) -> Duration {
        let delays = ExponentialBuilder::default()
            .with_min_delay(self.first)
            .with_max_delay(self.max)
            .with_jitter()
            .without_max_times();
        // Past 32 doublings the delay is at its maximum.
        delays.build().nth(failures.min(32) as usize).unwrap_or(self.max).min(self.max * 2)
    }
}

/// A keyed queue. Cheap to clone; all clones are the same queue.
pub struct Queue<K> {
    shared: Arc<SharedQueue<K>>,
}

struct SharedQueue<K> {
    name: &'static str,
    back_off: BackOff,
    metrics: Metrics,
    state: Mutex<State<K>>,
    failures: Mutex<BTreeMap<K, u32>>,
    wake: Notify,
    /// Whether a namespace is in trouble.
    troubles: OnceLock<Box<dyn Fn(&str) -> bool + Send + Sync>>,
    /// Who a key belongs to.
    owner: fn(&K) -> Owner,
    put_off: OnceLock<PutOff<K>>,
}

/// Keys of namespaces that must not be looked at now.
struct PutOff<K> {
    must_wait: Box<dyn Fn(&str) -> bool + Send + Sync>,
    keys: Mutex<BTreeMap<Arc<str>, BTreeSet<K>>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl<K: QueueKey> Queue<K> {
    /// An empty queue; `name` is its label in metrics and logs.
    pub fn new(name: &'static str, back_off: BackOff, sharing: Sharing<K>, metrics: &Metrics) -> Self {
        let shared = SharedQueue {
            name,
            back_off,
            metrics: metrics.clone(),
            owner: sharing.owner,
            state: Mutex::new(State::new(sharing)),
            failures: Mutex::new(BTreeMap::new()),
            wake: Notify::new(),
            troubles: OnceLock::new(),
            put_off: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The same queue. Work on keys of a namespace may take long while this is said of it.
    pub fn with_troubles(self, is_in_trouble: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        // The first counts; nobody says it twice.
        let _ = self.shared.troubles.set(Box::new(is_in_trouble));
        self
    }

    /// The same queue, whose workers ([`run`]) put keys of a namespace off while this is said of it. Whoever says it
    /// tells when it is over ([`Queue::look_again`]).
    #[must_use]
    pub fn put_off_while(self, must_wait: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        // The first counts; nobody says it twice.
        let _ = self.shared.put_off.set(PutOff { must_wait: Box::new(must_wait), keys: Mutex::default() });
        self
    }

    /// Looks at all keys of the namespace soon that were put off.
    pub fn look_again(&self, namespace: &str) {
        let Some(PutOff { keys, .. }) = self.shared.put_off.get() else { return };
        // The lock ends with the statement: workers may put others off.
        let woken = keys.lock().remove(namespace);
        woken.into_iter().flatten().for_each(|key| self.add(key));
    }

    /// Whether the key must not be looked at now. Then it waits aside, and nothing is kept of its failures.
    fn puts_off(&self, key: &K) -> bool {
        let Some(PutOff { must_wait, keys }) = self.shared.put_off.get() else { return false };
        let namespace = (self.shared.owner)(key).namespace;
        if !must_wait(&namespace) {
            return false;
        }
        keys.lock().entry(Arc::clone(&namespace)).or_default().insert(key.clone());
        self.forget(key);
        // Whoever has told meanwhile that it is over has not seen the key.
        if !must_wait(&namespace) {
            self.look_again(&namespace);
        }
        true
    }

    fn is_in_trouble(&self, namespace: &str) -> bool {
        self.shared.troubles.get().is_some_and(|is_in_trouble| is_in_trouble(namespace))
    }

    /// The name it was made with.
    pub fn name(&self) -> &'static str {
        self.shared.name
    }

    /// Looks at the key soon.
    pub fn add(&self, key: K) {
        self.change(|state, now| state.add(key, Urgency::Usual, now));
    }

    /// Looks at the key before those that are not urgent.
    pub fn add_urgent(&self, key: K) {
        self.change(|state, now| state.add(key, Urgency::Urgent, now));
    }

    /// Looks at the key after those of its namespace that are not patient.
    pub fn add_patient(&self, key: K) {
        self.change(|state, now| state.add(key, Urgency::Patient, now));
    }

    /// Looks at the key after `delay`. The earliest of several delays counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.change(|state, now| state.add_at(key, now + delay, now));
    }

    /// The same, after urgent ones, whatever the key is in progress as.
    pub fn add_later(&self, key: K, delay: Duration) {
        self.change(|state, now| state.delay(key, now + delay, Urgency::Usual));
    }

    /// The same, before those that are not urgent; at once, if there is no delay.
    pub fn add_urgent_later(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add_urgent(key);
        }
        self.change(|state, now| state.delay(key, now + delay, Urgency::Urgent));
    }

    /// The same, after those of its namespace that are not patient.
    pub fn add_patient_later(&self, key: K, delay: Duration) {
        self.change(|state, now| state.delay(key, now + delay, Urgency::Patient));
    }

    /// Looks at the key after a delay that grows with every call until [`Queue::forget`].
    pub fn add_rate_limited(&self, key: K) {
        let failures = {
            let mut failures = self.shared.failures.lock();
            let count = failures.entry(key.clone()).or_insert(0);
            let before = *count;
            *count = count.saturating_add(1);
            before
        };
        self.add_after(key, self.shared.back_off.delay(failures));
    }

    /// The key's next failure is its first.
    pub fn forget(&self, key: &K) {
        self.shared.failures.lock().remove(key);
    }

    /// Failures of the key since [`Queue::forget`].
    pub fn failures(&self, key: &K) -> u32 {
        self.shared.failures.lock().get(key).copied().unwrap_or(0)
    }

    /// Keys of which something is kept: that they wait, are delayed or put off, or have failed.
    pub fn remembered(&self) -> usize {
        let failures = self.shared.failures.lock().len();
        let put_off = self.shared.put_off.get();
        let put_off = put_off.map_or(0, |put_off| put_off.keys.lock().values().map(BTreeSet::len).sum::<usize>());
        failures + put_off + self.state().remembered()
    }

    /// Keys that wait, without the delayed ones.
    pub fn depth(&self) -> usize {
        self.state().depth()
    }

    /// Whether the key waits for a worker.
    pub fn is_waiting(&self, key: &K) -> bool {
        self.state().is_queued(key)
    }

    /// Hands out no more keys; workers end when they have finished what they are at.
    pub fn close(&self) {
        self.state().close();
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
    }

    /// The next key, as soon as there is one; nothing once the queue is closed. Nobody else gets the key until the
    /// guard is dropped.
    pub async fn next(&self) -> Option<InProgress<K>> {
        loop {
            let woken = self.shared.wake.notified();
            tokio::pin!(woken);
            // From here on no notification is missed.
            woken.as_mut().enable();
            let due = {
                let mut state = self.state();
                let now = Instant::now();
                if let Some((key, waited)) = state.take(now, |namespace| self.is_in_trouble(namespace)) {
                    self.report(&state);
                    let label = QueueLabels { queue: self.shared.name };
                    self.shared.metrics.queue_wait_seconds.get_or_create(&label).observe(as_seconds(waited));
                    if state.has_more() {
                        // Somebody else must look after the other keys, or after the earliest delay.
                        self.shared.wake.notify_one();
                    }
                    return Some(InProgress { queue: self.clone(), key: Some(key), waited });
                }
                if state.is_closed() {
                    self.shared.wake.notify_one();
                    return None;
                }
                state.next_due()
            };
            match due {
                None => woken.await,
                Some(due) => {
                    tokio::select! {
                        () = woken => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut State<K>, Instant)) {
        let mut state = self.state();
        change(&mut state, Instant::now());
        self.shared.metrics.queue_additions.get_or_create(&QueueLabels { queue: self.shared.name }).inc();
        self.report(&state);
        drop(state);
        self.shared.wake.notify_one();
    }

    fn finish(&self, key: K) {
        let mut state = self.state();
        state.finish(key, Instant::now());
        self.report(&state);
        let more = state.has_more();
        drop(state);
        if more {
            self.shared.wake.notify_one();
        }
    }

    fn report(&self, state: &State<K>) {
        let depth = i64::try_from(state.depth()).unwrap_or(i64::MAX);
        self.shared.metrics.queue_depth.get_or_create(&QueueLabels { queue: self.shared.name }).set(depth);
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Every change of the state is finished before anything that could panic.
        self.shared.state.lock()
    }
}

/// A key that nobody else works on while this exists.
pub struct InProgress<K: QueueKey> {
    queue: Queue<K>,
    key: Option<K>,
    waited: Duration,
}

impl<K: QueueKey> InProgress<K> {
    /// The key.
    pub fn key(&self) -> &K {
        #[allow(clippy::expect_used, reason = "taken by drop only")]
        self.key.as_ref().expect("the key is there until drop")
    }

    /// How long the key waited for this.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl<K: QueueKey> Drop for InProgress<K> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.queue.finish(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::time::timeout;

    fn queue() -> Queue<String> {
        Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_worker_looks_after_a_delay_that_another_one_waited_for() {
        let queue = queue();
        // Both wait; the first that is woken takes the timer, the next key takes that worker away from it.
        let (first, second) = (queue.clone(), queue.clone());
        let first = tokio::spawn(async move { first.next().await.map(|taken| (taken.key().clone(), taken)) });
        let second = tokio::spawn(async move { second.next().await.map(|taken| (taken.key().clone(), taken)) });
        tokio::task::yield_now().await;
        queue.add_after("delayed".to_owned(), Duration::from_secs(1));
        tokio::task::yield_now().await;
        queue.add("now".to_owned());
        let (a, b) = tokio::time::timeout(Duration::from_secs(2), async { (first.await, second.await) }).await.unwrap();
        let mut keys = [a.unwrap().unwrap().0, b.unwrap().unwrap().0];
        keys.sort();
        assert_eq!(keys, ["delayed", "now"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_in_trouble_leaves_workers_to_others_as_long_as_it_is() {
        let owner = |key: &String| Owner { namespace: key[..1].into(), object: "x".into() };
        let is_over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_over);
        let queue = Queue::new("test", BackOff::default(), Sharing::among(2, owner), &Metrics::new("test"))
            .with_troubles(move |namespace| namespace == "a" && !asked.load(Ordering::Relaxed));
        ["a1", "a2", "b1"].into_iter().for_each(|key| queue.add_urgent(key.to_owned()));
        let next = async || timeout(Duration::from_secs(1), queue.next()).await.ok().flatten();
        let key = |taken: &Option<InProgress<String>>| taken.as_ref().map(|taken| taken.key().clone());
        let (first, second) = (next().await, next().await);
        assert_eq!([&first, &second].map(key), ["a1", "b1"].map(|key| Some(key.to_owned())));
        assert_eq!(key(&next().await), None);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(key(&next().await), Some("a2".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_ends_every_worker() {
        let queue = queue();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await.is_none() })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert!(tokio::time::timeout(Duration::from_secs(1), worker).await.unwrap().unwrap());
        }
        queue.add("late".to_owned());
        assert!(queue.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_from_when_it_is_due_until_a_worker_has_it() {
        let (queue, key) = (queue(), "k".to_owned());
        assert!(!queue.is_waiting(&key));
        queue.add(key.clone());
        assert!(queue.is_waiting(&key));
        let taken = queue.next().await;
        assert!(taken.is_some() && !queue.is_waiting(&key));
        queue.add_after(key.clone(), Duration::from_secs(1));
        drop(taken);
        assert!(!queue.is_waiting(&key), "it is delayed");
    }

    #[test]
    fn delays_after_failures_double_up_to_the_maximum() {
        let back_off = BackOff { first: Duration::from_secs(1), max: Duration::from_secs(10) };
        // failures -> at least, at most (jitter adds less than the delay itself)
        let table = [(0, 1, 2), (1, 2, 4), (2, 4, 8), (3, 8, 16), (4, 10, 20), (100, 10, 20)];
        for (failures, least, most) in table {
            let delay = back_off.delay(failures);
            assert!(delay >= Duration::from_secs(least) && delay <= Duration::from_secs(most), "{failures}: {delay:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_counted_until_forgotten() {
        let queue = queue();
        let key = "k".to_owned();
        for expected in 1..4 {
            queue.add_rate_limited(key.clone());
            assert_eq!(queue.failures(&key), expected);
        }
        queue.forget(&key);
        assert_eq!(queue.failures(&key), 0);
    }
}
