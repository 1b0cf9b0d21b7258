//! Observes a job, in the mirrors, the stored plans and the memory of the process.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | the observation as a whole |
//! | [`requests`] | the requests to resize as they were written last |
//! | [`transport`] | a look at the Secret for transport security |
//! | [`strangers`] | objects that have the names of the job's, and that it does not control |
//! | [`unsaid_pods`] | first pods that run although their PEs have not said so yet |

pub(super) mod requests;
mod strangers;
mod transport;
mod unsaid_pods;

use self::requests::JobRequests;
use self::strangers::{in_the_way, taken};
use self::transport::look;
use super::child::Child;
use super::compilation;
use super::generation::{Generation, next_generation};
use super::in_force::in_force;
use super::memory::plans::Sources;
use super::objects::ChildBuilder;
use super::objects::user_ports::{Hashes, UserPorts};
use super::observed::desired::desired_generation;
use super::observed::drift::{self, Difference, Wanted};
use super::observed::mirrored::MirroredChildren;
use super::observed::snapshot::JobSnapshot;
use super::observed::{Children, Deadlines, DesiredGeneration, JobObservation, Loaded, ObservedDrift, ObservedObject};
use super::off_thread::{OF_AN_OBJECT, off_thread, off_thread_if_many};
use super::owned::Owned;
use super::reconciler::JobReconciler;
use super::refusals::NAME_TAKEN;
use super::requests::observe::look as look_at_wishes;
use super::requests::standing::Circumstances;
use super::requests::without_generation::without_generation;
use super::requests::{Requests, amount};
use super::running_options::running_options;
use super::tasks::{Failure, Slot};
use super::transport::{GOOD, Transport};
use super::widths::{Widths, overruled, unmatched_bounds, widths};
use crate::controllers::restorations::Restorations;
use crate::mirrors::ByOwner as _;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, JobSpec, JobStatus, StoredPlan};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::{controlled_by, is_controlled_by};
use streams_kubernetes::watch::version;
use streams_kubernetes::writer::hash;
use streams_kubernetes::{Error, Key};

/// How long the number of a job waits for the ADL, so that one write records both (rule job-50).
const UNNUMBERED: SignedDuration = SignedDuration::from_secs(1);
/// The same in a crowd (rule call-25).
const UNNUMBERED_IN_A_CROWD: SignedDuration = SignedDuration::from_secs(60);

/// Observes everything that belongs to a job. Reads stored plans that are not in memory.
///
/// # Errors
/// A plan could not be read, for another reason than that chunks are missing.
pub(super) async fn observe<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    job: Arc<Job>,
) -> Result<(JobObservation, JobSnapshot), Error> {
    let job = answered(reconciler, key, job).await?;
    let status = job.status.clone().unwrap_or_default();
    let owner = controlled_by(&*job);
    let plans: Vec<&StoredPlan> =
        status.plan.iter().chain(status.proposal.as_ref().map(|proposal| &proposal.plan)).collect();
    let digests: Vec<&str> = plans.iter().map(|plan| plan.sha256.as_str()).collect();
    reconciler.memory.with(key, &owner.uid, |entry| {
        entry.use_up(&status);
        entry.keep_plans(&digests);
    });
    let mut snapshot =
        JobSnapshot { key: key.clone(), job: Arc::clone(&job), in_force: None, owner, committed: None, proposed: None };
    let committed = read(reconciler, &snapshot, status.plan.as_ref()).await?;
    let proposal = status.proposal.as_ref().map(|proposal| &proposal.plan);
    let proposed = read(reconciler, &snapshot, proposal).await?;
    let read_first = committed.as_ref().or(proposed.as_ref()).and_then(|read| read.as_ref().ok()).cloned();
    let settled = read_first.as_ref().map(|generation| generation.settled.clone());
    let running = read_first.as_ref().filter(|_| status.generation.is_some());
    let refusal = compilation::refusal(&job.spec, running.map(|generation| &generation.settled));
    // While the plan is lost nothing is written, and it is not known what was settled.
    if let Some(running) = running.filter(|_| refusal.is_some()) {
        snapshot.in_force = Some(options_in_force(reconciler, &snapshot, running));
    }
    if refusal.is_none() || snapshot.in_force.is_some() {
        note_made_from(reconciler, &snapshot);
    }
    let committed = load(reconciler, &snapshot, status.plan.as_ref(), committed).await?;
    let proposed = load(reconciler, &snapshot, proposal, proposed).await?;
    let (committed, generation) = committed.unzip();
    snapshot.committed = generation.flatten();
    let (proposed, generation) = proposed.unzip();
    snapshot.proposed = generation.flatten();
    let transport = look(reconciler, key, &job, &status, settled.map(|settled| settled.transport)).await;
    let now = reconciler.cluster.now();
    let requests = reconciler.all_requests(key, &job, &status).await?;
    let (Widths { desired, refused, to_take_over }, requests) =
        wishes(reconciler, &snapshot, &status, requests, now).await?;
    let spec_warnings = spec_warnings(reconciler, &snapshot, status.plan.as_ref(), refusal.as_ref()).await?;
    let labels = job_config_map(reconciler, &snapshot, &digests)?;
    let mirrored = reconciler.look_at_children(key, &job);
    let user_ports = user_ports(reconciler, &snapshot, &digests, &mirrored, now).await?;
    let wanted = Wanted {
        snapshot: snapshot.clone(),
        generations: [&committed, &proposed].map(|loaded| match loaded {
            Some(Loaded::Whole(wanted)) => Some(Arc::clone(wanted)),
            _ => None,
        }),
        job_config_map: labels.clone(),
        user_ports: user_ports.clone(),
    };
    let mut differences = differences(reconciler, wanted, &mirrored).await?;
    let mut children = Children { user_ports, ..mirrored.children() };
    let rolled_out = committed.as_ref().and_then(Loaded::whole);
    unsaid_pods::add_to(&mut children, &reconciler.mirrors, key, &status, rolled_out);
    let wanted = [&committed, &proposed].into_iter().flatten().filter_map(Loaded::whole);
    let missing = wanted.flat_map(|wanted| wanted.processing_elements.keys());
    let missing = missing.filter(|id| !children.processing_elements.contains_key(id));
    let missing: BTreeSet<u64> = missing.copied().collect();
    children.taken.extend(taken(&reconciler.mirrors, key, &job, &missing));
    children.unreadable = missing.into_iter().filter(|id| reconciler.mirrors.has_unreadable_pe(key, *id)).collect();
    if let Some(Transport { days, sighting: Some(sighting), .. }) = &transport
        && let Some((seen, is_good)) = sighting.secret.as_ref().zip(sighting.is_good(*days, now))
    {
        let applied = if is_good { GOOD } else { "" }.to_owned();
        if seen.is_only_immutable(*days, now) {
            let difference = Difference { field: "immutable".to_owned(), ..Difference::default() };
            differences.insert(Owned::Child(Child::TransportSecret), difference);
        }
        let secret = ObservedObject { applied, deleting: seen.deleting, ..ObservedObject::default() };
        children.interfaces.insert(Child::TransportSecret, secret);
    }
    // An edit that no frontend has seen yet, or has carried out only in part, is carried out at once, by whoever comes.
    let is_settled = status.proposal.is_none()
        && status.observed_generation == job.metadata.generation
        && status.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_some() && rollout.pending == 0);
    let state = (job.metadata.generation, status.plan.as_ref().map(|plan| plan.sha256.clone()));
    let recorded = Duration::from_millis(status.submission_worked_milliseconds);
    let unnumbered_until = unnumbered_until(reconciler, key, &snapshot, &status, now);
    let next = next_generation(&status);
    let (
        tasks,
        last_failure,
        written_until,
        worked,
        contended,
        outdated,
        inherited,
        has_given_up,
        unanswered_until,
        proposed_at,
        refusals_are_over,
        held_up,
        cannot_store_proposal,
    ) = reconciler.memory.with(key, snapshot.uid(), |entry| {
        entry.own_writes.delete_from(&mut children, now, |owned| mirrored.uid(owned));
        let shown = |name: &str| children.texts.get(name).is_some_and(|text| !text.just_deleted);
        for name in entry.just_written(now, shown) {
            children.texts.insert(name, ObservedObject::default());
        }
        let shown = |name: &str| children.chunks.get(name).is_some_and(|chunk| !chunk.just_deleted);
        children.just_stored = entry.just_stored(now, shown);
        let shown = |owned: &Owned| mirrored.version(owned);
        entry.own_writes.add_to(&mut children, now, shown);
        entry.restorations.retain(|_, restorations| restorations.count(now));
        children.held_back = entry.held_back(now);
        for (owned, difference) in differences {
            let not_before = entry.restorations.get(&owned).and_then(Restorations::not_before);
            let Difference { field, of_content, applied } = difference;
            // What was written since is not shown yet.
            if !entry.own_writes.has(&owned)
                && let Some(object) = children.object(&owned)
            {
                object.drift = Some(ObservedDrift { field, not_before, of_content });
                if let Some(applied) = applied {
                    object.applied = applied.to_string();
                }
            }
        }
        let inherited = entry.inherited.get_or_insert_with(|| is_settled.then(|| state.clone()));
        if inherited.as_ref().is_some_and(|inherited| *inherited != state) {
            *inherited = None;
        }
        let inherited = inherited.is_some();
        let worked = recorded.saturating_add(entry.unrecorded_work);
        let (contended, last_failure) = (entry.contended(key), entry.last_failure.clone());
        let tasks = entry.tasks.clone();
        (
            tasks,
            last_failure,
            entry.written_until(),
            worked,
            contended,
            entry.outdated.fields(now),
            inherited,
            entry.given_up_for == Some(next),
            entry.unanswered_until(version(&job.metadata)),
            entry.proposed_at,
            entry.refusals.are_over(),
            proposal.and_then(|plan| entry.held_up.longest(&plan.sha256)).cloned(),
            proposal.is_some_and(|plan| entry.unstorable_plan.as_ref() == Some(&plan.sha256)),
        )
    });
    let is_wanted = |id: &u64| {
        let mut generations = [&committed, &proposed].into_iter().flatten().filter_map(Loaded::whole);
        generations.any(|wanted| wanted.processing_elements.contains_key(id))
    };
    let is_taken = children.taken.iter().any(is_wanted)
        || last_failure.as_ref().is_some_and(|failure| failure.reason == NAME_TAKEN)
        || tasks.failures().any(|failure| failure.reason == NAME_TAKEN);
    let in_the_way = if is_taken { in_the_way(&reconciler.mirrors, key, &job, &children.taken) } else { String::new() };
    let observed = JobObservation {
        now,
        spec_generation: job.metadata.generation.unwrap_or_default(),
        suspended: job.spec.suspend,
        inputs: compilation::inputs(
            &job,
            status.job_id.unwrap_or_default(),
            status.adl.as_ref().map_or("", |adl| adl.sha256.as_str()),
        ),
        spec_warnings,
        refusal,
        deadlines: Deadlines {
            submission: job.spec.submission_time_out(),
            resize: reconciler.settings.resize_seconds,
            roll_out: reconciler
                .settings
                .resize_seconds
                .saturating_add(job.spec.min_ready().unwrap_or(reconciler.settings.min_ready_seconds)),
            max_attempts: reconciler.settings.submission_attempts,
        },
        status,
        unnumbered_until,
        worked,
        committed,
        proposed,
        desired_widths: desired,
        refused_widths: refused,
        widths_to_take_over: to_take_over,
        requests,
        has_given_up,
        unanswered_until,
        proposed_at,
        cannot_store_proposal,
        job_config_map: labels,
        max_unavailable: job.spec.max_unavailable(),
        children,
        transport,
        tasks,
        written_until,
        last_failure,
        held_up,
        refusals_are_over,
        in_the_way,
        contended,
        outdated,
        rewrites: inherited.then(|| reconciler.rewrites.left(now)),
    };
    Ok((observed, snapshot))
}

/// The job as it is seen; or as the API server has it, once a write that was not answered cannot have its effect any
/// more and is not seen.
async fn answered<C: Cluster>(reconciler: &JobReconciler<C>, key: &Key, job: Arc<Job>) -> Result<Arc<Job>, Error> {
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let seen = version(&job.metadata);
    let until = reconciler.memory.find(key, &uid, |entry| entry.unanswered_until(seen)).flatten();
    if until.is_none_or(|until| reconciler.cluster.now() < until) {
        return Ok(job);
    }
    let asked = Priority::Awaited.of(reconciler.cluster.get::<Job>(key)).await?;
    reconciler.memory.find(key, &uid, super::memory::Entry::was_answered);
    // One that is gone, or made again, is shown soon.
    if let Some(asked) = asked.filter(|asked| asked.metadata.uid == job.metadata.uid) {
        reconciler.memory.wrote(key, asked);
    }
    Ok(reconciler.memory.latest(key, job))
}

/// Until when the number of a job waits for the ADL (rule job-50).
fn unnumbered_until<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    snapshot: &JobSnapshot,
    status: &JobStatus,
    now: Timestamp,
) -> Option<Timestamp> {
    let since = reconciler.memory.with(key, snapshot.uid(), |entry| {
        let since = &mut entry.unnumbered_since;
        if status.job_id.is_some() {
            *since = None;
            return None;
        }
        Some(*since.get_or_insert(now))
    })?;
    let is_crowded = reconciler.cluster.was_crowded(&key.namespace);
    let most = if is_crowded { UNNUMBERED_IN_A_CROWD } else { UNNUMBERED };
    since.checked_add(most).ok().filter(|end| *end > now)
}

/// What is wanted of the regions of a job with a generation, and by whom.
async fn wishes<C>(
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
        let ours = regions.iter().filter(|region| is_controlled_by(&region.metadata, &*of_job)).map(|region| &**region);
        let staying: Vec<_> = ours.clone().filter(|region| region.metadata.deletion_timestamp.is_none()).collect();
        let requests: Vec<_> = requests.iter().map(|request| &**request).collect();
        let of = Circumstances::new(&of_job.spec, &status, &staying, &requests).with(is_quiet, may_expect);
        let to_write = of.widths_in_force().into_iter().map(|(region, unwritten)| (region, unwritten.width)).collect();
        let mut widths = widths(&of_job.spec, &generation, ours, &to_write);
        let requests = look_at_wishes(&of, &mut widths, compiled.as_ref(), &verdicts, held_up.as_ref(), now);
        (widths, requests, compiled)
    });
    let (widths, mut requests, compiled) =
        looked.await.map_err(|error| Error::Call(kube::Error::Service(error.into())))?;
    requests.withdraws_compilation = reconciler.memory.with(key, snapshot.uid(), |entry| {
        entry.verdicts.set_apart(&requests.apart);
        if requests.ends_care {
            entry.verdicts.end_care();
        }
        // Not while somebody is at fault, and others wait.
        if requests.ends_care && requests.wants_nothing {
            entry.verdicts.forget_withdrawals();
        }
        entry.note_compiled_for(compiled.as_ref(), &requests, &widths)
    });
    Ok((widths, requests))
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
    let ours = pes.iter().filter(|pe| is_controlled_by(&pe.metadata, &**job)).map(|pe| &**pe);
    let shown: BTreeMap<u64, u64> = ours.clone().map(|pe| (pe.spec.id, version(&pe.metadata))).collect();
    let now = reconciler.cluster.now();
    let made_from = reconciler.memory.with(key, snapshot.uid(), |entry| {
        let is_behind = entry.own_writes.has_unseen_pe(now, |id| shown.get(&id).copied());
        entry.made_from.as_ref().filter(|_| is_behind).map(|(_, spec)| Arc::clone(spec))
    });
    let running = match &made_from {
        // What the mirror shows of PEs is what they had before that.
        Some(spec) => Some(ChildBuilder { spec, ..snapshot.builder() }.options(generation.shares())),
        None => running_options(snapshot.builder(), generation, ours).cloned(),
    };
    let computed = Arc::new(in_force(&job.spec, running.as_ref(), &generation.settled));
    let kept = (spec_generation, Arc::clone(&computed));
    reconciler.memory.with(key, snapshot.uid(), |entry| entry.in_force = Some(kept));
    computed
}

/// Remembers what the children are made from: some options of the next spec may be refused.
fn note_made_from<C>(reconciler: &JobReconciler<C>, snapshot: &JobSnapshot) {
    let generation = snapshot.job.metadata.generation.unwrap_or_default();
    reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| {
        if entry.made_from.as_ref().is_none_or(|(of, _)| *of != generation) {
            let spec = snapshot.in_force.clone().unwrap_or_else(|| Arc::new(snapshot.job.spec.clone()));
            entry.made_from = Some((generation, spec));
        }
    });
}

/// What users should know of the spec of a job that runs.
async fn spec_warnings<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    plan: Option<&StoredPlan>,
    refusal: Option<&Failure>,
) -> Result<Vec<(String, String)>, Error> {
    let Some((generation, plan)) = snapshot.committed.as_ref().zip(plan) else { return Ok(Vec::new()) };
    let refused = refusal.map(|failure| {
        let message = format!("{}; PEs keep the option that they had", failure.message);
        (failure.reason.clone(), message)
    });
    let of_entries = entry_warnings(reconciler, snapshot, generation, &plan.sha256).await?;
    Ok(refused.into_iter().chain(of_entries.iter().cloned()).collect())
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
    let found = Arc::new(found.await.map_err(|error| Error::Call(kube::Error::Service(error.into())))?);
    reconciler.memory.with(key, snapshot.uid(), |entry| entry.entry_warnings = Some((of, Arc::clone(&found))));
    Ok(found)
}

/// Hash of the job's ConfigMap as it should be, computed once for each pair of plans. While one of them is lost, which
/// may be found again, that is not how it should be.
fn job_config_map<C>(reconciler: &JobReconciler<C>, snapshot: &JobSnapshot, digests: &[&str]) -> Result<String, Error> {
    let known = reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| {
        entry.job_config_map.as_ref().filter(|(of, _)| of == digests).map(|(_, hash)| hash.clone())
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let computed = hash(&snapshot.config_map())?;
    let read = [&snapshot.committed, &snapshot.proposed].into_iter().flatten().count();
    if read == digests.len() {
        let of = digests.iter().map(|digest| (*digest).to_owned()).collect();
        let kept = Some((of, computed.clone()));
        reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| entry.job_config_map = kept);
    }
    Ok(computed)
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
    let sources = Sources::of(&snapshot.job);
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
    let computed = computed.await.map_err(|error| Error::Call(kube::Error::Service(error.into())))?;
    let computed = Arc::new(computed?);
    reconciler.memory.find(&snapshot.key, snapshot.uid(), |entry| {
        entry.plans.keep_wanted(sha256, sources, Arc::clone(&computed));
    });
    Ok(computed)
}

/// The ports of Services that operators have opened under a name, with the hashes of these Services. They are computed
/// again only when plans or endpoints are others.
async fn user_ports<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    digests: &[&str],
    mirrored: &MirroredChildren,
    now: Timestamp,
) -> Result<UserPorts, Error> {
    let (memory, key, uid) = (&reconciler.memory, &snapshot.key, snapshot.uid());
    let (ports, known) = memory.with(key, uid, |entry| {
        let ports = entry.user_ports.follow(&mirrored.endpoints, now);
        let known = entry.user_ports.hashes(digests, &ports.endpoints);
        (ports, known)
    });
    let known = if ports.endpoints.is_empty() { Some(Arc::default()) } else { known };
    if let Some(hashes) = known {
        return Ok(UserPorts { hashes, ..ports });
    }
    // There may be thousands: not on a thread that serves others.
    let (of, endpoints) = (snapshot.clone(), Arc::clone(&ports.endpoints));
    let computed = off_thread(move || {
        let mut hashes = Hashes::new();
        for generation in [&of.committed, &of.proposed].into_iter().flatten() {
            for (id, endpoints) in &*endpoints {
                let Some((pe, _)) = generation.member(*id) else { continue };
                let service = of.builder().service(&generation.plan, pe, endpoints);
                hashes.insert((generation.number, *id), hash(&service)?);
            }
        }
        Ok::<_, Error>(Arc::new(hashes))
    });
    let hashes = computed.await.map_err(|error| Error::Call(kube::Error::Service(error.into())))??;
    memory.with(key, uid, |entry| entry.user_ports.keep(digests, &ports.endpoints, &hashes));
    Ok(UserPorts { hashes, ..ports })
}

/// What differs from what was applied, by object. Thousands of objects are compared when a process begins, and few when
/// somebody waits for a resize of a small job.
async fn differences<C>(
    reconciler: &JobReconciler<C>,
    wanted: Wanted,
    mirrored: &Arc<MirroredChildren>,
) -> Result<BTreeMap<Owned, Difference>, Error> {
    let (key, uid) = (wanted.snapshot.key.clone(), wanted.snapshot.uid().to_owned());
    let (before, written) = reconciler.memory.with(&key, &uid, |entry| {
        let written = entry.own_writes.applied(|owned| mirrored.version(owned));
        (std::mem::take(&mut entry.compared), written)
    });
    let mirrored = Arc::clone(mirrored);
    let agrees = |(number, fingerprint): &(u64, u64)| before.get(number).is_some_and(|it| it.has_agreed(*fingerprint));
    let known = if before.is_empty() { 0 } else { mirrored.fingerprints().filter(agrees).count() };
    let amount = mirrored.len().saturating_add(mirrored.len().saturating_sub(known).saturating_mul(OF_AN_OBJECT));
    let compared = off_thread_if_many(amount, move || drift::differences(&wanted, &mirrored, &before, &written)).await;
    let (found, compared) = compared.map_err(|error| Error::Call(kube::Error::Service(error.into())))??;
    reconciler.memory.with(&key, &uid, |entry| entry.compared = compared);
    Ok(found)
}
