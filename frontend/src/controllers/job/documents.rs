//! Writes documents as chunks to the API server, and reads them.
//!
//! Knows: ConfigMaps and chunks. Must not know: the content of documents.

use super::chunks::{Cut, Document, Incomplete, cut, join};
use super::off_thread::off_thread;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Chunks that are written at the same time.
const WRITES: usize = 4;

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

/// Writes a document as chunks. Chunks that exist already are kept.
///
/// # Errors
/// See [`WriteError`].
pub(crate) async fn write<C: Cluster>(
    writer: &Writer<'_, C>,
    document: &Document,
    owner: &OwnerReference,
    content: Bytes,
) -> Result<Cut, WriteError> {
    let cut = off_thread(move || cut(&content)).await??;
    let chunks = cut.config_maps(document, owner);
    // One of its name has other bytes if another version of the compressor wrote it and did not finish.
    let write = |chunk| async move { writer.create_or_replace(&chunk).await };
    stream::iter(chunks).map(Ok).try_for_each_concurrent(WRITES, write).await?;
    Ok(cut)
}

/// Reads a document of at most `limit` bytes, or returns why it is not complete.
///
/// # Errors
/// A call failed.
pub(crate) async fn read<C: Cluster>(
    cluster: &C,
    job: &Key,
    document: &Document,
    sha256: &str,
    count: u32,
    limit: u64,
) -> Result<Result<Bytes, Incomplete>, Error> {
    let mut chunks = Vec::new();
    for index in 0..count {
        let name = document.chunk_name(&job.name, sha256, index);
        match cluster.get::<ConfigMap>(&job.sibling(&name)).await? {
            Some(chunk) => chunks.push(chunk),
            None => return Ok(Err(Incomplete::Missing(name))),
        }
    }
    let sha256 = sha256.to_owned();
    let joined = off_thread(move || join(&sha256, &chunks, limit)).await;
    let joined =
        joined.unwrap_or_else(|error| Err(Incomplete::Damaged { sha256: String::new(), problem: error.to_string() }));
    Ok(joined.map(Bytes::from))
}
