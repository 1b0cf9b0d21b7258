//! What calls have of the workers, over all their steps (rules service-7 and service-8).
//!
//! A call may take a worker several times. How long calls of its class typically need one is counted by call, so that
//! it tells how long the work of those ahead will take. Long work that made way for others may keep the worker for as
//! long afterwards; what it has not used of that when a step ends, it has in the next one.
//!
//! Knows: classes, time. Must not know: who gets a worker, what the work is.
//!
//! Invariants: a call is counted once, when nobody works for it any more, if it had a worker at all.

use super::class::{CallClass, PerClass};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What all calls need of the workers.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Typical time that a call has workers for: a moving average, in seconds.
    typical: PerClass<f64>,
    /// Calls whose answer another call computes.
    passengers: PerClass<usize>,
    /// Answers that are computed although the call that began them has left, because others wait for them.
    left_behind: PerClass<usize>,
}

/// What a call has had of the workers, and may claim. All its budgets share it.
#[derive(Debug)]
pub(crate) struct ShareOfWork {
    load: Arc<Workload>,
    class: CallClass,
    worked: Mutex<Worked>,
    /// Bytes of the job that it begins from, when that is there.
    base: OnceLock<u64>,
    /// Memory that was taken for the job which it is about to restore.
    reserved: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worked {
    /// How long it had a worker; `None` if it had none yet.
    time: Option<Duration>,
    /// How long it may keep the next one, because it made way.
    claim: Duration,
}

/// How long a worker is not given away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeps {
    until: Option<Instant>,
}

/// A call that needs no worker, because another one computes its answer. It is not counted as work until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Passenger {
    load: Arc<Workload>,
    class: CallClass,
}

/// An answer that a call computes for itself and for others.
#[derive(Debug)]
struct Answer {
    load: Arc<Workload>,
    class: CallClass,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    left: bool,
    ended: bool,
}

/// The call that waits for the answer that it has begun.
#[derive(Debug)]
pub(crate) struct Pilot(Arc<Answer>);

/// The computation of that answer.
#[derive(Debug)]
pub(crate) struct Computation(Arc<Answer>);

impl Workload {
    /// How long a worker would need for the work of this class and of more urgent ones, if there are so many `calls`.
    pub(crate) fn ahead(&self, class: CallClass, calls: PerClass<usize>) -> Duration {
        let state = self.lock();
        let of_class = |class| {
            let working = (calls.of(class) + state.left_behind.of(class)).saturating_sub(*state.passengers.of(class));
            working as f64 * state.typical.of(class)
        };
        let seconds: f64 = CallClass::ALL.into_iter().filter(|other| *other <= class).map(of_class).sum();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Keeps {
    pub(crate) fn may_give_way(self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// The worker was away from one time to the other.
    pub(crate) fn after(from: Instant, to: Instant) -> Self {
        Self { until: Some(to + to.saturating_duration_since(from)) }
    }
}

impl ShareOfWork {
    /// Of a call that has had nothing yet.
    pub(crate) fn new(load: &Arc<Workload>, class: CallClass) -> Self {
        Self {
            load: Arc::clone(load),
            class,
            worked: Mutex::default(),
            base: OnceLock::new(),
            reserved: AtomicU64::new(0),
        }
    }

    /// The call has got a worker `now`. While it waited, others had workers for short work, for `passed`. Returns how
    /// long it may keep its worker.
    pub(crate) fn resume(&self, passed: Duration, now: Instant) -> Keeps {
        self.lock().resume(passed, now)
    }

    /// The call gives its worker back, with which it has worked for `time`.
    pub(crate) fn pause(&self, time: Duration, keeps: Keeps, now: Instant) {
        self.lock().pause(time, keeps, now);
    }

    /// How long workers have worked on the call until now.
    pub(crate) fn worked(&self) -> Duration {
        self.lock().time.unwrap_or_default()
    }

    /// The call begins from a job that takes so many bytes.
    pub(crate) fn begins_from(&self, bytes: u64) {
        self.base.get_or_init(|| bytes);
    }

    /// Bytes of the job that the call begins from, if that is there.
    pub(crate) fn base(&self) -> Option<u64> {
        self.base.get().copied()
    }

    /// So much memory was taken for the job that the next step of the call restores; none for other steps.
    pub(crate) fn reserves(&self, bytes: u64) {
        self.reserved.store(bytes, Relaxed);
    }

    /// Memory that was taken for what its next step makes.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    /// Until the result is dropped, the call waits for an answer that another one computes.
    pub(crate) fn rides(&self) -> Passenger {
        *self.load.lock().passengers.of_mut(self.class) += 1;
        Passenger { load: Arc::clone(&self.load), class: self.class }
    }

    /// The call begins to compute an answer for itself and for others. That counts as work until the computation is
    /// dropped, although the call may leave before.
    pub(crate) fn begins(&self) -> (Pilot, Computation) {
        let answer = Answer { load: Arc::clone(&self.load), class: self.class, progress: Mutex::default() };
        let answer = Arc::new(answer);
        (Pilot(Arc::clone(&answer)), Computation(answer))
    }

    fn lock(&self) -> MutexGuard<'_, Worked> {
        self.worked.lock()
    }
}

impl Worked {
    fn resume(&mut self, passed: Duration, now: Instant) -> Keeps {
        // Between two steps it has made way as within one.
        if self.time.is_some() {
            self.claim += passed;
        }
        Keeps { until: Some(now + self.claim) }
    }

    fn pause(&mut self, time: Duration, keeps: Keeps, now: Instant) {
        *self.time.get_or_insert_default() += time;
        self.claim = keeps.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
    }
}

impl Drop for ShareOfWork {
    fn drop(&mut self) {
        let Some(worked) = self.lock().time else { return };
        let mut state = self.load.lock();
        let typical = state.typical.of_mut(self.class);
        *typical += 0.2 * (worked.as_secs_f64() - *typical);
    }
}

impl Answer {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        progress.left = true;
        if !progress.ended {
            *self.0.load.lock().left_behind.of_mut(self.0.class) += 1;
        }
    }
}

impl Drop for Computation {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        progress.ended = true;
        if progress.left {
            *self.0.load.lock().left_behind.of_mut(self.0.class) -= 1;
        }
    }
}

impl Drop for Passenger {
    fn drop(&mut self) {
        *self.load.lock().passengers.of_mut(self.class) -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallClass::{Resize, Submit};

    #[test]
    fn a_worker_is_kept_for_as_long_as_it_was_away() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        assert!(Keeps::default().may_give_way(begin));
        for (from, to, now, expected) in [
            (0, 10, 10, false),
            (0, 10, 19, false),
            (0, 10, 20, true),
            (100, 350, 599, false),
            (100, 350, 600, true),
            // Nobody took it.
            (5, 5, 5, true),
        ] {
            assert_eq!(Keeps::after(at(from), at(to)).may_give_way(at(now)), expected, "{from} {to} {now}");
        }
    }

    #[test]
    fn what_is_left_of_a_claim_at_the_end_of_a_step_is_there_in_the_next() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        // Others pass it before it has begun. It works from 0 to 100, stands aside until 400, and gives the worker back
        // some time later. Then others pass it. For how long it may keep the worker in its next step.
        for (end, passed, keeps) in
            [(400, 0, 300), (500, 0, 200), (500, 50, 250), (700, 0, 0), (900, 0, 0), (900, 70, 70)]
        {
            let mut state = Worked::default();
            assert!(state.resume(Duration::from_secs(9), at(0)).may_give_way(at(0)), "{end} {passed}");
            state.pause(Duration::from_millis(end - 300), Keeps::after(at(100), at(400)), at(end));
            let next = end + passed;
            let found = state.resume(Duration::from_millis(passed), at(next));
            assert!(keeps == 0 || !found.may_give_way(at(next + keeps - 1)), "{end} {passed}");
            assert!(found.may_give_way(at(next + keeps)), "{end} {passed}");
        }
    }

    #[test]
    fn work_is_counted_by_calls_and_not_by_their_steps() {
        let second = Duration::from_secs(1);
        let load = Arc::new(Workload::default());
        // One call with three steps, and calls that came to no worker.
        let call = ShareOfWork::new(&load, Submit);
        for _ in 0..3 {
            call.pause(second, Keeps::default(), Instant::now());
        }
        drop(call);
        drop([(); 5].map(|()| ShareOfWork::new(&load, Submit)));
        let calls = [(); 10].map(|()| ShareOfWork::new(&load, Submit));
        let ahead = |class, submit, resize| load.ahead(class, PerClass { submit, resize, ..Default::default() });
        let typical = Duration::from_millis(600);
        let passengers: Vec<_> = calls[4..].iter().map(ShareOfWork::rides).collect();
        // Whose call, how many calls there are, and for how many of them there is work.
        for (class, submit, resize, works) in [(Submit, 10, 0, 4), (Submit, 5, 7, 0), (Resize, 10, 7, 0)] {
            assert_eq!(ahead(class, submit, resize), typical * works, "{class:?} {submit} {resize}");
        }
        drop(passengers);
        assert_eq!(ahead(Submit, 10, 3), typical * 10);
        // One call began an answer for two others, and then leaves: the computation is still work.
        let (pilot, computation) = calls[0].begins();
        let _others = [calls[1].rides(), calls[2].rides()];
        assert_eq!(ahead(Submit, 3, 0), typical);
        drop(pilot);
        assert_eq!(ahead(Submit, 2, 0), typical);
        drop(computation);
        assert_eq!(ahead(Submit, 2, 0), Duration::ZERO);
        // It does not leave.
        let (pilot, computation) = calls[0].begins();
        drop(computation);
        drop(pilot);
        assert_eq!(ahead(Submit, 3, 0), typical);
    }
}
