//! Streams that follow requests and regions (rule elasticity-23).
//!
//! A stream is asked for its next message when nothing of the one before is left in the connection. Only then it looks
//! at what the mirrors show, and tells what differs from what it has told: so one message is queued at most, and a slow
//! reader hears the newest state behind that.
//! Streams over the same regions share looks ([`looks`](super::looks)). Each keeps a digest of each region that it has
//! told, and nothing else: what of a look does not fit into a message is told by the newest look there is when there is
//! room for the next one.
//!
//! Invariants: a stream has a place among those that there may be, from its first message to its end; it ends at its
//! deadline, and at once when this frontend is to stop.
//!
//! Knows: the mirrors, what a stream has told. Must not know: how widths come into force.

use super::followed::{FollowedRequest, ShownRequest};
use super::looks::{PAUSE, RegionDigests, RegionsLook, RegionsScope};
use super::outcome;
use super::presence::Presence;
use super::state::{is_end, phase, state};
use super::view::ClusterView;
use super::{Elasticity, errors};
use crate::controllers::job::requests::in_part::without_regions;
use crate::grpc::places::{CallerName, Place};
use futures::{Stream, stream};
use kube::ResourceExt as _;
use std::future::{Future, ready};
use std::sync::Arc;
use streams_api::{Job, Resize};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Kept;
use streams_proto::elasticity::v1::{
    Progress, Region, RegionName, ResizePhase, WatchRegionsResponse, WatchResizeResponse,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Regions of a message, at most. Each takes some KiB at most, a message of many clients 4 MiB.
const REGIONS_MAX: usize = 256;

/// What a stream waits for between two looks.
struct Waits {
    /// The name of the request, if one is followed.
    request: String,
    changes: watch::Receiver<u64>,
    deadline: Instant,
    stopping: CancellationToken,
    _place: Place,
}

impl Waits {
    /// Waits until something may have changed.
    ///
    /// # Errors
    /// The time is over, or this frontend is to stop.
    async fn change(&mut self, what: &str) -> Result<(), Status> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(errors::shutting_down_while(&self.request, what)),
            changed = timeout_at(self.deadline, self.changes.changed()) => match changed {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(errors::shutting_down_while(&self.request, what)),
                Err(_) => Err(errors::still_waiting_to(&self.request, what)),
            },
        }
    }

    /// What comes of this.
    ///
    /// # Errors
    /// The same.
    async fn until<T>(&self, end: impl Future<Output = T>, what: &str) -> Result<T, Status> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(errors::shutting_down_while(&self.request, what)),
            () = tokio::time::sleep_until(self.deadline) => Err(errors::still_waiting_to(&self.request, what)),
            done = end => Ok(done),
        }
    }
}

/// A stream over a request.
struct ResizeStream<V> {
    service: Elasticity<V>,
    waits: Waits,
    followed: Arc<FollowedRequest>,
    /// As it was seen last, without its regions.
    request: Arc<Resize>,
    /// The same with them.
    whole: Whole,
    presence: Presence,
    /// Its job was there.
    has_had_job: bool,
    /// Without the regions of the request.
    told: Option<WatchResizeResponse>,
}

/// All of a request that is followed.
enum Whole {
    /// The mirror shows it, or has shown it.
    Shown(Kept<Resize>),
    /// It does not show it yet.
    Found(Arc<Resize>),
}

/// A stream over regions.
struct RegionsStream<V> {
    service: Elasticity<V>,
    waits: Waits,
    scope: Arc<RegionsScope>,
    /// The regions that were told.
    told: Arc<RegionDigests>,
    stage: Stage,
}

/// What a stream over regions has told.
enum Stage {
    /// Nothing.
    Begin,
    /// Not all that was seen. The regions behind this one come next, so that those which change all the time leave room
    /// to others.
    Amid(Option<RegionPlace>),
    /// All that was seen at one moment.
    Complete,
}

/// Where a region is in a look: name of the job, of the region, of the object.
type RegionPlace = (String, String, String);

impl<V: ClusterView> Elasticity<V> {
    /// Follows a request until it ends.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn follow_resize(
        &self,
        request: Arc<Resize>,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<impl Stream<Item = Result<WatchResizeResponse, Status>> + Send + use<V>, Status> {
        let (namespace, job) = (request.namespace().unwrap_or_default(), request.spec.job_name.clone());
        let place = self.watches(&namespace, Some(&job), caller)?;
        let waits = self.waits(request.name_any(), place, deadline, self.view.changes(&namespace, &job));
        let followed = self.followed.request(&Key::of(&*request));
        let presence = self.presence_of(&request, caller, deadline);
        let (service, whole) = (self.clone(), Whole::Found(Arc::clone(&request)));
        let request = without_regions(request);
        let (has_had_job, told) = (false, None);
        let following = ResizeStream { service, waits, followed, request, whole, presence, has_had_job, told };
        Ok(stream::unfold(Some(following), |following| async {
            let mut following = following?;
            match following.next().await {
                Ok(message) => {
                    let is_over = message.resize.as_ref().is_some_and(|resize| is_end(resize.phase()));
                    Some((Ok(message), (!is_over).then_some(following)))
                }
                Err(status) => Some((Err(status), None)),
            }
        }))
    }

    /// Follows the regions of a job that is there, or of a namespace.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn follow_regions(
        &self,
        namespace: String,
        job: Option<String>,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<impl Stream<Item = Result<WatchRegionsResponse, Status>> + Send + use<V>, Status> {
        let place = self.watches(&namespace, job.as_deref(), caller)?;
        let scope = self.regions_scope(&namespace, job.as_deref());
        let waits = self.waits(String::new(), place, deadline, scope.changes());
        let following =
            RegionsStream { service: self.clone(), waits, scope, told: Arc::default(), stage: Stage::Begin };
        Ok(stream::unfold(Some(following), |following| async {
            let mut following = following?;
            match following.next().await {
                Ok(message) => Some((Ok(message), Some(following))),
                Err(status) => Some((Err(status), None)),
            }
        }))
    }

    /// A place for a stream.
    fn watches(&self, namespace: &str, job: Option<&str>, caller: Option<&CallerName>) -> Result<Place, Status> {
        self.place_among(&self.watching, namespace, job, caller).map_err(|full| errors::too_many_watching(&full))
    }

    fn waits(&self, request: String, place: Place, deadline: Instant, changes: watch::Receiver<u64>) -> Waits {
        Waits { request, changes, deadline, stopping: self.stopping.clone(), _place: place }
    }
}

impl<V: ClusterView> ResizeStream<V> {
    /// The next message: the first time how far the request is, then when something else is to be told.
    async fn next(&mut self) -> Result<WatchResizeResponse, Status> {
        loop {
            self.waits.changes.mark_unchanged();
            let (message, job) = self.look()?;
            // What is committed stays so, though the mirror of jobs may be ahead of that of requests.
            let is_behind = self.told.as_ref().is_some_and(is_committed) && !is_committed(&message);
            if !is_behind && self.told.as_ref() != Some(&message) {
                let whole = match &self.whole {
                    Whole::Shown(kept) => kept.read(),
                    Whole::Found(request) => Some(Arc::clone(request)),
                };
                let whole = whole.map_or_else(|| message.clone(), |whole| told_of(&whole, job.as_deref()));
                self.told = Some(message);
                return Ok(whole);
            }
            let what = waiting_for(&message);
            drop((message, job));
            let Self { waits, presence, .. } = self;
            tokio::select! {
                biased;
                () = presence.gone_unseen() => {}
                changed = waits.change(what) => changed?,
            }
        }
    }

    /// What there is to tell, without the regions of the request, and the job that was seen.
    fn look(&mut self) -> Result<(WatchResizeResponse, Option<Arc<Job>>), Status> {
        let (namespace, name) = (self.request.namespace().unwrap_or_default(), self.request.name_any());
        let shown = self.followed.now(&*self.service.view);
        let shown = shown.filter(|shown| shown.request.metadata.uid == self.request.metadata.uid);
        let is_gone = self.presence.is_gone(shown.is_some());
        if let Some(ShownRequest { kept, request }) = shown {
            (self.request, self.whole) = (request, Whole::Shown(kept));
        }
        // Finalizers may hold its object for long.
        let is_gone = is_gone || self.request.metadata.deletion_timestamp.is_some();
        let job = self.service.job_around(&self.request);
        let message = told_of(&self.request, job.as_deref());
        // What is committed goes on without the object, which is not kept for ever (rule elasticity-18).
        if is_gone && !is_committed(&message) {
            return Err(errors::request_gone(&name));
        }
        let is_over = message.resize.as_ref().is_some_and(|resize| is_end(resize.phase()));
        let of_job = &self.request.spec.job_name;
        match &job {
            // Nobody looks at its requests any more.
            Some(job) if !is_over && job.metadata.deletion_timestamp.is_some() => {
                return Err(errors::job_goes(&namespace, of_job, &name));
            }
            // That of a request which was made before its job may still come.
            None if !is_over && self.has_had_job && self.service.view.job(&namespace, of_job).is_none() => {
                return Err(errors::job_not_found(&namespace, of_job, &name));
            }
            job => self.has_had_job |= job.is_some(),
        }
        Ok((message, job))
    }
}

/// What there is to tell of a request, with what is seen of its job.
fn told_of(request: &Resize, job: Option<&Job>) -> WatchResizeResponse {
    let of_job = job.and_then(|job| job.status.as_ref());
    let is_committed = matches!(phase(request, job), ResizePhase::Committed | ResizePhase::RolledOut);
    let rollout = of_job.and_then(outcome::rollout).filter(|_| is_committed);
    let statistics = of_job.and_then(|status| status.statistics.as_ref());
    let progress = rollout.map(|rollout| Progress {
        generation: rollout.generation,
        pending: rollout.pending,
        ready: statistics.map_or(0, |statistics| statistics.ready_processing_elements),
        total: statistics.map_or(0, |statistics| statistics.processing_elements),
    });
    WatchResizeResponse { resize: Some(state(request, job)), progress }
}

/// It says that the request is committed, or over.
fn is_committed(message: &WatchResizeResponse) -> bool {
    message.resize.as_ref().is_some_and(|resize| resize.phase >= ResizePhase::Committed as i32)
}

/// What somebody who has heard this waits for, for people.
fn waiting_for(message: &WatchResizeResponse) -> &'static str {
    match &message.progress {
        Some(_) => "the generation of the request to be rolled out",
        None => "the request to be committed",
    }
}

impl<V: ClusterView> RegionsStream<V> {
    const WHAT: &str = "regions to change";

    /// The next message: the first time what there is, then what has changed.
    async fn next(&mut self) -> Result<WatchRegionsResponse, Status> {
        loop {
            let newest = self.scope.newest().filter(|_| matches!(self.stage, Stage::Amid(_)));
            let look = match newest {
                Some(newest) => self.waits.until(ready(newest), Self::WHAT).await?,
                None => self.look().await?,
            };
            if look.is_too_much {
                return Err(errors::too_many_regions());
            }
            if let Some(message) = self.tell(&look) {
                return Ok(message);
            }
        }
    }

    /// Looks again, when something may have changed.
    async fn look(&mut self) -> Result<Arc<RegionsLook>, Status> {
        if matches!(self.stage, Stage::Complete) {
            self.waits.change(Self::WHAT).await?;
            self.waits.until(tokio::time::sleep(PAUSE), Self::WHAT).await?;
        }
        self.waits.changes.mark_unchanged();
        let look = self.waits.until(self.scope.look(&self.service), Self::WHAT).await??;
        if matches!(self.stage, Stage::Begin) {
            // Another stream may have looked before this one began, and ready widths may be others since.
            self.waits.changes.mark_changed();
        }
        Ok(look)
    }

    /// Tells what differs from what was told: as much as a message has. Nothing, if that is nothing.
    fn tell(&mut self, look: &RegionsLook) -> Option<WatchRegionsResponse> {
        let changed: Vec<_> =
            look.regions.iter().filter(|region| look.digests.is_changed(&self.told, region)).collect();
        let gone = look.digests.gone_since(&self.told);
        let after = match std::mem::replace(&mut self.stage, Stage::Complete) {
            Stage::Complete if changed.is_empty() && gone.is_empty() => return None,
            Stage::Amid(after) => after,
            Stage::Begin | Stage::Complete => None,
        };
        let behind = changed.partition_point(|region| after.as_ref().is_some_and(|after| place_of(region) <= *after));
        let (before, behind) = changed.split_at(behind);
        let regions = match (behind, &*gone) {
            // What changes again is told when all that there is was.
            ([], []) => before,
            (behind, _) => behind,
        };
        let regions = regions.get(..REGIONS_MAX).unwrap_or(regions);
        let deleted = if regions.is_empty() { gone.get(..REGIONS_MAX).unwrap_or(&gone) } else { &[] };
        let message = WatchRegionsResponse {
            regions: regions.iter().copied().cloned().collect(),
            deleted: deleted.iter().map(|name| RegionName::clone(name)).collect(),
            complete: regions.len() + deleted.len() == changed.len() + gone.len(),
        };
        if message.complete {
            self.told = Arc::clone(&look.digests);
        } else {
            self.stage = Stage::Amid(regions.last().map(|region| place_of(region)));
            let objects = regions.iter().map(|region| &*region.object_name);
            let objects = objects.chain(deleted.iter().map(|name| &*name.object_name));
            Arc::make_mut(&mut self.told).follow(&look.digests, objects);
        }
        Some(message)
    }
}

fn place_of(region: &Region) -> RegionPlace {
    (region.job.clone(), region.name.clone(), region.object_name.clone())
}
