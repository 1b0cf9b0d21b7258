//! The targets as tests: with the seeds of each, and with every input that ever found something (`regressions/TARGET`).
//!
//! `FUZZ_CORPUS=fuzz/corpus cargo test -p streams-fuzzing seeds` writes the seeds into folders, for `cargo fuzz run`.

mod seeds;

use super::TARGETS;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs them all, and tells which failed.
fn run(inputs: impl Iterator<Item = (&'static str, fn(&[u8]), String, Vec<u8>)>) {
    let mut failed = Vec::new();
    for (target, run, name, input) in inputs {
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            failed.push(format!("{target}/{name}"));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn seeds() {
    let seeds = seeds::all();
    if let Some(folder) = std::env::var_os("FUZZ_CORPUS") {
        // Relative to where the command was given, not to this package.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        for (target, seeds) in &seeds {
            std::fs::create_dir_all(folder.join(target)).unwrap();
            for (name, input) in seeds {
                std::fs::write(folder.join(target).join(name), input).unwrap();
            }
        }
    }
    run(seeds.into_iter().flat_map(|(target, seeds)| {
        let (_, run) = *TARGETS.iter().find(|(name, _)| *name == target).unwrap();
        seeds.into_iter().map(move |(name, input)| (target, run, name, input))
    }));
}

#[test]
fn inputs_that_found_something() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    run(TARGETS.into_iter().flat_map(|(target, run)| {
        let entries = std::fs::read_dir(folder.join(target)).into_iter().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.into_iter().map(move |path| {
            (target, run, path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
        })
    }));
}
