//! Writes documents as chunks to the API server, and reads them.
//!
//! [`chunks`] says how a document is cut, and what its chunks are called.
//!
//! Knows: ConfigMaps and chunks. Must not know: the content of documents.

pub(crate) mod chunks;

use self::chunks::{CutDocument, Document, Incomplete, Packed, cut, join};
use super::off_thread::{Thread, off_thread};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::writer::{Replaced, Writer};
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

/// A document that was written.
pub(crate) struct Written {
    /// Its chunks.
    pub(crate) cut: CutDocument,
    /// Chunks that somebody else had changed, with the field.
    pub(crate) changed: Vec<(String, String)>,
}

/// Writes a document, which is compressed on such a thread, as chunks. Chunks that exist already are kept; those that
/// are to be left alone are not looked at.
///
/// # Errors
/// See [`WriteError`].
pub(crate) async fn write<C: Cluster>(
    writer: &Writer<'_, C>,
    document: &Document,
    owner: &OwnerReference,
    content: Bytes,
    thread: Thread,
    is_left_alone: impl Fn(&str) -> bool,
) -> Result<Written, WriteError> {
    let cut = thread.compute(move || cut(&content)).await??;
    let changed = write_cut(writer, document, owner, &cut, is_left_alone).await?;
    Ok(Written { cut, changed })
}

/// Writes the chunks of a document that was cut. Returns those that somebody else had changed, with the field.
///
/// # Errors
/// The API server did not take one.
pub(crate) async fn write_cut<C: Cluster>(
    writer: &Writer<'_, C>,
    document: &Document,
    owner: &OwnerReference,
    cut: &CutDocument,
    is_left_alone: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, Error> {
    let mut chunks = cut.config_maps(document, owner);
    chunks.retain(|chunk| !is_left_alone(&chunk.name_any()));
    // One of its name has other bytes if another version of the compressor wrote it and did not finish, or somebody
    // else has made it.
    let write = |chunk: ConfigMap| async move {
        let field = match writer.create_or_replace(&chunk).await? {
            Replaced::Field(field) | Replaced::InVain(field) => Some(field),
            Replaced::Nothing => None,
        };
        Ok::<_, Error>(field.map(|field| (chunk.name_any(), field)))
    };
    let written: Vec<_> = stream::iter(chunks.into_iter().map(write)).buffer_unordered(WRITES).try_collect().await?;
    Ok(written.into_iter().flatten().collect())
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
    let packed = match read_packed(cluster, job, document, sha256, count).await? {
        Ok(packed) => packed,
        Err(incomplete) => return Ok(Err(incomplete)),
    };
    let sha256 = sha256.to_owned();
    let unpacked = off_thread(move || packed.unpack(&sha256, limit)).await;
    let unpacked =
        unpacked.unwrap_or_else(|error| Err(Incomplete::Damaged { sha256: String::new(), problem: error.to_string() }));
    Ok(unpacked.map(Bytes::from))
}

/// Reads a document as it is stored, or returns why it is not complete. Whether it is the right one shows when it is
/// unpacked.
///
/// # Errors
/// A call failed.
pub(crate) async fn read_packed<C: Cluster>(
    cluster: &C,
    job: &Key,
    document: &Document,
    sha256: &str,
    count: u32,
) -> Result<Result<Packed, Incomplete>, Error> {
    let mut chunks = Vec::new();
    for index in 0..count {
        let name = document.chunk_name(&job.name, sha256, index);
        match cluster.get::<ConfigMap>(&job.sibling(&name)).await? {
            Some(chunk) => chunks.push(chunk),
            None => return Ok(Err(Incomplete::Missing(name))),
        }
    }
    Ok(join(sha256, &chunks))
}
