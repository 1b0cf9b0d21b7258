//! What users should know of the spec of a job that runs, and of its namespace.
//!
//! Knows: the spec and the plan, what is told of the namespace. Must not know: how it is said.

use crate::controllers::job::generation::Generation;
use crate::controllers::job::observed::snapshot::JobSnapshot;
use crate::controllers::job::off_thread::{not_computed, off_thread_if_many};
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::tasks::Failure;
use crate::controllers::job::widths::{overruled, unmatched_bounds};
use crate::controllers::pe_api_names::SERVICE_NAME_TAKEN;
use std::sync::Arc;
use streams_api::{StoredPlan, condition};
use streams_kubernetes::Error;

/// What is said where PEs do not reach the frontend (rule pe-api-8).
const UNSERVED: &str = "somebody else has the Service streams-api of this namespace, under which PEs ask for their \
                        bundle, names and routes: they get none; delete that Service, and make it again under another \
                        name";

/// What users should know of the spec of a job that runs, and of its namespace.
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
    let unserved = is_unserved(reconciler, snapshot);
    let unserved = unserved.then(|| (SERVICE_NAME_TAKEN.to_owned(), UNSERVED.to_owned()));
    Ok(unserved.into_iter().chain(refused).chain(of_entries.iter().cloned()).collect())
}

/// Whether PEs of the job do not reach the frontend. What the job has said stays until that is known.
fn is_unserved<C>(reconciler: &JobReconciler<C>, snapshot: &JobSnapshot) -> bool {
    let said = snapshot.job.status.as_ref().and_then(|status| condition::get(&status.conditions, condition::WARNING));
    reconciler.pe_api_names.is_taken(&snapshot.key, said.is_some_and(|said| said.message.contains(UNSERVED)))
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
