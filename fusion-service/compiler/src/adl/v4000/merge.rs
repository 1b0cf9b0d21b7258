//! Merges the physical part of an application of the older dialect into the tree of operators (rule language-18).
//!
//! Invariants: it takes time linear in the document, but for searches in sorted tables. What a PE says once for all its
//! operators, and a port for all its imports, is shared and not copied.

use super::{Exported, ImportSource, Pe, PeOperator, PePort, PhysicalPort};
use crate::adl::composites::Composites;
use crate::adl::xml::Reader;
use crate::budget::Budget;
use crate::error::{Error, excerpt};
use crate::logical::{
    Export, ImportedStreams, NameImport, OperatorDefinition, OperatorId, OperatorKind, Port, PortKind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Puts the physical part into the operators of the tree (rule language-18).
///
/// # Errors
///
/// The budget ends.
pub(crate) fn merge(
    reader: &mut Reader<'_>,
    pes: Vec<Pe>,
    composites: &mut Composites,
    definitions: &mut [OperatorDefinition],
    budget: &Budget,
) -> Result<(), Error> {
    let toolkits = std::mem::take(&mut composites.toolkits);
    let mut left: BTreeMap<u64, OperatorId> = BTreeMap::new();
    let mut imports_and_exports: BTreeMap<String, OperatorId> = BTreeMap::new();
    for (name, id) in std::mem::take(&mut composites.names) {
        let operator = &composites.operators[id];
        match operator.kind {
            OperatorKind::Primitive(_) => left.insert(operator.index, id),
            _ => imports_and_exports.insert(name, id),
        };
    }
    let primitives = left.clone();
    let ports = PortPositions::new(composites);
    let mut specified = PortSpecifications::default();
    let mut pace = budget.pace();
    for pe in pes {
        let together = (pe.operators.len() > 1).then(|| format!("pe{}", pe.index));
        for physical in &pe.operators {
            pace.steps(16)?;
            let Some(&id) = primitives.get(&physical.index) else {
                let message = format!("<operInstance>: there is no operator {}", physical.index);
                reader.problem(physical.place, message);
                continue;
            };
            left.remove(&physical.index);
            if let Ok(at) = definitions.binary_search_by_key(&physical.definition, |definition| definition.index) {
                definitions[at].toolkit = toolkits.get(&id).copied();
            }
            merge_operator(composites, id, &pe, physical, together.as_deref());
        }
        for (pe_ports, kind) in [(&pe.inputs, PortKind::Input), (&pe.outputs, PortKind::Output)] {
            for pe_port in pe_ports {
                pace.steps(16)?;
                let Some((operator, index)) = pe_port.operator else { continue };
                if let Some(&id) = primitives.get(&operator)
                    && let Some(port) = ports.port(composites, (id, kind, index))
                {
                    merge_wire(port, pe_port);
                }
            }
        }
        for port in pe.inputs {
            pace.steps(u32::try_from(port.imports.len()).unwrap_or(u32::MAX))?;
            specified.imports(reader, &imports_and_exports, port, composites);
        }
        for port in pe.outputs {
            specified.export(reader, &imports_and_exports, port, composites);
        }
    }
    specified.finish(composites);
    for (index, id) in left {
        reader.problem(composites.operators[id].place, format!("no <operInstance> describes operator {index}"));
    }
    for id in imports_and_exports.into_values().filter(|id| !specified.exports.contains(id)) {
        let operator = &composites.operators[id];
        if matches!(operator.kind, OperatorKind::Export(_)) {
            let message = format!("no <exportedStream> describes the Export {}", excerpt(&operator.logical_name));
            reader.problem(operator.place, message);
        }
    }
    Ok(())
}

fn merge_operator(composites: &mut Composites, id: OperatorId, pe: &Pe, physical: &PeOperator, together: Option<&str>) {
    let OperatorKind::Primitive(primitive) = &mut composites.operators[id].kind else { return };
    primitive.definition = physical.definition;
    primitive.class.clone_from(&physical.class);
    primitive.wrapper = Arc::clone(&pe.wrapper);
    primitive.shared_object = Arc::clone(&pe.uri);
    primitive.optimized = pe.optimized;
    primitive.restartable = physical.restartable.unwrap_or(pe.restartable);
    primitive.relocatable = physical.relocatable.unwrap_or(pe.relocatable);
    primitive.single_threaded_on_outputs = physical.single_threaded_on_outputs;
    primitive.trace_level = pe.trace_level;
    primitive.resources.clone_from(&physical.resources);
    primitive.checkpointing.clone_from(&physical.checkpointing);
    primitive.runtime_constants.clone_from(&physical.runtime_constants);
    primitive.partition.co_locations = together.map(str::to_owned).into_iter().collect();
    for (port, physical) in primitive.inputs.iter_mut().zip(&physical.inputs) {
        merge_port(&mut port.port, physical);
        port.control = physical.control;
        port.threaded.clone_from(&physical.threaded);
    }
    for (port, physical) in primitive.outputs.iter_mut().zip(&physical.outputs) {
        merge_port(&mut port.port, physical);
        port.stream_name.clone_from(&physical.stream_name);
        port.viewable = physical.viewable;
    }
}

fn merge_port(port: &mut Port, physical: &PhysicalPort) {
    port.name.clone_from(&physical.name);
    port.mutable = physical.mutable;
    port.tuple_type = physical.tuple_type;
}

/// Encoding and transport are those of the PE port that the operator's port is connected to.
fn merge_wire(port: &mut Port, pe_port: &PePort) {
    port.encoding.clone_from(&pe_port.encoding);
    port.transport.clone_from(&pe_port.transport);
}

/// The positions of the ports of all primitives, by operator, kind and ADL index. Without this, each port of a PE would
/// search all ports of its operator.
struct PortPositions(Vec<((OperatorId, PortKind, u64), usize)>);

impl PortPositions {
    fn new(composites: &Composites) -> Self {
        let mut positions = Vec::new();
        for (id, operator) in composites.operators.iter() {
            let OperatorKind::Primitive(primitive) = &operator.kind else { continue };
            let inputs = primitive.inputs.iter().map(|port| port.port.index).enumerate();
            positions.extend(inputs.map(|(at, index)| ((id, PortKind::Input, index), at)));
            let outputs = primitive.outputs.iter().map(|port| port.port.index).enumerate();
            positions.extend(outputs.map(|(at, index)| ((id, PortKind::Output, index), at)));
        }
        positions.sort_unstable();
        Self(positions)
    }

    /// The port; of several with this index the first.
    fn port<'c>(&self, composites: &'c mut Composites, key: (OperatorId, PortKind, u64)) -> Option<&'c mut Port> {
        let at = self.0.partition_point(|(known, _)| *known < key);
        let &(_, position) = self.0.get(at).filter(|(known, _)| *known == key)?;
        let OperatorKind::Primitive(primitive) = &mut composites.operators[key.0].kind else { return None };
        match key.1 {
            PortKind::Input => primitive.inputs.get_mut(position).map(|port| &mut port.port),
            PortKind::Output => primitive.outputs.get_mut(position).map(|port| &mut port.port),
        }
    }
}

/// What the ports of PEs specify about imports and exports.
#[derive(Default)]
struct PortSpecifications {
    names: BTreeMap<OperatorId, BTreeMap<u64, NameImport>>,
    properties: BTreeMap<OperatorId, ImportedStreams>,
    exports: BTreeSet<OperatorId>,
}

impl PortSpecifications {
    fn imports(
        &mut self,
        reader: &mut Reader<'_>,
        operators: &BTreeMap<String, OperatorId>,
        port: PePort,
        composites: &mut Composites,
    ) {
        for imported in port.imports {
            let id = operators.get(&imported.operator).copied();
            let Some((id, OperatorKind::Import(import))) = id.map(|id| (id, &mut composites.operators[id].kind)) else {
                let message = format!("there is no Import named {}", excerpt(&imported.operator));
                reader.problem(imported.place, message);
                continue;
            };
            if port.filter.is_some() {
                import.filter.clone_from(&port.filter);
            }
            match imported.source {
                ImportSource::Name(name) => {
                    self.names.entry(id).or_default().insert(imported.index, name);
                }
                ImportSource::Properties { subscription, application_scope } => {
                    let index = imported.index;
                    let streams = ImportedStreams::ByProperties { subscription, application_scope, index };
                    self.properties.entry(id).or_insert(streams);
                }
            }
        }
    }

    fn export(
        &mut self,
        reader: &mut Reader<'_>,
        operators: &BTreeMap<String, OperatorId>,
        port: PePort,
        composites: &mut Composites,
    ) {
        let Some(Exported { place, operator, export: specified }) = port.export else { return };
        let id = operators.get(&operator).copied();
        let Some((id, OperatorKind::Export(export))) = id.map(|id| (id, &mut composites.operators[id].kind)) else {
            reader.problem(place, format!("there is no Export named {}", excerpt(&operator)));
            return;
        };
        let inputs = std::mem::take(&mut export.inputs);
        **export = Export { inputs, ..specified };
        self.exports.insert(id);
    }

    /// An import by properties hides imports by name of the same operator.
    fn finish(&mut self, composites: &mut Composites) {
        let names = std::mem::take(&mut self.names)
            .into_iter()
            .map(|(id, names)| (id, ImportedStreams::ByName(names.into_values().collect())));
        let properties = std::mem::take(&mut self.properties);
        for (id, streams) in names.chain(properties) {
            if let OperatorKind::Import(import) = &mut composites.operators[id].kind {
                import.streams = streams;
            }
        }
    }
}
