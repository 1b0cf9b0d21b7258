//! Values that the generations of a job share.
//!
//! A resize leaves most operators and PEs as they are. The new generation refers to the same values instead of having
//! copies, and whoever compares generations sees at once that they are the same ([`Shared::is`]).
//!
//! Knows: nothing of what it holds.

use get_size2::{GetSize, GetSizeTracker};
use std::ops::Deref;
use std::sync::Arc;

/// A value that does not change while several generations have it.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// A value that nobody else has yet.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Whether both are the same value, not only equal ones.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// The value to be changed; a copy of it if others have it too.
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
    /// All of it, for each generation: the others may be gone tomorrow.
    fn get_heap_size_with_tracker<Tracker: GetSizeTracker>(&self, tracker: Tracker) -> (usize, Tracker) {
        T::get_size_with_tracker(&self.0, tracker)
    }
}
