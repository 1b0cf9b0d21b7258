//! Values that the generations of a job share.
//!
//! A resize leaves most operators and PEs as they are. The new generation refers to the same values and has no copies
//! of them. Code that compares two generations then sees at once that a value is the same ([`Shared::is`]).
//!
//! Knows: nothing of what it holds.

use get_size2::{GetSize, GetSizeTracker};
use std::ops::Deref;
use std::sync::Arc;

/// A value that several generations of a job may refer to. It does not change while they do.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Wraps a value that has no other owner.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Whether both refer to the same value in memory, not only to equal values.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// Gives the value for changes. If it has other owners, this owner gets a copy of its own first.
    pub fn to_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || **self == **other
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: GetSize> GetSize for Shared<T> {
    /// Counts the whole value for every generation, because the other generations may be dropped first.
    fn get_heap_size_with_tracker<Tracker: GetSizeTracker>(&self, tracker: Tracker) -> (usize, Tracker) {
        T::get_size_with_tracker(&self.0, tracker)
    }
}
