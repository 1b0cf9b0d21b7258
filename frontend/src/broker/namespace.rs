//! What is known of one namespace: its board, and from which object each part of it came.
//!
//! Knows: which objects count (rule import-5), numbers of changes. Must not know: other namespaces, whose turn it is.
//!
//! Invariant: whether a namespace is settled can be asked without waiting for anybody who looks at it.

use crate::broker::predecessors::{Predecessors, Side};
use crate::mirrors::Mirrors;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use streams_broker::{Board, Changes, Export, Import, Pe, Port, TooManyRoutes};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use tokio::time::Instant;

/// The board of a namespace, and what of it came from which object.
#[derive(Default)]
pub(super) struct Namespace {
    pub(super) board: Board,
    pub(super) exports: BTreeMap<Arc<str>, Port>,
    pub(super) imports: BTreeMap<Arc<str>, Port>,
    /// Uids of the jobs whose exports and imports count.
    pub(super) jobs: BTreeMap<Arc<str>, String>,
    /// Ports that have gone with their jobs.
    pub(super) predecessors: Predecessors,
    /// Numbers of the last changes of the routes of PEs that export or import.
    pub(super) versions: BTreeMap<Pe, u64>,
    /// PEs that are told of what has become other, once it is settled. It knows all of them.
    pub(super) untold: BTreeSet<Pe>,
    /// Whether it was said already that something panicked.
    pub(super) has_panicked: bool,
    /// Whoever has found it before it went finds another one now.
    pub(super) is_gone: bool,
}

/// A namespace at which one looks at a time.
pub(super) struct SharedNamespace {
    namespace: Mutex<Namespace>,
    is_settled: AtomicBool,
}

/// A namespace at which nobody else looks.
pub(super) struct LockedNamespace<'a> {
    namespace: MutexGuard<'a, Namespace>,
    is_settled: &'a AtomicBool,
}

impl Default for SharedNamespace {
    fn default() -> Self {
        Self { namespace: Mutex::default(), is_settled: AtomicBool::new(true) }
    }
}

impl SharedNamespace {
    /// Waits until nobody else looks at it.
    pub(super) fn lock(&self) -> LockedNamespace<'_> {
        let namespace = self.namespace.lock().unwrap_or_else(PoisonError::into_inner);
        LockedNamespace { namespace, is_settled: &self.is_settled }
    }

    /// Whether it was settled when somebody looked at it last. Nobody is waited for.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
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
        self.is_settled.store(self.namespace.board.is_settled(), Ordering::Release);
    }
}

impl Namespace {
    pub(super) fn is_empty(&self) -> bool {
        self.exports.is_empty() && self.imports.is_empty() && self.jobs.is_empty()
    }

    /// Whether the PE exports or imports.
    pub(super) fn knows(&self, pe: &Pe) -> bool {
        self.board.exports_of(pe).next().is_some() || self.board.imports_of(pe).next().is_some()
    }

    /// The export is there.
    pub(super) fn put_export(&mut self, export: Export) -> Changes {
        let (before, after) = (self.board.job_of_export(&export.port), Some(export.job_id));
        self.predecessors.note(Side::Export, &export.port, before, after, Instant::now());
        self.board.put_export(export)
    }

    /// The import is there.
    pub(super) fn put_import(&mut self, import: Import) -> Changes {
        let (before, after) = (self.board.job_of_import(&import.port), Some(import.job_id));
        self.predecessors.note(Side::Import, &import.port, before, after, Instant::now());
        self.board.put_import(import)
    }

    /// The output port is exported no longer.
    pub(super) fn remove_export(&mut self, port: &Port) -> Changes {
        self.predecessors.note(Side::Export, port, self.board.job_of_export(port), None, Instant::now());
        self.board.remove_export(port)
    }

    /// The input port imports no longer.
    pub(super) fn remove_import(&mut self, port: &Port) -> Changes {
        self.predecessors.note(Side::Import, port, self.board.job_of_import(port), None, Instant::now());
        self.board.remove_import(port)
    }

    /// Whether a PE must not be told all of its routes yet.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn leaves_something_out(&self, pe: &Pe) -> Result<bool, TooManyRoutes> {
        if self.predecessors.are_none() {
            return Ok(false);
        }
        Ok(!self.predecessors.leave_out(&mut self.board.matched(pe)?, pe).is_empty())
    }

    /// Forgets which ports have gone, if that does not matter any more.
    pub(super) fn forget_old(&mut self) {
        let now = Instant::now();
        if !self.board.is_settled() {
            self.predecessors.is_unsettled(now);
        }
        self.predecessors.forget_old(now);
    }

    /// Numbers the changes. Returns the PEs for which something has become other.
    pub(super) fn numbered(&mut self, changes: Changes, last_version: &AtomicU64) -> BTreeSet<Pe> {
        let Changes { routes, costs: mut touched, panicked, .. } = changes;
        if let Some((export, import)) = panicked.filter(|_| !self.has_panicked) {
            self.has_panicked = true;
            tracing::error!(%export, %import, "an export cannot be tried with an import, and does not match it");
        }
        for pe in routes {
            let version = last_version.fetch_add(1, Ordering::Relaxed) + 1;
            self.versions.insert(pe.clone(), version);
            touched.insert(pe);
        }
        touched
    }

    /// Whether this job controls the object, is there, and has the number that the object names.
    pub(super) fn counts<K: kube::Resource>(
        &self,
        object: &K,
        job: &str,
        job_id: u64,
        mirrors: &Mirrors,
        key: &Key,
    ) -> bool {
        let Some(uid) = self.jobs.get(job) else { return false };
        let Some(job) = mirrors.jobs.get(&key.sibling(job)) else { return false };
        job.metadata.uid.as_ref() == Some(uid)
            && is_controlled_by(object.meta(), &*job)
            && job.status.as_ref().and_then(|status| status.job_id) == Some(job_id)
            && object.meta().deletion_timestamp.is_none()
    }
}
