//! The reconciler of jobs.

use std::{sync::Arc, time::Duration};

use crate::{controllers::Context, mirrors::job_of};
use streams_kubernetes::{
    Error, Key,
    queue::{Outcome, Queue},
};
use streams_process::telemetry;
use tracing::Instrument;

use super::{
    act::{Acted, act},
    decide::{Decision, decide},
    observe::observe,
};

/// After a conflict: enough for the mirror to catch up.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);

/// Lets every change that concerns a job wake its key.
pub(crate) fn subscribe(context: &Context, jobs: &Queue<Key>) {
    let mirrors = &context.mirrors;
    mirrors.jobs.wake(jobs, |job| [Key::of(job)]);
    mirrors.processing_elements.wake(jobs, job_of);
    mirrors.services.wake(jobs, job_of);
    mirrors.config_maps.wake(jobs, job_of);
    mirrors.host_pools.wake(jobs, job_of);
    // A new width goes before everything else.
    let regions = jobs.clone();
    mirrors.parallel_regions.subscribe(move |region| {
        if let Some(job) = job_of(region) {
            regions.add_urgent(job);
        }
    });
}

/// Looks at a job and does what is to be done next.
///
/// # Errors
/// Something could not be read or written; deciding again may help.
#[tracing::instrument(skip_all, fields(job = %key))]
pub(crate) async fn reconcile(context: Arc<Context>, key: Key) -> Result<Outcome, Error> {
    let Some(job) = context.mirrors.jobs.get(&key) else {
        // What belonged to it goes with it: owner references do the work (rule job-29).
        context.memory.forget(&key);
        return Ok(Outcome::Done);
    };
    if job.metadata.deletion_timestamp.is_some() {
        context.memory.forget(&key);
        return Ok(Outcome::Done);
    }
    let job = context.memory.latest(&key, job);
    let (observed, snapshot) = observe(&context, &key, job).await?;
    let (decision, report) = decide(&observed);
    tracing::debug!(?decision, preparing = report.preparing, pending = report.pending, "decided");
    // What is done for a generation belongs to the trace that it was asked for in.
    let span = tracing::info_span!("act");
    let idle = decision == Decision::Work(Vec::new());
    let generation = snapshot.proposed.as_ref().or(snapshot.committed.as_ref()).filter(|_| !idle);
    if let Some(generation) = generation {
        telemetry::continue_trace(&span, &generation.trace_parent);
    }
    match act(&context, &snapshot, &observed, &decision, &report).instrument(span).await {
        Ok(Acted::StepTaken) => Ok(Outcome::Again(Duration::ZERO)),
        Ok(Acted::Again(delay)) => Ok(Outcome::Again(delay)),
        Ok(Acted::Done) => Ok(Outcome::Done),
        Err(error) if error.is_conflict() => Ok(Outcome::Again(AFTER_CONFLICT)),
        Err(error) => Err(error),
    }
}
