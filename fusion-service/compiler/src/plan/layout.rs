//! The layout: the numbers of one generation, which the next generation keeps (rules layout-1 and layout-2).
//!
//! A plan carries its layout as opaque bytes. The next resize and every rendering start from it. It names operators by
//! identity (ADL index and local channels), so another version of the compiler can read it. It records the ids of each
//! document, so that a resize can decide which PEs restart without writing the old documents again.
//!
//! Knows: identities, numbers, ids, widths. Must not know: names, constraints, XML.
//!
//! Invariants (checked on input, so a [`Layout`] always has them): operators ascend by index and identities are unique;
//! elements ascend by id and each has an operator; every operator is in an element that exists; ports ascend by what
//! they stand for and their ids are unique per element and direction; splitters name operators that exist.

use crate::budget::Budget;
use crate::error::Error;
use crate::topology::{Numbering, Via};

/// SHA-256.
pub type Digest = [u8; 32];

/// The numbers of one generation of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// SHA-256 of the ADL.
    pub adl: Digest,
    /// Digest of the request, as far as documents depend on it.
    pub request: Digest,
    /// Version of the compiler that made it.
    pub compiler: String,
    /// The number of PEs that automatic fusion computed at the submission. It stays the same.
    pub automatic_count: Option<u32>,
    /// Widths in force, by ADL index of the region, ascending.
    pub widths: Vec<(u64, u32)>,
    /// Numbers of operators, splitters and host pools.
    pub numbering: Numbering,
    /// For output ports with splitters that [`Numbering`] does not have: the numbers of all their splitters, in
    /// pre-order.
    pub splitter_trees: Vec<SplitterTree>,
    /// PEs, ascending id.
    pub elements: Vec<LayoutElement>,
}

/// Numbers of the splitters of one output port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SplitterTree {
    /// Operator index.
    pub operator: u32,
    /// Position of the output port.
    pub port: u32,
    /// Numbers in pre-order.
    pub indexes: Vec<u32>,
}

/// A PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutElement {
    /// Id.
    pub id: u64,
    /// SHA-256 of its document.
    pub content_id: Digest,
    /// SHA-256 of what can be observed of its document.
    pub runtime_id: Digest,
    /// Bytes of its document.
    pub bytes: u64,
    /// Indexes of its operators, ascending.
    pub operators: Vec<u32>,
    /// Input ports, ascending.
    pub inputs: Vec<LayoutInputPort>,
    /// Output ports, ascending.
    pub outputs: Vec<LayoutOutputPort>,
}

/// An input port of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayoutInputPort {
    /// Operator index.
    pub operator: u32,
    /// Position of the operator's input port.
    pub port: u32,
    /// Id.
    pub id: u32,
}

/// An output port of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayoutOutputPort {
    /// Operator index.
    pub operator: u32,
    /// Position of the operator's output port.
    pub port: u32,
    /// Channel, unless the port is taken directly.
    pub via: Option<Via>,
    /// Id.
    pub id: u32,
}

/// Why bytes cannot be used as the layout of an application.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// They are no layout, or a damaged one.
    #[error("the layout is damaged: {0}")]
    Damaged(&'static str),
    /// A newer or much older compiler wrote it.
    #[error("the layout has version {0}, this compiler reads version {VERSION}")]
    Version(u8),
    /// It belongs to another application.
    #[error("the layout belongs to another application: {0}")]
    Foreign(String),
}

/// Why a job cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The layout is damaged or belongs to another job.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The application or the request has problems, or the budget ended.
    #[error(transparent)]
    Compilation(#[from] Error),
}

/// Version that is written and read (rule layout-4). There is no earlier one yet.
pub(super) const VERSION: u8 = 1;

impl Layout {
    /// The element of this id.
    pub fn element(&self, id: u64) -> Option<&LayoutElement> {
        let position = self.elements.binary_search_by_key(&id, |element| element.id).ok()?;
        self.elements.get(position)
    }

    /// The PE of each operator, by identity.
    #[cfg(test)]
    pub(super) fn element_of(&self) -> std::collections::BTreeMap<&crate::topology::Identity, u64> {
        let by_index: std::collections::BTreeMap<u32, u64> =
            self.elements.iter().flat_map(|e| e.operators.iter().map(|&index| (index, e.id))).collect();
        let of = |index: &u32| by_index.get(index).copied();
        self.numbering.operators.iter().filter_map(|(identity, index)| Some((identity, of(index)?))).collect()
    }

    /// Checks the invariants that the encoding does not guarantee.
    ///
    /// # Errors
    ///
    /// One does not hold, or the budget ends.
    pub(super) fn verify(&self, budget: &Budget) -> Result<(), RestoreError> {
        use LayoutError::Damaged;
        let ensure = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(Damaged(what)) };
        let numbering = &self.numbering;
        ensure(numbering.operators.is_sorted_by(|a, b| a.0 < b.0), "an operator is there twice")?;
        ensure(self.widths.is_sorted_by(|a, b| a.0 < b.0), "a region is there twice")?;
        ensure(self.elements.is_sorted_by(|a, b| a.id < b.id), "a PE is there twice")?;
        ensure(numbering.splitters.is_sorted_by(|a, b| a < b), "splitters are out of order")?;
        ensure(numbering.host_pools.is_sorted_by(|a, b| a < b), "host pools are out of order")?;
        let of_tree = |tree: &SplitterTree| (tree.operator, tree.port);
        ensure(self.splitter_trees.is_sorted_by(|a, b| of_tree(a) < of_tree(b)), "splitter trees are out of order")?;
        let mut pace = budget.pace();
        for element in &self.elements {
            let parts = element.operators.len() + element.inputs.len() + element.outputs.len();
            pace.steps(u32::try_from(parts).unwrap_or(u32::MAX))?;
            ensure(!element.operators.is_empty(), "a PE has no operator")?;
            ensure(element.operators.is_sorted_by(|a, b| a < b), "operators of a PE are out of order")?;
            let key = |o: &LayoutOutputPort| (o.operator, o.port, o.via);
            ensure(element.inputs.is_sorted_by(|a, b| (a.operator, a.port) < (b.operator, b.port)), "input ports")?;
            ensure(element.outputs.is_sorted_by(|a, b| key(a) < key(b)), "output ports")?;
            let own = |index: &u32| element.operators.binary_search(index).is_ok();
            ensure(element.inputs.iter().all(|port| own(&port.operator)), "an input port of another PE")?;
            ensure(element.outputs.iter().all(|port| own(&port.operator)), "an output port of another PE")?;
            ensure(unique(element.inputs.iter().map(|port| port.id)), "an input port id is there twice")?;
            ensure(unique(element.outputs.iter().map(|port| port.id)), "an output port id is there twice")?;
        }
        budget.check()?;
        let indexes = sorted(numbering.operators.iter().map(|(_, index)| *index));
        ensure(indexes.is_sorted_by(|a, b| a < b), "an operator index is there twice")?;
        let placed = sorted(self.elements.iter().flat_map(|element| element.operators.iter().copied()));
        ensure(placed.is_sorted_by(|a, b| a < b), "an operator is in two PEs")?;
        ensure(placed == indexes, "an operator is in no PE, or a PE has an unknown operator")?;
        Ok(())
    }
}

fn sorted(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

fn unique(ids: impl Iterator<Item = u32>) -> bool {
    sorted(ids).is_sorted_by(|a, b| a < b)
}
