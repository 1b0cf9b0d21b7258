//! `fusion-service explain`: what people read, and what they read when something is wrong.
//!
//! The recorded texts are for people: look at a difference as a reader of it.

use super::program;
use expect_test::expect_file;
use serde_json::Value;
use std::path::PathBuf;

fn tests(name: &str) -> PathBuf {
    super::folder().join(name)
}

/// Exit status, standard output, standard error. Paths are as given, so the command runs in the folder of the tests.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = program();
    let output = command.arg("explain").args(arguments).current_dir(tests("")).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Compares with a recorded text; gives standard error.
fn golden(name: &str, status: i32, arguments: &[&str]) -> String {
    let (code, output, errors) = run(arguments);
    assert_eq!(code, Some(status), "{errors}");
    expect_file![tests("golden").join(name)].assert_eq(&output);
    errors
}

/// The answer as JSON.
fn json(status: i32, arguments: &[&str]) -> Value {
    let (code, output, errors) = run(&[arguments, &["-o", "json"]].concat());
    assert_eq!(code, Some(status), "{errors}");
    serde_json::from_str(&output).unwrap()
}

#[test]
fn a_region_that_grows_and_shrinks() {
    let request = ["golden/feeds/app.adl", "--request", "golden/feeds/request.json"];
    assert_eq!(golden("feeds/explain.txt", 0, &request), "");
}

/// Pools, consistent regions, several kinds of constraints; a resize that is refused leaves the others alone.
#[test]
fn a_resize_in_the_middle_is_refused() {
    let errors = golden("orders/explain.txt", 3, &["golden/orders/app.adl", "--request", "golden/orders/request.json"]);
    assert!(errors.starts_with("error: golden/orders/app.adl:"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn nested_regions_and_flags_instead_of_a_request() {
    let flags = ["applications/telemetry.adl", "--fusion", "manual:4", "--fusion-type", "channelExlocation"];
    let flags = [&flags[..], &["--width", "Lane=2", "--resize", "Lane=3", "--policy", "rebalance"]].concat();
    assert_eq!(golden("telemetry-explain.txt", 0, &flags), "");
}

#[test]
fn the_json_form_has_the_same() {
    let answer = json(0, &["golden/feeds/app.adl", "--request", "golden/feeds/request.json"]);
    let steps = answer["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 3);
    assert_eq!((&steps[0]["kind"], &steps[0]["resize"]), (&"submission".into(), &Value::Null));
    assert_eq!(steps[1]["resized"], serde_json::json!({"region": "Lane", "width": 3}));
    assert_eq!(steps[1]["resize"]["added"], 2);
    let restarted = |group: &&Value| group["fate"] == "restarted";
    let group = steps[1]["processingElements"].as_array().unwrap().iter().find(restarted).unwrap();
    let change = &group["changes"][0];
    assert_eq!(change["observable"], true);
    for key in ["place", "path", "what"] {
        assert!(change[key].is_string(), "{change}");
    }
    // Documented in `explain::account`; fields are only ever added.
    let keys: Vec<&str> = steps[0].as_object().unwrap().keys().map(String::as_str).collect();
    for key in ["application", "causes", "compiler", "fusion", "hostPools", "processingElements", "regions", "totals"] {
        assert!(keys.contains(&key), "{key}");
    }
}

#[test]
fn automatic_fusion_says_how_it_counted() {
    let (status, text, _) =
        run(&["golden/orders/app.adl", "--request", "golden/orders/request.json", "--fusion", "automatic"]);
    assert_eq!(status, Some(3), "the request has a resize that is refused");
    assert!(text.contains("Fusion       automatic: "), "{text}");
    assert!(text.contains("threads and can use"), "{text}");
    assert!(text.contains("was found when the job was submitted, and stays"), "{text}");
    let answer = json(0, &["golden/feeds/app.adl", "--fusion", "automatic:2"]);
    assert_eq!(answer["steps"][0]["fusion"]["wanted"], 2);
}

#[test]
fn what_the_application_is_blamed_for() {
    for (flags, expected) in [
        (&["--width", "Lane=0"][..], "golden/feeds/app.adl:"),
        (&["--width", "Lane=0"], "CDISR1164E"),
        (&["--fusion", "manual:0"], "golden/feeds/app.adl: "),
        (&["--max-operators", "3"], "at most 3 are supported"),
    ] {
        let (status, output, errors) = run(&[&["golden/feeds/app.adl"], flags].concat());
        assert_eq!((status, output.as_str()), (Some(3), ""), "{flags:?} {errors}");
        assert!(errors.starts_with("error: ") && errors.contains(expected), "{flags:?} {errors}");
    }
    let (status, output, errors) = run(&["golden/feeds/request.json"]);
    assert_eq!((status, output.as_str()), (Some(3), ""));
    assert!(errors.starts_with("error: golden/feeds/request.json:1:1: CDISA5089E"), "{errors}");
    let answer = json(3, &["golden/feeds/app.adl", "--resize", "Nowhere=2", "--resize", "Lane=2"]);
    assert_eq!(answer["steps"][1]["problems"][0]["code"], "CDISR1411E");
    assert_eq!(answer["steps"][2]["kind"], "resize");
}

#[test]
fn arguments_and_files() {
    for arguments in [
        &[][..],
        &["golden/nothing.adl"],
        &["golden"],
        &["golden/feeds/app.adl", "--request", "golden/feeds/app.adl"],
        &["golden/feeds/app.adl", "--fusion", "some"],
        &["golden/feeds/app.adl", "--width", "Lane"],
        &["golden/feeds/app.adl", "-o", "yaml"],
    ] {
        let (status, output, errors) = run(arguments);
        assert_eq!((status, output.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(errors.starts_with("error: ") && errors.lines().count() == 1, "{arguments:?} {errors}");
    }
}

#[test]
fn help_has_examples() {
    let (status, text, _) = run(&["--help"]);
    assert_eq!(status, Some(0));
    assert!(text.contains("Examples:") && text.contains("--resize Work=10"), "{text}");
}
