//! Finds out what is wanted of the regions of a job, and by whom.
//!
//! Knows: regions, requests, what the compiler said. Must not know: what is decided on that.

use super::requests::JobRequests;
use crate::controllers::job::generation::next_generation;
use crate::controllers::job::objects::planned_regions::planned_regions;
use crate::controllers::job::observed::snapshot::JobSnapshot;
use crate::controllers::job::off_thread::{not_computed, off_thread_if_many};
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::requests::observe::look as look_at_wishes;
use crate::controllers::job::requests::standing::Circumstances;
use crate::controllers::job::requests::without_generation::without_generation;
use crate::controllers::job::requests::{Requests, amount};
use crate::controllers::job::tasks::Slot;
use crate::controllers::job::widths::{Widths, widths};
use crate::made_by_job::is_region_of;
use crate::mirrors::ByOwner as _;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use streams_api::{JobStatus, ParallelRegion};
use streams_kubernetes::Error;

/// What is wanted of the regions of a job with a generation, and by whom.
pub(super) async fn wishes<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    status: &JobStatus,
    requests: JobRequests,
    now: Timestamp,
) -> Result<(Widths, Requests), Error> {
    let JobSnapshot { key, job, .. } = snapshot;
    let Some(generation) = &snapshot.committed else {
        return Ok((Widths::default(), without_generation(status, &requests, now)));
    };
    let next = next_generation(status);
    // All jobs wait for this lock: what takes long is done on copies.
    let proposal = status.proposal.as_ref().map(|proposal| &proposal.plan);
    let (verdicts, compiled, is_idle, has_given_up, held_up) = reconciler.memory.with(key, snapshot.uid(), |entry| {
        entry.verdicts.keep_of(next);
        entry.note_verdict();
        let is_idle = matches!(entry.tasks.compile, Slot::Idle | Slot::Failed(..));
        let held_up = proposal.and_then(|plan| entry.held_up.longest(&plan.sha256));
        let held_up = held_up.filter(|held_up| held_up.lasts(now)).map(|held_up| held_up.failure.clone());
        (entry.verdicts.clone(), entry.compiled_widths().cloned(), is_idle, entry.given_up_for == Some(next), held_up)
    });
    let is_quiet = is_idle && status.proposal.is_none();
    // A compilation for which another one was given up is proposed, whatever is wanted by then.
    let may_expect = is_quiet && !has_given_up;
    let regions = reconciler.mirrors.parallel_regions.kept_of_job(key);
    let amount = regions.len() + amount(requests.iter().map(|request| &**request));
    let (of_job, generation) = (Arc::clone(job), Arc::clone(generation));
    let looked = off_thread_if_many(amount, move || {
        let status = of_job.status.clone().unwrap_or_default();
        let regions: Vec<_> = regions.into_iter().filter_map(|(_, region)| region.read()).collect();
        let ours = regions.iter().filter(|region| is_region_of(region, &of_job));
        let ours = planned_regions(&generation, ours.map(|region| &**region));
        let stays = |region: &&ParallelRegion| region.metadata.deletion_timestamp.is_none();
        let staying: Vec<_> = ours.iter().copied().filter(stays).collect();
        let requests: Vec<_> = requests.iter().map(|request| &**request).collect();
        let of = Circumstances::new(&of_job.spec, &status, &staying, &requests).with(is_quiet, may_expect);
        let to_write = of.widths_in_force().into_iter().map(|(region, unwritten)| (region, unwritten.width)).collect();
        let mut widths = widths(&of_job.spec, &generation, ours.iter().copied(), &to_write);
        let requests = look_at_wishes(&of, &mut widths, compiled.as_ref(), &verdicts, held_up.as_ref(), now);
        (widths, requests, compiled)
    });
    let (widths, mut requests, compiled) = looked.await.map_err(not_computed)?;
    requests.withdraws_compilation = reconciler.memory.with(key, snapshot.uid(), |entry| {
        entry.verdicts.set_apart(&requests.apart);
        if requests.ends_care {
            entry.verdicts.end_care();
        }
        // Not while somebody is at fault, and others wait.
        if requests.ends_care && requests.wants_nothing {
            entry.verdicts.begin_anew();
        }
        entry.note_compiled_for(compiled.as_ref(), &requests, &widths)
    });
    Ok((widths, requests))
}
