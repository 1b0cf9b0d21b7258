//! A chain of resizes, judged without expected files: every step sound, an error where the case expects one, numbers
//! and texts that stay.

use super::judge::{Case, wrong_error};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use streams_test_support::documents::sound;
use streams_test_support::documents::step::Step;

/// What one step says that the next one must not change.
struct Numbers {
    /// Operator index by ADL index and local channels.
    operators: BTreeMap<String, String>,
    /// PE port ids.
    ports: BTreeMap<(u64, String), u64>,
    /// Content and digest by PE.
    texts: BTreeMap<u64, (String, String)>,
}

impl Numbers {
    fn of(step: &Step) -> Self {
        let mut operators = BTreeMap::new();
        for root in step.documents.values() {
            for operator in root.all("app:operInstance") {
                let channels: Vec<&str> = (operator.list("phy:parallelRegions").iter())
                    .filter_map(|region| region.get("localChannelIndex"))
                    .collect();
                let identity = format!("{:?} {channels:?}", operator.get("logicalIndex"));
                operators.insert(identity, operator.get("index").unwrap_or_default().to_owned());
            }
        }
        let ports = step.inputs.iter().chain(&step.outputs);
        Self {
            operators,
            ports: ports.map(|((pe, id), port)| ((*pe, port.clone()), *id)).collect(),
            texts: step.originals.iter().map(|(pe, text)| (*pe, (text.clone(), step.digests[pe].clone()))).collect(),
        }
    }

    fn changed(&self, next: &Self) -> Vec<String> {
        let mut problems = Vec::new();
        for (identity, index) in &next.operators {
            if self.operators.get(identity).is_some_and(|earlier| earlier != index) {
                problems.push(format!("operator {identity} has another index"));
            }
        }
        for (port, id) in &next.ports {
            if self.ports.get(port).is_some_and(|earlier| earlier != id) {
                problems.push(format!("port {port:?} has another id"));
            }
        }
        for (pe, (content, digest)) in &next.texts {
            if self.texts.get(pe).is_some_and(|(earlier, text)| earlier == content && text != digest) {
                problems.push(format!("PE {pe}: the same content in another text"));
            }
        }
        problems
    }
}

/// Problems of the steps after the submission.
pub(crate) fn judge(
    case: &Case,
    out: &Path,
    steps: &[usize],
    status: &Result<i32, String>,
) -> Vec<(usize, Vec<String>)> {
    let folder = |step: usize| out.join(format!("step-{step}"));
    let any_failed = steps.iter().any(|step| folder(*step).join("error.json").exists());
    let mut last: Option<Numbers> = None;
    let mut judged = Vec::new();
    for &step in steps {
        let mut problems = Vec::new();
        match status {
            Ok(status) if *status == if any_failed { 3 } else { 0 } => {}
            Ok(status) => problems.push(format!("exit status {status}")),
            Err(message) => problems.push(message.clone()),
        }
        let at = folder(step);
        let failed = at.join("error.json").exists();
        if case.kind(step) == "user-error" {
            if !failed {
                problems.push("a plan instead of an error".to_owned());
            } else if step > 0 {
                let expected = std::fs::read_to_string(case.expected(step).join("error.json")).unwrap_or_default();
                let expected: Value = serde_json::from_str(&expected).unwrap_or_default();
                problems.extend(wrong_error(&expected, &at));
            }
        } else if failed {
            problems.extend(case.judge(&at, step, out).differences);
        } else {
            match Step::read(&at) {
                Ok(step) => {
                    problems.extend(sound::of(&step));
                    let now = Numbers::of(&step);
                    if let Some(last) = &last {
                        problems.extend(last.changed(&now));
                    }
                    last = Some(now);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if step > 0 {
            judged.push((step, problems));
        }
    }
    judged
}
