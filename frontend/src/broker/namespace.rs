//! What is known of one namespace: its board, and from which object each part of it came.
//!
//! Knows: which objects count (rule import-5), numbers of changes. Must not know: other namespaces, whose turn it is.
//!
//! Invariant: whether a namespace is settled can be asked without waiting for anybody who looks at it.

use crate::broker::predecessors::{LeftOut, Predecessors, Side};
use crate::broker::texts::KnownTexts;
use crate::mirrors::Mirrors;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use streams_api::{Job, names};
use streams_broker::{Board, Changes, Export, Import, Matched, Pe, Port, TooManyRoutes};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use tokio::time::Instant;

/// The board of a namespace, and what of it came from which object.
#[derive(Default)]
pub(super) struct Namespace {
    pub(super) board: Board,
    pub(super) exports: BTreeMap<Arc<str>, Port>,
    pub(super) imports: BTreeMap<Arc<str>, Port>,
    /// The jobs whose exports and imports count.
    pub(super) jobs: BTreeMap<Arc<str>, CountedJob>,
    /// Ports of exports and imports of generations that are not committed, and those that pods do not have yet.
    pub(super) early: BTreeSet<(Port, Side)>,
    /// The generations that have added ports, of those that are not of the first.
    since: BTreeMap<(Port, Side), u64>,
    /// What PEs say of their ports. Nothing is kept of those that neither export nor import.
    pub(super) texts: KnownTexts,
    /// Ports that have gone with their jobs.
    pub(super) predecessors: Predecessors,
    /// Numbers of the last changes of the routes of PEs that export or import.
    pub(super) versions: BTreeMap<Pe, u64>,
    /// Names of the exports and imports that are still to be looked at. It is not settled before all are.
    pub(super) waiting: BTreeSet<(Side, Arc<str>)>,
    /// PEs that are told of what has become other, once it is settled. It knows all of them.
    pub(super) untold: BTreeSet<Pe>,
    /// Whether it was said already that something panicked.
    pub(super) has_panicked: bool,
    /// Whoever has found it before it went finds another one now.
    pub(super) is_gone: bool,
}

/// A job whose exports and imports count: it is there, has its number, and is not being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CountedJob {
    pub(super) uid: String,
    /// When it was created, as the API server says.
    created: Option<Timestamp>,
    /// Its committed generation.
    pub(super) generation: Option<u64>,
    pub(super) is_suspended: bool,
}

impl CountedJob {
    /// The job, if it is one.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let (meta, status) = (&job.metadata, job.status.as_ref()?);
        status.job_id?;
        let uid = meta.uid.clone().filter(|_| meta.deletion_timestamp.is_none())?;
        let created = meta.creation_timestamp.as_ref().map(|created| created.0);
        Some(Self { uid, created, generation: status.generation, is_suspended: job.spec.suspend })
    }

    /// Whether all that counted and matched before does so now: at most more generations are committed.
    pub(super) fn is_as_before(&self, before: &Self) -> bool {
        self.uid == before.uid
            && self.is_suspended == before.is_suspended
            && self.generation.is_some() == before.generation.is_some()
            && self.generation >= before.generation
    }
}

/// The generation that has added an export or import.
pub(super) fn since(object: &ObjectMeta) -> u64 {
    let added = object.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_SINCE_GENERATION));
    added.and_then(|added| added.parse().ok()).unwrap_or_default()
}

/// What comes of an object that counts (rule import-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// It is there, and matches nothing: its job rests.
    Rests,
    /// The same: it waits for a commit, or for the pod of its PE.
    IsEarly,
    /// It matches what it matches.
    Meets,
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
        let namespace = self.namespace.lock();
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
        self.is_settled.store(self.namespace.is_settled(), Ordering::Release);
    }
}

impl Namespace {
    pub(super) fn is_empty(&self) -> bool {
        // What is early is among the others, and what waits counts only with its job.
        self.exports.is_empty() && self.imports.is_empty() && self.jobs.is_empty()
    }

    /// Whether it is known what matches.
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.board.is_settled()
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

    /// Takes what a PE must not be told yet out of what it matches. `created`: when its pod was, if that is known.
    pub(super) fn leave_out(&self, matched: &mut Matched, pe: &Pe, created: Option<Timestamp>) -> LeftOut {
        self.predecessors.leave_out(matched, pe, |job| self.knows_no_other(job, created))
    }

    /// Whether a PE must not be told all of its routes yet.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn leaves_something_out(&self, pe: &Pe, created: Option<Timestamp>) -> Result<bool, TooManyRoutes> {
        if self.predecessors.are_none() {
            return Ok(false);
        }
        if self.board.has_few_routes(pe)? {
            return Ok(!self.leave_out(&mut self.board.matched(pe)?, pe, created).is_empty());
        }
        let met = |side, port: &Port| match side {
            Side::Export => self.board.job_that_sends_to(pe, port),
            Side::Import => self.board.job_that_receives_from(pe, port),
        };
        Ok(self.predecessors.hold_back_any(pe, met, |job| self.knows_no_other(job, created)))
    }

    /// Whether a pod that was created then can know no label of an earlier job of this name: it is younger than the job
    /// (rule import-11). The API server has said both times, in whole seconds; no runtime asks within the second in
    /// which its pod is created.
    fn knows_no_other(&self, job: &str, created: Option<Timestamp>) -> bool {
        let job = self.jobs.get(job).and_then(|job| job.created);
        job.zip(created).is_some_and(|(job, pod)| job <= pod)
    }

    /// Forgets which ports have gone, if that does not matter any more.
    pub(super) fn forget_old(&mut self) {
        let now = Instant::now();
        if !self.is_settled() {
            self.predecessors.is_unsettled(now);
        }
        self.predecessors.forget_old(now);
    }

    /// Remembers of a port whether it waits for the commit of a generation, or for its pod, and which generation has
    /// added it. `None`: it has gone.
    pub(super) fn note_early(&mut self, side: Side, port: &Port, seen: Option<(Counts, u64)>) {
        let of = (port.clone(), side);
        match seen {
            // Of most, the first one.
            None | Some((_, 0)) => self.since.remove(&of),
            Some((_, since)) => self.since.insert(of.clone(), since),
        };
        if matches!(seen, Some((Counts::IsEarly, _))) {
            self.early.insert(of);
        } else {
            self.early.remove(&of);
        }
    }

    /// The ports of a job that wait for the commit of a generation, or for their pods.
    pub(super) fn early_of(&self, job: &Arc<str>) -> Vec<(Port, Side)> {
        let least = Port { pe: Pe { job: Arc::clone(job), id: 0 }, id: 0 };
        let from = self.early.range((least, Side::Export)..);
        from.take_while(|(port, _)| port.pe.job == *job).cloned().collect()
    }

    /// The ports of a PE that its pod has by now and did not have, or the other way round. This is asked whenever
    /// somebody has written anything into the PE, so only those are given that have changed.
    pub(super) fn changed_by(&mut self, pe: &Pe, mirrors: &Mirrors, key: &Key) -> Vec<(Port, Side)> {
        if !self.knows(pe) {
            return Vec::new();
        }
        // What was read of it before is forgotten, if it has gone.
        let Some(text) = self.texts.of(pe, key, &mirrors.processing_elements) else { return Vec::new() };
        let Some(job) = self.jobs.get(&pe.job) else { return Vec::new() };
        let Some(committed) = job.generation.filter(|_| text.is_of(&job.uid)) else { return Vec::new() };
        let exports = self.board.exports_of(pe).map(|port| (port.clone(), Side::Export));
        let imports = self.board.imports_of(pe).map(|port| (port.clone(), Side::Import));
        let is_other = |of: &(Port, Side)| {
            let since = self.since.get(of).copied().unwrap_or_default();
            let was_early = self.early.contains(of);
            // What is not committed waits for that, whatever the pod has.
            since <= committed && text.lacks(of.1, of.0.id, since, was_early) != was_early
        };
        exports.chain(imports).filter(is_other).collect()
    }

    /// Numbers the changes, and has what is to be put again looked at. Returns the PEs for which something has become
    /// other.
    pub(super) fn numbered(&mut self, changes: Changes, last_version: &AtomicU64) -> BTreeSet<Pe> {
        let Changes { routes, costs: mut touched, again, exports_again, panicked, steps: _, noted: _ } = changes;
        self.waiting.extend(again.iter().map(|port| (Side::Import, Arc::from(port.to_string()))));
        self.waiting.extend(exports_again.iter().map(|port| (Side::Export, Arc::from(port.to_string()))));
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

    /// The job of an object that counts: it controls the object, which is there, and has the number that the object
    /// names.
    pub(super) fn job_of<K: kube::Resource>(
        &self,
        object: &K,
        port: &Port,
        job_id: u64,
        mirrors: &Mirrors,
        key: &Key,
    ) -> Option<CountedJob> {
        let counted = self.jobs.get(&port.pe.job)?;
        let job = mirrors.jobs.get(&key.sibling(&port.pe.job))?;
        let is_there = job.metadata.uid.as_ref() == Some(&counted.uid)
            && is_controlled_by(object.meta(), &*job)
            && job.status.as_ref().and_then(|status| status.job_id) == Some(job_id)
            && object.meta().deletion_timestamp.is_none();
        is_there.then(|| counted.clone())
    }

    /// What comes of the object of this port, which counts, and is put on the board after this. `job`: its job;
    /// `since`: the generation that has added it.
    pub(super) fn counts(
        &mut self,
        job: &CountedJob,
        (port, side): (&Port, Side),
        since: u64,
        mirrors: &Mirrors,
        key: &Key,
    ) -> Counts {
        let has_waited = self.early.contains(&(port.clone(), side));
        // A PE that is not there has no pod that could be told anything.
        let mut is_lacking = || {
            let element = key.sibling(&port.pe.to_string());
            let text = self.texts.of(&port.pe, &element, &mirrors.processing_elements);
            text.is_some_and(|text| text.is_of(&job.uid) && text.lacks(side, port.id, since, has_waited))
        };
        if job.generation.is_none_or(|committed| since > committed) || is_lacking() {
            Counts::IsEarly
        } else if job.is_suspended {
            Counts::Rests
        } else {
            Counts::Meets
        }
    }
}
