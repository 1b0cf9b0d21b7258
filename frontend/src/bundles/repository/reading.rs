//! How much of the disk for bundles a namespace keeps from others, because its PEs read it (rule repository-10).
//!
//! A bundle that somebody reads stays on the disk, and a client may read as slowly as it is permitted. So a namespace
//! with many large bundles and slow clients would leave no room to the bundles of others.
//!
//! Knows: namespaces, digests, bytes. Must not know: files, clients.
//!
//! Invariants: bundles that are read for one namespace have a quarter of the disk together, or are one. A bundle counts
//! once for a namespace, however many read it. Nothing is kept of a namespace for which nothing is read.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The part of the disk that a namespace may keep is one of so many.
const PARTS: u64 = 4;

/// Bundles that are read, by namespace and digest.
type Read = HashMap<String, HashMap<String, Readers>>;

/// Those who read a bundle of so many bytes.
struct Readers {
    bytes: u64,
    count: usize,
}

/// Counts what is read for whom. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Reading {
    most_of_one: u64,
    read: Arc<Mutex<Read>>,
}

/// Somebody reads a bundle, until this is dropped.
pub(super) struct Reader {
    namespace: String,
    sha256: String,
    read: Arc<Mutex<Read>>,
}

/// Other bundles that are read for the namespace take its part of the disk.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes of other bundles are being sent to PEs of this namespace")]
pub(super) struct TooMuch(u64);

impl Reading {
    /// From a disk of so many bytes.
    pub(super) fn new(disk_bytes: u64) -> Self {
        Self { most_of_one: disk_bytes / PARTS, read: Arc::default() }
    }

    /// Somebody begins to read a bundle for this namespace.
    ///
    /// # Errors
    /// With this one the namespace would keep too much. It passes.
    pub(super) fn begin(&self, namespace: &str, sha256: &str, bytes: u64) -> Result<Reader, TooMuch> {
        let mut read = self.read.lock();
        let bundles = read.get(namespace);
        if bundles.is_none_or(|bundles| !bundles.contains_key(sha256)) {
            let others = bundles.map_or(0, |bundles| bundles.values().map(|readers| readers.bytes).sum());
            if others > 0 && others.saturating_add(bytes) > self.most_of_one {
                return Err(TooMuch(others));
            }
        }
        let bundles = read.entry(namespace.to_owned()).or_default();
        bundles.entry(sha256.to_owned()).or_insert(Readers { bytes, count: 0 }).count += 1;
        Ok(Reader { namespace: namespace.to_owned(), sha256: sha256.to_owned(), read: Arc::clone(&self.read) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut read = self.read.lock();
        let Some(bundles) = read.get_mut(&self.namespace) else { return };
        if let Some(readers) = bundles.get_mut(&self.sha256) {
            readers.count -= 1;
            if readers.count == 0 {
                bundles.remove(&self.sha256);
            }
        }
        if bundles.is_empty() {
            read.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_keeps_a_quarter_of_the_disk_or_one_bundle() {
        // bytes of bundles that are read for a namespace, and of one more -> whether it may be read
        let table: [(&[u64], u64, bool); 6] = [
            (&[], 25, true),
            (&[], 90, true),
            (&[10], 15, true),
            (&[10], 16, false),
            (&[90], 1, false),
            (&[5, 10], 10, true),
        ];
        for (read, more, expected) in table {
            let reading = Reading::new(100);
            let begin = |number: usize, bytes| reading.begin("a", &format!("digest {number}"), bytes);
            let readers: Vec<_> =
                read.iter().enumerate().map(|(number, bytes)| begin(number, *bytes).unwrap()).collect();
            assert_eq!(begin(read.len(), more).is_ok(), expected, "{read:?} {more}");
            assert!(reading.begin("b", "digest", more).is_ok(), "another namespace has its own part");
            drop(readers);
            assert!(begin(read.len(), more).is_ok());
            assert!(reading.read.lock().is_empty(), "nothing is kept");
        }
    }

    #[test]
    fn a_bundle_counts_once_until_the_last_reader_is_gone() {
        let reading = Reading::new(100);
        let readers = [(); 3].map(|()| reading.begin("a", "one", 20).unwrap());
        assert_eq!(reading.begin("a", "two", 10).err(), Some(TooMuch(20)));
        let [first, rest @ ..] = readers;
        drop(rest);
        assert!(reading.begin("a", "two", 10).is_err());
        drop(first);
        assert!(reading.begin("a", "two", 10).is_ok());
    }
}
