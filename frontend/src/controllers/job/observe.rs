//! Observes a job, in the mirrors, the stored plans and the memory of the process.

use super::child::{Child, Port};
use super::children::ChildBuilder;
use super::chunks::Document;
use super::desired::desired_generation;
use super::generation::{Generation, Settled};
use super::in_force::in_force;
use super::observe_transport::look;
use super::observed::{
    Children, Deadlines, DesiredGeneration, JobObservation, Loaded, ObservedObject, ObservedPe, PodState,
};
use super::off_thread::off_thread;
use super::reconciler::JobReconciler;
use super::tasks::Failure;
use super::transport::{GOOD, Transport};
use super::waits::Words;
use super::widths::{Widths, unmatched_bounds, widths};
use super::{compilation, documents};
use crate::mirrors::ByOwner as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, JobSpec, PePhase, ProcessingElement, StoredPlan, condition, names};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::{controlled_by, is_controlled_by};
use streams_kubernetes::writer::hash;
use streams_kubernetes::{Error, Key};

/// Largest stored plan in bytes.
const PLAN_MAX: u64 = 512 << 20;

/// The job and the generations that an observation was made from. Acting needs them.
pub(crate) struct JobSnapshot {
    /// Namespace and name of the job.
    pub(crate) key: Key,
    /// The job.
    pub(crate) job: Arc<Job>,
    /// Its spec with the options in force, if that is another one (rule job-39).
    pub(crate) in_force: Option<Arc<JobSpec>>,
    /// The reference that children have to it.
    pub(crate) owner: OwnerReference,
    /// The committed generation.
    pub(crate) committed: Option<Arc<Generation>>,
    /// The generation that is being prepared.
    pub(crate) proposed: Option<Arc<Generation>>,
}

impl JobSnapshot {
    /// The spec that children are made from.
    fn spec(&self) -> &JobSpec {
        self.in_force.as_deref().unwrap_or(&self.job.spec)
    }

    /// Builds the children of the job.
    pub(crate) fn builder(&self) -> ChildBuilder<'_> {
        let status = self.job.status.as_ref();
        ChildBuilder {
            owner: &self.owner,
            job_id: status.and_then(|status| status.job_id).unwrap_or_default(),
            spec: self.spec(),
            sab_name: status.and_then(|status| status.adl.as_ref()).map_or("", |adl| adl.sab_name.as_str()),
        }
    }

    /// The job's ConfigMap as it should be.
    pub(crate) fn config_map(&self) -> ConfigMap {
        let committed = self.committed.as_deref().map(|generation| &generation.plan);
        let proposed = self.proposed.as_deref().map(|generation| &generation.plan);
        self.builder().config_map(committed, proposed)
    }

    /// The uid of the job.
    pub(crate) fn uid(&self) -> &str {
        &self.owner.uid
    }
}

/// Observes everything that belongs to a job. Reads stored plans that are not in memory.
///
/// # Errors
/// A plan could not be read, for another reason than that chunks are missing.
pub(super) async fn observe<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    job: Arc<Job>,
) -> Result<(JobObservation, JobSnapshot), Error> {
    let status = job.status.clone().unwrap_or_default();
    let owner = controlled_by(&*job);
    let plans: Vec<&StoredPlan> =
        status.plan.iter().chain(status.proposal.as_ref().map(|proposal| &proposal.plan)).collect();
    let digests: Vec<&str> = plans.iter().map(|plan| plan.sha256.as_str()).collect();
    reconciler.memory.with(key, &owner.uid, |entry| entry.keep_plans(&digests));
    let mut snapshot =
        JobSnapshot { key: key.clone(), job: Arc::clone(&job), in_force: None, owner, committed: None, proposed: None };
    let committed = read(reconciler, &snapshot, status.plan.as_ref()).await?;
    let proposal = status.proposal.as_ref().map(|proposal| &proposal.plan);
    let proposed = read(reconciler, &snapshot, proposal).await?;
    let settled = committed.as_ref().or(proposed.as_ref()).and_then(|read| read.as_ref().ok());
    let settled = settled.map(|generation| generation.settled.clone());
    let running = settled.as_ref().filter(|_| status.generation.is_some());
    let refusal = compilation::refusal(&job.spec, running);
    if refusal.is_some() && status.generation.is_some() {
        let settled = settled.clone().unwrap_or_default();
        snapshot.in_force = Some(options_in_force(reconciler, key, &job, &settled));
    }
    let committed = load(reconciler, &snapshot, status.plan.as_ref(), committed).await?;
    let proposed = load(reconciler, &snapshot, proposal, proposed).await?;
    let (committed, generation) = committed.unzip();
    snapshot.committed = generation.flatten();
    let (proposed, generation) = proposed.unzip();
    snapshot.proposed = generation.flatten();
    let transport = look(reconciler, key, &job, &status, settled.map(|settled| settled.transport)).await;
    let regions = reconciler.mirrors.parallel_regions.of_job(key);
    let ours = regions.iter().filter(|region| is_controlled_by(&region.metadata, &*job)).map(|region| &**region);
    let Widths { desired, refused, to_take_over } = match &snapshot.committed {
        Some(generation) => widths(&job.spec, generation, ours),
        None => Widths::default(),
    };
    let labels = job_config_map(reconciler, &snapshot, &digests)?;
    let mut children = children(reconciler, key, &job);
    let now = reconciler.cluster.now();
    if let Some(Transport { days, sighting: Some(sighting), .. }) = &transport
        && let Some((seen, is_good)) = sighting.secret.as_ref().zip(sighting.is_good(*days, now))
    {
        let applied = if is_good { GOOD } else { "" }.to_owned();
        children.interfaces.insert(Child::TransportSecret, ObservedObject { applied, deleting: seen.deleting });
    }
    let recorded = Duration::from_millis(status.submission_worked_milliseconds);
    let (tasks, last_failure, written_until, worked) = reconciler.memory.with(key, snapshot.uid(), |entry| {
        for name in entry.just_written(now, |name| children.texts.contains_key(name)) {
            children.texts.insert(name, ObservedObject::default());
        }
        let worked = recorded.saturating_add(entry.unrecorded_work);
        (entry.tasks.clone(), entry.last_failure.clone(), entry.written_until(), worked)
    });
    let observed = JobObservation {
        now,
        spec_generation: job.metadata.generation.unwrap_or_default(),
        suspended: job.spec.suspend,
        inputs: compilation::inputs(
            &job,
            status.job_id.unwrap_or_default(),
            status.adl.as_ref().map_or("", |adl| adl.sha256.as_str()),
        ),
        spec_warnings: spec_warnings(&snapshot, refusal.as_ref()),
        refusal,
        deadlines: Deadlines {
            submission: job.spec.submission_time_out(),
            resize: reconciler.settings.resize_seconds,
            max_attempts: reconciler.settings.submission_attempts,
        },
        status,
        worked,
        committed,
        proposed,
        desired_widths: desired,
        refused_widths: refused,
        widths_to_take_over: to_take_over,
        job_config_map: labels,
        children,
        transport,
        tasks,
        written_until,
        last_failure,
    };
    Ok((observed, snapshot))
}

/// The spec with the options in force, computed once for each spec: PEs are changed after it.
fn options_in_force<C>(reconciler: &JobReconciler<C>, key: &Key, job: &Job, settled: &Settled) -> Arc<JobSpec> {
    let spec_generation = job.metadata.generation.unwrap_or_default();
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let known = reconciler.memory.with(key, uid, |entry| {
        entry.in_force.as_ref().filter(|(of, _)| *of == spec_generation).map(|(_, spec)| Arc::clone(spec))
    });
    if let Some(known) = known {
        return known;
    }
    let pes = reconciler.mirrors.processing_elements.of_job(key);
    let ours = pes.iter().filter(|pe| is_controlled_by(&pe.metadata, job));
    let running = ours.min_by_key(|pe| pe.spec.id).map(|pe| &pe.spec.options);
    let computed = Arc::new(in_force(&job.spec, running, settled));
    reconciler.memory.with(key, uid, |entry| entry.in_force = Some((spec_generation, Arc::clone(&computed))));
    computed
}

/// What users should know of the spec of a job that runs.
fn spec_warnings(snapshot: &JobSnapshot, refusal: Option<&Failure>) -> Vec<(String, String)> {
    let Some(generation) = &snapshot.committed else { return Vec::new() };
    let refused = refusal.map(|failure| {
        let message = format!("{}; PEs keep the option that they had", failure.message);
        (failure.reason.clone(), message)
    });
    refused.into_iter().chain(unmatched_bounds(&snapshot.job.spec, generation)).collect()
}

/// Hash of the job's ConfigMap as it should be, computed once for each pair of plans.
fn job_config_map<C>(reconciler: &JobReconciler<C>, snapshot: &JobSnapshot, digests: &[&str]) -> Result<String, Error> {
    let known = reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| {
        entry.job_config_map.as_ref().filter(|(of, _)| of == digests).map(|(_, hash)| hash.clone())
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let computed = hash(&snapshot.config_map())?;
    let digests: Vec<String> = digests.iter().map(|digest| (*digest).to_owned()).collect();
    reconciler
        .memory
        .with(&snapshot.key, snapshot.uid(), |entry| entry.job_config_map = Some((digests, computed.clone())));
    Ok(computed)
}

/// A stored generation, from memory or from its chunks, or what of it is missing. `None` if there is none.
async fn read<C: Cluster>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    plan: Option<&StoredPlan>,
) -> Result<Option<Result<Arc<Generation>, String>>, Error> {
    let Some(plan) = plan else { return Ok(None) };
    let remembered =
        reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| entry.generations.get(&plan.sha256).cloned());
    if let Some(generation) = remembered {
        return Ok(Some(Ok(generation)));
    }
    let document = Document::Plan { generation: plan.generation };
    let stored =
        documents::read(&reconciler.cluster, &snapshot.key, &document, &plan.sha256, plan.chunks, PLAN_MAX).await?;
    let read = stored
        .map_err(|incomplete| incomplete.to_string())
        .and_then(|bytes| Generation::decode(&bytes).map_err(|unreadable| unreadable.to_string()));
    Ok(Some(read.map(Arc::new)))
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

/// What the generation wants, computed once for each spec.
async fn want<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    sha256: &str,
    generation: &Arc<Generation>,
) -> Result<Arc<DesiredGeneration>, Error> {
    let key = (sha256.to_owned(), snapshot.job.metadata.generation.unwrap_or_default());
    let known = reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| {
        entry.generations.insert(sha256.to_owned(), Arc::clone(generation));
        entry.wanted.get(&key).cloned()
    });
    if let Some(known) = known {
        return Ok(known);
    }
    // Thousands of objects to hash: not on a thread that serves others.
    let (job, owner, of) = (Arc::clone(&snapshot.job), snapshot.owner.clone(), Arc::clone(generation));
    let in_force = snapshot.in_force.clone();
    let computed = off_thread(move || {
        let status = job.status.as_ref();
        let builder = ChildBuilder {
            owner: &owner,
            job_id: status.and_then(|status| status.job_id).unwrap_or_default(),
            spec: in_force.as_deref().unwrap_or(&job.spec),
            sab_name: status.and_then(|status| status.adl.as_ref()).map_or("", |adl| adl.sab_name.as_str()),
        };
        desired_generation(builder, &of)
    });
    let computed = computed.await.map_err(|error| Error::Call(kube::Error::Service(error.into())))?;
    let computed = Arc::new(computed?);
    reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| {
        let spec_generation = key.1;
        entry.wanted.retain(|(_, generation), _| *generation == spec_generation);
        entry.wanted.insert(key, Arc::clone(&computed));
    });
    Ok(computed)
}

/// The objects that the job controls, as the mirrors show them.
fn children<C>(reconciler: &JobReconciler<C>, key: &Key, job: &Job) -> Children {
    let mirrors = &reconciler.mirrors;
    let ours = |meta: &ObjectMeta| is_controlled_by(meta, job);
    let mut children = Children::default();
    for pe in mirrors.processing_elements.of_job(key).iter().filter(|pe| ours(&pe.metadata)) {
        children.processing_elements.insert(pe.spec.id, processing_element(pe));
    }
    for service in mirrors.services.of_job(key).iter().filter(|service| ours(&service.metadata)) {
        let id = label(&service.metadata, names::LABEL_PE).and_then(|id| id.parse().ok());
        if let Some(id) = id {
            children.services.insert(id, object(&service.metadata));
        } else if service.metadata.name == Some(names::consistent_region_service(&key.name)) {
            children.interfaces.insert(Child::ConsistentRegionService, object(&service.metadata));
        }
    }
    for export in mirrors.exports.of_job(key).iter().filter(|export| ours(&export.metadata)) {
        let port = Port { pe: export.spec.pe_id, id: export.spec.port_id };
        children.interfaces.insert(Child::Export(port), object(&export.metadata));
    }
    for import in mirrors.imports.of_job(key).iter().filter(|import| ours(&import.metadata)) {
        let port = Port { pe: import.spec.pe_id, id: import.spec.port_id };
        children.interfaces.insert(Child::Import(port), object(&import.metadata));
    }
    for region in mirrors.consistent_regions.of_job(key).iter().filter(|region| ours(&region.metadata)) {
        children.interfaces.insert(Child::ConsistentRegion(region.spec.index), object(&region.metadata));
    }
    for region in mirrors.parallel_regions.of_job(key).iter().filter(|region| ours(&region.metadata)) {
        children.regions.insert(region.spec.index, object(&region.metadata));
    }
    for pool in mirrors.host_pools.of_job(key).iter().filter(|pool| ours(&pool.metadata)) {
        children.host_pools.insert(pool.spec.index, object(&pool.metadata));
    }
    for map in mirrors.config_maps.of_job(key).iter().filter(|map| ours(&map.metadata)) {
        let Some(name) = map.metadata.name.clone() else { continue };
        let object = object(&map.metadata);
        match label(&map.metadata, names::LABEL_PART) {
            Some(names::PART_AADL) => {
                children.texts.insert(name, object);
            }
            Some(names::PART_ADL | names::PART_PLAN) => {
                children.chunks.insert(name, object);
            }
            None if name == names::job_config_map(&key.name) => children.job_config_map = Some(object),
            _ => {}
        }
    }
    children
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn object(meta: &ObjectMeta) -> ObservedObject {
    let annotations = meta.annotations.as_ref();
    let applied = annotations.and_then(|annotations| annotations.get(names::ANNOTATION_APPLIED_HASH));
    ObservedObject { applied: applied.cloned().unwrap_or_default(), deleting: meta.deletion_timestamp.is_some() }
}

fn processing_element(pe: &ProcessingElement) -> ObservedPe {
    let status = pe.status.clone().unwrap_or_default();
    // A status that is about an older spec says nothing about the present one.
    let is_current = status.observed_generation.is_some() && status.observed_generation == pe.metadata.generation;
    let run = match status.phase {
        Some(PePhase::Running) if condition::is_true(&status.conditions, condition::READY) => PodState::Ready,
        Some(PePhase::Completed) => PodState::Completed,
        Some(PePhase::Failed | PePhase::Stopped) => PodState::Down,
        Some(PePhase::Suspended) => PodState::Suspended,
        _ => PodState::Pending,
    };
    // A PE that has completed, or is suspended, takes a new text without another pod.
    let same_content = matches!(run, PodState::Completed | PodState::Suspended)
        || status.runtime_id.as_ref() == Some(&pe.spec.runtime_id);
    let run = if is_current && same_content { run } else { PodState::Pending };
    let says = condition::get(&status.conditions, condition::READY).filter(|_| run != PodState::Ready);
    let says = says.map_or_else(Words::default, |says| Words::of(&says.reason, &says.message));
    ObservedPe {
        object: object(&pe.metadata),
        generation: pe.spec.generation,
        config_map: pe.spec.config_map.name.clone(),
        launched: status.created_launch_count > 0,
        run,
        says,
    }
}
