//! The files of a chain: sound, and the same from another process.

use super::Case;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use streams_test_support::documents::sound;

/// Checks what `plan` wrote into `first`.
pub(crate) fn hold(case: &Case) -> Result<(), TestCaseError> {
    let first = files(&case.path("first"));
    let steps = (0..).map(|step| case.path(&format!("first/step-{step}"))).take_while(|folder| folder.is_dir());
    for folder in steps.filter(|folder| !folder.join("error.json").exists()) {
        let problems = sound::problems(&folder);
        prop_assert!(problems.is_empty(), "{}: {}", folder.display(), problems.join("; "));
    }
    case.plan("second").map_err(TestCaseError::fail)?;
    let second = files(&case.path("second"));
    prop_assert!(first.keys().eq(second.keys()), "another process writes other files");
    let differing: Vec<&PathBuf> = first.keys().filter(|name| first[*name] != second[*name]).collect();
    prop_assert!(differing.is_empty(), "another process writes other bytes: {:?}", differing);
    Ok(())
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for step in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(step.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(&path).unwrap());
        }
    }
    found
}
