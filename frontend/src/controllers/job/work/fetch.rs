//! Fetches bundles: from a bundle to an ADL in chunks.

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use tracing::Span;

use crate::controllers::job::{
    chunks::Document,
    documents,
    tasks::{Slot, TaskKind, Tasks},
};
use streams_api::StoredAdl;
use streams_kubernetes::apply::controlled_by;

use super::{Assignment, LongWork, WorkError};

/// Largest ADL in bytes; the contract of the fusion service.
const ADL_MAX: u64 = 64 << 20;

/// Fetches the bundle that a generation of the job's spec names.
pub(super) struct Fetch;

impl LongWork for Fetch {
    const KIND: TaskKind = TaskKind::Fetch;
    const SHOWS: bool = false;
    type Request = i64;
    type Output = StoredAdl;

    fn slot(tasks: &mut Tasks) -> &mut Slot<i64, StoredAdl> {
        &mut tasks.fetch
    }

    fn span(_: &Assignment<'_>, _: &i64) -> Span {
        Span::none()
    }

    async fn perform(assignment: &Assignment<'_>, spec_generation: &i64) -> Result<StoredAdl, WorkError> {
        Ok(StoredAdl { spec_generation: *spec_generation, ..fetch(assignment).await? })
    }
}

/// Fetches the bundle and writes the chunks of its ADL. The caller knows for which generation of the spec.
async fn fetch(assignment: &Assignment<'_>) -> Result<StoredAdl, WorkError> {
    let Assignment { context, key, job, .. } = assignment;
    let application = context.bundles.fetch(&job.spec.bundle, &key.namespace, &context.client).await?;
    let size = application.adl.len() as u64;
    if size > ADL_MAX {
        let message = format!("the ADL of {} has {size} bytes, more than {ADL_MAX}", application.sab_name);
        return Err(WorkError::permanent("BundleTooLarge", message));
    }
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &key.namespace);
    let cut = documents::write(&api, &Document::Adl, &controlled_by(*job), application.adl.clone()).await?;
    context.memory.keep_adl(cut.sha256.clone(), application.adl);
    Ok(StoredAdl { chunks: cut.count(), sha256: cut.sha256, size, sab_name: application.sab_name, spec_generation: 0 })
}

/// The pinned ADL of a job (rule job-6): from memory, from its chunks, or, if a user deleted those, from the bundle if
/// that is still the same.
pub(super) async fn pinned(assignment: &Assignment<'_>) -> Result<Bytes, WorkError> {
    let Assignment { context, key, job, .. } = assignment;
    let stored = job.status.as_ref().and_then(|status| status.adl.as_ref());
    let stored = stored.ok_or_else(|| WorkError::transient("AdlMissing", "the ADL has not been fetched yet"))?;
    if let Some(adl) = context.memory.adl(&stored.sha256) {
        return Ok(adl);
    }
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &key.namespace);
    let read = documents::read(&api, &Document::Adl, &key.name, &stored.sha256, stored.chunks, ADL_MAX).await?;
    let adl = match read {
        Ok(adl) => adl,
        Err(incomplete) => {
            tracing::warn!(job = %key, %incomplete, "the stored ADL is incomplete; looking at the bundle");
            let again = fetch(assignment).await?;
            let same = context.memory.adl(&stored.sha256).filter(|_| again.sha256 == stored.sha256);
            same.ok_or_else(|| {
                let message = format!("the ADL of the job is lost ({incomplete}), and the bundle has another one now");
                WorkError::permanent("AdlLost", message)
            })?
        }
    };
    context.memory.keep_adl(stored.sha256.clone(), adl.clone());
    Ok(adl)
}
