//! From a bundle to an ADL in chunks.

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::controllers::{
    Context,
    job::{chunks::Document, documents},
};
use streams_api::{Job, StoredAdl};
use streams_kubernetes::{Key, apply::controlled_by};

use super::Unfinished;

/// Largest ADL in bytes; the contract of the fusion service.
const ADL_MAX: u64 = 64 << 20;

/// Fetches the bundle and writes the chunks of its ADL. The caller knows for which generation of the spec.
pub(super) async fn fetch(context: &Context, key: &Key, job: &Job) -> Result<StoredAdl, Unfinished> {
    let application = context.bundles.fetch(&job.spec.bundle, &key.namespace, &context.client).await?;
    let size = application.adl.len() as u64;
    if size > ADL_MAX {
        let message = format!("the ADL of {} has {size} bytes, more than {ADL_MAX}", application.sab_name);
        return Err(Unfinished::permanent("BundleTooLarge", message));
    }
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &key.namespace);
    let cut = documents::write(&api, &Document::Adl, &controlled_by(job), application.adl.clone()).await?;
    context.memory.keep_adl(cut.sha256.clone(), application.adl);
    Ok(StoredAdl { chunks: cut.count(), sha256: cut.sha256, size, sab_name: application.sab_name, spec_generation: 0 })
}

/// The pinned ADL of a job (rule job-6): from memory, from its chunks, or, if a user deleted those, from the bundle if
/// that is still the same.
pub(super) async fn pinned(context: &Context, key: &Key, job: &Job) -> Result<Bytes, Unfinished> {
    let stored = job.status.as_ref().and_then(|status| status.adl.as_ref());
    let stored = stored.ok_or_else(|| Unfinished::transient("AdlMissing", "the ADL has not been fetched yet"))?;
    if let Some(adl) = context.memory.adl(&stored.sha256) {
        return Ok(adl);
    }
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &key.namespace);
    let read = documents::read(&api, &Document::Adl, &key.name, &stored.sha256, stored.chunks, ADL_MAX).await?;
    let adl = match read {
        Ok(adl) => adl,
        Err(incomplete) => {
            tracing::warn!(job = %key, %incomplete, "the stored ADL is incomplete; looking at the bundle");
            let again = fetch(context, key, job).await?;
            let same = context.memory.adl(&stored.sha256).filter(|_| again.sha256 == stored.sha256);
            same.ok_or_else(|| {
                let message = format!("the ADL of the job is lost ({incomplete}), and the bundle has another one now");
                Unfinished::permanent("AdlLost", message)
            })?
        }
    };
    context.memory.keep_adl(stored.sha256.clone(), adl.clone());
    Ok(adl)
}
