//! Counts the bytes that a value has on the heap.
//!
//! Caches of compiled jobs are bounded by this number, so it has to be right. Types derive [`GetSize`], which counts
//! every field. This module counts what the derive does not know: containers of `cranelift-entity`, and values that
//! several owners share. A field of such a type names a function of this module with `#[get_size(size_fn = ...)]`.
//!
//! A shared value is counted whole, for the first of its owners that is met. Owners elsewhere, such as other
//! generations of a job, make no difference: they may be dropped first, and a job that is in a cache is not counted
//! again.
//!
//! Knows: the sizes of things. Must not know: what they are for.

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use get_size2::{GetSize, NoTracker};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::mem::size_of;
use std::sync::Arc;

thread_local! {
    /// The addresses of the shared values that this thread has met since it began to count.
    static MET: RefCell<Option<HashSet<usize>>> = const { RefCell::new(None) };
}

/// Bytes that were asked of the allocator for a value, itself not included. Linear in its parts.
pub(crate) fn size<T: GetSize>(value: &T) -> usize {
    // `share` remembers which values were counted already, so no tracker has to.
    once(|| value.get_heap_size_with_tracker(NoTracker::new(true)).0)
}

/// What `count` returns. Whatever it counts, it counts each shared value once.
pub(crate) fn once<T>(count: impl FnOnce() -> T) -> T {
    struct Ends;

    impl Drop for Ends {
        fn drop(&mut self) {
            MET.set(None);
        }
    }

    // Whoever counts a part of what is being counted goes on.
    if MET.with_borrow(Option::is_some) {
        return count();
    }
    MET.set(Some(HashSet::new()));
    let _ends = Ends;
    count()
}

/// The bytes of a shared value, if it is met for the first time. The reference counters of the [`Arc`] are not counted.
pub(crate) fn share<T: SharedContent + ?Sized>(value: &Arc<T>) -> usize {
    // Named, because a reference is itself a value that has nothing on the heap.
    let bytes = size_of_val::<T>(value);
    // Most are empty, and most others have one owner.
    if bytes == 0 || (Arc::strong_count(value) > 1 && !is_new(value)) {
        return 0;
    }
    bytes + T::content(value)
}

/// The same for a value that may be absent.
pub(crate) fn share_if_any<T: SharedContent + ?Sized>(value: &Option<Arc<T>>) -> usize {
    value.as_ref().map_or(0, share)
}

/// Whether a shared value is met for the first time.
fn is_new<T: ?Sized>(value: &Arc<T>) -> bool {
    let address = Arc::as_ptr(value).cast::<()>().addr();
    MET.with_borrow_mut(|met| met.as_mut().is_none_or(|met| met.insert(address)))
}

/// A value that several owners may share.
pub(crate) trait SharedContent {
    /// Bytes on the heap besides the value itself.
    fn content(&self) -> usize;
}

impl<T: GetSize> SharedContent for T {
    fn content(&self) -> usize {
        size(self)
    }
}

impl<T: GetSize> SharedContent for [T] {
    fn content(&self) -> usize {
        self.iter().map(size).sum()
    }
}

impl SharedContent for str {
    fn content(&self) -> usize {
        0
    }
}

/// A map of all entities of a kind.
pub(crate) fn primary_map<K: EntityRef, V: GetSize>(map: &PrimaryMap<K, V>) -> usize {
    map.len() * size_of::<V>() + map.values().map(size).sum::<usize>()
}

/// A map of some entities of a kind, whose values have nothing on the heap.
pub(crate) fn flat_secondary_map<K: EntityRef, V: Copy>(map: &SecondaryMap<K, V>) -> usize {
    map.capacity() * size_of::<V>()
}

/// A sorted map. Its nodes are between half full and full.
pub(crate) fn sorted_map<K: GetSize, V: GetSize>(map: &BTreeMap<K, V>) -> usize {
    let entries = map.len() * (size_of::<K>() + size_of::<V>()) * 4 / 3;
    entries + map.iter().map(|(key, value)| size(key) + size(value)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(GetSize)]
    struct Owner {
        #[get_size(size_fn = share)]
        text: Arc<String>,
    }

    #[test]
    fn what_owners_have_in_common_is_counted_once_and_whole() {
        let text = Arc::new("1234567".to_owned());
        let whole = size_of::<String>() + 7;
        assert_eq!(share(&text), whole);
        let owners = [(); 3].map(|()| Owner { text: Arc::clone(&text) });
        for _ in 0..2 {
            // One after the other, for itself and with others.
            assert_eq!(owners.each_ref().map(size), [whole; 3]);
            assert_eq!(once(|| owners.each_ref().map(size)), [whole, 0, 0]);
        }
        let owners = Vec::from(owners);
        assert_eq!(size(&owners), 3 * size_of::<Owner>() + whole);
        let slice: Arc<[String]> = vec![String::with_capacity(5), String::with_capacity(9)].into();
        assert_eq!(share(&slice), 2 * size_of::<String>() + 14);
        assert_eq!(share_if_any(&Some(Arc::<str>::from("abc"))), 3);
        assert_eq!(share_if_any::<str>(&None), 0);
    }
}
