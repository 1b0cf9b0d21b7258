//! The conformance corpus: results of the reference implementation.
//!
//! Where it is not found, tests say so and pass.

use std::io::Read;
use std::path::{Path, PathBuf};
use tar::Archive;
use zstd::Decoder;

/// Where the corpus is: `STREAMS_CORPUS`, or beside the checkout. It need not be there.
pub fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    std::env::var_os("STREAMS_CORPUS").map_or(beside, PathBuf::from)
}

/// The folder of large applications, if it is there.
pub fn benchmarks() -> Option<PathBuf> {
    Some(folder().join("bench")).filter(|bench| bench.is_dir())
}

/// The archive of the cases, if it is there.
pub fn cases() -> Option<Cases> {
    let archive = folder().join("cases.tar.zst");
    archive.is_file().then_some(Cases { archive })
}

/// The archive of the cases. A case is a folder with `app.adl`, `request.json`, `meta.json` and the expected files of
/// every step.
#[derive(Debug)]
pub struct Cases {
    archive: PathBuf,
}

impl Cases {
    fn open(&self) -> Archive<impl Read> {
        let mut decoder = Decoder::new(std::fs::File::open(&self.archive).unwrap()).unwrap();
        // The archive was compressed with a long window.
        decoder.window_log_max(31).unwrap();
        Archive::new(decoder)
    }

    /// Unpacks them into the folder `to`, and gives the folder of each, sorted.
    pub fn unpack(&self, to: &Path) -> Vec<PathBuf> {
        self.open().unpack(to).unwrap();
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

    /// The ADL documents of all cases, in the order of their paths.
    pub fn documents(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for entry in self.open().entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            if path.extension().is_some_and(|extension| extension == "adl") {
                let mut document = Vec::new();
                entry.read_to_end(&mut document).unwrap();
                found.push((path, document));
            }
        }
        found.sort();
        found.into_iter().map(|(_, document)| document).collect()
    }
}
