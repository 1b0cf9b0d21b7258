//! Documents of any size in ConfigMaps: compressed, cut into chunks, named by their digest (rules job-8 and name-5).
//!
//! The ADL of a job and its plans are larger than an object may be. A [`Document`] is compressed and cut; each chunk
//! becomes an immutable ConfigMap owned by the job. The digest is that of the *content*: the name of a chunk says which
//! document it belongs to, whichever process wrote it.
//!
//! Knows: the form of the chunks. Must not know: what they contain, nor when they are written or removed.
//!
//! Invariants:
//! * what [`Packed::unpack`] returns has the digest that was asked for: a missing, damaged or foreign chunk is
//!   [`Incomplete`], never a wrong document;
//! * memory is bounded by the limit given, whatever the chunks claim.

use bytes::Bytes;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Read};
use streams_api::names;

/// Bytes of compressed content in one ConfigMap. An object may have 1 MiB altogether.
const CHUNK_BYTES: usize = 768 << 10;

/// Key of the ConfigMap that holds the bytes.
const KEY: &str = "chunk";

/// What is stored in chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// The ADL of the job.
    Adl,
    /// The plan of this generation.
    Plan {
        /// Generation of the job, from 0.
        generation: u64,
    },
}

impl Document {
    /// Name of one chunk; `sha256` is lower-case hexadecimal.
    pub(crate) fn chunk_name(&self, job: &str, sha256: &str, index: u32) -> String {
        match self {
            Self::Adl => names::adl_chunk(job, sha256, index),
            Self::Plan { generation } => names::plan_chunk(job, *generation, sha256, index),
        }
    }

    /// Whether `name` is that of a chunk of this document, for some job.
    pub(crate) fn has_chunk(&self, sha256: &str, chunks: u32, name: &str) -> bool {
        (0..chunks).any(|index| name.ends_with(self.chunk_name("", sha256, index).as_str()))
    }

    fn part(&self) -> &'static str {
        match self {
            Self::Adl => names::PART_ADL,
            Self::Plan { .. } => names::PART_PLAN,
        }
    }
}

/// A document that is not (or no longer) complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Incomplete {
    /// A chunk does not exist.
    #[error("chunk {0} is missing")]
    Missing(String),
    /// The chunks are there but do not make the document.
    #[error("chunks of {sha256}: {problem}")]
    Damaged {
        /// Digest of the document.
        sha256: String,
        /// What is wrong.
        problem: String,
    },
}

/// A document as it is stored, in one piece: compressed, and not checked yet. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Packed(Bytes);

/// A document cut into chunks.
#[derive(Clone, Debug)]
pub(crate) struct CutDocument {
    /// SHA-256 of the content, lower-case hexadecimal.
    pub(crate) sha256: String,
    /// What the chunks have together.
    pub(crate) packed: Packed,
}

/// Compresses and cuts a document. The same content gives the same chunks (as long as zstd does not change).
///
/// # Errors
/// Compression fails, which happens only without memory.
pub(crate) fn cut(content: &[u8]) -> io::Result<CutDocument> {
    let compressed = zstd::bulk::compress(content, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    Ok(CutDocument { sha256: digest(content), packed: Packed::new(compressed) })
}

/// A chunk without its content: what is known of it by its document.
pub(crate) fn shape(document: &Document, owner: &OwnerReference, sha256: &str, index: u32, count: u32) -> ConfigMap {
    let job = owner.name.as_str();
    let mut labels = names::job_labels(job);
    labels.insert(names::LABEL_PART.to_owned(), document.part().to_owned());
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(document.chunk_name(job, sha256, index)),
            labels: Some(labels),
            annotations: Some(annotations(sha256, index, count)),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        binary_data: Some(BTreeMap::from([(KEY.to_owned(), ByteString::default())])),
        data: None,
    }
}

impl CutDocument {
    /// Number of chunks, at least 1.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.packed.0.len().div_ceil(CHUNK_BYTES)).unwrap_or(u32::MAX)
    }

    /// The chunks as objects, in order.
    pub(crate) fn config_maps(&self, document: &Document, owner: &OwnerReference) -> Vec<ConfigMap> {
        (0..self.count())
            .zip(self.packed.0.chunks(CHUNK_BYTES))
            .map(|(index, bytes)| ConfigMap {
                binary_data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(bytes.to_vec()))])),
                ..shape(document, owner, &self.sha256, index, self.count())
            })
            .collect()
    }
}

fn annotations(sha256: &str, index: u32, count: u32) -> BTreeMap<String, String> {
    BTreeMap::from([
        (names::ANNOTATION_SHA256.to_owned(), sha256.to_owned()),
        (names::ANNOTATION_CHUNK_INDEX.to_owned(), index.to_string()),
        (names::ANNOTATION_CHUNK_COUNT.to_owned(), count.to_string()),
    ])
}

/// Puts the chunks of a document together, in order.
///
/// # Errors
/// [`Incomplete::Damaged`] if one has no content.
pub(crate) fn join(sha256: &str, chunks: &[ConfigMap]) -> Result<Packed, Incomplete> {
    let damaged = |problem: String| Incomplete::Damaged { sha256: sha256.to_owned(), problem };
    let mut compressed = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let bytes = chunk.binary_data.as_ref().and_then(|data| data.get(KEY));
        compressed.extend_from_slice(&bytes.ok_or_else(|| damaged(format!("chunk {index} has no content")))?.0);
    }
    Ok(Packed::new(compressed))
}

impl Packed {
    /// Takes no more memory than it has bytes: the buffer of the compressor is as large as the content.
    fn new(compressed: Vec<u8>) -> Self {
        Self(compressed.into_boxed_slice().into())
    }

    /// How much memory it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// The content, checked. `limit` bounds its size in bytes.
    ///
    /// # Errors
    /// [`Incomplete::Damaged`] if it is not the document with this digest.
    pub(crate) fn unpack(&self, sha256: &str, limit: u64) -> Result<Vec<u8>, Incomplete> {
        let damaged = |problem: String| Incomplete::Damaged { sha256: sha256.to_owned(), problem };
        let read = |error: io::Error| damaged(format!("cannot be decompressed: {error}"));
        let mut content = Vec::new();
        let decoder = zstd::stream::read::Decoder::new(&*self.0).map_err(read)?;
        decoder.take(limit.saturating_add(1)).read_to_end(&mut content).map_err(read)?;
        if content.len() as u64 > limit {
            return Err(damaged(format!("has more than {limit} bytes")));
        }
        if digest(&content) != sha256 {
            return Err(damaged("the content has another digest".to_owned()));
        }
        Ok(content)
    }
}

/// SHA-256 in lower-case hexadecimal.
pub(crate) fn digest(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: u64 = 16 << 20;

    /// The content of the document with this digest, from its chunks.
    fn join(sha256: &str, chunks: &[ConfigMap], limit: u64) -> Result<Vec<u8>, Incomplete> {
        super::join(sha256, chunks)?.unpack(sha256, limit)
    }

    fn owner() -> OwnerReference {
        OwnerReference {
            name: "flow".to_owned(),
            uid: "u".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    /// Bytes that do not compress.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_be_bytes()[0]
            })
            .collect()
    }

    #[test]
    fn chunks_are_immutable_named_by_content_and_fit_an_object() {
        let content = noise(2_000_000);
        let cut = cut(&content).unwrap();
        let maps = cut.config_maps(&Document::Plan { generation: 4 }, &owner());
        assert_eq!(maps.len(), 3);
        assert_eq!(cut.count(), 3);
        for (index, map) in maps.iter().enumerate() {
            assert_eq!(
                map.metadata.name.as_deref(),
                Some(format!("flow-plan-4-{}-{index}", &cut.sha256[..10]).as_str())
            );
            assert_eq!(map.immutable, Some(true));
            assert_eq!(map.metadata.labels.as_ref().unwrap()[names::LABEL_PART], "plan");
            assert_eq!(map.metadata.annotations.as_ref().unwrap()[names::ANNOTATION_CHUNK_COUNT], "3");
            assert!(serde_json::to_vec(map).unwrap().len() < 1_450_000, "fits a request");
        }
        assert_eq!(join(&cut.sha256, &maps, LIMIT).unwrap(), content);
    }

    #[test]
    fn a_document_takes_the_memory_that_it_is_counted_for() {
        let cut = cut(&vec![7; 1 << 20]).unwrap();
        let packed = Vec::from(cut.packed.0);
        assert!(packed.len() < 1_000 && packed.capacity() == packed.len(), "{}", packed.capacity());
    }

    #[test]
    fn an_empty_document_has_one_chunk() {
        let cut = cut(b"").unwrap();
        let maps = cut.config_maps(&Document::Adl, &owner());
        assert_eq!(maps.len(), 1);
        assert_eq!(join(&cut.sha256, &maps, LIMIT).unwrap(), b"");
    }

    #[test]
    fn what_is_not_the_document_is_damaged() {
        let content = noise(1_800_000);
        let cut = cut(&content).unwrap();
        let whole = cut.config_maps(&Document::Adl, &owner());
        let other = super::cut(b"other").unwrap();
        let mut swapped = whole.clone();
        swapped.swap(0, 1);
        let mut empty = whole.clone();
        empty[1].binary_data = None;
        let table: [(&str, &[ConfigMap], u64); 6] = [
            ("a chunk is missing", &whole[..2], LIMIT),
            ("no chunk", &[], LIMIT),
            ("another order", &swapped, LIMIT),
            ("no content", &empty, LIMIT),
            ("another document", &other.config_maps(&Document::Adl, &owner()), LIMIT),
            ("too large", &whole, 1_000_000),
        ];
        for (name, chunks, limit) in table {
            assert!(matches!(join(&cut.sha256, chunks, limit), Err(Incomplete::Damaged { .. })), "{name}");
        }
    }

    #[test]
    fn a_small_chunk_that_claims_much_is_refused_without_the_memory() {
        let bomb = cut(&vec![0; 64 << 20]).unwrap();
        let chunks = bomb.config_maps(&Document::Adl, &owner());
        assert_eq!(chunks.len(), 1);
        assert!(matches!(join(&bomb.sha256, &chunks, 1 << 20), Err(Incomplete::Damaged { .. })));
    }

    proptest! {
        #[test]
        fn any_content_survives(content in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let cut = cut(&content).unwrap();
            prop_assert_eq!(join(&cut.sha256, &cut.config_maps(&Document::Adl, &owner()), LIMIT).unwrap(), content);
        }
    }
}
