//! Admits memory like calls: what a call may need of it is taken before it is used (rule service-27).
//!
//! A ticket bounds how many calls there are, not how large they are. So each call has a [`Share`] of the memory that
//! the replica has for calls. It takes what it is about to need (its body, that expanded, what is decoded and parsed
//! of it) and gives it back when its answer has been read and its work has ended.
//!
//! * Up to a ceiling the memory is anybody's. Submissions and dry runs stop at three quarters, large resizes and
//!   renderings at seven eighths; the rest is for small calls. So no number of large calls keeps a small one out.
//! * A call that finds too little waits for [`WAIT`], in order of arrival among those with its ceiling, and is refused
//!   then: another replica may have room.
//! * A call that holds memory and needs more (nobody knows how large a compressed message is) waits before the others.
//!   Of those only one waits and others are refused at once, so they never wait for each other.
//!
//! Knows: bytes, classes. Must not know: what the memory is for.
//!
//! Invariants: shares together never have more than there is; a share that is dropped has given back everything.

use super::class::{CallClass, PerClass};
use super::errors::Failure;
use super::metrics::Metrics;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time;

/// How long a call waits for memory.
pub(crate) const WAIT: Duration = Duration::from_millis(500);
/// Bytes up to which a call counts as small.
pub(crate) const SMALL: u64 = 8 << 20;

/// The memory for the calls of one server.
#[derive(Clone)]
pub(crate) struct Memory {
    pool: Arc<Pool>,
}

struct Pool {
    bytes: u64,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: u64,
    by_class: PerClass<u64>,
    /// The most that was ever taken.
    most: u64,
    /// By ceiling, the highest first.
    waiting: [VecDeque<Waiter>; 3],
    arrivals: u64,
}

struct Waiter {
    number: u64,
    class: CallClass,
    bytes: u64,
    /// It holds memory while it waits.
    grows: bool,
    grant: oneshot::Sender<Grant>,
}

/// Memory on its way to a share. Dropping it gives it back.
#[derive(Debug)]
struct Grant {
    pool: Option<Arc<Pool>>,
    class: CallClass,
    bytes: u64,
}

/// Why there was no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Others have it.
    Busy,
    /// It is more than a call of this class may ever have.
    TooMuch {
        /// What it may have.
        most: u64,
    },
}

/// What one call has. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    class: CallClass,
    bytes: u64,
}

/// Which part of the memory a call may take from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ceiling {
    Small,
    Urgent,
    Long,
}

impl Ceiling {
    fn of(class: CallClass, bytes: u64) -> Self {
        match class {
            _ if bytes <= SMALL => Self::Small,
            CallClass::Resize | CallClass::Render => Self::Urgent,
            CallClass::Submit | CallClass::DryRun => Self::Long,
        }
    }

    fn bytes(self, all: u64) -> u64 {
        match self {
            Self::Small => all,
            Self::Urgent => all / 8 * 7,
            Self::Long => all / 8 * 6,
        }
    }
}

impl Memory {
    pub(crate) fn new(bytes: u64, metrics: Arc<Metrics>) -> Self {
        metrics.memory_limit(bytes);
        Self { pool: Arc::new(Pool { bytes, metrics, state: Mutex::default() }) }
    }

    /// A share that has nothing yet.
    pub(crate) fn share(&self, class: CallClass) -> Share {
        Share { pool: Arc::clone(&self.pool), class, bytes: 0 }
    }

    /// What all shares have, and the most that they ever had.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> (u64, u64) {
        let state = self.pool.lock();
        (state.taken, state.most)
    }

    /// Calls that wait for memory.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.pool.lock().waiting.iter().map(VecDeque::len).sum()
    }
}

impl Share {
    /// The most that a call of this class may have.
    pub(crate) fn most(&self) -> u64 {
        Ceiling::of(self.class, u64::MAX).bytes(self.pool.bytes)
    }

    /// What it has.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `more` bytes. Waits for them if others have them, but not for long. Dropping the future takes nothing.
    ///
    /// # Errors
    ///
    /// There was not so much in time, or there never will be. What the share has, it keeps.
    pub(crate) async fn take(&mut self, more: u64) -> Result<(), Denied> {
        struct Queued<'a> {
            pool: &'a Arc<Pool>,
            number: u64,
        }

        impl Drop for Queued<'_> {
            fn drop(&mut self) {
                let mut state = self.pool.lock();
                for queue in &mut state.waiting {
                    queue.retain(|waiter| waiter.number != self.number);
                }
                // Somebody behind it may need less.
                self.pool.dispatch(&mut state);
            }
        }

        let total = self.bytes.saturating_add(more);
        if total > SMALL.max(self.most()) || total > self.pool.bytes {
            return Err(Denied::TooMuch { most: self.most() });
        }
        let (number, granted) = {
            let mut state = self.pool.lock();
            let ceiling = Ceiling::of(self.class, total);
            let queue = &state.waiting[ceiling as usize];
            let grows = self.bytes > 0;
            // Who holds nothing waits behind those who came before, so that what is large has its turn.
            let first = grows || queue.is_empty();
            if first && state.fits(more, ceiling, self.pool.bytes) {
                self.pool.grant(&mut state, self.class, more);
                self.bytes = total;
                return Ok(());
            }
            if grows && state.waiting.iter().flatten().any(|waiter| waiter.grows) {
                self.pool.metrics.memory_refused(self.class.name());
                return Err(Denied::Busy);
            }
            let (grant, granted) = oneshot::channel();
            state.arrivals += 1;
            let waiter = Waiter { number: state.arrivals, class: self.class, bytes: more, grows, grant };
            let number = waiter.number;
            let queue = &mut state.waiting[ceiling as usize];
            if grows {
                queue.push_front(waiter);
            } else {
                queue.push_back(waiter);
            }
            self.pool.show(&state, self.class);
            (number, granted)
        };
        let queued = Queued { pool: &self.pool, number };
        match time::timeout(WAIT, granted).await {
            Ok(Ok(mut grant)) => {
                grant.pool = None;
                drop(queued);
                self.bytes = total;
                Ok(())
            }
            _ => {
                drop(queued);
                self.pool.metrics.memory_refused(self.class.name());
                Err(Denied::Busy)
            }
        }
    }

    /// Gives back all but `bytes`.
    pub(crate) fn keep(&mut self, bytes: u64) {
        let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) else { return };
        self.bytes = bytes;
        self.pool.give_back(self.class, less);
    }
}

impl State {
    fn fits(&self, bytes: u64, ceiling: Ceiling, all: u64) -> bool {
        self.taken.saturating_add(bytes) <= ceiling.bytes(all)
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grant(&self, state: &mut State, class: CallClass, bytes: u64) {
        state.taken += bytes;
        state.most = state.most.max(state.taken);
        *state.by_class.of_mut(class) += bytes;
        self.show(state, class);
    }

    fn give_back(self: &Arc<Self>, class: CallClass, bytes: u64) {
        let mut state = self.lock();
        state.taken = state.taken.saturating_sub(bytes);
        let of_class = state.by_class.of_mut(class);
        *of_class = of_class.saturating_sub(bytes);
        self.show(&state, class);
        self.dispatch(&mut state);
    }

    /// Serves who waits: those with the higher ceilings first, in order.
    fn dispatch(self: &Arc<Self>, state: &mut State) {
        for ceiling in [Ceiling::Small, Ceiling::Urgent, Ceiling::Long] {
            while let Some(first) = state.waiting[ceiling as usize].front() {
                if !state.fits(first.bytes, ceiling, self.bytes) {
                    break;
                }
                let Some(Waiter { class, bytes, grant, .. }) = state.waiting[ceiling as usize].pop_front() else {
                    break;
                };
                // If the waiter has just given up, nothing is taken.
                if let Err(mut unused) = grant.send(Grant { pool: Some(Arc::clone(self)), class, bytes }) {
                    unused.pool = None;
                } else {
                    self.grant(state, class, bytes);
                }
                self.show(state, class);
            }
        }
    }

    fn show(&self, state: &State, class: CallClass) {
        self.metrics.memory_taken(class.name(), *state.by_class.of(class));
        let waiting = state.waiting.iter().flatten().filter(|waiter| waiter.class == class).count();
        self.metrics.memory_waiting(class.name(), waiting);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(self.class, self.bytes);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.keep(0);
    }
}

impl Denied {
    /// The failure of a call of which `what` needs the memory.
    pub(crate) fn failure(self, what: &str, busy: impl FnOnce() -> Failure) -> Failure {
        match self {
            Self::Busy => busy(),
            Self::TooMuch { most } => {
                Failure::malformed("", format!("{what} needs more memory than the {most} bytes that a call may have"))
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallClass::{DryRun, Render, Resize, Submit};

    fn memory(units: u64) -> Memory {
        Memory::new(units * SMALL, Arc::new(Metrics::new()))
    }

    async fn with(memory: &Memory, class: CallClass, units: u64) -> Result<Share, Denied> {
        let mut share = memory.share(class);
        share.take(units * SMALL).await.map(|()| share)
    }

    #[tokio::test(start_paused = true)]
    async fn each_class_and_size_has_its_ceiling() {
        // What is taken already, who asks, for how much, and whether it gets it.
        let cases = [
            (0, Submit, 48, Ok(())),
            (0, Submit, 49, Err(Denied::TooMuch { most: 48 * SMALL })),
            (0, Resize, 56, Ok(())),
            (0, Resize, 57, Err(Denied::TooMuch { most: 56 * SMALL })),
            (40, Submit, 8, Ok(())),
            (40, Submit, 9, Err(Denied::Busy)),
            (40, DryRun, 9, Err(Denied::Busy)),
            (40, Resize, 16, Ok(())),
            (40, Render, 17, Err(Denied::Busy)),
            (56, Submit, 1, Ok(())),
            (56, Submit, 2, Err(Denied::Busy)),
            (56, Resize, 1, Ok(())),
        ];
        for (taken, class, bytes, expected) in cases {
            let memory = memory(64);
            let _others = with(&memory, Resize, taken).await.unwrap();
            let result = with(&memory, class, bytes).await;
            assert_eq!(result.as_ref().map(|_| ()), expected.as_ref().map(|&()| ()), "{taken} {class:?} {bytes}");
            drop(result);
            assert_eq!(memory.taken().0, taken * SMALL, "{taken} {class:?} {bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_goes_to_those_who_wait_in_order() {
        let memory = memory(64);
        let mut first = with(&memory, Resize, 50).await.unwrap();
        let wait = |class, bytes| {
            let memory = memory.clone();
            tokio::spawn(async move { with(&memory, class, bytes).await })
        };
        let large = wait(Resize, 40);
        while memory.waiting() < 1 {
            tokio::task::yield_now().await;
        }
        // It would fit, but the large one came before.
        let behind = wait(Resize, 4);
        while memory.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        // Small ones do not wait for it.
        let _small = with(&memory, Submit, 1).await.unwrap();
        assert_eq!(memory.waiting(), 2);
        first.keep(10 * SMALL);
        let large = large.await.unwrap().unwrap();
        assert_eq!(large.bytes(), 40 * SMALL);
        let behind = behind.await.unwrap().unwrap();
        drop((large, behind, first));
        assert_eq!(memory.taken(), (SMALL, 56 * SMALL - SMALL));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_hold_memory_do_not_wait_for_each_other() {
        let memory = memory(64);
        let mut one = with(&memory, Resize, 25).await.unwrap();
        let mut other = with(&memory, Resize, 25).await.unwrap();
        let waits = tokio::spawn(async move {
            one.take(20 * SMALL).await.unwrap();
            one.bytes()
        });
        while memory.waiting() < 1 {
            tokio::task::yield_now().await;
        }
        let began = time::Instant::now();
        assert_eq!(other.take(20 * SMALL).await, Err(Denied::Busy));
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(other);
        assert_eq!(waits.await.unwrap(), 45 * SMALL);
        assert_eq!(memory.taken().0, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_leaves_takes_nothing_and_lets_others_pass() {
        let memory = memory(64);
        let _first = with(&memory, Resize, 50).await.unwrap();
        let leaving = {
            let memory = memory.clone();
            tokio::spawn(async move { with(&memory, Resize, 40).await.map(drop) })
        };
        while memory.waiting() < 1 {
            tokio::task::yield_now().await;
        }
        let behind = {
            let memory = memory.clone();
            tokio::spawn(async move { with(&memory, Resize, 4).await.map(|share| share.bytes()) })
        };
        while memory.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        leaving.abort();
        assert_eq!(behind.await.unwrap(), Ok(4 * SMALL));
        assert_eq!(memory.taken(), (50 * SMALL, 54 * SMALL));
    }
}
