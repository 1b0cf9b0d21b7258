//! The boards, one for each namespace, as the mirrors of exports, imports and jobs are.
//!
//! An export or import counts while its job is there, is not being deleted, and has the number that the object names;
//! the object must have the name that follows from its port, and the job must control it (rule import-5).
//!
//! What somebody writes into an object is taken over by whoever is told of it, which may be the task that polls the
//! mirrors of all namespaces. It tries a little of what may match, and [`Boards::settle`] the rest, namespace by
//! namespace (rule import-10). Until then the namespace is not *settled*, and nobody is told routes of it.
//!
//! Invariants:
//! * What a board knows of an object is what the mirror has of it, once everybody who was told of a change has looked:
//!   the mirror is read under the lock of the namespace.
//! * Whoever asks for a namespace waits for nobody who asks for another one, and nobody tries more than a [`SLICE`] at
//!   a time, and the evaluation with which it ends.
//! * Nothing is kept of a namespace without jobs, exports and imports.

use crate::broker::answers::{Limit, Message, Standing, Untold};
use crate::broker::facts::{self, Problem};
use crate::broker::namespace::Namespace;
use crate::mirrors::{ByOwner, Mirrors};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use streams_api::{Export, Import, Job, names};
use streams_broker::{Board, Changes, Pe, Port, Routes, TooManyRoutes};
use streams_kubernetes::Key;
use streams_process::background;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What is tried at a time, in steps of evaluations: a millisecond or two, in which a subscription is tried with two
/// thousand exports. So long whoever is told of a change is held up, and so long a lock is held.
const SLICE: usize = 1 << 20;

type Subscriber = Box<dyn Fn(&Key) + Send + Sync>;

/// The boards of all namespaces. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Boards {
    shared: Arc<Shared>,
}

struct Shared {
    mirrors: Mirrors,
    namespaces: Mutex<BTreeMap<Arc<str>, Arc<Mutex<Namespace>>>>,
    subscribers: RwLock<Vec<Subscriber>>,
    /// Namespaces that are not settled, in the order of their turns.
    unsettled: Mutex<VecDeque<Arc<str>>>,
    /// Wakes whoever settles them.
    is_unsettled: Notify,
    /// The number of the last change of routes.
    last_version: AtomicU64,
}

impl Boards {
    /// Boards that follow these mirrors.
    pub(crate) fn of(mirrors: &Mirrors) -> Self {
        let shared = Shared {
            mirrors: mirrors.clone(),
            namespaces: Mutex::new(BTreeMap::new()),
            subscribers: RwLock::new(Vec::new()),
            unsettled: Mutex::new(VecDeque::new()),
            is_unsettled: Notify::new(),
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
        boards
    }

    /// Settles namespaces, one slice of each at a time, on a thread that makes way for everything else; until it is
    /// stopped.
    pub(crate) async fn settle(&self, stop: &CancellationToken) {
        loop {
            while self.is_any_unsettled() && !stop.is_cancelled() {
                let boards = self.clone();
                if let Err(error) = background::spawn(move || boards.settle_a_slice()).await {
                    tracing::error!(%error, "a board was not settled");
                }
            }
            tokio::select! {
                () = self.shared.is_unsettled.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn is_any_unsettled(&self) -> bool {
        !self.unsettled().is_empty()
    }

    /// Tries a slice of the next namespace that is not settled. Whoever is told hears of what changes.
    fn settle_a_slice(&self) {
        let Some(name) = self.unsettled().pop_front() else { return };
        let Some(shared) = self.namespaces().get(&name).cloned() else { return };
        let touched = {
            let mut namespace = locked(&shared);
            let changes = namespace.board.settle(SLICE);
            namespace.is_queued = false;
            self.queue_if_unsettled(&name, &mut namespace);
            namespace.numbered(changes, &self.shared.last_version)
        };
        self.tell(&name, touched);
    }

    fn queue_if_unsettled(&self, name: &Arc<str>, namespace: &mut Namespace) {
        if namespace.board.is_settled() || namespace.is_queued {
            return;
        }
        namespace.is_queued = true;
        self.unsettled().push_back(Arc::clone(name));
        self.shared.is_unsettled.notify_one();
    }

    /// Whether it is known what matches in a namespace.
    pub(crate) fn is_settled(&self, namespace: &str) -> bool {
        self.read(namespace, |namespace| namespace.board.is_settled()).unwrap_or(true)
    }

    /// Whether the boards have everything that there is: until then they know a part of it, and nobody may be told
    /// that it is all.
    pub(crate) fn are_filled(&self) -> bool {
        let mirrors = &self.shared.mirrors;
        mirrors.jobs.is_synced() && mirrors.exports.is_synced() && mirrors.imports.is_synced()
    }

    /// Calls `subscriber` with the key (`<job>-<number>`) of each PE whose routes have become others, or one of whose
    /// exports and imports counts now and did not, or the other way round. It must not block.
    pub(crate) fn subscribe(&self, subscriber: impl Fn(&Key) + Send + Sync + 'static) {
        self.shared.subscribers.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(subscriber));
    }

    /// The exports and imports of a PE, by the names of their objects.
    pub(crate) fn objects_of(&self, key: &Key) -> BTreeSet<Key> {
        let Some(pe) = pe_of(&key.name) else { return BTreeSet::new() };
        let found = self.read(&key.namespace, |namespace| {
            let ports = namespace.board.exports_of(&pe).chain(namespace.board.imports_of(&pe));
            ports.map(|port| key.sibling(&port.to_string())).collect()
        });
        found.unwrap_or_default()
    }

    /// Whether the PE exports or imports.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        let knows = |pe: Pe| self.read(&key.namespace, |namespace| namespace.knows(&pe));
        pe_of(&key.name).and_then(knows).unwrap_or_default()
    }

    /// All PEs that export or import.
    pub(crate) fn pes(&self) -> BTreeSet<Key> {
        let namespaces = self.namespaces().clone();
        let of_namespace = |(name, namespace): (&Arc<str>, &Arc<Mutex<Namespace>>)| -> Vec<Key> {
            let namespace = locked(namespace);
            let ports = namespace.exports.values().chain(namespace.imports.values());
            ports.map(|port| key_of(name, &port.pe)).collect()
        };
        namespaces.iter().flat_map(of_namespace).collect()
    }

    /// The routes of a PE; none if nobody knows it.
    ///
    /// # Errors
    /// They are not known yet, or too many.
    pub(crate) fn routes(&self, namespace: &str, pe: &Pe) -> Result<Routes, Untold> {
        self.told(namespace, |namespace| namespace.board.routes(pe))
    }

    /// What a PE is to be told of its routes.
    ///
    /// # Errors
    /// They are not known yet, or too many.
    pub(crate) fn message(&self, namespace: &str, pe: &Pe) -> Result<Message, Untold> {
        self.told(namespace, |namespace| {
            let version = namespace.versions.get(pe).copied().unwrap_or_default();
            Ok(Message { text: namespace.board.message(pe)?, version })
        })
    }

    fn told<T>(&self, name: &str, find: impl Fn(&Namespace) -> Result<T, TooManyRoutes>) -> Result<T, Untold> {
        let found =
            self.read(
                name,
                |namespace| {
                    if namespace.board.is_settled() { Ok(find(namespace)?) } else { Err(Untold::Unsettled) }
                },
            );
        // Of a namespace that nobody knows there is nothing to tell.
        found.unwrap_or_else(|| Ok(find(&Namespace::default())?))
    }

    /// An export that sends to the port of the import and forbids filters.
    pub(crate) fn forbids_filters(&self, object: &Import) -> Option<String> {
        let (key, port) = (Key::of(object), facts::input_port(object));
        let found =
            self.read(&key.namespace, |namespace| namespace.board.forbids_filters(&port).map(ToString::to_string));
        found.flatten()
    }

    /// How an export stands.
    pub(crate) fn export(&self, object: &Export) -> Standing {
        let key = Key::of(object);
        self.standing(&key, facts::export(object).err(), |namespace| {
            let port = namespace.exports.get(&key.name)?;
            let limit = namespace.board.can_be_told(&port.pe).err().map(Limit::from);
            Some((namespace.board.has_importers(port), limit))
        })
    }

    /// How an import stands.
    pub(crate) fn import(&self, object: &Import) -> Standing {
        let key = Key::of(object);
        self.standing(&key, facts::import(object).err(), |namespace| {
            let port = namespace.imports.get(&key.name)?;
            let limit = namespace.board.can_be_told(&port.pe).err().map(Limit::from);
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
        let found = self.read(&key.namespace, find).flatten();
        match (problem, found) {
            (Some(problem), _) => Standing::Malformed(problem),
            (None, Some((is_connected, Some(limit)))) => Standing::Limited { is_connected, limit },
            (None, Some((true, None))) => Standing::Connected,
            (None, Some((false, None))) => Standing::Alone,
            (None, None) => Standing::Unknown,
        }
    }

    /// Takes over what the mirror has of an export. Whoever has seen it in the mirror may call this at any time.
    pub(crate) fn look_at_export(&self, key: &Key) {
        self.look(key, |namespace, mirrors| {
            let object = mirrors.exports.get(key);
            let fact = object.filter(|object| {
                let spec = &object.spec;
                *key.name == *names::export(&spec.job_name, spec.pe_id, spec.port_id)
                    && namespace.counts(object.as_ref(), &spec.job_name, spec.job_id, mirrors, key)
            });
            match fact.and_then(|object| facts::export(&object).ok()) {
                Some(fact) => {
                    let port = fact.port.clone();
                    let changes = namespace.board.put_export(fact);
                    let is_new = namespace.exports.insert(Arc::clone(&key.name), port.clone()).is_none();
                    (changes, is_new.then_some(port.pe))
                }
                None => match namespace.exports.remove(&key.name) {
                    Some(port) => (namespace.board.remove_export(&port), Some(port.pe)),
                    None => (Changes::default(), None),
                },
            }
        });
    }

    /// Takes over what the mirror has of an import. Whoever has seen it in the mirror may call this at any time.
    pub(crate) fn look_at_import(&self, key: &Key) {
        self.look(key, |namespace, mirrors| {
            let object = mirrors.imports.get(key);
            let fact = object.filter(|object| {
                let spec = &object.spec;
                *key.name == *names::import(&spec.job_name, spec.pe_id, spec.port_id)
                    && namespace.counts(object.as_ref(), &spec.job_name, spec.job_id, mirrors, key)
            });
            match fact.and_then(|object| facts::import(&object).ok()) {
                Some(fact) => {
                    let port = fact.port.clone();
                    let changes = namespace.board.put_import(fact);
                    let is_new = namespace.imports.insert(Arc::clone(&key.name), port.clone()).is_none();
                    (changes, is_new.then_some(port.pe))
                }
                None => match namespace.imports.remove(&key.name) {
                    Some(port) => (namespace.board.remove_import(&port), Some(port.pe)),
                    None => (Changes::default(), None),
                },
            }
        });
    }

    /// Looks at all that a job exports and imports, if the job counts now and did not, or the other way round.
    fn look_at_job(&self, key: &Key) {
        let mirrors = &self.shared.mirrors;
        let is_other = self.change(&key.namespace, |namespace| {
            let uid = uid_that_counts(mirrors, key);
            let is_other = namespace.jobs.get(&key.name) != uid.as_ref();
            match uid {
                Some(uid) => namespace.jobs.insert(Arc::clone(&key.name), uid),
                None => namespace.jobs.remove(&key.name),
            };
            is_other
        });
        if is_other {
            for (export, _) in mirrors.exports.kept_of_job(key) {
                self.look_at_export(&export);
            }
            for (import, _) in mirrors.imports.kept_of_job(key) {
                self.look_at_import(&import);
            }
        }
    }

    /// Makes a change of a board, which says also which PE it has one port more or less of.
    fn look(&self, key: &Key, change: impl FnOnce(&mut Namespace, &Mirrors) -> (Changes, Option<Pe>)) {
        let last_version = &self.shared.last_version;
        let touched = self.change(&key.namespace, |namespace| {
            // What is left of a change before is not made more by whoever changes something all the time.
            let was_settled = namespace.board.is_settled();
            let (changes, pe) = change(namespace, &self.shared.mirrors);
            let mut touched = namespace.numbered(changes, last_version);
            if was_settled {
                let settled = namespace.board.settle(SLICE);
                touched.extend(namespace.numbered(settled, last_version));
            }
            self.queue_if_unsettled(&key.namespace, namespace);
            if let Some(pe) = pe {
                if !namespace.knows(&pe) {
                    namespace.versions.remove(&pe);
                }
                touched.insert(pe);
            }
            touched
        });
        self.tell(&key.namespace, touched);
    }

    fn tell(&self, namespace: &str, touched: BTreeSet<Pe>) {
        let subscribers = self.shared.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        for pe in touched {
            let pe = key_of(namespace, &pe);
            subscribers.iter().for_each(|subscriber| subscriber(&pe));
        }
    }

    /// Looks at a namespace, if there is something of it.
    fn read<T>(&self, name: &str, find: impl FnOnce(&Namespace) -> T) -> Option<T> {
        let shared = self.namespaces().get(name).cloned()?;
        let namespace = locked(&shared);
        Some(find(&namespace))
    }

    /// Changes a namespace, with which it may come or go.
    fn change<T>(&self, name: &Arc<str>, change: impl FnOnce(&mut Namespace) -> T) -> T {
        loop {
            let shared = Arc::clone(self.namespaces().entry(Arc::clone(name)).or_default());
            let mut namespace = locked(&shared);
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
    fn namespaces(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Mutex<Namespace>>>> {
        self.shared.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsettled(&self) -> MutexGuard<'_, VecDeque<Arc<str>>> {
        self.shared.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn locked(namespace: &Mutex<Namespace>) -> MutexGuard<'_, Namespace> {
    namespace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The uid of a job whose exports and imports count: it is there, has its number, and is not being deleted.
fn uid_that_counts(mirrors: &Mirrors, key: &Key) -> Option<String> {
    let job = mirrors.jobs.get(key)?;
    job.status.as_ref()?.job_id?;
    job.metadata.uid.clone().filter(|_| job.metadata.deletion_timestamp.is_none())
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
    use serde_json::json;
    use std::sync::Mutex as TestMutex;
    use streams_api::ExportType;
    use streams_kubernetes::metrics::Metrics;

    fn job(name: &str, uid: &str, id: Option<u64>) -> Job {
        let status = id.map(|id| json!({"jobId": id}));
        serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": "n", "uid": uid},
            "spec": {"bundle": {"file": "a.sab"}}, "status": status,
        }))
        .unwrap()
    }

    fn metadata(name: &str, job: &str, uid: &str) -> serde_json::Value {
        json!({
            "name": name, "namespace": "n", "uid": format!("of-{name}"), "labels": {"streams.ibm.com/job": job},
            "ownerReferences": [{
                "apiVersion": "streams.ibm.com/v1", "kind": "Job", "name": job, "uid": uid, "controller": true,
            }],
        })
    }

    fn export(name: &str, job: &str, uid: &str, id: u64) -> Export {
        serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Export", "metadata": metadata(name, job, uid),
            "spec": {
                "jobName": job, "jobId": id, "applicationName": "A", "applicationScope": "Default", "peId": 0,
                "portId": 0, "type": "ByName", "stream": {"exportOperName": "Out", "name": "s", "allowFilter": true},
            },
        }))
        .unwrap()
    }

    fn import(name: &str, job: &str, uid: &str, id: u64) -> Import {
        let named = json!({
            "applicationName": "A", "applicationScope": "Default", "streamName": "s", "importOperName": "In",
        });
        serde_json::from_value(json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Import", "metadata": metadata(name, job, uid),
            "spec": {
                "jobName": job, "jobId": id, "applicationName": "B", "applicationScope": "Default", "peId": 0,
                "portId": 0, "portIndex": 0, "streams": {"nameBasedImports": {"0": named}},
            },
        }))
        .unwrap()
    }

    struct Fixture {
        mirrors: Mirrors,
        boards: Boards,
        told: Arc<TestMutex<Vec<String>>>,
    }

    impl Fixture {
        fn new() -> Self {
            let mirrors = Mirrors::new(&Metrics::new("test"));
            let boards = Boards::of(&mirrors);
            let told = Arc::new(TestMutex::new(Vec::new()));
            let list = Arc::clone(&told);
            boards.subscribe(move |pe| list.lock().unwrap().push(pe.name.to_string()));
            Self { mirrors, boards, told }
        }

        /// The PEs that were told of since this was asked last.
        fn told(&self) -> Vec<String> {
            let mut told = std::mem::take(&mut *self.told.lock().unwrap());
            told.sort();
            told.dedup();
            told
        }

        fn receivers(&self) -> usize {
            let routes = self.boards.routes("n", &Pe { job: "out".into(), id: 0 }).unwrap();
            routes.exports.values().map(|published| published.entries.len()).sum()
        }
    }

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
                let fixture = Fixture::new();
                fixture.mirrors.jobs.insert(job("out", "u1", Some(1)));
                fixture.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
                let put_job = || importer.iter().for_each(|job| fixture.mirrors.jobs.insert(job.clone()));
                if is_job_first {
                    put_job();
                }
                fixture.mirrors.imports.insert(import.clone());
                if !is_job_first {
                    put_job();
                }
                assert_eq!(fixture.receivers(), usize::from(expected), "{asked}, job first: {is_job_first}");
            }
        }
    }

    #[test]
    fn routes_come_and_go_with_jobs_and_objects_and_nothing_is_kept() {
        let fixture = Fixture::new();
        let mirrors = &fixture.mirrors;
        let both = || ["in-0", "out-0"].map(str::to_owned).to_vec();
        mirrors.jobs.insert(job("out", "u1", Some(1)));
        mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
        assert_eq!(fixture.told(), ["out-0"]);
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        assert_eq!((fixture.told(), fixture.receivers()), (both(), 1));
        assert_eq!(fixture.boards.export(&export("out-0-0", "out", "u1", 1)), Standing::Connected);
        // Another status of the job is no reason to tell anybody.
        let mut changed = job("in", "u2", Some(2));
        changed.metadata.resource_version = Some("9".to_owned());
        mirrors.jobs.insert(changed);
        assert_eq!(fixture.told(), [""; 0]);
        mirrors.jobs.remove(&Key::new("n", "in"));
        assert_eq!((fixture.told(), fixture.receivers()), (both(), 0));
        assert_eq!(fixture.boards.export(&export("out-0-0", "out", "u1", 1)), Standing::Alone);
        mirrors.imports.remove(&Key::new("n", "in-0-0"));
        mirrors.exports.remove(&Key::new("n", "out-0-0"));
        assert_eq!(fixture.boards.export(&export("out-0-0", "out", "u1", 1)), Standing::Unknown);
        mirrors.jobs.remove(&Key::new("n", "out"));
        assert_eq!(fixture.told(), ["out-0"]);
        assert!(fixture.boards.namespaces().is_empty());
    }

    /// Another namespace, in which a subscription is to be tried with so many exports that cost as much as they can.
    fn costly_namespace(fixture: &Fixture, namespace: &str, exports: u64) {
        let mut exporter = job("out", "u1", Some(1));
        exporter.metadata.namespace = Some(namespace.to_owned());
        let long = json!([{"name": "a", "type": "rstring", "values": [format!("\"{}\"", "x".repeat(60_000))]}]);
        for pe in 0..exports {
            let mut export = export(&format!("out-{pe}-0"), "out", "u1", 1);
            export.metadata.namespace = Some(namespace.to_owned());
            export.spec.pe_id = pe;
            export.spec.export_type = ExportType::ByProperties;
            export.spec.stream.properties = serde_json::from_value(long.clone()).unwrap();
            fixture.mirrors.exports.insert(export);
        }
        let mut import = import("out-0-0", "out", "u1", 1);
        import.metadata.namespace = Some(namespace.to_owned());
        let subscription = ["hash(a) == 1"; 1_000].join(" || ");
        import.spec.streams.name_based_imports.clear();
        import.spec.streams.property_based_import = serde_json::from_value(json!({
            "subscription": subscription, "applicationScope": "Default", "importOperName": "In", "index": 0,
        }))
        .unwrap();
        fixture.mirrors.imports.insert(import);
        fixture.mirrors.jobs.insert(exporter);
    }

    fn pe(job: &str, id: u64) -> Pe {
        Pe { job: job.into(), id }
    }

    #[test]
    fn what_a_namespace_asks_for_is_tried_a_little_at_a_time_and_told_when_all_is_known() {
        let fixture = Fixture::new();
        let boards = &fixture.boards;
        costly_namespace(&fixture, "m", 100);
        // Whoever was told of the changes has tried a slice, and no more.
        assert!(!boards.is_settled("m"));
        assert_eq!(boards.routes("m", &pe("out", 0)), Err(Untold::Unsettled));
        assert_eq!(boards.message("m", &pe("out", 0)), Err(Untold::Unsettled));
        let mut slices = 0;
        while !boards.is_settled("m") {
            boards.settle_a_slice();
            slices += 1;
        }
        assert!(slices > 20, "{slices}");
        assert_eq!(boards.routes("m", &pe("out", 0)), Ok(Routes::default()));
        assert!(boards.unsettled().is_empty());
        let key = Key::new("m", "out-0-0");
        let Standing::Limited { is_connected: false, limit } =
            boards.import(&fixture.mirrors.imports.get(&key).unwrap())
        else {
            panic!("nothing is said of the cost");
        };
        let words = "the subscription costs too much to evaluate for the properties of out-0-0 and 99 more exports";
        assert!(limit.to_string().starts_with(words), "{limit}");
        // What has not changed is not tried again.
        let mut same = Import::clone(&fixture.mirrors.imports.get(&key).unwrap());
        same.status = serde_json::from_value(json!({"observedGeneration": 7})).unwrap();
        fixture.mirrors.imports.insert(same);
        assert!(boards.is_settled("m"));
    }

    #[test]
    fn namespaces_that_are_not_settled_have_turns_and_whoever_is_is_not_held_up() {
        let fixture = Fixture::new();
        let boards = &fixture.boards;
        costly_namespace(&fixture, "l", 20);
        costly_namespace(&fixture, "m", 20);
        let mut turns = String::new();
        for _ in 0..6 {
            turns.push_str(&boards.unsettled().front().cloned().unwrap());
            boards.settle_a_slice();
        }
        assert_eq!(turns, "lmlmlm");
        fixture.mirrors.jobs.insert(job("out", "u1", Some(1)));
        fixture.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        fixture.mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
        fixture.mirrors.jobs.insert(job("in", "u2", Some(2)));
        assert_eq!((boards.is_settled("n"), fixture.receivers(), boards.is_settled("m")), (true, 1, false));
    }

    #[test]
    fn a_namespace_that_is_looked_at_holds_up_no_other() {
        let fixture = Fixture::new();
        costly_namespace(&fixture, "m", 1);
        fixture.told();
        let shared = Arc::clone(&fixture.boards.namespaces()["m"]);
        let held = locked(&shared);
        let (done, is_done) = std::sync::mpsc::channel();
        let mirrors = fixture.mirrors.clone();
        let other = std::thread::spawn(move || {
            mirrors.jobs.insert(job("out", "u1", Some(1)));
            mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("nobody waits for another namespace");
        drop(held);
        other.join().unwrap();
        assert_eq!(fixture.told(), ["out-0"]);
    }

    #[tokio::test]
    async fn whoever_waits_for_a_namespace_hears_when_it_is_settled() {
        let fixture = Fixture::new();
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        fixture.boards.subscribe(move |pe| _ = told.send(pe.clone()));
        let stop = CancellationToken::new();
        let settling = tokio::spawn({
            let (boards, stop) = (fixture.boards.clone(), stop.clone());
            async move { boards.settle(&stop).await }
        });
        costly_namespace(&fixture, "m", 20);
        while !fixture.boards.is_settled("m") {
            hears.recv().await.unwrap();
        }
        stop.cancel();
        settling.await.unwrap();
    }

    #[test]
    fn routes_have_another_version_whenever_they_are_others() {
        let fixture = Fixture::new();
        let mirrors = &fixture.mirrors;
        let version = || fixture.boards.message("n", &pe("out", 0)).unwrap().version;
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
