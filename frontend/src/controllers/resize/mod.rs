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
use kube::ResourceExt as _;
use kube::api::PropagationPolicy;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use streams_api::resize::RESIZES_KEPT;
use streams_api::{Resize, ResizePhase, ResizeStatus, names};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::error::written;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-resize-controller");
/// Why a request is refused whose job never came.
const JOB_NOT_FOUND: &str = "JobNotFound";

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
    now: Timestamp,
}

/// What is done about a request.
#[derive(Debug, PartialEq)]
pub(crate) enum ResizeDecision {
    /// Nothing, before this time has passed.
    Rest(Option<Duration>),
    /// Its job becomes its owner.
    Adopt(OwnerReference),
    /// It is refused: its job never came.
    Refuse,
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
        let owner = job.filter(|job| job.metadata.deletion_timestamp.is_none()).map(|job| controlled_by(&*job));
        Ok(Some(ResizeObservation { request, owner, now: self.cluster.now() }))
    }

    fn decide(ResizeObservation { request, owner, now }: &ResizeObservation) -> ResizeDecision {
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
        let is_owned = request.owner_references().iter().any(|owner| owner.controller == Some(true));
        match owner {
            _ if is_owned => ResizeDecision::Rest(None),
            Some(owner) => ResizeDecision::Adopt(owner.clone()),
            None => {
                let left = RESIZES_KEPT.saturating_sub(since(request.metadata.creation_timestamp.as_ref()));
                if left.is_zero() { ResizeDecision::Refuse } else { ResizeDecision::Rest(Some(left)) }
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
                let owners: Vec<_> = meta.owner_references.iter().flatten().chain([&owner]).collect();
                let patch = json!({"metadata": {
                    "uid": meta.uid,
                    "resourceVersion": meta.resource_version,
                    "labels": { names::LABEL_JOB: request.spec.job_name },
                    "ownerReferences": owners,
                }});
                // Somebody waits for it, but may be refused, and may be a flood.
                match Priority::Urgent.of(self.cluster.merge::<Resize>(MANAGER, key, &patch)).await {
                    // It is gone.
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => return Err(written(&*request, error)),
                    Ok(_) => {}
                }
            }
            ResizeDecision::Refuse => {
                let mut refused = (*request).clone();
                refused.status = Some(ResizeStatus {
                    phase: Some(ResizePhase::Refused),
                    reason: Some(JOB_NOT_FOUND.to_owned()),
                    message: Some(format!("there is no job {}", request.spec.job_name)),
                    finished_at: Some(Time(now)),
                    ..ResizeStatus::default()
                });
                Priority::Telling.of(writer.replace_status_if_unchanged(&refused)).await?;
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
