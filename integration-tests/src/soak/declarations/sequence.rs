//! Sequences of declarations: what a user writes, one after the other, to one job.
//!
//! Here: what a sequence is, and each field alone (set at the creation, changed, made invalid, corrected, removed).
//! What users write beside jobs is in `scenarios`, all fields together in `random`. A sequence has a name and is data
//! (JSON), so that one that failed can be run again.

use super::children::Child;
use super::fields::{self, Field};
use super::propagation::Propagation;
use super::values::{self, Bad};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a user does to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Step {
    /// The job is created.
    Create {
        /// Its spec.
        spec: Value,
        /// If the spec has something bad: the words by which the user is told.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        words: Vec<String>,
        /// The API server must refuse it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
    /// A field is written, or removed (`null`), by a merge patch.
    Set {
        /// Where.
        at: Vec<String>,
        /// What.
        value: Value,
        /// As for `Create`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        words: Vec<String>,
        /// As for `Create`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
    /// The width of a region is written.
    Width {
        /// The region's logical name.
        region: String,
        /// The width.
        width: Value,
        /// As for `Create`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        words: Vec<String>,
    },
    /// Every PE is asked to restart.
    Restart,
    /// A PE is asked to stop for good: the one of this number in the order of ids.
    Stop(usize),
    /// It is not asked to stop any more.
    Go(usize),
    /// An object of the job is deleted: the first one of this kind.
    Lose(Child, Propagation),
    /// An object of the job is changed by somebody who should not.
    Spoil {
        /// Its kind.
        child: Child,
        /// Which one of them: this number in the order of names, beginning again where there are fewer.
        number: usize,
        /// Where.
        at: Vec<String>,
        /// The first of these that is another value than it has, and that the API server takes.
        values: Vec<Value>,
    },
    /// The job is deleted with this propagation and created again at once with the same spec.
    Again(Propagation),
    /// Steps that do not wait for each other.
    Together(Vec<Step>),
    /// Steps that nothing waits for: what follows comes while they are under way.
    Begun(Vec<Step>),
}

/// How the end of a sequence is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    /// The job is deleted: nothing of it may stay.
    Job(Propagation),
    /// The namespace is deleted, and must go.
    Namespace,
}

/// Steps in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sequence {
    /// How it is called, and asked for again.
    pub(super) name: String,
    /// What is done.
    pub(super) steps: Vec<Step>,
    /// How it ends.
    pub(super) end: End,
}

/// What a job of a run has beside the field that is tried: three PEs, whatever the widths are.
pub(super) fn base() -> Value {
    json!({"bundle": {"file": crate::sample::SAB}, "fusion": {"manual": 3}})
}

/// A job of another application, whose kinds of objects are all that there are: host pools, exports, imports, a
/// consistent region.
pub(super) fn base_of_all_kinds() -> Value {
    json!({"bundle": {"file": values::ALL_KINDS}, "fusion": {"legacy": true}})
}

/// The base with what a field needs to mean something.
pub(super) fn base_for(context: &Value) -> Value {
    fields::merged(&base(), context)
}

/// The base with a value of a field.
pub(super) fn with(context: &Value, field: &Field, value: &Value) -> Value {
    fields::merged(&base_for(context), &fields::patch(&field.at, value))
}

/// For every field: good values from the beginning and by edits, bad values at the beginning and by an edit, and what
/// corrects them; what has it from the beginning loses it.
pub(super) fn alone(fields: &[Field]) -> Vec<Sequence> {
    let mut sequences = Vec::new();
    for field in fields {
        let values = values::of(field);
        let mut add = |what: &str, steps: Vec<Step>| {
            let ends = [
                End::Job(Propagation::Background),
                End::Namespace,
                End::Job(Propagation::Foreground),
                End::Job(Propagation::Orphan),
            ];
            let end = ends.get(sequences.len() % ends.len()).copied().unwrap_or(End::Namespace);
            sequences.push(Sequence { name: format!("{field}/{what}"), steps, end });
        };
        let set = |value: &Value| set(field, value.clone());
        let null = Value::Null;
        // A merge patch leaves what else is in a map.
        let corrected = |value: &Value| -> Vec<Step> {
            let emptied = (field.is_inner() && value.is_object()).then(|| set(&null));
            emptied.into_iter().chain([set(value)]).collect()
        };
        let first = values.good.first().unwrap_or(&null);
        // Edits: what the schema refuses changes nothing, so that one correction is enough for all.
        let mut edits = vec![create(base_for(&values.context))];
        edits.extend(values.bad.iter().filter(|bad| bad.refused).map(|bad| spoil(field, bad)));
        for bad in values.bad.iter().filter(|bad| !bad.refused) {
            edits.push(spoil(field, bad));
            edits.extend(corrected(first));
        }
        edits.extend(values.good.iter().map(set));
        add("edited", edits);
        let mut beginnings: Vec<Step> = Vec::new();
        beginnings.extend(values.bad.iter().filter(|bad| bad.refused).map(|bad| Step::Create {
            spec: with(&values.context, field, &bad.value),
            words: bad.words.clone(),
            refused: true,
        }));
        beginnings.extend([create(with(&values.context, field, first)), set(&null)]);
        add("from the beginning, and removed", beginnings);
        for (number, bad) in values.bad.iter().filter(|bad| !bad.refused).enumerate() {
            let spec = with(&values.context, field, &bad.value);
            let mut steps = vec![Step::Create { spec, words: bad.words.clone(), refused: false }];
            steps.extend(corrected(first));
            add(&format!("invalid from the beginning, {number}"), steps);
        }
    }
    sequences
}

/// The job is created with a good spec.
pub(super) fn create(spec: Value) -> Step {
    Step::Create { spec, words: Vec::new(), refused: false }
}

/// A good value of a field is written.
pub(super) fn set(field: &Field, value: Value) -> Step {
    Step::Set { at: field.at.clone(), value, words: Vec::new(), refused: false }
}

/// A bad value of a field is written.
pub(super) fn spoil(field: &Field, bad: &Bad) -> Step {
    Step::Set { at: field.at.clone(), value: bad.value.clone(), words: bad.words.clone(), refused: bad.refused }
}

/// The same sequence without one of its steps, for each that can be left out.
pub(super) fn shorter(sequence: &Sequence) -> Vec<Sequence> {
    let without = |index: usize| {
        let mut shorter = sequence.clone();
        shorter.steps.remove(index);
        shorter
    };
    (1..sequence.steps.len()).rev().map(without).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fields::of_spec;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_is_set_changed_spoilt_and_corrected_and_no_two_sequences_have_one_name() {
        let fields = of_spec("Job").unwrap();
        let sequences = alone(&fields);
        let names: BTreeSet<_> = sequences.iter().map(|sequence| sequence.name.clone()).collect();
        assert_eq!(names.len(), sequences.len());
        for field in fields.iter().filter(|field| !values::of(field).good.is_empty()) {
            for what in ["edited", "from the beginning, and removed"] {
                assert!(names.contains(&format!("{field}/{what}")), "{field} is not {what}");
            }
        }
    }
}
