//! Counts the bytes that a value has on the heap.
//!
//! Caches of compiled jobs are bounded by this number, so it has to be right. Types derive [`GetSize`], which counts
//! every field. This module counts what the derive does not know: containers of `cranelift-entity`, and values that
//! several owners share. A field of such a type names a function of this module with `#[get_size(size_fn = ...)]`.
//!
//! Knows: the sizes of things. Must not know: what they are for.

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use get_size2::{GetSize, NoTracker};
use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

/// Bytes that were asked of the allocator for a value, itself not included. Linear in its parts.
pub(crate) fn size<T: GetSize>(value: &T) -> usize {
    // `share` counts shared values, so no tracker has to remember which values were counted already.
    value.get_heap_size_with_tracker(NoTracker::new(true)).0
}

/// The bytes of a shared value, divided by the number of its owners. The reference counters of the [`Arc`] are not
/// counted.
pub(crate) fn share<T: SharedContent + ?Sized>(value: &Arc<T>) -> usize {
    // Named, because a reference is itself a value that has nothing on the heap.
    (size_of_val::<T>(value) + T::content(value)) / Arc::strong_count(value)
}

/// The same for a value that may be absent.
pub(crate) fn share_if_any<T: SharedContent + ?Sized>(value: &Option<Arc<T>>) -> usize {
    value.as_ref().map_or(0, share)
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

    #[test]
    fn owners_share_what_they_have_in_common() {
        let text = Arc::new("1234567".to_owned());
        let whole = size_of::<String>() + 7;
        assert_eq!(share(&text), whole);
        let other = Arc::clone(&text);
        assert_eq!([share(&text), share(&other)], [whole / 2; 2]);
        let slice: Arc<[String]> = vec![String::with_capacity(5), String::with_capacity(9)].into();
        assert_eq!(share(&slice), 2 * size_of::<String>() + 14);
        assert_eq!(share_if_any(&Some(Arc::<str>::from("abc"))), 3);
        assert_eq!(share_if_any::<str>(&None), 0);
    }
}
