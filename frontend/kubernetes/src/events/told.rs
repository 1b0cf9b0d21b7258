//! How often this process has told each of its newest Events. It is safe to lose: then the API server is asked.
//!
//! Nobody else tells an Event of the same name, which has the name of the replica in it.

use crate::Key;
use std::collections::{BTreeMap, VecDeque};

/// Most Events that are remembered.
const TOLD_MAX: usize = 4096;

/// Counts by Event.
#[derive(Debug, Default)]
pub(super) struct Told {
    counts: BTreeMap<Key, i32>,
    /// All of them, in the order in which they were told first.
    order: VecDeque<Key>,
}

impl Told {
    /// How often an Event was told, if that is known.
    pub(super) fn count(&self, event: &Key) -> Option<i32> {
        self.counts.get(event).copied()
    }

    /// It is not known any more how often an Event was told.
    pub(super) fn forget(&mut self, event: &Key) {
        if self.counts.remove(event).is_some() {
            self.order.retain(|other| other != event);
        }
    }

    /// An Event was told for the time with this number. It takes the place of the one that was told first, if there are
    /// too many.
    pub(super) fn note(&mut self, event: &Key, count: i32) {
        if self.counts.insert(event.clone(), count).is_some() {
            return;
        }
        self.order.push_back(event.clone());
        if self.order.len() > TOLD_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.counts.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered() {
        let key = |number: usize| Key::new("n", &number.to_string());
        let mut told = Told::default();
        for number in 0..TOLD_MAX {
            told.note(&key(number), 1);
        }
        told.note(&key(1), 2);
        told.note(&key(TOLD_MAX), 1);
        let counts = [0, 1, TOLD_MAX].map(|number| told.count(&key(number)));
        assert_eq!(counts, [None, Some(2), Some(1)]);
        assert_eq!((told.counts.len(), told.order.len()), (TOLD_MAX, TOLD_MAX));
        for _ in 0..2 {
            told.forget(&key(1));
            assert_eq!((told.count(&key(1)), told.order.len()), (None, TOLD_MAX - 1));
        }
    }
}
