//! The regions that answers about requests show (rule elasticity-28).
//!
//! How a region is shown depends on all requests of its job that have not ended, and the mirrors keep these packed. One
//! commit may answer a thousand calls of a job: if each of them read a thousand requests, nobody else would be served
//! for a minute. So those that come at the same time share what is read, and it is read on threads that serve nobody
//! else.
//!
//! Knows: jobs, their regions. Must not know: what has become of a request.
//!
//! Invariants: what an answer shows was looked at after it had been asked for. Few look at the same time, and of a
//! namespace one; jobs of a namespace take turns. Nothing is kept of a job that no answer is being made about.

use super::Elasticity;
use super::lists::Sight;
use super::view::ClusterView;
use crate::fair_semaphore::FairSemaphore;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use streams_kubernetes::Key;
use streams_kubernetes::queue::Owner;
use streams_proto::elasticity::v1::Region;
use tokio::task::spawn_blocking;
use tonic::Status;

/// Looks at the same time, in all and of one namespace. Beside them there are those of reads: an answer about what
/// has happened is not behind these.
const LOOKS_MAX: usize = 2;
const LOOKS_OF_ONE_MAX: usize = 1;

/// What answers share. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Answers {
    turns: FairSemaphore,
    jobs: Arc<Mutex<HashMap<Key, Weak<AnswersOfJob>>>>,
}

/// What answers about one job share.
#[derive(Default)]
struct AnswersOfJob {
    /// How many looks have begun.
    begun: AtomicU64,
    last: Mutex<Option<Look>>,
}

/// What is seen of a job, and the regions that somebody has asked for since.
struct Look {
    number: u64,
    sight: Sight,
    shown: HashMap<String, Option<Region>>,
}

impl Answers {
    /// Nobody is answered.
    pub(super) fn new() -> Self {
        Self { turns: FairSemaphore::new(LOOKS_MAX, LOOKS_OF_ONE_MAX), jobs: Arc::default() }
    }

    fn of_job(&self, job: &Key) -> Arc<AnswersOfJob> {
        let mut jobs = self.jobs.lock();
        if let Some(known) = jobs.get(job).and_then(Weak::upgrade) {
            return known;
        }
        jobs.retain(|_, answers| answers.strong_count() > 0);
        let new = Arc::default();
        jobs.insert(job.clone(), Arc::downgrade(&new));
        new
    }
}

impl AnswersOfJob {
    /// These regions of the job, as far as they are there: as they are now, or were after so many looks had begun.
    fn regions<V: ClusterView>(&self, service: &Elasticity<V>, job: &Key, after: u64, names: &[String]) -> Vec<Region> {
        let mut last = self.last.lock();
        let newer = last.take().filter(|look| look.number > after);
        let look = last.insert(newer.unwrap_or_else(|| self.look(service, job)));
        names.iter().filter_map(|name| look.region(service, job, name)).collect()
    }

    fn look<V: ClusterView>(&self, service: &Elasticity<V>, job: &Key) -> Look {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        Look { number, sight: service.sight_at_once(job), shown: HashMap::new() }
    }
}

impl Look {
    fn region<V: ClusterView>(&mut self, service: &Elasticity<V>, job: &Key, name: &str) -> Option<Region> {
        let Self { sight, shown, .. } = self;
        let show = || service.view.region(&job.namespace, &job.name, name).map(|object| sight.region(&object));
        shown.entry(name.to_owned()).or_insert_with(show).clone()
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// These regions of a job, as far as they are there. No others are read, but for the one that may have a request of
    /// an earlier release (rule elasticity-5).
    ///
    /// # Errors
    /// The look panicked, or this frontend ends.
    pub(super) async fn regions_of(&self, job: &Key, names: Vec<String>) -> Result<Vec<Region>, Status> {
        let of_job = self.answers.of_job(job);
        let asked_after = of_job.begun.load(Ordering::SeqCst);
        let owner = Owner { namespace: Arc::clone(&job.namespace), object: Arc::clone(&job.name) };
        let turn = self.answers.turns.acquire_for(owner).await;
        let (service, job) = (self.clone(), job.clone());
        let looked = spawn_blocking(move || {
            let _turn = turn;
            of_job.regions(&service, &job, asked_after, &names)
        });
        looked.await.map_err(|_| Status::internal("the regions of the request could not be looked at"))
    }
}
