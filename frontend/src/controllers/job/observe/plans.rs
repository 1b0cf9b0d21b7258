//! Reads the stored plans of a job, and finds out what their generations want.
//!
//! Knows: the memory of the process, chunks, what objects are made from. Must not know: which objects there are.

use crate::controllers::job::compilation;
use crate::controllers::job::generation::{Generation, Settled};
use crate::controllers::job::in_force::in_force;
use crate::controllers::job::memory::plans::Sources;
use crate::controllers::job::objects::ChildBuilder;
use crate::controllers::job::observed::desired::desired_generation;
use crate::controllers::job::observed::snapshot::JobSnapshot;
use crate::controllers::job::observed::{DesiredGeneration, Loaded};
use crate::controllers::job::off_thread::{OF_AN_OBJECT, not_computed, off_thread_if_many};
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::running_options::running_options;
use crate::controllers::job::tasks::Failure;
use crate::made_by_job::is_pe_of;
use crate::mirrors::ByOwner as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_api::{Job, JobSpec, JobStatus, StoredPlan};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes::watch::version;
use streams_kubernetes::{Error, Key};

/// What the stored plans of a job say.
pub(super) struct Plans {
    /// What the committed generation wants, or that its plan is lost; `None` if there is none.
    pub(super) committed: Option<Loaded>,
    /// The same of the proposed one.
    pub(super) proposed: Option<Loaded>,
    /// What was settled with the first of them that could be read.
    pub(super) settled: Option<Settled>,
    /// Why the spec is refused, one for each option.
    pub(super) refusals: Vec<Failure>,
}

impl Plans {
    /// What the generations want that could be read.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &DesiredGeneration> {
        [&self.committed, &self.proposed].into_iter().flatten().filter_map(Loaded::whole)
    }
}

/// The digests of the plans that the status names.
pub(super) fn digests(status: &JobStatus) -> Vec<&str> {
    let proposal = status.proposal.as_ref().map(|proposal| &proposal.plan);
    status.plan.iter().chain(proposal).map(|plan| plan.sha256.as_str()).collect()
}

/// Reads the stored plans, and says what their generations want, and from what the observation is made.
pub(super) async fn plans_of<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    job: &Arc<Job>,
    status: &JobStatus,
) -> Result<(Plans, JobSnapshot), Error> {
    let owner = controlled_by(&**job);
    reconciler.memory.with(key, &owner.uid, |entry| {
        entry.use_up(status);
        entry.keep_plans(&digests(status));
    });
    let mut snapshot =
        JobSnapshot { key: key.clone(), job: Arc::clone(job), in_force: None, owner, committed: None, proposed: None };
    let committed = read(reconciler, &snapshot, status.plan.as_ref()).await?;
    let proposal = status.proposal.as_ref().map(|proposal| &proposal.plan);
    let proposed = read(reconciler, &snapshot, proposal).await?;
    let read_first = committed.as_ref().or(proposed.as_ref()).and_then(|read| read.as_ref().ok()).cloned();
    let settled = read_first.as_ref().map(|generation| generation.settled.clone());
    let running = read_first.as_ref().filter(|_| status.generation.is_some());
    let refusals = compilation::refusals(job, running.map(|generation| &generation.settled));
    // While the plan is lost nothing is written, and it is not known what was settled.
    if let Some(running) = running.filter(|_| !refusals.is_empty()) {
        snapshot.in_force = Some(options_in_force(reconciler, &snapshot, running));
    }
    let committed = load(reconciler, &snapshot, status.plan.as_ref(), committed).await?;
    let proposed = load(reconciler, &snapshot, proposal, proposed).await?;
    let (committed, generation) = committed.unzip();
    snapshot.committed = generation.flatten();
    let (proposed, generation) = proposed.unzip();
    snapshot.proposed = generation.flatten();
    Ok((Plans { committed, proposed, settled, refusals }, snapshot))
}

/// The spec with the options in force, computed once for each spec: PEs are changed after it.
fn options_in_force<C: Cluster>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    generation: &Generation,
) -> Arc<JobSpec> {
    let JobSnapshot { key, job, .. } = snapshot;
    let spec_generation = job.metadata.generation.unwrap_or_default();
    let known = reconciler.memory.with(key, snapshot.uid(), |entry| {
        entry.in_force.as_ref().filter(|(of, _)| *of == spec_generation).map(|(_, spec)| Arc::clone(spec))
    });
    if let Some(known) = known {
        return known;
    }
    let pes: Vec<_> = reconciler.mirrors.processing_elements.of_job(key).collect();
    let ours = pes.iter().filter(|pe| is_pe_of(pe, job)).map(|pe| &**pe);
    let shown: BTreeMap<u64, u64> = ours.clone().map(|pe| (pe.spec.id, version(&pe.metadata))).collect();
    let now = reconciler.cluster.now();
    // What the mirror shows of PEs is what they had before that.
    let written = reconciler.memory.with(key, snapshot.uid(), |entry| {
        let is_member = |id| generation.member(id).is_some();
        entry.own_writes.unseen_options(now, is_member, |id| shown.get(&id).copied())
    });
    let running = written.as_deref().or_else(|| running_options(snapshot.builder(), generation, ours));
    let computed = Arc::new(in_force(job, running, &generation.settled));
    let kept = (spec_generation, Arc::clone(&computed));
    reconciler.memory.with(key, snapshot.uid(), |entry| entry.in_force = Some(kept));
    computed
}

/// A stored generation, or what of it is missing. `None` if there is none.
async fn read<C: Cluster>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    plan: Option<&StoredPlan>,
) -> Result<Option<Result<Arc<Generation>, String>>, Error> {
    match plan {
        Some(plan) => reconciler.generation(&snapshot.key, snapshot.uid(), plan).await.map(Some),
        None => Ok(None),
    }
}

/// What a generation that was read wants.
async fn load<C: Cluster>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    plan: Option<&StoredPlan>,
    read: Option<Result<Arc<Generation>, String>>,
) -> Result<Option<(Loaded, Option<Arc<Generation>>)>, Error> {
    let (Some(plan), Some(read)) = (plan, read) else { return Ok(None) };
    let generation = match read {
        Ok(generation) => generation,
        Err(why) => return Ok(Some((Loaded::Lost(why), None))),
    };
    let wanted = want(reconciler, snapshot, &plan.sha256, &generation).await?;
    Ok(Some((Loaded::Whole(wanted), Some(generation))))
}

/// What the generation wants, computed once for what it is made from.
async fn want<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    sha256: &str,
    generation: &Arc<Generation>,
) -> Result<Arc<DesiredGeneration>, Error> {
    let sources = Sources::of(&snapshot.job, snapshot.in_force.is_some());
    let known = reconciler.memory.find(&snapshot.key, snapshot.uid(), |entry| entry.plans.wanted(sha256, &sources));
    if let Some(known) = known.flatten() {
        return Ok(known);
    }
    let amount = generation.origins.len().saturating_mul(OF_AN_OBJECT);
    let (job, owner, of) = (Arc::clone(&snapshot.job), snapshot.owner.clone(), Arc::clone(generation));
    let in_force = snapshot.in_force.clone();
    let computed = off_thread_if_many(amount, move || {
        let status = job.status.as_ref();
        let builder = ChildBuilder {
            owner: &owner,
            job_id: status.and_then(|status| status.job_id).unwrap_or_default(),
            spec: in_force.as_deref().unwrap_or(&job.spec),
            sab_name: status.and_then(|status| status.adl.as_ref()).map_or("", |adl| adl.sab_name.as_str()),
        };
        desired_generation(builder, &of)
    });
    let computed = computed.await.map_err(not_computed)?;
    let computed = Arc::new(computed?);
    reconciler.memory.find(&snapshot.key, snapshot.uid(), |entry| {
        entry.plans.keep_wanted(sha256, sources, Arc::clone(&computed));
    });
    Ok(computed)
}
