//! Finds operators and ports by their ADL index. In well-formed documents, indexes are dense and the position of a port
//! is its index. For other documents, a table is made.

use crate::error::{Problem, Problems, Stage, code};
use crate::logical::{Application, OperatorId, OperatorKind, PortKind};
use std::collections::HashMap;

/// Maps ADL indexes to operators. An index that occurs twice is a problem.
pub(super) fn operators_by_index(application: &Application, problems: &mut Problems) -> HashMap<u64, OperatorId> {
    let mut index = HashMap::with_capacity(application.operators.len());
    for (id, operator) in application.operators.iter() {
        if index.insert(operator.index, id).is_some() {
            let message = format!("the operator index {} occurs twice", operator.index);
            problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place));
        }
    }
    index
}

/// Finds ports by operator and ADL index.
pub(super) struct PortLookup<'a> {
    /// The application.
    pub(super) application: &'a Application,
    /// Operators by ADL index.
    pub(super) operators: &'a HashMap<u64, OperatorId>,
    /// Ports of operators with a port whose position is not its index.
    unusual: HashMap<(OperatorId, PortKind), HashMap<u64, u32>>,
}

impl<'a> PortLookup<'a> {
    pub(super) fn new(application: &'a Application, operators: &'a HashMap<u64, OperatorId>) -> Self {
        Self { application, operators, unusual: HashMap::new() }
    }

    /// The position of the port of this kind and ADL index.
    pub(super) fn position(&mut self, id: OperatorId, kind: PortKind, index: u64) -> Option<u32> {
        let direct = usize::try_from(index).ok();
        let key = (id, kind);
        let indexes: Vec<u64> = match (&self.application.operators[id].kind, kind) {
            // Ports of imports and exports have no index of their own (rule model-5).
            (OperatorKind::Import(_) | OperatorKind::Export(_), _) => return Some(0),
            (OperatorKind::Composite(composite), _) => {
                let ports = if kind == PortKind::Input { &composite.inputs } else { &composite.outputs };
                if direct.and_then(|at| ports.get(at)).is_some_and(|port| port.index == index) {
                    return u32::try_from(index).ok();
                }
                if let Some(positions) = self.unusual.get(&key) {
                    return positions.get(&index).copied();
                }
                ports.iter().map(|port| port.index).collect()
            }
            (OperatorKind::Primitive(primitive), _) => {
                let at = |at: usize| match kind {
                    PortKind::Input => primitive.inputs.get(at).map(|port| port.port.index),
                    PortKind::Output => primitive.outputs.get(at).map(|port| port.port.index),
                };
                if direct.and_then(at) == Some(index) {
                    return u32::try_from(index).ok();
                }
                if let Some(positions) = self.unusual.get(&key) {
                    return positions.get(&index).copied();
                }
                (0..).map_while(at).collect()
            }
        };
        // Of equal indexes the first counts.
        let mut positions = HashMap::with_capacity(indexes.len());
        for (index, position) in indexes.into_iter().zip(0..) {
            positions.entry(index).or_insert(position);
        }
        let found = positions.get(&index).copied();
        self.unusual.insert(key, positions);
        found
    }
}
