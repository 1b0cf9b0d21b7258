//! One PE of a plan: what the PE controller needs besides the document.
//!
//! Knows: PEs with their ports, the topology. Must not know: ConfigMaps, pods, how documents are written.

use super::placement::{self, Placement};
use super::plan_texts::{PlanTexts, bytes_of, bytes_of_export, bytes_of_imports};
use super::reason::Reason;
use crate::aadl::Measure;
use crate::budget::{Budget, Pace};
use crate::elements::Elements;
use crate::error::{Error, Problem, Problems, Stage, excerpt};
use crate::fuser::{Pe, PeInput, PeOutput};
use crate::heap::sorted_map;
use crate::logical::OperatorId;
use crate::shared::Shared;
use crate::topology::{EvaluatedExport, EvaluatedImports, PhysicalOperator, Via};
use get_size2::GetSize;
use serde::Serialize;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Deref;

/// A PE of a plan: its document, and what the plan does to it.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct PlannedElement {
    /// Id, unique in the job.
    pub id: u64,
    /// SHA-256 of its document.
    pub content_id: [u8; 32],
    /// SHA-256 of what a running PE can observe of its document.
    pub runtime_id: [u8; 32],
    /// Bytes of its document.
    pub bytes: u64,
    /// What becomes of it.
    pub fate: Fate,
    /// Why a resize adds or restarts it; none otherwise. It is boxed because most PEs have none.
    pub reason: Option<Box<Reason>>,
    /// Everything else. Generations share it as long as it does not change.
    element: Shared<ProcessingElement>,
}

impl Deref for PlannedElement {
    type Target = ProcessingElement;

    fn deref(&self) -> &ProcessingElement {
        &self.element
    }
}

/// The operators and ports of a PE, and what its pod needs.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct ProcessingElement {
    /// Names of its operators, sorted.
    pub operators: Vec<String>,
    /// Indexes of its operators, ascending.
    pub operator_indexes: Vec<u32>,
    /// All its operators may be restarted.
    pub restartable: bool,
    /// Its input ports, ascending id.
    pub port_labels: Vec<PortLabel>,
    /// Its output ports with an exported stream, ascending id.
    pub exports: Vec<ExportedPort>,
    /// Its input ports with an import, ascending id.
    pub imports: Vec<ImportedPort>,
    /// Where its pod may run.
    pub placement: Placement,
    /// Environment variables that its operators ask for.
    #[get_size(size_fn = sorted_map)]
    pub environment: BTreeMap<String, String>,
    /// Indexes of the consistent regions that it takes part in.
    pub consistent_regions: Vec<u64>,
    /// What its texts count for.
    text_bytes: u64,
}

impl PlannedElement {
    /// What identifies its document.
    pub(super) fn measure(&self) -> Measure {
        Measure { content_id: self.content_id, runtime_id: self.runtime_id, bytes: self.bytes }
    }

    /// Says which document it has.
    pub(super) fn set_measure(&mut self, Measure { content_id, runtime_id, bytes }: Measure) {
        (self.content_id, self.runtime_id, self.bytes) = (content_id, runtime_id, bytes);
    }
}

/// What a resize does to a PE (rule layout-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, GetSize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// New.
    Added,
    /// Goes on, and its document is the same.
    Kept,
    /// Goes on. Its document changed only in parts that a running PE does not read.
    KeptUnobservable,
    /// Its pod is replaced by one with another document.
    Restarted,
}

/// How senders find an input port (rule element-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub struct PortLabel {
    /// Id of the PE's input port.
    pub port_id: u32,
    /// Operator behind it.
    pub operator_index: u32,
    /// ADL index of the operator's input port.
    pub operator_port: u64,
}

impl PortLabel {
    /// `<job>.<operator>.<port>`: what a sender looks up.
    pub fn operator_label(&self, job_id: u64) -> String {
        format!("{job_id}.{}.{}", self.operator_index, self.operator_port)
    }

    /// `<pe>.<port id>@<job>`: what the sender finds.
    pub fn pe_label(&self, pe_id: u64, job_id: u64) -> String {
        format!("{pe_id}.{}@{job_id}", self.port_id)
    }
}

/// An output port with an exported stream.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct ExportedPort {
    /// Id of the PE's output port.
    pub port_id: u32,
    /// Operator behind it.
    pub operator_index: u32,
    /// ADL index of the operator's output port.
    pub operator_port: u64,
    /// Channel, unless the port is taken directly.
    pub via: Option<Via>,
    /// What is exported.
    pub export: EvaluatedExport,
}

/// An input port with an import.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct ImportedPort {
    /// Id of the PE's input port.
    pub port_id: u32,
    /// Operator behind it.
    pub operator_index: u32,
    /// ADL index of the operator's input port.
    pub operator_port: u64,
    /// What is imported.
    pub imports: EvaluatedImports,
}

/// What the pod of a PE gets from the operators in it.
#[derive(Default)]
pub(super) struct PodNeeds {
    placement: Placement,
    environment: BTreeMap<String, String>,
}

/// Collects what the pods of these PEs get.
///
/// # Errors
///
/// Stages `host-placement` and `host-pool-location`: operators of a PE have different placements. Stage `aadl`:
/// operators of a PE ask for different values of an environment variable. Stage `topology`: the texts are too many.
pub(super) fn pod_needs(elements: &Elements, pes: &[Pe], budget: &Budget) -> Result<Vec<PodNeeds>, Error> {
    let mut problems = Problems::default();
    let mut texts = PlanTexts::new(&budget.limits);
    let mut pace = budget.pace();
    let placements = problems.keep(placement::placements(elements, pes, &mut texts, &mut pace))?.unwrap_or_default();
    let mut variables = Variables { elements, known: HashMap::new() };
    let environments = pes.iter().map(|&pe| variables.environment(pe, &mut texts, &mut problems, &mut pace));
    let environments = environments.collect::<Result<Vec<_>, Error>>();
    let environments = problems.keep(environments)?.unwrap_or_default();
    problems.into_result()?;
    let needs = |(placement, environment)| PodNeeds { placement, environment };
    Ok(placements.into_iter().zip(environments).map(needs).collect())
}

/// Makes the entries of all PEs, ascending id. A PE for which `unchanged` has an entry keeps that entry. The others
/// count as added, and do not know their documents yet; `needs` has what their pods get, in order.
///
/// # Errors
///
/// Stage `topology`: the texts of all PEs are too many. Those of PEs that keep their entry count as well, because no
/// answer depends on what is known already.
pub(super) fn processing_elements<'b>(
    elements: &Elements,
    unchanged: impl Fn(usize) -> Option<&'b PlannedElement>,
    needs: Vec<PodNeeds>,
    budget: &Budget,
) -> Result<Vec<PlannedElement>, Error> {
    let topology = elements.topology();
    let mut pace = budget.pace();
    let mut list = Vec::with_capacity(elements.pes().len());
    let mut needs = needs.into_iter();
    let mut texts = PlanTexts::new(&budget.limits);
    for (position, &pe) in elements.pes().iter().enumerate() {
        if let Some(known) = unchanged(position) {
            texts.add(known.text_bytes)?;
            list.push(PlannedElement { fate: Fate::Kept, reason: None, element: known.element.clone(), ..*known });
            continue;
        }
        let PodNeeds { placement, environment } = needs.next().unwrap_or_default();
        let members = elements.members(pe);
        pace.steps(u32::try_from(members.len() * 8).unwrap_or(u32::MAX))?;
        let names = bytes_of(members.iter().map(|&node| topology.operators[node].name.as_str()));
        let environment_bytes = environment.iter().map(|(name, value)| bytes_of([name.as_str(), value.as_str()]));
        let needs_bytes = placement.text_bytes() + environment_bytes.sum::<u64>();
        let text_bytes = names + needs_bytes + bytes_of_streams(elements, pe);
        texts.add(text_bytes)?;
        let mut operators: Vec<String> = members.iter().map(|&node| topology.operators[node].name.clone()).collect();
        operators.sort_unstable();
        let regions: BTreeSet<u64> =
            members.iter().filter_map(|&node| topology.operators[node].consistent_region).collect();
        let (port_labels, imports) = inputs(elements, pe);
        let element = Shared::new(ProcessingElement {
            operators,
            operator_indexes: members.iter().map(|&node| topology.operators[node].index).collect(),
            restartable: members.iter().all(|&node| {
                topology.operators[node].primitive(&topology.application).is_none_or(|primitive| primitive.restartable)
            }),
            port_labels,
            exports: exports(elements, pe),
            imports,
            placement,
            environment,
            consistent_regions: regions.into_iter().collect(),
            text_bytes,
        });
        let (id, fate, reason) = (elements.id(pe), Fate::Added, None);
        list.push(PlannedElement { id, content_id: [0; 32], runtime_id: [0; 32], bytes: 0, fate, reason, element });
    }
    Ok(list)
}

fn inputs(elements: &Elements, pe: Pe) -> (Vec<PortLabel>, Vec<ImportedPort>) {
    let topology = elements.topology();
    let (mut labels, mut imported) = (Vec::new(), Vec::new());
    for (port_id, port) in elements.input_ports(pe) {
        let operator = &topology.operators[port.operator];
        let (operator_index, operator_port) = (operator.index, elements.input_index(port.operator, port.port));
        labels.push(PortLabel { port_id, operator_index, operator_port });
        if let Some(imports) = imports_of(operator, port) {
            imported.push(ImportedPort { port_id, operator_index, operator_port, imports: imports.clone() });
        }
    }
    labels.sort_unstable_by_key(|label| label.port_id);
    imported.sort_unstable_by_key(|port| port.port_id);
    (labels, imported)
}

/// The imports of a port, if it has any.
fn imports_of(operator: &PhysicalOperator, port: PeInput) -> Option<&EvaluatedImports> {
    let imports = operator.inputs.get(port.port as usize)?.imports.as_deref()?;
    Some(imports).filter(|imports| !imports.by_name.is_empty() || imports.by_properties.is_some())
}

fn exports(elements: &Elements, pe: Pe) -> Vec<ExportedPort> {
    let topology = elements.topology();
    // Channel ports of an exported port carry the export too (rule element-16).
    let mut exports: Vec<ExportedPort> = exporting(elements, pe)
        .map(|(port_id, port, export)| ExportedPort {
            port_id,
            operator_index: topology.operators[port.operator].index,
            operator_port: elements.output_index(port.operator, port.port),
            via: port.via,
            export: export.clone(),
        })
        .collect();
    exports.sort_unstable_by_key(|port| port.port_id);
    exports
}

/// The output ports of a PE with an exported stream, and their ids.
fn exporting(elements: &Elements, pe: Pe) -> impl Iterator<Item = (u32, PeOutput, &EvaluatedExport)> {
    let topology = elements.topology();
    let members = elements.members(pe).iter();
    // Most PEs have none. Then their ports need not be gone through.
    let some = members.flat_map(|&node| &topology.operators[node].outputs).any(|output| output.export.is_some());
    some.then(|| elements.output_ports(pe)).into_iter().flatten().filter_map(|(port_id, port)| {
        let output = topology.operators[port.operator].outputs.get(port.port as usize)?;
        Some((port_id, port, output.export.as_deref()?))
    })
}

/// What the texts of the exports and imports of a PE count for.
fn bytes_of_streams(elements: &Elements, pe: Pe) -> u64 {
    let operators = &elements.topology().operators;
    let imports = elements.input_ports(pe).filter_map(|(_, port)| imports_of(&operators[port.operator], port));
    let exports = exporting(elements, pe).map(|(_, _, export)| bytes_of_export(export));
    imports.map(bytes_of_imports).chain(exports).sum()
}

/// The environment variables that operators ask for, each pair of name and value once. An operator may write them any
/// number of times, and there may be a PE for each of its channels.
struct Variables<'t> {
    elements: &'t Elements,
    known: HashMap<OperatorId, Vec<(&'t str, &'t str)>>,
}

impl<'t> Variables<'t> {
    /// Variables of all operators of a PE (rule element-18).
    ///
    /// # Errors
    ///
    /// Stage `topology`: the texts are too many. The budget ends.
    fn environment(
        &mut self,
        pe: Pe,
        texts: &mut PlanTexts,
        problems: &mut Problems,
        pace: &mut Pace<'_>,
    ) -> Result<BTreeMap<String, String>, Error> {
        let elements = self.elements;
        let topology = elements.topology();
        let mut environment: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        // All channels of an operator ask for the same.
        let mut seen: BTreeSet<OperatorId> = BTreeSet::new();
        for &node in elements.members(pe) {
            pace.step()?;
            let operator = &topology.operators[node];
            let Some(primitive) = operator.primitive(&topology.application) else { continue };
            if primitive.environment.is_empty() || !seen.insert(operator.logical) {
                continue;
            }
            for &(name, value) in self.of(operator.logical, &primitive.environment, pace)? {
                pace.step()?;
                let (known, by) = environment.entry(name).or_insert((value, &operator.name));
                if *known != value {
                    if problems.is_full() {
                        // Whatever else they ask for, the application is refused, with no room for another reason.
                        return Ok(BTreeMap::new());
                    }
                    let message = format!(
                        "PE {}: operators {} and {} ask for different values of the environment variable {}",
                        elements.id(pe),
                        excerpt(by),
                        excerpt(&operator.name),
                        excerpt(name)
                    );
                    let place = topology.application.operators[operator.logical].place;
                    problems.push(Problem::new(Stage::Aadl, message).at(place));
                }
            }
        }
        texts.add(bytes_of(environment.iter().flat_map(|(name, (value, _))| [*name, *value])))?;
        Ok(environment.into_iter().map(|(name, (value, _))| (name.to_owned(), value.to_owned())).collect())
    }

    /// The variables that an operator has `written`, in their order.
    fn of(
        &mut self,
        operator: OperatorId,
        written: &'t [(String, String)],
        pace: &mut Pace<'_>,
    ) -> Result<&[(&'t str, &'t str)], Error> {
        Ok(match self.known.entry(operator) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let mut seen = HashSet::new();
                let mut variables = Vec::new();
                for (name, value) in written {
                    pace.steps(1 + u32::try_from(value.len() >> 8).unwrap_or(u32::MAX / 2))?;
                    if seen.insert((name.as_str(), value.as_str())) {
                        variables.push((name.as_str(), value.as_str()));
                    }
                }
                unknown.insert(variables)
            }
        })
    }
}
