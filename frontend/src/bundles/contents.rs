//! Bundles by what is in them (rules fetch-7 and fetch-14).
//!
//! Knows: bytes and their SHA-256, in memory and in the bundle store. Must not know: where they came from, who may have
//! them.
//!
//! Invariants: what is given has the digest that was asked for. What is lost of the memory is only fetched again; what
//! is in the store stays.

use super::error::BundleError;
use super::place::Place;
use bytes::Bytes;
use moka::sync::Cache;
use sha2::{Digest, Sha256};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// SHA-256, lower-case hexadecimal.
    pub(super) sha256: String,
    /// The bytes.
    pub(super) bytes: Bytes,
}

impl Content {
    /// Bytes with their digest, which for a large bundle is a matter of a second.
    pub(super) async fn of(bytes: Bytes, place: &Place) -> Result<Self, BundleError> {
        place.off_thread(move || Ok(Self { sha256: digest(&bytes), bytes })).await
    }
}

/// Bundles by digest. Cheap to clone.
#[derive(Clone)]
pub(super) struct Contents {
    memory: Cache<String, Bytes>,
    store: Option<PathBuf>,
    max_bytes: usize,
}

impl Contents {
    /// With this many bytes in memory, and in this directory if there is one.
    pub(super) fn new(memory_bytes: u64, store: Option<PathBuf>, max_bytes: usize) -> Self {
        let memory = Cache::builder()
            .weigher(|_: &String, bundle: &Bytes| u32::try_from(bundle.len()).unwrap_or(u32::MAX))
            .max_capacity(memory_bytes)
            .build();
        Self { memory, store, max_bytes }
    }

    /// Whether the bundle with this digest seems to be there. It may be lost, or damaged, when it is asked for.
    pub(super) fn has(&self, sha256: &str) -> bool {
        self.memory.contains_key(sha256) || self.stored(sha256).is_some_and(|path| path.is_file())
    }

    /// Where the store has the bundle with this digest. The digest may come from a status that somebody edited.
    fn stored(&self, sha256: &str) -> Option<PathBuf> {
        let is_digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.store.as_deref().filter(|_| is_digest).map(|store| path(store, sha256))
    }

    /// The bundle with this digest, if it is still there.
    pub(super) async fn get(&self, sha256: &str, place: &Place) -> Option<Content> {
        if let Some(bytes) = self.memory.get(sha256) {
            return Some(Content { sha256: sha256.to_owned(), bytes });
        }
        let (path, max_bytes, sha256) = (self.stored(sha256)?, self.max_bytes, sha256.to_owned());
        let read = place.off_thread(move || {
            Ok(read(&path, max_bytes)
                .filter(|bytes| digest(bytes) == sha256)
                .map(|bytes| Content { sha256, bytes: bytes.into() }))
        });
        read.await.ok().flatten()
    }

    /// Keeps a bundle that was downloaded, in memory and in the store.
    ///
    /// # Errors
    /// When it cannot be stored; that may pass.
    pub(super) async fn keep(&self, content: &Content, place: &Place) -> Result<(), BundleError> {
        self.store(content, place).await?;
        self.memory.insert(content.sha256.clone(), content.bytes.clone());
        Ok(())
    }

    /// Keeps a bundle in the store, if there is one.
    ///
    /// # Errors
    /// When it cannot be stored; that may pass.
    pub(super) async fn store(&self, content: &Content, place: &Place) -> Result<(), BundleError> {
        let Some(directory) = self.store.clone() else { return Ok(()) };
        let content = content.clone();
        let write = place.off_thread(move || {
            let path = path(&directory, &content.sha256);
            write(&directory, &path, &content).map_err(|error| {
                BundleError::transient("BundleNotStored", format!("the bundle store cannot be written: {error}"))
            })
        });
        write.await
    }
}

fn path(store: &Path, sha256: &str) -> PathBuf {
    store.join(format!("{sha256}.sab"))
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The digest of a file, which is not held in memory.
fn digest_of_file(path: &Path) -> std::io::Result<String> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut hash = Sha256::new();
    loop {
        let read = file.fill_buf()?;
        if read.is_empty() {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(read);
        let length = read.len();
        file.consume(length);
    }
}

/// A file of at most this size; `None` if it is not there or cannot be read.
fn read(path: &Path, max_bytes: usize) -> Option<Vec<u8>> {
    let length = std::fs::metadata(path).ok()?.len();
    if length > max_bytes as u64 {
        return None;
    }
    std::fs::read(path).ok()
}

/// Writes a file whole or not at all. One with the same bytes is left as it is; one that was damaged is replaced.
fn write(directory: &Path, path: &Path, content: &Content) -> std::io::Result<()> {
    let Content { sha256, bytes } = content;
    if digest_of_file(path).is_ok_and(|there| there == *sha256) {
        return Ok(());
    }
    // Whoever shares the volume may read it.
    let permissions = Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().prefix(".bundle-").permissions(permissions).tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place::new(())
    }

    #[tokio::test]
    async fn the_store_gives_what_has_the_digest_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let contents = || Contents::new(0, Some(directory.path().to_owned()), 1024);
        let content = Content::of(Bytes::from_static(b"bundle"), &place()).await.unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, None);
        contents().keep(&content, &place()).await.unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, Some(content.clone()));
        let file = path(directory.path(), &content.sha256);
        std::fs::write(&file, "other").unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, None, "bytes of another digest are never served");
        contents().store(&content, &place()).await.unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, Some(content.clone()));
        let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [file], "nothing half-written stays");
        let gone = Contents::new(0, Some(directory.path().join("gone")), 1024);
        let error = gone.store(&content, &place()).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("BundleNotStored", true));
    }

    #[tokio::test]
    async fn the_memory_is_bounded_by_bytes() {
        let contents = Contents::new(10, None, 1024);
        for bundle in ["bundle 1", "bundle 2"] {
            let content = Content::of(Bytes::from(bundle), &place()).await.unwrap();
            contents.keep(&content, &place()).await.unwrap();
        }
        contents.memory.run_pending_tasks();
        assert!(contents.memory.weighted_size() <= 10);
    }
}
