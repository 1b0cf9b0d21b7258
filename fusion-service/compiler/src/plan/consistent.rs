//! Consistent regions of a plan: what the runtime's controller of consistent regions needs (rule element-19).

use crate::budget::{Budget, Pace};
use crate::elements::Elements;
use crate::error::{Error, Problem, Problems, Stage, excerpt};
use crate::logical::submission::Bindings;
use crate::logical::{Annotation, OperatorId};
use crate::topology::Topology;
use get_size2::GetSize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

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
    budget: &Budget,
) -> Result<Vec<PlannedConsistentRegion>, Error> {
    let topology = elements.topology();
    let mut problems = Problems::default();
    let mut pace = budget.pace();
    let mut declarations = Declarations { topology, bindings, known: BTreeMap::new(), settings: BTreeMap::new() };
    let mut regions = Vec::with_capacity(topology.consistent_regions.len());
    for region in &topology.consistent_regions {
        pace.steps(u32::try_from(region.members.len()).unwrap_or(u32::MAX))?;
        match declarations.settings(region.declaration, region.logical_index, &mut pace)? {
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
            // All regions of a declaration have the same.
            Err(declared) => problems.extend(declared.iter().cloned()),
        }
    }
    problems.into_result().map(|()| regions)
}

/// What an annotation declares, or what is wrong with it.
type Declared = Result<DeclaredSettings, Vec<Problem>>;

/// Declarations of consistent regions. Channels have regions of their own of one declaration, and the composite that
/// declares it may have any number of annotations. So these are gone through once, and each declaration is read once.
struct Declarations<'t> {
    topology: &'t Topology,
    bindings: &'t Bindings,
    /// Annotations that declare regions, by composite and index.
    known: BTreeMap<OperatorId, BTreeMap<u64, &'t Annotation>>,
    settings: BTreeMap<(Option<OperatorId>, u64), Declared>,
}

impl<'t> Declarations<'t> {
    /// The settings of the regions with this index, which this composite declares.
    ///
    /// # Errors
    ///
    /// The budget ends.
    fn settings(
        &mut self,
        composite: Option<OperatorId>,
        logical_index: u64,
        pace: &mut Pace<'_>,
    ) -> Result<&Declared, Error> {
        let annotation = match composite {
            Some(composite) => self.of(composite, pace)?.get(&logical_index).copied(),
            None => None,
        };
        Ok(match self.settings.entry((composite, logical_index)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                unknown.insert(DeclaredSettings::read(annotation, logical_index, self.bindings, pace)?)
            }
        })
    }

    /// What a composite declares. Of several annotations of an index, the first counts.
    fn of(&mut self, composite: OperatorId, pace: &mut Pace<'_>) -> Result<&BTreeMap<u64, &'t Annotation>, Error> {
        Ok(match self.known.entry(composite) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let topology: &'t Topology = self.topology;
                let written = topology.application.operators.get(composite);
                let mut declared = BTreeMap::new();
                for annotation in written.into_iter().flat_map(|written| &written.annotations) {
                    pace.step()?;
                    if annotation.tag != "consistentRegion" {
                        continue;
                    }
                    let index = value(annotation, "index", self.bindings, pace)?;
                    if let Some(index) = index.and_then(|text| text.parse::<u64>().ok()) {
                        declared.entry(index).or_insert(annotation);
                    }
                }
                unknown.insert(declared)
            }
        })
    }
}

struct DeclaredSettings {
    trigger: Trigger,
    drain_timeout: f64,
    reset_timeout: f64,
    attempts: u32,
}

impl DeclaredSettings {
    /// Reads an annotation; of a repeated key the last value counts.
    ///
    /// # Errors
    ///
    /// The budget ends.
    fn read(
        annotation: Option<&Annotation>,
        logical_index: u64,
        bindings: &Bindings,
        pace: &mut Pace<'_>,
    ) -> Result<Declared, Error> {
        let mut problems = Vec::new();
        let problem = |what: &str| {
            let message = format!("consistent region {logical_index}: {what}");
            Problem::new(Stage::ConsistentRegions, message)
        };
        let Some(annotation) = annotation else { return Ok(Err(vec![problem("nothing declares it")])) };
        let mut required = |key: &'static str, is_number: fn(&str) -> bool, pace: &mut Pace<'_>| {
            let what = match value(annotation, key, bindings, pace)? {
                None => format!("{key} is missing"),
                Some(text) if !is_number(text.trim()) => format!("{key} \"{}\" is no number", excerpt(text)),
                Some(text) => return Ok(text.trim()),
            };
            problems.push(problem(&what).at(annotation.place));
            Ok::<_, Error>("")
        };
        let attempts = required("maxConsecutiveResetAttempts", |text| text.parse::<u32>().is_ok(), pace)?;
        let mut seconds = |key: &'static str, pace: &mut Pace<'_>| -> Result<f64, Error> {
            let text = required(key, |text| text.parse().is_ok_and(f64::is_finite), pace)?;
            Ok(text.parse().unwrap_or_default())
        };
        let declaration = Self {
            trigger: match value(annotation, "trigger", bindings, pace)? {
                Some("periodic") => Trigger::Periodic(seconds("period", pace)?),
                _ => Trigger::OperatorDriven,
            },
            drain_timeout: seconds("drainTimeout", pace)?,
            reset_timeout: seconds("resetTimeout", pace)?,
            attempts: attempts.parse().unwrap_or_default(),
        };
        Ok(if problems.is_empty() { Ok(declaration) } else { Err(problems) })
    }
}

/// The value of an annotation's key; of a repeated key the last one.
///
/// # Errors
///
/// The budget ends: annotations may have many values, and many annotations the same long submission-time value.
fn value<'t>(
    annotation: &'t Annotation,
    key: &str,
    bindings: &'t Bindings,
    pace: &mut Pace<'_>,
) -> Result<Option<&'t str>, Error> {
    pace.steps(u32::try_from(annotation.values.len()).unwrap_or(u32::MAX))?;
    let Some((_, text)) = annotation.values.iter().rev().find(|(name, _)| name == key) else { return Ok(None) };
    let text = match text.submission_value {
        None => Some(text.literal.as_str()),
        Some(index) => bindings.literal(index).unquoted(),
    };
    // Whoever asks reads a number of as many digits.
    pace.steps(text.map_or(0, |text| u32::try_from(text.len() >> 5).unwrap_or(u32::MAX)))?;
    Ok(text)
}
