//! Which calls go first, and how many there are at the same time (rules call-22 and call-23).
//!
//! A controller that floods the API server makes everybody wait inside of it, where nobody is more urgent than another.
//! So calls wait here instead: a call begins when it has a [`Pass`], and gives it back at its end.
//!
//! Who calls says what for, once for everything that a piece of work does ([`Priority::of`]); the calls themselves know
//! nothing of it. Whoever measures the work ([`stopwatch`]) is told how long its calls waited.
//!
//! Knows: namespaces, priorities. Must not know: what a call does, any kind of objects.
//!
//! Invariants:
//! * A call waits only while others are under way, or rest after their end; when they leave, the next one is let in.
//! * However much of a higher priority there is, a call of a lower one has its turn.
//! * Neither the Lease nor a watch passes here.

mod pace;
mod state;

use self::state::State;
pub use self::state::{Limits, Priority};
use crate::metrics::{Metrics, PriorityLabels, as_seconds};
use crate::stopwatch::{self, UnderWay};
use crate::wait;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task_local;
use tokio::time::Instant;

task_local! {
    static PRIORITY: Priority;
}

impl Priority {
    /// Does `work`, whose calls have this priority; a higher one, if the work around it has one.
    pub async fn of<F: Future>(self, work: F) -> F::Output {
        PRIORITY.scope(self.min(Self::around().unwrap_or(self)), work).await
    }

    /// The priority of the work that is going on.
    fn around() -> Option<Self> {
        PRIORITY.try_with(|priority| *priority).ok()
    }
}

/// Where calls wait. Cheap to clone; all clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<SharedGate>,
}

struct SharedGate {
    state: Mutex<State<Waiting>>,
    metrics: Metrics,
}

/// A call that waits.
struct Waiting {
    pass: PassOf,
    wake: oneshot::Sender<Pass>,
}

/// Who a pass is for.
#[derive(Clone)]
struct PassOf {
    namespace: Arc<str>,
    priority: Priority,
}

/// A call may be made while this exists.
pub struct Pass {
    gate: Gate,
    of: Option<PassOf>,
    begun: Instant,
    /// For whoever measures the work that the call is made for.
    _call: Option<UnderWay>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    /// A gate that nobody has passed yet.
    pub fn new(limits: Limits, metrics: &Metrics) -> Self {
        let shared = SharedGate { state: Mutex::new(State::new(limits)), metrics: metrics.clone() };
        Self { shared: Arc::new(shared) }
    }

    /// Waits until a call for this namespace may be made, with the priority of the work that is going on.
    pub async fn pass(&self, namespace: &str) -> Pass {
        let priority = Priority::around().unwrap_or_default();
        let of = PassOf { namespace: namespace.into(), priority };
        let (wake, woken) = oneshot::channel();
        let begun = Instant::now();
        self.state().ask(Arc::clone(&of.namespace), priority, Waiting { pass: of.clone(), wake }, begun);
        self.let_in();
        // The sender is dropped only when nobody waits any more.
        let woken = stopwatch::aside(woken).await;
        let mut pass = woken.unwrap_or_else(|_| Pass { gate: self.clone(), of: None, begun, _call: None });
        pass._call = Some(stopwatch::under_way());
        let label = PriorityLabels { priority: priority.name() };
        let took = begun.elapsed();
        self.shared.metrics.call_wait_seconds.get_or_create(&label).observe(as_seconds(took));
        if let Some(took_ns) = wait::nanoseconds(took) {
            drop(tracing::debug_span!("wait at gate", took_ns, priority = priority.name()));
        }
        pass
    }

    /// Whether calls wait for others to end, or are about to.
    pub fn is_crowded(&self) -> bool {
        self.state().is_crowded()
    }

    /// The same, or did a moment ago.
    pub fn was_crowded(&self) -> bool {
        self.state().was_crowded(Instant::now())
    }

    /// Lets in whoever may.
    fn let_in(&self) {
        loop {
            // The lock ends with the statement: a pass that nobody waits for any more takes it again.
            let next = self.state().next(Instant::now(), |waiting| !waiting.wake.is_closed());
            let Some(Waiting { pass, wake }) = next else { return };
            let pass = Pass { gate: self.clone(), of: Some(pass), begun: Instant::now(), _call: None };
            if let Err(mut unwanted) = wake.send(pass)
                && let Some(of) = unwanted.of.take()
            {
                self.state().leave(&of.namespace, of.priority, Instant::now(), None);
            }
        }
    }

    /// A call has ended, and rested if it had to.
    fn leave(&self, of: &PassOf, took: Duration) {
        self.state().leave(&of.namespace, of.priority, Instant::now(), Some(took));
        self.let_in();
    }

    fn state(&self) -> MutexGuard<'_, State<Waiting>> {
        // Every change of the state is finished before anything that could panic.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(of) = self.of.take() else { return };
        let took = self.begun.elapsed();
        let rest = self.gate.state().rest(of.priority, took);
        // Without a runtime nobody waits for long either: it is being shut down.
        match (rest, Handle::try_current()) {
            (Some(rest), Ok(runtime)) => {
                let gate = self.gate.clone();
                drop(runtime.spawn(async move {
                    tokio::time::sleep(rest).await;
                    gate.leave(&of, took);
                }));
            }
            _ => self.gate.leave(&of, took),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;
    use streams_process::telemetry::testing;
    use tokio::task::yield_now;
    use tokio::time::timeout;
    use tracing::Instrument;

    fn gate(calls: usize) -> Gate {
        Gate::new(Limits::of(calls), &Metrics::new("test"))
    }

    /// A call that takes so long.
    async fn call(gate: &Gate, priority: Priority, milliseconds: u64) {
        priority
            .of(async {
                let pass = gate.pass("a").await;
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                drop(pass);
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn while_urgent_calls_are_slow_there_is_a_rest_between_patient_ones() {
        // milliseconds of urgent calls -> of three patient ones of 10 ms, one after the other
        for (milliseconds, expected) in [(10, 30), (20, 70)] {
            let gate = gate(1);
            call(&gate, Priority::Urgent, 10).await;
            for _ in 0..6 {
                call(&gate, Priority::Urgent, milliseconds).await;
            }
            let begun = Instant::now();
            for _ in 0..3 {
                call(&gate, Priority::Normal, 10).await;
            }
            assert_eq!(begun.elapsed(), Duration::from_millis(expected), "{milliseconds} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_waits_for_any_more_takes_no_place() {
        let gate = gate(1);
        let first = gate.pass("a").await;
        let given_up = timeout(Duration::from_secs(1), gate.pass("a")).await;
        assert!(given_up.is_err());
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { drop(gate.pass("a").await) }
        });
        yield_now().await;
        drop(first);
        timeout(Duration::from_secs(1), waiting).await.unwrap().unwrap();
        let again = timeout(Duration::from_secs(1), gate.pass("b")).await;
        assert!(again.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn work_within_urgent_work_is_urgent() {
        use Priority::{Freeing, Normal, Telling, Urgent};
        for (around, within, expected) in
            [(Urgent, Telling, Urgent), (Normal, Freeing, Freeing), (Telling, Telling, Telling)]
        {
            let found = around.of(within.of(async { Priority::around() })).await;
            assert_eq!(found, Some(expected));
        }
        assert_eq!(Priority::around(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_others_shows_the_wait_and_one_that_does_not_shows_nothing() {
        let collected = testing::collect(&["streams_kubernetes"]);
        let gate = gate(1);
        let act = tracing::info_span!("act");
        let first = gate.pass("a").instrument(act.clone()).await;
        let second = tokio::spawn({
            let gate = gate.clone();
            let second = async move { drop(gate.pass("a").await) };
            Priority::Urgent.of(second).instrument(act)
        });
        tokio::time::sleep(Duration::from_millis(250)).await;
        drop(first);
        second.await.unwrap();
        let spans = collected.spans();
        let [wait, act] = spans.as_slice() else { panic!("{spans:#?}") };
        assert_eq!(
            (wait.name.as_str(), wait.parent.as_deref(), act.name.as_str()),
            ("wait at gate", Some("act"), "act")
        );
        assert_eq!(wait.attribute("priority"), Some("urgent"));
        assert!(wait.took >= Duration::from_millis(250), "{wait:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_measured_without_the_time_that_its_calls_wait_for_others() {
        let gate = gate(1);
        let first = gate.pass("a").await;
        let begun = Instant::now();
        let work = async {
            let calls = async { tokio::join!(call(&gate, Priority::Normal, 10), call(&gate, Priority::Normal, 10)) };
            let others = async {
                tokio::time::sleep(Duration::from_secs(100)).await;
                drop(first);
            };
            tokio::join!(calls, others);
        };
        let (_, worked) = stopwatch::measure(move || Timestamp::UNIX_EPOCH + begun.elapsed(), work).await;
        assert_eq!((begun.elapsed().as_millis(), worked.as_millis()), (100_020, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_resize_goes_before_a_flood_of_another_tenant() {
        // Each call takes 10 ms of one of two processors of the server, however many are under way.
        let gate = gate(24);
        let server = Arc::new(tokio::sync::Semaphore::new(2));
        let call = |namespace: &'static str, priority: Priority| {
            let (gate, server) = (gate.clone(), Arc::clone(&server));
            priority.of(async move {
                let _pass = gate.pass(namespace).await;
                let _processor = server.acquire_owned().await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            })
        };
        // Twenty calls, one after the other.
        let resize = || async {
            let begun = Instant::now();
            for _ in 0..20 {
                call("ours", Priority::Urgent).await;
            }
            begun.elapsed()
        };
        let alone = resize().await;
        let flood: Vec<_> = (0..2000).map(|_| tokio::spawn(call("theirs", Priority::Normal))).collect();
        yield_now().await;
        let beside = resize().await;
        assert!(beside <= 2 * alone, "{beside:?} instead of {alone:?}");
        let progress = flood.iter().filter(|call| call.is_finished()).count();
        assert!(progress >= 10, "the others go on: {progress}");
        for call in flood {
            call.await.unwrap();
        }
    }
}
