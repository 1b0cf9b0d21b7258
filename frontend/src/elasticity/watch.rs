//! Streams that follow requests and regions (rule elasticity-23).
//!
//! A stream is asked for its next message when the connection has room for one. Only then it looks at what the mirrors
//! show, and tells what differs from what it has told: so nothing is queued, and a slow reader hears the newest state.
//! Streams over the same regions share looks ([`looks`](super::looks)). Each keeps a digest of each region that it has
//! told, and nothing else.
//!
//! Invariants: a stream has a place among those that there may be, from its first message to its end; it ends at its
//! deadline, and at once when this frontend is to stop.

use super::looks::{PAUSE, RegionDigests, RegionsLook, RegionsScope};
use super::outcome;
use super::state::{is_end, phase, state};
use super::view::ClusterView;
use super::{Elasticity, errors};
use crate::grpc::places::{CallerName, Place};
use futures::{Stream, stream};
use kube::ResourceExt as _;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use streams_api::{Job, Resize};
use streams_proto::elasticity::v1::{Progress, Region, ResizePhase, WatchRegionsResponse, WatchResizeResponse};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Regions of a message, at most. Each takes some KiB at most, a message of many clients 4 MiB.
const REGIONS_MAX: usize = 256;

/// What a stream waits for between two looks.
struct Waits {
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
            () = self.stopping.cancelled() => Err(errors::shutting_down_while(what)),
            changed = timeout_at(self.deadline, self.changes.changed()) => match changed {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(errors::shutting_down_while(what)),
                Err(_) => Err(errors::still_waiting_to(what)),
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
            () = self.stopping.cancelled() => Err(errors::shutting_down_while(what)),
            () = tokio::time::sleep_until(self.deadline) => Err(errors::still_waiting_to(what)),
            done = end => Ok(done),
        }
    }
}

/// A stream over a request.
struct ResizeStream<V> {
    service: Elasticity<V>,
    waits: Waits,
    /// As it was seen last.
    request: Arc<Resize>,
    /// The mirror has shown it.
    is_seen: bool,
    told: Option<WatchResizeResponse>,
}

/// A stream over regions.
struct RegionsStream<V> {
    service: Elasticity<V>,
    waits: Waits,
    scope: Arc<RegionsScope>,
    /// The regions that were told.
    told: Arc<RegionDigests>,
    /// Messages about one look that are still to be taken.
    rest: VecDeque<WatchRegionsResponse>,
    /// Everything was told once.
    is_complete: bool,
}

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
        let waits = self.waits(place, deadline, self.view.changes(&namespace, &job));
        let following = ResizeStream { service: self.clone(), waits, request, is_seen: false, told: None };
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
        let waits = self.waits(place, deadline, scope.changes());
        let following = RegionsStream {
            service: self.clone(),
            waits,
            scope,
            told: Arc::default(),
            rest: VecDeque::new(),
            is_complete: false,
        };
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

    fn waits(&self, place: Place, deadline: Instant, changes: watch::Receiver<u64>) -> Waits {
        Waits { changes, deadline, stopping: self.stopping.clone(), _place: place }
    }
}

impl<V: ClusterView> ResizeStream<V> {
    /// The next message: the first time how far the request is, then when something else is to be told.
    async fn next(&mut self) -> Result<WatchResizeResponse, Status> {
        loop {
            self.waits.changes.mark_unchanged();
            let message = self.look()?;
            // What is committed stays so, though the mirror of jobs may be ahead of that of requests.
            let is_behind = self.told.as_ref().is_some_and(is_committed) && !is_committed(&message);
            if !is_behind && self.told.as_ref() != Some(&message) {
                self.told = Some(message.clone());
                return Ok(message);
            }
            self.waits.change(waiting_for(&message)).await?;
        }
    }

    fn look(&mut self) -> Result<WatchResizeResponse, Status> {
        let (namespace, name) = (self.request.namespace().unwrap_or_default(), self.request.name_any());
        let shown = self.service.view.resize(&namespace, &name).filter(|shown| shown.uid() == self.request.uid());
        let is_gone = self.is_seen && shown.is_none();
        if let Some(shown) = shown {
            self.is_seen = true;
            self.request = shown;
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
        if !is_over && job.is_some_and(|job| job.metadata.deletion_timestamp.is_some()) {
            // Nobody looks at its requests any more.
            return Err(errors::job_goes(&namespace, &self.request.spec.job_name));
        }
        Ok(message)
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
            if let Some(message) = self.rest.pop_front() {
                return Ok(message);
            }
            if self.is_complete {
                self.waits.change(Self::WHAT).await?;
                self.waits.until(tokio::time::sleep(PAUSE), Self::WHAT).await?;
            }
            self.waits.changes.mark_unchanged();
            let look = self.waits.until(self.scope.look(&self.service), Self::WHAT).await??;
            self.note(&look);
        }
    }

    /// Notes what differs from what was told.
    fn note(&mut self, look: &RegionsLook) {
        let told = std::mem::replace(&mut self.told, Arc::clone(&look.digests));
        let changed = look.regions.iter().filter(|region| look.digests.is_changed(&told, region));
        let changed: Vec<Region> = changed.cloned().collect();
        let gone = look.digests.gone_since(&told);
        if !self.is_complete {
            // Another stream may have looked before this one began, and ready widths may be others since.
            self.waits.changes.mark_changed();
        }
        if changed.is_empty() && gone.is_empty() && self.is_complete {
            return;
        }
        self.is_complete = true;
        let mut messages: VecDeque<_> =
            changed
                .chunks(REGIONS_MAX)
                .map(|regions| WatchRegionsResponse { regions: regions.to_vec(), ..WatchRegionsResponse::default() })
                .chain(gone.chunks(REGIONS_MAX).map(|deleted| WatchRegionsResponse {
                    deleted: deleted.to_vec(),
                    ..WatchRegionsResponse::default()
                }))
                .collect();
        if messages.is_empty() {
            messages.push_back(WatchRegionsResponse::default());
        }
        if let Some(last) = messages.back_mut() {
            last.complete = true;
        }
        self.rest = messages;
    }
}
