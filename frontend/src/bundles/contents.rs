//! Bundles by what is in them (rules fetch-7 and fetch-14).
//!
//! Knows: bytes and their SHA-256, in memory and in the bundle store. Must not know: where they came from, who may have
//! them.
//!
//! Invariants: what is given has the digest that was asked for. What is lost of the memory is only fetched again; what
//! is in the store stays. A store that does not answer is as one that cannot be read or written.

use super::error::BundleError;
use super::place::Place;
use super::volume::{self, Lent, Volume};
use bytes::Bytes;
use moka::sync::Cache;
use sha2::{Digest, Sha256};
use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What one that is kept costs besides its bytes, generously: somebody may send many that are small.
const ENTRY: u32 = 1 << 10;

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
    /// Where the store is.
    volume: Volume,
    max_bytes: usize,
}

impl Contents {
    /// With this many bytes in memory, those included that it takes to keep a bundle, and in this directory of the
    /// volume if there is one.
    pub(super) fn new(memory_bytes: u64, store: Option<PathBuf>, volume: Volume, max_bytes: usize) -> Self {
        let memory = Cache::builder()
            .weigher(|_: &String, bundle: &Bytes| u32::try_from(bundle.len()).unwrap_or(u32::MAX).saturating_add(ENTRY))
            .max_capacity(memory_bytes)
            .build();
        Self { memory, store, volume, max_bytes }
    }

    /// Whether the bundle with this digest seems to be there. It may be lost, or damaged, when it is asked for.
    pub(super) async fn has(&self, sha256: &str) -> bool {
        if self.memory.contains_key(sha256) {
            return true;
        }
        let Some(path) = self.stored(sha256) else { return false };
        self.volume.ask((), move |_| path.is_file()).await.is_ok_and(|(is_there, ())| is_there)
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
        let (path, max_bytes) = (self.stored(sha256)?, self.max_bytes);
        let (outcome, bytes) = self.volume.ask(Vec::new(), move |bytes| read(&path, max_bytes, bytes)).await.ok()?;
        outcome.ok()?;
        Content::of(bytes.into(), place).await.ok().filter(|content| content.sha256 == sha256)
    }

    /// Keeps a bundle that was downloaded and can be used, in memory and in the store.
    ///
    /// # Errors
    /// When it cannot be stored; that may pass.
    pub(super) async fn keep(&self, content: &Content) -> Result<(), BundleError> {
        self.store(content).await?;
        self.memory.insert(content.sha256.clone(), content.bytes.clone());
        Ok(())
    }

    /// Keeps a bundle in the store, if there is one.
    ///
    /// # Errors
    /// When it cannot be stored; that may pass.
    pub(super) async fn store(&self, content: &Content) -> Result<(), BundleError> {
        let Some(directory) = self.store.clone() else { return Ok(()) };
        let sha256 = content.sha256.clone();
        let written = self.volume.ask(content.bytes.clone(), move |bytes| write(&directory, &sha256, bytes)).await;
        let written = written.map_err(io::Error::other).and_then(|(outcome, _)| outcome);
        written.map_err(|error| {
            BundleError::transient("BundleNotStored", format!("the bundle store cannot be written: {error}"))
        })
    }
}

fn path(store: &Path, sha256: &str) -> PathBuf {
    store.join(format!("{sha256}.sab"))
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The digest of a file, which is not held in memory.
fn digest_of_file(path: &Path, is_waited_for: impl Fn() -> io::Result<()>) -> io::Result<String> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut hash = Sha256::new();
    loop {
        is_waited_for()?;
        let read = file.fill_buf()?;
        if read.is_empty() {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(read);
        let length = read.len();
        file.consume(length);
    }
}

/// Reads a file of at most this size.
fn read(path: &Path, max_bytes: usize, bytes: &Lent<Vec<u8>>) -> io::Result<()> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > max_bytes as u64 {
        return Err(ErrorKind::FileTooLarge.into());
    }
    volume::read(&mut file, length, max_bytes, bytes)
}

/// Writes a file whole or not at all. One with the same bytes is left as it is; one that was damaged is replaced.
fn write(directory: &Path, sha256: &str, bytes: &Lent<Bytes>) -> io::Result<()> {
    let path = path(directory, sha256);
    if digest_of_file(&path, || bytes.with(|_| ())).is_ok_and(|there| there == sha256) {
        return Ok(());
    }
    // Whoever shares the volume may read it.
    let permissions = Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().prefix(".bundle-").permissions(permissions).tempfile_in(directory)?;
    volume::write(&mut file, bytes)?;
    file.as_file().sync_all()?;
    file.persist(&path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn place() -> Place {
        Place::new(())
    }

    fn volume(threads: usize) -> Volume {
        Volume::new(threads, Duration::from_secs(60))
    }

    #[tokio::test]
    async fn the_store_gives_what_has_the_digest_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let contents = || Contents::new(0, Some(directory.path().to_owned()), volume(1), 1024);
        let content = Content::of(Bytes::from_static(b"bundle"), &place()).await.unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, None);
        contents().keep(&content).await.unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, Some(content.clone()));
        let file = path(directory.path(), &content.sha256);
        std::fs::write(&file, "other").unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, None, "bytes of another digest are never served");
        contents().store(&content).await.unwrap();
        assert_eq!(contents().get(&content.sha256, &place()).await, Some(content.clone()));
        let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [file], "nothing half-written stays");
        let gone = Contents::new(0, Some(directory.path().join("gone")), volume(1), 1024);
        let error = gone.store(&content).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("BundleNotStored", true));
        let stuck = Volume::new(0, Duration::from_millis(20));
        let silent = Contents::new(0, Some(directory.path().to_owned()), stuck, 1024);
        assert!(!silent.has(&content.sha256).await);
        assert_eq!(silent.get(&content.sha256, &place()).await, None);
        let error = silent.store(&content).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("BundleNotStored", true));
        assert_eq!(error.to_string(), "the bundle store cannot be written: the volume does not answer");
    }

    #[tokio::test]
    async fn the_memory_is_bounded_by_bytes_and_by_what_each_bundle_costs() {
        // How large the bundles are -> how many of ten are kept.
        for (length, kept) in [(ENTRY as usize, 2), (1, 4)] {
            let contents = Contents::new(u64::from(4 * ENTRY + ENTRY / 2), None, volume(1), 1 << 20);
            for byte in 0..10 {
                let content = Content::of(vec![byte; length].into(), &place()).await.unwrap();
                contents.keep(&content).await.unwrap();
                contents.memory.run_pending_tasks();
            }
            assert!(contents.memory.weighted_size() <= u64::from(4 * ENTRY + ENTRY / 2));
            assert_eq!(contents.memory.entry_count(), kept, "bundles of {length} bytes");
        }
    }
}
