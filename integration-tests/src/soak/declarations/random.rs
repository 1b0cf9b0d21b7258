//! Random sequences: fields, widths, requests to PEs, losses and spoils in any order, one after the other or at once.
//! The same seed and number give the same sequence.

use super::children::Child;
use super::fields::{self, Field};
use super::propagation::Propagation;
use super::sequence::{End, Sequence, Step, base, base_for, base_of_all_kinds, create, set, spoil};
use super::spoils;
use super::values::{self, EXISTING, REDIS, Values};
use fastrand::Rng;
use serde_json::{Value, json};

/// Fields that exclude another one which is tried, and bounds of regions: whether a width is in force or refused then
/// depends on what came first.
const EXCLUDED: [&str; 10] = [
    "processingElement.bundleName",
    "processingElement.buildType",
    "processingElement.checkpointDataStore",
    "processingElement.resources.limits",
    "resources.requests",
    "fusion.automatic",
    "fusion.legacy",
    "threadingModel",
    "parallelRegions[].minWidth",
    "parallelRegions[].maxWidth",
];

/// What jobs begin with; fields that need such a thing are tried with it only.
fn bases() -> [Value; 7] {
    let [(service, _), ..] = REDIS;
    let more = |element: Value| base_for(&json!({ "processingElement": element }));
    let claim = json!({"name": EXISTING});
    [
        base(),
        base(),
        base_of_all_kinds(),
        more(json!({"transportSecurityType": "TLSv1.2"})),
        more(json!({"checkpointRepository": {"redis": {"service": service, "replicaCount": 1, "shardCount": 1}}})),
        more(json!({"checkpointRepository": {"fileSystem": {"volumeClaim": claim}}, "dataVolumeClaim": claim})),
        base_for(&json!({"rollout": {"maxUnavailable": 1}, "fusion": {"manual": null, "legacy": true}})),
    ]
}

/// What a sequence is made from.
struct Maker<'a> {
    random: Rng,
    free: Vec<(&'a Field, Values)>,
    regions: &'static [&'static str],
    /// How many objects are changed by somebody who should not: if one was changed more often, its restoration would
    /// wait.
    spoils: usize,
}

/// The random sequence of this number.
pub(super) fn random(seed: u64, number: u64, fields: &[Field]) -> Sequence {
    let mut random = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let mut spec = random.choice(bases()).unwrap_or_else(base);
    let has_all_kinds = spec["bundle"] == base_of_all_kinds()["bundle"];
    let regions: &[&str] = if has_all_kinds { &[] } else { &["Clean", "Score", "Score.Model"] };
    let is_legacy = spec["fusion"].get("manual").is_none();
    let of_other_application = ["bundle.", "parallelRegions", "submissionTimeValues"];
    let is_tried = |field: &&Field| {
        let begins = |excluded: &str| field.name.starts_with(excluded);
        let is_excluded = EXCLUDED.into_iter().any(begins)
            || (has_all_kinds && of_other_application.into_iter().any(begins))
            || (is_legacy && begins("fusion."))
            // Where checkpoints are kept is said once.
            || (field.name.contains("checkpointRepository") && !is_there(&spec, field));
        !is_excluded
    };
    let tried = fields.iter().filter(is_tried).map(|field| (field, values::of(field)));
    let free: Vec<_> =
        tried.filter(|(_, values)| fields::merged(&spec, &values.context) == spec && !values.good.is_empty()).collect();
    let mut maker = Maker { random, free, regions, spoils: 2 };
    for _ in 0..maker.random.usize(0..4) {
        if let Some((field, value)) = maker.good() {
            spec = fields::merged(&spec, &fields::patch(&field.at, &value));
        }
    }
    let mut steps = vec![create(spec)];
    if maker.random.u8(0..6) == 0 {
        let meanwhile = maker.hurried();
        steps = vec![Step::Together(steps.into_iter().chain(meanwhile).collect())];
    }
    for _ in 0..maker.random.usize(2..7) {
        let more = maker.steps();
        steps.extend(more);
    }
    let end = match maker.random.u8(0..3) {
        0 => End::Namespace,
        1 => End::Job(Propagation::Background),
        _ => End::Job(Propagation::Foreground),
    };
    Sequence { name: format!("random/{number}"), steps, end }
}

/// Whether a spec has what a field is in.
fn is_there(spec: &Value, field: &Field) -> bool {
    let around = field.at.split_last().map_or(&[][..], |(_, around)| around);
    around.iter().try_fold(spec, |value, key| value.get(key)).is_some()
}

impl Maker<'_> {
    fn good(&mut self) -> Option<(&Field, Value)> {
        let (field, values) = self.random.choice(&self.free)?;
        Some((field, self.random.choice(&values.good)?.clone()))
    }

    fn set(&mut self) -> Option<Step> {
        self.good().map(|(field, value)| set(field, value))
    }

    fn width(&mut self) -> Option<Step> {
        let region = (*self.random.choice(self.regions)?).to_owned();
        Some(Step::Width { region, width: json!(self.random.u32(1..4)), words: Vec::new() })
    }

    /// A bad value, perhaps something else meanwhile, and what corrects it.
    fn mistake(&mut self) -> Vec<Step> {
        let Some((field, values)) = self.random.choice(&self.free) else { return Vec::new() };
        let (Some(bad), Some(good)) = (self.random.choice(&values.bad), self.random.choice(&values.good)) else {
            return Vec::new();
        };
        let may_go = field.at != ["bundle", "file"] && self.random.bool();
        let correction = if may_go { Value::Null } else { good.clone() };
        let (mistake, correction) = (spoil(field, bad), set(field, correction));
        let meanwhile = match self.random.u8(0..4) {
            0 => self.width(),
            // Two mistakes of one field are another matter.
            1 => self.set().filter(|step| !is_of(step, &mistake)),
            _ => None,
        };
        [mistake].into_iter().chain(meanwhile).chain([correction]).collect()
    }

    /// Somebody changes an annotation by which the operator tells what it has written, perhaps beside an edit of what
    /// pods have only when they start.
    fn change_of_others(&mut self) -> Vec<Step> {
        let kinds = [Child::Service, Child::ConfigMap, Child::JobConfigMap, Child::ProcessingElement];
        let child = self.random.choice(kinds).unwrap_or(Child::Service);
        let Some((at, values)) = self.random.choice(spoils::annotations(child)) else { return Vec::new() };
        if self.spoils == 0 {
            return Vec::new();
        }
        self.spoils -= 1;
        let spoil = Step::Spoil { child, number: self.random.usize(0..3), at, values };
        let is_option = |step: &Step| matches!(step, Step::Set { at, .. } if at[0] == "processingElement");
        match self.set().filter(is_option) {
            Some(edit) => vec![Step::Together(vec![spoil, edit])],
            None => vec![spoil],
        }
    }

    /// Steps that may come at once with others.
    fn hurried(&mut self) -> Vec<Step> {
        let number = self.random.usize(2..5);
        (0..number)
            .filter_map(|_| match self.random.u8(0..10) {
                0..5 => self.set(),
                5..9 => self.width(),
                _ => Some(Step::Restart),
            })
            .collect()
    }

    fn steps(&mut self) -> Vec<Step> {
        match self.random.u8(0..100) {
            0..25 => self.set().into_iter().collect(),
            25..45 => self.mistake(),
            45..60 => vec![Step::Together(self.hurried())],
            60..66 => match self.good() {
                Some((field, _)) if field.at != ["bundle", "file"] => vec![set(field, Value::Null)],
                _ => Vec::new(),
            },
            66..76 => self.width().into_iter().collect(),
            76..80 => vec![Step::Restart],
            80..85 => {
                let pe = self.random.usize(0..3);
                let meanwhile = if self.random.bool() { self.set() } else { None };
                [Step::Stop(pe)].into_iter().chain(meanwhile).chain([Step::Go(pe)]).collect()
            }
            85..89 => self.change_of_others(),
            89..95 => {
                let kinds =
                    [Child::Service, Child::ConfigMap, Child::JobConfigMap, Child::Region, Child::ProcessingElement];
                let child = self.random.choice(kinds).unwrap_or(Child::Service);
                let propagation = if self.random.bool() { Propagation::Background } else { Propagation::Foreground };
                vec![Step::Lose(child, propagation)]
            }
            _ => {
                let propagation = self.random.choice([Propagation::Background, Propagation::Foreground]);
                propagation.map(Step::Again).into_iter().collect()
            }
        }
    }
}

/// Whether two steps write one place, or one a place in that of the other.
fn is_of(one: &Step, other: &Step) -> bool {
    match (one, other) {
        (Step::Set { at: one, .. }, Step::Set { at: other, .. }) => one.starts_with(other) || other.starts_with(one),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::of_spec;
    use super::super::sequence::shorter;
    use super::*;
    use std::collections::BTreeSet;

    fn begins_with_a_job(sequence: &Sequence) -> bool {
        match sequence.steps.first() {
            Some(Step::Together(steps)) => matches!(steps.first(), Some(Step::Create { .. })),
            first => matches!(first, Some(Step::Create { .. })),
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
            assert!(begins_with_a_job(&sequence));
            assert!(shorter(&sequence).iter().all(begins_with_a_job));
        }
    }

    #[test]
    fn every_field_that_is_not_excluded_comes_up() {
        let fields = of_spec("Job").unwrap();
        let text: String =
            (0..1_500).map(|number| serde_json::to_string(&random(1, number, &fields).steps).unwrap()).collect();
        let last = |field: &Field| format!("\"{}\"", field.at.last().unwrap());
        let known: BTreeSet<_> = fields.iter().map(last).filter(|name| text.contains(name)).collect();
        let missing: Vec<_> = fields
            .iter()
            .filter(|field| !EXCLUDED.iter().any(|name| field.name.starts_with(name)) && !known.contains(&last(field)))
            .map(|field| field.name.as_str())
            .collect();
        // A URL is a bundle of its own, of which the base has none; three redis servers are tried alone.
        let alone = ["bundle.secret", "bundle.url"];
        assert!(missing.iter().all(|name| alone.contains(name) || name.contains("redis")), "{missing:?}");
    }
}
