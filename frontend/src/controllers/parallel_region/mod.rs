//! Parallel regions: what a region says of itself.
//!
//! A region creates nothing. Its `spec.width` wakes the job controller; its status follows from the job's: the width in force, whether the width that is
//! wanted was refused and why, and, while each channel has PEs of its own, the selector of their pods for autoscalers.
//!
//! * [`status`] — pure: the status of a region.
//! * this file — what wakes it, observing, writing, Events.
//!
//! Knows: regions, the job's status, its committed plan. Must not know: how a width is brought about.

mod status;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::Api;

use crate::controllers::Context;
use crate::mirrors::ByOwner as _;
use streams_api::{ParallelRegion, condition};
use streams_kubernetes::{
    Error, Key,
    apply::{is_controlled_by, replace_status_if_unchanged},
    queue::{Outcome, Queue},
};

/// Field manager of the region controller.
const MANAGER: &str = "streams-parallel-region-controller";

/// Lets every change that concerns a region wake its key.
pub(crate) fn subscribe(context: &Context, regions: &Queue<Key>) {
    let mirrors = &context.mirrors;
    mirrors.parallel_regions.wake(regions, |region| [Key::of(region)]);
    let of_job = mirrors.parallel_regions.clone();
    mirrors.jobs.wake(regions, move |job| {
        of_job.of_job(&Key::of(job)).iter().map(|region| Key::of(&**region)).collect::<Vec<_>>()
    });
}

/// Brings the status of a region up to date.
///
/// # Errors
/// The status could not be written.
#[tracing::instrument(skip_all, fields(region = %key))]
pub(crate) async fn reconcile(context: Arc<Context>, key: Key) -> Result<Outcome, Error> {
    let Some(region) = context.mirrors.parallel_regions.get(&key) else { return Ok(Outcome::Done) };
    let job_key = key.sibling(&region.spec.job_name);
    let Some(job) = context.mirrors.jobs.get(&job_key) else { return Ok(Outcome::Done) };
    let going = region.metadata.deletion_timestamp.is_some() || job.metadata.deletion_timestamp.is_some();
    if going || !is_controlled_by(&region.metadata, &*job) {
        return Ok(Outcome::Done);
    }
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let plan = job.status.as_ref().and_then(|status| status.plan.as_ref());
    // The job controller reads plans; until it has, the region says what the job's status says.
    let generation = plan.and_then(|plan| {
        context.memory.find(&job_key, &uid, |entry| entry.generations.get(&plan.sha256).cloned()).flatten()
    });
    let before = region.status.clone().unwrap_or_default();
    let after = status::status(&region, &job, generation.as_deref(), Timestamp::now());
    if after == before {
        return Ok(Outcome::Done);
    }
    let refused = after.rejected.clone().filter(|rejected| before.rejected.as_ref() != Some(rejected));
    let ready = condition::is_true(&after.conditions, condition::READY)
        && !condition::is_true(&before.conditions, condition::READY);
    let width = after.width.filter(|width| ready && before.width.is_some() && before.rejected.is_none() && *width > 0);
    let mut written = (*region).clone();
    written.status = Some(after);
    let api: Api<ParallelRegion> = Api::namespaced(context.client.clone(), &key.namespace);
    match replace_status_if_unchanged(&api, MANAGER, &written).await {
        Ok(_) => {}
        // The next state is on its way and wakes us.
        Err(error) if error.is_conflict() => return Ok(Outcome::Done),
        Err(error) => return Err(error),
    }
    if let Some(refused) = refused {
        context.events.warning(&*region, "ParallelRegionWidthChangeFailure", &refused.message);
    }
    if let Some(width) = width {
        context.events.normal(&*region, "ParallelRegionWidthChangeSuccess", &format!("all PEs of width {width} run"));
    }
    Ok(Outcome::Done)
}
