//! Parts of a spec that are there and empty, or gone as a whole.

use super::fields::{merged, patch, sections_of_spec};
use super::propagation::Propagation;
use super::sequence::{End, Sequence, Step, base, create};
use anyhow::Result;
use serde_json::{Value, json};

/// Sections that say nothing when they are empty, by their last part, and the words by which a user is told. Without a
/// volume claim the cluster has nowhere for checkpoints.
const MEANINGLESS: [(&str, &str); 7] = [
    ("bundle", "bundle"),
    ("checkpointRepository", "checkpointRepository"),
    ("checkpointDataStore", "checkpointDataStore"),
    ("fileSystem", "checkpoint"),
    ("redis", "redis"),
    ("dataVolumeClaim", "dataVolumeClaim"),
    ("volumeClaim", "volumeClaim"),
];

/// Each of them, from the beginning and by edits.
///
/// # Errors
/// When there is no schema.
pub(super) fn all() -> Result<Vec<Sequence>> {
    let mut sequences = Vec::new();
    for at in sections_of_spec("Job")? {
        let (name, last) = (at.join("."), at.last().cloned().unwrap_or_default());
        let empty = if last == "parallelRegions" { json!([]) } else { json!({}) };
        let words = MEANINGLESS.iter().filter(|(section, _)| *section == last);
        let words: Vec<String> = words.map(|(_, word)| (*word).to_owned()).collect();
        let set = |value: Value, words: Vec<String>| Step::Set { at: at.clone(), value, words, refused: false };
        // What the base has there goes first: a merge patch would leave it.
        let spec = merged(&merged(&base(), &patch(&at, &Value::Null)), &patch(&at, &empty));
        let begun = match words.is_empty() {
            true => create(spec),
            false => Step::Create { spec, words: words.clone(), refused: false },
        };
        // What is around something meaningless would be so without it.
        let around: Vec<String> = at.iter().take(2).cloned().collect();
        let value = if last == "bundle" { base()["bundle"].clone() } else { Value::Null };
        let corrected = Step::Set { at: around, value, words: Vec::new(), refused: false };
        let edited = vec![create(base()), set(Value::Null, Vec::new()), set(empty, words), corrected.clone()];
        sequences.push(Sequence {
            name: format!("sections/{name} empty from the beginning"),
            steps: vec![begun, corrected],
            end: End::Job(Propagation::Background),
        });
        sequences.push(Sequence { name: format!("sections/{name} emptied"), steps: edited, end: End::Namespace });
    }
    Ok(sequences)
}
