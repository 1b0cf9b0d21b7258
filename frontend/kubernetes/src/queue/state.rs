//! The state of a queue: where every key is. Reads no clock and never waits.
//!
//! Knows: keys, what is known of their urgency. Must not know: workers, futures, what the work is.
//!
//! Invariants: the guarantees of [`queue`](super) are kept here. Nothing is kept of a key that is nowhere.

use super::turns::{Owner, Turns};
use crate::spare_room::give_back;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Urgent keys that are handed out before one that is not, if such a key waits.
const URGENT_IN_A_ROW: u32 = 8;
/// A key that is urgent and comes back within this time is urgent then, too. What comes back later waits for something
/// else than a worker.
const URGENT_FOR: Duration = Duration::from_secs(10);

/// How the keys of a queue share its workers (rule call-7).
#[derive(Debug)]
pub struct Sharing<K> {
    /// Who a key belongs to.
    pub owner: fn(&K) -> Owner,
    /// Keys of one namespace that are in progress at the same time, at most.
    pub per_namespace: usize,
    /// Keys that are not urgent and are in progress at the same time, at most.
    pub not_urgent: usize,
    /// Such keys of one namespace.
    pub not_urgent_per_namespace: usize,
}

// Derived, they would ask for a key that can be copied.
impl<K> Clone for Sharing<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Sharing<K> {}

impl<K> Sharing<K> {
    /// Keys of namespaces that are in trouble and are in progress at the same time, at most, of all these namespaces
    /// together; of those, keys that are not urgent. Others find workers, however long the work on these takes. While
    /// there are no others, they have together what one namespace may have: the rest is for whoever comes.
    fn in_trouble(&self, are_there_others: bool) -> InProgress {
        if are_there_others {
            InProgress { all: self.not_urgent, not_urgent: self.not_urgent.div_ceil(2) }
        } else {
            self.of_namespace()
        }
    }

    /// Keys of one namespace that are in progress at the same time, at most.
    fn of_namespace(&self) -> InProgress {
        InProgress { all: self.per_namespace, not_urgent: self.not_urgent_per_namespace }
    }

    /// A namespace may have three of four workers, so that others find one however slow its work is. What is not urgent
    /// may have half of them, of all namespaces together, and of one three quarters of that: what is urgent finds one
    /// in its own namespace, too, and what is not finds one beside a namespace whose work is slow.
    pub fn among(workers: u16, owner: fn(&K) -> Owner) -> Self {
        let per_namespace = usize::from(workers - workers / 4).max(1);
        let not_urgent = usize::from(workers.div_ceil(2)).max(1);
        Self { owner, per_namespace, not_urgent, not_urgent_per_namespace: (3 * not_urgent / 4).max(1) }
    }

    /// All keys belong together, and any of them may have all workers.
    pub fn none() -> Self {
        let most = usize::MAX;
        Self { owner: |_| Owner::default(), per_namespace: most, not_urgent: most, not_urgent_per_namespace: most }
    }
}

/// How long a key can wait while others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Others of its namespace go first.
    Patient,
    /// Urgent ones go first.
    Usual,
    /// Before others.
    Urgent,
}

/// Where every key is.
pub(super) struct State<K> {
    sharing: Sharing<K>,
    /// Keys with their tickets; an entry whose ticket is not the key's any more does not count.
    urgent: Turns<(u64, K)>,
    normal: Turns<(u64, K)>,
    queued: HashMap<K, Place>,
    /// Whether it was handed out as an urgent one.
    in_progress: HashMap<K, bool>,
    in_progress_of: HashMap<Arc<str>, InProgress>,
    not_urgent_in_progress: usize,
    urgent_in_a_row: u32,
    /// Added while in progress.
    asked_for_again: HashMap<K, Urgency>,
    by_due_time: BTreeSet<(Instant, K)>,
    delayed: HashMap<K, Delayed>,
    next_ticket: u64,
    closed: bool,
}

/// Keys of a namespace that are in progress.
#[derive(Clone, Copy, Default)]
struct InProgress {
    all: usize,
    not_urgent: usize,
}

impl InProgress {
    fn and(self, other: Self) -> Self {
        Self { all: self.all + other.all, not_urgent: self.not_urgent + other.not_urgent }
    }

    /// There is room for another key, which is urgent or not.
    fn has_room(self, most: Self, urgent: bool) -> bool {
        self.all < most.all && (urgent || self.not_urgent < most.not_urgent)
    }
}

#[derive(Clone, Copy)]
struct Place {
    ticket: u64,
    since: Instant,
    urgency: Urgency,
}

#[derive(Clone, Copy)]
struct Delayed {
    due: Instant,
    urgency: Urgency,
}

impl<K: Clone + Ord + Hash> State<K> {
    pub(super) fn new(sharing: Sharing<K>) -> Self {
        Self {
            sharing,
            urgent: Turns::new(),
            normal: Turns::new(),
            queued: HashMap::new(),
            in_progress: HashMap::new(),
            in_progress_of: HashMap::new(),
            not_urgent_in_progress: 0,
            urgent_in_a_row: 0,
            asked_for_again: HashMap::new(),
            by_due_time: BTreeSet::new(),
            delayed: HashMap::new(),
            next_ticket: 0,
            closed: false,
        }
    }

    pub(super) fn add(&mut self, key: K, urgency: Urgency, now: Instant) {
        if self.in_progress.contains_key(&key) {
            let asked = self.asked_for_again.entry(key).or_insert(urgency);
            *asked = urgency.max(*asked);
            return;
        }
        let since = match self.queued.get(&key) {
            Some(place) if place.urgency >= urgency => return,
            Some(place) => place.since,
            None => now,
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queued.insert(key.clone(), Place { ticket, since, urgency });
        let owner = (self.sharing.owner)(&key);
        match urgency {
            Urgency::Patient => self.normal.push_patient(owner, (ticket, key)),
            Urgency::Usual => self.normal.push(owner, (ticket, key)),
            Urgency::Urgent => self.urgent.push(owner, (ticket, key)),
        }
    }

    /// Adds the key at this time. If it is in progress as an urgent one, it comes back as an urgent one.
    pub(super) fn add_at(&mut self, key: K, due: Instant, now: Instant) {
        let in_progress = self.in_progress.get(&key).copied().unwrap_or(false);
        let stays_urgent = in_progress && due.saturating_duration_since(now) <= URGENT_FOR;
        self.delay(key, due, if stays_urgent { Urgency::Urgent } else { Urgency::Usual });
    }

    /// Adds the key at this time, as urgent as this, or as somebody says meanwhile.
    pub(super) fn delay(&mut self, key: K, due: Instant, urgency: Urgency) {
        let mut urgency = urgency;
        if let Some(earlier) = self.delayed.get_mut(&key) {
            if earlier.due <= due {
                // Others go before what only tells; what is to be done later must not become that.
                earlier.urgency = earlier.urgency.max(urgency.min(Urgency::Usual));
                return;
            }
            urgency = urgency.max(earlier.urgency);
            self.by_due_time.remove(&(earlier.due, key.clone()));
        }
        self.delayed.insert(key.clone(), Delayed { due, urgency });
        self.by_due_time.insert((due, key));
    }

    /// The next key and how long it waited. Nothing once the state is closed, and nothing while all keys that wait have
    /// to wait for their own kind.
    pub(super) fn take(&mut self, now: Instant, is_in_trouble: impl Fn(&str) -> bool) -> Option<(K, Duration)> {
        if self.closed {
            return None;
        }
        self.queue_what_is_due(now);
        let urgent_first = self.urgent_in_a_row < URGENT_IN_A_ROW;
        let popped = self.pop(urgent_first, &is_in_trouble);
        let (key, urgent) = popped.or_else(|| self.pop(!urgent_first, &is_in_trouble))?;
        self.urgent_in_a_row = if urgent { self.urgent_in_a_row.saturating_add(1) } else { 0 };
        let since = self.queued.remove(&key).map_or(now, |place| place.since);
        give_back(&mut self.queued);
        let of_namespace = self.in_progress_of.entry((self.sharing.owner)(&key).namespace).or_default();
        of_namespace.all += 1;
        of_namespace.not_urgent += usize::from(!urgent);
        self.not_urgent_in_progress += usize::from(!urgent);
        self.in_progress.insert(key.clone(), urgent);
        Some((key, now.saturating_duration_since(since)))
    }

    fn pop(&mut self, urgent: bool, is_in_trouble: impl Fn(&str) -> bool) -> Option<(K, bool)> {
        if !urgent && self.not_urgent_in_progress >= self.sharing.not_urgent {
            return None;
        }
        let most_of_one = self.sharing.of_namespace();
        let in_progress_of = &self.in_progress_of;
        let queued = self.urgent.namespaces().chain(self.normal.namespaces());
        let others_go_on = in_progress_of.keys().chain(queued).any(|namespace| !is_in_trouble(namespace));
        let most_in_trouble = self.sharing.in_trouble(others_go_on);
        let in_trouble = || {
            let of_troubled = in_progress_of.iter().filter(|(namespace, _)| is_in_trouble(namespace));
            of_troubled.fold(InProgress::default(), |sum, (_, of_namespace)| sum.and(*of_namespace))
        };
        let queued = &self.queued;
        let turns = if urgent { &mut self.urgent } else { &mut self.normal };
        let popped = turns.pop(
            |namespace| {
                let of_namespace = in_progress_of.get(namespace).copied().unwrap_or_default();
                of_namespace.has_room(most_of_one, urgent)
                    && (!is_in_trouble(namespace) || in_trouble().has_room(most_in_trouble, urgent))
            },
            |(ticket, key)| queued.get(key).is_some_and(|place| place.ticket == *ticket),
        );
        popped.map(|(_, key)| (key, urgent))
    }

    pub(super) fn finish(&mut self, key: K, now: Instant) {
        if let Some(urgent) = self.in_progress.remove(&key) {
            self.not_urgent_in_progress -= usize::from(!urgent);
            let namespace = (self.sharing.owner)(&key).namespace;
            if let Some(of_namespace) = self.in_progress_of.get_mut(&namespace) {
                of_namespace.all -= 1;
                of_namespace.not_urgent -= usize::from(!urgent);
                if of_namespace.all == 0 {
                    self.in_progress_of.remove(&namespace);
                }
            }
        }
        if let Some(urgency) = self.asked_for_again.remove(&key) {
            self.add(key, urgency, now);
        }
    }

    fn queue_what_is_due(&mut self, now: Instant) {
        while let Some((due, _)) = self.by_due_time.first()
            && *due <= now
            && let Some((_, key)) = self.by_due_time.pop_first()
        {
            let urgency = self.delayed.remove(&key).map_or(Urgency::Usual, |delayed| delayed.urgency);
            self.add(key, urgency, now);
        }
        give_back(&mut self.delayed);
    }

    pub(super) fn depth(&self) -> usize {
        self.queued.len()
    }

    pub(super) fn is_queued(&self, key: &K) -> bool {
        self.queued.contains_key(key)
    }

    /// Keys of which something is kept.
    pub(super) fn remembered(&self) -> usize {
        self.queued.len() + self.in_progress.len() + self.asked_for_again.len() + self.delayed.len()
    }

    /// Something waits, now or until a time.
    pub(super) fn has_more(&self) -> bool {
        !self.queued.is_empty() || !self.by_due_time.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_due_time.first().map(|(due, _)| *due)
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What can happen to a queue of few keys.
    #[derive(Clone, Debug)]
    enum Operation {
        Add {
            key: u8,
            urgency: Urgency,
        },
        AddAfter {
            key: u8,
            millis: u64,
        },
        Take,
        /// Finish the n-th of those in progress.
        Finish(usize),
        Pass {
            millis: u64,
        },
    }

    fn urgency() -> impl Strategy<Value = Urgency> {
        prop_oneof![Just(Urgency::Patient), Just(Urgency::Usual), Just(Urgency::Urgent)]
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (0..5u8, urgency()).prop_map(|(key, urgency)| Operation::Add { key, urgency }),
            (0..5u8, 0..50u64).prop_map(|(key, millis)| Operation::AddAfter { key, millis }),
            Just(Operation::Take),
            (0..5usize).prop_map(Operation::Finish),
            (0..40u64).prop_map(|millis| Operation::Pass { millis }),
        ]
    }

    /// When each key was added last (or is due), if it has not been taken since.
    #[derive(Default)]
    struct Model {
        owed: HashMap<u8, Instant>,
        working: Vec<u8>,
    }

    impl Model {
        fn owe(&mut self, key: u8, from: Instant) {
            let earliest = self.owed.get(&key).map_or(from, |earlier| from.min(*earlier));
            self.owed.insert(key, earliest);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_key_is_worked_on_twice(operations in prop::collection::vec(operation(), 1..200)) {
            let mut now = Instant::now();
            let mut state = State::new(Sharing::none());
            let mut model = Model::default();
            for operation in operations {
                match operation {
                    Operation::Add { key, urgency } => {
                        state.add(key, urgency, now);
                        model.owe(key, now);
                    }
                    Operation::AddAfter { key, millis } => {
                        let due = now + Duration::from_millis(millis);
                        state.add_at(key, due, now);
                        model.owe(key, due);
                    }
                    Operation::Take => match state.take(now, |_| false) {
                        Some((key, _)) => {
                            prop_assert!(!model.working.contains(&key), "{key} is worked on twice");
                            model.working.push(key);
                            // What is due later is still owed.
                            let owed = model.owed.remove(&key);
                            prop_assert!(owed.is_some_and(|from| from <= now), "{key} was not asked for");
                            if let Some(due) = state.delayed.get(&key) {
                                model.owed.insert(key, due.due);
                            }
                        }
                        None => {
                            for (key, from) in &model.owed {
                                prop_assert!(*from > now || model.working.contains(key), "{key} is lost");
                            }
                        }
                    },
                    Operation::Finish(index) if !model.working.is_empty() => {
                        let key = model.working.remove(index % model.working.len());
                        state.finish(key, now);
                    }
                    Operation::Finish(_) => {}
                    Operation::Pass { millis } => now += Duration::from_millis(millis),
                }
                prop_assert!(state.depth() <= 5);
            }
            // In the end everything that is owed is handed out, each key once.
            for key in std::mem::take(&mut model.working) {
                state.finish(key, now);
            }
            now += Duration::from_secs(1);
            while let Some((key, _)) = state.take(now, |_| false) {
                prop_assert!(model.owed.remove(&key).is_some(), "{key} was not asked for");
                state.finish(key, now);
            }
            prop_assert!(model.owed.is_empty(), "lost: {:?}", model.owed.keys());
            prop_assert!(!state.has_more());
        }
    }

    #[test]
    fn urgent_keys_go_first_and_waiting_keys_can_become_urgent() {
        let now = Instant::now();
        let mut state = State::new(Sharing::none());
        use Urgency::{Patient, Urgent, Usual};
        let added = [("e", Patient), ("a", Patient), ("a", Usual), ("b", Usual), ("c", Urgent), ("b", Urgent)];
        for (key, urgency) in added.into_iter().chain([("c", Patient), ("d", Usual)]) {
            state.add(key, urgency, now);
        }
        let order: Vec<_> = std::iter::from_fn(|| state.take(now, |_| false)).map(|(key, _)| key).collect();
        assert_eq!(order, ["c", "b", "a", "d", "e"]);
    }

    #[test]
    fn the_earliest_of_several_delays_counts() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut state = State::new(Sharing::none());
        for seconds in [5, 2, 9] {
            state.add_at("k", at(seconds), now);
        }
        // time -> handed out
        for (seconds, expected) in [(1, None), (2, Some("k")), (9, None)] {
            let taken = state.take(at(seconds), |_| false).map(|(key, _)| key);
            assert_eq!(taken, expected, "{seconds} s");
            if let Some(key) = taken {
                state.finish(key, at(seconds));
            }
        }
    }

    #[test]
    fn what_is_to_be_done_later_is_not_left_to_an_earlier_patient_look() {
        let now = Instant::now();
        let due = now + Duration::from_secs(2);
        // what is asked for after a patient look in a second -> who is first then
        for (later, expected) in [(None, ["usual", "k"]), (Some(Urgency::Usual), ["k", "usual"])] {
            let mut state = State::new(Sharing::none());
            state.delay("k", now + Duration::from_secs(1), Urgency::Patient);
            if let Some(urgency) = later {
                state.delay("k", due, urgency);
            }
            state.delay("usual", due, Urgency::Usual);
            assert_eq!(take_all(&mut state, due), expected, "{later:?}");
        }
    }

    /// Keys of namespaces: the first letter is the namespace, the second the object.
    fn shared(per_namespace: usize, not_urgent: usize) -> State<&'static str> {
        let owner = |key: &&str| Owner { namespace: key[..1].into(), object: key[1..2].into() };
        State::new(Sharing { owner, per_namespace, not_urgent, not_urgent_per_namespace: not_urgent })
    }

    fn take_all(state: &mut State<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| state.take(now, |_| false)).map(|(key, _)| key).collect()
    }

    #[test]
    fn whoever_has_much_to_do_delays_others_by_one_turn() {
        let now = Instant::now();
        let mut state = shared(usize::MAX, usize::MAX);
        for key in ["ax1", "ax2", "ax3", "ax4", "ay1", "bx1"] {
            state.add(key, Urgency::Usual, now);
        }
        assert_eq!(take_all(&mut state, now), ["ax1", "bx1", "ay1", "ax2", "ax3", "ax4"]);
    }

    #[test]
    fn a_namespace_never_has_more_workers_than_allowed() {
        let now = Instant::now();
        let mut state = shared(2, usize::MAX);
        for key in ["ax1", "ax2", "ax3", "bx1"] {
            state.add(key, if key == "ax3" { Urgency::Urgent } else { Urgency::Usual }, now);
        }
        assert_eq!(take_all(&mut state, now), ["ax3", "ax1", "bx1"]);
        state.finish("bx1", now);
        assert_eq!(take_all(&mut state, now), [""; 0]);
        state.finish("ax1", now);
        assert_eq!(take_all(&mut state, now), ["ax2"]);
        ["ax2", "ax3"].into_iter().for_each(|key| state.finish(key, now));
        assert!(!state.has_more() && state.in_progress_of.is_empty());
    }

    #[test]
    fn what_is_urgent_finds_a_worker_that_the_rest_may_not_have() {
        let now = Instant::now();
        let mut state = shared(usize::MAX, 2);
        ["ax1", "bx1", "cx1"].into_iter().for_each(|key| state.add(key, Urgency::Usual, now));
        assert_eq!(take_all(&mut state, now), ["ax1", "bx1"]);
        state.add("dx1", Urgency::Urgent, now);
        assert_eq!(take_all(&mut state, now), ["dx1"]);
        state.finish("dx1", now);
        assert_eq!(take_all(&mut state, now), [""; 0]);
        state.finish("ax1", now);
        assert_eq!(take_all(&mut state, now), ["cx1"]);
    }

    #[test]
    fn a_namespace_leaves_workers_to_others_where_there_are_several() {
        let now = Instant::now();
        let owner = |key: &String| Owner { namespace: key[..1].into(), object: key[1..].into() };
        use Urgency::{Patient, Urgent, Usual};
        // workers; how urgent it is what one namespace wants -> workers that it has; that another one has then for
        // what is not urgent, and for what is
        for (workers, urgency, expected) in [
            (24, Usual, [9, 3, 12]),
            (24, Patient, [9, 3, 12]),
            (24, Urgent, [18, 6, 0]),
            (4, Usual, [1, 1, 2]),
            (4, Urgent, [3, 1, 0]),
            (2, Usual, [1, 0, 1]),
            (1, Urgent, [1, 0, 0]),
        ] {
            let mut state = State::new(Sharing::among(workers, owner));
            let given = [("a", urgency), ("b", Usual), ("b", Urgent)].map(|(namespace, urgency)| {
                (0..100).for_each(|number| state.add(format!("{namespace}{number}-{urgency:?}"), urgency, now));
                let before = state.in_progress.len();
                while state.in_progress.len() < usize::from(workers) && state.take(now, |_| false).is_some() {}
                state.in_progress.len() - before
            });
            assert_eq!(given, expected, "{workers} {urgency:?}");
        }
    }

    /// Whoever waits for something short is urgent, but lets others go first.
    #[test]
    fn namespaces_in_trouble_leave_workers_to_others_however_many_they_are() {
        let now = Instant::now();
        let owner = |key: &String| Owner { namespace: key[..1].into(), object: key[1..].into() };
        use Urgency::{Urgent, Usual};
        // workers; how urgent it is what namespaces want, which they are, which are in trouble, whether another one
        // goes on -> workers that they have; that another one has then for what is not urgent, and for what is
        let table = [
            (24, Usual, "abcd", "", false, [12, 0, 12]),
            (24, Usual, "abcd", "a", false, [12, 0, 12]),
            (24, Usual, "abcd", "abcd", true, [6, 5, 12]),
            (24, Usual, "abcd", "abcd", false, [9, 3, 12]),
            (24, Urgent, "abcd", "", false, [24, 0, 0]),
            (24, Urgent, "abcd", "abcd", true, [12, 8, 3]),
            (24, Urgent, "abcd", "abcd", false, [18, 6, 0]),
            // As if there were no trouble.
            (24, Usual, "a", "", false, [9, 3, 12]),
            (24, Usual, "a", "a", false, [9, 3, 12]),
            (24, Urgent, "a", "a", false, [18, 6, 0]),
            (24, Usual, "a", "a", true, [6, 5, 12]),
            (4, Usual, "abcd", "abcd", false, [1, 1, 2]),
            (1, Usual, "abcd", "abcd", false, [1, 0, 0]),
        ];
        for (workers, urgency, namespaces, in_trouble, do_others_go_on, expected) in table {
            let mut state = State::new(Sharing::among(workers, owner));
            let mut found = Vec::new();
            if do_others_go_on {
                state.add("e".to_owned(), Usual, now);
                assert!(state.take(now, |of| in_trouble.contains(of)).is_some());
            }
            for (urgency, namespaces) in [(urgency, namespaces), (Usual, "e"), (Urgent, "e")] {
                for namespace in namespaces.chars() {
                    for number in 0..30 {
                        state.add(format!("{namespace}{urgency:?}{number}"), urgency, now);
                    }
                }
                let before = state.in_progress.len();
                let has_worker = |state: &State<String>| state.in_progress.len() < usize::from(workers);
                while has_worker(&state) && state.take(now, |of| in_trouble.contains(of)).is_some() {}
                found.push(state.in_progress.len() - before);
            }
            assert_eq!(found, expected, "{workers} {urgency:?} {in_trouble}");
        }
    }

    #[test]
    fn what_comes_back_later_comes_after_what_is_urgent() {
        let now = Instant::now();
        let mut state = State::new(Sharing::none());
        state.delay("later", now + Duration::from_millis(20), Urgency::Usual);
        state.add("urgent", Urgency::Urgent, now);
        assert_eq!(take_all(&mut state, now), ["urgent"]);
        state.add("another", Urgency::Urgent, now);
        state.finish("urgent", now);
        let due = now + Duration::from_millis(20);
        assert_eq!(state.next_due(), Some(due));
        assert_eq!(take_all(&mut state, due), ["another", "later"]);
    }

    #[test]
    fn a_flood_of_urgent_keys_lets_others_through() {
        let now = Instant::now();
        let keys: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
        let mut state = State::new(Sharing::none());
        keys.iter().for_each(|key| state.add(key.clone(), Urgency::Urgent, now));
        state.add("patient".to_owned(), Urgency::Usual, now);
        let order: Vec<String> = std::iter::from_fn(|| state.take(now, |_| false)).map(|(key, _)| key).collect();
        assert_eq!(order.iter().position(|key| key == "patient"), Some(URGENT_IN_A_ROW as usize));
    }

    #[test]
    fn an_urgent_key_that_comes_back_soon_is_urgent_then_too() {
        let start = Instant::now();
        // comes back after -> before one that waits
        for (seconds, first) in [(1, "k"), (60, "other")] {
            let mut state = State::new(Sharing::none());
            state.add("k", Urgency::Urgent, start);
            assert_eq!(state.take(start, |_| false).map(|(key, _)| key), Some("k"));
            let due = start + Duration::from_secs(seconds);
            state.add_at("k", due, start);
            state.finish("k", start);
            state.add("other", Urgency::Usual, start);
            assert_eq!(state.take(due, |_| false).map(|(key, _)| key), Some(first), "{seconds} s");
        }
    }
}
