//! Bundles on disk, by digest, within a bound (rule repository-10).
//!
//! Knows: files, bytes, which bundle was asked for last. Must not know: where bundles come from.
//!
//! Invariants: the files have no more bytes than the bound, those being written and those that a client still reads
//! included. A bundle that somebody reads stays. A file has no name, so that nothing is left of it when the process
//! ends, and nobody else can change it.

use crate::bundles::contents::Content;
use crate::bundles::error::BundleError;
use bytes::Bytes;
use futures::stream::try_unfold;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncRead;
use tokio::task::spawn_blocking;
use tokio_util::io::StreamReader;

/// Bytes that are read from a file at once.
const PIECE: u64 = 64 << 10;

/// Bundles on disk.
pub(super) struct Shelf {
    directory: PathBuf,
    max_bytes: u64,
    /// Bytes of all files.
    taken: Arc<AtomicU64>,
    bundles: Mutex<Bundles>,
}

/// Those that can be found, each with when it was asked for last.
#[derive(Default)]
struct Bundles {
    by_digest: HashMap<String, (Arc<StoredBundle>, u64)>,
    clock: u64,
}

impl Bundles {
    fn get(&mut self, sha256: &str) -> Option<Arc<StoredBundle>> {
        self.clock += 1;
        let (bundle, asked) = self.by_digest.get_mut(sha256)?;
        *asked = self.clock;
        Some(Arc::clone(bundle))
    }

    /// Those that nobody has, and when they were asked for.
    fn all_idle(&self) -> impl Iterator<Item = (&String, &StoredBundle, u64)> {
        let idle = self.by_digest.iter().filter(|(_, (bundle, _))| Arc::strong_count(bundle) == 1);
        idle.map(|(sha256, (bundle, asked))| (sha256, &**bundle, *asked))
    }

    /// The one of them that nobody has asked for longest.
    fn idle(&self) -> Option<String> {
        self.all_idle().min_by_key(|(_, _, asked)| *asked).map(|(sha256, _, _)| sha256.clone())
    }

    /// Bytes of all of them.
    fn idle_bytes(&self) -> u64 {
        self.all_idle().map(|(_, bundle, _)| bundle.length()).sum()
    }
}

/// A bundle on disk. Its file goes with the last who has it.
pub(super) struct StoredBundle {
    sha256: String,
    file: File,
    space: Space,
}

/// Bytes of the disk, until it is dropped.
struct Space {
    bytes: u64,
    taken: Arc<AtomicU64>,
}

impl Drop for Space {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Shelf {
    /// An empty one.
    pub(super) fn new(directory: PathBuf, max_bytes: u64) -> Self {
        Self { directory, max_bytes, taken: Arc::default(), bundles: Mutex::default() }
    }

    /// The bundle with this digest, if it is there.
    pub(super) fn get(&self, sha256: &str) -> Option<Arc<StoredBundle>> {
        self.bundles.lock().get(sha256)
    }

    /// Writes a bundle, unless it is there. Those that nobody reads make room.
    ///
    /// # Errors
    /// When there is not room enough, or the disk fails. Both may pass.
    pub(super) async fn put(&self, content: &Content) -> Result<Arc<StoredBundle>, BundleError> {
        if let Some(bundle) = self.get(&content.sha256) {
            return Ok(bundle);
        }
        let space = self.take(content.bytes.len() as u64)?;
        let (directory, bytes, sha256) = (self.directory.clone(), content.bytes.clone(), content.sha256.clone());
        let stored = spawn_blocking(move || {
            let file = write(&directory, &bytes).map_err(|error| {
                BundleError::transient("BundleNotStored", format!("a bundle cannot be written to be served: {error}"))
            })?;
            Ok(Arc::new(StoredBundle { sha256, file, space }))
        });
        let bundle = stored.await.map_err(|error| BundleError::unread(&error))??;
        let mut bundles = self.bundles.lock();
        if let Some(other) = bundles.get(&content.sha256) {
            return Ok(other);
        }
        let asked = bundles.clock;
        bundles.by_digest.insert(content.sha256.clone(), (Arc::clone(&bundle), asked));
        Ok(bundle)
    }

    /// Takes space, of bundles that nobody reads if need be. They stay if they would not be enough.
    fn take(&self, bytes: u64) -> Result<Space, BundleError> {
        let max_bytes = self.max_bytes;
        let in_use = || {
            let message = format!("all {max_bytes} bytes for bundles that are served are in use");
            BundleError::transient("BundleNotStored", message)
        };
        let mut bundles = self.bundles.lock();
        // Only here more is taken, and given to somebody to read, one after the other; elsewhere it gets less.
        let taken = self.taken.load(Ordering::Acquire);
        if taken.saturating_sub(bundles.idle_bytes()).saturating_add(bytes) > max_bytes {
            return Err(in_use());
        }
        while self.taken.load(Ordering::Acquire).saturating_add(bytes) > max_bytes {
            let idle = bundles.idle().ok_or_else(in_use)?;
            bundles.by_digest.remove(&idle);
        }
        self.taken.fetch_add(bytes, Ordering::AcqRel);
        Ok(Space { bytes, taken: Arc::clone(&self.taken) })
    }
}

fn write(directory: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(bytes)?;
    Ok(file)
}

impl StoredBundle {
    /// SHA-256, lower-case hexadecimal.
    pub(super) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The number of bytes.
    pub(super) fn length(&self) -> u64 {
        self.space.bytes
    }

    /// The bytes, read as they are asked for. The bundle, and what is `held`, stay at least as long as the reader.
    pub(super) fn read<H: Send + 'static>(self: Arc<Self>, held: H) -> impl AsyncRead + Send + 'static {
        StreamReader::new(Box::pin(try_unfold((0, held), move |(at, held)| {
            let bundle = Arc::clone(&self);
            async move {
                let length = PIECE.min(bundle.length() - at);
                if length == 0 {
                    return Ok(None);
                }
                let piece = spawn_blocking(move || bundle.piece(at, length)).await.map_err(io::Error::other)??;
                Ok::<_, io::Error>(Some((piece, (at + length, held))))
            }
        })))
    }

    fn piece(&self, at: u64, length: u64) -> io::Result<Bytes> {
        let mut piece = vec![0; usize::try_from(length).unwrap_or_default()];
        self.file.read_exact_at(&mut piece, at)?;
        Ok(piece.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::place::Place;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    async fn content(byte: u8, length: usize) -> Content {
        Content::of(vec![byte; length].into(), &Place::new(())).await.unwrap()
    }

    async fn bytes(bundle: Arc<StoredBundle>) -> Vec<u8> {
        let mut bytes = Vec::new();
        bundle.read(()).read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn what_nobody_reads_makes_room_the_longest_unused_first() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(directory.path().to_owned(), 250_000);
        let (a, b, c) = (content(1, 100_000).await, content(2, 100_000).await, content(3, 100_000).await);
        for bundle in [&a, &b] {
            assert_eq!(bytes(shelf.put(bundle).await.unwrap()).await, bundle.bytes);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files have no names");
        drop(shelf.get(&a.sha256));
        let third = shelf.put(&c).await.unwrap();
        assert!(shelf.get(&b.sha256).is_none() && shelf.get(&a.sha256).is_some(), "b was not asked for longest");
        let first = shelf.get(&a.sha256).unwrap();
        let reader = third.read(());
        let error = shelf.put(&b).await.err().unwrap();
        assert_eq!((error.reason(), error.is_transient()), ("BundleNotStored", true), "both are in use");
        drop(reader);
        assert_eq!(bytes(shelf.put(&b).await.unwrap()).await, b.bytes);
        assert!(shelf.get(&c.sha256).is_none());
        let still_read = Arc::clone(&first);
        assert_eq!(bytes(first).await, a.bytes);
        assert_eq!(shelf.taken.load(Ordering::Acquire), 200_000);
        for (length, why) in [(250_001, "larger than everything"), (150_001, "larger than what is not read")] {
            assert!(shelf.put(&content(4, length).await).await.is_err(), "{why}");
            assert!(shelf.get(&b.sha256).is_some(), "{why}: what nobody reads stays if it is not enough");
        }
        assert_eq!(bytes(shelf.put(&content(4, 150_000).await).await.unwrap()).await.len(), 150_000);
        assert!(shelf.get(&b.sha256).is_none());
        assert_eq!(bytes(still_read).await, a.bytes);
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_takes_no_space() {
        let shelf = Shelf::new("/nowhere".into(), 100);
        let error = shelf.put(&content(1, 10).await).await.err().unwrap();
        assert_eq!(error.reason(), "BundleNotStored");
        assert_eq!(shelf.taken.load(Ordering::Acquire), 0);
    }

    proptest! {
        #[test]
        fn the_disk_has_a_bound_and_what_is_read_stays(
            steps in prop::collection::vec((0_u8..6, 0_usize..40, any::<bool>()), 1..40)
        ) {
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
                let directory = tempfile::tempdir().unwrap();
                let shelf = Shelf::new(directory.path().to_owned(), 100);
                let mut read = Vec::new();
                for (byte, length, keeps) in steps {
                    let content = content(byte, length).await;
                    if let Ok(bundle) = shelf.put(&content).await {
                        assert_eq!(bytes(Arc::clone(&bundle)).await, content.bytes);
                        if keeps {
                            read.push((bundle, content));
                        }
                    } else {
                        read.drain(..read.len() / 2);
                    }
                    assert!(shelf.taken.load(Ordering::Acquire) <= 100);
                    for (bundle, content) in &read {
                        assert_eq!(bytes(Arc::clone(bundle)).await, content.bytes);
                    }
                }
                drop((read, shelf.bundles.into_inner()));
                assert_eq!(shelf.taken.load(Ordering::Acquire), 0);
            });
        }
    }
}
