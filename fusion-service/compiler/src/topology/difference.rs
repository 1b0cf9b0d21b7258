//! Finds the operators that a resize adds, changes or removes (rule expansion-34).
//!
//! The two topologies must be of one application, with the numbers of the first carried over to the second by
//! [`super::relabel()`] or [`super::expand_again`]. Then an operator index that both have belongs to the same operator.

use super::{Generations, IgnoredCounts, Node, Topology};
use crate::budget::Budget;
use crate::error::Error;
use crate::logical::OperatorId;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use get_size2::GetSize;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The operators that a resize adds, changes or removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedOperators {
    /// Operators of channels that are new; of the topology after.
    pub added: Vec<Node>,
    /// Operators inside a resized region, or with other neighbours; of the topology after.
    pub changed: Vec<Node>,
    /// Those of the changed operators that can tell when they run: all but those that only have another number of
    /// channels, which they do not ask for (rule aadl-22).
    pub observed: Vec<Node>,
    /// Operators of channels that are gone; of the topology before.
    pub removed: Vec<Node>,
}

/// The names of [`ChangedOperators`], sorted. Removed operators have their old names, others their new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
pub struct ChangedOperatorNames {
    /// Operators of channels that are new.
    pub added: Vec<String>,
    /// Operators inside a resized region, or with other neighbours.
    pub changed: Vec<String>,
    /// Operators of channels that are gone.
    pub removed: Vec<String>,
}

/// Compares a topology with one for other widths (rule expansion-34). If the widths are the same, no operator is
/// listed.
///
/// # Errors
///
/// The budget ends.
pub fn changes(generations: &Generations<'_>, budget: &Budget) -> Result<ChangedOperators, Error> {
    let (before, after) = (generations.before(), generations.now());
    let both = before.regions.iter().zip(&after.regions);
    let resized: BTreeSet<u64> = both.filter(|(old, new)| old.width != new.width).map(|(old, _)| old.index).collect();
    let mut changes = ChangedOperators::default();
    if resized.is_empty() {
        return Ok(changes);
    }
    let mut pace = budget.pace();
    // All channels of an operator are in the same regions.
    let mut inside: SecondaryMap<OperatorId, Option<SmallVec<[u64; 2]>>> = SecondaryMap::new();
    for ((_, id, _), operator) in after.numbered.iter().zip(after.operators.values()) {
        pace.step()?;
        inside[*id].get_or_insert_with(|| {
            operator.channels.iter().map(|channel| channel.region).filter(|region| resized.contains(region)).collect()
        });
    }
    let inside = |node: Node| {
        let written = after.numbered.get(node.index()).map(|(_, id, _)| *id);
        written.and_then(|id| inside[id].as_deref()).unwrap_or_default()
    };
    let mut has_other_neighbours: PrimaryMap<Node, bool> = after.operators.keys().map(|_| false).collect();
    for connection in &after.connections {
        let (source, target) = (inside(connection.source), inside(connection.target));
        pace.steps(1 + u32::try_from(source.len() * target.len()).unwrap_or(u32::MAX / 2))?;
        has_other_neighbours[connection.target] |= source.iter().any(|region| !target.contains(region));
        has_other_neighbours[connection.source] |= target.iter().any(|region| !source.contains(region));
    }
    let ignored = IgnoredCounts::new(&after.regions);
    for (node, is) in &after.operators {
        pace.step()?;
        let Some(earlier) = generations.earlier(node) else {
            changes.added.push(node);
            continue;
        };
        let was = &before.operators[earlier];
        let is_renamed = || generations.same(node).is_none() && is.name != was.name;
        let is_told = || has_other_neighbours[node] || is_renamed();
        if !inside(node).is_empty() {
            pace.steps(u32::try_from(is.channels.len()).unwrap_or(u32::MAX))?;
            changes.changed.push(node);
            if ignored.is_empty() || ignored.difference(&was.channels, &is.channels).is_some() || is_told() {
                changes.observed.push(node);
            }
        } else if is_told() {
            changes.changed.push(node);
            changes.observed.push(node);
        }
    }
    changes.removed = generations.removed().collect();
    Ok(changes)
}

impl ChangedOperators {
    /// The names of these operators.
    pub fn names(&self, before: &Topology, after: &Topology) -> ChangedOperatorNames {
        let names = |nodes: &[Node], topology: &Topology| {
            let mut names: Vec<String> = nodes.iter().map(|&node| topology.operators[node].name.clone()).collect();
            names.sort_unstable();
            names
        };
        ChangedOperatorNames {
            added: names(&self.added, after),
            changed: names(&self.changed, after),
            removed: names(&self.removed, before),
        }
    }
}

/// The names of the operators that [`changes`] finds.
///
/// # Errors
///
/// The budget ends.
pub fn difference(before: &Topology, after: &Topology, budget: &Budget) -> Result<ChangedOperatorNames, Error> {
    Ok(changes(&Generations::new(before, after, budget)?, budget)?.names(before, after))
}
