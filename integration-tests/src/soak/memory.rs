//! The memory that the services take during a run.

use std::collections::BTreeMap;
use streams_control_plane::process::Process;

/// Resident memory of one process, in KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// When it was looked at first.
    pub first: u64,
    /// When it was looked at last.
    pub last: u64,
    /// The most that was seen.
    pub most: u64,
    /// Process ids seen, the newest last: it was killed and started again in between.
    ids: Vec<u32>,
}

impl Resident {
    /// How often it was started.
    pub fn starts(&self) -> usize {
        self.ids.len()
    }
}

/// Resident memory by the name of the process.
#[derive(Debug, Clone, Default)]
pub struct Memory(BTreeMap<String, Resident>);

impl Memory {
    /// Looks at a process. One that does not run is passed over.
    pub fn look(&mut self, process: &Process) {
        if let Some(id) = process.id()
            && let Some(kib) = resident(id)
        {
            self.add(process.name(), id, kib);
        }
    }

    fn add(&mut self, name: &str, id: u32, kib: u64) {
        let of =
            self.0.entry(name.to_owned()).or_insert_with(|| Resident { first: kib, last: kib, most: kib, ids: vec![] });
        of.last = kib;
        of.most = of.most.max(kib);
        if of.ids.last() != Some(&id) {
            of.ids.push(id);
        }
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Resident)> {
        self.0.iter().map(|(name, resident)| (name.as_str(), resident))
    }
}

/// Resident memory of a process, in bytes, and of what it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) all: u64,
    /// What the process has written, its heap above all.
    pub(super) anonymous: u64,
    /// Pages of files, of the program itself above all: the system may drop them.
    pub(super) files: u64,
}

/// Resident memory of a process and its parts, where the system says so.
pub(super) fn parts(id: u32) -> Option<Parts> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let bytes = |name| figure(&status, name).map(|kib| kib * 1024);
    Some(Parts { all: bytes("VmRSS:")?, anonymous: bytes("RssAnon:")?, files: bytes("RssFile:")? })
}

/// `VmRSS` of a process in KiB, where the system says so.
pub(super) fn resident(id: u32) -> Option<u64> {
    status(id, "VmRSS:")
}

/// `VmHWM` of a process in KiB, where the system says so: the most that was ever resident.
pub(super) fn most_resident(id: u32) -> Option<u64> {
    status(id, "VmHWM:")
}

fn status(id: u32, name: &str) -> Option<u64> {
    figure(&std::fs::read_to_string(format!("/proc/{id}/status")).ok()?, name)
}

fn figure(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Memory, most_resident, parts, resident};

    #[test]
    fn first_last_most_and_starts_are_kept_apart() {
        let mut memory = Memory::default();
        for (id, kib) in [(7, 10), (7, 30), (8, 20), (8, 25)] {
            memory.add("frontend-0", id, kib);
        }
        let shown: Vec<_> = memory.all().map(|(name, of)| (name, of.first, of.last, of.most, of.starts())).collect();
        assert_eq!(shown, [("frontend-0", 10, 25, 30, 2)]);
    }

    #[test]
    fn the_system_says_how_much_this_process_takes() {
        let now = resident(std::process::id()).unwrap();
        let most = most_resident(std::process::id()).unwrap();
        assert!(now > 100 && most > 100, "{now} {most}");
        let parts = parts(std::process::id()).unwrap();
        assert!(parts.anonymous > 0 && parts.files > 0 && parts.anonymous + parts.files <= parts.all, "{parts:?}");
    }
}
