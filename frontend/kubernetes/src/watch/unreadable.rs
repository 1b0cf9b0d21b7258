//! Which objects of a kind cannot be read (rule call-6).
//!
//! Knows: keys and versions. Must not know: what is wrong with the objects.
//!
//! Invariant: what is kept is bounded by the objects that there are, and what is told by the time.

use super::Key;
use crate::few_lines::FewLines;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// The objects of a kind that cannot be read, with their versions as they were delivered.
#[derive(Debug, Default)]
pub(super) struct UnreadableObjects {
    versions: BTreeMap<Key, u64>,
    /// Whoever may make objects may make many.
    lines: FewLines,
}

impl UnreadableObjects {
    /// The object cannot be read. Whether people are to be told of it: once, unless there are many.
    pub(super) fn note(&mut self, key: &Key, version: u64, now: Instant) -> bool {
        self.versions.insert(key.clone(), version).is_none() && self.lines.has_room(now)
    }

    /// The version of an object that cannot be read.
    pub(super) fn version(&self, key: &Key) -> Option<u64> {
        self.versions.get(key).copied()
    }

    /// The object can be read, or is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.versions.remove(key);
    }

    /// Of this scope a list has no others that cannot be read than these.
    pub(super) fn retain<'a>(&mut self, namespace: Option<&str>, listed: impl Iterator<Item = &'a Key>) {
        if self.versions.is_empty() {
            return;
        }
        let listed: BTreeSet<&Key> = listed.collect();
        let is_elsewhere = |key: &Key| namespace.is_some_and(|namespace| *key.namespace != *namespace);
        self.versions.retain(|key, _| is_elsewhere(key) || listed.contains(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn people_are_told_once_of_an_object_and_of_few_at_a_time() {
        let mut objects = UnreadableObjects::default();
        let begun = Instant::now();
        let key = |number: u32| Key::new("n", &number.to_string());
        let mut told = 0;
        for number in 0..100 {
            told += u32::from(objects.note(&key(number), 1, begun));
            assert!(!objects.note(&key(number), 2, begun), "{number}");
        }
        assert_eq!((told, objects.version(&key(99))), (10, Some(2)));
        // The same again is not told, another one is.
        let later = begun + Duration::from_secs(60);
        assert!(!objects.note(&key(0), 3, later) && objects.note(&key(100), 1, later));
        // What can be read, or is gone, is forgotten.
        objects.forget(&key(1));
        objects.retain(Some("m"), std::iter::empty());
        assert_eq!((objects.version(&key(1)), objects.version(&key(2))), (None, Some(2)));
        objects.retain(None, [key(3)].iter());
        assert_eq!((objects.version(&key(2)), objects.version(&key(3))), (None, Some(2)));
    }
}
