//! Waits until what a caller waits for has become of its request (rules elasticity-11, elasticity-12 and
//! elasticity-28).
//!
//! Knows: the mirrors, requests, their jobs. Must not know: how widths come into force, who makes requests.
//!
//! Invariants: whoever waits is answered by its deadline, and when this frontend is to stop; nothing is kept of a job
//! meanwhile.

use super::backlog::Place;
use super::followed::ShownJob;
use super::outcome::{self, ResizeOutcome};
use super::presence::Presence;
use super::view::ClusterView;
use super::{Elasticity, ended, errors};
use crate::grpc::places::CallerName;
use kube::ResourceExt as _;
use std::sync::Arc;
use streams_api::{JobStatus, Resize};
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::{Key, wait};
use streams_proto::elasticity::v1::ResizeResponse;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// What somebody waits for whose answer is known but for its regions.
pub(super) const READING: &str = "the regions of the request to be read";

/// Why nobody waits any longer.
enum Over {
    /// The time is over.
    Late,
    /// This frontend is to stop.
    Stopping,
}

impl<V: ClusterView> Elasticity<V> {
    /// Waits until what the caller waits for has become of a request of this job.
    pub(super) async fn wait(
        &self,
        key: &Key,
        made: Resize,
        caller: Option<&CallerName>,
        mut place: Option<Place>,
        wait_for: WaitFor,
        deadline: Instant,
    ) -> Result<ResizeResponse, Status> {
        let (namespace, name, of_request) = (&*key.namespace, &*key.name, made.name_any());
        let (owned, mut request) = (made.metadata.clone(), made);
        let mut changes = self.view.changes(namespace, name);
        let (followed, of_job) = (self.followed.request(&key.sibling(&of_request)), self.followed.job(key));
        let mut presence = self.presence_of(&request, caller, deadline);
        let mut seen: Option<Arc<Resize>> = None;
        let (mut looked_at, mut is_first_look, mut over) = (None, true, None);
        let mut unadmitted_since = Some(Instant::now());
        loop {
            changes.mark_unchanged();
            let shown = followed.now(&*self.view).map(|shown| shown.request);
            let shown = shown.filter(|shown| shown.metadata.uid == owned.uid);
            let is_gone = presence.is_gone(shown.is_some());
            let job = of_job.now(&*self.view);
            // Each change of the job, its regions and its requests wakes all who wait for one of these.
            let sight = Some((is_gone, job.as_ref().map(|ShownJob { state, .. }| *state)));
            let new = shown.filter(|shown| seen.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, shown)));
            if over.is_none() && looked_at == sight && new.is_none() {
                drop(job);
                over = self.change(&mut changes, &mut presence, deadline).await;
                continue;
            }
            looked_at = sight;
            if let Some(new) = new {
                (request.metadata, request.status) = (new.metadata.clone(), new.status.clone());
                seen = Some(new);
            }
            if request.status.as_ref().is_some_and(|status| status.number.is_some()) {
                unadmitted_since.take().into_iter().for_each(show_wait);
            }
            let job = job.map(|ShownJob { job, .. }| job).filter(|job| is_controlled_by(&owned, &**job));
            let Some(job) = job else { return Err(errors::job_not_found(namespace, name, &of_request)) };
            if job.metadata.deletion_timestamp.is_some() {
                // Nobody looks at its requests any more.
                return Err(errors::job_goes(namespace, name, &of_request));
            }
            let none = JobStatus::default();
            let status = job.status.as_ref().unwrap_or(&none);
            // What is committed goes on without the object, which is not kept for ever (rule elasticity-18).
            let is_gone = is_gone && outcome::committed(&request, status).is_none();
            if is_gone || outcome::is_deleted_uncommitted(&request, status) {
                return Err(errors::request_gone(&of_request));
            }
            let outcome = outcome::assess(&request, wait_for, status);
            if std::mem::take(&mut is_first_look) && !matches!(outcome, ResizeOutcome::Waiting(_)) {
                // It waited for nothing: a request that was made before.
                place.take().into_iter().for_each(Place::give_up);
            }
            match (&outcome, &outcome::assess(&request, WaitFor::Committed, status)) {
                (_, ResizeOutcome::Done { generation, .. }) | (ResizeOutcome::Done { generation, .. }, _) => {
                    place.take().into_iter().for_each(|place| place.serve(*generation));
                }
                (ResizeOutcome::Ended(_), _) => place.take().into_iter().for_each(|place| place.serve(None)),
                // It says what it waits for, e.g. a cool-down.
                _ if request.status.as_ref().is_some_and(|status| status.reason.is_some()) => {
                    place.take().into_iter().for_each(Place::give_up);
                }
                _ => {}
            }
            match outcome {
                // It was looked at once more, so that what is told is so now.
                ResizeOutcome::Waiting(what) => match over {
                    Some(Over::Late) => return Err(errors::still_waiting(&of_request, &what.to_string())),
                    Some(Over::Stopping) => return Err(errors::shutting_down(&of_request, &what.to_string())),
                    None => {}
                },
                ResizeOutcome::Done { generation, changes } => {
                    let names = region_names(&request);
                    drop((job, request, presence));
                    let regions = timeout_at(deadline, self.regions_of(key, names)).await;
                    let regions = regions.map_err(|_| errors::still_waiting(&of_request, READING))??;
                    return Ok(ResizeResponse { regions, generation, changes, request: of_request, dry_run: None });
                }
                ResizeOutcome::Ended(_) => {
                    return Err(ended::why(key, &request, &ended::known_regions(Some(status))));
                }
            }
            drop(job);
            over = self.change(&mut changes, &mut presence, deadline).await;
        }
    }

    /// Waits until something may have changed, or it is over.
    async fn change(
        &self,
        changes: &mut watch::Receiver<u64>,
        presence: &mut Presence,
        deadline: Instant,
    ) -> Option<Over> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Some(Over::Stopping),
            () = presence.gone_unseen() => None,
            changed = timeout_at(deadline, changes.changed()) => match changed {
                Ok(Ok(())) => None,
                Ok(Err(_)) => Some(Over::Stopping),
                Err(_) => Some(Over::Late),
            },
        }
    }
}

/// The names of the regions of a request.
pub(super) fn region_names(request: &Resize) -> Vec<String> {
    request.spec.regions.iter().map(|desired| desired.name.clone()).collect()
}

/// Shows in the current trace how long a request waited for its admission, until now.
fn show_wait(since: Instant) {
    if let Some(took_ns) = wait::nanoseconds(since.elapsed()) {
        drop(tracing::debug_span!("wait for admission", took_ns));
    }
}
