//! Compares two generations of a job: which operators exist in both, and which of these are the same.
//!
//! A resize makes this comparison once, when it has made the new topology. Every later stage uses it, and nothing else,
//! to decide what it can take over from the generation before: fusion takes over the PEs of operators,
//! [`crate::elements`] numbers and whole PEs, [`crate::aadl`] fragments of text.
//!
//! Knows: two topologies of one application. Must not know: how the second was made, PEs, documents.
//!
//! Invariant: [`super::relabel()`] or [`super::expand_again`] has carried the numbers of the first over to the second.
//! So an operator index that both have belongs to the same operator, and the operators that both have are in the same
//! order in both.

use super::{Node, PhysicalOperator, Topology};
use crate::budget::{Budget, Pace};
use crate::error::Error;
use crate::shared::Shared;
use cranelift_entity::PrimaryMap;
use cranelift_entity::packed_option::PackedOption;
use std::sync::Arc;

/// A topology, and the one that takes its place.
#[derive(Debug)]
pub struct Generations<'g> {
    before: &'g Topology,
    now: &'g Topology,
    /// By operator of `now`: the same operator in `before`.
    earlier: PrimaryMap<Node, PackedOption<Node>>,
    /// By operator of `before`: the same operator in `now`.
    later: PrimaryMap<Node, PackedOption<Node>>,
    /// By operator of `now`: whether its value is equal to the one in `before`.
    equal: PrimaryMap<Node, bool>,
}

impl<'g> Generations<'g> {
    /// Compares the operators of two topologies. Linear in both.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub fn new(before: &'g Topology, now: &'g Topology, budget: &Budget) -> Result<Self, Error> {
        let mut pace = budget.pace();
        let mut later: PrimaryMap<Node, PackedOption<Node>> = before.operators.keys().map(|_| None.into()).collect();
        let mut earlier = PrimaryMap::with_capacity(now.operators.len());
        let mut equal = PrimaryMap::with_capacity(now.operators.len());
        // Both ascend by index.
        let mut known = before.operators.keys().zip(&before.numbered).peekable();
        for (node, (index, _, _)) in now.operators.keys().zip(&now.numbered) {
            pace.step()?;
            while known.next_if(|(_, (known, _, _))| known < index).is_some() {}
            let was = known.next_if(|(_, (known, _, _))| known == index).map(|(was, _)| was);
            if let Some(was) = was {
                later[was] = node.into();
            }
            earlier.push(was.into());
            equal.push(match was {
                Some(was) => are_equal(&before.operators[was], &now.operators[node], &mut pace)?,
                None => false,
            });
        }
        Ok(Self { before, now, earlier, later, equal })
    }

    /// The first.
    pub fn before(&self) -> &'g Topology {
        self.before
    }

    /// The second.
    pub fn now(&self) -> &'g Topology {
        self.now
    }

    /// The operator of the first that an operator of the second was, if it existed.
    pub fn earlier(&self, node: Node) -> Option<Node> {
        self.earlier.get(node)?.expand()
    }

    /// The operator of the second that an operator of the first has become, if it still exists.
    pub fn later(&self, earlier: Node) -> Option<Node> {
        self.later.get(earlier)?.expand()
    }

    /// The operator of the first, if an operator of the second is equal to it. Its connections may differ.
    pub fn same(&self, node: Node) -> Option<Node> {
        self.earlier(node).filter(|_| self.equal[node])
    }

    /// Operators of the first that are gone.
    pub fn removed(&self) -> impl Iterator<Item = Node> {
        self.later.iter().filter(|(_, later)| later.is_none()).map(|(earlier, _)| earlier)
    }

    /// Whether the parts that every document of a job repeats are the same in both.
    pub fn share_repeated_parts(&self) -> bool {
        self.before.has_repeated_parts_of(self.now)
    }
}

/// Compares whole values, so that a new field of the type counts at once. Lists that copies share may have any length.
/// They are the same in memory if they are equal and the second topology was made from the first.
fn are_equal(
    was: &Shared<PhysicalOperator>,
    is: &Shared<PhysicalOperator>,
    pace: &mut Pace<'_>,
) -> Result<bool, Error> {
    if was.is(is) {
        return Ok(true);
    }
    let mut compared = 0;
    if !Arc::ptr_eq(&was.annotations, &is.annotations) {
        compared += is.annotations.len();
    }
    for (was, is) in was.inputs.iter().zip(&is.inputs) {
        if !Arc::ptr_eq(&was.mergers, &is.mergers) {
            compared += is.mergers.len();
        }
    }
    pace.steps(u32::try_from(compared).unwrap_or(u32::MAX))?;
    Ok(was == is)
}
