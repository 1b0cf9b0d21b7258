//! `fusion-service fuse`: cases of our own, and lines that are no cases. The conformance test has the cases of the
//! corpus.

use super::PROGRAM;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Output;
use streams_test_support::fused::{self, fuse};
use tempfile::NamedTempFile;

fn fuse_text(lines: &[u8]) -> Output {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(lines).unwrap();
    fuse(PROGRAM, file.path())
}

#[test]
fn our_cases() {
    let set = fused::cases(PROGRAM, &super::folder().join("cases/fuser.jsonl"));
    assert!(set.wrong.is_empty() && set.compared > 0, "{}", set.wrong.join("\n"));
}

fn case(change: impl FnOnce(&mut Value)) -> String {
    let port = json!([{ "i": 0, "tp": false, "imp": false, "exp": false, "c": [[0, 0, 1, 0, null, null]] }]);
    let node = |index: u32, inputs: &Value, outputs: &Value| {
        json!({
            "idx": index, "name": format!("Op{index}"), "in": inputs, "out": outputs, "coloc": [], "exloc": [], "iso": false, "prov": {},
            "softseg": {}, "host": null, "pool": null, "hcol": [], "hex": [], "hiso": false, "rst": true, "rloc": true, "stOut": true, "thr": [],
        })
    };
    let nodes = [node(0, &json!([]), &port), node(1, &port, &json!([]))];
    let mut case = json!({ "mode": "manual:1", "topology": { "nodes": nodes, "pools": [] } });
    change(&mut case);
    format!("{case}\n")
}

#[test]
fn the_case_that_the_malformed_ones_are_made_of_is_answered() {
    let output = fuse_text(case(|_| {}).as_bytes());
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["pes"][0]["ops"], json!([0, 1]));
}

#[test]
fn user_errors_are_answers() {
    let table = [
        (case(|case| case["mode"] = json!("manual:0")), "fusion-option", "requested number of PEs is invalid: 0"),
        (case(|case| case["mode"] = json!("manual:-5")), "fusion-option", "requested number of PEs is invalid: -5"),
        (
            case(|case| case["topology"]["nodes"][1]["pool"] = json!([3, null])),
            "compose",
            "operator 1 (Op1): unknown host pool 3",
        ),
    ];
    for (line, stage, message) in table {
        let output = fuse_text(line.as_bytes());
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{message}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer, json!({ "error": { "code": null, "stage": stage, "message": message } }));
    }
}

#[test]
fn a_huge_number_of_pes_is_as_many_as_there_are_operators() {
    let output = fuse_text(case(|case| case["mode"] = json!("manual:9223372036854775807")).as_bytes());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["pes"].as_array().unwrap().len(), 2);
}

#[test]
fn lines_that_are_no_cases_end_the_command_with_one_line() {
    let connection = |connection: Value| case(|case| case["topology"]["nodes"][0]["out"][0]["c"] = json!([connection]));
    let table: &[(String, &str)] = &[
        ("\n".into(), "EOF while parsing a value"),
        ("{}\n".into(), "missing field `mode`"),
        ("[1,2\n".into(), "invalid type"),
        ("{\"mode\":\"legacy\",\"topology\":{\"nodes\":[]}}".into(), "missing field `pools`"),
        (case(|case| case["mode"] = json!("manual:")), "mode manual: is neither legacy nor manual:N"),
        (case(|case| case["mode"] = json!("manual:9223372036854775808")), "is neither legacy nor manual:N"),
        (case(|case| case["mode"] = json!("automatic\nx")), "mode automatic\\nx is neither"),
        (case(|case| case["mode"] = json!(7)), "invalid type: integer"),
        (case(|case| case["topology"]["nodes"][0]["idx"] = json!(-1)), "invalid value: integer `-1`, expected u32"),
        (case(|case| case["topology"]["nodes"][0]["idx"] = json!(1_u64 << 32)), "invalid value: integer `4294967296`"),
        (
            case(|case| {
                let nodes = case["topology"]["nodes"].as_array_mut().unwrap();
                nodes.push(nodes[1].clone());
                nodes[2]["in"] = json!([]);
            }),
            "operator index 1: twice, or out of order",
        ),
        (case(|case| case["topology"]["nodes"][1]["in"][0]["i"] = json!(1)), "operator 1: ports do not count from 0"),
        (
            case(|case| {
                case["topology"]["pools"] =
                    json!([{"idx": 1, "excl": false, "hosts": []}, {"idx": 1, "excl": true, "hosts": []}])
            }),
            "host pool 1: twice, or out of order",
        ),
        (connection(json!([0, 0, 9, 0, null, null])), "operator 0: connection with operator 9, which does not exist"),
        (connection(json!([0, 0, 1, 5, null, null])), "operator 1 has no input port 5"),
        (connection(json!([1, 0, 0, 0, null, null])), "operator 0: connection of another port in its list"),
        (connection(json!([0, 0, 1, 0, 0, null])), "operator 0: connection with half a splitter"),
        (connection(json!([0, 0, 1, 0, u32::MAX, 0])), "operator 0: connection with half a splitter"),
        (connection(json!([0, 0, 1, 0])), "invalid length 4"),
        ("[".repeat(100_000), "invalid type"),
        (format!("{{\"x\":{}", "[".repeat(100_000)), "EOF while parsing a list"),
        ("{\"mode\":\"\u{0}\"".replace('\u{0}', "\u{1}"), "control character"),
    ];
    for (line, message) in table {
        // A good line before it is answered all the same.
        let output = fuse_text(format!("{}{line}", case(|_| {})).as_bytes());
        let error = String::from_utf8(output.stderr).unwrap();
        let start = line.chars().take(60).collect::<String>();
        assert_eq!(output.status.code(), Some(2), "{start}: {error}");
        assert!(error.starts_with("error: ") && error.contains(":2:") && error.contains(message), "{start}: {error}");
        assert_eq!(error.matches('\n').count(), 1, "{start}: {error}");
        assert!(error.len() < 500, "{start}: {} bytes", error.len());
        assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1, "{start}");
    }
    let output = fuse_text(b"\xff\xfe{}\n");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_file_that_is_not_there_is_an_error_in_one_line() {
    for path in ["/does/not/exist\nat all", "/"] {
        let output = fuse(PROGRAM, Path::new(path));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("error: /") && error.matches('\n').count() == 1, "{error}");
    }
}
