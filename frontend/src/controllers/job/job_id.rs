//! Allocates job ids, unique for the life of their namespace (rule job-5).
//!
//! A ConfigMap holds the next id. The controller increments it by compare-and-swap, so no id is allocated twice, even
//! if two controllers run. An id is lost if the process ends between allocating and recording it.
//!
//! Jobs of one process that wait for ids of one namespace at the same time would only be in each other's way: one of
//! them takes ids for all.

use super::MANAGER;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use streams_api::names;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::written;
use streams_kubernetes::{Error, Key};

/// Key of the ConfigMap.
const NEXT: &str = "next";
/// How often the compare-and-swap is tried.
const ATTEMPTS: u32 = 10;

/// Gives ids to jobs.
#[derive(Default)]
pub(crate) struct JobIds {
    /// Namespaces in which jobs wait for an id.
    waiting: Mutex<BTreeMap<Arc<str>, Arc<Namespace>>>,
}

/// A namespace in which jobs wait for an id.
#[derive(Default)]
struct Namespace {
    jobs: AtomicU64,
    /// How often somebody began to take ids from the counter.
    begun: AtomicU64,
    taken: tokio::sync::Mutex<Taken>,
}

/// What came of taking ids from the counter for jobs that wait.
#[derive(Default)]
struct Taken {
    ids: Range<u64>,
    /// Why there are none.
    failed: Option<Error>,
}

/// A job that waits for an id. Its namespace is forgotten with the last of them, and with it ids that nobody wanted.
struct Waiting<'a> {
    ids: &'a JobIds,
    name: &'a Arc<str>,
    namespace: Arc<Namespace>,
}

impl JobIds {
    /// Takes the next id, at least `least`: no job has that id or a higher one. It is the next id if a user has deleted
    /// the counter.
    ///
    /// # Errors
    /// [`Error::Conflict`] if others were faster too often; [`Error::Refused`] if the counter was damaged by hand;
    /// failures of the calls, also of those that another job made for this one: they do not wait one after the other.
    pub(crate) async fn next<C: Cluster>(&self, cluster: &C, namespace: &Arc<str>, least: u64) -> Result<u64, Error> {
        let waiting = self.wait(namespace);
        let Namespace { jobs, begun, taken } = &*waiting.namespace;
        let before = begun.load(Ordering::Relaxed);
        let mut taken = taken.lock().await;
        taken.ids.start = taken.ids.start.max(least);
        if taken.ids.is_empty() {
            if let Some(failed) = taken.failed.as_ref().filter(|_| begun.load(Ordering::Relaxed) > before) {
                return Err(same(failed));
            }
            begun.fetch_add(1, Ordering::Relaxed);
            let result = take(cluster, namespace, taken.ids.start, jobs.load(Ordering::Relaxed)).await;
            taken.failed = result.as_ref().err().map(same);
            taken.ids = result?;
        }
        let id = taken.ids.start;
        taken.ids.start = id.saturating_add(1);
        Ok(id)
    }

    fn wait<'a>(&'a self, name: &'a Arc<str>) -> Waiting<'a> {
        let namespace = Arc::clone(self.waiting().entry(Arc::clone(name)).or_default());
        namespace.jobs.fetch_add(1, Ordering::Relaxed);
        Waiting { ids: self, name, namespace }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Namespace>>> {
        // Every change is finished before anything that could panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.ids.waiting();
        if self.namespace.jobs.fetch_sub(1, Ordering::Relaxed) == 1 {
            waiting.remove(self.name);
        }
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

/// Takes so many ids from the counter of a namespace.
async fn take<C: Cluster>(cluster: &C, namespace: &str, least: u64, jobs: u64) -> Result<Range<u64>, Error> {
    let key = Key::new(namespace, names::JOB_IDS);
    for _ in 0..ATTEMPTS {
        let existing = cluster.get::<ConfigMap>(&key).await?;
        let (ids, counter) = step(existing.as_ref(), least, jobs)?;
        let result = match existing {
            None => cluster.create(namespace, MANAGER, &counter).await,
            Some(_) => cluster.replace(MANAGER, &counter).await,
        };
        match result {
            Ok(_) => return Ok(ids),
            // Another process has written, created or deleted the counter.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            Err(error) => return Err(written(&counter, error)),
        }
    }
    Err(Error::Conflict { kind: "ConfigMap".to_owned(), name: names::JOB_IDS.to_owned() })
}

/// The ids that a counter gives to so many jobs, and the counter afterwards; pure.
fn step(existing: Option<&ConfigMap>, least: u64, jobs: u64) -> Result<(Range<u64>, ConfigMap), Error> {
    let counted = existing.and_then(|counter| counter.data.as_ref()).and_then(|data| data.get(NEXT));
    let counted = match counted {
        None => 0,
        Some(text) => text.parse().map_err(|_| Error::Refused {
            kind: "ConfigMap".to_owned(),
            name: names::JOB_IDS.to_owned(),
            message: format!("{NEXT} is {text:?} instead of a number; delete the ConfigMap"),
        })?,
    };
    let first = least.max(counted);
    let ids = first..first.saturating_add(jobs);
    let mut counter = existing.cloned().unwrap_or_else(|| ConfigMap {
        metadata: ObjectMeta { name: Some(names::JOB_IDS.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    });
    counter.data = Some(BTreeMap::from([(NEXT.to_owned(), ids.end.to_string())]));
    Ok((ids, counter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::join_all;
    use streams_kubernetes_fake::Server;

    fn counter(next: &str) -> ConfigMap {
        let data = Some(BTreeMap::from([(NEXT.to_owned(), next.to_owned())]));
        let metadata = ObjectMeta { resource_version: Some("7".to_owned()), ..ObjectMeta::default() };
        ConfigMap { metadata, data, ..ConfigMap::default() }
    }

    #[test]
    fn numbers_count_up_and_never_below_those_in_use() {
        // counter, least, jobs -> numbers, counter after it
        let table = [
            (None, 0, 1, 0..1, "1"),
            (None, 5, 1, 5..6, "6"),
            (Some("3"), 0, 1, 3..4, "4"),
            (Some("3"), 9, 1, 9..10, "10"),
            (Some("3"), 0, 20, 3..23, "23"),
        ];
        for (existing, least, jobs, numbers, after) in table {
            let existing = existing.map(counter);
            let (ids, next) = step(existing.as_ref(), least, jobs).unwrap();
            assert_eq!((ids, next.data.unwrap()[NEXT].as_str()), (numbers, after));
            let version = existing.and_then(|existing| existing.metadata.resource_version);
            assert_eq!(next.metadata.resource_version, version, "a compare-and-swap");
        }
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
        let wanted = (0..50).map(|_| ids.next(&cluster, &namespace, 0));
        let mut given: Vec<u64> = block_on(join_all(wanted)).into_iter().map(Result::unwrap).collect();
        given.sort_unstable();
        assert_eq!(given, (0..50).collect::<Vec<_>>());
        assert!(writes.load(Ordering::Relaxed) <= 2, "{writes:?} writes");
        assert!(ids.waiting().is_empty());
        // The counter is gone, and jobs have ids.
        server.remove::<ConfigMap>(&Key::new("n", names::JOB_IDS));
        assert_eq!(block_on(ids.next(&cluster, &namespace, 50)).unwrap(), 50);
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
            let wanted = (0..50).map(|_| ids.next(&cluster, &namespace, 0));
            for result in block_on(join_all(wanted)) {
                assert!(result.is_err_and(|error| error.to_string().contains("not now")));
            }
            // The first tries it for itself while the others come, and one of those for all of them.
            assert!(tries.load(Ordering::Relaxed) <= 2 * round, "{tries:?} in round {round}");
        }
        server.refuse(|_| None);
        assert_eq!(block_on(ids.next(&cluster, &namespace, 0)).unwrap(), 0);
        assert!(ids.waiting().is_empty());
    }

    #[test]
    fn a_damaged_counter_is_reported() {
        let error = step(Some(&counter("many")), 0, 1).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("delete the ConfigMap"), "{error}");
    }
}
