//! How pods ended whose PEs the mirror does not show (rule call-20): the PEs are gone, or their mirror is behind that
//! of pods.
//!
//! Whoever may make pods can make any number of them look like those of PEs that never were. So what is kept has a
//! bound in bytes, and when there is too much, the namespace that has most of it loses its oldest: nobody who has less
//! loses anything because of others.
//!
//! Knows: keys, bytes, times. Must not know: what is kept.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::Key;
use tokio::time::Instant;

/// How long it is kept: by then the mirror has caught up.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// What an entry takes besides its value and its texts: its places in all maps.
const OF_ENTRY: usize = 512;

/// Values by key.
pub(super) struct Unclaimed<V> {
    /// Bytes.
    most: usize,
    inner: Mutex<Inner<V>>,
}

struct Inner<V> {
    entries: HashMap<Key, Held<V>>,
    /// The keys by when they came.
    ages: BTreeMap<u64, Key>,
    namespaces: HashMap<Arc<str>, OfNamespace>,
    /// Those that have come.
    count: u64,
    bytes: usize,
}

struct Held<V> {
    number: u64,
    since: Instant,
    bytes: usize,
    value: V,
}

#[derive(Default)]
struct OfNamespace {
    bytes: usize,
    numbers: BTreeSet<u64>,
}

impl<V> fmt::Debug for Unclaimed<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unclaimed").field("len", &self.len()).finish()
    }
}

impl<V: Clone> Unclaimed<V> {
    /// Nothing yet, and so many bytes at most.
    pub(super) fn new(most: usize) -> Self {
        let inner =
            Inner { entries: HashMap::new(), ages: BTreeMap::new(), namespaces: HashMap::new(), count: 0, bytes: 0 };
        Self { most, inner: Mutex::new(inner) }
    }

    /// Keeps a value for a while. It takes so many bytes.
    pub(super) fn insert(&self, key: Key, value: V, bytes: usize, now: Instant) {
        let mut inner = self.inner.lock();
        inner.forget_old(now);
        inner.remove(&key);
        let bytes = bytes.saturating_add(key.name.len()).saturating_add(OF_ENTRY);
        let number = inner.count;
        inner.count = inner.count.wrapping_add(1);
        inner.bytes = inner.bytes.saturating_add(bytes);
        let of_namespace = inner.namespaces.entry(Arc::clone(&key.namespace)).or_default();
        of_namespace.bytes = of_namespace.bytes.saturating_add(bytes);
        of_namespace.numbers.insert(number);
        inner.ages.insert(number, key.clone());
        inner.entries.insert(key, Held { number, since: now, bytes, value });
        while inner.bytes > self.most && inner.forget_of_most() {}
    }

    /// The value, if it is still kept.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<V> {
        let mut inner = self.inner.lock();
        inner.forget_old(now);
        inner.entries.get(key).map(|entry| entry.value.clone())
    }
}

impl<V> Unclaimed<V> {
    /// Values that are kept.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }
}

impl<V> Inner<V> {
    fn forget_old(&mut self, now: Instant) {
        while let Some(oldest) = self.ages.first_key_value().map(|(_, key)| key.clone())
            && self.entries.get(&oldest).is_none_or(|entry| now.duration_since(entry.since) >= KEPT_FOR)
        {
            self.remove(&oldest);
        }
    }

    /// Forgets the oldest of the namespace that has most. Whether there was one.
    fn forget_of_most(&mut self) -> bool {
        let most = self.namespaces.values().max_by_key(|of_namespace| of_namespace.bytes);
        let oldest = most.and_then(|of_namespace| self.ages.get(of_namespace.numbers.first()?)).cloned();
        oldest.is_some_and(|oldest| self.remove(&oldest))
    }

    /// Forgets a value. Whether there was one.
    fn remove(&mut self, key: &Key) -> bool {
        let Some(Held { number, bytes, .. }) = self.entries.remove(key) else { return false };
        self.ages.remove(&number);
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(of_namespace) = self.namespaces.get_mut(&key.namespace) {
            of_namespace.bytes = of_namespace.bytes.saturating_sub(bytes);
            of_namespace.numbers.remove(&number);
            if of_namespace.numbers.is_empty() {
                self.namespaces.remove(&key.namespace);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, number: usize) -> Key {
        Key::new(namespace, &format!("{number:04}"))
    }

    #[test]
    fn a_namespace_that_has_much_loses_its_oldest_and_takes_nothing_from_others() {
        let (unclaimed, now) = (Unclaimed::new(100 * (OF_ENTRY + 4)), Instant::now());
        for number in 0..10 {
            unclaimed.insert(key("small", number), number, 0, now);
        }
        for number in 0..10_000 {
            unclaimed.insert(key("large", number), number, 0, now);
        }
        assert_eq!(unclaimed.len(), 100);
        let kept = |namespace: &str, number| unclaimed.get(&key(namespace, number), now).is_some();
        assert!((0..10).all(|number| kept("small", number)));
        assert!(!kept("large", 9_909) && (9_910..10_000).all(|number| kept("large", number)));
        // A large one displaces those of its own.
        unclaimed.insert(key("large", 0), 0, 80 * OF_ENTRY, now);
        assert!(kept("large", 0) && (0..10).all(|number| kept("small", number)));
        // One that is larger is not kept.
        unclaimed.insert(key("large", 1), 1, 1_000_000, now);
        assert!(!kept("large", 1) && (0..10).all(|number| kept("small", number)));
    }

    #[test]
    fn a_value_is_kept_for_a_while_and_nothing_is_left_of_it_then() {
        let (unclaimed, begun) = (Unclaimed::new(1_000_000), Instant::now());
        let minute = Duration::from_secs(60);
        unclaimed.insert(key("n", 0), "a", 0, begun);
        unclaimed.insert(key("n", 1), "b", 0, begun);
        // It was told once more.
        unclaimed.insert(key("n", 0), "c", 0, begun + minute);
        // minutes -> values
        for (minutes, expected) in [(9, [Some("c"), Some("b")]), (10, [Some("c"), None]), (11, [None, None])] {
            let now = begun + minute * minutes;
            assert_eq!([0, 1].map(|number| unclaimed.get(&key("n", number), now)), expected, "{minutes}");
        }
        let inner = unclaimed.inner.lock();
        assert_eq!((inner.bytes, inner.ages.len(), inner.namespaces.len()), (0, 0, 0));
    }
}
