//! Sequences of declarations: what a user writes, one after the other, to one job.
//!
//! Each field alone: set at the creation, changed, made invalid, corrected, removed. All fields together: at random,
//! the same for the same seed and number. A sequence has a name and is data (JSON), so that one that failed can be run
//! again.

use super::fields::{self, Field};
use super::values::{self, Bad, EXISTING};
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
    /// An object of the job is deleted: the first one of this kind.
    Lose(Child),
    /// An object of the job is changed by somebody who should not.
    Spoil(Child),
    /// The job is deleted with this propagation and created again at once with the same spec.
    Again(Propagation),
}

/// A kind of object that a job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Child {
    Service,
    ConfigMap,
    Region,
    ProcessingElement,
}

/// What becomes of the objects of a job that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Propagation {
    Background,
    Foreground,
    Orphan,
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
        let set = |value: &Value| set(field, value.clone(), Vec::new());
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
    sequences.extend(of_children());
    sequences
}

fn create(spec: Value) -> Step {
    Step::Create { spec, words: Vec::new(), refused: false }
}

fn set(field: &Field, value: Value, words: Vec<String>) -> Step {
    Step::Set { at: field.at.clone(), value, words, refused: false }
}

fn spoil(field: &Field, bad: &Bad) -> Step {
    Step::Set { at: field.at.clone(), value: bad.value.clone(), words: bad.words.clone(), refused: bad.refused }
}

/// What users write beside jobs, and what they delete.
fn of_children() -> Vec<Sequence> {
    let create = || create(base());
    let width = |region: &str, width: Value, words: &[&str]| Step::Width {
        region: region.to_owned(),
        width,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
    };
    let bounded = |max: u32| {
        let spec = fields::merged(&base(), &json!({"parallelRegions": [{"name": "Clean", "maxWidth": max}]}));
        self::create(spec)
    };
    let out_of_bounds = || vec![bounded(3), width("Clean", json!(4), &["maxWidth", "3"])];
    let named = |name: &str, steps: Vec<Step>, end: End| Sequence { name: name.to_owned(), steps, end };
    let mut sequences = vec![
        named(
            "regions/changed",
            vec![
                create(),
                width("Clean", json!(4), &[]),
                width("Score.Model", json!(1), &[]),
                width("Clean", json!(2), &[]),
            ],
            End::Namespace,
        ),
        named(
            "regions/made invalid and corrected",
            vec![
                create(),
                width("Clean", json!(0), &["width"]),
                width("Clean", json!(10_001), &["width"]),
                width("Clean", json!("wide"), &["width"]),
                width("Clean", json!(3), &[]),
            ],
            End::Job(Propagation::Foreground),
        ),
        named(
            "regions/out of bounds, corrected by another width",
            [out_of_bounds(), vec![width("Clean", json!(3), &[])]].concat(),
            End::Job(Propagation::Background),
        ),
        named(
            "regions/out of bounds, corrected by other bounds",
            [
                out_of_bounds(),
                vec![Step::Set {
                    at: vec!["parallelRegions".to_owned()],
                    value: Value::Null,
                    words: Vec::new(),
                    refused: false,
                }],
            ]
            .concat(),
            End::Job(Propagation::Background),
        ),
        named("restarts/requested", vec![create(), Step::Restart, Step::Restart], End::Namespace),
    ];
    for child in [Child::Service, Child::ConfigMap, Child::Region, Child::ProcessingElement] {
        for (what, step) in [("lost", Step::Lose(child)), ("spoilt", Step::Spoil(child))] {
            let end = End::Job(Propagation::Foreground);
            sequences.push(named(&format!("children/{child:?} {what}"), vec![create(), step], end));
        }
    }
    for propagation in [Propagation::Background, Propagation::Foreground, Propagation::Orphan] {
        let steps = vec![create(), Step::Again(propagation)];
        sequences.push(named(&format!("again/{propagation:?}"), steps, End::Namespace));
    }
    sequences
}

/// The random sequence of this number.
pub(super) fn random(seed: u64, number: u64, fields: &[Field]) -> Sequence {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
    // Only fields that need nothing else: any two of them go together.
    let tried = fields.iter().filter(|field| {
        let excluded =
            ["bundleName", "sabName", "checkpoint", "threadingModel", "fusion", "runWithValgrind", "buildType"];
        !excluded.iter().any(|name| field.name.contains(name))
    });
    let free = tried.map(|field| (field, values::of(field))).filter(|(_, values)| values.context == json!({}));
    let free: Vec<_> = free.filter(|(_, values)| !values.good.is_empty()).collect();
    let mut spec = base();
    let mut steps = Vec::new();
    for _ in 0..random.usize(0..4) {
        if let Some((field, values)) = random.choice(&free)
            && let Some(value) = random.choice(&values.good)
        {
            spec = fields::merged(&spec, &fields::patch(&field.at, value));
        }
    }
    steps.push(create(spec));
    for _ in 0..random.usize(2..7) {
        match random.u8(0..100) {
            0..45 => {
                if let Some((field, values)) = random.choice(&free)
                    && let Some(value) = random.choice(&values.good)
                {
                    steps.push(set(field, value.clone(), Vec::new()));
                }
            }
            45..65 => {
                if let Some((field, values)) = random.choice(&free)
                    && let Some(bad) = random.choice(&values.bad)
                    && let Some(good) = random.choice(&values.good)
                {
                    steps.push(spoil(field, bad));
                    let correction = if random.bool() { good.clone() } else { Value::Null };
                    let correction = if field.at == ["bundle", "file"] { good.clone() } else { correction };
                    steps.push(set(field, correction, Vec::new()));
                }
            }
            65..72 => {
                if let Some((field, _)) = random.choice(&free)
                    && field.at != ["bundle", "file"]
                {
                    steps.push(set(field, Value::Null, Vec::new()));
                }
            }
            72..82 => {
                let region = random.choice(["Clean", "Score", "Score.Model"]).unwrap_or("Clean").to_owned();
                steps.push(Step::Width { region, width: json!(random.u32(1..4)), words: Vec::new() });
            }
            82..88 => steps.push(Step::Restart),
            88..93 => {
                let child = random.choice([Child::Service, Child::ConfigMap, Child::Region, Child::ProcessingElement]);
                steps.extend(child.map(Step::Lose));
            }
            _ => {
                let propagation = random.choice([Propagation::Background, Propagation::Foreground]);
                steps.extend(propagation.map(Step::Again));
            }
        }
    }
    let end = match random.u8(0..3) {
        0 => End::Namespace,
        1 => End::Job(Propagation::Background),
        _ => End::Job(Propagation::Foreground),
    };
    Sequence { name: format!("random/{number}"), steps, end }
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

/// Secrets that a namespace of a run has.
pub(super) fn secrets() -> [Value; 1] {
    [json!({"metadata": {"name": EXISTING}, "stringData": {"token": "t", "password": "p"}})]
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

    #[test]
    fn a_random_sequence_follows_from_seed_and_number_and_can_be_written_down() {
        let fields = of_spec("Job").unwrap();
        let one = |seed, number| random(seed, number, &fields);
        assert_eq!(one(1, 7), one(1, 7));
        assert_ne!(one(1, 7), one(1, 8));
        assert_ne!(one(1, 7).steps, one(2, 7).steps);
        for number in 0..100 {
            let sequence = one(3, number);
            let text = serde_json::to_string(&sequence).unwrap();
            assert_eq!(serde_json::from_str::<Sequence>(&text).unwrap(), sequence);
            assert!(matches!(sequence.steps.first(), Some(Step::Create { .. })));
            assert!(
                shorter(&sequence).iter().all(|shorter| matches!(shorter.steps.first(), Some(Step::Create { .. })))
            );
        }
    }
}
