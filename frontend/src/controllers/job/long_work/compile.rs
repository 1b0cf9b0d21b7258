//! Compiles the pinned ADL with the desired widths, and stores the plan in chunks.

use super::early_texts::{self, MAX_TEXT_BYTES};
use super::existing_pes::{ExistingPes, existing_pes, just_written, last_seen};
use super::{Assignment, LongWork, WorkError, check, fetch, hosts, redis, thread_for};
use crate::controllers::job::compilation::{self, automatic, compilation, repeated};
use crate::controllers::job::documents::chunks::{self, Document, digest};
use crate::controllers::job::documents::{self, WriteError};
use crate::controllers::job::generation::{Generation, GenerationDetails, Settled, Target};
use crate::controllers::job::in_force::redis_of;
use crate::controllers::job::tasks::{BeingStored, CompileRequest, Compiled, Slot, TaskKind, Tasks};
use crate::controllers::job::widths::{OUT_OF_BOUNDS, out_of_bounds};
use crate::controllers::traces;
use crate::fusion::RenderedText;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_api::{FusionMode, StoredPlan, names};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::controlled_by;
use streams_process::telemetry::{self, TraceContext};
use streams_proto::fusion::v1::resize_request::Policy;
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
            let written = just_written(assignment);
            let existing =
                existing_pes(&reconciler.mirrors, key, job, previous, last_seen(assignment), written).await?;
            let policy = if *rebalances { Policy::Rebalance } else { Policy::Sticky };
            resize(assignment, previous, widths, policy, existing, adl).await?
        }
        (Target::Resize { .. }, None) => {
            return Err(WorkError::transient("Outdated", "there is nothing to resize"));
        }
    };
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let before = previous.as_deref();
    warnings.extend(check::check(name, &plan, &reconciler.settings, before.map(|before| &before.plan))?);
    if let Some(message) = out_of_bounds(&job.spec, &plan).filter(|_| before.is_none()) {
        return Err(WorkError::permanent(OUT_OF_BOUNDS, message));
    }
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
    let free = if wants_free { hosts::cpu_free(&reconciler.cluster, &reconciler.free_cpu).await? } else { None };
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
    existing: ExistingPes,
    adl: Bytes,
) -> Result<Answer, WorkError> {
    let request = resize_request(previous, widths, policy, existing, Some(adl));
    let request = ResizeRequest { max_text_bytes: MAX_TEXT_BYTES, ..request };
    let ResizeResponse { plan, warnings, texts, .. } = assignment.reconciler.fusion.resize(request).await?;
    Ok(Answer { compilation: repeated(previous), plan: planned(plan)?, warnings, texts })
}

/// Asks for other widths than those of this generation. Without an ADL it is named only.
pub(super) fn resize_request(
    previous: &Generation,
    widths: &BTreeMap<String, u32>,
    policy: Policy,
    existing: ExistingPes,
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
        pe_ids_in_use: existing.ids_in_use,
        ports_in_use: existing.ports_in_use,
        closed_pe_ids: existing.closed,
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
    early_texts::keep(assignment, request, &plan.sha256, at_hand);
    let being_stored = BeingStored { plan: plan.clone(), generation: Arc::clone(&generation) };
    early_texts::begin(assignment, request, being_stored, &texts);
    documents::write_cut(&assignment.writer(), &document, &controlled_by(*job), &cut, |_| false).await?;
    let now = reconciler.cluster.now();
    reconciler.memory.find(key, uid, |entry| {
        for index in 0..plan.chunks {
            entry.stored(document.chunk_name(&key.name, &plan.sha256, index), now);
        }
        entry.plans.keep(&cut.sha256, generation, size, cut.packed);
    });
    Ok(Compiled { plan, widths, changes, texts })
}
