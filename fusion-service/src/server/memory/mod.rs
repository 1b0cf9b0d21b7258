//! Admits memory like calls: what a call may need of it is taken before it is used (rule service-27).
//!
//! A ticket bounds how many calls there are, not how large they are. So each call has a [`Share`] of the memory that
//! the replica has for calls. It takes what it is about to need (its body, that expanded, what is decoded and parsed
//! of it) and gives it back when its answer has been read and its work has ended.
//!
//! * Up to a ceiling the memory is anybody's. Submissions and dry runs stop at three quarters, large resizes and
//!   renderings at seven eighths; the rest is for small calls. So no number of large calls keeps a small one out.
//! * A call that has nothing yet and finds too little waits for [`WAIT`], in order of arrival among those with its
//!   ceiling, and is refused then: another replica may have room.
//! * A large call that holds memory and needs more (what a message takes is known only when all of it is there) would
//!   lose what was done for it. So it has a [`LinePlace`] in a line, and waits for [`LINE_WAIT`]. The line is short:
//!   who waits has a ticket, and what it holds is of no use to others. Who finds no place is refused at once (rule
//!   service-32).
//! * Those in the line and those who have nothing yet are served in turns, so neither keeps the other out.
//! * A call that has been decoded and needs memory for the job that it begins from has come further than all of these:
//!   it is served before them, and those in the line who hold what it lacks lose it. Otherwise a job that takes all
//!   that is left would have to find nobody else there, and all callers would come again without end. After
//!   [`IN_A_ROW`] of these it is the turn of one of the others.
//! * For the job of a dry run nobody loses anything. It waits for [`WAIT`], and is served before long calls only that
//!   have not come so far.
//!
//! Knows: bytes, classes, how far a call has come. Must not know: what the memory is for.
//!
//! Invariants: shares together never have more than there is, but for what is charged because it is in use already; a
//! share that is dropped has given back everything. Each call that waits can be served when those that do not wait have
//! given back what they have: nobody waits for a call that waits itself, but for the moment for which a dry run waits
//! for its job. (Who rides along with a call that waits for its job does not wait here, and may have what that lacks:
//! both are refused in the end.)

#[cfg(test)]
mod tests;

use super::class::{CallClass, PerClass};
use super::errors::Failure;
use super::metrics::Metrics;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time;

/// How long a call waits for memory that has none yet.
pub(crate) const WAIT: Duration = Duration::from_millis(500);
/// How long a call with a place in the line waits for memory.
pub(crate) const LINE_WAIT: Duration = Duration::from_secs(60);
/// How long a call waits for memory for the job that it begins from, without a worker.
pub(crate) const JOB_WAIT: Duration = Duration::from_secs(10);
/// Calls that are served for their jobs before it is the turn of another one.
const IN_A_ROW: u32 = 4;
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
    /// Places in the line, by ceiling. Who has one may not wait yet.
    places: [Arc<Semaphore>; 3],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: u64,
    by_class: PerClass<u64>,
    /// The most that was ever taken.
    most: u64,
    /// By ceiling, the highest first.
    waiting: [Queue; 3],
    arrivals: u64,
    /// Calls that were served for their jobs since another large one was.
    begun_in_a_row: u32,
}

/// Those who wait under one ceiling.
#[derive(Default)]
struct Queue {
    /// Calls that wait for memory for the job that they begin from, in order of arrival.
    begun: VecDeque<Waiter>,
    /// Calls that hold memory, in the order of their places.
    line: VecDeque<Waiter>,
    /// Calls that have nothing yet, in order of arrival.
    new: VecDeque<Waiter>,
    /// The last one that was served came from the line.
    turn_of_new: bool,
}

struct Waiter {
    number: u64,
    class: CallClass,
    ceiling: Ceiling,
    bytes: u64,
    /// What it has while it waits.
    holds: u64,
    grant: oneshot::Sender<Grant>,
}

/// A place in the line of large calls that hold memory and need more. Dropping it gives it to another call.
#[derive(Debug)]
pub(crate) struct LinePlace {
    _permit: OwnedSemaphorePermit,
    ceiling: Ceiling,
    number: u64,
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
    bytes: AtomicU64,
    /// What of these bytes is for what is parsed of the call's content.
    parsed: AtomicU64,
}

/// How a call waits.
#[derive(Debug)]
enum Wait {
    /// It has nothing, or memory, and perhaps a place in the line.
    Content(Option<LinePlace>),
    /// For a job, and has so many bytes.
    Job { holds: u64, patience: Duration },
}

/// Which part of the memory a call may take from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ceiling {
    Small,
    Urgent,
    Long,
}

impl Ceiling {
    /// The highest first.
    const ALL: [Self; 3] = [Self::Small, Self::Urgent, Self::Long];

    fn of(class: CallClass, bytes: u64) -> Self {
        match class {
            _ if bytes <= SMALL => Self::Small,
            CallClass::Resize | CallClass::Render => Self::Urgent,
            CallClass::Submit | CallClass::DryRun => Self::Long,
        }
    }

    /// The ceiling of a call of this class that is not small.
    fn of_large(class: CallClass) -> Self {
        Self::of(class, u64::MAX)
    }

    fn bytes(self, all: u64) -> u64 {
        match self {
            Self::Small => all,
            Self::Urgent => all / 8 * 7,
            Self::Long => all / 8 * 6,
        }
    }

    /// Places in its line. A long call that waits keeps memory from urgent ones, so there are few. Small calls hold
    /// little, and wait like those that have nothing.
    fn places(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Urgent => 8,
            Self::Long => 2,
        }
    }
}

impl Memory {
    pub(crate) fn new(bytes: u64, metrics: Arc<Metrics>) -> Self {
        metrics.memory_limit(bytes);
        let places = Ceiling::ALL.map(|ceiling| Arc::new(Semaphore::new(ceiling.places())));
        Self { pool: Arc::new(Pool { bytes, metrics, places, state: Mutex::default() }) }
    }

    /// A share that has nothing yet.
    pub(crate) fn share(&self, class: CallClass) -> Share {
        Share { pool: Arc::clone(&self.pool), class, bytes: AtomicU64::new(0), parsed: AtomicU64::new(0) }
    }

    /// A share that has these bytes whether or not there are so many: somebody uses them already. Who asks for memory
    /// then finds so much less.
    pub(crate) fn charge(&self, class: CallClass, bytes: u64) -> Share {
        let share = self.share(class);
        share.bytes.store(bytes, Relaxed);
        let mut state = self.pool.lock();
        self.pool.grant(&mut state, class, bytes);
        drop(state);
        share
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
        self.pool.lock().waiting().count()
    }
}

impl Share {
    /// A share of the same memory, for the same class, that has nothing yet.
    pub(crate) fn empty(&self) -> Self {
        Self { pool: Arc::clone(&self.pool), class: self.class, bytes: AtomicU64::new(0), parsed: AtomicU64::new(0) }
    }

    /// The most that a call of this class may have.
    fn most(&self) -> u64 {
        Ceiling::of_large(self.class).bytes(self.pool.bytes)
    }

    /// So much of what it has is for what is parsed of the call's content.
    pub(crate) fn is_parsed_to(&self, bytes: u64) {
        self.parsed.store(bytes, Relaxed);
    }

    /// What a call lacks for a job that takes so many bytes. A job has its application, for which the call has taken
    /// memory if it has sent it. One that is larger than what the call may still have lacks nearly all of that: the job
    /// was accepted, so there must be a time for it, though others always have a little.
    pub(crate) fn lacks_for_job(&self, bytes: u64) -> u64 {
        let most = self.most();
        let more = (most - most / 16).saturating_sub(self.bytes());
        bytes.saturating_sub(self.parsed.load(Relaxed)).min(more)
    }

    /// What it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// A place in the line, for a call that is going to be large and has not found out yet how large. It keeps its
    /// place until it has taken what it needs. Waits for one, but not for long.
    ///
    /// # Errors
    ///
    /// Others have all of them.
    pub(crate) async fn place(&self) -> Result<LinePlace, Denied> {
        let ceiling = Ceiling::of_large(self.class);
        let permit = Arc::clone(&self.pool.places[ceiling as usize]).acquire_owned();
        let Ok(Ok(permit)) = time::timeout(WAIT, permit).await else {
            self.pool.metrics.memory_refused(self.class.name());
            return Err(Denied::Busy);
        };
        let mut state = self.pool.lock();
        state.arrivals += 1;
        Ok(LinePlace { _permit: permit, ceiling, number: state.arrivals })
    }

    /// Takes `more` bytes. Waits for them if others have them, but not for long. Dropping the future takes nothing.
    ///
    /// # Errors
    ///
    /// There was not so much in time, or there never will be. What the share has, it keeps.
    pub(crate) async fn take(&self, more: u64) -> Result<(), Denied> {
        self.take_at(more, None).await
    }

    /// The same for a call that has a place in the line, if it has one.
    pub(crate) async fn take_at(&self, more: u64, place: Option<LinePlace>) -> Result<(), Denied> {
        self.wait(more, Wait::Content(place)).await
    }

    /// A share of its own with `more` bytes, for the job that this call begins from. It is served before all calls that
    /// are not decoded yet and not more urgent. Those in the line that hold what it needs are refused, but not for a
    /// dry run.
    ///
    /// # Errors
    ///
    /// There was not so much in time, or there never will be.
    pub(crate) async fn take_for_job(&self, more: u64, patience: Duration) -> Result<Self, Denied> {
        let of_job = self.empty();
        of_job.wait(more, Wait::Job { holds: self.bytes(), patience }).await?;
        Ok(of_job)
    }

    async fn wait(&self, more: u64, how: Wait) -> Result<(), Denied> {
        struct Queued<'a> {
            pool: &'a Arc<Pool>,
            number: u64,
        }

        impl Drop for Queued<'_> {
            fn drop(&mut self) {
                let mut state = self.pool.lock();
                state.remove(self.number);
                // Somebody behind it may need less.
                self.pool.dispatch(&mut state);
            }
        }

        let ceiling = self.ceiling(more)?;
        let (is_begun, has, mut place, patience) = match how {
            Wait::Job { holds, patience } => (true, holds, None, Some(patience)),
            Wait::Content(place) => (false, self.bytes(), place.filter(|place| place.ceiling == ceiling), None),
        };
        let (grant, granted) = oneshot::channel();
        let queued = {
            let mut state = self.pool.lock();
            state.arrivals += 1;
            let number = place.as_ref().map_or(state.arrivals, |place| place.number);
            state.insert(Waiter { number, class: self.class, ceiling, bytes: more, holds: has, grant }, is_begun);
            self.pool.dispatch(&mut state);
            let waits = state.waiting().any(|waiter| waiter.number == number);
            if waits && is_begun {
                if !self.class.is_long() && !state.make_way(self.pool.bytes) {
                    state.remove(number);
                }
                self.pool.dispatch(&mut state);
            } else if waits && has > 0 {
                if place.is_none() {
                    let permit = Arc::clone(&self.pool.places[ceiling as usize]).try_acquire_owned();
                    place = permit.ok().map(|permit| LinePlace { _permit: permit, ceiling, number });
                }
                let lacks_place = place.is_none() && ceiling != Ceiling::Small;
                if lacks_place || state.taken > ceiling.bytes(self.pool.bytes) || !state.is_safe(self.pool.bytes) {
                    state.remove(number);
                    self.pool.dispatch(&mut state);
                }
            }
            self.pool.show(&state, self.class);
            Queued { pool: &self.pool, number }
        };
        let patience = patience.unwrap_or(if place.is_some() { LINE_WAIT } else { WAIT });
        match time::timeout(patience, granted).await {
            Ok(Ok(mut grant)) => {
                grant.pool = None;
                drop(queued);
                self.bytes.fetch_add(more, Relaxed);
                Ok(())
            }
            _ => {
                drop(queued);
                self.pool.metrics.memory_refused(self.class.name());
                Err(Denied::Busy)
            }
        }
    }

    /// The same for a call that goes on without, so it does not wait, and none is refused. Those who wait for memory
    /// may wait longer because of it.
    ///
    /// # Errors
    ///
    /// There is not so much now, or there never will be.
    pub(crate) fn take_if_spare(&self, more: u64) -> Result<(), Denied> {
        let most = self.ceiling(more)?.bytes(self.pool.bytes);
        let mut state = self.pool.lock();
        if state.taken.saturating_add(more) > most {
            return Err(Denied::Busy);
        }
        self.pool.grant(&mut state, self.class, more);
        self.bytes.fetch_add(more, Relaxed);
        Ok(())
    }

    /// The ceiling under which it may take `more` bytes.
    ///
    /// # Errors
    ///
    /// A call of its class may never have so much.
    fn ceiling(&self, more: u64) -> Result<Ceiling, Denied> {
        let total = self.bytes().saturating_add(more);
        if total > SMALL.max(self.most()) || total > self.pool.bytes {
            return Err(Denied::TooMuch { most: self.most() });
        }
        Ok(Ceiling::of(self.class, total))
    }

    /// Gives back all but `bytes`.
    pub(crate) fn keep(&self, bytes: u64) {
        let less = self.bytes.fetch_min(bytes, Relaxed).saturating_sub(bytes);
        if less > 0 {
            self.pool.give_back(self.class, less);
        }
    }
}

impl State {
    fn waiting(&self) -> impl Iterator<Item = &Waiter> {
        self.waiting.iter().flat_map(|queue| queue.begun.iter().chain(&queue.line).chain(&queue.new))
    }

    /// Calls that wait for their jobs, without dry runs: these leave in a moment, so nobody has to make way for them,
    /// and nobody who would have to wait is refused because they wait.
    fn begun(&self) -> impl Iterator<Item = &Waiter> {
        self.waiting.iter().flat_map(|queue| &queue.begun).filter(|waiter| !waiter.class.is_long())
    }

    fn line(&self) -> impl Iterator<Item = &Waiter> {
        self.waiting.iter().flat_map(|queue| &queue.line)
    }

    fn insert(&mut self, waiter: Waiter, is_begun: bool) {
        let queue = &mut self.waiting[waiter.ceiling as usize];
        if is_begun {
            queue.begun.push_back(waiter);
        } else if waiter.holds == 0 {
            queue.new.push_back(waiter);
        } else {
            let position = queue.line.partition_point(|before| before.number < waiter.number);
            queue.line.insert(position, waiter);
        }
    }

    /// Takes a waiter out that leaves. If its turn has come, it has used it: otherwise those who have nothing and ask
    /// for too much could keep the line waiting, one after the other.
    fn remove(&mut self, number: u64) {
        for (ceiling, queue) in Ceiling::ALL.into_iter().zip(&mut self.waiting) {
            if queue.new.front().is_some_and(|waiter| waiter.number == number) {
                queue.turn_of_new = false;
                if ceiling != Ceiling::Small {
                    self.begun_in_a_row = 0;
                }
            }
            queue.begun.retain(|waiter| waiter.number != number);
            queue.line.retain(|waiter| waiter.number != number);
            queue.new.retain(|waiter| waiter.number != number);
        }
    }

    /// Whether everybody who waits and has memory can be served when nobody but them has anything, in whatever order;
    /// those who have begun before the line.
    fn is_safe(&self, all: u64) -> bool {
        let held: u64 = self.line().map(|waiter| waiter.holds).sum();
        self.line().all(|waiter| held.saturating_add(waiter.bytes) <= waiter.ceiling.bytes(all)) && self.can_begin(all)
    }

    /// The same of those who have begun.
    fn can_begin(&self, all: u64) -> bool {
        self.can_begin_beside(self.line().map(|waiter| waiter.holds).sum(), all)
    }

    /// Whether those who have begun can be served, in whatever order, when nobody but them and a line with so many
    /// bytes has anything.
    fn can_begin_beside(&self, line: u64, all: u64) -> bool {
        let held = self.begun().fold(line, |sum, waiter| sum.saturating_add(waiter.holds));
        self.begun().all(|waiter| held.saturating_add(waiter.bytes) <= waiter.ceiling.bytes(all))
    }

    /// Refuses those in the line who came last until those who have begun can be served without them. Tells whether
    /// they can; if not, nobody is refused.
    fn make_way(&mut self, all: u64) -> bool {
        if !self.can_begin_beside(0, all) {
            return false;
        }
        while !self.can_begin(all) {
            let lines = self.waiting.iter_mut().map(|queue| &mut queue.line);
            let last = lines.max_by_key(|line| line.back().map(|waiter| waiter.number));
            if last.and_then(VecDeque::pop_back).is_none() {
                return false;
            }
        }
        true
    }

    /// Whether those who have begun let another large one go first: one that has its memory at once, or one that has
    /// nothing, waits for a moment only, and could have it while they wait.
    fn is_turn_of_others(&self, all: u64) -> bool {
        if self.begun_in_a_row < IN_A_ROW {
            return false;
        }
        let held = self.waiting().map(|waiter| waiter.holds).sum();
        let fits = |waiter: Option<&Waiter>, beside: u64| {
            waiter.is_some_and(|waiter| beside.saturating_add(waiter.bytes) <= waiter.ceiling.bytes(all))
        };
        let mut large = self.waiting.iter().skip(Ceiling::Small as usize + 1);
        large.any(|queue| fits(queue.line.front(), self.taken) || fits(queue.new.front(), held))
    }

    /// Takes out of the queues who is served now: those with the higher ceilings first. It begins with the highest each
    /// time, so that a turn of others is that of one of them.
    fn next(&mut self, all: u64) -> Option<Waiter> {
        for ceiling in Ceiling::ALL {
            let next = self.next_under(ceiling, all);
            if next.is_some() {
                return next;
            }
            if !self.waiting[ceiling as usize].begun.is_empty() && !self.is_turn_of_others(all) {
                // Whoever has begun under a lower ceiling, or nothing yet, would take what it waits for.
                return None;
            }
        }
        None
    }

    /// Takes out of a queue who is served now, if there is memory for the one whose turn it is.
    fn next_under(&mut self, ceiling: Ceiling, all: u64) -> Option<Waiter> {
        let held: u64 = self.line().map(|waiter| waiter.holds).sum();
        let most = ceiling.bytes(all);
        // Small ones take what is left to them, whatever large ones wait for.
        let is_turn_of_others = ceiling != Ceiling::Small && self.is_turn_of_others(all);
        let queue = &mut self.waiting[ceiling as usize];
        if !is_turn_of_others && let Some(begun) = queue.begun.front() {
            if self.taken.saturating_add(begun.bytes) > most {
                return None;
            }
            self.begun_in_a_row += u32::from(ceiling != Ceiling::Small);
            return queue.begun.pop_front();
        }
        let turn_of_new = match (queue.line.front(), queue.new.front()) {
            (_, None) => false,
            (None, Some(_)) => true,
            // Who finds too little as long as the line waits comes after the line.
            (Some(_), Some(new)) => queue.turn_of_new && held.saturating_add(new.bytes) <= most,
        };
        let waiters = if turn_of_new { &mut queue.new } else { &mut queue.line };
        if self.taken.saturating_add(waiters.front()?.bytes) > most {
            return None;
        }
        let served = waiters.pop_front();
        queue.turn_of_new = !turn_of_new;
        if ceiling != Ceiling::Small {
            self.begun_in_a_row = 0;
        }
        served
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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

    /// Serves who waits, as long as there is memory for the next one. Each of them leaves its queue, so this ends.
    fn dispatch(self: &Arc<Self>, state: &mut State) {
        while let Some(Waiter { class, bytes, grant, .. }) = state.next(self.bytes) {
            // If the waiter has just given up, nothing is taken.
            if let Err(mut unused) = grant.send(Grant { pool: Some(Arc::clone(self)), class, bytes }) {
                unused.pool = None;
            } else {
                self.grant(state, class, bytes);
            }
            self.show(state, class);
        }
    }

    fn show(&self, state: &State, class: CallClass) {
        self.metrics.memory_taken(class.name(), *state.by_class.of(class));
        let waiting = state.waiting().filter(|waiter| waiter.class == class).count();
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
                let text = format!("needs more memory than the {most} bytes that a call may have, for {what}");
                Failure::malformed("", text)
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
