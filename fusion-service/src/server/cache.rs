//! The caches of a replica, which make the next call fast (rule service-9).
//!
//! There are three caches: parsed applications by the digest of their ADL, layouts by their digest, and compiled jobs
//! by everything that they depend on ([`JobKey`]). Each is bounded by estimated bytes and drops what was not used for
//! longest. Whoever adds an entry makes the room that it needs: what goes is gone before the next call.
//!
//! A job that goes may still be in use by calls. It counts with them from then on (`kept`). Of a job that is too large
//! to be remembered its size is, so that who restores it takes memory for it before.
//!
//! Knows: digests, keys, sizes. Must not know: how anything is made.
//!
//! Invariants: no answer depends on a cache, except that the server asks for content which the caller did not send and
//! no cache has. A key covers everything that its value is made from, apart from what is the same for the whole process
//! (compiler, limits). Content is stored only under a digest that was computed from it.

use super::compiler::Compiler;
use super::digest::Digest;
use super::kept::{Kept, Leaving};
use super::memory::Memory;
use super::metrics::Metrics;
use bytes::Bytes;
use moka::policy::EvictionPolicy;
use moka::sync::{Cache, CacheBuilder};
use parking_lot::Mutex;
use prost::Message;
use sha2::{Digest as _, Sha256};
use std::hash::Hash;
use std::sync::Arc;
use streams_proto::fusion::v1 as pb;

/// How many jobs that are too large to be remembered the size is known of.
const LARGE_JOBS: u64 = 1024;

/// Names a compiled job: the compilation (ADL by digest, names, fusion, values, settings, widths) and the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JobKey(Digest);

impl JobKey {
    /// The key of the job that `compilation` and a layout with this digest describe.
    pub(crate) fn new(compilation: &pb::Compilation, layout: Digest) -> Self {
        // Maps of the contract are sorted, so equal messages have equal bytes. The content of the ADL is left to its
        // digest.
        let adl = compilation.adl.as_ref().map(|blob| pb::Blob { sha256: blob.sha256.clone(), content: None });
        let mut hash = Sha256::new();
        hash.update(layout.to_bytes());
        hash.update(pb::Compilation { adl, ..compilation.clone() }.encode_to_vec());
        Self(Digest::from(<[u8; 32]>::from(hash.finalize())))
    }
}

/// Bytes that the caches may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheSizes {
    pub(crate) applications: u64,
    pub(crate) layouts: u64,
    pub(crate) jobs: u64,
}

impl CacheSizes {
    /// Divides `bytes` among the caches. Layouts are compact; jobs are the largest and the most useful.
    pub(crate) fn divide(bytes: u64) -> Self {
        let layouts = bytes / 16;
        let applications = bytes / 4;
        Self { applications, layouts, jobs: bytes - layouts - applications }
    }
}

/// The caches of one server.
pub(crate) struct Caches<C: Compiler> {
    applications: BoundedCache<Digest, Arc<C::Application>>,
    layouts: BoundedCache<Digest, Bytes>,
    jobs: BoundedCache<JobKey, Slot<C>>,
    /// Bytes of jobs that are too large.
    large_jobs: Cache<JobKey, u64>,
    leaving: Arc<Leaving<C::Job>>,
    metrics: Arc<Metrics>,
}

/// A compiled job.
pub(crate) type KeptJob<C> = Arc<Kept<<C as Compiler>::Job>>;

/// A job, until the cache drops it: the library keeps a value for some time after that, and a job is too large for it.
type Slot<C> = Arc<Mutex<Option<KeptJob<C>>>>;

struct BoundedCache<K: Hash + Eq + Send + Sync + 'static, V: Clone + Send + Sync + 'static> {
    name: &'static str,
    /// In units.
    capacity: u64,
    entries: Cache<K, (V, u64)>,
}

impl<C: Compiler> Caches<C> {
    /// Jobs that the cache drops count in `memory` as long as there are.
    pub(crate) fn new(sizes: CacheSizes, memory: Option<Memory>, metrics: Arc<Metrics>) -> Self {
        let left = move |slot: Slot<C>| {
            let job = slot.lock().take();
            if let (Some(job), Some(memory)) = (job, &memory) {
                job.leaves_cache(memory);
            }
        };
        Self {
            applications: BoundedCache::new("application", sizes.applications),
            layouts: BoundedCache::new("layout", sizes.layouts),
            jobs: BoundedCache::observed("job", sizes.jobs, left),
            large_jobs: Cache::builder().max_capacity(LARGE_JOBS).eviction_policy(EvictionPolicy::lru()).build(),
            leaving: Arc::new(Leaving::begin()),
            metrics,
        }
    }

    /// The application whose ADL has this digest.
    pub(crate) fn application(&self, adl: Digest) -> Option<Arc<C::Application>> {
        self.applications.get(&adl, Some, &self.metrics)
    }

    /// The same for a call that has not found it before: another call may have made it meanwhile.
    pub(crate) fn application_meanwhile(&self, adl: Digest) -> Option<Arc<C::Application>> {
        self.applications.get_again(&adl, Some, &self.metrics)
    }

    /// Remembers an application. `adl` must be the digest of the ADL that it was parsed from, `size` the bytes it
    /// takes.
    pub(crate) fn add_application(&self, adl: Digest, application: Arc<C::Application>, size: u64) {
        self.applications.add(adl, application, size);
    }

    /// The layout with this digest.
    pub(crate) fn layout(&self, digest: Digest) -> Option<Bytes> {
        self.layouts.get(&digest, Some, &self.metrics)
    }

    /// Remembers a layout. `digest` must have been computed from it.
    pub(crate) fn add_layout(&self, digest: Digest, layout: &[u8]) {
        // The cache keeps a copy, because a slice would keep the whole request in memory.
        self.layouts.add(digest, Bytes::copy_from_slice(layout), layout.len() as u64);
    }

    /// The compiled job.
    pub(crate) fn job(&self, key: JobKey) -> Option<KeptJob<C>> {
        self.jobs.get(&key, |slot| slot.lock().clone(), &self.metrics)
    }

    /// The same for a call that has not found it before: another call may have made it meanwhile.
    pub(crate) fn job_meanwhile(&self, key: JobKey) -> Option<KeptJob<C>> {
        self.jobs.get_again(&key, |slot| slot.lock().clone(), &self.metrics)
    }

    /// A job of so many bytes that the caller has just made.
    pub(crate) fn keep(&self, job: C::Job, bytes: u64) -> KeptJob<C> {
        Arc::new(Kept::new(job, bytes, &self.leaving))
    }

    /// Remembers a compiled job, which the thread that calls this has made.
    pub(crate) fn add_job(&self, key: JobKey, job: &KeptJob<C>) {
        if self.jobs.has_room_for(job.bytes()) {
            job.enters_cache();
            self.jobs.add(key, Arc::new(Mutex::new(Some(Arc::clone(job)))), job.bytes());
        } else {
            self.large_jobs.insert(key, job.bytes());
        }
        self.leaving.help();
    }

    /// Bytes of a job that was made before and was too large to be remembered.
    pub(crate) fn large_job(&self, key: JobKey) -> Option<u64> {
        self.large_jobs.get(&key)
    }

    /// Writes the current sizes to the metrics.
    pub(crate) fn measure(&self) {
        self.applications.measure(&self.metrics);
        self.layouts.measure(&self.metrics);
        self.jobs.measure(&self.metrics);
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Clone + Send + Sync + 'static> BoundedCache<K, V> {
    /// Weights are counted in units, because a weight has only 32 bits.
    const UNIT: u64 = 1 << 10;
    /// Bytes that an entry takes besides its value.
    const OVERHEAD: u64 = 256;

    fn new(name: &'static str, capacity: u64) -> Self {
        let capacity = capacity / Self::UNIT;
        Self { name, capacity, entries: Self::builder(name, capacity).build() }
    }

    /// The same with somebody who hears of each value that goes.
    fn observed(name: &'static str, capacity: u64, left: impl Fn(V) + Send + Sync + 'static) -> Self {
        let capacity = capacity / Self::UNIT;
        let builder = Self::builder(name, capacity).eviction_listener(move |_, (value, _), _| left(value));
        Self { name, capacity, entries: builder.build() }
    }

    fn builder(name: &str, capacity: u64) -> CacheBuilder<K, (V, u64), Cache<K, (V, u64)>> {
        Cache::builder()
            .name(name)
            .max_capacity(capacity)
            .weigher(|_, (_, size): &(V, u64)| Self::weight(*size))
            // The next call mostly needs what was just compiled, however often older entries were used.
            .eviction_policy(EvictionPolicy::lru())
    }

    /// Of an entry, in units.
    fn weight(size: u64) -> u32 {
        u32::try_from(size.saturating_add(Self::OVERHEAD).div_ceil(Self::UNIT)).unwrap_or(u32::MAX)
    }

    /// What `open` finds in the value, if there is one.
    fn get<T>(&self, key: &K, open: impl FnOnce(V) -> Option<T>, metrics: &Metrics) -> Option<T> {
        let found = self.entries.get(key).and_then(|(value, _)| open(value));
        metrics.count_lookup(self.name, found.is_some());
        found
    }

    /// A miss has been counted before.
    fn get_again<T>(&self, key: &K, open: impl FnOnce(V) -> Option<T>, metrics: &Metrics) -> Option<T> {
        let found = self.entries.get(key).and_then(|(value, _)| open(value))?;
        metrics.count_lookup(self.name, true);
        Some(found)
    }

    fn has_room_for(&self, size: u64) -> bool {
        u64::from(Self::weight(size)) <= self.capacity
    }

    /// What is larger than the cache is not added.
    fn add(&self, key: K, value: V, size: u64) {
        if !self.has_room_for(size) {
            return;
        }
        self.entries.insert(key, (value, size));
        // By itself the cache would find out at some later call that it has too much.
        self.entries.run_pending_tasks();
    }

    fn measure(&self, metrics: &Metrics) {
        self.entries.run_pending_tasks();
        metrics.cached_bytes(self.name, self.entries.weighted_size() * Self::UNIT);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::toy::Toy;
    use super::*;
    use streams_compiler::budget::Budget;

    fn caches(layouts: u64) -> Caches<Toy> {
        Caches::new(CacheSizes { applications: 0, layouts, jobs: 0 }, None, Arc::new(Metrics::new()))
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let caches = caches(64 << 10);
        let layouts: Vec<Bytes> = (0..4_u8).map(|i| Bytes::from(vec![i; 20 << 10])).collect();
        let digests: Vec<Digest> = layouts.iter().map(|layout| Digest::of(layout)).collect();
        for (digest, layout) in digests.iter().zip(&layouts).take(3) {
            caches.add_layout(*digest, layout);
        }
        assert_eq!(caches.layout(digests[0]).as_ref(), Some(&layouts[0]));
        caches.add_layout(digests[3], &layouts[3]);
        let kept: Vec<bool> = digests.iter().map(|digest| caches.layout(*digest).is_some()).collect();
        assert_eq!(kept, [true, false, true, true]);
    }

    #[test]
    fn what_is_larger_than_the_cache_is_not_kept() {
        let caches = caches(8 << 10);
        let layout = Bytes::from(vec![0; 16 << 10]);
        caches.add_layout(Digest::of(&layout), &layout);
        assert_eq!(caches.layout(Digest::of(&layout)), None);
    }

    #[test]
    fn a_job_that_has_gone_is_held_by_nobody_and_counts_with_the_calls_that_have_it() {
        let metrics = Arc::new(Metrics::new());
        let memory = Memory::new(1 << 20, Arc::clone(&metrics));
        let caches = Caches::<Toy>::new(
            CacheSizes { applications: 0, layouts: 0, jobs: 64 << 10 },
            Some(memory.clone()),
            Arc::clone(&metrics),
        );
        let (toy, budget) = (Toy::default(), Budget::default());
        let application = Arc::new(toy.parse(b"1 1", &budget).unwrap());
        let key = |number: u8| JobKey(Digest::of(&[number]));
        let add = |number, bytes| {
            let (job, _) = toy.submit(&application, &pb::Compilation::default(), &budget).unwrap();
            let job = caches.keep(job, bytes);
            caches.add_job(key(number), &job);
            job
        };
        // The second one takes the room of the first one, and the third one is too large.
        let (first, second) = (add(1, 40 << 10), add(2, 40 << 10));
        let (third, largest) = (Arc::downgrade(&add(3, 100 << 10)), memory.taken().0);
        assert!(third.upgrade().is_none());
        assert_eq!([1, 2, 3].map(|number| caches.job(key(number)).is_some()), [false, true, false]);
        assert_eq!([1, 2, 3].map(|number| caches.large_job(key(number))), [None, None, Some(100 << 10)]);
        assert_eq!(largest, 40 << 10);
        let (gone, kept) = (Arc::downgrade(&first), Arc::downgrade(&second));
        drop((first, second));
        assert_eq!((gone.upgrade().is_some(), kept.upgrade().is_some()), (false, true));
        // One of which only the place is left, because it is about to go, is not found.
        let lookups = |result: &str| {
            let text = metrics.encode().unwrap();
            let line = format!("fusion_cache_lookups_total{{cache=\"job\",result=\"{result}\"}} ");
            text.lines().find_map(|found| found.strip_prefix(&line)).unwrap().to_owned()
        };
        let (place, _) = caches.jobs.entries.get(&key(2)).unwrap();
        drop(place.lock().take());
        assert!(caches.job(key(2)).is_none() && caches.job_meanwhile(key(2)).is_none());
        assert_eq!(["hit", "miss"].map(lookups), ["1", "3"]);
    }

    #[test]
    fn the_key_of_a_job_covers_all_that_it_depends_on() {
        let blob = |text: &str| pb::Blob {
            sha256: Digest::of(text.as_bytes()).to_bytes(),
            content: Some(Bytes::copy_from_slice(text.as_bytes())),
        };
        let base = pb::Compilation { adl: Some(blob("adl")), job_name: "job".into(), job_id: 1, ..Default::default() };
        let with = |change: fn(&mut pb::Compilation)| {
            let mut changed = base.clone();
            change(&mut changed);
            changed
        };
        let layout = Digest::of(b"layout");
        let key = JobKey::new(&base, layout);
        // The content is not needed to name it.
        assert_eq!(key, JobKey::new(&with(|c| c.adl.as_mut().unwrap().content = None), layout));
        assert_ne!(key, JobKey::new(&base, Digest::of(b"another layout")));
        let manual = |count| Some(pb::Fusion { mode: Some(pb::fusion::Mode::Manual(count)), r#type: 0 });
        let changed = [
            pb::Compilation { adl: Some(blob("another adl")), ..base.clone() },
            with(|c| c.job_name = "other".into()),
            with(|c| c.job_id = 2),
            pb::Compilation { fusion: manual(1), ..base.clone() },
            pb::Compilation { fusion: manual(2), ..base.clone() },
            with(|c| drop(c.submission_values.insert("a".into(), "1".into()))),
            with(|c| drop(c.submission_values.insert("a".into(), "2".into()))),
            with(|c| c.configuration.get_or_insert_default().tracing = Some("debug".into())),
            with(|c| c.widths.push(pb::RegionWidth { region: "P".into(), width: 2 })),
        ];
        let mut keys: Vec<JobKey> = changed.iter().map(|compilation| JobKey::new(compilation, layout)).collect();
        keys.push(key);
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[..i] {
                assert_ne!(a, b);
            }
        }
    }
}
