//! The cases of the conformance corpus.

use std::path::{Path, PathBuf};

/// Where the corpus is: `STREAMS_CORPUS`, or beside the checkout.
pub(crate) fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    std::env::var_os("STREAMS_CORPUS").map_or(beside, PathBuf::from)
}

/// Folders of the cases, unpacked.
pub(crate) fn unpack(archive: &Path, to: &Path) -> Vec<PathBuf> {
    let file = std::fs::File::open(archive).unwrap();
    let mut decoder = zstd::Decoder::new(file).unwrap();
    decoder.window_log_max(31).unwrap();
    tar::Archive::new(decoder).unpack(to).unwrap();
    let mut found = Vec::new();
    let mut open = vec![to.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.join("meta.json").is_file() {
                found.push(path);
            } else if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}
