//! The reconciler of jobs as a value: the cluster, the services that it calls, its memory.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | the struct |
//! | [`job_id`] | gives out job ids |
//! | [`rewrites`] | how many objects a new version of the frontend may rewrite now |
//! | [`shared_look`] | what was found of the whole cluster a moment ago |
//!
//! Knows: what reconciles and long work share, plans too. Must not know: how they use it.

mod job_id;
pub(super) mod rewrites;
pub(super) mod shared_look;

use self::job_id::JobIds;
use self::rewrites::Rewrites;
use self::shared_look::SharedLook;
use super::documents;
use super::documents::chunks::Document;
use super::generation::Generation;
use super::hurries::Hurries;
use super::memory::Memory;
use super::observed::mirrored::MirroredChildren;
use super::off_thread::off_thread;
use super::services::{Bundles, Fusion};
use super::tasks::WorkItem;
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::pe_api_names::PeApiNames;
use crate::controllers::remembered::Remembered;
use crate::fair_semaphore::FairSemaphore;
use crate::mirrors::Mirrors;
use crate::owner::owner_of_job;
use crate::settings::JobSettings;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_api::{Job, StoredPlan};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Queue, Sharing};
use streams_kubernetes::{Error, Key};

/// What the last look at a job has read is kept if the job has at least so many objects: fewer are read as fast. In
/// tests of small jobs it is kept, too.
const KEPT_FROM: usize = if cfg!(test) { 1 } else { 256 };
/// Looks at the same time at jobs whose requests take much memory.
const LARGE_LOOKS: usize = 1;
/// A job rests that was not looked at for so long.
const RESTS: Duration = Duration::from_secs(60);

/// What was read of the objects of a job when it was looked at last.
struct LastLook {
    at: Instant,
    children: Arc<MirroredChildren>,
}

/// Brings jobs to the state that their specs describe. Reconciles and long work share it.
pub(super) struct JobReconciler<C> {
    pub(super) cluster: C,
    pub(super) mirrors: Mirrors,
    pub(super) bundles: Arc<dyn Bundles>,
    pub(super) fusion: Arc<dyn Fusion>,
    pub(super) settings: JobSettings,
    pub(super) memory: Memory,
    /// How long the last look at a job took.
    pub(super) looks: Remembered<Duration>,
    /// Who waits for the end of a turn that is under way.
    pub(super) hurries: Hurries,
    /// What the last look at a job has read; only of jobs with many objects, and until they rest.
    last_looks: Remembered<LastLook>,
    /// Objects that are rewritten for this version of the frontend.
    pub(super) rewrites: Rewrites,
    /// Free CPU of the cluster, for automatic fusion.
    pub(super) free_cpu: SharedLook<Option<u64>>,
    /// Names of all nodes; `None` if the frontend may not see them.
    pub(super) node_names: SharedLook<Option<Arc<BTreeSet<String>>>>,
    pub(super) job_ids: JobIds,
    /// PEs that were created and not launched yet.
    pub(super) known_launches: KnownLaunches,
    /// Where PEs do not reach the frontend, because somebody else has a Service of the name.
    pub(super) pe_api_names: PeApiNames,
    /// Fetching bundles. Apart from the other long work, which a slow server of bundles must not delay.
    pub(super) downloads: Queue<WorkItem>,
    /// All other long work.
    pub(super) long_work: Queue<WorkItem>,
    /// Who looks at the requests of a job that has many.
    pub(super) large_looks: FairSemaphore,
}

impl<C> fmt::Debug for JobReconciler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobReconciler")
    }
}

#[cfg(test)]
impl<C> JobReconciler<C> {
    /// How much each memory has. Whoever adds a field says here whether it remembers something.
    pub(super) fn remembered(&self) -> Vec<(&'static str, usize)> {
        let Self {
            cluster: _,
            mirrors: _,
            bundles: _,
            fusion: _,
            settings: _,
            memory,
            looks,
            hurries,
            last_looks,
            rewrites: _,
            free_cpu: _,
            node_names: _,
            job_ids,
            known_launches,
            pe_api_names: _,
            downloads,
            long_work,
            large_looks: _,
        } = self;
        vec![
            ("jobs", memory.len()),
            ("looks", looks.len()),
            ("hurries", hurries.len()),
            ("last looks", last_looks.len()),
            ("job ids", job_ids.len()),
            ("known launches", known_launches.len()),
            ("downloads", downloads.remembered()),
            ("long work", long_work.remembered()),
        ]
    }
}

impl<C: Cluster> JobReconciler<C> {
    /// A reconciler of the jobs of these mirrors.
    pub(super) fn new(
        cluster: C,
        mirrors: &Mirrors,
        bundles: Arc<dyn Bundles>,
        fusion: Arc<dyn Fusion>,
        known_launches: KnownLaunches,
        settings: JobSettings,
        metrics: &Metrics,
    ) -> Self {
        let owner = |item: &WorkItem| owner_of_job(&item.job);
        let queue = |name, workers: u16| {
            let workers = usize::from(workers);
            // Half for one namespace; some are kept for what a running job waits for.
            let half = workers.div_ceil(2);
            let not_urgent = workers - workers / 4;
            let sharing = Sharing { owner, per_namespace: half, not_urgent, not_urgent_per_namespace: half };
            mirrors.refusals.hold_back(Queue::new(name, BackOff::default(), sharing, metrics))
        };
        let downloads = queue("downloads", settings.download_workers);
        let long_work = queue("long_work", settings.long_workers);
        let memory = Memory::new(settings.adl_cache_mib << 20, settings.plan_cache_mib << 20, mirrors);
        let looks = Remembered::default();
        looks.end_with(&mirrors.jobs);
        let hurries = Hurries::new(&mirrors.jobs);
        let last_looks = Remembered::default();
        last_looks.end_with(&mirrors.jobs);
        let job_ids = JobIds::default();
        job_ids.follow(&mirrors.jobs);
        let rewrites = Rewrites::new(settings.rewrites_per_second);
        let mirrors = mirrors.clone();
        Self {
            cluster,
            mirrors,
            bundles,
            fusion,
            settings,
            memory,
            looks,
            hurries,
            last_looks,
            rewrites,
            free_cpu: SharedLook::default(),
            node_names: SharedLook::default(),
            job_ids,
            known_launches,
            pe_api_names: PeApiNames::default(),
            downloads,
            long_work,
            large_looks: FairSemaphore::new(LARGE_LOOKS, LARGE_LOOKS),
        }
    }

    /// Reads the objects of a job as the mirrors show them, as far as they have changed since the last look.
    pub(super) fn look_at_children(&self, key: &Key, job: &Job) -> Arc<MirroredChildren> {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let before = self.last_look(key, uid).unwrap_or_default();
        let children = Arc::new(MirroredChildren::of(&self.mirrors, key, job, &before));
        if children.len() >= KEPT_FROM {
            self.last_looks.keep(key, uid, LastLook { at: Instant::now(), children: Arc::clone(&children) });
        } else {
            self.last_looks.forget_all_of(key);
        }
        children
    }

    /// What the last look at a job has read, if it is kept.
    pub(super) fn last_look(&self, key: &Key, uid: &str) -> Option<Arc<MirroredChildren>> {
        self.last_looks.find(key, uid, |last| Arc::clone(&last.children))
    }

    /// There is no job of this name any more.
    pub(super) fn forget(&self, key: &Key) {
        self.memory.forget(key);
        self.looks.forget_all_of(key);
        self.hurries.forget(key);
        self.last_looks.forget_all_of(key);
        self.job_ids.forget_without_jobs(&key.namespace, &self.mirrors.jobs);
    }

    /// Lets go what was read of jobs that rest.
    pub(super) fn let_rest(&self) {
        self.memory.let_plans_rest();
        self.last_looks.retain(|last| last.at.elapsed() < RESTS);
    }

    /// The generation of a stored plan, from memory or from its chunks, or why the chunks do not have it.
    ///
    /// # Errors
    /// A call failed.
    pub(super) async fn generation(
        &self,
        job: &Key,
        uid: &str,
        plan: &StoredPlan,
    ) -> Result<Result<Arc<Generation>, String>, Error> {
        let StoredPlan { generation, sha256, chunks, compiler: _ } = plan;
        let remembered = self.memory.find(job, uid, |entry| entry.plans.get(sha256)).flatten();
        if let Some(generation) = remembered {
            return Ok(Ok(generation));
        }
        let remembered = self.memory.find(job, uid, |entry| entry.plans.packed(sha256)).flatten();
        let packed = match remembered {
            Some(packed) => packed,
            None => {
                let document = Document::Plan { generation: *generation };
                match documents::read_packed(&self.cluster, job, &document, sha256, *chunks).await? {
                    Ok(packed) => packed,
                    Err(incomplete) => return Ok(Err(incomplete.to_string())),
                }
            }
        };
        let (of, limit, unpacked) = (sha256.clone(), self.settings.max_plan_mib << 20, packed.clone());
        let read = off_thread(move || {
            let bytes = unpacked.unpack(&of, limit).map_err(|incomplete| incomplete.to_string())?;
            let generation = Generation::decode(&bytes).map_err(|unreadable| unreadable.to_string())?;
            Ok((Arc::new(generation), bytes.len()))
        });
        let (generation, size) = match read.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(read) => read,
            Err(why) => return Ok(Err(why)),
        };
        self.memory.find(job, uid, |entry| entry.plans.keep(sha256, Arc::clone(&generation), size, packed));
        Ok(Ok(generation))
    }
}
