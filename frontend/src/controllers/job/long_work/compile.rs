//! Compiles the pinned ADL with the desired widths, and stores the plan in chunks.

use super::early_texts::{self, MAX_TEXT_BYTES};
use super::{Assignment, LongWork, WorkError, check, fetch, hosts, redis, thread_for};
use crate::controllers::job::chunks::{self, Document, digest};
use crate::controllers::job::compilation::{self, automatic, compilation, repeated};
use crate::controllers::job::documents::{self, WriteError};
use crate::controllers::job::generation::{Generation, GenerationDetails, Settled, Target};
use crate::controllers::job::in_force::redis_of;
use crate::controllers::job::off_thread::off_thread_if_many;
use crate::controllers::job::plans::Sources;
use crate::controllers::job::tasks::{BeingStored, CompileRequest, Compiled, Slot, TaskKind, Tasks, TextsAtHand};
use crate::controllers::traces;
use crate::fusion::RenderedText;
use crate::mirrors::{ByOwner as _, Mirrors};
use bytes::Bytes;
use kube::Resource as _;
use kube::core::ObjectMeta;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_api::{FusionMode, Job, ProcessingElement, StoredPlan, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::{controlled_by, controller};
use streams_kubernetes::watch::Kept;
use streams_process::telemetry::{self, TraceContext};
use streams_proto::fusion::v1::resize_request::{Policy, PortsInUse};
use streams_proto::fusion::v1::resize_response::Text;
use streams_proto::fusion::v1::{
    Blob, Compilation, Fate, Plan, ProcessingElement as Planned, RegionWidth, ResizeRequest, ResizeResponse,
    SubmitRequest, Warning,
};
use tracing::{Span, field};

/// Compiles for a target.
pub(super) struct Compile;

impl LongWork for Compile {
    const KIND: TaskKind = TaskKind::Compile;
    const RESULT_IS_VISIBLE: bool = false;
    type Request = CompileRequest;
    type Output = Compiled;

    fn slot(tasks: &mut Tasks) -> &mut Slot<CompileRequest, Compiled> {
        &mut tasks.compile
    }

    fn span<C: Cluster>(assignment: &Assignment<'_, C>, request: &CompileRequest) -> Span {
        let span = tracing::info_span!(
            "compile",
            job = %assignment.key,
            generation = request.generation,
            trace_id = field::Empty,
        );
        if let Some(trace) = trace_of(assignment, &request.target) {
            traces::continue_context(&span, &trace);
        }
        span
    }

    async fn perform<C: Cluster>(
        assignment: &Assignment<'_, C>,
        request: &CompileRequest,
    ) -> Result<Compiled, WorkError> {
        let result = compile(assignment, request).await;
        match result {
            Err(error) if is_repair(assignment, &request.target).await => Err(error.or_later()),
            Err(error) => {
                if !error.retry && matches!(request.target, Target::Submission { .. }) {
                    note_unusable(assignment);
                }
                Err(error)
            }
            result => result,
        }
    }
}

/// Nothing comes of the bundle that the job was submitted with: a correction at its URL is to be seen (rule fetch-7).
fn note_unusable<C: Cluster>(assignment: &Assignment<'_, C>) {
    let adl = assignment.job.status.as_ref().and_then(|status| status.adl.as_ref());
    if let Some(sha256) = adl.and_then(|adl| adl.bundle_sha256.as_ref()) {
        assignment.reconciler.bundles.note_unusable(&assignment.key.namespace, sha256);
    }
}

/// Compiles, checks the plan against the cluster, and writes the chunks of the plan.
async fn compile<C: Cluster>(assignment: &Assignment<'_, C>, request: &CompileRequest) -> Result<Compiled, WorkError> {
    let Assignment { reconciler, key, job, uid } = assignment;
    let adl = fetch::pinned(assignment).await?;
    let previous = previous(assignment).await?;
    if previous.as_ref().map_or(0, |previous| previous.number.saturating_add(1)) != request.generation {
        return Err(WorkError::transient("Outdated", "another generation was committed meanwhile"));
    }
    let mut settled = Settled::default();
    let Answer { compilation, plan, mut warnings, texts } = match (&request.target, &previous) {
        (Target::Submission { inputs }, _) => {
            // The request names what it is for. A job that was edited meanwhile may be edited back, and its plan
            // would be taken for one of the earlier spec.
            if *inputs != self::inputs(assignment) {
                return Err(WorkError::transient("Outdated", "the spec was edited meanwhile"));
            }
            let options = job.spec.pe_options();
            settled.transport = options.transport_security_type;
            if let Some(redis) = redis_of(&options) {
                // Before the compilation: it is what may take a user's help.
                settled.redis = redis::configuration(&reconciler.cluster, key, uid, redis).await?;
            }
            submit(assignment, adl).await?
        }
        (Target::Resize { widths, rebalances }, Some(previous)) => {
            let in_use = in_use(&reconciler.mirrors, key, job, previous, is_as_planned(assignment)).await?;
            let policy = if *rebalances { Policy::Rebalance } else { Policy::Sticky };
            resize(assignment, previous, widths, policy, in_use, adl).await?
        }
        (Target::Resize { .. }, None) => {
            return Err(WorkError::transient("Outdated", "there is nothing to resize"));
        }
    };
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let before = previous.as_deref();
    warnings.extend(check::check(name, &plan, &reconciler.settings, before.map(|before| &before.plan))?);
    let (nodes, about) = hosts::find(&reconciler.cluster, &reconciler.node_names, &plan, before).await?;
    warnings.extend(about);
    let trace_parent = telemetry::trace_parent().unwrap_or_default();
    let circumstances = GenerationDetails { nodes, warnings, trace_parent, settled };
    let generation =
        Generation::following(previous.as_deref(), request.target.clone(), compilation, plan, circumstances);
    let at_hand = early_texts::of_plan(texts, &generation.plan);
    store(assignment, request, generation, at_hand).await
}

/// What the compiler has answered, and what it was asked.
struct Answer {
    compilation: Compilation,
    plan: Plan,
    warnings: Vec<Warning>,
    /// Texts of the plan that came with it.
    texts: Vec<Text>,
}

/// The trace that a compilation continues: of whoever changed a width, as the look that asked for it has found it, or
/// created the job (rule name-11).
fn trace_of<C: Cluster>(assignment: &Assignment<'_, C>, target: &Target) -> Option<TraceContext> {
    let Assignment { reconciler, key, job, uid } = assignment;
    match target {
        Target::Submission { .. } => traces::carried_by(*job),
        Target::Resize { widths, .. } => reconciler.memory.find(key, uid, |entry| entry.trace_of(widths)).flatten(),
    }
}

/// The committed generation.
async fn previous<C: Cluster>(assignment: &Assignment<'_, C>) -> Result<Option<Arc<Generation>>, WorkError> {
    match assignment.job.status.as_ref().and_then(|status| status.plan.as_ref()) {
        Some(plan) => assignment.generation(plan).await.map(Some),
        None => Ok(None),
    }
}

/// Digest of everything that a submission of the job, as this work sees it, depends on.
fn inputs<C>(Assignment { job, .. }: &Assignment<'_, C>) -> String {
    let status = job.status.as_ref();
    let job_id = status.and_then(|status| status.job_id).unwrap_or_default();
    let adl = status.and_then(|status| status.adl.as_ref()).map_or("", |adl| adl.sha256.as_str());
    compilation::inputs(job, job_id, adl)
}

/// Whether the target is what is in force already: texts of it are lost, and so is the compiler that made them
/// (rule job-21). Nobody has asked for anything that could be refused.
pub(super) async fn is_repair<C: Cluster>(assignment: &Assignment<'_, C>, target: &Target) -> bool {
    let Target::Resize { widths, .. } = target else { return false };
    previous(assignment).await.ok().flatten().is_some_and(|previous| previous.widths() == *widths)
}

async fn submit<C: Cluster>(assignment: &Assignment<'_, C>, adl: Bytes) -> Result<Answer, WorkError> {
    let Assignment { reconciler, job, .. } = assignment;
    let job_id = job.status.as_ref().and_then(|status| status.job_id);
    let job_id = job_id.ok_or_else(|| WorkError::transient("Outdated", "the job has no number yet"))?;
    let wants_free = job.spec.fusion.clone().unwrap_or_default().mode() == FusionMode::Automatic;
    let free = if wants_free {
        let cluster = &reconciler.cluster;
        let free = reconciler.free_cpu.get(cluster.now(), hosts::cpu_free(cluster)).await;
        free.map_err(|error| {
            WorkError::transient("ApiServer", format!("free CPU of the cluster cannot be found: {error}"))
        })?
    } else {
        None
    };
    // Thousandths of a number between 0 and 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
    let share = (reconciler.settings.cpu_share.clamp(0.0, 1.0) * 1000.0).round() as u32;
    // The pinned one, which was hashed when it was read: a large one would take its time on this thread.
    let sha256 = job.status.as_ref().and_then(|status| status.adl.as_ref()).map(|adl| hex::decode(&adl.sha256));
    let sha256 = Bytes::from(sha256.and_then(Result::ok).unwrap_or_default());
    let compilation = compilation(job, job_id, sha256, automatic(&job.spec, free, share));
    let request = SubmitRequest { compilation: Some(with_content(&compilation, adl)) };
    let response = reconciler.fusion.submit(request).await?;
    let (plan, warnings) = (planned(response.plan)?, response.warnings);
    Ok(Answer { compilation, plan, warnings, texts: Vec::new() })
}

async fn resize<C: Cluster>(
    assignment: &Assignment<'_, C>,
    previous: &Generation,
    widths: &BTreeMap<String, u32>,
    policy: Policy,
    in_use: InUse,
    adl: Bytes,
) -> Result<Answer, WorkError> {
    let request = resize_request(previous, widths, policy, in_use, Some(adl));
    let request = ResizeRequest { max_text_bytes: MAX_TEXT_BYTES, ..request };
    let ResizeResponse { plan, warnings, texts, .. } = assignment.reconciler.fusion.resize(request).await?;
    Ok(Answer { compilation: repeated(previous), plan: planned(plan)?, warnings, texts })
}

/// Asks for other widths than those of this generation. Without an ADL it is named only.
pub(super) fn resize_request(
    previous: &Generation,
    widths: &BTreeMap<String, u32>,
    policy: Policy,
    in_use: InUse,
    adl: Option<Bytes>,
) -> ResizeRequest {
    let mut compilation = repeated(previous);
    if let Some(blob) = &mut compilation.adl {
        blob.content = adl;
    }
    let in_force = previous.widths();
    let changed = widths.iter().filter(|(region, width)| in_force.get(*region) != Some(width));
    let layout = previous.plan.layout.clone();
    ResizeRequest {
        compilation: Some(compilation),
        layout: Some(Blob { sha256: hex::decode(digest(&layout)).unwrap_or_default().into(), content: Some(layout) }),
        widths: changed.map(|(region, width)| RegionWidth { region: region.clone(), width: (*width).into() }).collect(),
        policy: policy.into(),
        pe_ids_in_use: in_use.pe_ids,
        ports_in_use: in_use.ports,
        max_text_bytes: 0,
    }
}

fn planned(plan: Option<Plan>) -> Result<Plan, WorkError> {
    plan.ok_or_else(|| WorkError::transient("FusionFailed", "the fusion service answered without a plan"))
}

fn with_content(compilation: &Compilation, adl: Bytes) -> Compilation {
    let mut compilation = compilation.clone();
    if let Some(blob) = &mut compilation.adl {
        blob.content = Some(adl);
    }
    compilation
}

/// PE ids and ports that are in use although the layout does not have them.
pub(super) struct InUse {
    pe_ids: Vec<u64>,
    ports: Vec<PortsInUse>,
}

/// PE ids and ports of what still exists (rule job-24): of PEs that are being removed, of pods that outlive their PE,
/// and of PEs whose objects are not of the plan yet. A new PE with the id of a pod that is being terminated would
/// have to wait for it. `is_as_planned`: whether an object is known to be of the plan; then it is not read. Many are
/// read on a thread that serves nobody else.
///
/// # Errors
/// Reading panicked.
pub(super) async fn in_use(
    mirrors: &Mirrors,
    key: &Key,
    job: &Job,
    of: &Arc<Generation>,
    is_as_planned: impl Fn(&Key, &Kept<ProcessingElement>) -> bool,
) -> Result<InUse, WorkError> {
    let pes = mirrors.processing_elements.kept_of_job(key).into_iter();
    let pes: Vec<_> = pes.filter(|(name, pe)| !is_as_planned(name, pe)).map(|(_, pe)| pe).collect();
    let pods = mirrors.pods.kept_of_job(key);
    let uid = job.metadata.uid.clone();
    let (name, of) = (Arc::clone(&key.name), Arc::clone(of));
    let in_use = off_thread_if_many(pes.len().saturating_add(pods.len()), move || {
        let is_ours = |pe: &Arc<ProcessingElement>| {
            uid.is_some() && controller(&pe.metadata).map(|owner| &owner.uid) == uid.as_ref()
        };
        let pes = pes.into_iter().filter_map(|pe| pe.read()).filter(is_ours);
        let pods = pods.into_iter().filter_map(|(_, pod)| pod.metadata());
        ids_and_ports(pes, pods.filter_map(|pod| pe_id(&pod, &name)), &of.plan)
    });
    in_use.await.map_err(|error| WorkError::transient("Internal", error.to_string()))
}

/// Whether the last look at the job has seen that what was applied to an object is what the committed generation wants.
fn is_as_planned<C: Cluster>(
    Assignment { reconciler, key, job, uid }: &Assignment<'_, C>,
) -> impl Fn(&Key, &Kept<ProcessingElement>) -> bool + use<C> {
    let plan = job.status.as_ref().and_then(|status| status.plan.as_ref());
    let sources = Sources::of(job);
    let wanted = plan.and_then(|plan| {
        reconciler.memory.find(key, uid, |entry| entry.plans.wanted(&plan.sha256, &sources)).flatten()
    });
    let known = wanted.zip(reconciler.last_look(key, uid));
    let job = (*key).clone();
    move |name, pe| {
        let seen = known.as_ref().and_then(|(wanted, look)| Some((wanted, look.processing_element(&job, name, pe)?)));
        seen.is_some_and(|(wanted, (id, seen))| {
            let desired = wanted.processing_elements.get(&id);
            let texts = desired.into_iter().flat_map(|desired| [Some(&desired.text), desired.carried.as_ref()]);
            texts.flatten().any(|text| seen.applied.as_deref() == Some(text.processing_element.as_str()))
        })
    }
}

/// Id of the PE that the pod was created for, whether that still exists or not.
fn pe_id(pod: &ObjectMeta, job: &str) -> Option<u64> {
    let id = pod.labels.as_ref()?.get(names::LABEL_PE)?.parse().ok()?;
    let mut controllers = pod.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let kind = ProcessingElement::kind(&());
    let is_of_pe = controllers.any(|owner| owner.kind == kind && owner.name == names::processing_element(job, id));
    is_of_pe.then_some(id)
}

fn ids_and_ports(
    pes: impl Iterator<Item: Borrow<ProcessingElement>>,
    pods: impl Iterator<Item = u64>,
    plan: &Plan,
) -> InUse {
    let mut in_use = InUse { pe_ids: Vec::new(), ports: Vec::new() };
    let planned: BTreeMap<u64, _> =
        plan.processing_elements.iter().filter(|pe| pe.fate() != Fate::Removed).map(|pe| (pe.id, pe)).collect();
    in_use.pe_ids.extend(pods.filter(|id| !planned.contains_key(id)));
    for pe in pes {
        let pe = pe.borrow();
        let Some(planned) = planned.get(&pe.spec.id) else {
            in_use.pe_ids.push(pe.spec.id);
            continue;
        };
        let inputs: Vec<u32> = planned.port_labels.iter().map(|label| label.port_id).collect();
        let outputs: Vec<u32> = planned.exports.iter().map(|export| export.port_id).collect();
        let only_in = |existing: &[u32], planned: &[u32]| {
            // The fusion service refuses an id that is there twice, and users can write into a PE.
            let ports: BTreeSet<u32> = existing.iter().copied().filter(|port| !planned.contains(port)).collect();
            ports.into_iter().collect::<Vec<_>>()
        };
        let input_port_ids = only_in(&pe.spec.input_ports, &inputs);
        let output_port_ids = only_in(&pe.spec.exported_ports, &outputs);
        if !input_port_ids.is_empty() || !output_port_ids.is_empty() {
            in_use.ports.push(PortsInUse { pe_id: pe.spec.id, input_port_ids, output_port_ids });
        }
    }
    in_use.pe_ids.sort_unstable();
    in_use.pe_ids.dedup();
    in_use.ports.sort_by_key(|ports| ports.pe_id);
    in_use
}

/// Writes the chunks of the plan, and has its texts written meanwhile.
async fn store<C: Cluster>(
    assignment: &Assignment<'_, C>,
    request: &CompileRequest,
    generation: Generation,
    at_hand: BTreeMap<u64, RenderedText>,
) -> Result<Compiled, WorkError> {
    let Assignment { reconciler, key, job, uid } = assignment;
    let generation = Arc::new(generation);
    let document = Document::Plan { generation: generation.number };
    let (of, max_plan_mib) = (Arc::clone(&generation), reconciler.settings.max_plan_mib);
    let cut = move || {
        let encoded = of.encode();
        check::fits(encoded.len(), max_plan_mib)?;
        Ok::<_, WorkError>((encoded.len(), chunks::cut(&encoded).map_err(WriteError::from)?))
    };
    let (size, cut) = thread_for(&generation.target).compute(cut).await.map_err(WriteError::from)??;
    let plan = StoredPlan {
        generation: generation.number,
        sha256: cut.sha256.clone(),
        chunks: cut.count(),
        compiler: generation.plan.compiler.clone(),
    };
    let (widths, changes) = (generation.widths(), generation.changes());
    let is_changed = |pe: &&Planned| matches!(pe.fate(), Fate::Added | Fate::Restarted);
    let changed = generation.members().map(|(pe, _)| pe).filter(is_changed);
    let texts: Arc<[(u64, String)]> =
        changed.map(|pe| (pe.id, names::aadl_config_map(&key.name, pe.id, &pe.content_id))).collect();
    early_texts::keep(assignment, request, TextsAtHand { plan: plan.sha256.clone(), by_pe: at_hand });
    let being_stored = BeingStored { plan: plan.clone(), generation: Arc::clone(&generation) };
    early_texts::begin(assignment, request, being_stored, &texts);
    documents::write_cut(&assignment.writer(), &document, &controlled_by(*job), &cut, |_| false).await?;
    reconciler.memory.find(key, uid, |entry| entry.plans.keep(&cut.sha256, generation, size, cut.packed));
    Ok(Compiled { plan, widths, changes, texts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use streams_api::ProcessingElementSpec;
    use streams_proto::fusion::v1::{Export, PortLabel};

    fn planned_pe(id: u64, fate: Fate, ports: &[u32]) -> Planned {
        let port_labels = ports.iter().map(|port_id| PortLabel { port_id: *port_id, ..PortLabel::default() }).collect();
        Planned { id, fate: fate.into(), port_labels, size: 100, ..Planned::default() }
    }

    fn object(id: u64, inputs: &[u32], exports: &[u32]) -> ProcessingElement {
        let spec = ProcessingElementSpec {
            id,
            input_ports: inputs.to_vec(),
            exported_ports: exports.to_vec(),
            ..ProcessingElementSpec::default()
        };
        ProcessingElement::new("pe", spec)
    }

    #[test]
    fn ids_and_ports_of_objects_that_lag_behind_are_in_use() {
        let mut exporting = planned_pe(1, Fate::Restarted, &[0, 1]);
        exporting.exports = vec![Export { port_id: 4, ..Export::default() }];
        let plan = Plan {
            processing_elements: vec![planned_pe(0, Fate::Kept, &[0]), exporting, planned_pe(2, Fate::Removed, &[])],
            ..Plan::default()
        };
        let objects =
            [object(7, &[0], &[]), object(2, &[0], &[]), object(0, &[0], &[]), object(1, &[0, 2, 2], &[5, 4, 5])];
        // Of PEs that are gone, of one that goes, and of one that stays.
        let pods = [9, 5, 9, 2, 0];
        let in_use = ids_and_ports(objects.iter(), pods.into_iter(), &plan);
        assert_eq!(in_use.pe_ids, [2, 5, 7, 9]);
        let ports = PortsInUse { pe_id: 1, input_port_ids: vec![2], output_port_ids: vec![5] };
        assert_eq!(in_use.ports, [ports]);
    }

    #[test]
    fn the_id_of_a_pod_is_that_of_the_pe_that_controls_it() {
        // label, kind, name and controller of the owner -> id
        let table = [
            ("3", "ProcessingElement", "flow-3", true, Some(3)),
            ("3", "ProcessingElement", "flow-3", false, None),
            ("3", "ProcessingElement", "flow-4", true, None),
            ("3", "ReplicaSet", "flow-3", true, None),
            ("three", "ProcessingElement", "flow-three", true, None),
        ];
        for (label, kind, owner, controller, expected) in table {
            let version = "streams.ibm.com/v1";
            let owner_reference =
                json!({"apiVersion": version, "kind": kind, "name": owner, "uid": "u", "controller": controller});
            let owners = json!([owner_reference]);
            let metadata = json!({"labels": {names::LABEL_PE: label}, "ownerReferences": owners});
            let pod: ObjectMeta = serde_json::from_value(metadata).unwrap();
            assert_eq!(pe_id(&pod, "flow"), expected, "{label} {kind} {owner} {controller}");
        }
    }
}
