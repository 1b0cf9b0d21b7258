//! Checkpoints of a PE, as files: `<directory>/<job>-<PE>/region-<index>/<sequence number>.json`.

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::PathBuf;

/// The checkpoints of one PE.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints(PathBuf);

impl Checkpoints {
    /// Those of the PE called `<job>-<PE>`.
    pub(crate) fn new(directory: PathBuf, pe: &str) -> Self {
        Self(directory.join(pe))
    }

    fn region(&self, region: u32) -> PathBuf {
        self.0.join(format!("region-{region}"))
    }

    /// Writes one, whole or not at all.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn write(&self, region: u32, seq: u64, state: &impl Serialize) -> Result<()> {
        let directory = self.region(region);
        let (part, whole) = (directory.join(format!("{seq}.part")), directory.join(format!("{seq}.json")));
        let written = || {
            fs::create_dir_all(&directory)?;
            fs::write(&part, serde_json::to_vec(state)?)?;
            fs::rename(&part, &whole)
        };
        written().with_context(|| format!("cannot write the checkpoint {}", whole.display()))
    }

    /// Reads one.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    pub(crate) fn read<T: DeserializeOwned>(&self, region: u32, seq: u64) -> Result<T> {
        let path = self.region(region).join(format!("{seq}.json"));
        let bytes = fs::read(&path).with_context(|| format!("there is no checkpoint {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("{} is no checkpoint", path.display()))
    }

    /// Sequence numbers of those that are there, ascending.
    pub(crate) fn kept(&self, region: u32) -> Vec<u64> {
        let entries = fs::read_dir(self.region(region)).into_iter().flatten().flatten();
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok();
        let mut kept: Vec<u64> = entries.filter_map(name).collect();
        kept.sort_unstable();
        kept
    }

    /// Removes one, if it is there.
    pub(crate) fn remove(&self, region: u32, seq: u64) {
        // What is left over is of no use and does no harm.
        let _ = fs::remove_file(self.region(region).join(format!("{seq}.json")));
    }
}
