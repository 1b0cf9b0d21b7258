//! Which calls go first, and how many there are at the same time (rules call-22 and call-23).
//!
//! A controller that floods the API server makes everybody wait inside of it, where nobody is more urgent than another.
//! So calls wait here instead: a call begins when it has a [`Pass`], and gives it back at its end.
//!
//! Who calls says what for, once for everything that a piece of work does ([`Priority::of`]), and for whom, if groups
//! of a namespace take turns, or several in such a group ([`asked_by`]); the calls themselves know nothing of it. Work
//! that has failed again and again makes way ([`making_way`]): none of its calls goes first.
//! Whoever measures the work ([`stopwatch`]) is told how long its calls waited.
//!
//! Who makes a call says how each try of it ends ([`tried`]), and has no place while it waits for the next one
//! ([`set_aside`]). Who may have something better to do gives up work that waits for its first call
//! ([`unless_it_waits`]).
//!
//! Knows: namespaces, priorities. Must not know: what a call does, any kind of objects.
//!
//! Invariants:
//! * A call waits only while others are under way, or rest after their end. Then the next one is let in.
//! * Namespaces whose calls fail, or take long, by themselves have a part of all places. Nobody else waits for those.
//! * However much of a higher priority there is, a call of a lower one has its turn.
//! * Little is kept of those who wait no more, also while nobody is let in.
//! * Neither the Lease nor a watch passes here.

mod begun;
mod pace;
mod state;
mod troubles;

pub use self::begun::{begins, unless_it_waits};
pub use self::state::{Limits, Priority};
use self::state::{Said, State};
use crate::making_way;
use crate::metrics::{Metrics, PriorityLabels, as_seconds};
use crate::queue::Owner;
use crate::stopwatch;
use crate::wait;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task_local;
use tokio::time::{Instant, timeout_at};

task_local! {
    static PRIORITY: Priority;
    /// Who in its namespace asks for the work that is going on.
    static ASKER: Asker;
    /// The place of the call that is being made; it has none while it is set aside.
    static PLACE: Cell<Option<Pass>>;
}

/// Who in a namespace asks for calls. What is left empty is not told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// Groups of a namespace take turns.
    pub group: Arc<str>,
    /// Those of a group take turns in it, however many calls each of them has there.
    pub one: Arc<str>,
}

/// How a try of a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With an answer, whatever it was.
    Answered,
    /// Because of what it asked for, perhaps: something that the API server asks in turn is down, or silent.
    FailedByItself,
    /// Because of the API server as a whole: it is not there, or has too much to do.
    FailedLikeAll,
}

/// A try of the call that is being made has ended like this. `is_write`: the API server may ask others about such a
/// call, such as admission webhooks.
pub(crate) fn tried(end: End, is_write: bool) {
    let noted = |place: &Cell<Option<Pass>>| {
        let mut pass = place.take();
        if let Some(pass) = &mut pass {
            pass.tries = pass.tries.saturating_add(1);
            pass.end = Some(end);
            pass.is_write = is_write;
        }
        place.set(pass);
    };
    // Not all calls pass a gate.
    let _ = PLACE.try_with(noted);
}

/// Waits, then goes on with the call that is being made. Meanwhile another one has its place; it gets one again before
/// others of its namespace and priority that the same one asks for. After `until` nobody waits for that any more.
pub(crate) async fn set_aside(wait: impl Future<Output = ()>, until: Instant) {
    let pass = PLACE.try_with(Cell::take).ok().flatten();
    let back = pass.as_ref().and_then(|pass| Some((pass.gate.clone(), pass.of.clone()?)));
    drop(pass);
    wait.await;
    if let Some((gate, of)) = back
        && let Ok(mut pass) = timeout_at(until, gate.pass(of, Turn::First)).await
    {
        pass.tries = 1;
        let _ = PLACE.try_with(|place| place.set(Some(pass)));
    }
}

/// Does `work`, whose calls take turns with those that others of the namespace ask for.
pub async fn asked_by<F: Future>(asker: Asker, work: F) -> F::Output {
    ASKER.scope(asker, work).await
}

impl Priority {
    /// Does `work`, whose calls have this priority; a higher one, if the work around it has one.
    pub async fn of<F: Future>(self, work: F) -> F::Output {
        PRIORITY.scope(self.min(Self::around().unwrap_or(self)), work).await
    }

    /// The priority of the work that is going on, if it was given one.
    pub fn around() -> Option<Self> {
        PRIORITY.try_with(|priority| *priority).ok()
    }

    /// The priority of a call of the work that is going on.
    fn of_call() -> Self {
        let priority = Self::around().unwrap_or_default();
        if making_way::makes_way() && !priority.is_patient() { Self::Normal } else { priority }
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
    asker: Asker,
    priority: Priority,
}

/// When a call has its turn among those of its namespace, asker and priority.
#[derive(Clone, Copy, Debug)]
enum Turn {
    First,
    Last,
}

/// Somebody waits as long as it lives.
struct InLine<'a> {
    gate: &'a Gate,
    has_pass: bool,
}

/// A call may be made while this exists.
pub struct Pass {
    gate: Gate,
    of: Option<PassOf>,
    begun: Instant,
    /// Tries of the call that have ended, and how the last of them did.
    tries: u32,
    end: Option<End>,
    is_write: bool,
}

impl Pass {
    fn new(gate: &Gate, of: Option<PassOf>) -> Self {
        Self { gate: gate.clone(), of, begun: Instant::now(), tries: 0, end: None, is_write: false }
    }

    /// Makes the call.
    pub async fn make<F: Future>(self, call: F) -> F::Output {
        PLACE.scope(Cell::new(Some(self)), call).await
    }

    /// What its end says. A call that failed took as long as something else, and one that was tried again waited in
    /// between.
    fn says(&self, took: Duration) -> Said {
        match self.end {
            Some(End::FailedByItself) => Said::Failed,
            Some(End::Answered) if self.tries == 1 && self.is_write => Said::Wrote(took),
            Some(End::Answered) if self.tries == 1 => Said::Read(took),
            Some(End::Answered | End::FailedLikeAll) | None => Said::Nothing,
        }
    }
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

    /// Makes a call for this namespace as soon as one may be made, with the priority of the work that is going on.
    pub fn call<F: Future>(&self, namespace: &str, call: F) -> impl Future<Output = F::Output> {
        // On the heap: it would be moved from one place to the other.
        let call = Box::pin(call);
        async move { self.wait(namespace).await.make(call).await }
    }

    /// Waits until a call may be made for this namespace, with the priority of the work that is going on.
    pub async fn wait(&self, namespace: &str) -> Pass {
        // Nearly all work is asked for by nobody in particular.
        let asker = ASKER.try_with(Asker::clone).unwrap_or_default();
        let of = PassOf { namespace: namespace.into(), asker, priority: Priority::of_call() };
        self.pass(of, Turn::Last).await
    }

    async fn pass(&self, of: PassOf, turn: Turn) -> Pass {
        let priority = of.priority;
        let (wake, woken) = oneshot::channel();
        let begun = Instant::now();
        let mut line = self.line_up(Waiting { pass: of, wake }, turn, begun);
        self.let_in();
        // The sender is dropped only when nobody waits any more.
        let woken = stopwatch::aside(woken).await;
        let pass = woken.unwrap_or_else(|_| Pass::new(self, None));
        line.has_pass = true;
        begins();
        let label = PriorityLabels { priority: priority.name() };
        let took = begun.elapsed();
        self.shared.metrics.call_wait_seconds.get_or_create(&label).observe(as_seconds(took));
        if let Some(took_ns) = wait::nanoseconds(took) {
            drop(tracing::debug_span!("wait at gate", took_ns, priority = priority.name()));
        }
        pass
    }

    fn line_up(&self, waiting: Waiting, turn: Turn, now: Instant) -> InLine<'_> {
        let PassOf { namespace, asker: Asker { group, one }, priority } = waiting.pass.clone();
        let owner = Owner { namespace, object: group };
        match turn {
            Turn::First => self.state().ask_again(owner, one, priority, waiting, now),
            Turn::Last => self.state().ask(owner, one, priority, waiting, now),
        }
        InLine { gate: self, has_pass: false }
    }

    /// Whether calls of this namespace wait for others to end, or are about to.
    pub fn is_crowded(&self, namespace: &str) -> bool {
        self.state().is_crowded(namespace, Instant::now())
    }

    /// The same, or did a moment ago.
    pub fn was_crowded(&self, namespace: &str) -> bool {
        self.state().was_crowded(namespace, Instant::now())
    }

    /// Whether calls of this namespace fail, or take long, because of what they ask for, or did not long ago.
    pub fn is_in_trouble(&self, namespace: &str) -> bool {
        self.state().is_in_trouble(namespace, Instant::now())
    }

    /// Lets in whoever may.
    fn let_in(&self) {
        loop {
            // The lock ends with the statement: a pass that nobody waits for any more takes it again.
            let next = self.state().next(Instant::now(), |waiting| !waiting.wake.is_closed());
            let Some(Waiting { pass, wake }) = next else { return };
            let pass = Pass::new(self, Some(pass));
            if let Err(mut unwanted) = wake.send(pass)
                && let Some(of) = unwanted.of.take()
            {
                self.state().leave(&of.namespace, of.priority, Instant::now(), None);
            }
        }
    }

    /// A call has ended, and rested if it had to. It took so long, if that says something of the API server.
    fn leave(&self, of: &PassOf, took: Option<Duration>) {
        self.state().leave(&of.namespace, of.priority, Instant::now(), took);
        self.let_in();
    }

    /// Does this after so long, or at once if there is no runtime: then nobody waits for long either, as it is being
    /// shut down.
    fn after(&self, time: Duration, act: impl FnOnce(&Self) + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return act(self) };
        let gate = self.clone();
        drop(runtime.spawn(async move {
            tokio::time::sleep(time).await;
            act(&gate);
        }));
    }

    fn state(&self) -> MutexGuard<'_, State<Waiting>> {
        // Every change of the state is finished before anything that could panic.
        self.shared.state.lock()
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.gate.state().wait_no_more(self.has_pass, Instant::now(), |waiting| !waiting.wake.is_closed());
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(of) = self.of.take() else { return };
        let took = self.begun.elapsed();
        let (rest, took) = {
            let mut state = self.gate.state();
            (state.rest(of.priority, took), state.heard(&of.namespace, self.says(took), Instant::now()))
        };
        match rest {
            Some(rest) => self.gate.after(rest, move |gate| gate.leave(&of, took)),
            None => self.gate.leave(&of, took),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::iter;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use streams_process::telemetry::testing;
    use tokio::task::yield_now;
    use tokio::time::timeout;
    use tracing::Instrument;

    fn gate(calls: usize) -> Gate {
        Gate::new(Limits::of(calls), &Metrics::new("test"))
    }

    async fn ms(milliseconds: u64) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    /// A call that takes so long.
    async fn call(gate: &Gate, priority: Priority, milliseconds: u64) {
        call_of("a", gate, priority, milliseconds, End::Answered).await;
    }

    /// A call of this namespace whose only try takes so long, and ends like this.
    async fn call_of(namespace: &str, gate: &Gate, priority: Priority, milliseconds: u64, end: End) {
        let call = async {
            let _try = stopwatch::under_way();
            ms(milliseconds).await;
            tried(end, true);
        };
        priority.of(gate.call(namespace, call)).await;
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
        let first = gate.wait("a").await;
        let given_up = timeout(Duration::from_secs(1), gate.wait("a")).await;
        assert!(given_up.is_err());
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { drop(gate.wait("a").await) }
        });
        yield_now().await;
        drop(first);
        timeout(Duration::from_secs(1), waiting).await.unwrap().unwrap();
        let again = timeout(Duration::from_secs(1), gate.wait("b")).await;
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
        let first = gate.wait("a").instrument(act.clone()).await;
        let second = tokio::spawn({
            let gate = gate.clone();
            let second = async move { drop(gate.wait("a").await) };
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
        let first = gate.wait("a").await;
        let begun = Instant::now();
        let work = async {
            let calls = async { tokio::join!(call(&gate, Priority::Normal, 10), call(&gate, Priority::Normal, 10)) };
            let others = async {
                tokio::time::sleep(Duration::from_secs(100)).await;
                drop(first);
            };
            tokio::join!(calls, others);
        };
        let (_, worked) = stopwatch::measure(move || begun.elapsed(), work).await;
        assert_eq!((begun.elapsed().as_millis(), worked.as_millis()), (100_020, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_resize_goes_before_a_flood_of_another_tenant() {
        // Each call takes 10 ms of one of two processors of the server, however many are under way.
        let gate = gate(24);
        let server = Arc::new(tokio::sync::Semaphore::new(2));
        let call = |namespace: &'static str, priority: Priority| {
            let (gate, server) = (gate.clone(), Arc::clone(&server));
            let call = async move {
                let _processor = server.acquire_owned().await.unwrap();
                ms(10).await;
                tried(End::Answered, true);
            };
            priority.of(async move { gate.call(namespace, call).await })
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

    #[tokio::test(start_paused = true)]
    async fn only_what_was_answered_at_the_first_try_says_how_fast_the_api_server_is() {
        use End::{Answered, FailedByItself, FailedLikeAll};
        // how the tries of urgent calls end, each after 50 ms where 10 ms are usual -> the others have to rest
        let table: [(&[End], bool); 5] = [
            (&[Answered], true),
            (&[FailedByItself], false),
            (&[FailedLikeAll], false),
            (&[FailedByItself, Answered], false),
            (&[FailedLikeAll, Answered], false),
        ];
        for (ends, expected) in table {
            let gate = gate(1);
            call(&gate, Priority::Urgent, 10).await;
            for _ in 0..6 {
                let call = async {
                    for (number, end) in ends.iter().enumerate() {
                        if number > 0 && ends[number - 1] == FailedByItself {
                            set_aside(ms(1), Instant::now() + Duration::from_secs(9)).await;
                        }
                        ms(50).await;
                        tried(*end, true);
                    }
                };
                Priority::Urgent.of(gate.call("a", call)).await;
            }
            let begun = Instant::now();
            for _ in 0..2 {
                call(&gate, Priority::Freeing, 10).await;
                call(&gate, Priority::Normal, 10).await;
            }
            assert_eq!(begun.elapsed() > Duration::from_millis(40), expected, "{ends:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_next_try_has_no_place_and_goes_before_others_of_its_namespace() {
        let gate = gate(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| order.lock().push(what);
        let again = gate.call("a", async {
            note("first try");
            tried(End::FailedByItself, true);
            set_aside(ms(100), Instant::now() + Duration::from_secs(9)).await;
            note("second try");
        });
        let other = |name: &'static str| {
            let gate = gate.clone();
            async move {
                gate.call("a", async {
                    note(name);
                    ms(150).await;
                })
                .await;
            }
        };
        tokio::join!(again, other("other"), other("last"));
        assert_eq!(*order.lock(), ["first try", "other", "second try", "last"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_past_the_deadline_of_a_call_for_its_next_try() {
        let gate = gate(1);
        let begun = Instant::now();
        let again = async {
            let call = async {
                tried(End::FailedByItself, true);
                set_aside(ms(100), begun + Duration::from_secs(9)).await;
            };
            gate.call("a", call).await;
            begun.elapsed().as_secs()
        };
        let (took, ()) = tokio::join!(again, call(&gate, Priority::Normal, 60_000));
        assert_eq!(took, 9);
        // Nothing is left of it.
        call(&gate, Priority::Normal, 10).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(60_010));
        // Whoever passes no gate only waits.
        tried(End::Answered, true);
        set_aside(ms(10), begun).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(60_020));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_in_a_namespace_take_turns_and_so_do_those_of_a_group() {
        // who asks, groups and those in them -> the order in which they are let in
        let table: [(&[&str], &str); 3] = [
            (&["x1", "x1", "x1", "y1", "z1"], "x1 y1 z1 x1 x1"),
            (&["x1", "x1", "x1", "x2", "x3"], "x1 x2 x3 x1 x1"),
            (&["x1", "x1", "x2", "x2", "y1", "y1"], "x1 y1 x2 y1 x1 x2"),
        ];
        for (askers, expected) in table {
            let (gate, order) = (gate(1), Arc::new(Mutex::new(Vec::new())));
            let first = gate.wait("a").await;
            let calls = askers.iter().map(|asker| {
                let (gate, order, (group, one)) = (gate.clone(), Arc::clone(&order), asker.split_at(1));
                let call = async move { gate.call("a", async { order.lock().push(*asker) }).await };
                asked_by(Asker { group: group.into(), one: one.into() }, call)
            });
            let end = async { drop(first) };
            tokio::join!(futures::future::join_all(calls), end);
            assert_eq!(order.lock().join(" "), expected, "{askers:?}");
        }
    }

    /// Such as the calls of a namespace all of whose places hang.
    #[tokio::test(start_paused = true)]
    async fn of_those_who_have_left_little_is_kept_while_nobody_is_let_in() {
        let gate = gate(1);
        let held = gate.wait("a").await;
        let of = PassOf { namespace: "b".into(), asker: Asker::default(), priority: Priority::Normal };
        let mut stay: Vec<_> = (0..10).map(|_| gate.pass(of.clone(), Turn::Last).boxed()).collect();
        assert!(stay.iter_mut().all(|waits| waits.now_or_never().is_none()));
        let before = Arc::strong_count(&of.namespace);
        for _ in 0..1_000 {
            assert!(gate.pass(of.clone(), Turn::Last).now_or_never().is_none());
            let of_others = Arc::strong_count(&of.namespace) - before;
            assert!(of_others <= stay.len() + state::LEFT_MAX, "{of_others}");
        }
        drop(held);
        let all = futures::future::join_all(stay.into_iter().map(|waits| waits.map(drop)));
        assert!(timeout(Duration::from_secs(1), all).await.is_ok(), "whoever has stayed has a turn");
    }

    /// Namespaces have a webhook that is silent, whose calls take 5 s and fail, or one that is slow, whose calls take
    /// 3 s and are answered. Somebody waits for some of them, or for none.
    #[tokio::test(start_paused = true)]
    async fn namespaces_whose_calls_hang_delay_no_other() {
        use End::{Answered, FailedByItself};
        use Priority::{Normal, Urgent};
        let four = &["e", "f", "g", "h"][..];
        // calls at a time, how long those that hang take and how they end, whose they are, how many of each are urgent
        let table = [
            (8, 5_000, FailedByItself, &four[..1], 1),
            (8, 3_000, Answered, &four[..2], 1),
            (24, 5_000, FailedByItself, four, 6),
            (24, 5_000, FailedByItself, four, 0),
            (24, 3_000, Answered, four, 6),
            (24, 3_000, Answered, four, 0),
        ];
        for (calls, milliseconds, end, namespaces, urgent) in table {
            let (gate, hung) = (gate(calls), Arc::new(AtomicUsize::new(0)));
            let hanging = |namespace: &'static str, priority| {
                let (gate, hung) = (gate.clone(), Arc::clone(&hung));
                tokio::spawn(async move {
                    loop {
                        call_of(namespace, &gate, priority, milliseconds, end).await;
                        hung.fetch_add(1, Ordering::Relaxed);
                    }
                })
            };
            let priorities = || iter::repeat_n(Urgent, urgent).chain(iter::repeat_n(Normal, 8));
            let hang: Vec<_> = namespaces
                .iter()
                .flat_map(|namespace| priorities().map(move |priority| (*namespace, priority)))
                .map(|(namespace, priority)| hanging(namespace, priority))
                .collect();
            // Until it is known.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(60) {
                call_of("ours", &gate, Normal, 10, Answered).await;
                ms(90).await;
            }
            let (begun, before, mut done) = (Instant::now(), hung.load(Ordering::Relaxed), 0);
            while begun.elapsed() < Duration::from_secs(20) {
                call_of("ours", &gate, Normal, 10, Answered).await;
                done += 1;
            }
            let hung = hung.load(Ordering::Relaxed) - before;
            let row = format!("{calls} {milliseconds} {end:?} {namespaces:?} {urgent}");
            assert!(done >= 1_950, "{row}: {done} calls of 10 ms, one after the other, in 20 s");
            assert!(hung >= 6, "{row}: {hung}: they go on themselves");
            hang.iter().for_each(tokio::task::JoinHandle::abort);
        }
    }

    /// Each call of everybody takes between one and three seconds.
    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_slow_for_everybody_puts_nobody_in_trouble() {
        let gate = gate(24);
        let namespaces = ["a", "b", "c", "d", "e", "f"];
        for namespace in namespaces {
            for _ in 0..8 {
                call_of(namespace, &gate, Priority::Normal, 20, End::Answered).await;
            }
        }
        let gate = &gate;
        let calls = namespaces.into_iter().zip(0_u64..).flat_map(|(namespace, number)| {
            (0..4).map(move |turn: u64| async move {
                for round in 0..20 {
                    let milliseconds = 1_000 + (number * 613 + turn * 401 + round * 1_277) % 2_000;
                    call_of(namespace, gate, Priority::Normal, milliseconds, End::Answered).await;
                }
                gate.is_in_trouble(namespace)
            })
        });
        let in_trouble = futures::future::join_all(calls).await;
        assert!(!in_trouble.contains(&true), "{in_trouble:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_has_failed_again_and_again_is_urgent_for_nobody() {
        use Priority::{Awaited, Freeing, Normal, Telling, Urgent};
        for (priority, expected) in
            [(Awaited, Normal), (Urgent, Normal), (Freeing, Freeing), (Normal, Normal), (Telling, Telling)]
        {
            let work = |makes_way| async move {
                making_way::begin(makes_way);
                priority.of(async { Priority::of_call() }).await
            };
            let found = making_way::worker(async { [work(true).await, work(false).await] }).await;
            assert_eq!(found, [expected, priority]);
            assert_eq!(work(true).await, priority, "nobody has begun it");
        }
    }
}
