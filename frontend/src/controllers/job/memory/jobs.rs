//! The memory of all jobs: what it has of a job ends with the job, and what it has of an object of the job ends with
//! that object (rule call-20).
//!
//! Knows: names, uids and versions; how much room there is. Must not know: what comes of long work.

use super::Entry;
use crate::controllers::job::memory::plans::Plans;
use crate::controllers::job::owned::Owned;
use crate::controllers::job::tasks::TextsAtHand;
use crate::controllers::remembered::Remembered;
use crate::fusion::RenderedText;
use crate::mirrors::{Mirrors, trim};
use bytes::Bytes;
use kube::ResourceExt;
use moka::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use streams_api::Job;
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Mirrored, Watch, version};
use tokio::sync::Semaphore;

/// How many bytes of texts are at hand, of all jobs together (rule job-8).
const TEXTS_AT_HAND: usize = 8 << 20;

/// The memory of all jobs.
pub(crate) struct Memory {
    jobs: Remembered<Entry>,
    plans: Plans,
    adls: Cache<String, Bytes>,
    /// Room for texts at hand, a permit for each byte.
    texts: Arc<Semaphore>,
}

impl Memory {
    /// A memory that keeps this many bytes of ADL, and of plans. What it has of a job ends with the job, and what it
    /// has of an object of the job ends with that object.
    pub(crate) fn new(adl_bytes: u64, plan_bytes: u64, mirrors: &Mirrors) -> Self {
        let adls = Cache::builder()
            .weigher(|_: &String, adl: &Bytes| u32::try_from(adl.len()).unwrap_or(u32::MAX))
            .max_capacity(adl_bytes)
            .build();
        let texts = Arc::new(Semaphore::new(TEXTS_AT_HAND));
        let memory = Self { jobs: Remembered::default(), plans: Plans::new(plan_bytes), adls, texts };
        memory.jobs.end_with(&mirrors.jobs);
        memory.end_writes(&mirrors.processing_elements);
        memory.end_writes(&mirrors.services);
        memory.end_writes(&mirrors.parallel_regions);
        memory.end_writes(&mirrors.host_pools);
        memory.end_writes(&mirrors.exports);
        memory.end_writes(&mirrors.imports);
        memory.end_writes(&mirrors.consistent_regions);
        memory.end_writes(&mirrors.config_maps);
        memory
    }

    /// From now on what is kept of an object ends when it leaves this mirror.
    fn end_writes<K: Mirrored>(&self, mirror: &Watch<K>) {
        let jobs = self.jobs.clone();
        mirror.subscribe_to_departures(move |object, _| {
            let owners = object.meta().owner_references.iter().flatten();
            for owner in owners.filter(|owner| owner.controller == Some(true)) {
                let job = Key::of(object).sibling(&owner.name);
                let Some(owned) = Owned::of_name::<K>(&owner.name, &object.name_any()) else { continue };
                jobs.find(&job, &owner.uid, |entry| entry.departed(&owned, object.meta().uid.as_deref()));
            }
        });
    }

    /// Gives access to the memory of the job with this uid. Only reconciles of this job may use it: what they keep of a
    /// job that leaves meanwhile is forgotten by the reconcile that follows.
    pub(crate) fn with<T>(&self, key: &Key, uid: &str, look: impl FnOnce(&mut Entry) -> T) -> T {
        self.jobs.with(key, uid, || Entry::new(self.plans.of_job(uid)), look)
    }

    /// Gives access to the memory of a job, if there is one.
    pub(crate) fn find<T>(&self, key: &Key, uid: &str, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.jobs.find(key, uid, look)
    }

    /// The job is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.jobs.forget_all_of(key);
    }

    /// Jobs of which something is kept. ADL has a bound of its own; plans and texts end with their jobs.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let Self { jobs, plans: _, adls: _, texts: _ } = self;
        jobs.len()
    }

    /// The newer of two states of the job: that of the mirror, and the answer to the last write.
    pub(crate) fn latest(&self, key: &Key, mirrored: Arc<Job>) -> Arc<Job> {
        let uid = mirrored.metadata.uid.clone().unwrap_or_default();
        let latest = self.find(key, &uid, |entry| {
            let own = entry.latest.take_if(|own| version(&own.metadata) <= version(&mirrored.metadata));
            drop(own);
            entry.latest.clone()
        });
        latest.flatten().unwrap_or(mirrored)
    }

    /// The API server has this job now.
    pub(crate) fn wrote(&self, key: &Key, mut job: Job) {
        // As the mirror has it, without what may be large.
        trim::job(&mut job);
        let uid = job.metadata.uid.clone().unwrap_or_default();
        self.with(key, &uid, |entry| {
            entry.saw(version(&job.metadata));
            entry.latest = Some(Arc::new(job));
            entry.gone = None;
        });
    }

    /// The API server was asked for the job with this uid, and has said this. Returns whether the job is there: it is
    /// not if it is gone, if another one has its name, or if it is being deleted (rule call-28).
    pub(crate) fn told(&self, key: &Key, uid: &str, told: Option<Job>, passed: Duration) -> bool {
        let is_it = |job: &Job| job.metadata.uid.as_deref().unwrap_or_default() == uid;
        let Some(job) = told.filter(|job| is_it(job) && job.metadata.deletion_timestamp.is_none()) else {
            // Of one that has left the mirror meanwhile nothing is kept.
            self.find(key, uid, |entry| entry.heard_of_end(passed));
            return false;
        };
        self.wrote(key, job);
        true
    }

    /// Lets the plans of jobs go that rest; the caches do so by themselves only while they are used.
    pub(crate) fn let_plans_rest(&self) {
        self.plans.let_rest();
    }

    /// The ADL with this digest, if it is kept.
    pub(crate) fn adl(&self, sha256: &str) -> Option<Bytes> {
        self.adls.get(sha256)
    }

    /// These texts of this plan, with their share of the room for texts at hand; nothing if there is too little left.
    pub(crate) fn at_hand(&self, plan: String, by_pe: BTreeMap<u64, RenderedText>) -> Option<TextsAtHand> {
        let bytes: usize = by_pe.values().map(|text| text.text.len()).sum();
        let room = Arc::clone(&self.texts).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()?;
        Some(TextsAtHand::new(plan, by_pe, room))
    }

    /// Keeps an ADL.
    pub(crate) fn keep_adl(&self, sha256: String, adl: Bytes) {
        self.adls.insert(sha256, adl);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::tasks::TaskKind;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{BundleReference, JobSpec};
    use streams_kubernetes::metrics::Metrics;
    use tokio_util::sync::CancellationToken;

    fn memory() -> Memory {
        Memory::new(0, 0, &Mirrors::new(&Metrics::new("test")))
    }

    fn job(uid: &str, version: &str) -> Job {
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        job.metadata.uid = Some(uid.to_owned());
        job.metadata.resource_version = Some(version.to_owned());
        job
    }

    #[test]
    fn texts_are_at_hand_as_long_as_there_is_room_for_them_whosever_they_are() {
        let memory = memory();
        let texts = |bytes: usize| {
            let text = Bytes::from(vec![b'x'; bytes]);
            BTreeMap::from([(3, RenderedText { pe_id: 3, content_id: String::new(), text })])
        };
        let mut kept: Vec<_> = (0..2).map(|_| memory.at_hand("p".to_owned(), texts(TEXTS_AT_HAND / 2))).collect();
        assert!(kept.iter().all(Option::is_some));
        assert!(memory.at_hand("p".to_owned(), texts(1)).is_none());
        drop(kept.pop());
        assert!(memory.at_hand("p".to_owned(), texts(1)).is_some());
    }

    #[test]
    fn the_newer_state_of_a_job_counts() {
        let memory = memory();
        let key = Key::new("n", "flow");
        let latest = |job: Job| memory.latest(&key, Arc::new(job)).metadata.resource_version.clone().unwrap();
        assert_eq!(latest(job("a", "5")), "5");
        memory.wrote(&key, job("a", "10"));
        assert_eq!(latest(job("a", "5")), "10", "the mirror is behind");
        assert_eq!(latest(job("a", "10")), "10");
        assert_eq!(latest(job("a", "11")), "11");
        memory.wrote(&key, job("a", "20"));
        assert_eq!(latest(job("b", "3")), "3", "another job of the same name");
    }

    #[test]
    fn what_is_older_than_what_was_looked_at_or_written_is_behind() {
        let (memory, key) = (memory(), Key::new("n", "flow"));
        let is_behind = |version: u64| memory.find(&key, "a", |entry| entry.is_behind(version)).unwrap();
        let behind = |versions: [u64; 4]| versions.map(is_behind);
        memory.wrote(&key, job("a", "10"));
        // The mirror has shown it.
        memory.latest(&key, Arc::new(job("a", "10")));
        assert_eq!(behind([0, 9, 10, 11]), [false, true, false, false]);
        memory.find(&key, "a", |entry| entry.saw(12));
        assert_eq!(behind([0, 11, 12, 13]), [false, true, false, false]);
        // The API server was put back, and says so.
        memory.wrote(&key, job("a", "7"));
        assert_eq!(behind([0, 6, 7, 12]), [false, true, false, false]);
    }

    #[test]
    fn a_job_that_the_api_server_does_not_have_is_gone_until_it_has_it() {
        let (key, at) = (Key::new("n", "flow"), Duration::from_secs(7));
        let mut going = job("a", "11");
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        // what the API server says of the job with uid "a" -> it is there
        let table = [(None, false), (Some(job("b", "11")), false), (Some(going), false), (Some(job("a", "11")), true)];
        for (told, is_there) in table {
            let memory = memory();
            memory.wrote(&key, job("a", "10"));
            let gone_for = |memory: &Memory| memory.find(&key, "a", |entry| entry.gone_for(at + at)).unwrap();
            assert_eq!(gone_for(&memory), None);
            let name = format!("{told:?}");
            assert_eq!(memory.told(&key, "a", told, at), is_there, "{name}");
            assert_eq!(gone_for(&memory), (!is_there).then_some(at), "{name}");
            let latest = memory.latest(&key, Arc::new(job("a", "9"))).metadata.resource_version.clone();
            assert_eq!(latest.as_deref(), Some(if is_there { "11" } else { "10" }), "{name}");
            // It was not gone.
            assert!(memory.told(&key, "a", Some(job("a", "12")), at));
            assert_eq!(gone_for(&memory), None, "{name}");
        }
        let memory = memory();
        assert!(!memory.told(&key, "a", None, at));
        assert_eq!(memory.len(), 0, "nothing is kept of a job that has left the mirror");
    }

    #[test]
    fn of_what_was_written_no_more_is_kept_than_the_mirror_keeps() {
        let (memory, key) = (memory(), Key::new("n", "flow"));
        let mut written = job("a", "10");
        written.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
        written.labels_mut().extend((0..1_000).map(|number| (format!("example.com/{number}"), String::new())));
        written.annotations_mut().insert("example.com/note".to_owned(), String::new());
        memory.wrote(&key, written);
        let kept = memory.latest(&key, Arc::new(job("a", "5")));
        assert_eq!(kept.metadata.resource_version.as_deref(), Some("10"));
        assert_eq!((kept.finalizers().len(), kept.labels().len(), kept.annotations().len()), (0, 0, 0));
    }

    #[test]
    fn the_memory_of_a_job_ends_with_it_and_so_does_its_work() {
        let memory = memory();
        let key = Key::new("n", "flow");
        let token = CancellationToken::new();
        memory.with(&key, "a", |entry| entry.cancel.insert(TaskKind::Fetch, token.clone()));
        assert!(memory.find(&key, "b", |_| ()).is_none());
        assert!(!token.is_cancelled());
        memory.forget(&key);
        assert!(token.is_cancelled());
        assert!(memory.find(&key, "a", |_| ()).is_none());
    }
}
