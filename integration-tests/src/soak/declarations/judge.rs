//! What is wrong with a job, as somebody sees it who knows only what users wrote.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// What a sequence is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    /// The job comes to rest; when it is not ready, a condition says why, in words that name the cause.
    Convergence,
    /// An error is left by correcting it.
    Recovery,
    /// The job has what a fresh job of its spec has.
    SameObjects,
    /// A field has an effect.
    Effect,
    /// Nothing stays, whatever is deleted in whichever way.
    Deletion,
}

impl Oracle {
    /// All, in the order of reports.
    pub const ALL: [Self; 5] = [Self::Convergence, Self::Recovery, Self::SameObjects, Self::Effect, Self::Deletion];
}

impl fmt::Display for Oracle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Convergence => "converges, or says why not",
            Self::Recovery => "an error is left by correcting it",
            Self::SameObjects => "same objects as a fresh job",
            Self::Effect => "every field has an effect",
            Self::Deletion => "nothing stays after deletion",
        })
    }
}

/// How a job stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Standing {
    /// It runs what its newest spec says, and nothing is under way.
    pub(super) is_ready: bool,
    /// The newest spec was looked at.
    pub(super) is_seen: bool,
    /// Its conditions, in words.
    pub(super) says: String,
}

impl Standing {
    /// The standing of a job.
    pub(super) fn of(job: &Value) -> Self {
        let generation = job.pointer("/metadata/generation");
        let is_seen = generation.is_some() && job.pointer("/status/observedGeneration") == generation;
        let empty = Vec::new();
        let conditions = job.pointer("/status/conditions").and_then(Value::as_array).unwrap_or(&empty);
        let part =
            |condition: &Value, key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is = |kind: &str, status: &str| {
            conditions.iter().any(|condition| part(condition, "type") == kind && part(condition, "status") == status)
        };
        let says = conditions.iter().map(|condition| {
            let [kind, status, reason, message] =
                ["type", "status", "reason", "message"].map(|key| part(condition, key));
            format!("{kind}={status} ({reason}: {message})")
        });
        Self {
            is_ready: is_seen && is("Ready", "True") && is("Progressing", "False"),
            is_seen,
            says: says.collect::<Vec<_>>().join(", "),
        }
    }

    /// The causes of which nothing is said; each is known by any of its words.
    pub(super) fn hides<'a>(&self, causes: &'a BTreeMap<String, Vec<String>>) -> Vec<&'a str> {
        let hidden = causes.iter().filter(|(_, words)| !has_one_of(&self.says, words));
        hidden.map(|(place, _)| place.as_str()).collect()
    }
}

/// Whether a text has one of these words, whatever their case.
pub(super) fn has_one_of(text: &str, words: &[String]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(&word.to_lowercase()))
}

/// Whether a refusal is one that a correct edit of a job may meet: what it was compiled from stays as it was.
pub(super) fn is_pinned(refusal: &str) -> bool {
    ["cannot be edited", "cannot be changed", "cannot be added or changed"].iter().any(|words| refusal.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(observed: u64, ready: &str, progressing: &str) -> Value {
        json!({
            "metadata": {"generation": 2},
            "status": {"observedGeneration": observed, "conditions": [
                {"type": "Ready", "status": ready, "reason": "R", "message": "PE 0 waits for the claim no-such-claim"},
                {"type": "Progressing", "status": progressing, "reason": "P", "message": ""},
            ]},
        })
    }

    #[test]
    fn a_job_is_ready_when_it_has_come_to_rest_with_its_newest_spec() {
        let table = [
            (2, "True", "False", true),
            (1, "True", "False", false),
            (2, "True", "True", false),
            (2, "False", "False", false),
        ];
        for (observed, ready, progressing, expected) in table {
            assert_eq!(
                Standing::of(&job(observed, ready, progressing)).is_ready,
                expected,
                "{observed} {ready} {progressing}"
            );
        }
        assert!(!Standing::of(&json!({"metadata": {"generation": 1}})).is_seen);
    }

    #[test]
    fn a_cause_that_no_condition_names_is_hidden() {
        let standing = Standing::of(&job(2, "False", "False"));
        let causes = |word: &str| BTreeMap::from([("claim".to_owned(), vec![word.to_owned()])]);
        assert_eq!(standing.hides(&causes("No-Such-Claim")), Vec::<&str>::new());
        assert_eq!(standing.hides(&causes("quota")), ["claim"]);
    }
}
