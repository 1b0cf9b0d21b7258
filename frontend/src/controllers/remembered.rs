//! What controllers keep of objects beside the mirrors, and the one rule for when it ends (rule call-20).
//!
//! * It is kept for one object: that with this name *and uid*. What is kept of an earlier one of the name is dropped.
//! * It ends when the object leaves the mirror ([`Remembered::end_with`]). A reconcile that was under way then may keep
//!   something once more; the departure has queued the object, and the reconcile that finds nothing forgets it.
//! * There is at most one value per name, and the value itself is bounded; so memory is bounded by what is mirrored,
//!   and so is the room for it: a map that was emptied gives it back.
//!
//! Nothing of it is needed for correctness.
//!
//! Knows: names and uids. Must not know: what is kept, and why.

use crate::uid::Uid;
use kube::ResourceExt;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use streams_kubernetes::Key;
use streams_kubernetes::spare_room::give_back;
use streams_kubernetes::watch::{Mirrored, Watch};

/// Values by object. Cheap to clone; all clones are the same.
pub(crate) struct Remembered<V> {
    values: Values<V>,
}

/// Each in a box: a map of large values takes the room of twice as many.
type Values<V> = Arc<Mutex<HashMap<Key, Box<Remembrance<V>>>>>;

struct Remembrance<V> {
    uid: Uid,
    value: V,
}

impl<V> Clone for Remembered<V> {
    fn clone(&self) -> Self {
        Self { values: Arc::clone(&self.values) }
    }
}

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self { values: Arc::default() }
    }
}

impl<V> fmt::Debug for Remembered<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered").field("len", &self.len()).finish()
    }
}

impl<V: Send + 'static> Remembered<V> {
    /// From now on everything about an object ends when it leaves this mirror.
    pub(crate) fn end_with<K: Mirrored>(&self, mirror: &Watch<K>) {
        let remembered = self.clone();
        mirror.subscribe_to_departures(move |object, _| {
            remembered.forget(&Key::of(object), object.uid().as_deref().unwrap_or_default());
        });
    }
}

impl<V> Remembered<V> {
    /// Gives access to the value of the object with this uid; `new` makes it if there is none.
    pub(crate) fn with<T>(&self, key: &Key, uid: &str, new: impl Fn() -> V, look: impl FnOnce(&mut V) -> T) -> T {
        let mut values = self.lock();
        let fresh = || Box::new(Remembrance { uid: uid.into(), value: new() });
        let remembrance = values.entry(key.clone()).or_insert_with(fresh);
        if !remembrance.uid.is(uid) {
            *remembrance = fresh();
        }
        look(&mut remembrance.value)
    }

    /// Gives access to the value of the object with this uid, if there is one.
    pub(crate) fn find<T>(&self, key: &Key, uid: &str, look: impl FnOnce(&mut V) -> T) -> Option<T> {
        let mut values = self.lock();
        let remembrance = values.get_mut(key).filter(|remembrance| remembrance.uid.is(uid))?;
        Some(look(&mut remembrance.value))
    }

    /// The object with this uid has this value from now on.
    pub(crate) fn keep(&self, key: &Key, uid: &str, value: V) {
        self.lock().insert(key.clone(), Box::new(Remembrance { uid: uid.into(), value }));
    }

    /// Nothing is kept of the object with this uid.
    pub(crate) fn forget(&self, key: &Key, uid: &str) {
        let mut values = self.lock();
        if values.get(key).is_some_and(|remembrance| remembrance.uid.is(uid)) {
            values.remove(key);
            give_back(&mut values);
        }
    }

    /// There is no object of this name.
    pub(crate) fn forget_all_of(&self, key: &Key) {
        let mut values = self.lock();
        values.remove(key);
        give_back(&mut values);
    }

    /// Keeps the values for which this holds.
    pub(crate) fn retain(&self, holds: impl Fn(&V) -> bool) {
        // Large ones take a while to drop, and others wait for the lock.
        let mut values = self.lock();
        let gone: Vec<_> = values.extract_if(|_, remembrance| !holds(&remembrance.value)).collect();
        give_back(&mut values);
        drop(values);
        drop(gone);
    }

    /// Objects of which something is kept.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Box<Remembrance<V>>>> {
        // No panic under the lock leaves a half-written value.
        self.values.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use k8s_openapi::api::core::v1::Service;
    use kube::core::ObjectMeta;

    fn service(name: &str, uid: &str) -> Service {
        let metadata = ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        Service { metadata, ..Service::default() }
    }

    #[test]
    fn what_is_kept_is_of_one_object_and_ends_with_it() {
        let (mirror, remembered) = (Watch::filled(indexes(), [service("a", "1")]), Remembered::default());
        remembered.end_with(&mirror);
        let key = Key::new("n", "a");
        remembered.keep(&key, "1", 7);
        assert_eq!(remembered.find(&key, "1", |value| *value), Some(7));
        assert_eq!(remembered.find(&key, "2", |value| *value), None);
        assert_eq!(remembered.with(&key, "2", || 8, |value| *value), 8, "another object of the name");
        // The departure of the earlier object is no concern of the later one.
        mirror.remove(&key);
        assert_eq!(remembered.len(), 1);
        mirror.insert(service("a", "2"));
        mirror.remove(&key);
        assert_eq!(remembered.len(), 0);
    }

    #[test]
    fn a_flood_of_names_leaves_nothing_behind() {
        let (mirror, remembered) = (Watch::filled(indexes(), []), Remembered::default());
        remembered.end_with(&mirror);
        for number in 0..1_000 {
            let name = format!("a-{number}");
            mirror.insert(service(&name, &name));
            remembered.keep(&Key::new("n", &name), &name, number);
            assert!(remembered.len() <= mirror.keys().len());
            mirror.remove(&Key::new("n", &name));
        }
        assert_eq!(remembered.len(), 0);
    }
}
