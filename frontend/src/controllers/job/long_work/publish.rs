//! Publishes texts: renders the AADL of PEs, and writes each into a ConfigMap (rule job-11).
//!
//! Texts are streamed: three of [`MAX_TEXT`](crate::fusion::MAX_TEXT) are in memory at a time, and what is written. A
//! text that may not fit an object is rendered and measured before any is written, so that a generation which cannot be
//! stored leaves nothing.
//!
//! Knows: plans, the fusion service, ConfigMaps. Must not know: when texts are wanted, what becomes of a proposal.

use super::compile::is_repair;
use super::{Assignment, LongWork, WorkError, fetch, thread_for};
use crate::controllers::job::MANAGER;
use crate::controllers::job::documents::chunks::digest;
use crate::controllers::job::generation::Generation;
use crate::controllers::job::held_up::HeldUp;
use crate::controllers::job::objects::{ChildBuilder, OBJECT_BYTES, StoredText};
use crate::controllers::job::off_thread::Thread;
use crate::controllers::job::owned::Owned;
use crate::controllers::job::services::Fusion;
use crate::controllers::job::tasks::{PublishRequest, Slot, TaskKind, Tasks};
use crate::controllers::traces;
use crate::fusion::RenderedText;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes::writer::Replaced;
use streams_kubernetes::{Error, drift};
use streams_process::telemetry;
use streams_proto::fusion::v1::{Blob, ProcessingElement, RenderRequest};
use tracing::{Span, field};

/// ConfigMaps that are written at the same time.
const WRITES: usize = 16;
/// Measured texts that are kept for writing, in bytes; more are rendered again.
pub(crate) const KEPT: usize = 16 << 20;

/// Writes texts of the generation that is proposed, or is being proposed.
pub(super) struct Publish;

/// Writes texts of the committed generation again.
pub(super) struct Repair;

impl LongWork for Publish {
    const KIND: TaskKind = TaskKind::Publish;
    const RESULT_IS_VISIBLE: bool = true;
    type Request = PublishRequest;
    type Output = ();

    fn is_awaited(request: &PublishRequest, held_up: &HeldUp, now: Timestamp) -> bool {
        !held_up.lasts(&request.plan, now)
    }

    fn slot(tasks: &mut Tasks) -> &mut Slot<PublishRequest, ()> {
        &mut tasks.publish
    }

    fn span<C: Cluster>(assignment: &Assignment<'_, C>, request: &PublishRequest) -> Span {
        span(assignment, request, traces::continue_trace)
    }

    async fn perform<C: Cluster>(assignment: &Assignment<'_, C>, request: &PublishRequest) -> Result<(), WorkError> {
        let Err(error) = publish(assignment, request).await else { return Ok(()) };
        let repairs = match generation(assignment, &request.plan).await {
            Ok(generation) => is_repair(assignment, &generation.target).await,
            Err(_) => false,
        };
        Err(if repairs && !error.recompile { error.or_later() } else { error })
    }
}

impl LongWork for Repair {
    const KIND: TaskKind = TaskKind::Repair;
    const RESULT_IS_VISIBLE: bool = true;
    type Request = PublishRequest;
    type Output = ();

    fn slot(tasks: &mut Tasks) -> &mut Slot<PublishRequest, ()> {
        &mut tasks.repair
    }

    fn span<C: Cluster>(assignment: &Assignment<'_, C>, request: &PublishRequest) -> Span {
        // Nobody asked for it: it is no part of the trace of the resize (rule name-11).
        span(assignment, request, telemetry::link_trace)
    }

    async fn perform<C: Cluster>(assignment: &Assignment<'_, C>, request: &PublishRequest) -> Result<(), WorkError> {
        let Err(error) = publish(assignment, request).await else { return Ok(()) };
        if are_relabelled(assignment, request).await { Ok(()) } else { Err(error) }
    }
}

/// A span that is related like this to the trace that the plan was made in, if the plan is in memory.
pub(super) fn span<C: Cluster>(
    assignment: &Assignment<'_, C>,
    request: &PublishRequest,
    relate: fn(&Span, &str),
) -> Span {
    let span = tracing::info_span!("publish", job = %assignment.key, trace_id = field::Empty);
    let Assignment { reconciler, key, uid, .. } = assignment;
    let known = reconciler.memory.find(key, uid, |entry| {
        entry.tasks.generation_being_stored(&request.plan).or_else(|| entry.plans.get(&request.plan))
    });
    let known = known.flatten();
    if let Some(generation) = known {
        relate(&span, &generation.trace_parent);
    }
    span
}

/// The generation of this plan: committed, proposed, about to be proposed, or being stored for that.
pub(super) async fn generation<C: Cluster>(
    assignment: &Assignment<'_, C>,
    sha256: &str,
) -> Result<Arc<Generation>, WorkError> {
    let Assignment { reconciler, key, uid, .. } = assignment;
    let being_stored = reconciler.memory.find(key, uid, |entry| entry.tasks.generation_being_stored(sha256)).flatten();
    if let Some(generation) = being_stored {
        return Ok(generation);
    }
    let compiled = reconciler.memory.find(key, uid, |entry| match &entry.tasks.compile {
        Slot::Done(_, compiled) if compiled.plan.sha256 == sha256 => Some(compiled.plan.clone()),
        _ => None,
    });
    if let Some(plan) = compiled.flatten() {
        return assignment.generation(&plan).await;
    }
    // As it is now: the plan may have been recorded since this work began.
    let job = reconciler.mirrors.jobs.get(key).map(|job| reconciler.memory.latest(key, job));
    let status = job.as_ref().and_then(|job| job.status.as_ref());
    let proposed = status.and_then(|status| status.proposal.as_ref()).map(|proposal| &proposal.plan);
    let mut plans = proposed.into_iter().chain(status.and_then(|status| status.plan.as_ref()));
    let plan = plans.find(|plan| plan.sha256 == sha256);
    let plan = plan.ok_or_else(|| WorkError::transient("Outdated", "there is another plan meanwhile"))?;
    assignment.generation(plan).await
}

/// Writes the texts of these PEs. Those that came with the plan are not rendered again.
pub(super) async fn publish<C: Cluster>(
    assignment: &Assignment<'_, C>,
    request: &PublishRequest,
) -> Result<(), WorkError> {
    let generation = generation(assignment, &request.plan).await?;
    let Assignment { reconciler, key, uid, .. } = assignment;
    let mut at_hand = reconciler.memory.find(key, uid, |entry| entry.texts_of(&request.plan)).unwrap_or_default();
    at_hand.retain(|id, _| request.pe_ids.binary_search(id).is_ok());
    let others: Vec<u64> = request.pe_ids.iter().filter(|id| !at_hand.contains_key(id)).copied().collect();
    // Only who renders needs it.
    let adl = if others.is_empty() { Bytes::new() } else { fetch::pinned(assignment).await? };
    let planned: BTreeMap<u64, &ProcessingElement> = generation.members().map(|(pe, _)| (pe.id, pe)).collect();
    let render = Render { fusion: &*reconciler.fusion, generation: &generation, planned: &planned, adl };
    let is_large = |id: &&u64| planned.get(*id).is_some_and(|pe| pe.size > OBJECT_BYTES as u64);
    let large: Vec<u64> = others.iter().filter(is_large).copied().collect();
    let thread = thread_for(&generation.target);
    let kept = measure(&render, &large, thread).await?;
    let rest: Vec<u64> = others.iter().filter(|id| !kept.contains_key(id)).copied().collect();
    let measured = stream::iter(kept).map(|(id, text)| Ok((id, text)));
    let texts = stream::iter(at_hand.into_values().map(Ok)).chain(render.texts(&rest));
    let texts = texts.and_then(|text| async move { Ok((text.pe_id, stored(text, thread).await?)) });
    let planned = &planned;
    let written = measured.chain(texts).map_ok(|(id, text)| async move {
        let content_id = planned.get(&id).map_or("", |pe| pe.content_id.as_str());
        match write(assignment, id, content_id, text).await {
            Ok(()) => Ok(None),
            Err(error) if is_of_one_object(&error) => Ok(Some(WorkError::from(error))),
            Err(error) => Err(WorkError::from(error)),
        }
    });
    // The other texts are written nevertheless.
    let failed = written.try_buffer_unordered(WRITES).try_filter_map(|failed| async { Ok(failed) });
    let failed: Vec<WorkError> = failed.try_collect().await?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Restores the labels of the texts of these PEs, which nobody could render: the mirror, which selects by a label, may
/// not show them only because somebody has taken it. Says whether each PE has one; if one has none, they have to be
/// rendered. Those of the others are restored nevertheless.
async fn are_relabelled<C: Cluster>(assignment: &Assignment<'_, C>, request: &PublishRequest) -> bool {
    let Ok(generation) = generation(assignment, &request.plan).await else { return false };
    let looks = stream::iter(request.pe_ids.clone()).map(|id| has_text(assignment, &generation, id));
    looks.buffer_unordered(WRITES).fold(true, |all, has_text| async move { all && has_text }).await
}

/// Restores the labels of the texts of a PE: of its newest one, and of the older one that it goes on with if it cannot
/// tell that from it (rule job-51). Says whether one of them is there.
async fn has_text<C: Cluster>(assignment: &Assignment<'_, C>, generation: &Generation, id: u64) -> bool {
    let Some((pe, origin)) = generation.member(id) else { return false };
    let texts = BTreeMap::from([(&pe.content_id, pe.size), (&origin.content_id, origin.size)]);
    let mut has_text = false;
    for (content_id, size) in texts {
        has_text |= matches!(relabel(assignment, id, content_id, size).await, Ok(true));
    }
    has_text
}

/// Restores the labels and annotations of a text, if that is there with the content that was written: as long as its
/// fields are those of this controller (rule call-19). Says whether it is, and nobody knew.
async fn relabel<C: Cluster>(
    assignment: &Assignment<'_, C>,
    pe_id: u64,
    content_id: &str,
    size: u64,
) -> Result<bool, Error> {
    let Assignment { reconciler, key, job, uid } = assignment;
    let owner = controlled_by(*job);
    let builder = ChildBuilder { owner: &owner, job_id: 0, spec: &job.spec, sab_name: "" };
    let desired = builder.text(pe_id, content_id, StoredText::without_content(size));
    let name = desired.name_any();
    let text = key.sibling(&name);
    let begun = reconciler.cluster.now();
    let is_held_back = reconciler.memory.find(key, uid, |entry| entry.is_held_back(&name, begun));
    if is_held_back == Some(true) {
        return Ok(false);
    }
    let Some(found) = reconciler.cluster.get_metadata::<ConfigMap>(&text).await? else { return Ok(false) };
    let differs = drift::difference(MANAGER, &desired, &json!({"metadata": &found}))?;
    let is_whole = differs.as_ref().is_none_or(|field| field.starts_with("metadata."));
    if !is_whole || found.deletion_timestamp.is_some() {
        return Ok(false);
    }
    if differs.is_some() {
        let fields = json!({
            "metadata": {"labels": desired.metadata.labels, "annotations": desired.metadata.annotations},
        });
        assignment.writer().restore::<ConfigMap>(&owner, fields, &found).await?;
    }
    let is_shown = reconciler.mirrors.config_maps.contains(&text);
    let now = reconciler.cluster.now();
    let is_news = reconciler.memory.find(key, uid, |entry| {
        // What counted as there already is not what the PE lacks: that would be looked for again and again.
        let is_news = differs.is_some() || !(is_shown || entry.has_written(&name));
        if is_news {
            entry.wrote(name.clone(), now);
        }
        if let Some(field) = &differs {
            entry.restored(key, Owned::ConfigMap(name), field, now);
        }
        is_news
    });
    Ok(is_news.unwrap_or_default())
}

/// Whether the error is about what others have made of one object, and the next one may be written.
fn is_of_one_object(error: &Error) -> bool {
    matches!(error, Error::Foreign { .. } | Error::Terminating { .. } | Error::Conflict { .. })
}

/// A text in the form in which a ConfigMap holds it. Compressing takes its time, on such a thread.
async fn stored(text: RenderedText, thread: Thread) -> Result<StoredText, WorkError> {
    let pe_id = text.pe_id;
    let stored = if StoredText::is_plain(&text.text) {
        StoredText::of(&text.text)
    } else {
        thread.compute(move || StoredText::of(&text.text)).await.ok().flatten()
    };
    stored.ok_or_else(|| WorkError::transient("FusionFailed", format!("the text of PE {pe_id} is not UTF-8")))
}

/// Renders large texts and refuses those that do not fit. Returns some of them, compressed.
///
/// # Errors
/// A text does not fit an object, or could not be rendered.
async fn measure(render: &Render<'_>, large: &[u64], thread: Thread) -> Result<BTreeMap<u64, StoredText>, WorkError> {
    let mut kept = BTreeMap::new();
    let mut bytes = 0_usize;
    let mut texts = std::pin::pin!(render.texts(large));
    while let Some(text) = texts.try_next().await? {
        let (pe_id, size) = (text.pe_id, text.text.len());
        let stored = stored(text, thread).await?;
        if stored.len() > OBJECT_BYTES {
            let pes = render.planned.len();
            return Err(WorkError::permanent("TooLarge", too_large(pe_id, size, stored.len(), pes)));
        }
        if bytes.saturating_add(stored.len()) <= KEPT {
            bytes += stored.len();
            kept.insert(pe_id, stored);
        }
    }
    Ok(kept)
}

/// What to say about a text that does not fit, and how many PEs would do if they were equal.
fn too_large(pe_id: u64, size: usize, compressed: usize, pes: usize) -> String {
    let parts = compressed.div_ceil(OBJECT_BYTES);
    let enough = pes.saturating_mul(parts);
    format!(
        "the AADL of PE {pe_id} has {size} bytes, {compressed} compressed, more than a ConfigMap holds ({OBJECT_BYTES}); \
         about {enough} PEs would do"
    )
}

struct Render<'a> {
    fusion: &'a dyn Fusion,
    generation: &'a Arc<Generation>,
    planned: &'a BTreeMap<u64, &'a ProcessingElement>,
    adl: Bytes,
}

impl Render<'_> {
    /// The texts of these PEs, in this order, checked against the plan.
    fn texts(&self, pe_ids: &[u64]) -> impl futures::Stream<Item = Result<RenderedText, WorkError>> {
        let texts = (!pe_ids.is_empty()).then(|| self.fusion.render(self.request(pe_ids)));
        let planned: BTreeMap<u64, String> =
            pe_ids.iter().filter_map(|id| Some((*id, self.planned.get(id)?.content_id.clone()))).collect();
        stream::iter(texts).flatten().map(move |text| {
            let text = text?;
            if planned.get(&text.pe_id) != Some(&text.content_id) {
                // The plan's promise: the same compilation and layout give the same text.
                let message = format!("the text of PE {} is another one than when it was planned", text.pe_id);
                return Err(WorkError::recompile(message));
            }
            Ok(text)
        })
    }

    fn request(&self, pe_ids: &[u64]) -> RenderRequest {
        let mut compilation = self.generation.compilation.clone();
        if let Some(adl) = &mut compilation.adl {
            adl.content = Some(self.adl.clone());
        }
        let layout = self.generation.plan.layout.clone();
        RenderRequest {
            compilation: Some(compilation),
            layout: Some(Blob {
                sha256: hex::decode(digest(&layout)).unwrap_or_default().into(),
                content: Some(layout),
            }),
            compiler: self.generation.plan.compiler.clone(),
            pe_ids: pe_ids.to_vec(),
        }
    }
}

/// Writes the text of a PE. That somebody else had written it is remembered (rule call-19).
async fn write<C: Cluster>(
    assignment: &Assignment<'_, C>,
    pe_id: u64,
    content_id: &str,
    text: StoredText,
) -> Result<(), Error> {
    let Assignment { reconciler, key, job, uid } = assignment;
    let owner = controlled_by(*job);
    let builder = ChildBuilder { owner: &owner, job_id: 0, spec: &job.spec, sab_name: "" };
    let object = builder.text(pe_id, content_id, text);
    let replaced = assignment.writer().create_or_replace(&object).await?;
    let name = object.metadata.name.unwrap_or_default();
    let now = reconciler.cluster.now();
    reconciler.memory.find(key, uid, |entry| {
        if !matches!(replaced, Replaced::InVain(_)) {
            entry.wrote(name.clone(), now);
        }
        if let Replaced::Field(field) | Replaced::InVain(field) = &replaced {
            entry.restored(key, Owned::ConfigMap(name), field, now);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_is_named_with_its_size_and_a_way_out() {
        let message = too_large(7, 40_000_000, 2_500_000, 4);
        for part in ["PE 7", "40000000", "2500000", "12 PEs"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn large_texts_are_compressed_the_same_way_each_time() {
        let text = "<pe/>".repeat(100_000);
        let stored = StoredText::of(text.as_bytes()).unwrap();
        assert!(matches!(&stored, StoredText::Compressed(bytes) if bytes.len() < 10_000));
        assert_eq!(StoredText::of(text.as_bytes()).unwrap(), stored);
        assert!(matches!(StoredText::of(b"<pe/>").unwrap(), StoredText::Plain(_)));
        assert_eq!(StoredText::of(&[0xff]), None);
    }
}
