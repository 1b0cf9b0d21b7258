//! Answers to questions that come again and again: kept for a while, each asked for once, a few at a time.
//!
//! Knows: keys, answers, how long they count, whose turn it is. Must not know: what is asked, and whom.
//!
//! Invariants: of each key, one question is under way at most as long as somebody waits for it. An answer counts no
//! longer than it says. However many `no` are kept, they take the place of no `yes`. A question that was put has its
//! turn until it is answered, also if nobody waits for it any more, and for a while longer if the answer is `no`.

use super::reviewer::Unreviewed;
use crate::fair_semaphore::FairSemaphore;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use moka::sync::Cache;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use streams_kubernetes::queue::Owner;
use streams_places::{Full, Places};
use tokio::time::{Instant, sleep};

/// For how long answers count, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptFor {
    /// Something was found.
    pub(super) yes: Duration,
    /// Nothing was.
    pub(super) no: Duration,
    /// How long it is known that something was found, though that counts no more.
    pub(super) known: Duration,
    /// Keys with something.
    pub(super) most: u64,
    /// Keys with nothing.
    pub(super) most_no: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Too much waits already.
    Full(Full),
    /// Whoever is asked does not answer; why, for people.
    Failed(String),
    /// Whoever asks does not wait any more.
    Late,
    /// This frontend ends.
    Stopping,
}

/// How much may be asked in a line, and may wait there. Whoever asks belongs to somebody, and is a part of it, if such
/// are told apart; parts take turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineBounds {
    /// Questions at the same time.
    pub(super) at_once: usize,
    /// Of one that asks.
    pub(super) at_once_of_one: usize,
    /// Questions that wait or are under way; a quarter of them at most of one that asks.
    pub(super) waiting: usize,
    /// Of one part of it.
    pub(super) waiting_of_part: usize,
    /// How long a turn lasts after nothing was found: so little comes of asking for what is not there.
    pub(super) rest: Duration,
}

/// Where those wait that ask.
pub(super) struct Line {
    turns: FairSemaphore,
    waiting: Places<Arc<str>, Arc<str>>,
    rest: Duration,
}

impl Line {
    /// Nobody waits.
    pub(super) fn new(bounds: LineBounds) -> Self {
        let LineBounds { at_once, at_once_of_one, waiting, waiting_of_part, rest } = bounds;
        let turns = FairSemaphore::new(at_once, at_once_of_one);
        Self { turns, waiting: Places::new(waiting, waiting_of_part), rest }
    }
}

type Outcome<V> = Result<Option<V>, Unanswered>;
type Landing<V> = Shared<BoxFuture<'static, Outcome<V>>>;

/// The answers, and what is under way.
pub(super) struct Answers<K, V> {
    kept: Kept<K, V>,
    flights: Flights<K, V>,
    next: AtomicU64,
}

type Flights<K, V> = Arc<Mutex<HashMap<K, Flight<V>>>>;

struct Flight<V> {
    number: u64,
    landing: WeakShared<BoxFuture<'static, Outcome<V>>>,
}

/// What was answered, and until when it counts.
#[derive(Clone)]
struct Kept<K, V> {
    kept_for: KeptFor,
    yes: Cache<K, (V, Instant)>,
    no: Cache<K, Instant>,
}

impl<K, V> Kept<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn get(&self, key: &K) -> Option<Option<V>> {
        let now = Instant::now();
        if let Some((value, until)) = self.yes.get(key)
            && now < until
        {
            return Some(Some(value));
        }
        self.no.get(key).filter(|until| now < *until).map(|_| None)
    }

    fn keep(&self, key: K, answer: Option<&V>) {
        let now = Instant::now();
        match answer {
            Some(value) => {
                self.no.invalidate(&key);
                self.yes.insert(key, (value.clone(), now + self.kept_for.yes));
            }
            None => {
                self.yes.invalidate(&key);
                self.no.insert(key, now + self.kept_for.no);
            }
        }
    }
}

impl<K, V> Answers<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// None yet.
    pub(super) fn new(kept_for: KeptFor) -> Self {
        let cache = |most, live| Cache::builder().max_capacity(most).time_to_live(live);
        let kept = Kept {
            kept_for,
            yes: cache(kept_for.most, kept_for.known).build(),
            no: Cache::builder().max_capacity(kept_for.most_no).time_to_live(kept_for.no).build(),
        };
        Self { kept, flights: Arc::default(), next: AtomicU64::new(0) }
    }

    /// What was found for this key, though it may not count any more.
    pub(super) fn known(&self, key: &K) -> Option<V> {
        self.kept.yes.get(key).map(|(value, _)| value)
    }

    /// The answer for this key: one that counts, that of a question which is under way, or that of this one, which
    /// waits for a turn of `of` in the line.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn ask<F>(&self, key: K, line: &Line, of: Owner, ask: impl FnOnce() -> F) -> Outcome<V>
    where
        F: Future<Output = Result<Option<V>, Unreviewed>> + Send + 'static,
    {
        let landing = {
            let mut flights = self.flights.lock();
            // Under the lock: a question is there until its answer is kept.
            if let Some(answer) = self.kept.get(&key) {
                return Ok(answer);
            }
            match flights.get(&key).and_then(|flight| flight.landing.upgrade()) {
                Some(landing) => landing,
                None => {
                    let landing = self.take_off(key.clone(), line, of, ask())?;
                    let number = landing.0;
                    let landing = landing.1;
                    if let Some(weak) = landing.downgrade() {
                        flights.insert(key, Flight { number, landing: weak });
                    }
                    landing
                }
            }
        };
        landing.await
    }

    /// A question that waits for its turn; and its number.
    fn take_off<F>(&self, key: K, line: &Line, of: Owner, asked: F) -> Result<(u64, Landing<V>), Unanswered>
    where
        F: Future<Output = Result<Option<V>, Unreviewed>> + Send + 'static,
    {
        let place = line.waiting.take(&of.namespace, &of.object).map_err(Unanswered::Full)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let end = End { flights: Arc::clone(&self.flights), key: key.clone(), number };
        let (turns, rest, kept) = (line.turns.clone(), line.rest, self.kept.clone());
        let landing = async move {
            let _end = end;
            let turn = turns.acquire_for(of).await;
            // Whoever leaves now does not give the turn to somebody else before the answer is there.
            let put = tokio::spawn(async move {
                let _place = place;
                let answer = asked.await.map_err(|Unreviewed(why)| Unanswered::Failed(why))?;
                kept.keep(key, answer.as_ref());
                if answer.is_none() && !rest.is_zero() {
                    tokio::spawn(async move {
                        sleep(rest).await;
                        drop(turn);
                    });
                }
                Ok(answer)
            });
            put.await.unwrap_or_else(|_| Err(Unanswered::Failed("the frontend stops".to_owned())))
        };
        Ok((number, landing.boxed().shared()))
    }
}

/// Ends a question that was answered, or that nobody waits for.
struct End<K: Eq + Hash, V> {
    flights: Flights<K, V>,
    key: K,
    number: u64,
}

impl<K: Eq + Hash, V> Drop for End<K, V> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        if flights.get(&self.key).is_some_and(|flight| flight.number == self.number) {
            flights.remove(&self.key);
        }
    }
}
