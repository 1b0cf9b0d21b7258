//! The verdict on one step.

use super::rules::{self, Affected, Rule};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use streams_test_support::documents::step::Step;
use streams_test_support::documents::{context, sound, tree};

/// Stages, in order. An error without code may be found earlier than in the reference implementation.
const STAGES: [&str; 12] = [
    "fusion-option",
    "logical-model",
    "topology",
    "logical-model-json",
    "transfer",
    "compose",
    "fuse",
    "aadl",
    "consistent-regions",
    "host-placement",
    "host-isolation",
    "host-pool-location",
];

/// What is wrong with a step, and how it was judged.
pub(crate) struct Verdict {
    pub(crate) how: &'static str,
    pub(crate) differences: Vec<String>,
}

impl Verdict {
    pub(crate) fn new(how: &'static str, differences: Vec<String>) -> Self {
        Self { how, differences }
    }

    pub(crate) fn failed(how: &'static str, message: &str) -> Self {
        Self::new(how, vec![message.to_owned()])
    }

    pub(crate) fn accepted(&self) -> bool {
        self.differences.is_empty()
    }

    /// The exit status of a chain of one step must fit it.
    pub(crate) fn and_status(self, status: i32, out: &Path, alone: bool) -> Self {
        let failed = out.join("step-0/error.json").exists();
        let right = !alone || status == if failed { 3 } else { 0 };
        if right { self } else { Self::failed("program", &format!("exit status {status}")) }
    }
}

/// A case of the corpus.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    defects: Vec<String>,
    affected: BTreeMap<usize, Vec<String>>,
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

impl Case {
    pub(crate) fn read(folder: &Path, affected: &Affected) -> Self {
        let meta = json(&folder.join("meta.json"));
        let name = meta["case"].as_str().unwrap_or_default().to_owned();
        let defects = context::list(&meta, "defects").iter().filter_map(|d| d.as_str().map(str::to_owned)).collect();
        Self { affected: affected.of(&name), name, folder: folder.to_owned(), defects }
    }

    pub(crate) fn expected(&self, step: usize) -> PathBuf {
        self.folder.join(format!("expected/step-{step}"))
    }

    pub(crate) fn steps(&self) -> Vec<usize> {
        (0..).take_while(|step| self.expected(*step).is_dir()).collect()
    }

    fn error(&self, step: usize) -> Option<Value> {
        let path = self.expected(step).join("error.json");
        path.exists().then(|| json(&path))
    }

    pub(crate) fn kind(&self, step: usize) -> &'static str {
        match self.error(step) {
            None => "ok",
            Some(error) if error["kind"] == "user-error" => "user-error",
            Some(_) => "defect",
        }
    }

    /// The defects that a step can show.
    pub(crate) fn defects(&self, step: usize) -> Vec<String> {
        let marked = match (self.kind(step), self.error(step)) {
            ("defect", Some(error)) => {
                let splitter = error["note"].as_str().is_some_and(|note| note.contains("splitter entry"));
                let defect = error["defect"].as_str().map(str::to_owned);
                defect.into_iter().chain(splitter.then(|| "8.4".to_owned())).collect()
            }
            _ => self.defects.clone(),
        };
        let more = self.affected.get(&step).cloned().unwrap_or_default();
        let shows = |defect: &String| rules::rule(defect).is_some_and(|rule| step > 0 || !rule.resizes);
        marked.into_iter().chain(more).filter(shows).collect()
    }

    /// Their rules.
    fn rules(&self, step: usize) -> Vec<Rule> {
        self.defects(step).iter().filter_map(|defect| rules::rule(defect)).collect()
    }

    /// Judges the files in `out`; `chain` is the output of the whole chain.
    pub(crate) fn judge(&self, out: &Path, step: usize, chain: &Path) -> Verdict {
        let (kind, error, rules) = (self.kind(step), self.error(step), self.rules(step));
        let failed = out.join("error.json").exists();
        if kind == "user-error" {
            let Some(expected) = error.filter(|_| failed) else {
                return Verdict::failed("error", "a plan instead of an error");
            };
            return Verdict::new("error", wrong_error(&expected, out));
        }
        if kind == "defect" && rules.iter().any(|rule| rule.chain) {
            return Verdict::new("sound", sound::problems(&chain.join(format!("step-{step}"))));
        }
        if failed {
            let (said, mut problems) = read_error(out);
            let code = said["code"].as_str().unwrap_or_default();
            let right =
                |rule: &Rule| rule.only_error || rule.error.is_some_and(|wanted| wanted.is_empty() || wanted == code);
            if !rules.iter().any(right) {
                problems.push(format!("an error instead of a plan: {said}"));
            }
            return Verdict::new("error", problems);
        }
        if rules.iter().any(|rule| rule.only_error) {
            return Verdict::failed("error", "a plan instead of an error");
        }
        if kind == "ok" {
            let plain = self.differences(out, step, &[], false);
            if rules.is_empty() || plain.is_empty() {
                return Verdict::new("match", plain);
            }
        }
        let mut problems = sound::problems(out);
        let accessors: BTreeSet<&str> = (error.iter())
            .flat_map(|error| context::list(error, "failedAccessors"))
            .filter_map(Value::as_str)
            .collect();
        let known: BTreeSet<&str> = ["host-placement", "host-isolation", "consistent-regions"].into();
        let partial = kind == "defect";
        let comparable = !partial || !accessors.is_empty() && accessors.is_subset(&known);
        if comparable && !rules.iter().any(|rule| rule.sound) {
            problems.extend(self.differences(out, step, &rules, partial));
            return Verdict::new(if partial { "sound" } else { "masked" }, problems);
        }
        Verdict::new("sound", problems)
    }

    /// How the step differs from the expected one, without what the rules mask.
    fn differences(&self, out: &Path, step: usize, rules: &[Rule], partial: bool) -> Vec<String> {
        let (expected, actual) = match (Step::read(&self.expected(step)), Step::read(out)) {
            (Ok(expected), Ok(actual)) => (expected, actual),
            (Err(problem), _) | (_, Err(problem)) => return vec![problem],
        };
        let mut found = actual.problems.clone();
        if !expected.documents.keys().eq(actual.documents.keys()) {
            found.push(format!("PEs {:?} instead of {:?}", actual.documents.keys(), expected.documents.keys()));
        }
        for (id, was) in &expected.documents {
            let Some(is) = actual.documents.get(id) else { continue };
            let prepared = |node: &tree::Node| {
                let mut node = node.clone();
                tree::normalise(&mut node);
                rules.iter().filter_map(|rule| rule.mask).for_each(|mask| mask(&mut node));
                // On a resize it may be the position of the PE or its id.
                if step > 0 && is.get("logicalIndex") == Some(&id.to_string()) {
                    node.attributes.remove("logicalIndex");
                }
                node.sorted()
            };
            tree::differences(&prepared(was), &prepared(is), &format!("pe-{id}"), &mut found);
        }
        let skip: Vec<&str> = rules.iter().flat_map(|rule| rule.skip).copied().collect();
        context::differences(&expected, &actual, &skip, partial, &mut found);
        let previous: Option<BTreeSet<u64>> = (step > 0).then(|| {
            let input = json(&self.expected(step).join("input.json"));
            let previous = input["previousPes"].as_object();
            previous.into_iter().flatten().filter_map(|(id, _)| id.parse().ok()).collect()
        });
        found.extend(context::own(&actual, previous.as_ref()));
        found
    }
}

/// `error.json`, and what is wrong with it whatever was expected.
pub(crate) fn read_error(out: &Path) -> (Value, Vec<String>) {
    let said = json(&out.join("error.json"));
    let mut problems = Vec::new();
    if said["kind"] != "user-error" || !STAGES.iter().any(|stage| said["stage"] == *stage) {
        problems.push(format!("error.json: kind or stage of {said}"));
    }
    if said["message"].as_str().is_none_or(str::is_empty) {
        problems.push("error.json: no message".to_owned());
    }
    let others = std::fs::read_dir(out).map_or(0, Iterator::count);
    if others != 1 {
        problems.push(format!("error.json beside {} other files", others - 1));
    }
    (said, problems)
}

/// What differs from the expected error.
pub(crate) fn wrong_error(expected: &Value, out: &Path) -> Vec<String> {
    let (said, mut problems) = read_error(out);
    let message = expected["message"].as_str().unwrap_or_default();
    let code = message.get(..10).filter(|code| code.starts_with("CDIS") && code.ends_with(['E', 'W', 'I']));
    let position = |stage: &Value| STAGES.iter().position(|known| stage == known);
    match code {
        Some(code) if said["code"] != code || said["stage"] != expected["stage"] => {
            problems.push(format!("{} {} instead of {} {code}", said["stage"], said["code"], expected["stage"]));
        }
        None if position(&said["stage"]) > position(&expected["stage"]) => {
            problems.push(format!("stage {} is later than {}", said["stage"], expected["stage"]));
        }
        _ => {}
    }
    problems
}
