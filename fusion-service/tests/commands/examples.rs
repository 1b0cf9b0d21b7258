//! `fusion-service plan` on the examples of this project: the files of every step, byte for byte.
//!
//! Texts are canonical, so any difference is a change that users see: PEs would restart.

use super::program;
use expect_test::expect_file;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&at) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

fn check(name: &str, status: i32) {
    let case = super::folder().join("golden").join(name);
    let out = tempfile::tempdir().unwrap();
    let output = program()
        .args(["plan", "--adl"])
        .arg(case.join("app.adl"))
        .arg("--request")
        .arg(case.join("request.json"))
        .arg("--out")
        .arg(out.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(status));
    let recorded = case.join("expected");
    let written = files(out.path());
    for (name, text) in &written {
        let path = recorded.join(name);
        // For a step that has not been recorded before.
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        expect_file![path].assert_eq(text);
    }
    let left: Vec<PathBuf> = files(&recorded).into_keys().filter(|name| !written.contains_key(name)).collect();
    assert!(left.is_empty(), "recorded, but not written any more; delete {left:?}");
}

/// Most of the language in one application: nested types, pools, hash splitters, submission-time values, consistent
/// regions, views; a refused resize in the middle of the chain.
#[test]
fn orders() {
    check("orders", 3);
}

/// Imports and exports in a parallel region.
#[test]
fn feeds() {
    check("feeds", 0);
}
