//! The boards, one for each namespace, as the mirrors of exports, imports and jobs are.
//!
//! An export or import counts while its job is there, is not being deleted, and has the number that the object names;
//! the object must have the name that follows from its port, and the job must control it (rule import-5).
//!
//! Invariants:
//! * What a board knows of an object is what the mirror has of it, once everybody who was told of a change has looked:
//!   the mirror is read under the lock of the boards.
//! * Nothing is kept of a namespace without jobs, exports and imports.

use crate::broker::facts::{self, Problem};
use crate::mirrors::{ByOwner, Mirrors};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use streams_api::{Export, Import, Job, names};
use streams_broker::{Board, Pe, Port, Routes};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;

type Subscriber = Box<dyn Fn(&Key) + Send + Sync>;

/// The boards of all namespaces. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Boards {
    shared: Arc<Shared>,
}

struct Shared {
    mirrors: Mirrors,
    namespaces: Mutex<BTreeMap<Arc<str>, Namespace>>,
    subscribers: RwLock<Vec<Subscriber>>,
}

/// The board of a namespace, and what of it came from which object.
#[derive(Default)]
struct Namespace {
    board: Board,
    exports: BTreeMap<Arc<str>, Port>,
    imports: BTreeMap<Arc<str>, Port>,
    /// Uids of the jobs whose exports and imports count.
    jobs: BTreeMap<Arc<str>, String>,
}

impl Namespace {
    fn is_empty(&self) -> bool {
        self.exports.is_empty() && self.imports.is_empty() && self.jobs.is_empty()
    }
}

/// How an export or import stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Somebody is at the other end.
    Connected,
    /// Nobody is there.
    Alone,
    /// The board does not know it: its job is not there, or it is not the job's.
    Unknown,
    /// The board cannot know it.
    Malformed(Problem),
}

impl Boards {
    /// Boards that follow these mirrors.
    pub(crate) fn of(mirrors: &Mirrors) -> Self {
        let shared = Shared {
            mirrors: mirrors.clone(),
            namespaces: Mutex::new(BTreeMap::new()),
            subscribers: RwLock::new(Vec::new()),
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
        let namespaces = self.namespaces();
        let Some(namespace) = namespaces.get(&key.namespace) else { return BTreeSet::new() };
        let Some(pe) = pe_of(&key.name) else { return BTreeSet::new() };
        let ports = namespace.board.exports_of(&pe).chain(namespace.board.imports_of(&pe));
        ports.map(|port| key.sibling(&port.to_string())).collect()
    }

    /// Whether the PE exports or imports.
    pub(crate) fn knows(&self, pe: &Key) -> bool {
        !self.objects_of(pe).is_empty()
    }

    /// All PEs that export or import.
    pub(crate) fn pes(&self) -> BTreeSet<Key> {
        let namespaces = self.namespaces();
        let of_namespace = |(name, namespace): (&Arc<str>, &Namespace)| -> Vec<Key> {
            let ports = namespace.exports.values().chain(namespace.imports.values());
            ports.map(|port| key_of(name, &port.pe)).collect()
        };
        namespaces.iter().flat_map(of_namespace).collect()
    }

    /// The routes of a PE; none if nobody knows it.
    pub(crate) fn routes(&self, namespace: &str, pe: &Pe) -> Routes {
        self.namespaces().get(namespace).map(|namespace| namespace.board.routes(pe)).unwrap_or_default()
    }

    /// How an export stands.
    pub(crate) fn export(&self, object: &Export) -> Standing {
        let key = Key::of(object);
        self.standing(&key, facts::export(object).err(), |namespace| {
            namespace.exports.get(&key.name).map(|port| namespace.board.has_importers(port))
        })
    }

    /// How an import stands.
    pub(crate) fn import(&self, object: &Import) -> Standing {
        let key = Key::of(object);
        self.standing(&key, facts::import(object).err(), |namespace| {
            namespace.imports.get(&key.name).map(|port| namespace.board.has_exporters(port))
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
        let found = self.namespaces().get(&key.namespace).map(|namespace| find(&namespace.board));
        let (ports, count) = found.unwrap_or_default();
        (ports.iter().map(ToString::to_string).collect(), count)
    }

    fn standing(&self, key: &Key, problem: Option<Problem>, find: impl Fn(&Namespace) -> Option<bool>) -> Standing {
        let found = self.namespaces().get(&key.namespace).and_then(find);
        match (problem, found) {
            (Some(problem), _) => Standing::Malformed(problem),
            (None, Some(true)) => Standing::Connected,
            (None, Some(false)) => Standing::Alone,
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
                    let mut touched = namespace.board.put_export(fact);
                    if namespace.exports.insert(Arc::clone(&key.name), port.clone()).is_none() {
                        touched.insert(port.pe);
                    }
                    touched
                }
                None => match namespace.exports.remove(&key.name) {
                    Some(port) => {
                        let mut touched = namespace.board.remove_export(&port);
                        touched.insert(port.pe);
                        touched
                    }
                    None => BTreeSet::new(),
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
                    let mut touched = namespace.board.put_import(fact);
                    if namespace.imports.insert(Arc::clone(&key.name), port.clone()).is_none() {
                        touched.insert(port.pe);
                    }
                    touched
                }
                None => match namespace.imports.remove(&key.name) {
                    Some(port) => {
                        let mut touched = namespace.board.remove_import(&port);
                        touched.insert(port.pe);
                        touched
                    }
                    None => BTreeSet::new(),
                },
            }
        });
    }

    /// Looks at all that a job exports and imports, if the job counts now and did not, or the other way round.
    fn look_at_job(&self, key: &Key) {
        let mirrors = &self.shared.mirrors;
        let is_other = {
            let mut namespaces = self.namespaces();
            let uid = uid_that_counts(mirrors, key);
            let before = namespaces.get(&key.namespace).and_then(|namespace| namespace.jobs.get(&key.name));
            let is_other = before != uid.as_ref();
            if is_other {
                let namespace = namespaces.entry(Arc::clone(&key.namespace)).or_default();
                match uid {
                    Some(uid) => namespace.jobs.insert(Arc::clone(&key.name), uid),
                    None => namespace.jobs.remove(&key.name),
                };
                if namespace.is_empty() {
                    namespaces.remove(&key.namespace);
                }
            }
            is_other
        };
        if is_other {
            for (export, _) in mirrors.exports.kept_of_job(key) {
                self.look_at_export(&export);
            }
            for (import, _) in mirrors.imports.kept_of_job(key) {
                self.look_at_import(&import);
            }
        }
    }

    fn look(&self, key: &Key, change: impl FnOnce(&mut Namespace, &Mirrors) -> BTreeSet<Pe>) {
        let touched = {
            let mut namespaces = self.namespaces();
            let namespace = namespaces.entry(Arc::clone(&key.namespace)).or_default();
            let touched = change(namespace, &self.shared.mirrors);
            if namespace.is_empty() {
                namespaces.remove(&key.namespace);
            }
            touched
        };
        let subscribers = self.shared.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        for pe in touched {
            let pe = key_of(&key.namespace, &pe);
            subscribers.iter().for_each(|subscriber| subscriber(&pe));
        }
    }

    fn namespaces(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Namespace>> {
        self.shared.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Namespace {
    /// Whether this job controls the object, is there, and has the number that the object names.
    fn counts<K: kube::Resource>(&self, object: &K, job: &str, job_id: u64, mirrors: &Mirrors, key: &Key) -> bool {
        let Some(uid) = self.jobs.get(job) else { return false };
        let Some(job) = mirrors.jobs.get(&key.sibling(job)) else { return false };
        job.metadata.uid.as_ref() == Some(uid)
            && is_controlled_by(object.meta(), &*job)
            && job.status.as_ref().and_then(|status| status.job_id) == Some(job_id)
            && object.meta().deletion_timestamp.is_none()
    }
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
            let routes = self.boards.routes("n", &Pe { job: "out".into(), id: 0 });
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
}
