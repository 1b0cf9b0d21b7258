//! Looks at long objects that callers wait to make themselves, and whether somebody else has made them meanwhile (rule
//! import-10).
//!
//! A look takes over what the mirror has when it begins, or something later. So whoever has waited for its own is
//! content with any that has begun since.
//!
//! Knows: when looks begin and end. Must not know: what is looked at, whose turn it is.
//!
//! Invariant: nothing is kept of objects that nobody waits to look at.

use crate::broker::predecessors::Side;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use streams_kubernetes::Key;

/// An export or import.
type Object = (Side, Key);

/// The looks that are waited for. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(super) struct AwaitedLooks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// A number for each look and each caller, in the order in which they came.
    last: u64,
    awaited: BTreeMap<Object, Awaited>,
}

#[derive(Default)]
struct Awaited {
    callers: usize,
    /// The number of the latest look that was made; 0 if none was.
    made: u64,
}

/// A caller waits to look at an object, as long as it lives.
pub(super) struct AwaitedLook {
    looks: AwaitedLooks,
    object: Object,
    number: u64,
}

impl AwaitedLooks {
    /// A look begins, before anything is taken from a mirror: its number.
    pub(super) fn begin(&self) -> u64 {
        self.0.lock().next()
    }

    /// The look of this number has taken the object over, or found that something later was.
    pub(super) fn end(&self, number: u64, side: Side, key: &Key) {
        let mut state = self.0.lock();
        if state.awaited.is_empty() {
            return;
        }
        if let Some(awaited) = state.awaited.get_mut(&(side, key.clone())) {
            awaited.made = awaited.made.max(number);
        }
    }

    /// A caller waits to look at an object that it has seen in the mirror.
    pub(super) fn wait(&self, side: Side, key: &Key) -> AwaitedLook {
        let object = (side, key.clone());
        let mut state = self.0.lock();
        let number = state.next();
        state.awaited.entry(object.clone()).or_default().callers += 1;
        drop(state);
        AwaitedLook { looks: self.clone(), object, number }
    }

    /// How many objects are waited for.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().awaited.len()
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl AwaitedLook {
    /// Whether a look that has begun since was made, whoever has.
    pub(super) fn is_made(&self) -> bool {
        let state = self.looks.0.lock();
        state.awaited.get(&self.object).is_some_and(|awaited| awaited.made > self.number)
    }
}

impl Drop for AwaitedLook {
    fn drop(&mut self) {
        let mut state = self.looks.0.lock();
        if let Entry::Occupied(mut awaited) = state.awaited.entry(self.object.clone()) {
            awaited.get_mut().callers -= 1;
            if awaited.get().callers == 0 {
                awaited.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_content_with_any_look_that_has_begun_since_it_came() {
        let looks = AwaitedLooks::default();
        let (key, other) = (Key::new("n", "a"), Key::new("n", "b"));
        let before = looks.begin();
        let caller = looks.wait(Side::Export, &key);
        let after = looks.begin();
        // which look has ended, of what -> whether the caller need not look
        let table = [
            (before, Side::Export, &key, false),
            (after, Side::Import, &key, false),
            (after, Side::Export, &other, false),
            (after, Side::Export, &key, true),
            (before, Side::Export, &key, true),
        ];
        for (number, side, key, is_made) in table {
            looks.end(number, side, key);
            assert_eq!(caller.is_made(), is_made, "{number} {key}");
        }
        let later = looks.wait(Side::Export, &key);
        drop(caller);
        assert_eq!((later.is_made(), looks.count()), (false, 1));
        drop(later);
        assert_eq!(looks.count(), 0);
    }
}
