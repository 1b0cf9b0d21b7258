//! What holds for every application, over generated ones: small ones of our own making, and those of the corpus'
//! generator where the corpus and `python3` are there (without them the test says so and passes).
//!
//! * [`documents`]: the files of every step of a chain are sound (each operator in one PE, connections and PE ports
//!   symmetric, ids unique, the context says the same as the documents; see `streams_test_support::documents::sound`),
//!   and another process writes the same bytes.
//! * [`checks`]: whatever is wrong with a document, a check says first what a submission says.
//! * [`promises`]: the same plan and texts on every thread, warm or cold; a layout gives the same texts again; a resize
//!   goes back to where it came from.
//!
//! `PROPTEST_CASES=500` tries more than the few of a plain run.

mod checks;
mod documents;
mod promises;

use clap::Parser;
use fusion_service::command::application::{Application, ApplicationArguments};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use streams_test_support::application::Sketch;
use streams_test_support::table::say;
use streams_test_support::{corpus, generated, property_cases};

/// A folder with `app.adl` and `request.json`.
struct Case {
    folder: tempfile::TempDir,
}

#[derive(Parser)]
struct Tool {
    #[command(flatten)]
    application: ApplicationArguments,
}

impl Case {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A small application of our own.
    fn small(sketch: &Sketch, manual: u32, resizes: &[(prop::sample::Index, i64)]) -> Self {
        let case = Self { folder: tempfile::tempdir().unwrap() };
        let regions: Vec<&str> = sketch.regions().collect();
        let resizes: Vec<Value> = (resizes.iter().filter(|_| !regions.is_empty()))
            .map(|(which, width)| json!({ "region": regions[which.index(regions.len())], "width": width }))
            .collect();
        let fusion = if manual == 0 { json!("legacy") } else { json!({ "manual": manual }) };
        let request = json!({ "jobName": "job", "jobId": 7, "fusion": fusion, "resizes": resizes });
        std::fs::write(case.path("app.adl"), sketch.adl()).unwrap();
        std::fs::write(case.path("request.json"), request.to_string()).unwrap();
        case
    }

    /// One of the corpus' generator, which is a function of the seed.
    fn generated(generator: &Path, seed: u32, profile: &str) -> Self {
        let case = Self { folder: tempfile::tempdir().unwrap() };
        let mut python = Command::new("python3");
        python
            .arg(generator)
            .args(["--seed", &seed.to_string(), "--profile", profile, "--out"])
            .arg(case.folder.path());
        let output = python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        case
    }

    fn read(&self) -> Application {
        let tool = ["tool".into(), self.path("app.adl"), "--request".into(), self.path("request.json")];
        Tool::parse_from(tool).application.read().unwrap()
    }

    /// Runs the command `plan`; whether every step gave a plan.
    fn plan(&self, out: &str) -> Result<bool, String> {
        let mut command = Command::new(super::PROGRAM);
        command.arg("plan").arg("--adl").arg(self.path("app.adl")).arg("--request").arg(self.path("request.json"));
        let output = command.arg("--out").arg(self.path(out)).output().unwrap();
        match output.status.code() {
            Some(status @ (0 | 3)) if output.stderr.is_empty() => Ok(status == 0),
            status => Err(format!("exit status {status:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

/// The generator of the corpus, if it can run.
fn generator() -> Option<PathBuf> {
    let generator = corpus::folder().join("gen_adl.py");
    let python = || Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if generator.is_file() && python() {
        return Some(generator);
    }
    say(&format!("\nno python3, or no {}: only small applications are generated\n", generator.display()));
    None
}

fn resizes() -> impl Strategy<Value = Vec<(prop::sample::Index, i64)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 1..5_i64), 0..4)
}

proptest! {
    #![proptest_config(property_cases(16))]

    #[test]
    fn small_applications(sketch in generated::rows(), manual in 0..5_u32, resizes in resizes()) {
        let case = Case::small(&sketch, manual, &resizes);
        prop_assert_eq!(case.plan("first"), Ok(true), "valid by construction");
        documents::hold(&case)?;
        promises::hold(&case.read())?;
    }
}

proptest! {
    #![proptest_config(property_cases(400))]

    #[test]
    fn a_check_says_what_a_submission_says(
        sketch in generated::rows(),
        manual in -1..3_i128,
        changes in prop::collection::vec(checks::change(), 0..4),
    ) {
        checks::hold(&sketch, manual, &changes)?;
    }
}

#[test]
fn applications_of_the_generator() {
    let Some(generator) = generator() else { return };
    let profiles = select(vec!["small", "small", "medium", "deep", "cr", "v4000"]);
    let mut runner = proptest::test_runner::TestRunner::new(property_cases(10));
    let outcome = runner.run(&(0..10_000_000_u32, profiles), |(seed, profile)| {
        let case = Case::generated(&generator, seed, profile);
        case.plan("first").map_err(TestCaseError::fail)?;
        documents::hold(&case)?;
        promises::hold(&case.read())
    });
    outcome.unwrap();
}

/// Its pools are copied for channels of a region inside another, whose numbers change with the width.
#[test]
fn copies_of_host_pools_come_back() {
    let Some(generator) = generator() else { return };
    promises::hold(&Case::generated(&generator, 7_010_795, "medium").read()).unwrap();
}
