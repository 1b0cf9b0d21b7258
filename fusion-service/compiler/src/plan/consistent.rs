//! Consistent regions of a plan: what the runtime's controller of consistent regions needs (rule element-19).

use crate::elements::Elements;
use crate::error::{Error, Problem, Problems, Stage, excerpt};
use crate::logical::submission::Bindings;
use crate::logical::{Annotation, OperatorId};
use crate::topology::Topology;
use get_size2::GetSize;
use std::collections::BTreeSet;

/// A consistent region.
#[derive(Clone, Debug, PartialEq, GetSize)]
pub struct PlannedConsistentRegion {
    /// Index: the smallest of those merged.
    pub index: u64,
    /// Index of its declaration.
    pub logical_index: u64,
    /// Periodic, or driven by an operator.
    pub trigger: Trigger,
    /// Seconds to drain.
    pub drain_timeout: f64,
    /// Seconds to reset.
    pub reset_timeout: f64,
    /// Attempts to reset before giving up.
    pub max_consecutive_reset_attempts: u32,
    /// Ids of PEs with a member, ascending.
    pub pe_ids: Vec<u64>,
    /// Members, ascending operator index.
    pub members: Vec<RegionMember>,
}

/// What makes a region save its state.
#[derive(Clone, Copy, Debug, PartialEq, GetSize)]
pub enum Trigger {
    /// Every so many seconds.
    Periodic(f64),
    /// An operator.
    OperatorDriven,
}

impl Trigger {
    /// The name that the runtime knows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Periodic(_) => "periodic",
            Self::OperatorDriven => "operator driven",
        }
    }

    /// Seconds; 0 where there is no period.
    pub fn period(self) -> f64 {
        match self {
            Self::Periodic(period) => period,
            Self::OperatorDriven => 0.0,
        }
    }
}

/// An operator of a region.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct RegionMember {
    /// Physical name.
    pub operator: String,
    /// Starts the region.
    pub is_start: bool,
    /// May trigger it.
    pub is_trigger: bool,
}

/// The regions of a job, ascending index.
///
/// # Errors
///
/// Stage `consistent-regions`: a declaration lacks a value, or one of its numbers is malformed.
pub(super) fn consistent_regions(
    elements: &Elements,
    bindings: &Bindings,
) -> Result<Vec<PlannedConsistentRegion>, Error> {
    let topology = elements.topology();
    let mut problems = Problems::default();
    let mut regions = Vec::with_capacity(topology.consistent_regions.len());
    for region in &topology.consistent_regions {
        match DeclaredSettings::find(topology, region.declaration, region.logical_index, bindings) {
            Ok(declaration) => {
                let pe_ids: BTreeSet<u64> =
                    region.members.iter().map(|(node, _, _)| elements.id(elements.partition().pe(*node))).collect();
                let member = |(node, is_start, is_trigger): &(crate::topology::Node, bool, bool)| RegionMember {
                    operator: topology.operators[*node].name.clone(),
                    is_start: *is_start,
                    is_trigger: *is_trigger,
                };
                regions.push(PlannedConsistentRegion {
                    index: region.index,
                    logical_index: region.logical_index,
                    trigger: declaration.trigger,
                    drain_timeout: declaration.drain_timeout,
                    reset_timeout: declaration.reset_timeout,
                    max_consecutive_reset_attempts: declaration.attempts,
                    pe_ids: pe_ids.into_iter().collect(),
                    members: region.members.iter().map(member).collect(),
                });
            }
            Err(declared) => problems.extend(declared),
        }
    }
    problems.into_result().map(|()| regions)
}

struct DeclaredSettings {
    trigger: Trigger,
    drain_timeout: f64,
    reset_timeout: f64,
    attempts: u32,
}

impl DeclaredSettings {
    fn find(
        topology: &Topology,
        composite: Option<OperatorId>,
        logical_index: u64,
        bindings: &Bindings,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let problem = |what: &str| {
            let message = format!("consistent region {logical_index}: {what}");
            Problem::new(Stage::ConsistentRegions, message)
        };
        let written = composite.and_then(|composite| topology.application.operators.get(composite));
        let values = |annotation: &Annotation, key: &str| value(annotation, key, bindings);
        let annotation = written
            .and_then(|composite| {
                composite.annotations.iter().find(|annotation| {
                    let index = values(annotation, "index").and_then(|text| text.parse::<u64>().ok());
                    annotation.tag == "consistentRegion" && index == Some(logical_index)
                })
            })
            .ok_or_else(|| vec![problem("nothing declares it")])?;
        let mut required = |key: &'static str, is_number: fn(&str) -> bool| {
            let what = match values(annotation, key) {
                None => format!("{key} is missing"),
                Some(text) if !is_number(text.trim()) => format!("{key} \"{}\" is no number", excerpt(&text)),
                Some(text) => return text,
            };
            problems.push(problem(&what).at(annotation.place));
            String::new()
        };
        let attempts = required("maxConsecutiveResetAttempts", |text| text.parse::<u32>().is_ok());
        let mut seconds = |key: &'static str| -> f64 {
            let text = required(key, |text| text.parse().is_ok_and(f64::is_finite));
            text.trim().parse().unwrap_or_default()
        };
        let declaration = Self {
            trigger: match values(annotation, "trigger").as_deref() {
                Some("periodic") => Trigger::Periodic(seconds("period")),
                _ => Trigger::OperatorDriven,
            },
            drain_timeout: seconds("drainTimeout"),
            reset_timeout: seconds("resetTimeout"),
            attempts: attempts.trim().parse().unwrap_or_default(),
        };
        if problems.is_empty() { Ok(declaration) } else { Err(problems) }
    }
}

/// The value of an annotation's key; of a repeated key the last one.
fn value(annotation: &Annotation, key: &str, bindings: &Bindings) -> Option<String> {
    let (_, text) = annotation.values.iter().rev().find(|(name, _)| name == key)?;
    match text.submission_value {
        None => Some(text.literal.clone()),
        Some(index) => bindings.literal(index).unquoted().map(str::to_owned),
    }
}
