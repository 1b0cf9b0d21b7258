//! What users should know of the spec of a job that runs.
//!
//! Knows: the spec and the plan. Must not know: how it is said.

use crate::controllers::job::generation::Generation;
use crate::controllers::job::observed::snapshot::JobSnapshot;
use crate::controllers::job::off_thread::{not_computed, off_thread_if_many};
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::tasks::Failure;
use crate::controllers::job::widths::{overruled, unmatched_bounds};
use std::sync::Arc;
use streams_api::StoredPlan;
use streams_kubernetes::Error;

/// What users should know of the spec of a job that runs.
pub(super) async fn spec_warnings<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    plan: Option<&StoredPlan>,
    refusals: &[Failure],
) -> Result<Vec<(String, String)>, Error> {
    let Some((generation, plan)) = snapshot.committed.as_ref().zip(plan) else { return Ok(Vec::new()) };
    let of_entries = entry_warnings(reconciler, snapshot, generation, &plan.sha256).await?;
    let refused = refusals.iter().map(|failure| {
        let message = format!("{}; PEs keep the option that they had", failure.message);
        (failure.reason.clone(), message)
    });
    Ok(refused.chain(of_entries.iter().cloned()).collect())
}

/// What they should know of its entries for regions, found out once for each spec and plan: there may be a hundred
/// patterns, and thousands of names to match with each.
async fn entry_warnings<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    generation: &Arc<Generation>,
    sha256: &str,
) -> Result<Arc<Vec<(String, String)>>, Error> {
    let JobSnapshot { key, job, .. } = snapshot;
    let of = (job.metadata.generation, sha256.to_owned());
    let known = reconciler.memory.with(key, snapshot.uid(), |entry| {
        entry.entry_warnings.as_ref().filter(|(known, _)| *known == of).map(|(_, warnings)| Arc::clone(warnings))
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let amount = job.spec.parallel_regions.len().saturating_mul(generation.plan.parallel_regions.len());
    let (of_job, generation) = (Arc::clone(job), Arc::clone(generation));
    let found = off_thread_if_many(amount, move || {
        let spec = &of_job.spec;
        unmatched_bounds(spec, &generation).into_iter().chain(overruled(spec, &generation)).collect::<Vec<_>>()
    });
    let found = Arc::new(found.await.map_err(not_computed)?);
    reconciler.memory.with(key, snapshot.uid(), |entry| entry.entry_warnings = Some((of, Arc::clone(&found))));
    Ok(found)
}
