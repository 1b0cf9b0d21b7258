//! What a resize does to operators (topology 6.3 steps 1 and 2).
//!
//! Compares two topologies of one application whose numbers agree, as [`super::relabel`] and [`super::expand_again`] give them: an operator
//! index that both have belongs to the same operator.

use super::{Node, Operator, Topology};
use crate::shared::Shared;
use cranelift_entity::PrimaryMap;

/// What a resize does to operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Operators of channels that are new; of the topology after.
    pub added: Vec<Node>,
    /// Operators that are inside a region that is resized, or see other neighbours; of the topology after.
    pub changed: Vec<Node>,
    /// Operators of channels that are gone; of the topology before.
    pub removed: Vec<Node>,
}

/// What a resize does to operators (topology 6.3 steps 1 and 2). Names, sorted: removed ones as they were, others as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Operators of channels that are new.
    pub added: Vec<String>,
    /// Operators that are inside the region, or see other neighbours.
    pub changed: Vec<String>,
    /// Operators of channels that are gone.
    pub removed: Vec<String>,
}

/// What every operator was before, if it was there. `after` has the numbers of `before`, as [`relabel`] gives them.
pub fn earlier(before: &Topology, after: &Topology) -> PrimaryMap<Node, Option<Node>> {
    // Both arenas ascend by index, and an index that existed belongs to the same operator.
    let mut known = before.operators.iter().map(|(node, operator)| (operator.index, node)).peekable();
    let earlier = after.operators.values().map(|operator| {
        while known.next_if(|(index, _)| *index < operator.index).is_some() {}
        known.next_if(|(index, _)| *index == operator.index).map(|(_, node)| node)
    });
    earlier.collect()
}

/// What becomes of operators when a topology is replaced by one with other widths and the same numbers, as [`relabel`] gives them
/// (topology 6.3 steps 1 and 2). Nothing when the widths are the same. `earlier` is what [`earlier`] says of the two.
pub fn changes(before: &Topology, after: &Topology, earlier: &PrimaryMap<Node, Option<Node>>) -> Changes {
    let resized = before.regions.iter().zip(&after.regions).filter(|(old, new)| old.width != new.width);
    let mut stays: PrimaryMap<Node, bool> = before.operators.keys().map(|_| false).collect();
    let mut changed: PrimaryMap<Node, bool> = after.operators.keys().map(|_| false).collect();
    let mut is_resized = false;
    for (region, _) in resized {
        is_resized = true;
        let inside =
            |operator: &Shared<Operator>| operator.channels.iter().any(|channel| channel.region == region.index);
        let inside: PrimaryMap<Node, bool> = after.operators.values().map(inside).collect();
        for (node, inside) in &inside {
            changed[node] |= *inside;
        }
        for connection in &after.connections {
            let (source, target) = (connection.source, connection.target);
            if inside[source] != inside[target] {
                changed[if inside[source] { target } else { source }] = true;
            }
        }
    }
    let mut changes = Changes::default();
    if !is_resized {
        return changes;
    }
    for (node, earlier) in earlier {
        let Some(earlier) = *earlier else {
            changes.added.push(node);
            continue;
        };
        stays[earlier] = true;
        let (was, is) = (&before.operators[earlier], &after.operators[node]);
        if changed[node] || (!is.is(was) && is.name != was.name) {
            changes.changed.push(node);
        }
    }
    changes.removed = stays.iter().filter(|(_, stays)| !**stays).map(|(node, _)| node).collect();
    changes
}

impl Changes {
    /// The same by name.
    pub fn names(&self, before: &Topology, after: &Topology) -> Difference {
        let names = |nodes: &[Node], topology: &Topology| {
            let mut names: Vec<String> = nodes.iter().map(|&node| topology.operators[node].name.clone()).collect();
            names.sort_unstable();
            names
        };
        Difference {
            added: names(&self.added, after),
            changed: names(&self.changed, after),
            removed: names(&self.removed, before),
        }
    }
}

/// [`changes`] by name.
pub fn difference(before: &Topology, after: &Topology) -> Difference {
    changes(before, after, &earlier(before, after)).names(before, after)
}
