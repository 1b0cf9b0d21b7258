//! A worker while it works on a call, and how it makes way for what is more urgent (rule service-8).
//!
//! Long work asks at its check points whether something short waits for the only worker. It gives the worker away then,
//! and its thread stands aside until it gets it back: when nothing short waits any more, or as many calls as
//! [`PATIENCE`](super::PATIENCE) says have passed it. Afterwards it keeps the worker for at least as long as it stood
//! aside. So it gets half of the worker, however many others come, and they wait no longer for it than it has just
//! waited for them. That holds for all steps of a call together (`work`).
//!
//! A resize does the same once it has taken [`LONG_RESIZE`], for resizes that have not, with any number of workers.
//! Those may turn out to take long. So when it has stood aside for as long as that, it gets the next free worker, and
//! waits for one of them to end at most. A resize that came before it and is between two steps passes it, too. A
//! rendering that takes as long in one step, because it restores its job, makes way like a resize.
//!
//! What it has made by then is in memory beside what all workers make (rule service-27). So it takes [memory for
//! calls](bytes_aside), as soon as it is known for a job as large as the new one, and goes on as it is if that is not
//! there.
//!
//! Work that has to wait for its caller takes a [`Break`]: it gives its worker back, and queues for one afterwards like
//! work that comes then. So a caller who reads slowly keeps a thread, and no worker.
//!
//! Knows: the state of admission, time. Must not know: what the work is.
//!
//! Invariants: who stands aside has no worker, and keeps its ticket, its memory and its deadline. If nobody wants its
//! result any more it goes on without a worker, to its end, which is near.

use super::idle_cores::IdleCores;
use super::{Aside, LONG_RESIZE, SharedAdmission};
use crate::server::budget::CallBudget;
use crate::server::class::CallClass;
use crate::server::memory::{Denied, Share};
use crate::server::place::Place;
use crate::server::work::{Keeps, ShareOfWork};
use parking_lot::Mutex;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use streams_compiler::budget::{Cores, GiveWay, Limits};
use streams_compiler::error::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A worker has memory for this part of the documents of a job.
const WORKERS_PART: u64 = 4;
/// Who stands aside has this part of that at least.
const LEAST_PART: u64 = 4;

/// A worker that is counted as busy, until dropped.
pub(super) struct Permit {
    /// `None` if it is not, or not any more.
    shared: Option<Arc<SharedAdmission>>,
    class: CallClass,
    since: Instant,
    /// How long of that its thread stood aside.
    aside: Duration,
}

impl Permit {
    /// The caller counts the worker.
    pub(super) fn new(shared: &Arc<SharedAdmission>, class: CallClass) -> Self {
        Self { shared: Some(Arc::clone(shared)), class, since: Instant::now(), aside: Duration::ZERO }
    }

    /// Gives it up without a change of what is counted.
    pub(super) fn forget(mut self) {
        self.shared = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let mut state = shared.lock();
        *state.working.of_mut(self.class) -= 1;
        if !self.class.is_long() {
            state.short_work += self.since.elapsed().saturating_sub(self.aside);
        }
        shared.dispatch(&mut state);
    }
}

/// The permit of a thread that works. Dropping it gives the permit back.
pub(super) struct Worker {
    class: CallClass,
    turn: Arc<Turn>,
    of_call: Arc<ShareOfWork>,
}

/// What a worker and the budget of its work share.
struct Turn {
    budget: CallBudget,
    runtime: Handle,
    /// How long it has the worker before it makes way.
    first: Duration,
    /// Bytes of the job that it begins from, if that is there, or of the one that it restores, if that is known.
    base: Option<u64>,
    /// Memory that was taken before for what it makes.
    reserved: u64,
    /// Memory that it takes for what it has made while it stands aside.
    bytes_aside: AtomicU64,
    /// The thread that works. Others may help it, and leave when somebody needs their core.
    thread: OnceLock<ThreadId>,
    held: Mutex<Held>,
}

struct Held {
    /// `None` when the work has ended.
    permit: Option<Permit>,
    keeps: Keeps,
}

impl Worker {
    /// `budget` is that of the call, `of_call` what it has of the workers; it has let others pass with short work for
    /// `passed`. `runtime` is the one to wait with.
    pub(super) fn new(
        permit: Permit,
        budget: CallBudget,
        of_call: Arc<ShareOfWork>,
        passed: Duration,
        runtime: Handle,
    ) -> Self {
        let class = permit.class;
        let keeps = of_call.resume(passed, permit.since);
        let first = match class {
            CallClass::Resize => LONG_RESIZE.saturating_sub(of_call.worked()),
            // Its batches are short, however many come one after the other.
            CallClass::Render => LONG_RESIZE,
            CallClass::Submit | CallClass::DryRun => Duration::ZERO,
        };
        let reserved = of_call.reserved();
        // A job that is restored is about as large as what was taken for it.
        let base = of_call.base().or(Some(reserved).filter(|bytes| *bytes > 0));
        let bytes_aside = AtomicU64::new(bytes_aside(&budget.limits, base, reserved, 1, 1));
        let held = Mutex::new(Held { permit: Some(permit), keeps });
        let turn = Turn { budget, runtime, first, base, reserved, bytes_aside, thread: OnceLock::new(), held };
        Self { class, turn: Arc::new(turn), of_call }
    }

    /// The thread that calls this does the work.
    pub(super) fn begins_here(&self) {
        self.turn.thread.get_or_init(|| thread::current().id());
    }

    /// For the budget of its work, which is to make way.
    pub(super) fn give_way(&self) -> Arc<dyn GiveWay> {
        Arc::<Turn>::clone(&self.turn)
    }

    /// For the budget of its work, if that is to have the help of others.
    pub(super) fn cores(&self, shared: &Arc<SharedAdmission>) -> Option<Arc<dyn Cores>> {
        (self.class == CallClass::Resize).then(|| Arc::new(IdleCores::new(shared)) as Arc<dyn Cores>)
    }
}

impl Worker {
    /// For work that waits for its caller.
    pub(super) fn breaks(&self) -> Break {
        Break { turn: Arc::clone(&self.turn), of_call: Arc::clone(&self.of_call) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Not when the last budget is dropped, which nobody counts.
        self.turn.give_back(&self.of_call);
    }
}

/// What work that stands aside takes for what it has made: twice as much as the job that it begins from, and as much
/// more as the new job has `now` of what that has `before`; and no more than a worker has. What was taken for that
/// before counts.
fn bytes_aside(limits: &Limits, base: Option<u64>, reserved: u64, before: u64, now: u64) -> u64 {
    let most = limits.aadl_bytes / WORKERS_PART;
    let of_base = |base: u64| base.saturating_mul(2).saturating_mul(now) / before.max(1);
    base.map_or(most, |base| of_base(base).clamp(most / LEAST_PART, most)).saturating_sub(reserved)
}

impl Turn {
    /// Gives the permit back, if there is one. Returns whose it was and of which class.
    fn give_back(&self, of_call: &ShareOfWork) -> Option<(Arc<SharedAdmission>, CallClass)> {
        let mut held = self.held.lock();
        let Held { permit, keeps } = &mut *held;
        let permit = permit.take()?;
        let worked = permit.since.elapsed().saturating_sub(permit.aside);
        // Before another call can have the worker.
        of_call.pause(worked, *keeps, Instant::now());
        Some((permit.shared.clone()?, permit.class))
    }

    /// The memory that the work has while it stands aside. Long work makes way where there is one worker, for what
    /// takes little.
    fn memory_aside(&self, class: CallClass) -> Result<Option<Share>, Denied> {
        let Some(of_call) = self.budget.memory.as_ref().filter(|_| !class.is_long()) else { return Ok(None) };
        let share = of_call.empty();
        share.take_if_spare(self.bytes_aside.load(Relaxed))?;
        Ok(Some(share))
    }
}

/// Lets work wait for its caller without a worker.
pub(crate) struct Break {
    turn: Arc<Turn>,
    of_call: Arc<ShareOfWork>,
}

impl Break {
    /// Waits for `what` without a worker, and then for a worker.
    ///
    /// # Errors
    ///
    /// The budget of the work has ended, or the server does. The work has no worker then, and goes to its end.
    pub(crate) fn wait<T>(&self, what: impl Future<Output = T>) -> Result<T, Error> {
        let Turn { budget, runtime, held, .. } = &*self.turn;
        let given_back = self.turn.give_back(&self.of_call);
        runtime.block_on(async {
            tokio::select! {
                biased;
                error = budget.ended() => Err(error),
                done = async {
                    let result = what.await;
                    if let Some((shared, class)) = given_back {
                        let queued_at = Instant::now();
                        let permit = shared.permit(class, None, self.of_call.worked()).await;
                        let permit = permit.map_err(|_| Error::Cancelled)?;
                        shared.metrics.stage("queue", queued_at.elapsed());
                        held.lock().permit = Some(permit);
                    }
                    Ok(result)
                } => done,
            }
        })
    }
}

impl GiveWay for Turn {
    fn give_way(&self) {
        if self.thread.get() != Some(&thread::current().id()) {
            return;
        }
        let mut held = self.held.lock();
        let Held { permit: Some(permit), keeps } = &mut *held else { return };
        let Some(shared) = permit.shared.clone() else { return };
        let from = Instant::now();
        let worked = from.saturating_duration_since(permit.since).saturating_sub(permit.aside);
        if worked < self.first || !keeps.may_give_way(from) || !shared.makes_way(permit.class) {
            return;
        }
        let Ok(_memory) = self.memory_aside(permit.class) else { return };
        let Some(mut resumed) = shared.stand_aside(permit.class, self.budget.place.clone()) else { return };
        let has_worker = self.runtime.block_on(async {
            tokio::select! {
                biased;
                resumed = &mut resumed => Some(resumed.is_ok()),
                _ = self.budget.ended() => None,
            }
        });
        let has_worker = has_worker.unwrap_or_else(|| shared.end_aside(&mut resumed));
        let to = Instant::now();
        permit.aside += to - from;
        *keeps = Keeps::after(from, to);
        shared.metrics.stage("aside", to - from);
        if !has_worker {
            permit.shared = None;
        }
    }

    fn grows(&self, before: u64, now: u64) {
        let bytes = bytes_aside(&self.budget.limits, self.base, self.reserved, before, now);
        self.bytes_aside.fetch_max(bytes, Relaxed);
    }
}

impl SharedAdmission {
    /// Whether somebody waits for whom work of this class that takes long makes way.
    fn makes_way(&self, class: CallClass) -> bool {
        // Of several workers, one is free of submissions and dry runs.
        if class.is_long() && self.capacity.workers > 1 {
            return false;
        }
        let state = self.lock();
        state.aside.is_none() && state.is_awaited(class, self.capacity.workers)
    }

    /// Gives a worker away to those for whom work of this class makes way, if there are any. The receiver hears when
    /// the worker is given back.
    fn stand_aside(self: &Arc<Self>, class: CallClass, place: Option<Place>) -> Option<oneshot::Receiver<()>> {
        let mut state = self.lock();
        if state.aside.is_some() || !state.is_awaited(class, self.capacity.workers) {
            return None;
        }
        let (resume, resumed) = oneshot::channel();
        *state.working.of_mut(class) -= 1;
        state.aside = Some(Aside { class, place, since: Instant::now(), passed_over: 0, resume });
        self.dispatch(&mut state);
        Some(resumed)
    }

    /// Ends the waiting of who stands aside. Returns whether it was given a worker after all.
    fn end_aside(self: &Arc<Self>, resumed: &mut oneshot::Receiver<()>) -> bool {
        let mut state = self.lock();
        if resumed.try_recv().is_ok() {
            return true;
        }
        state.aside = None;
        self.dispatch(&mut state);
        false
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
