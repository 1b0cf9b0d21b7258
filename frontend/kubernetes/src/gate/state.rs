//! Who is let in next. Reads no clock and never waits.

use super::pace::Pace;
use crate::queue::turns::{Owner, Turns};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Calls that go before one of a lower priority, if such a call waits.
const IN_A_ROW: u32 = 8;
/// How long somebody who makes no call counts as going on: a moment later the next one may come.
const GOING_ON: Duration = Duration::from_secs(1);

/// What a call is for. The first goes first (rule call-22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for it.
    Urgent,
    /// It ends something, so that others can go on.
    Freeing,
    /// All others.
    #[default]
    Normal,
    /// It only says how far things are.
    Telling,
}

impl Priority {
    const ALL: [Self; 4] = [Self::Urgent, Self::Freeing, Self::Normal, Self::Telling];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::Freeing => "freeing",
            Self::Normal => "normal",
            Self::Telling => "telling",
        }
    }
}

/// Calls that are under way at the same time, at most (rule call-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All of them.
    pub all: usize,
    /// Of a namespace that is alone.
    pub alone: usize,
    /// Of a namespace while others make calls, too.
    pub beside_others: usize,
    /// That are not urgent while urgent ones are going on and take no longer than usual. If they do: one.
    pub patient: usize,
}

impl Limits {
    /// The parts of this number of calls.
    pub fn of(all: usize) -> Self {
        let part = |parts: usize, of: usize| (all * parts / of).max(1);
        Self { all: all.max(1), alone: part(2, 3), beside_others: part(1, 4), patient: part(1, 6) }
    }
}

/// Calls that wait, and how many are under way.
pub(super) struct State<W> {
    limits: Limits,
    /// By priority.
    waiting: [Turns<W>; 4],
    /// Namespaces that make calls, or did a moment ago.
    namespaces: HashMap<Arc<str>, Calls>,
    under_way: usize,
    patient: usize,
    urgent_until: Option<Instant>,
    /// Of urgent calls.
    pace: Pace,
    /// Calls that were let in while one of a lower priority waited.
    in_a_row: u32,
    /// The lower priority whose turn it is then.
    lower: usize,
}

/// The calls of a namespace.
struct Calls {
    waiting: usize,
    under_way: usize,
    until: Instant,
}

impl<W> State<W> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: std::array::from_fn(|_| Turns::new()),
            namespaces: HashMap::new(),
            under_way: 0,
            patient: 0,
            urgent_until: None,
            pace: Pace::default(),
            in_a_row: 0,
            lower: 0,
        }
    }

    /// A call waits.
    pub(super) fn ask(&mut self, namespace: Arc<str>, priority: Priority, waiter: W, now: Instant) {
        self.calls(&namespace, now).waiting += 1;
        self.note_urgent(priority, now);
        if let Some(turns) = self.waiting.get_mut(priority as usize) {
            turns.push(Owner { namespace, object: Arc::default() }, waiter);
        }
    }

    /// The next call that is let in, if one may. Those that do not count any more are dropped.
    pub(super) fn next(&mut self, now: Instant, counts: impl Fn(&W) -> bool) -> Option<W> {
        self.forget_who_is_gone(now);
        if self.under_way >= self.limits.all {
            return None;
        }
        for priority in self.order() {
            if let Some(waiter) = self.next_of(priority, now, &counts) {
                let lower_waits = self.waiting.iter().skip(priority as usize + 1).any(|turns| !turns.is_empty());
                if self.in_a_row >= IN_A_ROW && priority != Priority::Urgent {
                    self.lower += 1;
                    self.in_a_row = 0;
                } else if lower_waits {
                    self.in_a_row += 1;
                } else {
                    self.in_a_row = 0;
                }
                return Some(waiter);
            }
        }
        None
    }

    /// The priorities in the order in which they are asked: from the first to the last, but now and then a lower one
    /// before all, each in its turn.
    fn order(&self) -> [Priority; 4] {
        let mut order = Priority::ALL;
        if self.in_a_row >= IN_A_ROW {
            let [_, lower @ ..] = &mut order;
            lower.rotate_left(self.lower % 3);
            order.rotate_left(1);
        }
        order
    }

    fn next_of(&mut self, priority: Priority, now: Instant, counts: impl Fn(&W) -> bool) -> Option<W> {
        let is_patient = priority != Priority::Urgent;
        let patient = if self.pace.is_slow() { 1 } else { self.limits.patient };
        if is_patient && self.urgent_until.is_some() && self.patient >= patient {
            return None;
        }
        let most = if self.namespaces.len() > 1 { self.limits.beside_others } else { self.limits.alone };
        let namespaces = &mut self.namespaces;
        let mut popped = None;
        let mut gone = Vec::new();
        let turns = self.waiting.get_mut(priority as usize)?;
        let waiter = turns.pop_of(
            |namespace| namespaces.get(namespace).is_none_or(|calls| calls.under_way < most),
            |namespace, waiter| {
                let is_wanted = counts(waiter);
                if is_wanted {
                    popped = Some(Arc::clone(namespace));
                } else {
                    gone.push(Arc::clone(namespace));
                }
                is_wanted
            },
        );
        for namespace in gone {
            self.calls(&namespace, now).waiting -= 1;
        }
        let (waiter, namespace) = (waiter?, popped?);
        let calls = self.calls(&namespace, now);
        calls.waiting -= 1;
        calls.under_way += 1;
        self.under_way += 1;
        self.patient += usize::from(is_patient);
        Some(waiter)
    }

    /// Whether calls wait, or most of those that may be under way are.
    pub(super) fn is_crowded(&self) -> bool {
        4 * self.under_way >= 3 * self.limits.all || self.waiting.iter().any(|turns| !turns.is_empty())
    }

    /// A call that was let in has ended, and took so long if it was made.
    pub(super) fn leave(&mut self, namespace: &Arc<str>, priority: Priority, now: Instant, took: Option<Duration>) {
        if let Some(took) = took.filter(|_| priority == Priority::Urgent) {
            self.pace.note(took);
        }
        self.calls(namespace, now).under_way -= 1;
        self.under_way -= 1;
        self.patient -= usize::from(priority != Priority::Urgent);
        self.note_urgent(priority, now);
    }

    fn note_urgent(&mut self, priority: Priority, now: Instant) {
        if priority == Priority::Urgent {
            self.urgent_until = Some(now + GOING_ON);
        }
    }

    fn calls(&mut self, namespace: &Arc<str>, now: Instant) -> &mut Calls {
        let until = now + GOING_ON;
        let calls = self.namespaces.entry(Arc::clone(namespace));
        let calls = calls.or_insert(Calls { waiting: 0, under_way: 0, until });
        calls.until = until;
        calls
    }

    fn forget_who_is_gone(&mut self, now: Instant) {
        self.namespaces.retain(|_, calls| calls.waiting + calls.under_way > 0 || now < calls.until);
        let urgent = self.under_way - self.patient;
        let waits = self.waiting.first().is_some_and(|turns| !turns.is_empty());
        self.urgent_until = self.urgent_until.filter(|until| now < *until || urgent > 0 || waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { all: 6, alone: 4, beside_others: 2, patient: 1 };

    /// Calls that wait, as `namespace priority`; the names of those that were let in, in order.
    fn let_in(state: &mut State<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| state.next(now, |_| true)).collect()
    }

    fn ask(state: &mut State<&'static str>, calls: &[&'static str], now: Instant) {
        for call in calls {
            let (namespace, priority) = of(call);
            state.ask(namespace, priority, call, now);
        }
    }

    /// `a-urgent-1` is a call of namespace `a`.
    fn of(call: &str) -> (Arc<str>, Priority) {
        let mut parts = call.split('-');
        let namespace = parts.next().unwrap().into();
        let name = parts.next().unwrap();
        (namespace, Priority::ALL.into_iter().find(|priority| priority.name() == name).unwrap())
    }

    #[test]
    fn what_others_wait_for_goes_first_and_what_only_tells_goes_last() {
        let now = Instant::now();
        let mut state = State::new(Limits { alone: 6, ..LIMITS });
        ask(&mut state, &["a-telling", "a-normal-1", "a-freeing", "a-normal-2"], now);
        assert_eq!(let_in(&mut state, now), ["a-freeing", "a-normal-1", "a-normal-2", "a-telling"]);
    }

    #[test]
    fn a_namespace_has_most_of_it_alone_and_its_part_beside_others() {
        let now = Instant::now();
        let many = ["a-normal-1", "a-normal-2", "a-normal-3", "a-normal-4", "a-normal-5"];
        let mut state = State::new(LIMITS);
        ask(&mut state, &many, now);
        assert_eq!(let_in(&mut state, now), many[..4]);
        let mut state = State::new(LIMITS);
        ask(&mut state, &many, now);
        ask(&mut state, &["b-normal-1"], now);
        assert_eq!(let_in(&mut state, now), ["a-normal-1", "b-normal-1", "a-normal-2"]);
        // The other one is gone, but may come back at once; a moment later it is forgotten.
        state.leave(&"b".into(), Priority::Normal, now, None);
        assert_eq!(let_in(&mut state, now), [""; 0]);
        assert_eq!(let_in(&mut state, now + GOING_ON), ["a-normal-3", "a-normal-4"]);
    }

    #[test]
    fn while_something_is_urgent_the_rest_is_patient_and_goes_on() {
        let now = Instant::now();
        let mut state = State::new(LIMITS);
        ask(&mut state, &["a-normal-1", "a-normal-2", "b-urgent-1", "c-freeing-1"], now);
        assert_eq!(let_in(&mut state, now), ["b-urgent-1", "c-freeing-1"]);
        state.leave(&"b".into(), Priority::Urgent, now, None);
        assert_eq!(let_in(&mut state, now), [""; 0], "its next call may come at once");
        state.leave(&"c".into(), Priority::Freeing, now, None);
        assert_eq!(let_in(&mut state, now), ["a-normal-1"], "one of them always goes on");
        assert_eq!(let_in(&mut state, now + GOING_ON), ["a-normal-2"]);
    }

    #[test]
    fn while_urgent_calls_take_longer_than_usual_one_other_goes_on_at_a_time() {
        let now = Instant::now();
        let limits = Limits { all: 6, alone: 4, beside_others: 4, patient: 3 };
        // milliseconds of the last urgent calls -> others beside the next
        for (milliseconds, expected) in [(10, 3), (20, 1)] {
            let mut state = State::new(limits);
            for took in [10, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds, milliseconds] {
                ask(&mut state, &["b-urgent"], now);
                let_in(&mut state, now);
                state.leave(&"b".into(), Priority::Urgent, now, Some(Duration::from_millis(took)));
            }
            ask(&mut state, &["a-normal"; 5], now);
            assert_eq!(let_in(&mut state, now).len(), expected, "{milliseconds} ms");
        }
    }

    #[test]
    fn a_flood_of_urgent_calls_lets_every_other_priority_through() {
        let now = Instant::now();
        let mut state = State::new(Limits { all: 1, alone: 1, beside_others: 1, patient: 1 });
        ask(&mut state, &["a-urgent"; 100], now);
        ask(&mut state, &["a-freeing", "a-normal", "a-telling"], now);
        let mut order = Vec::new();
        while let Some(call) = state.next(now, |_| true) {
            order.push(call);
            let (namespace, priority) = of(call);
            state.leave(&namespace, priority, now, None);
        }
        let at = |call: &str| order.iter().position(|other| *other == call).unwrap();
        assert_eq!(order.len(), 103);
        for (call, most) in [("a-freeing", 9), ("a-normal", 19), ("a-telling", 29)] {
            assert!(at(call) <= most, "{call} is number {}", at(call));
        }
    }

    #[test]
    fn it_is_crowded_while_calls_wait_or_most_places_are_taken() {
        let now = Instant::now();
        let limits = Limits { all: 4, alone: 4, beside_others: 4, patient: 4 };
        // calls, at most so many of a namespace -> is it crowded
        let table = [(0, 4, false), (2, 4, false), (3, 4, true), (4, 4, true), (1, 1, false), (2, 1, true)];
        for (calls, alone, expected) in table {
            let mut state = State::new(Limits { alone, ..limits });
            ask(&mut state, &["a-normal"; 4][..calls], now);
            let_in(&mut state, now);
            assert_eq!(state.is_crowded(), expected, "{calls} {alone}");
        }
    }

    #[test]
    fn namespaces_take_turns_whatever_they_ask_for() {
        let now = Instant::now();
        let mut state = State::new(Limits { all: 4, alone: 4, beside_others: 4, patient: 4 });
        ask(&mut state, &["a-normal-1", "a-normal-2", "a-normal-3", "b-normal-1", "c-normal-1"], now);
        assert_eq!(let_in(&mut state, now), ["a-normal-1", "b-normal-1", "c-normal-1", "a-normal-2"]);
    }

    proptest! {
        #[test]
        fn limits_hold_and_whoever_waits_waits_for_somebody(
            steps in prop::collection::vec((0..3u8, 0..4usize, any::<bool>(), 0..1500u64), 1..120),
        ) {
            let mut now = Instant::now();
            let mut state = State::new(LIMITS);
            let (mut under_way, mut waiting): (Vec<(Arc<str>, Priority)>, usize) = (Vec::new(), 0);
            for (namespace, priority, leaves, millis) in steps {
                if leaves && !under_way.is_empty() {
                    let (namespace, priority) = under_way.remove(usize::from(namespace) % under_way.len());
                    state.leave(&namespace, priority, now, None);
                } else {
                    let call = (Arc::from(namespace.to_string()), Priority::ALL[priority]);
                    state.ask(Arc::clone(&call.0), call.1, call, now);
                    waiting += 1;
                }
                now += Duration::from_millis(millis);
                while let Some(call) = state.next(now, |_| true) {
                    under_way.push(call);
                    waiting -= 1;
                }
                prop_assert!(under_way.len() <= LIMITS.all);
                prop_assert!(waiting == 0 || !under_way.is_empty(), "nobody's end would let it in");
                prop_assert_eq!(state.under_way, under_way.len());
            }
            while let Some((namespace, priority)) = under_way.pop() {
                state.leave(&namespace, priority, now, None);
                while let Some(call) = state.next(now, |_| true) {
                    under_way.push(call);
                    waiting -= 1;
                }
            }
            prop_assert_eq!(waiting, 0);
            prop_assert_eq!(state.patient, 0);
            state.forget_who_is_gone(now + GOING_ON);
            prop_assert!(state.namespaces.is_empty());
        }
    }
}
