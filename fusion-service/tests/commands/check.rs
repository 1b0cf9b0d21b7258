//! `fusion-service check`: what it says of applications with several errors, of which stages, and in which form.

use super::program;
use expect_test::expect_file;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;

fn folder() -> PathBuf {
    super::folder().join("check")
}

fn check(folder: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    let mut command = program();
    command.arg("check").args(arguments).current_dir(folder).output().unwrap()
}

/// Standard output and exit status; nothing else is said.
fn said(folder: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let output = check(folder, arguments);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(folder, &[arguments, &["-o", "json"]].concat()).0).unwrap()
}

/// The stages of all problems, with codes.
fn stages(report: &Value) -> Vec<String> {
    let stage = |problem: &Value| match problem["code"].as_str() {
        Some(code) => format!("{} {code}", problem["stage"].as_str().unwrap()),
        None => problem["stage"].as_str().unwrap().to_owned(),
    };
    report["problems"].as_array().unwrap().iter().map(stage).collect()
}

fn golden(name: &str, arguments: &[&str], status: i32) {
    let (text, actual) = said(&folder(), arguments);
    assert_eq!(actual, Some(status), "{text}");
    expect_file![folder().join(format!("{name}.txt"))].assert_eq(&text);
}

const GIVEN: [&str; 4] = ["--value", "lanes=2", "--value", "port=80"];

#[test]
fn nothing_is_wrong() {
    golden("good", &[&["good.adl"][..], &GIVEN, &["--value=colour=red", "--width=Cost=3"]].concat(), 0);
}

#[test]
fn an_option_values_and_references_at_once() {
    golden("values", &["values.adl", "--fusion=manual:0", "--value=lanes=2", "--value=shop::Main.lanes=3"], 3);
}

#[test]
fn unknown_references_of_every_kind() {
    golden("references", &["references.adl", "--width=a-b=1", "--width=c!=2"], 3);
}

#[test]
fn host_pools_and_constraints() {
    golden("constraints", &["constraints.adl"], 3);
}

#[test]
fn everything_behind_fusion() {
    golden("pods", &["pods.adl"], 3);
}

#[test]
fn details_of_the_document_and_what_they_leave_alone() {
    golden("details", &["details.adl", "--value=lanes=x"], 3);
}

#[test]
fn wrong_indexes_end_the_check_of_references_but_not_of_values() {
    golden("indexes", &["indexes.adl"], 3);
}

#[test]
fn a_document_that_is_not_well_formed() {
    golden("malformed", &["malformed.adl"], 3);
}

#[test]
fn resizes_that_are_refused() {
    let resizes = ["--resize=Price=0", "--resize=Price=3", "--resize=Nothing=1"];
    golden("resizes", &[&["good.adl"][..], &GIVEN, &resizes].concat(), 3);
}

#[test]
fn one_line_of_many_kilobytes() {
    let work = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(folder().join("references.adl")).unwrap().replace('\n', " ");
    let filling = format!("<libraries>{}</libraries><hostpools>", "<libraryPath path='é'/>".repeat(20_000));
    std::fs::write(work.path().join("line.adl"), text.replace("<hostpools>", &filling)).unwrap();
    let (text, status) = said(work.path(), &["line.adl"]);
    assert_eq!(status, Some(3));
    assert!(text.len() < 8192 && text.lines().all(|line| line.chars().count() < 160), "{text}");
    // Each mark is under the element that is meant.
    let lines: Vec<&str> = text.lines().collect();
    let marked: Vec<&str> = (lines.windows(2))
        .filter(|pair| pair[1].trim_start().starts_with("| ") && pair[1].ends_with('^'))
        .map(|pair| {
            let column = pair[1].chars().count() - 1;
            let at = pair[0].char_indices().nth(column).unwrap().0;
            pair[0][at..].split([' ', '>']).next().unwrap()
        })
        .collect();
    assert!(marked.len() >= 8 && marked.contains(&"<connection") && marked.iter().all(|tag| tag.starts_with('<')));
}

#[test]
fn json_says_the_same() {
    let report = json(&folder(), &["values.adl", "--fusion=manual:0"]);
    assert_eq!(report["file"], "values.adl");
    assert_eq!(report["good"], false);
    let expected = ["fusion-option", "logical-model CDISR1146E", "logical-model CDISR1146E", "topology"];
    assert_eq!(stages(&report), expected);
    let problem = &report["problems"][1];
    assert_eq!((&problem["line"], &problem["column"]), (&23.into(), &1.into()));
    assert!(problem["excerpt"]["text"].as_str().unwrap().starts_with("<submissionTimeValue index=\"0\""));
    let report = json(&folder(), &[&["good.adl"][..], &GIVEN, &["--resize=Price=0"]].concat());
    assert_eq!((&report["operators"], &report["processingElements"]), (&4.into(), &4.into()));
    assert_eq!((&report["problems"][0]["step"], stages(&report)), (&1.into(), vec!["topology CDISR1164E".to_owned()]));
    let report = json(&folder(), &[&["good.adl"][..], &GIVEN].concat());
    assert_eq!((&report["good"], stages(&report)), (&true.into(), vec![]));
}

#[test]
fn a_request_with_a_wrong_configuration_is_used_for_the_rest() {
    let work = tempfile::tempdir().unwrap();
    let request = work.path().join("request.json");
    let text = r#"{"jobName":"j","jobId":1,"fusion":"legacy","config":{"tracing":"loud"},"submissionTimeValues":{"lanes":"0","port":"1"}}"#;
    std::fs::write(&request, text).unwrap();
    let report = json(&folder(), &["good.adl", "--request", request.to_str().unwrap()]);
    assert_eq!(stages(&report), ["logical-model", "topology CDISR1164E"]);
}

#[test]
fn a_bundle_at_fault() {
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("app.sab"), b"PK\x03\x04 and nothing else").unwrap();
    let (text, status) = said(work.path(), &["app.sab", "--fusion=manual:-1"]);
    assert_eq!(status, Some(3));
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines[0].ends_with("[fusion-option]") && lines[1].ends_with("[logical-model]"), "{text}");
    assert_eq!(lines[2], "app.sab: 2 errors");
}

#[test]
fn what_all_channels_have_alike_is_told_once_and_very_many_errors_are_cut() {
    let work = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(folder().join("constraints.adl")).unwrap();
    let wide = text.replace("poolIndex=\"0\"", "poolIndex=\"9\"").replace("<constantWidth>2<", "<constantWidth>500<");
    std::fs::write(work.path().join("wide.adl"), wide).unwrap();
    let report = json(work.path(), &["wide.adl"]);
    assert_eq!(stages(&report), ["compose", "compose", "compose", "compose CDISR3200E"]);
    assert_eq!(report["complete"], true);

    let text = std::fs::read_to_string(folder().join("references.adl")).unwrap();
    let wrong: String =
        (100..400).map(|at| format!("<connection operIndex=\"{at}\" portIndex=\"0\" portKind=\"input\"/>")).collect();
    let many = text.replace("<connection operIndex=\"77\" portIndex=\"0\" portKind=\"input\"/>", &wrong);
    std::fs::write(work.path().join("many.adl"), many).unwrap();
    assert_eq!(json(work.path(), &["many.adl"])["complete"], false);
    assert!(said(work.path(), &["many.adl"]).0.ends_with("many.adl: 100 errors or more\n"));
}

#[test]
fn places_in_a_bundle_are_those_of_its_adl() {
    use streams_bundle::{Application, Builder};
    let work = tempfile::tempdir().unwrap();
    let adl = std::fs::read_to_string(folder().join("references.adl")).unwrap().replace('\n', "");
    std::fs::write(work.path().join("app.adl"), &adl).unwrap();
    let bundle = Builder::new(Application {
        name: "shop.Main".to_owned(),
        output_directory: "output".to_owned(),
        toolkit: "shop".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl,
    });
    std::fs::write(work.path().join("app.sab"), bundle.build().unwrap()).unwrap();
    let (alone, bundled) = (json(work.path(), &["app.adl"]), json(work.path(), &["app.sab"]));
    assert!(stages(&alone).len() > 8);
    assert_eq!(alone["problems"], bundled["problems"]);
    assert_eq!(bundled["warnings"], Value::Array(Vec::new()));
}

/// What a terminal would obey: control characters but the end of a line, and marks of direction.
fn obeyed(text: &str) -> Vec<char> {
    text.chars().filter(|c| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c)).collect()
}

#[test]
fn hostile_names_and_contents_are_made_harmless() {
    let work = tempfile::tempdir().unwrap();
    let name = format!("a\u{1b}]0;title\u{7}\n\u{202e}{}.adl", "n".repeat(180));
    let hostile = format!("\u{9b}31m\u{202e}&#9;{}", "N".repeat(100_000));
    let text = std::fs::read_to_string(folder().join("references.adl")).unwrap();
    let text = text.replace("name=\"Price\"", &format!("name=\"{hostile}\"")).replace("kind == ", &hostile);
    std::fs::write(work.path().join(&name), text).unwrap();
    for form in ["text", "json"] {
        let (text, status) = said(work.path(), &[&name, "-o", form, "--value", "\u{1b}c=1", "--width=\u{9b}=2"]);
        assert_eq!(status, Some(3));
        assert_eq!(obeyed(&text), [], "{text}");
        assert!(text.len() < 16_384 && text.lines().all(|line| line.chars().count() < 1000), "{}", text.len());
    }
    // The same for files that are not there.
    let output = check(work.path(), [format!("{name}.not")]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), obeyed(&errors)), (Some(2), vec![]));
    assert_eq!(errors.lines().count(), 1);
}

#[test]
fn the_form_of_arguments() {
    for arguments in [&[][..], &["none.adl"], &["good.adl", "-o", "xml"], &["good.adl", "--fusion=no"]] {
        let output = check(&folder(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
    let (help, status) = said(&folder(), &["--help"]);
    assert_eq!(status, Some(0));
    for word in ["Examples:", "--value", "--resize", "--output", "Exit status"] {
        assert!(help.contains(word), "{word}");
    }
}
