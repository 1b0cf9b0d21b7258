//! Writes documents in chunks to the API server, and reads them.
//!
//! Knows: ConfigMaps and chunks. Must not know: what documents contain.

use bytes::Bytes;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api,
    api::{PostParams, PropagationPolicy},
};

use streams_kubernetes::{
    Error,
    apply::{create_or_match, delete},
    error::absent,
};

use super::{
    MANAGER,
    chunks::{Cut, Document, Incomplete, cut, join},
};

/// Why a document could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// It could not be compressed.
    #[error("a document could not be compressed: {0}")]
    Compression(#[from] std::io::Error),
    /// The API server did not take it.
    #[error(transparent)]
    Kubernetes(#[from] Error),
    /// The task that compressed it did not end.
    #[error("a document could not be compressed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Writes a document in chunks. They may be there already.
pub(crate) async fn write(
    api: &Api<ConfigMap>,
    document: &Document,
    owner: &OwnerReference,
    content: Bytes,
) -> Result<Cut, WriteError> {
    // Compression of a large document takes a while: not on a thread that serves others.
    let cut = tokio::task::spawn_blocking(move || cut(&content)).await??;
    for chunk in cut.config_maps(document, owner) {
        write_chunk(api, &chunk).await?;
    }
    Ok(cut)
}

/// A chunk that another version of the compressor wrote, and left incomplete, is replaced: the content is what counts.
async fn write_chunk(api: &Api<ConfigMap>, chunk: &ConfigMap) -> Result<(), Error> {
    let same = |existing: &ConfigMap| existing.binary_data == chunk.binary_data;
    match create_or_match(api, MANAGER, chunk, same).await {
        Ok(_) => Ok(()),
        Err(Error::Foreign { kind, name, owner }) => {
            let existing = absent(api.get_metadata(&name).await)?;
            let ours = existing.as_ref().is_some_and(|existing| {
                let controllers = existing.metadata.owner_references.iter().flatten();
                controllers.filter(|reference| reference.controller == Some(true)).any(|reference| {
                    chunk.metadata.owner_references.iter().flatten().any(|owner| owner.uid == reference.uid)
                })
            });
            if !ours {
                return Err(Error::Foreign { kind, name, owner });
            }
            let uid = existing.and_then(|existing| existing.metadata.uid);
            delete(api, &name, uid.as_deref(), PropagationPolicy::Background).await?;
            let written = api.create(&PostParams::default(), chunk).await;
            written.map(|_| ()).map_err(|error| streams_kubernetes::error::written(chunk, error))
        }
        Err(error) => Err(error),
    }
}

/// Reads a document of at most `limit` bytes; or says why it is not complete.
pub(crate) async fn read(
    api: &Api<ConfigMap>,
    document: &Document,
    job: &str,
    sha256: &str,
    count: u32,
    limit: u64,
) -> Result<Result<Bytes, Incomplete>, Error> {
    let mut chunks = Vec::new();
    for index in 0..count {
        let name = document.chunk_name(job, sha256, index);
        match absent(api.get(&name).await)? {
            Some(chunk) => chunks.push(chunk),
            None => return Ok(Err(Incomplete::Missing(name))),
        }
    }
    let sha256 = sha256.to_owned();
    let joined = tokio::task::spawn_blocking(move || join(&sha256, &chunks, limit)).await;
    let joined =
        joined.unwrap_or_else(|error| Err(Incomplete::Damaged { sha256: String::new(), problem: error.to_string() }));
    Ok(joined.map(Bytes::from))
}
