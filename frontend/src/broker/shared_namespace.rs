//! A namespace for all who look at it: one at a time, and one at a time who reads a long object of it (rule import-10).
//!
//! Knows: who has which lock. Must not know: what is looked at, whose turn it is, what is known of a namespace.
//!
//! Invariants:
//! * Whether a namespace is settled, and whether somebody reads a long object of it, can be asked without waiting for
//!   anybody.
//! * Whoever has to read a long object waits for whoever reads another one, before it waits for the namespace itself;
//!   never the other way round.

use crate::broker::namespace::{Namespace, ObjectName};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A namespace at which one looks at a time.
pub(super) struct SharedNamespace {
    namespace: Mutex<Namespace>,
    is_settled: AtomicBool,
    /// Whoever has it reads an object of the namespace that takes long, before it looks at the namespace itself.
    reading: Mutex<()>,
}

/// A namespace at which nobody else looks.
pub(super) struct LockedNamespace<'a> {
    namespace: MutexGuard<'a, Namespace>,
    is_settled: &'a AtomicBool,
}

/// Somebody reads an object of a namespace that takes long, and nobody else does.
pub(super) struct Reading<'a> {
    object: Arc<ObjectName>,
    _alone: MutexGuard<'a, ()>,
}

impl Default for SharedNamespace {
    fn default() -> Self {
        Self { namespace: Mutex::default(), is_settled: AtomicBool::new(true), reading: Mutex::default() }
    }
}

impl SharedNamespace {
    /// Waits until nobody else looks at it.
    pub(super) fn lock(&self) -> LockedNamespace<'_> {
        let namespace = self.namespace.lock();
        LockedNamespace { namespace, is_settled: &self.is_settled }
    }

    /// Waits until nobody else reads an object of it that takes long, to read this one. What the mirror has of it is to
    /// be taken after that.
    pub(super) fn read_alone(&self, object: &ObjectName) -> Reading<'_> {
        self.begin_to_read(object, self.reading.lock())
    }

    /// The same, if nobody else reads one now.
    pub(super) fn try_to_read_alone(&self, object: &ObjectName) -> Option<Reading<'_>> {
        Some(self.begin_to_read(object, self.reading.try_lock()?))
    }

    fn begin_to_read<'a>(&'a self, object: &ObjectName, alone: MutexGuard<'a, ()>) -> Reading<'a> {
        let object = Arc::new(object.clone());
        self.lock().being_read = Some(Arc::clone(&object));
        Reading { object, _alone: alone }
    }

    /// Whether somebody reads an object of it that takes long. Nobody is waited for.
    pub(super) fn is_being_read(&self) -> bool {
        self.reading.is_locked()
    }

    /// Whether it was settled when somebody looked at it last. Nobody is waited for.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }
}

impl Reading<'_> {
    /// Whether nothing of the object was taken over since this has begun: what was read is no earlier than what the
    /// namespace knows of it. One that is not the namespace of which it is read has been made anew meanwhile.
    pub(super) fn is_latest(&self, namespace: &Namespace) -> bool {
        namespace.being_read.as_ref().is_some_and(|object| Arc::ptr_eq(object, &self.object))
    }
}

impl Deref for LockedNamespace<'_> {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl DerefMut for LockedNamespace<'_> {
    fn deref_mut(&mut self) -> &mut Namespace {
        &mut self.namespace
    }
}

impl Drop for LockedNamespace<'_> {
    fn drop(&mut self) {
        self.is_settled.store(self.namespace.is_settled(), Ordering::Release);
    }
}
