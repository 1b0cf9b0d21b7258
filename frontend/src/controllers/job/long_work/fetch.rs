//! Fetches bundles, and stores their ADL in chunks.

use super::{Assignment, LongWork, WorkError};
use crate::bundles::Application;
use crate::controllers::job::documents;
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::off_thread::Thread;
use crate::controllers::job::tasks::{FetchRequest, Slot, TaskKind, Tasks};
use bytes::Bytes;
use streams_api::StoredAdl;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::controlled_by;
use tracing::Span;

/// Largest stored ADL in bytes; the contract of the fusion service.
pub(super) const ADL_MAX: u64 = 64 << 20;

/// Fetches the bundle that the job's spec names.
pub(super) struct Fetch;

impl LongWork for Fetch {
    const KIND: TaskKind = TaskKind::Fetch;
    const RESULT_IS_VISIBLE: bool = false;
    type Request = FetchRequest;
    type Output = StoredAdl;

    fn slot(tasks: &mut Tasks) -> &mut Slot<FetchRequest, StoredAdl> {
        &mut tasks.fetch
    }

    fn span<C: Cluster>(_: &Assignment<'_, C>, _: &FetchRequest) -> Span {
        Span::none()
    }

    async fn perform<C: Cluster>(
        assignment: &Assignment<'_, C>,
        request: &FetchRequest,
    ) -> Result<StoredAdl, WorkError> {
        // Another bundle than the one that is asked for must not be filed under it.
        if assignment.job.spec.bundle != request.bundle {
            return Err(WorkError::transient("Outdated", "the spec was edited meanwhile"));
        }
        Ok(StoredAdl { spec_generation: request.spec_generation, ..fetch(assignment).await? })
    }
}

/// Fetches the bundle and writes the chunks of its ADL. The caller knows for which spec.
async fn fetch<C: Cluster>(assignment: &Assignment<'_, C>) -> Result<StoredAdl, WorkError> {
    let Assignment { reconciler, key, job, .. } = assignment;
    let application = reconciler.bundles.fetch(&job.spec.bundle, &key.namespace).await?;
    store(assignment, application).await
}

/// Writes the chunks of an ADL.
async fn store<C: Cluster>(assignment: &Assignment<'_, C>, application: Application) -> Result<StoredAdl, WorkError> {
    let Assignment { reconciler, job, .. } = assignment;
    let size = application.adl.len() as u64;
    let (writer, owner) = (assignment.writer(), controlled_by(*job));
    let (adl, thread) = (application.adl.clone(), Thread::Background);
    let cut = documents::write(&writer, &Document::Adl, &owner, adl, thread, |_| false).await?.cut;
    reconciler.memory.keep_adl(cut.sha256.clone(), application.adl);
    Ok(StoredAdl {
        chunks: cut.count(),
        sha256: cut.sha256,
        size,
        bundle_sha256: Some(application.bundle_sha256),
        sab_name: application.sab_name,
        spec_generation: 0,
    })
}

/// The pinned ADL of a job (rule job-6): from memory, else from its chunks. If a user has deleted the chunks, from the
/// bundle: the one that was kept, or the one that the job names if its ADL is still the same (rule fetch-13).
pub(super) async fn pinned<C: Cluster>(assignment: &Assignment<'_, C>) -> Result<Bytes, WorkError> {
    let Assignment { reconciler, key, job, .. } = assignment;
    let stored = job.status.as_ref().and_then(|status| status.adl.as_ref());
    let stored = stored.ok_or_else(|| WorkError::transient("AdlMissing", "the ADL has not been fetched yet"))?;
    if let Some(adl) = reconciler.memory.adl(&stored.sha256) {
        return Ok(adl);
    }
    let (document, cluster) = (Document::Adl, &reconciler.cluster);
    let read = documents::read(cluster, key, &document, &stored.sha256, stored.chunks, ADL_MAX).await?;
    let adl = match read {
        Ok(adl) => adl,
        Err(incomplete) => {
            tracing::warn!(job = %key, %incomplete, "the stored ADL is incomplete; looking at the bundle");
            let again = from_bundle(assignment, stored, &incomplete.to_string()).await;
            // What a job runs can be had again once its bundle, or the way to it, is as it was. No width is at fault.
            let runs = job.status.as_ref().is_some_and(|status| status.generation.is_some());
            again.map_err(|error| if runs { error.or_less_often() } else { error })?
        }
    };
    reconciler.memory.keep_adl(stored.sha256.clone(), adl.clone());
    Ok(adl)
}

/// The pinned ADL from the bundle that was kept, or from the one that the job names. Writes its chunks again.
async fn from_bundle<C: Cluster>(
    assignment: &Assignment<'_, C>,
    stored: &StoredAdl,
    incomplete: &str,
) -> Result<Bytes, WorkError> {
    let Assignment { reconciler, key, job, .. } = assignment;
    let bundle = &job.spec.bundle;
    let kept = match &stored.bundle_sha256 {
        Some(sha256) => reconciler.bundles.kept(bundle, &key.namespace, sha256).await?,
        None => None,
    };
    let application = match kept {
        Some(application) => application,
        None => reconciler.bundles.fetch(bundle, &key.namespace).await?,
    };
    if application.adl_sha256 != stored.sha256 {
        let (was, is) = (stored.bundle_sha256.as_deref().unwrap_or("unknown"), &application.bundle_sha256);
        let message = format!(
            "the ADL of the job is lost ({incomplete}), and the bundle has another one now: the job was submitted with \
             the bundle {was} (SHA-256), now it is {is}"
        );
        return Err(WorkError::permanent("AdlLost", message));
    }
    let adl = application.adl.clone();
    store(assignment, application).await?;
    Ok(adl)
}
