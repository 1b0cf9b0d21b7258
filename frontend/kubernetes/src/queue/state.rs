//! The state of a queue: where every key is. Reads no clock and never waits.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// Where every key is.
pub(super) struct State<K> {
    /// Keys in the order of their tickets; an entry whose ticket is not the key's any more is skipped.
    urgent: VecDeque<(u64, K)>,
    normal: VecDeque<(u64, K)>,
    queued: HashMap<K, Place>,
    in_progress: HashSet<K>,
    /// Added while in progress; whether urgent.
    asked_for_again: HashMap<K, bool>,
    by_due_time: BTreeSet<(Instant, K)>,
    due_times: HashMap<K, Instant>,
    next_ticket: u64,
    closed: bool,
}

#[derive(Clone, Copy)]
struct Place {
    ticket: u64,
    since: Instant,
    urgent: bool,
}

impl<K: Clone + Ord + Hash> State<K> {
    pub(super) fn new() -> Self {
        Self {
            urgent: VecDeque::new(),
            normal: VecDeque::new(),
            queued: HashMap::new(),
            in_progress: HashSet::new(),
            asked_for_again: HashMap::new(),
            by_due_time: BTreeSet::new(),
            due_times: HashMap::new(),
            next_ticket: 0,
            closed: false,
        }
    }

    pub(super) fn add(&mut self, key: K, urgent: bool, now: Instant) {
        if self.in_progress.contains(&key) {
            *self.asked_for_again.entry(key).or_insert(false) |= urgent;
            return;
        }
        let since = match self.queued.get(&key) {
            Some(place) if place.urgent || !urgent => return,
            Some(place) => place.since,
            None => now,
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queued.insert(key.clone(), Place { ticket, since, urgent });
        if urgent { &mut self.urgent } else { &mut self.normal }.push_back((ticket, key));
    }

    pub(super) fn add_at(&mut self, key: K, due: Instant) {
        match self.due_times.get(&key) {
            Some(earlier) if *earlier <= due => return,
            Some(later) => {
                self.by_due_time.remove(&(*later, key.clone()));
            }
            None => {}
        }
        self.due_times.insert(key.clone(), due);
        self.by_due_time.insert((due, key));
    }

    /// The next key and how long it waited. Nothing once the state is closed.
    pub(super) fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        if self.closed {
            return None;
        }
        self.queue_what_is_due(now);
        loop {
            let (ticket, key) = self.urgent.pop_front().or_else(|| self.normal.pop_front())?;
            let Some(place) = self.queued.get(&key).copied().filter(|place| place.ticket == ticket) else { continue };
            self.queued.remove(&key);
            self.in_progress.insert(key.clone());
            return Some((key, now.saturating_duration_since(place.since)));
        }
    }

    pub(super) fn finish(&mut self, key: K, now: Instant) {
        self.in_progress.remove(&key);
        if let Some(urgent) = self.asked_for_again.remove(&key) {
            self.add(key, urgent, now);
        }
    }

    fn queue_what_is_due(&mut self, now: Instant) {
        while let Some((due, _)) = self.by_due_time.first()
            && *due <= now
            && let Some((_, key)) = self.by_due_time.pop_first()
        {
            self.due_times.remove(&key);
            self.add(key, false, now);
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.queued.len()
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
            urgent: bool,
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

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (0..5u8, any::<bool>()).prop_map(|(key, urgent)| Operation::Add { key, urgent }),
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
            let mut state = State::new();
            let mut model = Model::default();
            for operation in operations {
                match operation {
                    Operation::Add { key, urgent } => {
                        state.add(key, urgent, now);
                        model.owe(key, now);
                    }
                    Operation::AddAfter { key, millis } => {
                        let due = now + Duration::from_millis(millis);
                        state.add_at(key, due);
                        model.owe(key, due);
                    }
                    Operation::Take => match state.take(now) {
                        Some((key, _)) => {
                            prop_assert!(!model.working.contains(&key), "{key} is worked on twice");
                            model.working.push(key);
                            // What is due later is still owed.
                            let owed = model.owed.remove(&key);
                            prop_assert!(owed.is_some_and(|from| from <= now), "{key} was not asked for");
                            if let Some(due) = state.due_times.get(&key) {
                                model.owed.insert(key, *due);
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
            while let Some((key, _)) = state.take(now) {
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
        let mut state = State::new();
        for (key, urgent) in [("a", false), ("b", false), ("c", true), ("b", true), ("c", false), ("d", false)] {
            state.add(key, urgent, now);
        }
        let order: Vec<_> = std::iter::from_fn(|| state.take(now)).map(|(key, _)| key).collect();
        assert_eq!(order, ["c", "b", "a", "d"]);
    }

    #[test]
    fn the_earliest_of_several_delays_counts() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut state = State::new();
        for seconds in [5, 2, 9] {
            state.add_at("k", at(seconds));
        }
        // time -> handed out
        for (seconds, expected) in [(1, None), (2, Some("k")), (9, None)] {
            let taken = state.take(at(seconds)).map(|(key, _)| key);
            assert_eq!(taken, expected, "{seconds} s");
            if let Some(key) = taken {
                state.finish(key, at(seconds));
            }
        }
    }
}
