//! Decides which calls may compile, and in which order.
//!
//! A compilation keeps one core busy until it is done. So there are as many *workers* as cores, and all other calls
//! wait. Two things are scarce, memory and cores, so there are two bounds:
//!
//! * A call needs a [`Ticket`] to be accepted (rule service-7). It gets one before its body is read: a call that is
//!   refused costs headers, not memory. Each class of calls has tickets of its own, so submissions never keep a resize
//!   out.
//! * A call needs a [`Permit`] to work (rule service-8). Permits go to resizes first, then to rendering, submissions
//!   and dry runs. The last two never hold the last of several workers. A class that was passed over [`PATIENCE`] times
//!   comes next: no class starves, and resizes still get most of the workers.
//! * If there is one worker only, a submission or dry run that has it gives it away at its next check point when
//!   something short waits, and *stands aside* until it gets it back (`worker`). So does a resize that takes long
//!   ([`LONG_RESIZE`]), or a rendering that restores its job for as long, when a resize waits of which that is not
//!   known, however many workers there are. So a resize waits for short work, as long as no more of them take long at
//!   once than there are workers without a submission.
//! * Workers that are idle lend their cores to a resize (`idle_cores`).
//! * Long work is done on threads to which others of the machine go first: a worker that it has costs a resize nothing
//!   that the resize could use.
//! * Work that has to wait for its caller takes a [`Break`] and has no worker meanwhile.
//!
//! Knows: classes, workers, budgets. Must not know: gRPC, what the work is.
//!
//! Invariants: work whose caller has gone is not started; a permit lives as long as the thread that works, which may be
//! longer than its caller waits, and is given back while it waits for its caller; a panic ends one request and no
//! other; at most one thread stands aside, and no submission or dry run begins while it does.

mod idle_cores;
mod worker;

use super::budget::CallBudget;
use super::class::{CallClass, PerClass};
use super::errors::{Failure, Overloaded};
use super::metrics::Metrics;
use super::place::Place;
use super::work::{ShareOfWork, Workload};
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_compiler::budget::Budget;
use streams_process::background;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{self, JoinError};
pub(crate) use worker::Break;
use worker::{Permit, Worker};

#[cfg(test)]
mod tests;

/// How often a waiting class, or work that stands aside, is passed over before it is next.
const PATIENCE: u32 = 8;
/// A resize that workers have worked on for so long makes way for others, and so does a rendering. Most need far less.
const LONG_RESIZE: Duration = Duration::from_millis(300);
/// A shorter wait for a worker is no span.
const WORTH_A_SPAN: Duration = Duration::from_millis(1);

/// How many threads work and how many requests are accepted at once.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    /// Threads that work, at least 1.
    pub(crate) workers: usize,
    /// Requests accepted at once, worked on or waiting, per class.
    pub(crate) tickets: PerClass<usize>,
}

/// Hands out tickets and permits.
#[derive(Clone)]
pub(crate) struct Admission {
    shared: Arc<SharedAdmission>,
}

struct SharedAdmission {
    capacity: Capacity,
    metrics: Arc<Metrics>,
    load: Arc<Workload>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tickets: PerClass<usize>,
    working: PerClass<usize>,
    /// In no order that matters.
    waiting: PerClass<Vec<Waiter>>,
    passed_over: PerClass<u32>,
    /// Work that takes long, has begun and gave its worker away.
    aside: Option<Aside>,
    /// How long short work has had workers, all together.
    short_work: Duration,
    /// Cores of idle workers that help others.
    lent: usize,
    arrivals: u64,
}

struct Waiter {
    number: u64,
    place: Place,
    /// How long workers have worked on its call.
    worked: Duration,
    grant: oneshot::Sender<Permit>,
}

struct Aside {
    class: CallClass,
    /// Its place in the order of arrival, if it has one.
    place: Option<Place>,
    since: Instant,
    /// How many have had the worker since.
    passed_over: u32,
    resume: oneshot::Sender<()>,
}

/// Who gets a free worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The first waiting call of a class.
    Waiting(CallClass),
    /// The first waiting resize that may pass the one that stands aside.
    Passing,
    /// The work that stands aside.
    Aside,
}

/// An accepted request. Dropping it gives its place to another request.
#[derive(Debug)]
pub(crate) struct Ticket {
    shared: Arc<SharedAdmission>,
    class: CallClass,
    pub(super) place: Place,
    /// What it has of the workers.
    pub(super) work: Arc<ShareOfWork>,
}

impl Admission {
    pub(crate) fn new(capacity: Capacity, metrics: Arc<Metrics>) -> Self {
        Self { shared: Arc::new(SharedAdmission { capacity, metrics, load: Arc::default(), state: Mutex::default() }) }
    }

    /// Accepts a request. Never waits.
    ///
    /// # Errors
    ///
    /// All tickets of the class are taken. The error says when there is likely to be room again.
    pub(crate) fn enter(&self, class: CallClass) -> Result<Ticket, Overloaded> {
        let mut state = self.shared.lock();
        if state.tickets.of(class) >= self.shared.capacity.tickets.of(class) {
            self.shared.metrics.refused(class.name());
            return Err(self.shared.overloaded(class, state.tickets));
        }
        *state.tickets.of_mut(class) += 1;
        state.arrivals += 1;
        let work = Arc::new(ShareOfWork::new(&self.shared.load, class));
        Ok(Ticket { shared: Arc::clone(&self.shared), class, place: Place::new(state.arrivals), work })
    }

    /// Says when it is likely that a call for which something is missing will find it.
    pub(crate) fn overloaded(&self, class: CallClass) -> Overloaded {
        let tickets = self.shared.lock().tickets;
        self.shared.overloaded(class, tickets)
    }

    /// Waits for a worker and lets it do `work` on a thread of its own. Returns early if the budget ends. Work that has
    /// not begun then never begins, and work that has begun sees it in its budget.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        class: CallClass,
        budget: &CallBudget,
        work: impl FnOnce(&Budget) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.run_with_breaks(class, budget, |budget, _| work(budget)).await
    }

    /// The same for work that waits for its caller now and then.
    pub(crate) async fn run_with_breaks<T: Send + 'static>(
        &self,
        class: CallClass,
        budget: &CallBudget,
        work: impl FnOnce(&Budget, &Break) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let queued_at = Instant::now();
        let of_call = budget.work.clone().unwrap_or_else(|| Arc::new(ShareOfWork::new(&self.shared.load, class)));
        let waiting = WaitInQueue { class, since: queued_at };
        let short_work = self.shared.lock().short_work;
        let permit = tokio::select! {
            biased;
            error = budget.ended() => return Err(error.into()),
            permit = self.shared.permit(class, budget.place.clone(), of_call.worked()) => permit?,
        };
        self.shared.metrics.stage("queue", queued_at.elapsed());
        drop(waiting);
        let passed = self.shared.lock().short_work.saturating_sub(short_work);
        // A resize has no claim because it has waited: others of its class did so, too.
        let passed = if class.is_long() { passed } else { Duration::ZERO };
        let worker = Worker::new(permit, budget.clone(), of_call, passed, Handle::current());
        let inner =
            Budget { give_way: Some(worker.give_way()), cores: worker.cores(&self.shared), ..budget.for_compiler() };
        let span = tracing::Span::current();
        let memory = budget.memory.clone();
        let work = move || {
            let (worker, _memory) = (worker, memory);
            worker.begins_here();
            inner.check()?;
            let breaks = worker.breaks();
            span.in_scope(|| work(&inner, &breaks))
        };
        let thread = if class.is_long() { background::spawn(work) } else { task::spawn_blocking(work) };
        let joined = tokio::select! {
            joined = thread => joined,
            error = budget.ended() => return Err(error.into()),
        };
        joined.unwrap_or_else(|error| Err(ended_thread(error)))
    }

    /// Requests that wait for a worker, by class. Tests use it to see that a request has arrived.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> PerClass<usize> {
        let state = self.shared.lock();
        PerClass {
            resize: state.waiting.resize.len(),
            render: state.waiting.render.len(),
            submit: state.waiting.submit.len(),
            dry_run: state.waiting.dry_run.len(),
        }
    }

    /// Whether work stands aside.
    #[cfg(test)]
    pub(crate) fn has_aside(&self) -> bool {
        self.shared.lock().aside.is_some()
    }

    /// Workers that work, by class.
    #[cfg(test)]
    pub(crate) fn working(&self) -> PerClass<usize> {
        self.shared.lock().working
    }
}

/// A wait for a worker. It is a span in the trace of the call when it is over, also if the call ends meanwhile; a short
/// one is none (rule name-11).
struct WaitInQueue {
    class: CallClass,
    since: Instant,
}

impl Drop for WaitInQueue {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        if took >= WORTH_A_SPAN {
            let took_ns = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
            drop(tracing::debug_span!("wait in queue", took_ns, queue = self.class.name()));
        }
    }
}

/// The failure of a call whose thread did not come to its end (rule service-17).
pub(crate) fn ended_thread(error: JoinError) -> Failure {
    let Ok(payload) = error.try_into_panic() else {
        // The runtime is shutting down.
        return Failure::ShuttingDown;
    };
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(panic = text, "the compiler panicked");
    Failure::Defect("panic")
}

impl SharedAdmission {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for a worker. Dropping the future leaves the queue.
    async fn permit(
        self: &Arc<Self>,
        class: CallClass,
        place: Option<Place>,
        worked: Duration,
    ) -> Result<Permit, Failure> {
        struct Queued<'a> {
            shared: &'a SharedAdmission,
            class: CallClass,
            number: u64,
        }

        impl Drop for Queued<'_> {
            fn drop(&mut self) {
                let mut state = self.shared.lock();
                let queue = state.waiting.of_mut(self.class);
                if let Some(position) = queue.iter().position(|waiter| waiter.number == self.number) {
                    queue.remove(position);
                    self.shared.metrics.waiting(self.class.name(), queue.len());
                }
            }
        }

        let (number, granted) = self.queue(class, place, worked);
        let _queued = Queued { shared: self, class, number };
        granted.await.map_err(|_| Failure::ShuttingDown)
    }

    /// Joins the queue, and leaves it at once if a worker is free. Without a place, it arrives now. Workers have worked
    /// on its call for `worked`.
    fn queue(
        self: &Arc<Self>,
        class: CallClass,
        place: Option<Place>,
        worked: Duration,
    ) -> (u64, oneshot::Receiver<Permit>) {
        let (grant, granted) = oneshot::channel();
        let mut state = self.lock();
        state.arrivals += 1;
        let number = state.arrivals;
        let place = place.unwrap_or_else(|| Place::new(number));
        state.waiting.of_mut(class).push(Waiter { number, place, worked, grant });
        self.dispatch(&mut state);
        (number, granted)
    }

    /// Gives free workers to those who are next.
    fn dispatch(self: &Arc<Self>, state: &mut State) {
        while let Some(next) = state.next(self.capacity.workers) {
            let (class, waiter) = match next {
                Next::Waiting(class) => (class, take_first(state.waiting.of_mut(class), |_| true)),
                Next::Passing => {
                    let State { waiting, aside, .. } = &mut *state;
                    let may = |waiter: &Waiter| aside.as_ref().is_some_and(|aside| aside.lets_pass(waiter));
                    (CallClass::Resize, take_first(&mut waiting.resize, may))
                }
                Next::Aside => {
                    let Some(Aside { class, resume, .. }) = state.aside.take() else { return };
                    if resume.send(()).is_ok() {
                        *state.working.of_mut(class) += 1;
                    }
                    continue;
                }
            };
            // Places change meanwhile: who was to pass may not do so any more.
            let Some(waiter) = waiter else { continue };
            match waiter.grant.send(Permit::new(self, class)) {
                Ok(()) => {
                    *state.working.of_mut(class) += 1;
                    state.passed_over_by(class);
                }
                // The waiter has just given up. Its permit was not counted.
                Err(permit) => permit.forget(),
            }
        }
        for class in CallClass::ALL {
            self.show(state, class);
        }
    }

    /// With the time after which the work of the accepted calls of this class and of more urgent ones is probably done.
    fn overloaded(&self, class: CallClass, tickets: PerClass<usize>) -> Overloaded {
        let ahead = self.load.ahead(class, tickets).as_secs_f64();
        Overloaded {
            retry_after: Duration::from_secs_f64((ahead / self.capacity.workers.max(1) as f64).clamp(0.2, 30.0)),
        }
    }

    fn show(&self, state: &State, class: CallClass) {
        self.metrics.waiting(class.name(), state.waiting.of(class).len());
        self.metrics.busy(class.name(), *state.working.of(class));
    }
}

impl Waiter {
    /// Whether its call, a resize, has not taken long yet.
    fn is_new(&self) -> bool {
        self.worked < LONG_RESIZE
    }
}

impl Aside {
    /// Whether a resize may have a worker before this one. One that has begun, and came before, keeps its place.
    fn lets_pass(&self, waiter: &Waiter) -> bool {
        let came_before = |place: &Place| waiter.place.arrived() < place.arrived();
        waiter.is_new() || self.place.as_ref().is_some_and(came_before)
    }
}

/// Takes the waiter with the best place, of those that `may` go, out of a queue. Places may have changed since they
/// joined it.
fn take_first(queue: &mut Vec<Waiter>, may: impl Fn(&Waiter) -> bool) -> Option<Waiter> {
    let waiters = queue.iter().enumerate().filter(|(_, waiter)| may(waiter));
    let (first, _) = waiters.min_by_key(|(_, waiter)| (waiter.place.arrived(), waiter.number))?;
    Some(queue.remove(first))
}

impl State {
    /// Who gets the next free worker, if there is a free worker and somebody who may have it.
    fn next(&self, workers: usize) -> Option<Next> {
        if self.busy() >= workers {
            return None;
        }
        if let Some(aside) = &self.aside {
            return Some(self.who_passes(aside).unwrap_or(Next::Aside));
        }
        self.first(|class| self.has_room(class, workers)).map(Next::Waiting)
    }

    /// Whether somebody waits for whom work of this class makes way if it takes long. A resize makes way for resizes
    /// only, as when it began, and so does a rendering; and not while another class has been passed over so often that
    /// the next worker is its own: as long as somebody stands aside none of it gets one.
    fn is_awaited(&self, class: CallClass, workers: usize) -> bool {
        if class.is_long() {
            return self.first(|other| !other.is_long()).is_some();
        }
        let is_next = self.first(|class| self.has_room(class, workers)) == Some(CallClass::Resize);
        is_next && self.waiting.resize.iter().any(Waiter::is_new)
    }

    /// Who gets a worker before the work that stands aside. What passes a resize may take long itself, so none does
    /// that any more when the resize has waited for as long as one that is short takes at most.
    fn who_passes(&self, aside: &Aside) -> Option<Next> {
        if aside.passed_over >= PATIENCE {
            return None;
        }
        if aside.class.is_long() {
            return self.first(|other| !other.is_long()).map(Next::Waiting);
        }
        let may_be_passed = aside.since.elapsed() < LONG_RESIZE;
        let passes = may_be_passed && self.waiting.resize.iter().any(|waiter| aside.lets_pass(waiter));
        passes.then_some(Next::Passing)
    }

    fn busy(&self) -> usize {
        CallClass::ALL.iter().map(|class| self.working.of(*class)).sum()
    }

    /// The class, of those that `may` have a worker, of which a waiting call is next.
    fn first(&self, may: impl Fn(CallClass) -> bool) -> Option<CallClass> {
        let may = |class: &CallClass| !self.waiting.of(*class).is_empty() && may(*class);
        let impatient = |class: &CallClass| *self.passed_over.of(*class) >= PATIENCE;
        let mut impatient = CallClass::ALL.into_iter().rev().filter(may).filter(impatient);
        impatient.next().or_else(|| CallClass::ALL.into_iter().find(may))
    }

    /// One of several workers is kept free of submissions and dry runs.
    fn has_room(&self, class: CallClass, workers: usize) -> bool {
        !class.is_long() || workers < 2 || self.working.submit + self.working.dry_run < workers - 1
    }

    fn passed_over_by(&mut self, granted: CallClass) {
        *self.passed_over.of_mut(granted) = 0;
        for class in CallClass::ALL.into_iter().filter(|class| *class > granted) {
            let waits = !self.waiting.of(class).is_empty();
            let count = self.passed_over.of_mut(class);
            *count = if waits { count.saturating_add(1) } else { 0 };
        }
        if let Some(aside) = &mut self.aside {
            aside.passed_over += 1;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *self.shared.lock().tickets.of_mut(self.class) -= 1;
    }
}

impl fmt::Debug for SharedAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
