//! The boards, one for each namespace, and what is known of exports, imports and PEs by them.
//!
//! What has been changed is taken over a part at a time (rule import-10). Until all is, the namespace is not *settled*,
//! and nobody is told anything of it. An object that is long counts as it was, until it is looked at.
//!
//! Knows: which namespaces there are, whether the mirrors are filled, who is told of changes. Must not know: what is
//! looked at because of an event, who asks, how PEs are told.
//!
//! Invariants:
//! * Whoever asks for a namespace waits for nobody who asks for another one, and whoever asks whether it is settled for
//!   nobody at all.
//! * Routes that may be thousands are put together when the lock is free again.
//! * Nothing is kept of a namespace without jobs, exports and imports.

use crate::broker::allowance::SLICE;
use crate::broker::answers::{Limit, Message, Says, Standing, ToTell, Untold};
use crate::broker::awaited_looks::AwaitedLooks;
use crate::broker::facts;
use crate::broker::line::Line;
use crate::broker::namespace::Namespace;
use crate::broker::predecessors::{LeftOut, Side};
use crate::broker::shared_namespace::SharedNamespace;
use crate::fair_semaphore::FairSemaphore;
use crate::mirrors::Mirrors;
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use streams_api::{Export, Import};
use streams_broker::{Board, Pe, Port, Receivers, Routes, TooManyRoutes, TooManySteps};
use streams_kubernetes::Key;
use tokio::sync::Notify;

/// How many look at long objects that they have written at the same time, each on a thread of its own: most of them
/// wait there for who reads another object of the namespace.
const ASIDE_MAX: usize = 4;
/// As many of one namespace.
const ASIDE_OF_ONE_MAX: usize = 1;

type Subscriber = Box<dyn Fn(&Key) + Send + Sync>;
type SettledSubscriber = Box<dyn Fn(&str) + Send + Sync>;
type LateSubscriber = Box<dyn Fn(Side, &Key) + Send + Sync>;

/// The boards of all namespaces. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Boards {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) mirrors: Mirrors,
    namespaces: Mutex<BTreeMap<Arc<str>, Arc<SharedNamespace>>>,
    subscribers: RwLock<Vec<Subscriber>>,
    settled_subscribers: RwLock<Vec<SettledSubscriber>>,
    late_subscribers: RwLock<Vec<LateSubscriber>>,
    /// Namespaces that are not settled, or were not when they came here.
    line: Mutex<Line>,
    /// Wakes whoever settles them.
    pub(super) is_any_unsettled: Notify,
    /// Namespaces with an object to be looked at that takes longer than a turn.
    long_line: Mutex<Line>,
    /// Wakes whoever looks at these.
    pub(super) is_any_long: Notify,
    /// Places of those who look at a long object themselves.
    pub(super) aside: FairSemaphore,
    /// The looks for which they wait.
    pub(super) awaited_looks: AwaitedLooks,
    /// The number of the last change of routes.
    pub(super) last_version: AtomicU64,
}

impl Boards {
    /// Boards on which there is nothing.
    pub(super) fn new(mirrors: &Mirrors) -> Self {
        let shared = Shared {
            mirrors: mirrors.clone(),
            namespaces: Mutex::new(BTreeMap::new()),
            subscribers: RwLock::new(Vec::new()),
            settled_subscribers: RwLock::new(Vec::new()),
            late_subscribers: RwLock::new(Vec::new()),
            line: Mutex::default(),
            is_any_unsettled: Notify::new(),
            long_line: Mutex::default(),
            is_any_long: Notify::new(),
            aside: FairSemaphore::new(ASIDE_MAX, ASIDE_OF_ONE_MAX),
            awaited_looks: AwaitedLooks::default(),
            last_version: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether it is known what matches in a namespace; not as long as that may not be read (rule call-33). Nobody is
    /// waited for.
    pub(crate) fn is_settled(&self, namespace: &str) -> bool {
        let may_be_known = !self.shared.mirrors.refusals.contains(namespace);
        may_be_known && self.namespaces().get(namespace).is_none_or(|namespace| namespace.is_settled())
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

    /// Calls `subscriber` with each export and import that was late ([`Self::is_late`]) and was looked at. It must not
    /// block.
    pub(crate) fn subscribe_to_late(&self, subscriber: impl Fn(Side, &Key) + Send + Sync + 'static) {
        self.shared.late_subscribers.write().push(Box::new(subscriber));
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
            namespace.objects.values().map(|port| key_of(name, &port.pe)).collect()
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
            let version = namespace.version(pe);
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

    /// How an export stands, as it was when somebody looked at it last.
    pub(crate) fn export(&self, key: &Key) -> Standing {
        self.standing(Side::Export, key, |namespace, port| {
            let limit = namespace.board.can_be_told(&port.pe).err().map(Limit::from);
            let limit = limit.or_else(|| namespace.board.export_without_room(port).map(Limit::NoRoom));
            (namespace.board.has_importers(port), limit)
        })
    }

    /// How an import stands, as it was when somebody looked at it last.
    pub(crate) fn import(&self, key: &Key) -> Standing {
        self.standing(Side::Import, key, |namespace, port| {
            let limit = namespace.board.can_be_told(&port.pe).err().map(Limit::from);
            let limit = limit.or_else(|| namespace.board.without_room(port).map(Limit::NoRoom));
            let limit = limit.or_else(|| namespace.board.too_costly(port).map(Limit::TooCostly));
            (namespace.board.has_exporters(port), limit)
        })
    }

    /// Whether what is known of an export or import is what it was before somebody has written it: it is long, and
    /// waits for a look. Its namespace may be settled.
    pub(crate) fn is_late(&self, side: Side, key: &Key) -> bool {
        let object = (side, Arc::clone(&key.name));
        self.read(&key.namespace, |namespace| namespace.late.contains(&object)).unwrap_or_default()
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

    fn standing(&self, side: Side, key: &Key, find: impl Fn(&Namespace, &Port) -> (bool, Option<Limit>)) -> Standing {
        let object = (side, Arc::clone(&key.name));
        let found = self.read(&key.namespace, |namespace| {
            let namespace = &*namespace;
            if let Some(problem) = namespace.problems.get(&object) {
                return Standing::Malformed(problem.clone());
            }
            match namespace.objects.get(&object).map(|port| find(namespace, port)) {
                Some((is_connected, Some(limit))) => Standing::Limited { is_connected, limit },
                Some((true, None)) => Standing::Connected,
                Some((false, None)) => Standing::Alone,
                None => Standing::Unknown,
            }
        });
        found.unwrap_or(Standing::Unknown)
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

    pub(super) fn tell_late(&self, side: Side, key: &Key) {
        let subscribers = self.shared.late_subscribers.read();
        subscribers.iter().for_each(|subscriber| subscriber(side, key));
    }

    /// Looks at a namespace, if there is something of it.
    pub(super) fn read<T>(&self, name: &str, find: impl FnOnce(&mut Namespace) -> T) -> Option<T> {
        let shared = self.namespaces().get(name).cloned()?;
        let mut namespace = shared.lock();
        Some(find(&mut namespace))
    }

    /// Changes a namespace, with which it may come or go.
    pub(super) fn change<T>(&self, name: &Arc<str>, change: impl FnOnce(&mut Namespace) -> T) -> T {
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

    pub(super) fn long_line(&self) -> MutexGuard<'_, Line> {
        self.shared.long_line.lock()
    }

    /// The place of a namespace among those who look at a long object themselves, as if one of it did.
    #[cfg(test)]
    pub(crate) async fn hold_aside(&self, namespace: &str) -> crate::fair_semaphore::FairPermit {
        self.shared.aside.acquire(namespace).await
    }
}

/// The PE that has this name.
pub(super) fn pe_of(name: &str) -> Option<Pe> {
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
    use crate::broker::testing::{Followed, costly_namespace, export, import, job};

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
