//! `fusion-service fuse` against the expectations that its cases carry (rule service-25).

use crate::table::Set;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// Runs `program`, which is `fusion-service`.
pub fn fuse(program: &str, cases: &Path) -> Output {
    Command::new(program).arg("fuse").arg("--cases").arg(cases).output().unwrap()
}

/// Answers to all cases of a file against its own expectations.
pub fn cases(program: &str, path: &Path) -> Set {
    let mut set = Set::new("fuser cases");
    let text = std::fs::read_to_string(path).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let output = fuse(program, path);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), cases.len());
    for (case, answer) in cases.iter().zip(answers.lines()) {
        let (want, got) = (comparable(&case["expect"]), comparable(&serde_json::from_str(answer).unwrap()));
        let name = format!("{} {} {}", case["case"], case["src"], case["mode"]);
        set.add(&name, (want != got).then(|| format!("{got} instead of {want}")));
    }
    set
}

/// What of an answer is a contract: lists without their order, ports without their ids, errors without their text.
fn comparable(answer: &Value) -> Value {
    if let Some(error) = answer.get("error") {
        // The corpus has the text of the reference implementation, and no other error than this.
        return json!({ "error": if error.is_string() { json!("CDISR3200E") } else { error["code"].clone() } });
    }
    let sorted = |list: &Value| {
        let mut list = list.as_array().unwrap().clone();
        list.sort_by_key(Value::to_string);
        list
    };
    let without_ids = |list: &Value| {
        let list = list.as_array().unwrap();
        let ids: std::collections::BTreeSet<u64> = list.iter().map(|port| port[0].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), list.len(), "an id twice");
        sorted(&list.iter().map(|port| Value::from(port.as_array().unwrap()[1..].to_vec())).collect())
    };
    let pe = |pe: &Value| {
        json!({
            "id": pe["id"], "index": pe["index"], "ops": pe["ops"],
            "fusedIn": sorted(&pe["fusedIn"]), "fusedOut": sorted(&pe["fusedOut"]), "opFlags": sorted(&pe["opFlags"]),
            "peIn": without_ids(&pe["peIn"]), "peOut": without_ids(&pe["peOut"]),
        })
    };
    answer["pes"].as_array().unwrap().iter().map(pe).collect()
}
