//! Computes once what several calls are about to compute at the same time (rule service-31).
//!
//! Callers ask for the same thing at once: renderings of a job that this replica has to restore first, submissions
//! of one application, a resize that was sent again. The first call that needs a result begins a *flight*: the
//! computation, in a task of its own. Whoever needs the same result before it is there rides along, holds no worker
//! meanwhile, and gets the same result. The first is a rider like the others.
//!
//! * **It goes on for who is left, but not for ever.** A rider leaves at its own deadline or cancellation. The
//!   computation is cancelled when the last rider has left, and ends after the longest time that a call may take:
//!   riders who come one after the other do not keep a worker and the memory of the first for longer.
//! * **Facts are shared, mishaps are not.** A result, and a refusal that every call with this request would get, go to
//!   all riders; so does that there is no memory for a restored job, which each would restore in vain. Anything else (a
//!   defect, a server that shuts down) goes to the rider that began; the others compute by themselves, as if they had
//!   been alone: neither that nor what it needs is shared again. So nobody rides twice for one result, and a request
//!   that makes the compiler panic holds nobody up again and again.
//! * **Nobody waits for what is less urgent.** A call rides only with a computation of its own class or a more urgent
//!   one; if it is of its own class, that then has at least the call's place in the order of arrival. It began before
//!   the call would, so it is done no later than what the call would have computed by itself. It keeps the class of who
//!   began it.
//!
//! In a trace the computation is a span of its own, which continues the trace of the call that began it and does not
//! keep that open; those who ride along point to it.
//!
//! Knows: keys, classes, budgets. Must not know: what is computed, and where.
//!
//! Invariants: a key covers everything that the result depends on, so that riding along changes no byte. A rider is a
//! call with a ticket and memory of its own, so there are no more riders than tickets, and no flight without a rider. A
//! flight is in the table only while its computation goes on and somebody waits for it.

use super::admission::ended_thread;
use super::budget::CallBudget;
use super::class::CallClass;
use super::errors::Failure;
use super::metrics::Metrics;
use super::place::Place;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_process::telemetry;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field};

/// What is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Something that answers are made from.
    Step,
    /// An answer: who rides needs no worker any more.
    Answer,
}

/// Computations of one kind that calls may share.
pub(crate) struct SingleFlight<K, V> {
    /// The kind, for metrics and traces.
    kind: &'static str,
    part: Part,
    /// How long a computation may take.
    longest: Duration,
    metrics: Arc<Metrics>,
    flights: Arc<Mutex<Flights<K, V>>>,
}

struct Flights<K, V> {
    /// What is computed now.
    by_key: HashMap<(K, CallClass), Flight<V>>,
    /// Flights and riders that there have been.
    numbers: u64,
}

struct Flight<V> {
    number: u64,
    /// Ends the computation.
    cancellation: CancellationToken,
    place: Option<Place>,
    /// Where the computation is in traces.
    trace_parent: Option<String>,
    /// The first is the one that began, unless it has left.
    riders: Vec<Rider<V>>,
}

struct Rider<V> {
    number: u64,
    /// It began the flight.
    first: bool,
    /// Dropped without a message, the rider has to compute by itself.
    outcome: oneshot::Sender<Result<V, Failure>>,
}

/// A call that has boarded.
#[allow(clippy::large_enum_variant, reason = "there is one per call")]
enum Boarded<K: Clone + Eq + Hash, V> {
    /// It has to compute, with this budget and in this span.
    Begins(Seat<K, V>, Landing<K, V>, CallBudget, Span),
    /// Another call computes; where that is in traces.
    Joins(Seat<K, V>, Option<String>),
}

/// Where a flight is in the table.
struct Entry<K: Clone + Eq + Hash, V> {
    flights: Arc<Mutex<Flights<K, V>>>,
    key: (K, CallClass),
    flight: u64,
}

/// A rider's. Dropping it leaves the flight.
struct Seat<K: Clone + Eq + Hash, V> {
    entry: Entry<K, V>,
    rider: u64,
    outcome: oneshot::Receiver<Result<V, Failure>>,
}

/// The computation's. Dropping it ends the flight without an outcome.
struct Landing<K: Clone + Eq + Hash, V>(Entry<K, V>);

impl<K, V> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    pub(crate) fn new(kind: &'static str, part: Part, longest: Duration, metrics: Arc<Metrics>) -> Self {
        let flights = Flights { by_key: HashMap::new(), numbers: 0 };
        metrics.has_rides(kind);
        Self { kind, part, longest, metrics, flights: Arc::new(Mutex::new(flights)) }
    }

    /// The result that `key` names: that of a computation that goes on already, or of `compute`. `compute` gets the
    /// budget of the flight, or `budget` if the call goes alone. Returns early if `budget` ends.
    ///
    /// # Errors
    ///
    /// Those of the computation, and the end of the budget.
    pub(crate) async fn ride<F>(
        &self,
        key: K,
        class: CallClass,
        budget: &CallBudget,
        compute: impl FnOnce(CallBudget) -> F,
    ) -> Result<V, Failure>
    where
        F: Future<Output = Result<V, Failure>> + Send + 'static,
    {
        if budget.alone {
            return compute(budget.clone()).await;
        }
        let (mut seat, trace_parent) = match self.board(key, class, budget) {
            Boarded::Joins(seat, trace_parent) => (seat, trace_parent),
            Boarded::Begins(mut seat, landing, of_flight, span) => {
                let computation = compute(of_flight);
                let work = budget.work.as_ref().filter(|_| self.part == Part::Answer).map(|work| work.begins());
                let (_pilot, counted) = work.unzip();
                let fly = async move {
                    let outcome = computation.await;
                    drop(counted);
                    landing.land(outcome);
                };
                let task = tokio::spawn(fly.instrument(span));
                return match seat.outcome(budget).await? {
                    Some(outcome) => outcome,
                    // It has panicked, or the runtime is going away.
                    None => Err(task.await.err().map_or(Failure::ShuttingDown, ended_thread)),
                };
            }
        };
        self.metrics.rode(self.kind);
        let began = Instant::now();
        let passenger = budget.work.as_ref().filter(|_| self.part == Part::Answer).map(|work| work.rides());
        let span = tracing::info_span!("stage", otel.name = "ride");
        if let Some(trace_parent) = trace_parent {
            telemetry::link_trace(&span, &trace_parent);
        }
        let outcome = seat.outcome(budget).instrument(span).await;
        self.metrics.stage("ride", began.elapsed());
        drop((seat, passenger));
        match outcome? {
            Some(outcome) => outcome,
            None => compute(CallBudget { alone: true, ..budget.clone() }).await,
        }
    }

    /// Joins a flight, or begins one.
    fn board(&self, key: K, class: CallClass, budget: &CallBudget) -> Boarded<K, V> {
        let (sender, outcome) = oneshot::channel();
        let mut flights = self.flights.lock();
        flights.numbers += 1;
        let rider = flights.numbers;
        let may_join = CallClass::ALL.into_iter().filter(|other| *other <= class).map(|other| (key.clone(), other));
        let joined = may_join.into_iter().find(|key| flights.by_key.contains_key(key));
        let entry = |key, flight| Entry { flights: Arc::clone(&self.flights), key, flight };
        if let Some((key, flight)) = joined.and_then(|key| flights.by_key.get_mut(&key).map(|flight| (key, flight))) {
            flight.riders.push(Rider { number: rider, first: false, outcome: sender });
            // A less urgent call gains by riding as it is. It moves nothing before others of the more urgent class.
            let place = budget.place.as_ref().filter(|_| key.1 == class);
            if let (Some(place), Some(of_flight)) = (place, &flight.place) {
                place.wait_for(of_flight);
            }
            let trace_parent = flight.trace_parent.clone();
            return Boarded::Joins(Seat { entry: entry(key, flight.number), rider, outcome }, trace_parent);
        }
        let cancellation = CancellationToken::new();
        let riders = vec![Rider { number: rider, first: true, outcome: sender }];
        let place = budget.place.as_ref().map(|place| {
            let of_flight = place.another();
            place.wait_for(&of_flight);
            of_flight
        });
        let of_flight = budget.of_flight(Instant::now() + self.longest, cancellation.clone(), place.clone());
        let span = self.span();
        let trace_parent = span.in_scope(telemetry::trace_parent);
        let flight = Flight { number: rider, cancellation, place, trace_parent, riders };
        let key = (key, class);
        flights.by_key.insert(key.clone(), flight);
        let landing = Landing(entry(key.clone(), rider));
        Boarded::Begins(Seat { entry: entry(key, rider), rider, outcome }, landing, of_flight, span)
    }

    /// The span of a computation that the current span begins. It is not within that one, which would last as long.
    fn span(&self) -> Span {
        let name = format!("shared {}", self.kind);
        let span = tracing::info_span!(parent: None, "flight", otel.name = name, trace_id = field::Empty);
        if let Some(trace_parent) = telemetry::trace_parent() {
            telemetry::continue_trace(&span, &trace_parent);
        }
        span
    }

    /// Calls that wait for a computation. Tests use it to see that a call has arrived.
    #[cfg(test)]
    pub(crate) fn riders(&self) -> usize {
        self.flights.lock().by_key.values().map(|flight| flight.riders.len()).sum()
    }
}

impl<K: Clone + Eq + Hash, V> Entry<K, V> {
    /// Takes the flight out of the table, if it is there and `gone` says so.
    fn clear(&self, gone: impl FnOnce(&mut Flight<V>) -> bool) -> Option<Flight<V>> {
        let mut flights = self.flights.lock();
        let flight = flights.by_key.get_mut(&self.key).filter(|flight| flight.number == self.flight)?;
        if gone(flight) { flights.by_key.remove(&self.key) } else { None }
    }
}

impl<K: Clone + Eq + Hash, V> Seat<K, V> {
    /// Waits for the outcome; `None` if the flight has none for this rider.
    async fn outcome(&mut self, budget: &CallBudget) -> Result<Option<Result<V, Failure>>, Failure> {
        tokio::select! {
            biased;
            outcome = &mut self.outcome => Ok(outcome.ok()),
            error = budget.ended() => Err(error.into()),
        }
    }
}

impl<K: Clone + Eq + Hash, V> Drop for Seat<K, V> {
    fn drop(&mut self) {
        let rider = self.rider;
        let empty = self.entry.clear(|flight| {
            flight.riders.retain(|other| other.number != rider);
            flight.riders.is_empty()
        });
        if let Some(flight) = empty {
            flight.cancellation.cancel();
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Landing<K, V> {
    /// Tells the riders. The last one gets the value itself, so a value with one rider is never copied.
    fn land(self, outcome: Result<V, Failure>) {
        let Some(Flight { mut riders, .. }) = self.0.clear(|_| true) else { return };
        match outcome {
            Ok(value) => {
                let last = riders.pop();
                for rider in riders {
                    let _ = rider.outcome.send(Ok(value.clone()));
                }
                if let Some(last) = last {
                    let _ = last.outcome.send(Ok(value));
                }
            }
            Err(failure) => {
                let (first, others): (Vec<_>, Vec<_>) = riders.into_iter().partition(|rider| rider.first);
                for rider in others {
                    if let Some(shared) = failure.of_every_such_request() {
                        let _ = rider.outcome.send(Err(shared));
                    }
                }
                if let Some(first) = first.into_iter().next() {
                    let _ = first.outcome.send(Err(failure));
                }
            }
        }
    }
}

impl<K: Clone + Eq + Hash, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        self.0.clear(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::class::PerClass;
    use crate::server::errors::Overloaded;
    use crate::server::work::{Keeps, ShareOfWork, Workload};
    use CallClass::{DryRun, Render, Resize, Submit};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use streams_compiler::error::{Error, Problem, Stage};
    use tokio::sync::watch;
    use tokio::task::JoinHandle;

    const LONGEST: Duration = Duration::from_secs(600);

    /// Computations that end when the test says so, and how.
    struct Sky {
        flights: Arc<SingleFlight<&'static str, u32>>,
        begun: Arc<AtomicUsize>,
        cancelled: Arc<AtomicUsize>,
        end: watch::Sender<Option<fn() -> Result<u32, Failure>>>,
    }

    impl Sky {
        fn new() -> Self {
            Self {
                flights: Arc::new(SingleFlight::new("test", Part::Answer, LONGEST, Arc::new(Metrics::new()))),
                begun: Arc::default(),
                cancelled: Arc::default(),
                end: watch::channel(None).0,
            }
        }

        /// A call, once it has begun or joined.
        async fn call(&self, class: CallClass, budget: &CallBudget) -> JoinHandle<Result<u32, Failure>> {
            let (flights, budget) = (Arc::clone(&self.flights), budget.clone());
            let (begun, cancelled, mut end) =
                (Arc::clone(&self.begun), Arc::clone(&self.cancelled), self.end.subscribe());
            let compute = move |budget: CallBudget| async move {
                begun.fetch_add(1, SeqCst);
                tokio::select! {
                    biased;
                    error = budget.ended() => {
                        cancelled.fetch_add(1, SeqCst);
                        Err(error.into())
                    }
                    end = end.wait_for(Option::is_some) => (end.unwrap().unwrap())(),
                }
            };
            let before = self.flights.riders();
            let call = tokio::spawn(async move { flights.ride("key", class, &budget, compute).await });
            while self.flights.riders() == before {
                tokio::task::yield_now().await;
            }
            call
        }

        fn end(&self, end: fn() -> Result<u32, Failure>) {
            self.end.send_replace(Some(end));
        }

        fn begun(&self) -> usize {
            self.begun.load(SeqCst)
        }
    }

    fn budget() -> CallBudget {
        CallBudget::default()
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_the_same_at_the_same_time_shares_it() {
        let sky = Sky::new();
        let mut calls = Vec::new();
        for _ in 0..100 {
            calls.push(sky.call(Submit, &budget()).await);
        }
        sky.end(|| Ok(7));
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 7);
        }
        assert_eq!((sky.begun(), sky.flights.riders(), sky.flights.metrics.rides("test")), (1, 0, 99));
        // Later is not at the same time.
        let result = sky.flights.ride("key", Submit, &budget(), async |_| Ok(8)).await;
        assert_eq!(result.unwrap(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_until_the_last_rider_has_left() {
        let sky = Sky::new();
        let soon = CallBudget { deadline: Some(Instant::now() + Duration::from_millis(20)), ..budget() };
        let leaves = budget();
        let first = sky.call(Resize, &soon).await;
        let second = sky.call(Resize, &leaves).await;
        let third = sky.call(Resize, &budget()).await;
        // The one who began.
        assert!(matches!(first.await.unwrap(), Err(Failure::Compiler(Error::DeadlineExceeded))));
        leaves.cancellation.cancel();
        assert!(matches!(second.await.unwrap(), Err(Failure::Compiler(Error::Cancelled))));
        assert_eq!((sky.flights.riders(), sky.cancelled.load(SeqCst)), (1, 0));
        // A caller who goes away without a word.
        let fourth = sky.call(Resize, &budget()).await;
        third.abort();
        assert!(third.await.unwrap_err().is_cancelled());
        assert_eq!((sky.begun(), sky.flights.riders()), (1, 1));
        fourth.abort();
        assert!(fourth.await.unwrap_err().is_cancelled());
        while sky.cancelled.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((sky.begun(), sky.flights.riders()), (1, 0));
        // Nobody joins what was cancelled.
        let next = sky.call(Resize, &budget()).await;
        sky.end(|| Ok(1));
        assert_eq!((next.await.unwrap().unwrap(), sky.begun()), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_first_has_left_behind_is_work() {
        let sky = Sky::new();
        let load = Arc::new(Workload::default());
        let call = || Arc::new(ShareOfWork::new(&load, Submit));
        let second = Duration::from_secs(1);
        call().pause(5 * second, Keeps::default(), Instant::now());
        let of_call = || CallBudget { work: Some(call()), ..budget() };
        let first = sky.call(Submit, &of_call()).await;
        let other = sky.call(Submit, &of_call()).await;
        let ahead = |submit| load.ahead(Submit, PerClass { submit, ..Default::default() });
        assert_eq!(ahead(2), second);
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(ahead(1), second);
        sky.end(|| Ok(7));
        assert_eq!(other.await.unwrap().unwrap(), 7);
        assert_eq!(ahead(0), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_after_the_longest_time_although_others_keep_coming() {
        let sky = Sky::new();
        let began = tokio::time::Instant::now();
        let within = |seconds| Some((began + Duration::from_secs(seconds)).into_std());
        let mut calls = Vec::new();
        // Whenever one leaves, the next is there already.
        for leaves in [400, 800, 1200] {
            calls.push(sky.call(Resize, &CallBudget { deadline: within(leaves), ..budget() }).await);
            tokio::time::sleep_until(began + Duration::from_secs(leaves - 1)).await;
            if sky.cancelled.load(SeqCst) > 0 {
                break;
            }
        }
        assert_eq!((calls.len(), sky.begun(), sky.cancelled.load(SeqCst)), (2, 2, 1));
        // Who was left computes by itself.
        sky.end(|| Ok(5));
        let left = calls.pop().unwrap();
        assert_eq!((left.await.unwrap().unwrap(), sky.flights.riders()), (5, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn it_has_the_best_place_of_those_of_its_class_who_wait_for_it() {
        let sky = Sky::new();
        let at = |arrived| CallBudget { place: Some(Place::new(arrived)), ..budget() };
        let mut calls = Vec::new();
        let arrivals = [(Resize, 50, 50), (Resize, 60, 50), (DryRun, 3, 50), (Resize, 7, 7), (Resize, 8, 7)];
        for (class, arrived, expected) in arrivals {
            calls.push(sky.call(class, &at(arrived)).await);
            let flights = sky.flights.flights.lock();
            let place = flights.by_key.values().next().unwrap().place.as_ref().map(Place::arrived);
            assert_eq!(place, Some(expected), "{class:?} {arrived}");
        }
        sky.end(|| Ok(1));
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn facts_about_the_request_are_shared_and_mishaps_are_not() {
        type End = fn() -> Result<u32, Failure>;
        let overloaded = || Err(Overloaded { retry_after: Duration::ZERO }.into());
        let no_room = || Err(Failure::NoRoomForJob(Overloaded { retry_after: Duration::ZERO }));
        // How it ends, and how many compute because of that.
        let cases: [(End, usize); 9] = [
            (|| Err(Error::from(Problem::new(Stage::Topology, "no")).into()), 1),
            (|| Err(Failure::LayoutRejected("damaged".into())), 1),
            (|| Err(Failure::Defect("panic")), 3),
            (|| Err(Failure::ShuttingDown), 3),
            (overloaded, 3),
            (no_room, 1),
            (|| Err(Error::Cancelled.into()), 3),
            (|| Err(Error::DeadlineExceeded.into()), 3),
            (|| panic!("where it is waited for"), 3),
        ];
        for (number, (end, begun)) in cases.into_iter().enumerate() {
            let sky = Sky::new();
            let calls = [
                sky.call(Submit, &budget()).await,
                sky.call(Submit, &budget()).await,
                sky.call(Submit, &budget()).await,
            ];
            sky.end(end);
            let mut texts = Vec::new();
            for call in calls {
                // Who computes alone takes a panic alone.
                texts.push(call.await.map(|result| format!("{:?}", result.unwrap_err())));
            }
            assert!(texts.iter().flatten().all(|text| Some(text) == texts[0].as_ref().ok()), "{number}: {texts:?}");
            assert_eq!((sky.begun(), sky.flights.riders()), (begun, 0), "{number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_rides_with_what_is_less_urgent() {
        for (first, second, begun) in [
            (Resize, Resize, 1),
            (Resize, DryRun, 1),
            (Render, Submit, 1),
            (Submit, Resize, 2),
            (DryRun, Render, 2),
            (DryRun, Submit, 2),
        ] {
            let sky = Sky::new();
            let calls = [sky.call(first, &budget()).await, sky.call(second, &budget()).await];
            while sky.begun() < begun {
                tokio::task::yield_now().await;
            }
            sky.end(|| Ok(1));
            for call in calls {
                call.await.unwrap().unwrap();
            }
            assert_eq!(sky.begun(), begun, "{first:?} {second:?}");
        }
    }
}
