//! Allocates job ids, unique for the life of their namespace (rule job-5).
//!
//! A ConfigMap holds the next id. The controller increments it by compare-and-swap, so no id is allocated twice, even
//! if two controllers run. An id is lost if the process ends between allocating and recording it.
//!
//! Jobs of one process that wait for ids of one namespace at the same time would only be in each other's way: one of
//! them takes ids for all. What the counter was when this process wrote it last is remembered, so that it need not be
//! read again; in a crowd (rule call-25) more ids are taken than there are jobs that wait, for those that come soon.
//! Whatever is remembered, the counter decides: who writes it names the version that was seen.
//!
//! Knows: the counter. Must not know: jobs, but for whether a namespace has any.

use crate::controllers::job::MANAGER;
use crate::controllers::times::distance;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use streams_api::{Job, names};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::{is_already_exists, is_conflict, is_not_found, written};
use streams_kubernetes::watch::Watch;
use streams_kubernetes::{Error, Key};

/// Key of the ConfigMap.
const NEXT: &str = "next";
/// No id is as large: JSON has such numbers only about, and the status of a job takes none from 2^63 on. The operator
/// counts by one, so somebody else has written it.
const NO_ID: u64 = 1 << 53;
/// How often the compare-and-swap is tried.
const ATTEMPTS: u32 = 10;
/// So many ids are taken at once in a crowd, if no more jobs wait.
const TAKEN_IN_A_CROWD: u64 = 16;
/// How long ids are given out that were taken for jobs to come. Later the counter is written again before the next one:
/// it gets back what is left, unless somebody else has written it.
const TAKEN_FOR: Duration = Duration::from_secs(30);

/// Gives ids to jobs. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct JobIds {
    /// Namespaces with jobs that have an id, or wait for one.
    namespaces: Arc<Mutex<BTreeMap<Arc<str>, Arc<Namespace>>>>,
}

/// A namespace with jobs.
#[derive(Default)]
struct Namespace {
    /// No job that was seen has this id or a higher one.
    unused: AtomicU64,
    /// Jobs that wait for an id.
    waiting: AtomicU64,
    /// How often somebody began to take ids from the counter.
    begun: AtomicU64,
    taken: tokio::sync::Mutex<Taken>,
}

/// What came of taking ids from the counter.
#[derive(Default)]
struct Taken {
    /// Ids that were counted and that no job has got.
    ids: Range<u64>,
    /// When they were taken.
    at: Timestamp,
    /// The version of the counter that says so. `None`: it is not known.
    version: Option<String>,
    /// Why there are none.
    failed: Option<Error>,
}

/// A job that waits for an id.
struct Waiting(Arc<Namespace>);

impl JobIds {
    /// From now on no id is given out that a job of this mirror has had, and what is remembered of a namespace ends
    /// when the last of its jobs leaves the mirror (rule call-20).
    ///
    /// Each of a crowd of new jobs wants an id, so none of them looks at all the others.
    pub(crate) fn follow(&self, jobs: &Watch<Job>) {
        let (ids, there) = (self.clone(), jobs.clone());
        jobs.subscribe_to_departures(move |job, _| ids.forget_without_jobs(&Key::of(job).namespace, &there));
        let (ids, there) = (self.clone(), jobs.clone());
        jobs.subscribe(move |job| {
            let Some(id) = job.status.as_ref().and_then(|status| status.job_id) else { return };
            let key = Key::of(job);
            // What has left is told once more.
            if there.contains(&key) {
                ids.note(&key.namespace, id);
            }
        });
    }

    /// A job of the namespace has this id.
    fn note(&self, namespace: &Arc<str>, id: u64) {
        if id >= NO_ID {
            return;
        }
        let mut namespaces = self.namespaces();
        let entry = namespaces.entry(Arc::clone(namespace)).or_default();
        entry.unused.fetch_max(id.saturating_add(1), Ordering::Relaxed);
    }

    /// Forgets the namespace if it has no jobs. An allocation that was under way keeps it once more: the reconcile that
    /// finds its job gone calls this, too.
    pub(crate) fn forget_without_jobs(&self, namespace: &Arc<str>, jobs: &Watch<Job>) {
        if self.namespaces().contains_key(namespace) && !jobs.has_namespace(namespace) {
            self.namespaces().remove(namespace);
        }
    }

    /// Namespaces of which something is kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.namespaces().len()
    }

    /// Takes the next id. If a user has deleted the counter, it is one that is higher than those of all jobs that were
    /// seen, and than all that this process has given out.
    ///
    /// # Errors
    /// [`Error::Conflict`] if others were faster too often; [`Error::Refused`] if the counter was damaged by hand;
    /// failures of the calls, also of those that another job made for this one: they do not wait one after the other.
    pub(crate) async fn next<C: Cluster>(&self, cluster: &C, namespace: &Arc<str>) -> Result<u64, Error> {
        let waiting = self.wait(namespace);
        let Namespace { unused, waiting: jobs, begun, taken } = &*waiting.0;
        let before = begun.load(Ordering::Relaxed);
        let mut taken = taken.lock().await;
        taken.ids.start = taken.ids.start.max(unused.load(Ordering::Relaxed));
        if taken.ids.is_empty() || distance(taken.at, cluster.now()) >= TAKEN_FOR {
            if let Some(failed) = taken.failed.as_ref().filter(|_| begun.load(Ordering::Relaxed) > before) {
                return Err(same(failed));
            }
            begun.fetch_add(1, Ordering::Relaxed);
            let to_come = if cluster.was_crowded(namespace) { TAKEN_IN_A_CROWD } else { 0 };
            let jobs = jobs.load(Ordering::Relaxed).max(to_come);
            let (seen, least) = (taken.version.take(), taken.ids.start);
            // Whatever becomes of this, an id that was given out is not given out again, and the rest was not counted.
            taken.ids = least..least;
            let result = take(cluster, namespace, seen, least, jobs).await;
            taken.failed = result.as_ref().err().map(same);
            let (ids, version) = result?;
            (taken.ids, taken.version, taken.at) = (ids, version, cluster.now());
        }
        let id = taken.ids.start;
        taken.ids.start = id.saturating_add(1);
        Ok(id)
    }

    fn wait(&self, name: &Arc<str>) -> Waiting {
        let namespace = Arc::clone(self.namespaces().entry(Arc::clone(name)).or_default());
        namespace.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(namespace)
    }

    fn namespaces(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Namespace>>> {
        // Every change is finished before anything that could panic.
        self.namespaces.lock()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error for another job that wanted the same.
fn same(error: &Error) -> Error {
    match error {
        Error::Conflict { kind, name } => Error::Conflict { kind: kind.clone(), name: name.clone() },
        Error::Refused { kind, name, message } => {
            Error::Refused { kind: kind.clone(), name: name.clone(), message: message.clone() }
        }
        Error::NamespaceTerminating { message } => Error::NamespaceTerminating { message: message.clone() },
        Error::Call(kube::Error::Api(status)) => Error::Call(kube::Error::Api(status.clone())),
        other => Error::Call(kube::Error::Service(other.to_string().into())),
    }
}

/// Takes so many ids from the counter of a namespace, none below `least`. Gives the version of the counter afterwards
/// as well. `seen`: the version of the counter after which no id from `least` on was given out; it need not be read if
/// that is still its version.
async fn take<C: Cluster>(
    cluster: &C,
    namespace: &str,
    mut seen: Option<String>,
    mut least: u64,
    jobs: u64,
) -> Result<(Range<u64>, Option<String>), Error> {
    let key = Key::new(namespace, names::JOB_IDS);
    for _ in 0..ATTEMPTS {
        let (version, first) = match seen.take() {
            Some(version) => (Some(version), least),
            None => match cluster.get::<ConfigMap>(&key).await? {
                Some(counter) => (counter.metadata.resource_version.clone(), least.max(counted(&counter)?)),
                None => (None, least),
            },
        };
        let ids = first..first.saturating_add(jobs);
        let counter = counter(version, ids.end);
        let result = match &counter.metadata.resource_version {
            None => cluster.create(namespace, MANAGER, &counter).await,
            // A patch leaves alone what others have added.
            Some(version) => {
                let patch = json!({"metadata": {"resourceVersion": version}, "data": counter.data});
                cluster.merge::<ConfigMap>(MANAGER, &key, &patch).await
            }
        };
        match result {
            Ok(counter) => return Ok((ids, counter.metadata.resource_version)),
            // Another process has written, created or deleted the counter.
            Err(error) if is_already_exists(&error) || is_conflict(&error) || is_not_found(&error) => {}
            Err(error) => match written(&counter, error) {
                refusal @ Error::Refused { .. } => {
                    least = least.max(remove_immutable(cluster, &key).await?.ok_or(refusal)?);
                }
                error => return Err(error),
            },
        }
    }
    Err(Error::Conflict { kind: "ConfigMap".to_owned(), name: names::JOB_IDS.to_owned() })
}

/// Deletes the counter if somebody has made it immutable, so that it is made again; gives what it says is next. If the
/// process ends before that, it is as if somebody had deleted the counter.
async fn remove_immutable<C: Cluster>(cluster: &C, key: &Key) -> Result<Option<u64>, Error> {
    let Some(counter) = cluster.get::<ConfigMap>(key).await? else { return Ok(None) };
    if counter.immutable != Some(true) {
        return Ok(None);
    }
    let next = counted(&counter)?;
    let preconditions = Preconditions { uid: counter.metadata.uid, resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    tracing::info!(namespace = &*key.namespace, next, "somebody had made the counter of job ids immutable; made again");
    match cluster.delete::<ConfigMap>(key, &parameters).await {
        Ok(()) => Ok(Some(next)),
        // Somebody else has deleted it.
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(Some(next)),
        Err(error) => Err(error.into()),
    }
}

/// What a counter says is next; pure.
fn counted(counter: &ConfigMap) -> Result<u64, Error> {
    let Some(text) = counter.data.as_ref().and_then(|data| data.get(NEXT)) else { return Ok(0) };
    let refused = |instead: &str| Error::Refused {
        kind: "ConfigMap".to_owned(),
        name: names::JOB_IDS.to_owned(),
        message: format!("{NEXT} is {text:?} instead of {instead}; delete the ConfigMap"),
    };
    let next = text.parse::<u64>().map_err(|_| refused("a number"))?;
    if next < NO_ID { Ok(next) } else { Err(refused("the number of a job")) }
}

/// A counter that says that this id is next; pure.
fn counter(version: Option<String>, next: u64) -> ConfigMap {
    let name = Some(names::JOB_IDS.to_owned());
    let metadata = ObjectMeta { name, resource_version: version, ..ObjectMeta::default() };
    let data = Some(BTreeMap::from([(NEXT.to_owned(), next.to_string())]));
    ConfigMap { metadata, data, ..ConfigMap::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::join_all;
    use streams_api::{BundleReference, JobSpec, JobStatus};
    use streams_kubernetes_fake::{Connection, Server};

    /// A namespace, and one process that gives out ids of it.
    struct Process {
        server: Server,
        connection: Connection,
        ids: JobIds,
        namespace: Arc<str>,
    }

    impl Process {
        fn of(server: &Server) -> Self {
            let (server, connection) = (server.clone(), server.connect());
            Self { server, connection, ids: JobIds::default(), namespace: "n".into() }
        }

        /// A job of the namespace is seen that has the id before this one.
        fn used_below(&self, unused: u64) {
            unused.checked_sub(1).into_iter().for_each(|id| self.ids.note(&self.namespace, id));
        }

        fn next(&self) -> u64 {
            block_on(self.ids.next(&self.connection, &self.namespace)).unwrap()
        }

        /// So many ids, one after another, and how many reads and writes they took.
        fn several(&self, jobs: u64) -> (Vec<u64>, [usize; 2]) {
            let (calls, writes) = (self.connection.calls(), self.connection.writes());
            let given = (0..jobs).map(|_| self.next()).collect();
            let writes = self.connection.writes() - writes;
            (given, [self.connection.calls() - calls - writes, writes])
        }

        fn counter(&self) -> Option<ConfigMap> {
            self.server.get(&key())
        }
    }

    fn key() -> Key {
        Key::new("n", names::JOB_IDS)
    }

    fn is(next: &str) -> Option<BTreeMap<String, String>> {
        Some(BTreeMap::from([(NEXT.to_owned(), next.to_owned())]))
    }

    #[test]
    fn numbers_count_up_and_never_below_those_in_use() {
        // counter, least -> number, counter after it
        let table = [(None, 0, 0, "1"), (None, 5, 5, "6"), (Some("3"), 0, 3, "4"), (Some("3"), 9, 9, "10")];
        for (existing, least, number, after) in table {
            let server = Server::new();
            if let Some(next) = existing {
                let namespace = Some("n".to_owned());
                let counter = counter(None, next.parse().unwrap());
                server.create(&ConfigMap { metadata: ObjectMeta { namespace, ..counter.metadata }, ..counter });
            }
            let process = Process::of(&server);
            process.used_below(least);
            assert_eq!(process.next(), number, "{existing:?} {least}");
            assert_eq!(process.counter().unwrap().data, is(after), "{existing:?} {least}");
        }
    }

    #[test]
    fn the_counter_is_read_once_and_then_only_if_somebody_else_has_written_it() {
        let server = Server::new();
        let process = Process::of(&server);
        assert_eq!(process.several(3), (vec![0, 1, 2], [1, 3]));
        assert_eq!(process.several(2), (vec![3, 4], [0, 2]));
        // A user makes it higher, and adds something of his own.
        server.edit::<ConfigMap>(&key(), |counter| {
            counter.data = is("10");
            counter.metadata.labels = Some(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        });
        assert_eq!(process.several(2), (vec![10, 11], [1, 3]), "the first write meets the user's");
        assert!(process.counter().unwrap().metadata.labels.is_some());
        // Lower than what was given out.
        server.edit::<ConfigMap>(&key(), |counter| counter.data = is("4"));
        assert_eq!(process.several(1), (vec![12], [1, 2]));
        // Nothing is known of jobs that have these ids: the mirror may be behind.
        server.remove::<ConfigMap>(&key());
        assert_eq!(process.several(2), (vec![13, 14], [1, 3]));
    }

    #[test]
    fn a_counter_that_somebody_makes_immutable_goes_on_counting() {
        let server = Server::new();
        let process = Process::of(&server);
        assert_eq!(process.several(3).0, [0, 1, 2]);
        let freeze = || server.edit::<ConfigMap>(&key(), |counter| counter.immutable = Some(true));
        freeze();
        assert_eq!(process.several(2).0, [3, 4]);
        assert_eq!(process.counter().map(|counter| (counter.data, counter.immutable)), Some((is("5"), None)));
        // By another frontend, which knows of no job.
        freeze();
        assert_eq!(Process::of(&server).several(2).0, [5, 6]);
    }

    #[test]
    fn in_a_crowd_ids_are_taken_for_jobs_to_come_and_none_is_lost_afterwards() {
        let server = Server::new();
        let process = Process::of(&server);
        assert_eq!(process.several(1), (vec![0], [1, 1]), "nobody hurries");
        process.connection.crowd(true);
        assert_eq!(process.several(25), ((1..26).collect(), [0, 2]));
        process.connection.crowd(false);
        assert_eq!(process.several(2), (vec![26, 27], [0, 0]), "there are some left");
        // The counter gets back what nobody wanted.
        server.advance(TAKEN_FOR);
        assert_eq!(process.several(2), (vec![28, 29], [0, 2]));
        assert_eq!(process.counter().unwrap().data, is("30"));
    }

    #[test]
    fn whoever_leads_next_gives_no_id_twice_and_nor_does_who_led_before() {
        let server = Server::new();
        let [first, second] = [Process::of(&server), Process::of(&server)];
        first.connection.crowd(true);
        assert_eq!(first.several(3).0, [0, 1, 2]);
        // What the first has taken is lost.
        assert_eq!(second.several(2).0, [16, 17]);
        // It does not know yet that another one leads.
        assert_eq!(first.several(1).0, [3]);
        server.advance(TAKEN_FOR);
        assert_eq!(first.several(1), (vec![18], [1, 2]), "what was left is not given back to a counter that went on");
        assert_eq!(second.several(1).0, [34]);
    }

    #[test]
    fn a_job_with_a_higher_id_than_was_taken_is_not_given_it_again() {
        let server = Server::new();
        let process = Process::of(&server);
        process.connection.crowd(true);
        assert_eq!(process.next(), 0);
        // Somebody has restored a job that has 7; one that has 40.
        for (least, expected) in [(8, 8), (41, 41), (0, 42)] {
            process.used_below(least);
            assert_eq!(process.next(), expected);
        }
    }

    #[test]
    fn what_is_known_of_a_namespace_ends_with_its_last_job() {
        let server = Server::new();
        let process = Process::of(&server);
        let job = |name: &str| {
            let mut job = Job::new(name, JobSpec::of(BundleReference::default()));
            job.metadata.namespace = Some("n".to_owned());
            server.create(&job);
            Key::new("n", name)
        };
        let (one, other) = (job("one"), job("other"));
        let mut mirrors = crate::controllers::tests::LateMirrors::of(&server);
        let jobs = mirrors.mirrors.jobs.clone();
        process.ids.follow(&jobs);
        process.connection.crowd(true);
        assert_eq!(process.next(), 0);
        // The job was restored with an id that nobody gave it.
        server.edit(&one, |job: &mut Job| {
            job.status = Some(JobStatus { job_id: Some(5), ..JobStatus::default() });
        });
        mirrors.deliver_all();
        assert_eq!(process.next(), 6);
        server.remove::<Job>(&one);
        mirrors.deliver_all();
        assert_eq!((process.ids.len(), process.next()), (1, 7));
        server.remove::<Job>(&other);
        mirrors.deliver_all();
        assert_eq!(process.ids.len(), 0);
        // The namespace is made again, with another counter.
        server.remove::<ConfigMap>(&key());
        assert_eq!(process.next(), 0);
        // No job has left since.
        process.ids.forget_without_jobs(&process.namespace, &jobs);
        assert_eq!(process.ids.len(), 0);
    }

    #[test]
    fn jobs_that_wait_at_the_same_time_are_in_nobodys_way() {
        let server = Server::new();
        let ids = JobIds::default();
        let writes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&writes);
        server.inspect(move |call| {
            let _ = counted.fetch_add(u64::from(call.verb.is_write()), Ordering::Relaxed);
        });
        let cluster = server.connect();
        let namespace: Arc<str> = "n".into();
        // The first takes one for itself while the others come.
        let wanted = (0..50).map(|_| ids.next(&cluster, &namespace));
        let mut given: Vec<u64> = block_on(join_all(wanted)).into_iter().map(Result::unwrap).collect();
        given.sort_unstable();
        assert_eq!(given, (0..50).collect::<Vec<_>>());
        assert!(writes.load(Ordering::Relaxed) <= 2, "{writes:?} writes");
        // The counter is gone, and jobs have ids.
        server.remove::<ConfigMap>(&key());
        assert_eq!(block_on(ids.next(&cluster, &namespace)).unwrap(), 50);
    }

    #[test]
    fn a_counter_that_cannot_be_written_is_tried_once_for_all_who_wait_and_again_for_who_comes_later() {
        let server = Server::new();
        let ids = JobIds::default();
        let tries = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&tries);
        server.refuse(move |call| {
            call.verb.is_write().then(|| {
                let _ = counted.fetch_add(1, Ordering::Relaxed);
                *kube::core::Status::failure("not now", "InternalError").with_code(500).boxed()
            })
        });
        let cluster = server.connect();
        let namespace: Arc<str> = "n".into();
        for round in 1..3 {
            let wanted = (0..50).map(|_| ids.next(&cluster, &namespace));
            for result in block_on(join_all(wanted)) {
                assert!(result.is_err_and(|error| error.to_string().contains("not now")));
            }
            // The first tries it for itself while the others come, and one of those for all of them.
            assert!(tries.load(Ordering::Relaxed) <= 2 * round, "{tries:?} in round {round}");
        }
        server.refuse(|_| None);
        assert_eq!(block_on(ids.next(&cluster, &namespace)).unwrap(), 0);
    }

    #[test]
    fn a_damaged_counter_is_reported() {
        for next in ["many", "-1", "9007199254740992", "18446744073709551615", "18446744073709551616"] {
            let damaged = ConfigMap { data: is(next), ..counter(None, 0) };
            let error = counted(&damaged).unwrap_err();
            assert!(error.is_permanent() && error.to_string().contains("delete the ConfigMap"), "{error}");
        }
        assert_eq!(counted(&counter(None, NO_ID - 1)).unwrap(), NO_ID - 1);
    }
}
