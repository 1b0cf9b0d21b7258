//! The program's own examples: the files of every step, byte for byte.
//!
//! Texts are canonical, so any difference is a change that users see: PEs would restart. `UPDATE_GOLDEN=1` writes the
//! files anew; look at the difference before committing it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fusion-service"))
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
    let expected = case.join("expected");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let _ = std::fs::remove_dir_all(&expected);
        for (name, text) in files(out.path()) {
            let path = expected.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        return;
    }
    let (was, is) = (files(&expected), files(out.path()));
    assert_eq!(was.keys().collect::<Vec<_>>(), is.keys().collect::<Vec<_>>(), "other files");
    for (name, was) in &was {
        let is = &is[name];
        let at = was.bytes().zip(is.bytes()).take_while(|(a, b)| a == b).count();
        let around = |text: &str| text.chars().skip(at.saturating_sub(60)).take(160).collect::<String>();
        assert!(was == is, "{}: at byte {at}\n  was ...{}\n  is  ...{}", name.display(), around(was), around(is));
    }
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
