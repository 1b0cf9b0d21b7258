//! The boards, one for each namespace, as the mirrors of exports, imports and jobs are.
//!
//! An export or import counts while its job is there, is not being deleted, and has the number that the object names;
//! the object must have the name that follows from its port, and the job must control it. Some of what counts is on the
//! board and matches nothing (rule import-5).
//!
//! What somebody writes into an object is taken over by whoever is told of it, which may be the task that polls the
//! mirrors of all namespaces. It looks at some of the ports that an event is about, of which a job may have thousands,
//! and tries a little of what may match, and [`Boards::settle`] does the rest, namespace by namespace (rule import-10).
//! Until then the namespace is not *settled*, and nobody is told anything of it.
//!
//! Invariants:
//! * What a board knows of an object is what the mirror has of it, once everybody who was told of a change has looked:
//!   the mirror is read under the lock of the namespace. What has not been looked at yet is written down there.
//! * Whoever asks for a namespace waits for nobody who asks for another one. Of all that an event is about, nobody
//!   looks at more than takes a [`SLICE`], nor tries more than another one, but for the look and the evaluation with
//!   which these end. Whoever asks whether a namespace is settled waits for nobody.
//! * Routes that may be thousands are put together when the lock is free again.
//! * A namespace that is not settled, or was not until now, or has somebody to tell, has a turn to come.
//! * Nothing is kept of a namespace without jobs, exports and imports.
//!
//! Knows: the mirrors of exports, imports and jobs. Must not know: who asks, how PEs are told.

use crate::broker::answers::{Limit, Message, Says, Standing, ToTell, Untold};
use crate::broker::facts::{self, Problem};
use crate::broker::line::Line;
use crate::broker::namespace::{CountedJob, Counts, Namespace, SharedNamespace, since};
use crate::broker::predecessors::{LeftOut, Side};
use crate::mirrors::{ByOwner, Mirrors};
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use streams_api::{Export, Import, Job, ProcessingElement, names};
use streams_broker::{Board, Changes, Pe, Port, Receivers, Routes, TooManyRoutes, TooManySteps};
use streams_kubernetes::Key;
use tokio::sync::Notify;

/// What is tried at a time, in steps of evaluations: a millisecond or two, in which a subscription is tried with two
/// thousand exports. So long whoever is told of a change is held up, and whoever asks for the namespace meanwhile.
pub(super) const SLICE: usize = 1 << 20;
/// Steps for a look at an object, besides those for reading its texts: it is unpacked, read, and put on the board.
const LOOK_STEPS: usize = 4 << 10;

/// Ports of a PE of which others are told at once. Whoever is told of a PE looks at all of its ports, so if it has more
/// they are told in turns: once of all that has become other by then.
const FEW_PORTS: usize = 64;

/// What may still be done because of one event, in steps of evaluations. The rest is done in turns.
struct Allowance {
    /// For looks at objects.
    looks: usize,
    /// For trying what may match.
    tries: usize,
}

/// What has come of a look at an object.
struct Looked {
    changes: Changes,
    /// Of which it has one port more or less.
    pe: Option<Pe>,
    /// What it has taken to read the object, in steps of evaluations.
    steps: usize,
}

type Subscriber = Box<dyn Fn(&Key) + Send + Sync>;
type SettledSubscriber = Box<dyn Fn(&str) + Send + Sync>;

/// The boards of all namespaces. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Boards {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    mirrors: Mirrors,
    namespaces: Mutex<BTreeMap<Arc<str>, Arc<SharedNamespace>>>,
    subscribers: RwLock<Vec<Subscriber>>,
    settled_subscribers: RwLock<Vec<SettledSubscriber>>,
    /// Namespaces that are not settled, or were not when they came here.
    line: Mutex<Line>,
    /// Wakes whoever settles them.
    pub(super) is_any_unsettled: Notify,
    /// The number of the last change of routes.
    pub(super) last_version: AtomicU64,
}

impl Boards {
    /// Boards that follow these mirrors.
    pub(crate) fn of(mirrors: &Mirrors) -> Self {
        let shared = Shared {
            mirrors: mirrors.clone(),
            namespaces: Mutex::new(BTreeMap::new()),
            subscribers: RwLock::new(Vec::new()),
            settled_subscribers: RwLock::new(Vec::new()),
            line: Mutex::default(),
            is_any_unsettled: Notify::new(),
            last_version: AtomicU64::new(0),
        };
        let boards = Self { shared: Arc::new(shared) };
        mirrors.jobs.subscribe({
            let boards = boards.clone();
            move |job: &Job| boards.look_at_job(&Key::of(job))
        });
        mirrors.exports.subscribe({
            let boards = boards.clone();
            move |export: &Export| boards.look_at_export(&Key::of(export))
        });
        mirrors.imports.subscribe({
            let boards = boards.clone();
            move |import: &Import| boards.look_at_import(&Key::of(import))
        });
        mirrors.processing_elements.subscribe({
            let boards = boards.clone();
            move |element: &ProcessingElement| boards.look_at_pe(&Key::of(element))
        });
        boards
    }

    /// Whether it is known what matches in a namespace. Nobody is waited for.
    pub(crate) fn is_settled(&self, namespace: &str) -> bool {
        self.namespaces().get(namespace).is_none_or(|namespace| namespace.is_settled())
    }

    /// Whether the boards have everything that there is: until then they know a part of it, and nobody may be told
    /// that it is all.
    pub(crate) fn are_filled(&self) -> bool {
        let mirrors = &self.shared.mirrors;
        mirrors.jobs.is_synced()
            && mirrors.exports.is_synced()
            && mirrors.imports.is_synced()
            && mirrors.processing_elements.is_synced()
    }

    /// Calls `subscriber` with the key (`<job>-<number>`) of each PE whose routes have become others, or one of whose
    /// exports and imports counts now and did not, or the other way round; when its namespace is settled. It must not
    /// block.
    pub(crate) fn subscribe(&self, subscriber: impl Fn(&Key) + Send + Sync + 'static) {
        self.shared.subscribers.write().push(Box::new(subscriber));
    }

    /// Calls `subscriber` with the name of each namespace that was not settled and is. It must not block.
    pub(super) fn subscribe_to_settled(&self, subscriber: impl Fn(&str) + Send + Sync + 'static) {
        let mut subscribers = self.shared.settled_subscribers.write();
        subscribers.push(Box::new(subscriber));
    }

    /// The exports of a PE, by the names of their objects.
    pub(crate) fn exports_of(&self, key: &Key) -> Vec<Key> {
        self.objects_of(key, |board, pe| board.exports_of(pe).cloned().collect())
    }

    /// The imports of a PE, by the names of their objects.
    pub(crate) fn imports_of(&self, key: &Key) -> Vec<Key> {
        self.objects_of(key, |board, pe| board.imports_of(pe).cloned().collect())
    }

    fn objects_of(&self, key: &Key, find: impl Fn(&Board, &Pe) -> Vec<Port>) -> Vec<Key> {
        let Some(pe) = pe_of(&key.name) else { return Vec::new() };
        let ports = self.read(&key.namespace, |namespace| find(&namespace.board, &pe)).unwrap_or_default();
        ports.iter().map(|port| key.sibling(&port.to_string())).collect()
    }

    /// Whether the PE exports or imports.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        let knows = |pe: Pe| self.read(&key.namespace, |namespace| namespace.knows(&pe));
        pe_of(&key.name).and_then(knows).unwrap_or_default()
    }

    /// All PEs that export or import.
    pub(crate) fn pes(&self) -> BTreeSet<Key> {
        let namespaces = self.namespaces().clone();
        let of_namespace = |(name, namespace): (&Arc<str>, &Arc<SharedNamespace>)| -> Vec<Key> {
            let namespace = namespace.lock();
            let ports = namespace.exports.values().chain(namespace.imports.values());
            ports.map(|port| key_of(name, &port.pe)).collect()
        };
        namespaces.iter().flat_map(of_namespace).collect()
    }

    /// The routes that a PE is told; none if nobody knows it.
    ///
    /// # Errors
    /// They are not known yet, or too many.
    #[cfg(test)]
    pub(crate) fn routes(&self, namespace: &str, pe: &Pe) -> Result<Routes, Untold> {
        Ok(self.to_tell(namespace, pe, None)?.matched.routes())
    }

    /// What the routes of a PE are made of, for its pod, which was created then. There may be thousands, and nobody
    /// else can look at the namespace, or change it, while this is taken off its board; the routes are made after that.
    ///
    /// # Errors
    /// They are not known yet, or too many.
    pub(crate) fn to_tell(&self, namespace: &str, pe: &Pe, created: Option<Timestamp>) -> Result<ToTell, Untold> {
        self.told(namespace, |namespace| {
            let mut matched = namespace.board.matched(pe)?;
            let left_out = namespace.leave_out(&mut matched, pe, created);
            Ok(ToTell { matched, left_out })
        })
    }

    /// The pod of a PE was answered with routes of which this was left out. It need not be again.
    pub(crate) fn has_answered(&self, namespace: &str, pe: &Pe, left_out: LeftOut) {
        if !left_out.is_empty() {
            self.read(namespace, |namespace| namespace.predecessors.answered(pe, left_out));
        }
    }

    /// The part of it that is about the exports of the PE.
    ///
    /// # Errors
    /// The routes of the PE are not known yet, or too many.
    pub(crate) fn receivers(&self, namespace: &str, pe: &Pe) -> Result<Receivers, Untold> {
        self.told(namespace, |namespace| namespace.board.receivers(pe))
    }

    /// Whether a PE has so few routes that they are made in no time.
    ///
    /// # Errors
    /// They are not known yet, or too many.
    pub(crate) fn has_few_routes(&self, namespace: &str, pe: &Pe) -> Result<bool, Untold> {
        self.told(namespace, |namespace| namespace.board.has_few_routes(pe))
    }

    /// What a PE is to be told of its routes, whose oldest pod was created then.
    ///
    /// # Errors
    /// They are not known yet, or too many.
    pub(crate) fn message(&self, namespace: &str, pe: &Pe, created: Option<Timestamp>) -> Result<Message, Untold> {
        self.told(namespace, |namespace| {
            let version = namespace.versions.get(pe).copied().unwrap_or_default();
            if namespace.leaves_something_out(pe, created)? {
                return Ok(Message { text: Routes::ask().to_owned(), version, says: Says::AskTwice });
            }
            let text = namespace.board.message(pe)?;
            let says = if text == Routes::ask() { Says::Ask } else { Says::All };
            Ok(Message { text, version, says })
        })
    }

    fn told<T>(&self, name: &str, find: impl Fn(&mut Namespace) -> Result<T, TooManyRoutes>) -> Result<T, Untold> {
        if !self.is_settled(name) {
            return Err(Untold::Unsettled);
        }
        let found = self.read(name, |namespace| {
            namespace.forget_old();
            if namespace.is_settled() { Ok(find(namespace)?) } else { Err(Untold::Unsettled) }
        });
        // Of a namespace that nobody knows there is nothing to tell.
        found.unwrap_or_else(|| Ok(find(&mut Namespace::default())?))
    }

    /// An export of a namespace that would send to this import if it had no filter, and that forbids filters.
    ///
    /// # Errors
    /// It takes too long to find out.
    pub(crate) fn forbids_filters(
        &self,
        namespace: &str,
        import: &streams_broker::Import,
    ) -> Result<Option<String>, TooManySteps> {
        let found = self.read(namespace, |namespace| {
            let forbids = namespace.board.forbids_filters(import, SLICE)?;
            Ok(forbids.map(ToString::to_string))
        });
        found.unwrap_or(Ok(None))
    }

    /// How an export stands.
    pub(crate) fn export(&self, object: &Export) -> Standing {
        let key = Key::of(object);
        self.standing(&key, facts::export(object).err(), |namespace| {
            let port = namespace.exports.get(&key.name)?;
            let limit = namespace.board.can_be_told(&port.pe).err().map(Limit::from);
            let limit = limit.or_else(|| namespace.board.export_without_room(port).map(Limit::NoRoom));
            Some((namespace.board.has_importers(port), limit))
        })
    }

    /// How an import stands.
    pub(crate) fn import(&self, object: &Import) -> Standing {
        let key = Key::of(object);
        self.standing(&key, facts::import(object).err(), |namespace| {
            let port = namespace.imports.get(&key.name)?;
            let limit = namespace.board.can_be_told(&port.pe).err().map(Limit::from);
            let limit = limit.or_else(|| namespace.board.without_room(port).map(Limit::NoRoom));
            let limit = limit.or_else(|| namespace.board.too_costly(port).map(Limit::TooCostly));
            Some((namespace.board.has_exporters(port), limit))
        })
    }

    /// Who gets what an export sends: names of imports, at most so many; and how many there are.
    pub(crate) fn importers(&self, object: &Export, most: usize) -> (Vec<String>, usize) {
        let (key, port) = (Key::of(object), facts::output_port(object));
        self.others(&key, |board| board.importers(&port, most))
    }

    /// Who sends to an import: names of exports, at most so many; and how many there are.
    pub(crate) fn exporters(&self, object: &Import, most: usize) -> (Vec<String>, usize) {
        let (key, port) = (Key::of(object), facts::input_port(object));
        self.others(&key, |board| board.exporters(&port, most))
    }

    fn others(&self, key: &Key, find: impl Fn(&Board) -> (Vec<Port>, usize)) -> (Vec<String>, usize) {
        let found = self.read(&key.namespace, |namespace| find(&namespace.board));
        let (ports, count) = found.unwrap_or_default();
        (ports.iter().map(ToString::to_string).collect(), count)
    }

    fn standing(
        &self,
        key: &Key,
        problem: Option<Problem>,
        find: impl Fn(&Namespace) -> Option<(bool, Option<Limit>)>,
    ) -> Standing {
        let found = self.read(&key.namespace, |namespace| find(namespace)).flatten();
        match (problem, found) {
            (Some(problem), _) => Standing::Malformed(problem),
            (None, Some((is_connected, Some(limit)))) => Standing::Limited { is_connected, limit },
            (None, Some((true, None))) => Standing::Connected,
            (None, Some((false, None))) => Standing::Alone,
            (None, None) => Standing::Unknown,
        }
    }

    /// What may be done because of an event, or in a turn. Where something is left of what was changed before, whoever
    /// changes something all the time has nothing more tried.
    fn allowance(&self, namespace: &str) -> Allowance {
        Allowance { looks: SLICE, tries: if self.is_settled(namespace) { SLICE } else { 0 } }
    }

    /// Takes over what the mirror has of an export. Whoever has seen it in the mirror may call this at any time.
    pub(crate) fn look_at_export(&self, key: &Key) {
        self.look_within(Side::Export, key, &mut self.allowance(&key.namespace));
    }

    /// Takes over what the mirror has of an import. Whoever has seen it in the mirror may call this at any time.
    pub(crate) fn look_at_import(&self, key: &Key) {
        self.look_within(Side::Import, key, &mut self.allowance(&key.namespace));
    }

    fn look_within(&self, side: Side, key: &Key, allowance: &mut Allowance) {
        self.look((side, key), allowance, |namespace, mirrors| match side {
            Side::Export => Self::look_for_export(key, namespace, mirrors),
            Side::Import => Self::look_for_import(key, namespace, mirrors),
        });
    }

    /// Takes over what the mirror has of an export.
    fn look_for_export(key: &Key, namespace: &mut Namespace, mirrors: &Mirrors) -> Looked {
        let mut steps = 0;
        let found = mirrors.exports.get(key).and_then(|object| {
            steps = facts::steps_of_export(&object);
            let spec = &object.spec;
            let is_named = *key.name == *names::export(&spec.job_name, spec.pe_id, spec.port_id);
            let port = facts::output_port(&object);
            let job = namespace.job_of(&*object, &port, spec.job_id, mirrors, key).filter(|_| is_named)?;
            let (fact, since) = (facts::export(&object).ok()?, since(&object.metadata));
            Some((namespace.counts(&job, (&port, Side::Export), since, mirrors, key), since, fact))
        });
        let port = found.as_ref().map(|(.., fact)| &fact.port).or_else(|| namespace.exports.get(&key.name)).cloned();
        let seen = found.as_ref().map(|(counts, since, _)| (*counts, *since));
        port.iter().for_each(|port| namespace.note_early(Side::Export, port, seen));
        let fact = found.map(|(counts, _, fact)| if counts == Counts::Meets { fact } else { fact.for_nobody() });
        match fact {
            Some(fact) => {
                let port = fact.port.clone();
                let changes = namespace.put_export(fact);
                let is_new = namespace.exports.insert(Arc::clone(&key.name), port.clone()).is_none();
                Looked { changes, pe: is_new.then_some(port.pe), steps }
            }
            None => match namespace.exports.remove(&key.name) {
                Some(port) => Looked { changes: namespace.remove_export(&port), pe: Some(port.pe), steps },
                None => Looked { changes: Changes::default(), pe: None, steps },
            },
        }
    }

    /// Takes over what the mirror has of an import.
    fn look_for_import(key: &Key, namespace: &mut Namespace, mirrors: &Mirrors) -> Looked {
        let mut steps = 0;
        let found = mirrors.imports.get(key).and_then(|object| {
            steps = facts::steps_of_import(&object);
            let spec = &object.spec;
            let is_named = *key.name == *names::import(&spec.job_name, spec.pe_id, spec.port_id);
            let port = facts::input_port(&object);
            let job = namespace.job_of(&*object, &port, spec.job_id, mirrors, key).filter(|_| is_named)?;
            let (fact, since) = (facts::import(&object).ok()?, since(&object.metadata));
            Some((namespace.counts(&job, (&port, Side::Import), since, mirrors, key), since, fact))
        });
        let port = found.as_ref().map(|(.., fact)| &fact.port).or_else(|| namespace.imports.get(&key.name)).cloned();
        let seen = found.as_ref().map(|(counts, since, _)| (*counts, *since));
        port.iter().for_each(|port| namespace.note_early(Side::Import, port, seen));
        let fact = found.map(|(counts, _, fact)| if counts == Counts::Meets { fact } else { fact.of_nothing() });
        match fact {
            Some(fact) => {
                let port = fact.port.clone();
                let changes = namespace.put_import(fact);
                let is_new = namespace.imports.insert(Arc::clone(&key.name), port.clone()).is_none();
                Looked { changes, pe: is_new.then_some(port.pe), steps }
            }
            None => match namespace.imports.remove(&key.name) {
                Some(port) => Looked { changes: namespace.remove_import(&port), pe: Some(port.pe), steps },
                None => Looked { changes: Changes::default(), pe: None, steps },
            },
        }
    }

    /// Looks at all that a job exports and imports, if the job counts now and did not, or matches something now and did
    /// not, or the other way round. If another generation is committed, it looks at what has waited for that.
    fn look_at_job(&self, key: &Key) {
        let mirrors = &self.shared.mirrors;
        let objects = self.change(&key.namespace, |namespace| {
            let job = mirrors.jobs.get(key).and_then(|job| CountedJob::of(&job));
            let before = match job.clone() {
                Some(job) => namespace.jobs.insert(Arc::clone(&key.name), job),
                None => namespace.jobs.remove(&key.name),
            };
            let objects = match (before, job) {
                (None, None) => Vec::new(),
                // A job is told of whenever a word of its status is another one.
                (Some(before), Some(job)) if job.is_as_before(&before) => {
                    let is_committed = job.generation != before.generation;
                    if is_committed { objects_of(&namespace.early_of(&key.name)) } else { Vec::new() }
                }
                _ => {
                    let exports = mirrors.exports.kept_of_job(key).into_iter();
                    let imports = mirrors.imports.kept_of_job(key).into_iter();
                    let exports = exports.map(|(export, _)| (Side::Export, export.name));
                    exports.chain(imports.map(|(import, _)| (Side::Import, import.name))).collect()
                }
            };
            self.let_wait(&key.namespace, namespace, objects)
        });
        self.look_at_some(&key.namespace, objects);
    }

    /// Looks at those ports of a PE that its pod has by now and did not, or the other way round.
    fn look_at_pe(&self, key: &Key) {
        let Some(pe) = pe_of(&key.name) else { return };
        let mirrors = &self.shared.mirrors;
        let objects = self.read(&key.namespace, |namespace| {
            let changed = objects_of(&namespace.changed_by(&pe, mirrors, key));
            self.let_wait(&key.namespace, namespace, changed)
        });
        self.look_at_some(&key.namespace, objects.unwrap_or_default());
    }

    /// Writes down the objects that an event is about. If there are several, the namespace is not settled before all
    /// have been looked at: nobody is told what comes of half an event, and nobody as often as there are objects.
    /// Returns those of which some may be looked at because of the event. These are none if something of the namespace
    /// waits for a turn already: whoever changes something all the time has nothing more looked at by that.
    fn let_wait(
        &self,
        name: &Arc<str>,
        namespace: &mut Namespace,
        objects: Vec<(Side, Arc<str>)>,
    ) -> Vec<(Side, Arc<str>)> {
        let was_settled = namespace.is_settled();
        if objects.len() > 1 || !was_settled && !objects.is_empty() {
            namespace.waiting.extend(objects.iter().cloned());
            self.have_a_turn(name);
        }
        if was_settled { objects } else { Vec::new() }
    }

    /// Looks at the first of the objects that an event is about.
    fn look_at_some(&self, namespace: &Arc<str>, objects: Vec<(Side, Arc<str>)>) {
        let mut allowance = Allowance { looks: SLICE, tries: SLICE };
        for (side, name) in objects {
            if allowance.looks == 0 {
                break;
            }
            self.look_within(side, &Key { namespace: Arc::clone(namespace), name }, &mut allowance);
        }
    }

    /// Looks at some of what waits for that.
    pub(super) fn look_at_waiting(&self, namespace: &Arc<str>) {
        let mut allowance = self.allowance(namespace);
        while allowance.looks > 0
            && let Some((side, name)) = self.read(namespace, |namespace| namespace.waiting.first().cloned()).flatten()
        {
            self.look_within(side, &Key { namespace: Arc::clone(namespace), name }, &mut allowance);
        }
    }

    fn have_a_turn(&self, namespace: &Arc<str>) {
        self.line().join(namespace);
        self.shared.is_any_unsettled.notify_one();
    }

    /// Makes the change of a board that comes of a look at an object.
    fn look(
        &self,
        (side, key): (Side, &Key),
        allowance: &mut Allowance,
        change: impl FnOnce(&mut Namespace, &Mirrors) -> Looked,
    ) {
        let last_version = &self.shared.last_version;
        let touched = self.change(&key.namespace, |namespace| {
            // What was left to be tried before this waits for its turn.
            let (was_settled, was_tried) = (namespace.is_settled(), namespace.board.is_settled());
            namespace.waiting.remove(&(side, Arc::clone(&key.name)));
            let Looked { changes, pe, steps } = change(namespace, &self.shared.mirrors);
            allowance.looks = allowance.looks.saturating_sub(LOOK_STEPS + steps + changes.noted);
            let mut touched = namespace.numbered(changes, last_version);
            if was_tried {
                let settled = namespace.board.settle(allowance.tries);
                allowance.tries = allowance.tries.saturating_sub(settled.steps);
                touched.extend(namespace.numbered(settled, last_version));
            }
            namespace.forget_old();
            let gone = pe.iter().find(|pe| !namespace.knows(pe)).cloned();
            if let Some(gone) = &gone {
                namespace.versions.remove(gone);
                namespace.untold.remove(gone);
                namespace.texts.forget(gone);
                touched.remove(gone);
            }
            touched.extend(pe.filter(|_| gone.is_none()));
            let has_many = touched.iter().any(|pe| namespace.board.ports_of(pe) > FEW_PORTS);
            if !was_settled || !namespace.is_settled() || has_many {
                // Nobody can be told routes now, or it takes long. Whoever settles the namespace tells all together.
                self.have_a_turn(&key.namespace);
                namespace.untold.append(&mut touched);
            }
            touched.extend(gone);
            touched
        });
        self.tell(&key.namespace, touched);
    }

    pub(super) fn tell(&self, namespace: &str, touched: BTreeSet<Pe>) {
        let subscribers = self.shared.subscribers.read();
        for pe in touched {
            let pe = key_of(namespace, &pe);
            subscribers.iter().for_each(|subscriber| subscriber(&pe));
        }
    }

    pub(super) fn tell_settled(&self, namespace: &str) {
        let subscribers = self.shared.settled_subscribers.read();
        subscribers.iter().for_each(|subscriber| subscriber(namespace));
    }

    /// Looks at a namespace, if there is something of it.
    fn read<T>(&self, name: &str, find: impl FnOnce(&mut Namespace) -> T) -> Option<T> {
        let shared = self.namespaces().get(name).cloned()?;
        let mut namespace = shared.lock();
        Some(find(&mut namespace))
    }

    /// Changes a namespace, with which it may come or go.
    fn change<T>(&self, name: &Arc<str>, change: impl FnOnce(&mut Namespace) -> T) -> T {
        loop {
            let shared = Arc::clone(self.namespaces().entry(Arc::clone(name)).or_default());
            let mut namespace = shared.lock();
            if namespace.is_gone {
                continue;
            }
            let changed = change(&mut namespace);
            if namespace.is_empty() {
                namespace.is_gone = true;
                self.namespaces().remove(name);
            }
            return changed;
        }
    }

    /// All namespaces. Nobody waits for one of them meanwhile.
    pub(super) fn namespaces(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<SharedNamespace>>> {
        self.shared.namespaces.lock()
    }

    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.shared.line.lock()
    }
}

/// The objects of these ports.
fn objects_of(ports: &[(Port, Side)]) -> Vec<(Side, Arc<str>)> {
    ports.iter().map(|(port, side)| (*side, Arc::from(port.to_string()))).collect()
}

/// The PE that has this name.
fn pe_of(name: &str) -> Option<Pe> {
    let (job, id) = name.rsplit_once('-')?;
    Some(Pe { job: Arc::from(job), id: id.parse().ok()? })
}

/// The key of the object of a PE, which has the name of its Service as well.
fn key_of(namespace: &str, pe: &Pe) -> Key {
    Key::new(namespace, &pe.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::testing::{Followed, costly_namespace, export, import, job, metadata};
    use serde_json::json;

    #[test]
    fn what_counts_is_of_a_job_that_is_there() {
        let other_owner = metadata("in-0-0", "in", "another");
        let mut foreign = import("in-0-0", "in", "u2", 2);
        foreign.metadata = serde_json::from_value(other_owner).unwrap();
        let mut going = import("in-0-0", "in", "u2", 2);
        going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        let mut misnamed = import("in-0-1", "in", "u2", 2);
        misnamed.spec.port_id = 0;
        // what is asked, the import, the importing job -> whether it receives
        let table = [
            ("all is well", import("in-0-0", "in", "u2", 2), Some(job("in", "u2", Some(2))), true),
            ("no job", import("in-0-0", "in", "u2", 2), None, false),
            ("a job without number", import("in-0-0", "in", "u2", 2), Some(job("in", "u2", None)), false),
            ("another number", import("in-0-0", "in", "u2", 3), Some(job("in", "u2", Some(2))), false),
            ("an earlier job of the name", import("in-0-0", "in", "u1", 2), Some(job("in", "u2", Some(2))), false),
            ("not of the job", foreign, Some(job("in", "u2", Some(2))), false),
            ("being deleted", going, Some(job("in", "u2", Some(2))), false),
            ("another name than the port's", misnamed, Some(job("in", "u2", Some(2))), false),
        ];
        for (asked, import, importer, expected) in table {
            for is_job_first in [true, false] {
                let followed = Followed::new();
                followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
                followed.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
                let put_job = || importer.iter().for_each(|job| followed.mirrors.jobs.insert(job.clone()));
                if is_job_first {
                    put_job();
                }
                followed.mirrors.imports.insert(import.clone());
                if !is_job_first {
                    put_job();
                }
                assert_eq!(followed.receivers(), usize::from(expected), "{asked}, job first: {is_job_first}");
            }
        }
    }

    #[test]
    fn routes_come_and_go_with_jobs_and_objects_and_nothing_is_kept() {
        let followed = Followed::new();
        let mirrors = &followed.mirrors;
        let both = || ["in-0", "out-0"].map(str::to_owned).to_vec();
        mirrors.jobs.insert(job("out", "u1", Some(1)));
        mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
        assert_eq!(followed.told(), ["out-0"]);
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        assert_eq!((followed.told(), followed.receivers()), (both(), 1));
        assert_eq!(followed.boards.export(&export("out-0-0", "out", "u1", 1)), Standing::Connected);
        // Another status of the job is no reason to tell anybody.
        let mut changed = job("in", "u2", Some(2));
        changed.metadata.resource_version = Some("9".to_owned());
        mirrors.jobs.insert(changed);
        assert_eq!(followed.told(), [""; 0]);
        mirrors.jobs.remove(&Key::new("n", "in"));
        assert_eq!((followed.told(), followed.receivers()), (both(), 0));
        assert_eq!(followed.boards.export(&export("out-0-0", "out", "u1", 1)), Standing::Alone);
        mirrors.imports.remove(&Key::new("n", "in-0-0"));
        mirrors.exports.remove(&Key::new("n", "out-0-0"));
        assert_eq!(followed.boards.export(&export("out-0-0", "out", "u1", 1)), Standing::Unknown);
        mirrors.jobs.remove(&Key::new("n", "out"));
        assert_eq!(followed.told(), ["out-0"]);
        assert!(followed.boards.namespaces().is_empty());
    }

    fn pe(job: &str, id: u64) -> Pe {
        Pe { job: job.into(), id }
    }

    #[test]
    fn whoever_asks_whether_a_namespace_is_settled_waits_for_nobody() {
        let followed = Followed::new();
        costly_namespace(&followed.mirrors, "m", 20);
        let shared = Arc::clone(&followed.boards.namespaces()["m"]);
        let held = shared.lock();
        let (told, hears) = std::sync::mpsc::channel();
        let boards = followed.boards.clone();
        let other = std::thread::spawn(move || {
            let why = boards.message("m", &pe("out", 0), None);
            told.send((boards.is_settled("m"), why)).unwrap();
        });
        let heard = hears.recv_timeout(std::time::Duration::from_secs(2));
        drop(held);
        other.join().unwrap();
        assert_eq!(heard, Ok((false, Err(Untold::Unsettled))));
    }

    #[test]
    fn a_namespace_that_is_looked_at_holds_up_no_other() {
        let followed = Followed::new();
        costly_namespace(&followed.mirrors, "m", 1);
        followed.told();
        let shared = Arc::clone(&followed.boards.namespaces()["m"]);
        let held = shared.lock();
        let (done, is_done) = std::sync::mpsc::channel();
        let mirrors = followed.mirrors.clone();
        let other = std::thread::spawn(move || {
            mirrors.jobs.insert(job("out", "u1", Some(1)));
            mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("nobody waits for another namespace");
        drop(held);
        other.join().unwrap();
        assert_eq!(followed.told(), ["out-0"]);
    }

    #[test]
    fn routes_have_another_version_whenever_they_are_others() {
        let followed = Followed::new();
        let mirrors = &followed.mirrors;
        let version = || followed.boards.message("n", &pe("out", 0), None).unwrap().version;
        mirrors.jobs.insert(job("out", "u1", Some(1)));
        mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        let mut versions = vec![version()];
        mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
        versions.push(version());
        mirrors.imports.remove(&Key::new("n", "in-0-0"));
        versions.push(version());
        mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
        versions.push(version());
        assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
        // Of what is exported no longer nothing is kept.
        mirrors.exports.remove(&Key::new("n", "out-0-0"));
        assert_eq!(version(), 0);
    }
}
