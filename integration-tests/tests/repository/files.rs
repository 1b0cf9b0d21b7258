//! The text files of the repository.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use walkdir::{DirEntry, WalkDir};

/// Endings of files that are read.
const ENDINGS: [&str; 5] = ["rs", "proto", "toml", "yaml", "md"];

/// A text file.
pub(crate) struct File {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn ending(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// Where something is, for people.
    pub(crate) fn place(&self, line: usize) -> Place {
        Place { path: self.path.clone(), line }
    }
}

/// `file:line`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All text files, by path. Folders that a build makes, and those of git, are left out.
pub(crate) fn read() -> &'static [File] {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(read_all);
    &FILES
}

fn read_all() -> Vec<File> {
    let root = root();
    let entries = WalkDir::new(&root).sort_by_file_name().into_iter().filter_entry(|entry| !is_left_out(entry));
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.unwrap();
        let ending = entry.path().extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if entry.file_type().is_file() && ENDINGS.contains(&ending) {
            let path = entry.path().strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
            files.push(File { path, text: std::fs::read_to_string(entry.path()).unwrap() });
        }
    }
    assert!(files.len() > 100, "only {} files in {}", files.len(), root.display());
    files
}

fn is_left_out(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_str().unwrap_or_default();
    entry.depth() > 0
        && entry.file_type().is_dir()
        && (name == ".git" || name == "target" || name.starts_with("target-"))
}

/// The line of a position in a text, from 1.
pub(crate) fn line_at(text: &str, position: usize) -> usize {
    text.as_bytes()[..position].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Fails with every problem, one a line, and what they have in common.
#[track_caller]
pub(crate) fn assert_none(what: &str, mut problems: Vec<String>) {
    problems.sort();
    assert!(problems.is_empty(), "{what}: {}\n{}\n", problems.len(), problems.join("\n"));
}

#[test]
fn lines_count_from_one() {
    for (position, line) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        assert_eq!(line_at("a\n\nb", position), line);
    }
}
