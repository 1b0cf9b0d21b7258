//! Looks at many objects of a namespace (rule elasticity-28).
//!
//! A job may have thousands of regions, requests and PEs, which the mirrors keep packed: to read all of them takes part
//! of a second. A thread of the runtime that did so would serve nobody else meanwhile.
//!
//! ```text
//!  calls ──► places ────────────────────────────────┐
//!  streams of one scope ──► one look for all, rest ──┴─► turn of the namespace ──► thread that serves nobody else
//! ```
//!
//! Knows: namespaces, scopes, callers, how long a look took. Must not know: what is looked for.
//!
//! Invariants: few looks go on at the same time, and of a namespace one; besides one that finds the objects which a
//! caller with rights for single objects means. Callers of a namespace that are known take turns, and so do all of its
//! streams with them. Whoever waits for a turn hears when its time is over, and when this frontend is to stop. Streams
//! of one scope share looks, and between two looks of a scope there is a rest that grows with what a look takes. A look
//! that streams share has everything that the number of the scope stands for.

use super::ready::ReadyWidths;
use super::view::ClusterView;
use super::{Elasticity, errors};
use crate::fair_semaphore::{FairPermit, FairSemaphore};
use crate::grpc::places::{CallerName, NOTHING, Places};
use moka::Expiry;
use moka::sync::Cache;
use parking_lot::Mutex;
use prost::Message as _;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};
use std::time::Duration;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Owner;
use streams_proto::elasticity::v1::{Region, RegionName};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;

/// Looks at the same time: there are two processors where the frontend usually runs.
const LOOKS_MAX: usize = 2;
/// Looks of one namespace: the other one is for others.
const LOOKS_OF_ONE_MAX: usize = 1;
/// Calls that wait for a look or have one, of one namespace a quarter at most; further ones are refused.
const WAITING_MAX: usize = 4_096;
pub(super) const WAITING_OF_ONE_MAX: usize = 1_024;
/// How long a scope rests between two looks at least: changes in between are told together.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// How many times as long as a look took: so a scope takes a fifth of a thread at most.
const RESTS: u32 = 4;
/// At most.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Jobs whose ready widths are kept.
const READY_KEPT: u64 = 1_000;
/// For how long at least: who asks for each region of a job looks at its PEs once.
const READY_FOR: Duration = Duration::from_millis(150);
/// At most.
const READY_FOR_MAX: Duration = Duration::from_secs(5);

const WHAT: &str = "other reads of the namespace to be done";

/// Whose turn it is, and what is shared. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Looks {
    turns: FairSemaphore,
    pub(super) waiting: Places,
    /// Of callers whose rights are for single objects, by their names.
    of_callers: FairSemaphore,
    scopes: Arc<Mutex<HashMap<(String, Option<String>), Weak<RegionsScope>>>>,
}

impl Looks {
    /// Nobody looks.
    pub(super) fn new() -> Self {
        let (turns, of_callers) = (FairSemaphore::new(LOOKS_MAX, LOOKS_OF_ONE_MAX), FairSemaphore::new(1, 1));
        Self { turns, waiting: Places::new(WAITING_MAX, WAITING_OF_ONE_MAX), of_callers, scopes: Arc::default() }
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// What `look` makes of many objects of this namespace, for a caller that waits until `deadline`. It goes on if the
    /// caller leaves.
    ///
    /// # Errors
    /// Too many wait, this one has waited for too long, or this frontend is to stop; or the look panicked.
    pub(super) async fn look_off_thread<T: Send + 'static>(
        &self,
        namespace: &str,
        caller: Option<&CallerName>,
        deadline: Instant,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let place = self.place_among(&self.looks.waiting, namespace, None, caller);
        let _place = place.map_err(|full| errors::too_many_waiting("reads", &full))?;
        let of_caller = caller.map(|CallerName(name)| Arc::clone(name)).unwrap_or_default();
        let turn = tokio::select! {
            biased;
            turn = timeout_at(deadline, self.turn(namespace, of_caller)) => turn,
            () = self.stopping.cancelled() => return Err(errors::shutting_down_while("", WHAT)),
        };
        let late = |_| errors::still_waiting_to("", WHAT);
        let looked = timeout_at(deadline, self.look_in(turn.map_err(late)?, look)).await;
        looked.map_err(late)?
    }

    /// The same for all streams that share what comes of it, each of which waits for as long as it likes.
    ///
    /// # Errors
    /// The look panicked, or this frontend ends.
    async fn look_shared<T: Send + 'static>(
        &self,
        namespace: &str,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.look_in(self.turn(namespace, Arc::default()).await, look).await
    }

    /// Waits for a turn of this caller of a namespace. All namespaces that have no jobs are one.
    async fn turn(&self, namespace: &str, caller: Arc<str>) -> FairPermit {
        let group = if self.view.has_jobs(namespace) { namespace } else { NOTHING };
        self.looks.turns.acquire_for(Owner { namespace: group.into(), object: caller }).await
    }

    /// The same for somebody who perhaps has no right in the namespace (rule elasticity-29): that takes nobody's turn
    /// who has. Callers take turns.
    ///
    /// # Errors
    /// The same.
    pub(super) async fn look_for<T: Send + 'static>(
        &self,
        caller: Option<&CallerName>,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.looks.of_callers.acquire(caller.map_or("", |CallerName(name)| name)).await;
        self.look_in(turn, look).await
    }

    async fn look_in<T: Send + 'static>(
        &self,
        turn: FairPermit,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let service = self.clone();
        let done = spawn_blocking(move || {
            let _turn = turn;
            look(&service)
        });
        done.await.map_err(|_| Status::internal("what was asked for could not be looked at"))
    }

    /// The regions of a job, or of a namespace, for a stream.
    pub(super) fn regions_scope(&self, namespace: &str, job: Option<&str>) -> Arc<RegionsScope> {
        let mut scopes = self.looks.scopes.lock();
        let key = (namespace.to_owned(), job.map(str::to_owned));
        if let Some(scope) = scopes.get(&key).and_then(Weak::upgrade) {
            return scope;
        }
        scopes.retain(|_, scope| scope.strong_count() > 0);
        let changes = match job {
            Some(job) => self.view.changes(namespace, job),
            None => self.view.changes_of_namespace(namespace),
        };
        let (namespace, job) = key.clone();
        let (newest, latest) = (Mutex::default(), Arc::default());
        let scope = Arc::new(RegionsScope { namespace, job, changes, newest, latest });
        scopes.insert(key, Arc::downgrade(&scope));
        scope
    }
}

/// Regions that streams follow together.
pub(super) struct RegionsScope {
    namespace: String,
    job: Option<String>,
    changes: watch::Receiver<u64>,
    /// What was seen last. It is there for whoever has not told all of a look while somebody else looks again.
    newest: Mutex<Option<Arc<RegionsLook>>>,
    latest: Arc<tokio::sync::Mutex<Option<Latest>>>,
}

/// The last look.
struct Latest {
    look: Arc<RegionsLook>,
    /// The number of the scope when it began.
    number: u64,
    /// Until when there is no other one.
    rests_until: Instant,
}

/// What was seen at one moment.
pub(super) struct RegionsLook {
    /// By names of the job, of the region and of the object.
    pub(super) regions: Vec<Region>,
    /// The same, to compare other looks with.
    pub(super) digests: Arc<RegionDigests>,
    /// There are more than anybody may look at, and none is here.
    pub(super) is_too_much: bool,
}

impl RegionsScope {
    /// Marked as changed whenever anything of the scope may have changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// The last look, however old it is.
    pub(super) fn newest(&self) -> Option<Arc<RegionsLook>> {
        self.newest.lock().clone()
    }

    /// A look that has all changes until now: that of another stream, or a new one, if the last one is older.
    ///
    /// # Errors
    /// The regions could not be looked at.
    pub(super) async fn look<V: ClusterView>(
        self: &Arc<Self>,
        service: &Elasticity<V>,
    ) -> Result<Arc<RegionsLook>, Status> {
        let mut latest = Arc::clone(&self.latest).lock_owned().await;
        if let Some(latest) = &*latest {
            if latest.number == *self.changes.borrow() && Instant::now() < latest.rests_until {
                return Ok(Arc::clone(&latest.look));
            }
            sleep_until(latest.rests_until).await;
        }
        let number = *self.changes.borrow();
        let (scope, before) = (Arc::clone(self), latest.as_ref().map(|latest| Arc::clone(&latest.look.digests)));
        let look = move |service: &Elasticity<V>| {
            let begun = std::time::Instant::now();
            let regions = service.regions_now(&scope.namespace, scope.job.as_deref());
            let (is_too_much, regions) = (regions.is_none(), regions.unwrap_or_default());
            let digests = Arc::new(RegionDigests::of(&regions, &before.unwrap_or_default()));
            let look = Arc::new(RegionsLook { regions, digests, is_too_much });
            let rests_until = rest_after(begun.elapsed());
            // Here, since the stream that has begun the look may have gone: it is one all the same.
            *scope.newest.lock() = Some(Arc::clone(&look));
            *latest = Some(Latest { look: Arc::clone(&look), number, rests_until: Instant::now() + rests_until });
            look
        };
        service.look_shared(&self.namespace, look).await
    }
}

/// How long a scope rests after a look.
fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(RESTS).clamp(PAUSE, PAUSE_MAX)
}

/// Stands for what is shown of regions, by name of the object. A stream that has not told all of a look has some of its
/// own, so names are shared.
#[derive(Clone, Default)]
pub(super) struct RegionDigests(BTreeMap<Arc<str>, (Arc<RegionName>, u64)>);

impl RegionDigests {
    /// Those of the regions of a look, after another one.
    fn of(regions: &[Region], before: &Self) -> Self {
        let entry = |region: &Region| {
            let (name, digest) = (name_of(region), digest(region));
            match before.0.get_key_value(&*region.object_name) {
                Some((object, (before, _))) if **before == name => (Arc::clone(object), (Arc::clone(before), digest)),
                _ => (Arc::from(&*region.object_name), (Arc::new(name), digest)),
            }
        };
        Self(regions.iter().map(entry).collect())
    }

    /// Whether the region was another one before.
    pub(super) fn is_changed(&self, before: &Self, region: &Region) -> bool {
        let digest = |of: &Self| of.0.get(&*region.object_name).map(|(_, digest)| *digest);
        digest(self) != digest(before)
    }

    /// Names of the regions that were there before, and are not here.
    pub(super) fn gone_since(&self, before: &Self) -> Vec<Arc<RegionName>> {
        let gone = before.0.iter().filter(|(object, _)| !self.0.contains_key(&**object));
        gone.map(|(_, (name, _))| Arc::clone(name)).collect()
    }

    /// From now on these are as they are there, where they are not any more if they are gone.
    pub(super) fn follow<'a>(&mut self, there: &Self, objects: impl IntoIterator<Item = &'a str>) {
        for object in objects {
            match there.0.get_key_value(object) {
                Some((object, entry)) => self.0.insert(Arc::clone(object), entry.clone()),
                None => self.0.remove(object),
            };
        }
    }
}

fn name_of(region: &Region) -> RegionName {
    RegionName {
        namespace: region.namespace.clone(),
        job: region.job.clone(),
        name: region.name.clone(),
        object_name: region.object_name.clone(),
    }
}

/// Stands for everything that is shown of a region.
fn digest(region: &Region) -> u64 {
    let mut hasher = DefaultHasher::new();
    region.encode_to_vec().hash(&mut hasher);
    hasher.finish()
}

/// Ready widths of jobs whose PEs were looked at, by job and generation. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct KeptReadyWidths(Cache<(Key, Option<u64>), Found>);

/// What was found, and for how long it is kept.
#[derive(Clone)]
struct Found {
    widths: Arc<ReadyWidths>,
    kept_for: Duration,
}

struct AsLongAsItSays;

impl Expiry<(Key, Option<u64>), Found> for AsLongAsItSays {
    fn expire_after_create(&self, _: &(Key, Option<u64>), found: &Found, _: std::time::Instant) -> Option<Duration> {
        Some(found.kept_for)
    }

    fn expire_after_update(
        &self,
        _: &(Key, Option<u64>),
        found: &Found,
        _: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(found.kept_for)
    }
}

impl KeptReadyWidths {
    /// None.
    pub(super) fn new() -> Self {
        Self(Cache::builder().max_capacity(READY_KEPT).expire_after(AsLongAsItSays).build())
    }

    /// Those of a job in this generation, if they were found out a moment ago.
    pub(super) fn get(&self, of: &(Key, Option<u64>)) -> Option<Arc<ReadyWidths>> {
        self.0.get(of).map(|found| found.widths)
    }

    /// Keeps what it took so long to find out.
    pub(super) fn put(&self, of: (Key, Option<u64>), widths: &Arc<ReadyWidths>, took: Duration) {
        self.0.insert(of, Found { widths: Arc::clone(widths), kept_for: kept_for(took) });
    }
}

fn kept_for(took: Duration) -> Duration {
    took.saturating_mul(RESTS).clamp(READY_FOR, READY_FOR_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_done_seldom() {
        // milliseconds that it takes -> between two looks of a scope; that ready widths are kept
        let table =
            [(0, 200, 150), (40, 200, 160), (1_000, 4_000, 4_000), (2_000, 8_000, 5_000), (60_000, 10_000, 5_000)];
        for (took, rest, kept) in table {
            let took = Duration::from_millis(took);
            let expected = (Duration::from_millis(rest), Duration::from_millis(kept));
            assert_eq!((rest_after(took), kept_for(took)), expected, "{took:?}");
        }
    }
}
