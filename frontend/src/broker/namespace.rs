//! What is known of one namespace: its board, and from which object each part of it came.
//!
//! An export or import counts while its job is there, is not being deleted, and has the number that the object names;
//! the object must have the name that follows from its port, and the job must control it. Some of what counts is on the
//! board and matches nothing (rule import-5).
//!
//! Knows: which objects count, what events are about and how many of them are listed at once, numbers of changes. Must
//! not know: other namespaces, whose turn it is, how long a look takes, how objects are read.
//!
//! Invariant: nothing is kept of PEs that neither export nor import: whoever has looked at an object has its PE
//! forgotten, if that has gone.

use crate::broker::allowance::AllowanceOfEvents;
use crate::broker::arrivals::{Arrival, Handling, Seen};
use crate::broker::facts::Problem;
use crate::broker::predecessors::{LeftOut, Predecessors, Side};
use crate::broker::texts::KnownTexts;
use crate::mirrors::{ByOwner, Mirrors};
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use streams_api::{Job, names};
use streams_broker::{Board, Changes, Matched, Pe, Port, TooManyRoutes};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::Mirrored;
use tokio::time::Instant;

/// So many exports and imports of a job are not listed because of an event if none of them may be looked at then.
const MANY: usize = 64;
/// Objects that wait when no more are listed in a turn, which looks at no more.
const ENOUGH: usize = 256;

/// The name of an export or import.
pub(super) type ObjectName = (Side, Arc<str>);

/// The board of a namespace, and what of it came from which object.
#[derive(Default)]
pub(super) struct Namespace {
    pub(super) board: Board,
    /// The ports of all exports and imports that are on the board.
    pub(super) objects: BTreeMap<ObjectName, Port>,
    /// Why what would be on the board is not. So nobody who asks how an object stands has to read it.
    pub(super) problems: BTreeMap<ObjectName, Problem>,
    /// The jobs whose exports and imports count.
    jobs: BTreeMap<Arc<str>, CountedJob>,
    /// Ports of exports and imports of generations that are not committed, and those that pods do not have yet.
    pub(super) early: BTreeSet<(Port, Side)>,
    /// The generations that have added ports, of those that are not of the first.
    since: BTreeMap<(Port, Side), u64>,
    /// What PEs say of their ports. Nothing is kept of those that neither export nor import.
    pub(super) texts: KnownTexts,
    /// Ports that have gone with their jobs.
    pub(super) predecessors: Predecessors,
    /// Numbers of the last changes of the routes of PEs that export or import.
    versions: BTreeMap<Pe, u64>,
    /// The exports and imports that are still to be looked at. It is not settled before all are.
    pub(super) waiting: BTreeSet<ObjectName>,
    /// The jobs of which all exports and imports are to be looked at, and of which these are not listed yet.
    pub(super) waiting_jobs: BTreeSet<Arc<str>>,
    /// Those that are on the board as they were a moment ago, and are to be looked at again.
    pub(super) late: BTreeSet<ObjectName>,
    /// The one that was looked at last in a turn.
    pub(super) looked_at_last: Option<ObjectName>,
    /// The one that somebody reads because it takes long, as long as nothing of it was taken over meanwhile.
    pub(super) being_read: Option<Arc<ObjectName>>,
    /// PEs that are told of what has become other, once it is settled. It knows all of them.
    pub(super) untold: BTreeSet<Pe>,
    /// What may be done at once because of events about jobs and PEs.
    pub(super) of_events: AllowanceOfEvents,
    /// Whether it was said already that something panicked.
    has_panicked: bool,
    /// Whoever has found it before it went finds another one now.
    pub(super) is_gone: bool,
}

/// A job whose exports and imports count: it is there, has its number, and is not being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CountedJob {
    uid: String,
    /// When it was created, as the API server says.
    created: Option<Timestamp>,
    /// Its committed generation.
    generation: Option<u64>,
    is_suspended: bool,
}

impl CountedJob {
    /// The job, if it is one.
    fn of(job: &Job) -> Option<Self> {
        let (meta, status) = (&job.metadata, job.status.as_ref()?);
        status.job_id?;
        let uid = meta.uid.clone().filter(|_| meta.deletion_timestamp.is_none())?;
        let created = meta.creation_timestamp.as_ref().map(|created| created.0);
        Some(Self { uid, created, generation: status.generation, is_suspended: job.spec.suspend })
    }

    /// Whether all that counted and matched before does so now: at most more generations are committed.
    fn is_as_before(&self, before: &Self) -> bool {
        self.uid == before.uid
            && self.is_suspended == before.is_suspended
            && self.generation.is_some() == before.generation.is_some()
            && self.generation >= before.generation
    }
}

/// The generation that has added an export or import.
fn since(object: &ObjectMeta) -> u64 {
    let added = object.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_SINCE_GENERATION));
    added.and_then(|added| added.parse().ok()).unwrap_or_default()
}

/// What comes of an object that counts (rule import-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// It is there, and matches nothing: its job rests.
    Rests,
    /// The same: it waits for a commit, or for the pod of its PE.
    IsEarly,
    /// It matches what it matches.
    Meets,
}

/// What has come of a look at an object.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) changes: Changes,
    /// The PE, if it has one port more or less.
    pub(super) pe: Option<Pe>,
    /// What it has taken to look at the object, in steps of evaluations, besides what has become other by that.
    pub(super) steps: usize,
}

impl Namespace {
    pub(super) fn is_empty(&self) -> bool {
        // What is early is among the others, and what waits, or has a problem, counts only with its job.
        self.objects.is_empty() && self.jobs.is_empty()
    }

    /// Whether it is known what matches.
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.waiting_jobs.is_empty() && self.board.is_settled()
    }

    /// Has an object that somebody has written looked at in a turn. If the board has it, that is as if the mirror were
    /// told of it a moment later, and what is known stays known: else whoever writes an object faster than its turns
    /// come would keep everybody from being told anything.
    pub(super) fn be_late(&mut self, object: ObjectName) {
        let has_it = self.objects.contains_key(&object);
        if has_it {
            self.late.insert(object)
        } else {
            self.waiting.insert(object)
        };
    }

    /// Whether it is known what matches, but for what comes of this object.
    pub(super) fn is_settled_but_for(&self, object: &ObjectName) -> bool {
        let is_known = self.board.is_settled() && self.waiting_jobs.is_empty();
        is_known && self.waiting.iter().all(|waiting| waiting == object)
    }

    /// Which object is to be looked at in a turn: the next after the one that was looked at last, so that all have
    /// their looks, however often one of them is written.
    pub(super) fn next_to_look_at(&self) -> Option<ObjectName> {
        let next_after = |last: Bound<&ObjectName>| {
            let next = |of: &BTreeSet<ObjectName>| of.range::<ObjectName, _>((last, Bound::Unbounded)).next().cloned();
            next(&self.waiting).into_iter().chain(next(&self.late)).min()
        };
        let after_last = self.looked_at_last.as_ref().and_then(|last| next_after(Bound::Excluded(last)));
        after_last.or_else(|| next_after(Bound::Unbounded))
    }

    /// Whether the PE exports or imports.
    pub(super) fn knows(&self, pe: &Pe) -> bool {
        self.board.exports_of(pe).next().is_some() || self.board.imports_of(pe).next().is_some()
    }

    /// Takes over what a mirror had of an export or import, which does not wait for that any more. Nothing of it that
    /// is earlier may be taken over after this.
    pub(super) fn take_over<K: Mirrored, F>(
        &mut self,
        handling: &Handling<K, F>,
        arrival: Arrival<K, F>,
        key: &Key,
        mirrors: &Mirrors,
    ) -> Looked {
        let side = handling.side;
        let name = (side, Arc::clone(&key.name));
        self.waiting.remove(&name);
        self.late.remove(&name);
        self.being_read.take_if(|being_read| **being_read == name);
        let Arrival { steps, seen, .. } = arrival;
        let mut problem = None;
        let found = seen.and_then(|Seen { meta, port, job_id, fact }| {
            let is_named = *key.name == *port.to_string();
            let job = self.job_of(&meta, &port, job_id, mirrors, key).filter(|_| is_named)?;
            let (fact, since) = (fact.map_err(|why| problem = Some(why)).ok()?, since(&meta));
            let counts = self.counts(&job, (&port, side), since, mirrors, key);
            Some((port, job_id, (counts, since), fact))
        });
        match problem {
            Some(problem) => self.problems.insert(name.clone(), problem),
            None => self.problems.remove(&name),
        };
        let port = found.as_ref().map(|(port, ..)| port).or_else(|| self.objects.get(&name)).cloned();
        let Some(port) = port else { return Looked { steps, ..Looked::default() } };
        self.note_early(side, &port, found.as_ref().map(|(.., seen, _)| *seen));
        let job_before = (handling.job_before)(&self.board, &port);
        let job_after = found.as_ref().map(|(_, job_id, ..)| *job_id);
        self.predecessors.note(side, &port, job_before, job_after, Instant::now());
        let Some((.., (counts, _), fact)) = found else {
            self.objects.remove(&name);
            return Looked { changes: (handling.remove)(&mut self.board, &port), pe: Some(port.pe), steps };
        };
        let fact = if counts == Counts::Meets { fact } else { (handling.at_rest)(fact) };
        let changes = (handling.put)(&mut self.board, fact);
        let is_new = self.objects.insert(name, port.clone()).is_none();
        Looked { changes, pe: is_new.then_some(port.pe), steps }
    }

    /// Keeps nothing of the PE, if it neither exports nor imports any more. Whether that is so.
    pub(super) fn forget_if_gone(&mut self, pe: &Pe) -> bool {
        let is_gone = !self.knows(pe);
        if is_gone {
            self.versions.remove(pe);
            self.untold.remove(pe);
            self.texts.forget(pe);
        }
        is_gone
    }

    /// The number of the last change of the routes of a PE.
    pub(super) fn version(&self, pe: &Pe) -> u64 {
        self.versions.get(pe).copied().unwrap_or_default()
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
    fn note_early(&mut self, side: Side, port: &Port, seen: Option<(Counts, u64)>) {
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

    /// Takes over what the mirror has of a job. What is to be looked at because of that: all that the job exports and
    /// imports, if the job counts now and did not, or matches something now and did not, or the other way round. If
    /// another generation is committed, what has waited for that.
    pub(super) fn changed_by_job(&mut self, key: &Key, mirrors: &Mirrors) -> Vec<ObjectName> {
        let job = mirrors.jobs.get(key).and_then(|job| CountedJob::of(&job));
        let before = match job.clone() {
            Some(job) => self.jobs.insert(Arc::clone(&key.name), job),
            None => self.jobs.remove(&key.name),
        };
        match (before, job) {
            (None, None) => Vec::new(),
            // A job is told of whenever a word of its status is another one.
            (Some(before), Some(job)) if job.is_as_before(&before) => {
                let is_committed = job.generation != before.generation;
                if is_committed { self.early_of(&key.name) } else { Vec::new() }
            }
            _ => self.all_of_job(key, mirrors),
        }
    }

    /// All that a job exports and imports. If these are many, and none of them may be looked at now, they are not even
    /// listed: the job waits for that, however often it changes.
    fn all_of_job(&mut self, key: &Key, mirrors: &Mirrors) -> Vec<ObjectName> {
        let has_many = || {
            let (exports, imports) = (&mirrors.exports, &mirrors.imports);
            exports.count_of_job(key, MANY) + imports.count_of_job(key, MANY) >= MANY
        };
        let may_look = self.is_settled() && !self.of_events.is_used_up(Instant::now());
        if !may_look && has_many() {
            self.waiting_jobs.insert(Arc::clone(&key.name));
            return Vec::new();
        }
        listed(key, mirrors)
    }

    /// Lists what the jobs that wait for that export and import, until there is enough for a turn.
    pub(super) fn list_waiting_jobs(&mut self, namespace: &Arc<str>, mirrors: &Mirrors) {
        while self.waiting.len() < ENOUGH
            && let Some(name) = self.waiting_jobs.pop_first()
        {
            self.waiting.extend(listed(&Key { namespace: Arc::clone(namespace), name }, mirrors));
        }
    }

    /// What waits for the commit of a generation of a job, or for the pods of the job.
    fn early_of(&self, job: &Arc<str>) -> Vec<ObjectName> {
        let least = Port { pe: Pe { job: Arc::clone(job), id: 0 }, id: 0 };
        let from = self.early.range((least, Side::Export)..);
        from.take_while(|(port, _)| port.pe.job == *job).map(name_of).collect()
    }

    /// What is to be looked at because of a PE: those ports that its pod has by now and did not have, or the other way
    /// round. This is asked whenever somebody has written anything into the PE, so only those are given that have
    /// changed.
    pub(super) fn changed_by_pe(&mut self, pe: &Pe, key: &Key, mirrors: &Mirrors) -> Vec<ObjectName> {
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
        exports.chain(imports).filter(is_other).map(|of| name_of(&of)).collect()
    }

    /// Numbers the changes, and has what is to be put again looked at. Returns the PEs for which something has become
    /// other.
    pub(super) fn numbered(&mut self, changes: Changes, last_version: &AtomicU64) -> BTreeSet<Pe> {
        let Changes { routes, costs: mut touched, again, exports_again, panicked, steps: _, noted: _ } = changes;
        self.waiting.extend(again.into_iter().map(|port| name_of(&(port, Side::Import))));
        self.waiting.extend(exports_again.into_iter().map(|port| name_of(&(port, Side::Export))));
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
    fn job_of(
        &self,
        object: &ObjectMeta,
        port: &Port,
        job_id: u64,
        mirrors: &Mirrors,
        key: &Key,
    ) -> Option<CountedJob> {
        let counted = self.jobs.get(&port.pe.job)?;
        let job = mirrors.jobs.get(&key.sibling(&port.pe.job))?;
        let is_there = job.metadata.uid.as_ref() == Some(&counted.uid)
            && is_controlled_by(object, &*job)
            && job.status.as_ref().and_then(|status| status.job_id) == Some(job_id)
            && object.deletion_timestamp.is_none();
        is_there.then(|| counted.clone())
    }

    /// What comes of the object of this port, which counts, and is put on the board after this. `job`: its job;
    /// `since`: the generation that has added it.
    fn counts(
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

/// The names of all that a job exports and imports.
fn listed(job: &Key, mirrors: &Mirrors) -> Vec<ObjectName> {
    let exports = mirrors.exports.kept_of_job(job).into_iter().map(|(export, _)| (Side::Export, export.name));
    let imports = mirrors.imports.kept_of_job(job).into_iter().map(|(import, _)| (Side::Import, import.name));
    exports.chain(imports).collect()
}

/// The name of the object of a port.
fn name_of((port, side): &(Port, Side)) -> ObjectName {
    (*side, Arc::from(port.to_string()))
}
