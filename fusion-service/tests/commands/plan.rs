//! The contract of `fusion-service plan` towards scripts: exit status, standard error, files, input that is not what it
//! should be.

use super::program;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Output;
use tempfile::TempDir;

fn golden(name: &str) -> PathBuf {
    super::folder().join("golden").join(name)
}

/// A folder with an application and a request.
struct Work {
    folder: TempDir,
}

impl Work {
    fn new() -> Self {
        let work = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::copy(golden("feeds/app.adl"), work.path("app.adl")).unwrap();
        work.write("request.json", request(json!({})));
        work
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn run(&self, more: &[&str]) -> Output {
        let mut command = program();
        command.arg("plan").arg("--adl").arg(self.path("app.adl")).arg("--request").arg(self.path("request.json"));
        command.arg("--out").arg(self.path("out")).args(more).current_dir(self.folder.path());
        command.output().unwrap()
    }

    /// The error that step 0 ends in.
    fn refused(&self) -> Value {
        let output = self.run(&[]);
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty());
        let step = self.path("out/step-0");
        assert_eq!(std::fs::read_dir(&step).unwrap().count(), 1, "error.json alone");
        assert!(!self.path("out/step-1").exists());
        let text = std::fs::read_to_string(step.join("error.json")).unwrap();
        assert!(text.len() < 64 << 10);
        let error: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(error["kind"], "user-error");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty() && message.len() < 2000));
        error
    }
}

/// A request with other values for some keys.
fn request(changes: Value) -> String {
    let mut request = json!({"jobName": "j", "jobId": 1, "fusion": "legacy"});
    for (key, value) in changes.as_object().unwrap() {
        request[key] = value.clone();
    }
    request.to_string()
}

/// Exit status 2 goes with one line that names what is wrong.
fn failed(output: &Output, names: &[&str]) {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.starts_with("error: ") && errors.trim_end().lines().count() == 1, "{errors:?}");
    for name in names {
        assert!(errors.contains(name), "{errors:?} does not name {name}");
    }
}

#[test]
fn a_plan_replaces_what_was_there() {
    let work = Work::new();
    work.write("request.json", request(json!({"fusion": {"manual": 1}, "resizes": [{"region": "Lane", "width": 4}]})));
    for _ in 0..2 {
        std::fs::create_dir_all(work.path("out/step-0")).unwrap();
        work.write("out/step-0/error.json", "{}");
        work.write("out/step-0/pe-77.aadl.xml", "<old/>");
        work.write("out/step-0/notes.txt", "mine");
        let output = work.run(&[]);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty());
        let names = |step: &str| -> Vec<String> {
            let entries = std::fs::read_dir(work.path(step)).unwrap();
            let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names("out/step-0"), ["context.json", "notes.txt", "pe-0.aadl.xml"]);
        assert!(names("out/step-1").contains(&"context.json".to_owned()));
    }
}

#[test]
fn a_closed_pe_takes_nothing_new() {
    let work = Work::new();
    let resizes = json!([{"region": "Lane", "width": 5}, {"region": "Lane", "width": 9}]);
    work.write("request.json", request(json!({"fusion": {"manual": 2}, "resizes": resizes})));
    let operators = |step: u32, pe: u64| -> Value {
        let context = std::fs::read(work.path(&format!("out/step-{step}/context.json"))).unwrap();
        let context: Value = serde_json::from_slice(&context).unwrap();
        let pes = context["pes"].as_array().unwrap();
        pes.iter().find(|element| element["id"] == pe).unwrap()["operators"].clone()
    };
    for (closed, policy) in [(0_u64, "sticky"), (1, "sticky"), (0, "rebalance"), (1, "rebalance")] {
        let id = closed.to_string();
        let output = work.run(&["--policy", policy, "--closed-pe", &id, "--closed-pe", "77"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        for step in [1, 2] {
            assert_eq!(operators(step, closed), operators(0, closed), "PE {closed}, {policy}, step {step}");
        }
    }
    assert_eq!(work.run(&[]).status.code(), Some(0));
    assert!([0, 1].iter().any(|pe| operators(1, *pe) != operators(0, *pe)), "one of two takes what is new");
    failed(&work.run(&["--closed-pe", "first"]), &["--closed-pe"]);
}

#[test]
fn a_refused_resize_does_not_end_the_chain() {
    let work = Work::new();
    let resizes = json!([
        {"region": "Lane", "width": 0},
        {"region": "Nothing", "width": 3},
        {"region": "Lane", "width": 3},
    ]);
    work.write("request.json", request(json!({"resizes": resizes})));
    assert_eq!(work.run(&[]).status.code(), Some(3));
    let read = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(work.path(name)).unwrap()).unwrap() };
    assert_eq!(read("out/step-1/error.json")["code"], "CDISR1164E");
    assert_eq!(read("out/step-2/error.json")["stage"], "transfer");
    let context = read("out/step-3/context.json");
    assert_eq!(context["parallelRegionWidths"]["Lane"], 3);
    assert_eq!(context["addedOperators"], json!(["Lane[2].Clean", "Lane[2].Tag"]));
}

#[test]
fn a_replay_writes_into_the_folder_itself() {
    let work = Work::new();
    let input = json!({
        "region": "Lane", "width": 3, "priorWidths": {"Lane": 2, "Gone": 5}, "currentWidths": {"Lane": 3},
        "previousPes": {"4": ["Lane[0].Clean"], "18446744073709551614": ["x"]},
    });
    work.write("input.json", input.to_string());
    let output = work.run(&["--replay", "input.json"]);
    // There is one id left above those of the previous PEs, and five PEs need one.
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let error: Value = serde_json::from_slice(&std::fs::read(work.path("out/error.json")).unwrap()).unwrap();
    assert_eq!(error["stage"], "fuse");

    let input = json!({"region": "Lane", "priorWidths": {"Lane": 2}, "currentWidths": {"Lane": 3}, "previousPes": {}});
    work.write("input.json", input.to_string());
    assert_eq!(work.run(&["--replay", "input.json"]).status.code(), Some(0));
    assert!(work.path("out/context.json").exists() && !work.path("out/error.json").exists());
    assert!(work.path("out/pe-5.aadl.xml").exists());
}

#[test]
fn arguments_and_files() {
    let work = Work::new();
    let program = || program();
    for arguments in [&[][..], &["plan"], &["plan", "--adl"], &["plam"], &["plan", "--adl", "a", "--nonsense"]] {
        failed(&program().args(arguments).output().unwrap(), &[]);
    }
    failed(&work.run(&["--policy", "none"]), &["--policy"]);
    failed(&work.run(&["--replay", "nowhere.json"]), &["nowhere.json"]);
    // A replay says itself where everything is.
    for unused in [["--policy", "rebalance"], ["--closed-pe", "0"]] {
        failed(&work.run(&["--replay", "nowhere.json", unused[0], unused[1]]), &[unused[0]]);
    }
    let help = program().args(["plan", "--help"]).output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("Examples:"));

    std::fs::remove_file(work.path("app.adl")).unwrap();
    failed(&work.run(&[]), &["app.adl"]);
    std::fs::create_dir(work.path("app.adl")).unwrap();
    failed(&work.run(&[]), &["app.adl"]);
    let work = Work::new();
    work.write("out", "a file");
    failed(&work.run(&[]), &["out"]);
}

#[test]
fn inputs_without_the_form() {
    let work = Work::new();
    let long = "x".repeat((1 << 20) + 1);
    let deep = "[".repeat(100_000);
    let inputs = [
        "".to_owned(),
        "{".to_owned(),
        "null".to_owned(),
        request(json!({"jobName": null})),
        request(json!({"jobName": "n".repeat(254)})),
        request(json!({"jobId": "1"})),
        request(json!({"fusion": {"manual": 1.5}})),
        request(json!({"fusion": ["legacy"]})),
        request(json!({"config": {"tracing": {}}})),
        request(json!({"submissionTimeValues": {"a": long}})),
        request(json!({"resizes": {}})),
        format!(r#"{{"jobName":"j","jobId":1,"fusion":"legacy","other":{deep}"#),
        "\u{feff}{}".to_owned(),
    ];
    for input in &inputs {
        work.write("request.json", input);
        failed(&work.run(&[]), &["request.json:"]);
    }
    work.write("request.json", b"{\"jobName\": \"\xff\"}");
    failed(&work.run(&[]), &["request.json:1:"]);

    work.write("request.json", request(json!({})));
    let whole = json!({"region": "Lane", "priorWidths": {}, "currentWidths": {}, "previousPes": {}});
    for (key, value) in [
        ("region", json!(1)),
        ("priorWidths", json!({"Lane": "2"})),
        ("currentWidths", json!(null)),
        ("previousPes", json!({"-1": []})),
        ("previousPes", json!({"1": [2]})),
        ("previousPes", json!({"1": [], "01": []})),
        ("previousPes", json!({"18446744073709551616": []})),
    ] {
        let mut input = whole.clone();
        input[key] = value;
        work.write("input.json", input.to_string());
        failed(&work.run(&["--replay", "input.json"]), &["input.json:"]);
        input.as_object_mut().unwrap().remove(key);
        work.write("input.json", input.to_string());
        failed(&work.run(&["--replay", "input.json"]), &["input.json:", key]);
    }
}

#[test]
fn what_the_application_is_blamed_for() {
    let work = Work::new();
    for (changes, stage, code) in [
        (json!({"fusion": {"manual": 0}}), "fusion-option", Value::Null),
        (json!({"fusion": {"manual": i64::MIN}}), "fusion-option", Value::Null),
        (json!({"config": {"tracing": "loud"}}), "logical-model", Value::Null),
        (json!({"parallelRegions": {"Lane": u64::MAX}}), "topology", Value::Null),
        (json!({"parallelRegions": {"Lane": -1}}), "topology", json!("CDISR1164E")),
        (json!({"parallelRegions": {"La(ne": 1}}), "topology", Value::Null),
        (json!({"jobName": "bell\u{7}"}), "aadl", Value::Null),
    ] {
        work.write("request.json", request(changes.clone()));
        let error = work.refused();
        assert_eq!((&error["stage"], &error["code"]), (&json!(stage), &code), "{changes}: {error}");
    }
    work.write("request.json", request(json!({})));
    for adl in ["", "<a/>", "PK\u{3}\u{4} but no bundle", "\u{0}", "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>"] {
        work.write("app.adl", adl);
        let error = work.refused();
        assert_eq!(error["stage"], "logical-model", "{adl:?}: {error}");
    }
}

#[test]
fn a_bundle_is_compiled_as_at_a_submission() {
    use streams_bundle::{Application, Builder};
    let work = Work::new();
    let adl = std::fs::read_to_string(golden("feeds/app.adl")).unwrap();
    let bundle = Builder::new(Application {
        name: "golden.Feeds".to_owned(),
        output_directory: "output".to_owned(),
        toolkit: "golden".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl,
    });
    work.write("app.adl", bundle.build().unwrap());
    assert_eq!(work.run(&[]).status.code(), Some(0));
    let document = std::fs::read_to_string(work.path("out/step-0/pe-0.aadl.xml")).unwrap();
    assert!(document.contains(r#" outputDirectory="/tmp/assets/output""#), "{document}");
    assert!(!document.contains(r#" buildId="""#));
}

#[test]
fn limits_are_options() {
    let work = Work::new();
    let output = work.run(&["--max-width", "1"]);
    assert_eq!(output.status.code(), Some(3));
    let error: Value = serde_json::from_slice(&std::fs::read(work.path("out/step-0/error.json")).unwrap()).unwrap();
    assert_eq!(error["stage"], "topology");
    assert_eq!(work.run(&["--max-aadl-bytes", "1000"]).status.code(), Some(3));
    assert_eq!(work.run(&["--max-operators", "3"]).status.code(), Some(3));
    assert_eq!(work.run(&["--max-operators", "4"]).status.code(), Some(0));
}
