//! Requests to resize as objects: whom they belong to, and when they end (rule elasticity-18).
//!
//! A request that somebody has made by hand names its job; this controller makes the job its owner, so that it is
//! looked at with the job and goes with it. What becomes of a request is the job controller's business.
//!
//! Knows: requests, names of jobs. Must not know: regions, widths.

#[cfg(test)]
mod tests;

use crate::controllers::reconciler::{self, Next};
use crate::mirrors::Mirrors;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::PropagationPolicy;
use kube::core::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use streams_api::resize::{RESIZES_KEPT, RESIZES_LOOKED_AT};
use streams_api::{AdmittedRegion, Job, Resize, ResizePhase, ResizeStatus, condition, names};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::error::{is_not_found, written};
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::{controlled_by, is_controlled_by};
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-resize-controller");
/// Why a request is refused whose job never came.
const JOB_NOT_FOUND: &str = "JobNotFound";
/// Why a request is refused that something else controls than the job that it names.
const OWNED_BY_OTHER: &str = "OwnedByOther";
/// How often it is looked whether the job of a request has come, if nothing tells of it.
const JOB_LOOKED_FOR: Duration = Duration::from_secs(60);
/// Longest message of a request (schema).
const MESSAGE_MAX: usize = 4096;

/// Lets every change that concerns a request wake its key.
pub(crate) fn subscribe(mirrors: &Mirrors, resizes: &Queue<Key>) {
    mirrors.resizes.wake(resizes, |request| [Key::of(request)]);
    // Requests that were made before their job.
    let of_job = resizes.clone();
    let there = mirrors.clone();
    mirrors.jobs.subscribe(move |job| {
        let key = Key::of(job);
        if there.jobs.contains(&key) && job.status.is_none() {
            there.resizes_for(&key).for_each(|request| of_job.add(request));
        }
    });
}

/// Gives requests to their jobs, and deletes those that ended long ago.
pub(crate) struct ResizeReconciler<C> {
    pub(crate) cluster: C,
    pub(crate) mirrors: Mirrors,
}

/// What is looked at.
pub(crate) struct ResizeObservation {
    request: Arc<Resize>,
    /// The reference to the job of the name that it has, if there is such a job.
    owner: Option<OwnerReference>,
    /// That job has numbered it, though it is not its owner any more.
    is_numbered_by_it: bool,
    /// Nobody waits any more for the roll-out of its generation, once it is written.
    is_past: bool,
    now: Timestamp,
}

/// Whether the job has gone on from the generation of a request, or its roll-out has taken longer than it may.
fn is_past(request: &Resize, job: &Job) -> bool {
    let (Some(of_job), Some(of_request)) = (&job.status, &request.status) else { return false };
    of_job.generation > of_request.generation || condition::is_true(&of_job.conditions, condition::RESIZE_DELAYED)
}

/// What is done about a request.
#[derive(Debug, PartialEq)]
pub(crate) enum ResizeDecision {
    /// Nothing, before this time has passed.
    Rest(Option<Duration>),
    /// Its job becomes its owner, and it has the label of the job.
    Adopt(OwnerReference),
    /// It is refused: its job never came, or is gone, and another one has its name.
    Refuse,
    /// It is refused: this controls it, and it cannot belong to its job.
    RefuseOwned(OwnerReference),
    /// It is deleted.
    Delete,
}

impl<C: Cluster> reconciler::Reconciler for ResizeReconciler<C> {
    type Answers = ();
    type Observation = ResizeObservation;
    type Decision = ResizeDecision;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<ResizeObservation>, Error> {
        let Some(request) = self.mirrors.resizes.get(key) else { return Ok(None) };
        let job = self.mirrors.jobs.get(&key.sibling(&request.spec.job_name));
        let is_past = job.as_ref().is_some_and(|job| is_past(&request, job));
        let is_numbered_by_it = job.as_ref().is_some_and(|job| self.is_numbered_by(&request, job));
        let owner = job.filter(|job| job.metadata.deletion_timestamp.is_none()).map(|job| controlled_by(&*job));
        Ok(Some(ResizeObservation { request, owner, is_numbered_by_it, is_past, now: self.cluster.now() }))
    }

    fn decide(
        ResizeObservation { request, owner, is_numbered_by_it, is_past, now }: &ResizeObservation,
    ) -> ResizeDecision {
        if request.metadata.deletion_timestamp.is_some() {
            return ResizeDecision::Rest(None);
        }
        let since = |time: Option<&Time>| {
            let passed = time.map(|time| Duration::try_from(now.duration_since(time.0)).unwrap_or_default());
            passed.unwrap_or_default()
        };
        let status = request.status.clone().unwrap_or_default();
        if request.phase().is_final() {
            let left = RESIZES_KEPT.saturating_sub(since(status.finished_at.as_ref()));
            return if left.is_zero() { ResizeDecision::Delete } else { ResizeDecision::Rest(Some(left)) };
        }
        let controller = request.owner_references().iter().find(|owner| owner.controller == Some(true));
        if let Some(other) = controller.filter(|controller| !is_named(controller, &request.spec.job_name)) {
            return ResizeDecision::RefuseOwned(other.clone());
        }
        let is_owned = controller.is_some();
        match owner {
            // The job finds its requests by their label.
            Some(owner) if is_owned && request.labels().get(names::LABEL_JOB) != Some(&request.spec.job_name) => {
                ResizeDecision::Adopt(owner.clone())
            }
            _ if request.phase() == ResizePhase::Written => {
                // One that an older frontend has written does not say when.
                let written_at = status.written_at.as_ref().or(request.metadata.creation_timestamp.as_ref());
                let left = RESIZES_KEPT.saturating_sub(since(written_at));
                // A job that was deleted without it rolls nothing out.
                match (left.is_zero(), *is_past || !is_owned) {
                    (false, _) => ResizeDecision::Rest(Some(left)),
                    (true, false) => ResizeDecision::Rest(Some(RESIZES_LOOKED_AT)),
                    (true, true) => ResizeDecision::Delete,
                }
            }
            _ if is_owned => ResizeDecision::Rest(None),
            // The job that has numbered it was deleted without it. The number is not one of this job.
            Some(_) if status.number.is_some() && !is_numbered_by_it => ResizeDecision::Refuse,
            // It is new, or somebody has removed the owner reference.
            Some(owner) => ResizeDecision::Adopt(owner.clone()),
            None => {
                let left = RESIZES_KEPT.saturating_sub(since(request.metadata.creation_timestamp.as_ref()));
                if left.is_zero() {
                    ResizeDecision::Refuse
                } else {
                    ResizeDecision::Rest(Some(left.min(JOB_LOOKED_FOR)))
                }
            }
        }
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        ResizeObservation { request, now, .. }: ResizeObservation,
        decision: ResizeDecision,
    ) -> Result<Next, Error> {
        let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
        match decision {
            ResizeDecision::Rest(after) => return Ok(Next::Rest(after.map_or(Outcome::Done, Outcome::Again))),
            ResizeDecision::Adopt(owner) => {
                let meta = &request.metadata;
                let others = meta.owner_references.iter().flatten();
                let is_there = controlled_by_any(meta);
                let owners: Vec<_> = others.chain(Some(&owner).filter(|_| !is_there)).collect();
                let patch = json!({"metadata": {
                    "uid": meta.uid,
                    "resourceVersion": meta.resource_version,
                    "labels": { names::LABEL_JOB: request.spec.job_name },
                    "ownerReferences": owners,
                }});
                // Somebody waits for it. In a flood most of them are refused.
                let job = key.sibling(&request.spec.job_name);
                let is_flood = self.mirrors.has_as_many_open_resizes_as_it_may(&job);
                let priority = if is_flood { Priority::Normal } else { Priority::Urgent };
                match priority.of(self.cluster.merge::<Resize>(MANAGER, key, &patch)).await {
                    // Most likely it is gone. Where it is not, nothing else would wake this controller, and somebody
                    // waits for the request.
                    Err(error) if is_not_found(&error) => return Ok(Next::Rest(Outcome::Conflict)),
                    Err(error) => return Err(written(&*request, error)),
                    Ok(_) => {}
                }
            }
            ResizeDecision::Refuse => {
                let is_orphaned = request.status.as_ref().is_some_and(|status| status.number.is_some());
                let job = &request.spec.job_name;
                let message = if is_orphaned {
                    format!("the job {job} that it was made for is gone")
                } else {
                    format!("there is no job {job}")
                };
                Priority::Telling.of(refuse(&writer, &request, JOB_NOT_FOUND, message, now)).await?;
            }
            ResizeDecision::RefuseOwned(OwnerReference { kind, name, .. }) => {
                let message = format!("{kind} {name} controls it, and not the job {}", request.spec.job_name);
                Priority::Telling.of(refuse(&writer, &request, OWNED_BY_OTHER, message, now)).await?;
            }
            ResizeDecision::Delete => {
                let deleted =
                    writer.delete::<Resize>(&key.name, request.metadata.uid.as_deref(), PropagationPolicy::Background);
                Priority::Freeing.of(deleted).await?;
            }
        }
        Ok(Next::Rest(Outcome::Done))
    }
}

impl<C> ResizeReconciler<C> {
    /// Whether this job has numbered the request, and none that had its name before: the request is younger than the
    /// job, or it was admitted for a region that the job controls.
    fn is_numbered_by(&self, request: &Resize, job: &Job) -> bool {
        let Some(status) = request.status.as_ref().filter(|status| status.number.is_some()) else { return false };
        let created = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|at| at.0);
        let is_younger = created(&request.metadata) > created(&job.metadata);
        let of_job = Key::of(job);
        let has = |admitted: &AdmittedRegion| {
            let mut named = self.mirrors.regions_named(&of_job, &admitted.name);
            named.any(|region| {
                region.metadata.uid.as_ref() == Some(&admitted.uid) && is_controlled_by(&region.metadata, job)
            })
        };
        is_younger || status.regions.iter().any(has)
    }
}

/// Whether this is the reference to a job of that name, and of this kind: others have kinds of the same name.
fn is_named(owner: &OwnerReference, job: &str) -> bool {
    (&*owner.kind, &*owner.api_version, &*owner.name) == (&*Job::kind(&()), &*Job::api_version(&()), job)
}

fn controlled_by_any(meta: &ObjectMeta) -> bool {
    meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true))
}

async fn refuse<C: Cluster>(
    writer: &Writer<'_, C>,
    request: &Resize,
    reason: &str,
    message: String,
    now: Timestamp,
) -> Result<(), Error> {
    let mut refused = request.clone();
    refused.status = Some(ResizeStatus {
        phase: Some(ResizePhase::Refused),
        reason: Some(reason.to_owned()),
        message: Some(condition::cut(&message, MESSAGE_MAX).to_owned()),
        finished_at: Some(Time(now)),
        ..request.status.clone().unwrap_or_default()
    });
    writer.replace_status_if_unchanged(&refused).await.map(|_| ())
}
